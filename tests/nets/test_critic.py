"""The critic and the classifier: their fast form equals the published one, also through the
gradient penalty; spectral normalisation; the losses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpy_compare
import pytest
from numpy_compare import largest, normal, uniform

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.nets import resnet
from dpgen_jax.nets.losses import classifier_loss, critic_loss, gradient_penalty
from dpgen_jax.nets.resnet import Classifier, Critic, CriticNet, class_score

pytestmark = pytest.mark.slow

SPECS = [ImageSpec(28, 28, 1, 10), ImageSpec(8, 20, 2, 3), ImageSpec(4, 4, 1, 2)]
SMALL = ImageSpec(12, 12, 1, 4)


close = functools.partial(numpy_compare.close, floor=1e-6)


def plain_maps(p, x):
    """The published trunk on the image as it is: kernels mirrored, padding 2; maps mirrored."""
    for i in (1, 2, 3):
        x = jax.lax.conv_general_dilated(
            x, p[f"conv{i}"][::-1, ::-1], (2, 2), ((2, 2), (2, 2)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jnp.where(x + p[f"conv{i}_bias"] > 0, x + p[f"conv{i}_bias"], 0)
    return x[:, ::-1, ::-1].reshape(len(x), -1)


def plain_score(p, x, labels):
    h = plain_maps(p, x)
    return (h @ p["linear"])[:, 0] + p["linear_bias"][0] + jnp.sum(p["embedding"].T[labels] * h, 1)


def data(spec, m=5):
    return (uniform(m, *spec.shape), uniform(m, *spec.shape, seed=1),
            np.random.default_rng(2).integers(0, spec.classes, m))


def step_loss(critic, score, weights, vectors, real, fake, labels):
    normalised, _ = critic.normalise(weights, vectors)
    return critic_loss(functools.partial(score, normalised), jax.random.key(7), real, fake, labels,
                       10.0, 1e-3)


@pytest.mark.parametrize("spec", SPECS[1:], ids=str)
def test_critic_and_its_loss_equal_the_plain_form(spec):
    critic = Critic(CriticNet(4), spec)
    weights, vectors = jax.jit(critic.init)(jax.random.key(1))
    real, fake, labels = data(spec)
    got, want = (jax.jit(lambda f=f: (
        f(weights, real, labels), jax.grad(lambda x: jnp.sum(f(weights, x, labels)))(real),
        *jax.value_and_grad(lambda w: step_loss(critic, f, w, vectors, real, fake, labels))(
            weights)))() for f in (critic.apply, plain_score))
    for a, b in zip(got[:3], want[:3], strict=True):
        close(a, b)
    for name in weights:
        assert largest(want[3][name]) > 0
        close(got[3][name], want[3][name])


def test_loss_gradient_agrees_with_finite_differences():
    critic = Critic(CriticNet(3), SMALL)
    weights, vectors = jax.jit(critic.init)(jax.random.key(1))
    real, fake, labels = data(SMALL)
    # Behind the last ReLU the loss has no kink; without its vector a layer is not divided by a
    # sigma, whose vectors would move too.
    name = "embedding"
    vectors = {k: u for k, u in vectors.items() if k != name}
    direction = normal(*weights[name].shape)

    @jax.jit
    def slope(e):
        return jax.value_and_grad(lambda e: step_loss(
            critic, critic.apply, {**weights, name: weights[name] + e * direction}, vectors, real,
            fake, labels))(e)

    difference = (slope(1e-2)[0] - slope(-1e-2)[0]) / 2e-2
    assert abs(float(slope(0.0)[1])) > 0.01
    np.testing.assert_allclose(difference, slope(0.0)[1], rtol=2e-3)


def test_classifier_equals_the_plain_form():
    classifier = Classifier(CriticNet(4), SMALL)
    weights, vectors = jax.jit(classifier.init)(jax.random.key(1))
    x, _, labels = data(SMALL)
    normalised, _ = classifier.normalise(weights, vectors)

    def plain(p, x):
        return plain_maps(p, x) @ p["linear"] + p["linear_bias"]

    got, want = (jax.jit(jax.value_and_grad(lambda p, f=f: classifier_loss(
        lambda x, y: class_score(f(p, x), y), x, labels, 10.0, 1e-3)))(normalised)
        for f in (classifier.apply, plain))
    close(got[0], want[0])
    jax.tree.map(close, got[1], want[1])
    logits = np.asarray(jax.jit(plain)(normalised, x))
    by_hand = [sum(row[c] if c == y else -row[c] / 3 for c in range(4))
               for row, y in zip(logits, labels, strict=True)]
    close(class_score(logits, labels), by_hand)


def test_penalty_of_a_linear_critic_and_its_derivative():
    w, x = normal(3, 4, 2), uniform(5, 3, 4, 2)

    @jax.jit
    @jax.value_and_grad
    def penalty(w):
        return gradient_penalty(lambda x, y: jnp.sum(x * w, (1, 2, 3)), x, jnp.zeros(5, jnp.int32))

    norm, (value, slope) = np.sqrt(np.sum(w * w)), penalty(w)
    np.testing.assert_allclose(value, (norm - 1)**2, rtol=1e-5)
    np.testing.assert_allclose(slope, 2 * (norm - 1) * w / norm, rtol=1e-4)


def test_penalty_is_safe_where_the_gradient_is_zero():
    x, labels = jnp.ones((3, 2, 2, 1)), jnp.zeros(3, jnp.int32)
    value, grad = jax.jit(jax.value_and_grad(lambda w: gradient_penalty(
        lambda x, y: w * jnp.sum(x, (1, 2, 3)), x, labels)))(0.0)
    assert (value, grad) == (1.0, 0.0)


def test_loss_terms_and_signs():
    real, fake = jnp.full((2, 2, 2, 1), 3.0), jnp.ones((2, 2, 2, 1))

    def score(x, labels):
        return x[:, 0, 0, 0]

    labels, key = jnp.zeros(2, jnp.int32), jax.random.key(0)
    assert critic_loss(score, key, real, fake, labels, 0.0, 0.5) == 1 - 3 + 0.5 * 9
    assert critic_loss(score, key, real, 2 * fake, labels, 10.0, 0.0) == 2 - 3 + 10 * 0
    assert classifier_loss(score, real, labels, 0.0, 0.5) == -3 + 0.5 * 9


def test_interpolates_lie_evenly_between_a_record_and_its_own_fake():
    def score(x, labels):
        return jnp.sum(x**2, (1, 2, 3)) / 2  # whose gradient is x

    def penalty(real, fake):
        labels = jnp.zeros(len(real), jnp.int32)
        args = (score, jax.random.key(0), real, fake, labels)
        return critic_loss(*args, 1.0, 0.0) - critic_loss(*args, 0.0, 0.0)

    ones = jnp.ones((4000, 1, 1, 1))
    np.testing.assert_allclose(penalty(ones, 0 * ones), 1 / 3, atol=0.02)
    numbers = jnp.arange(5.0).reshape(5, 1, 1, 1)
    np.testing.assert_allclose(penalty(numbers, numbers), 3, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 5, 3, 7), (40, 1), (6, 9)], ids=str)
def test_power_iteration_finds_the_largest_singular_value(shape):
    w = normal(*shape)
    vectors = {"w": resnet.unit_vector(normal(*shape[-1:], seed=1))}
    normalise = jax.jit(resnet.spectral_normalise)
    for _ in range(200):
        normalised, vectors = normalise({"w": w, "b": w}, vectors)
    matrix = np.asarray(normalised["w"]).reshape(-1, shape[-1])
    np.testing.assert_allclose(np.linalg.svd(matrix)[1][0], 1, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(vectors["w"]), 1, rtol=1e-5)
    np.testing.assert_array_equal(normalised["b"], w)


def test_one_power_iteration_and_its_constant_vectors():
    w, u = normal(6, 4), np.eye(4, dtype=np.float32)[0]
    v = w @ u / np.linalg.norm(w @ u)
    new = w.T @ v / np.linalg.norm(w.T @ v)

    @jax.jit
    @jax.grad
    def slope(w):
        return jnp.sum(resnet.spectral_normalise({"w": w}, {"w": u})[0]["w"] ** 3)

    normalise = jax.jit(resnet.spectral_normalise)
    close(normalise({"w": w}, {"w": u})[1]["w"], new)
    close(slope(w), jax.jit(jax.grad(lambda w: jnp.sum((w / (v @ w @ new)) ** 3)))(w))
    zero = normalise({"w": 0 * w}, {"w": u})
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(zero))


def test_units_side_by_side_equal_one_by_one():
    critic = Critic(CriticNet(2), SMALL)
    units = jax.jit(jax.vmap(critic.init))(jax.random.split(jax.random.key(0), 3))
    data_of, labels = uniform(3, 2, 4, *SMALL.shape), np.arange(4)

    def grads(unit, x):
        return jax.grad(lambda w: step_loss(critic, critic.apply, w, unit[1], *x, labels))(unit[0])

    together, one = jax.jit(jax.vmap(grads))(units, data_of), jax.jit(grads)
    for i in range(3):
        alone = one(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], units), data_of[i])
        jax.tree.map(lambda a, b, i=i: close(np.asarray(a)[i], b), together, alone)


def test_a_records_score_depends_on_no_other_record():
    critic = Critic(CriticNet(4), SMALL)
    weights, _ = jax.jit(critic.init)(jax.random.key(0))
    x, _, labels = data(SMALL)
    others = x.copy(), labels.copy()
    others[0][1:], others[1][1:] = 0.5, 0
    score = jax.jit(critic.apply)
    np.testing.assert_allclose(score(weights, x, labels)[0], score(weights, *others)[0], rtol=1e-6)


def test_parameter_count_and_initial_values():
    spec = SPECS[0]
    weights, vectors = jax.jit(Critic(CriticNet(), spec).init)(jax.random.key(0))
    by_hand = 25 * 64 + 64 + 25 * 64 * 128 + 128 + 25 * 128 * 256 + 256 + 4096 + 1 + 10 * 4096
    assert sum(leaf.size for leaf in weights.values()) == by_hand
    bound = 1 / np.sqrt(25 * 128)
    for name in ("conv3", "conv3_bias"):
        assert 0.95 * bound < largest(weights[name]) <= bound
    assert abs(float(weights["embedding"].std()) - 1) < 0.02
    assert {name: len(u) for name, u in vectors.items()} == {
        "conv1": 64, "conv2": 128, "conv3": 256, "linear": 1, "embedding": 10}


@pytest.mark.parametrize(("size", "last"), [(28, 4), (32, 4), (12, 2), (8, 1), (64, 8)], ids=str)
def test_sizes(size, last):
    critic, x = Critic(CriticNet(2), ImageSpec(size, size, 1, 2)), jnp.zeros((3, size, size, 1))
    weights, _ = jax.eval_shape(critic.init, jax.random.key(0))
    assert weights["linear"].shape == (last * last * 8, 1)
    scores = jax.eval_shape(critic.apply, weights, x, jnp.zeros(3, jnp.int32))
    assert scores.shape == (3,)


def test_bad_widths_and_sizes_are_refused_in_one_line():
    with pytest.raises(UserError, match="width is 0") as error:
        CriticNet(0)
    assert "\n" not in str(error.value)
    for network in (Critic, Classifier):
        with pytest.raises(UserError, match="multiples of 4"):
            network(CriticNet(), ImageSpec(27, 28, 1, 10))
