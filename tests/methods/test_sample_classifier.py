"""The classifier by which a mixture's samples are kept: its gradients, its steps, what it keeps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_mixture

from dpgen_jax.core.types import ImageSpec, Records
from dpgen_jax.methods import mixture
from dpgen_jax.methods.shared import gaussians
from dpgen_jax.nets.frequencies import n_features, oriented

SPEC = ImageSpec(8, 8, 1, 2)
N = 400


def bars(rng, n, blur=0.0):
    """Images of an upright bar or one that lies, at any place: classes of one mean."""
    y = np.arange(n, dtype=np.int32) % 2
    x = np.zeros((n, 8, 8, 1), np.float32)
    for image, label, at in zip(x, y, rng.integers(1, 6, n), strict=True):
        (image if label else image.transpose(1, 0, 2))[at:at + 2] = 1
    return np.clip(x + blur * rng.random(x.shape), 0, 1).astype(np.float32), y


def accuracy(classifier, x, y):
    at = gaussians._placed(oriented(x), classifier.mean)
    return float((np.asarray(at @ classifier.weights).argmax(1) == y).mean())


def fitted(x, y):
    """The classifier of public images."""
    return jax.jit(lambda x, y: gaussians.started_classifier(SPEC, oriented(x), y))(x, np.int32(y))


def gradients(classifier, x, y):
    def one(x, y):
        return gaussians.classifier_gradient(SPEC, None, None, Records(x[None], y[None]),
                                             classifier)

    return jax.jit(jax.vmap(one))(np.uint8(np.rint(x * 255)), y)


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (5, 9, 3), (1, 1, 1)])
def test_features_are_as_many_as_is_said(shape):
    spec = ImageSpec(*shape, 2)
    images = np.random.default_rng(0).random((3, *shape), np.float32)
    features = np.asarray(oriented(images))
    assert features.shape == (3, n_features(spec)) and (features >= 0).all()
    np.testing.assert_allclose(oriented(images[1:2])[0], features[1], rtol=1e-5)
    assert not np.asarray(oriented(np.zeros((1, *shape), np.float32))).any()


def test_features_tell_in_which_direction_it_grows_brighter():
    across = np.tile(np.linspace(0, 1, 8, dtype=np.float32), (8, 1))[None, ..., None]
    planes = [np.asarray(oriented(x)).reshape(4, 4, -1)[..., :6].sum((0, 1))
              for x in (across, across[:, :, ::-1])]
    assert planes[0].argmax() == 0 and planes[1].argmax() == 3  # 0 and 180 degrees of 60 a step
    down = np.asarray(oriented(across.transpose(0, 2, 1, 3))).reshape(4, 4, -1)[..., :6]
    assert set(np.argsort(down.sum((0, 1)))[-2:]) == {1, 2}  # 90 lies between 60 and 120


def test_a_gradient_is_that_of_the_loss_and_no_longer_than_1():
    x, y = bars(np.random.default_rng(1), 6, 0.3)
    images = np.rint(x * 255) / 255
    start = fitted(*bars(np.random.default_rng(2), 60, 0.3))
    messages = np.asarray(gradients(start, x, y))
    assert (messages[:, 0, 0] == 0).all()

    def loss(weights, image, label):
        at = gaussians._placed(oriented(image[None]), start.mean)[0]
        return -jax.nn.log_softmax(at @ weights)[label]

    for image, label, message in zip(images, y, messages[:, 0, 1:], strict=True):
        true = np.asarray(jax.grad(loss)(start.weights, image, label)).ravel()
        np.testing.assert_allclose(message, true, atol=1e-4)
    wrong = dataclasses.replace(start, weights=-100 * start.weights)
    longest = np.linalg.norm(gradients(wrong, x, y), axis=(1, 2))
    assert 0.99 < longest.max() <= 1 + 1e-6  # the loss has a gradient of length sqrt 2 there


def test_few_gradients_move_the_classifier_from_public_images_to_the_records():
    """It starts with most of them the wrong way round."""
    rng = np.random.default_rng(3)
    x, y = bars(rng, N, 0.5)
    public, labels = bars(rng, N, 0.5)
    classifier = fitted(public, np.where(rng.random(N) < 0.45, 1 - labels, labels))
    wrong = dataclasses.replace(classifier, weights=-classifier.weights)
    before = accuracy(wrong, x, y)
    move = jax.jit(lambda query, mean: gaussians.moved_classifier(
        query, oriented(public), mean, 1e-3, 6))
    after = wrong
    for _ in range(6):
        after = move(after, gradients(after, x, y)[:, 0, 1:].mean(0))
    assert before < 0.4 and accuracy(after, x, y) > 0.95
    beyond = move(after, jnp.ones(after.weights.size))  # after the last round no step is taken
    np.testing.assert_array_equal(beyond.weights, after.weights)


def test_what_is_kept_is_classified_as_its_label_or_nearest_to_it():
    weights = jnp.zeros((n_features(SPEC), 2))
    upright, lying = (bars(np.random.default_rng(4), 2)[0][i] for i in (1, 0))
    both = np.asarray(oriented(np.stack([upright, lying])))
    mean = both.mean(0)
    weights = weights.at[:, 1].set(both[0] - both[1])

    def draw(key, labels):
        """One in two is upright, whatever its label."""
        coins = jax.random.bernoulli(key, 0.5, (len(labels), 1, 1, 1))
        return jnp.where(coins, upright, lying)

    labels = np.arange(2000, dtype=np.int32) % 2
    images = np.asarray(jax.jit(lambda key: gaussians.kept_samples(
        mean, weights, key, labels, draw))(jax.random.key(0)))
    right = (images == np.where(labels[:, None, None, None], upright, lying)).all((1, 2, 3))
    assert right.mean() == pytest.approx(1 - 0.5**gaussians.CANDIDATES, abs=0.02)
    none = np.asarray(gaussians.kept_samples(mean, 0 * weights, jax.random.key(0), labels, draw))
    first = draw(jax.random.fold_in(jax.random.key(0), 0), labels)
    np.testing.assert_array_equal(none, first)  # a classifier that knows nothing keeps the first


def test_what_is_kept_where_nothing_is_classified_as_its_label():
    """The image that is most like it: of images between two bars, the brightest."""
    upright, lying = (bars(np.random.default_rng(4), 2)[0][i] for i in (1, 0))
    both = np.asarray(oriented(np.stack([upright, lying])))
    weights = jnp.zeros((n_features(SPEC), 2)).at[:, 1].set(both[0] - both[1])
    labels = np.ones(500, np.int32)

    def draw(key, labels):
        """Images of a bar that lies, with less than half of an upright one on it."""
        part = 0.4 * jax.random.uniform(key, (len(labels), 1, 1, 1))
        return jnp.maximum(part * upright, lying)

    def part(images):
        return np.where(lying.ravel() == 0, images.reshape(len(images), -1), 0).max(1)

    kept = part(np.asarray(jax.jit(lambda key: gaussians.kept_samples(
        both.mean(0), weights, key, labels, draw))(jax.random.key(0))))
    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(gaussians.CANDIDATES)]
    best = np.max([part(draw(key, labels)) for key in keys], 0)
    np.testing.assert_allclose(kept, best, atol=1e-6)


def test_rounds_go_on_from_the_released_gradient_of_the_records():
    """Each asks about the weights after the last, which moved by the mean over the records."""
    x, y = bars(np.random.default_rng(5), N, 0.2)
    x = np.uint8(np.rint(255 * x))
    config = mixture.Config(records=N, cells=1, frequencies=4, dimensions=6, sigma=0.0, steps=7,
                            classifier=3)
    *before, phase = mixture.build(config, SPEC).phases
    key = jax.random.key(0)
    sure = fitted(*bars(np.random.default_rng(6), N, 0.2))
    start = dataclasses.replace(sure, weights=-0.1 * sure.weights)  # the wrong way round

    @jax.jit
    def rounds(start, x, y):
        public = phase.init(key)
        for earlier in before:
            public = small_mixture.absorbed(earlier, public, x, y, key, 0.0)
        public = dataclasses.replace(public, classifier=dataclasses.replace(
            start, rounds=jnp.int32(1)))
        queries = []
        for _ in range(2):
            queries.append(phase.ask(key, public))
            public = small_mixture.absorbed(phase, public, x, y, key, 0.0)
        return queries, public.classifier

    queries, last = rounds(start, x, y)
    for old, after in zip([start, queries[1]], [queries[1], last], strict=True):
        true = np.asarray(gradients(old, x / 255, y)[:, 0, 1:].mean(0))
        step = np.asarray(after.weights - old.weights).ravel()
        # A damped Newton step: down the slope, by no more than the damping allows.
        assert -step @ true > 0.01 * np.linalg.norm(step) * np.linalg.norm(true) > 0
        assert np.linalg.norm(step) <= np.linalg.norm(true) / gaussians.LEAST_DAMPING
    np.testing.assert_array_equal(queries[0].weights, start.weights)
    assert accuracy(start, x / 255, y) < 0.1 and accuracy(last, x / 255, y) > 0.8


def test_a_classifier_of_long_messages_and_large_images_fits_into_memory():
    """100 classes in colour: a sum is taken apart without the products it does not have."""
    spec = ImageSpec(224, 224, 3, 100)
    config = mixture.Config(records=60_000, cells=1, frequencies=3, dimensions=4, sigma=10.0,
                            steps=5, classifier=1)
    bound = mixture.bounds(config, spec)[-1]
    assert bound.length == 7 * 7 * 9 * 100
    sums = jax.jit(bound.sums)(jnp.ones((1, bound.columns)))
    assert sums.first.shape == (1, bound.length) and not sums.second.size
    at_once, calls = gaussians.classifier_calls(spec)
    assert at_once * 224 * 224 * 3 <= 10**6 and at_once * calls >= gaussians.SAMPLES


def test_a_run_that_ends_before_its_classifier_has_samples():
    config = mixture.Config(records=N, cells=2, frequencies=3, dimensions=4, sigma=1.0, steps=9,
                            classifier=3)
    built = mixture.build(config, SPEC)

    @jax.jit
    def images(key):
        model = built.finalize(key, built.init(key))
        return built.sample(model, key, jnp.arange(6) % 2)

    assert np.isfinite(np.asarray(images(jax.random.key(0)))).all()
