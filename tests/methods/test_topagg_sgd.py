"""TopAgg-SGD: what a record says, what it can do, and the classifier that is released."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from dpgen_jax import presets
from dpgen_jax.accountant.events import NonPrivateEvent, PoissonGaussianEvent
from dpgen_jax.aggregation.topagg import dimension_topk, norm_topk
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import Column, ImageSpec, Records, TableSpec, UserError
from dpgen_jax.methods import topagg_sgd
from dpgen_jax.methods.topagg_sgd import Classifier, Config
from dpgen_jax.run import calibrate_config

N, CLIP = 24, 0.5
IMAGE = ImageSpec(10, 12, 1, 3)
TABLE = TableSpec((Column("a", "continuous", 0.0, 1.0),
                   Column("b", "categorical", categories=("x", "y"))),
                  Column("class", "categorical", categories=("0", "1", "2")), 2)
CONFIG = Config(records=N, batch=8, clip=CLIP, kappa=0.6, sigma=1.5, steps=4, channels=(3, 4),
                hidden=(5,), learning_rate=0.5, momentum=0.5)
def records(spec, n=N, seed=0):
    """Classes that differ, and noise."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % spec.classes).astype(np.int32)
    if spec is TABLE:
        x = np.concatenate([0.8 * y[:, None] / 2 + rng.uniform(0, 0.2, (n, 1)),
                            np.eye(2)[rng.integers(0, 2, n)]], 1)
        return Records(x.astype(np.float32), y)
    centres = np.random.default_rng(9).integers(0, 200, (spec.classes, *spec.shape))
    return Records((centres[y] + rng.integers(0, 50, (n, *spec.shape))).astype(np.uint8), y)


@functools.cache
def method(spec, **fields):
    return topagg_sgd.build(dataclasses.replace(CONFIG, **fields), spec)


@functools.cache
def params(spec):
    """Weights after a step, since the last layer starts at zero."""
    method = topagg_sgd.build(CONFIG, spec)
    moved = 0.3 * jax.random.normal(jax.random.key(1), method.mechanism.shape)
    start = jax.jit(method.init)(jax.random.key(0))
    return jax.jit(method.absorb)(jax.random.key(0), start, start.params, moved)[0].params


def one(own, i=0):
    return Records(own.x[i:i + 1], own.y[i:i + 1])


def gradient(spec, own):
    """The gradient of the cross-entropy of the one record, in NumPy's order of the parameters."""
    net = Classifier(CONFIG, spec)
    x = own.x.reshape(1, *spec.shape) / np.float32(255 if spec is IMAGE else 1)

    def loss(p):
        logits = net.apply(p, x)[0]
        return jax.nn.logsumexp(logits) - logits[own.y[0]]

    leaves = jax.tree.leaves(jax.jit(jax.grad(loss))(params(spec)))
    return np.concatenate([np.asarray(g).reshape(-1) for g in leaves])


@pytest.mark.parametrize(("spec", "keep", "clip"), [
    (IMAGE, "norm", 0.05), (TABLE, "norm", 0.05), (TABLE, "norm", 100.0),
    (TABLE, "dimension", 0.05)])
def test_an_answer_is_what_is_kept_of_the_clipped_gradient(spec, keep, clip):
    own = one(records(spec))
    sent = jax.jit(method(spec, keep=keep, clip=clip).answer)(
        jax.random.key(0), jnp.int32(0), own, params(spec))
    clipped = gradient(spec, own)
    clipped = clipped * min(1, clip / np.linalg.norm(clipped))
    chosen = jax.jit({"norm": norm_topk, "dimension": dimension_topk}[keep], static_argnums=1)
    np.testing.assert_allclose(sent[0], chosen(clipped, 0.6), atol=1e-5 * clip)
    share = np.count_nonzero(sent) / sent.size
    assert (0 < share <= 0.6) if keep == "dimension" else (0 < share < 1)
    if keep == "norm":
        assert np.linalg.norm(sent) <= math.sqrt(0.6) * clip * (1 + 1e-5)


# What one record can do.

@pytest.mark.parametrize("keep", ["norm", "dimension"])
def test_the_declared_sensitivity_is_attained_and_never_exceeded(keep):
    built = method(IMAGE, keep=keep).mechanism
    longest = CLIP * (math.sqrt(0.6) if keep == "norm" else 1)
    assert built.bound.clip == pytest.approx(longest)
    assert built.noise.sigma * built.bound.grid == pytest.approx(1.5 * longest)
    answer = jax.jit(method(IMAGE, keep=keep, clip=CLIP).answer)
    own = records(IMAGE)
    sent = [np.asarray(answer(jax.random.key(0), jnp.int32(0), one(own, i), params(IMAGE)))
            for i in range(3)]
    spike = np.zeros_like(sent[0])
    spike[0, 0] = longest
    hostile = [spike, -spike, 1e20 * spike, -1e9 * sent[0], np.full_like(spike, np.nan),
               np.full_like(spike, np.inf), np.full_like(spike, 1e-3)]
    votes = [np.asarray(built.bound.project(jax.random.key(0), jnp.asarray(m))).astype(np.int64)
             for m in [*sent, *hostile]]
    for v in votes:  # in integers, and in the units of the gradient
        assert (v**2).sum() <= built.bound.squared_norm
        assert np.linalg.norm(v) * built.bound.grid <= longest * (1 + 1e-12)
    largest = max(((a - b)**2).sum() for a in votes for b in votes)
    assert 0.95 * built.bound.squared_sensitivity() < largest <= built.bound.squared_sensitivity()


def test_a_step_is_one_poisson_draw_of_messages_of_that_norm():
    mechanism = method(IMAGE).mechanism
    ((event, count),) = mechanism.events(7)
    assert isinstance(event, PoissonGaussianEvent) and count == 7
    assert event.relation == "replace-one" and event.rate == pytest.approx(8 / N)
    assert event.gaussian.sigma / math.sqrt(event.squared_norm) == pytest.approx(1.5)
    assert mechanism.n_units == N and mechanism.unit == "record"
    assert isinstance(method(IMAGE, sigma=0.0).mechanism.events(1)[0][0], NonPrivateEvent)


# Presets, and settings that mean nothing.

@pytest.mark.slow
@pytest.mark.parametrize("name", presets.all_of("topagg_sgd"))
def test_presets_get_the_least_noise_that_the_budget_allows(name):
    preset = presets.all_of("topagg_sgd")[name]
    done = calibrate_config.complete(
        "topagg_sgd",
        calibrate_config.with_records(preset.config, preset.records),
        preset.spec,
        Budget(preset.epsilon, preset.delta),
    )

    def package(sigma):
        peer = PLDAccountant(NeighboringRelation.REPLACE_ONE, 1e-4 * preset.epsilon)
        peer.compose(PoissonSampledDpEvent(done.batch / preset.records, GaussianDpEvent(sigma)),
                     done.steps)
        return peer.get_epsilon(preset.delta)

    # The package rounds up, the more the more steps there are.
    assert package(1.01 * done.sigma) <= preset.epsilon * 1.005
    assert package(0.97 * done.sigma) > preset.epsilon


@pytest.mark.slow
def test_the_network_of_opacus_is_its_example():
    """For MNIST 26,010 parameters, as its example has; and its layers by plain convolutions."""
    digits = ImageSpec(28, 28, 1, 10)
    config = dataclasses.replace(CONFIG, network="opacus")
    assert topagg_sgd.mechanism(config, digits).shape == (1, 26_010)
    net = Classifier(config, digits)
    params = jax.jit(net.init)(jax.random.key(0))
    x = np.random.default_rng(0).random((3, 28, 28, 1), np.float32)

    def layer(i):
        return [np.asarray(params[f"Linear_{i}"][part]) for part in ("kernel", "bias")]

    def convolved(h, i, size, stride, padding):
        kernel, bias = layer(i)
        h = jax.lax.conv_general_dilated(
            h, kernel.reshape(size, size, h.shape[-1], -1), (stride, stride), ((padding,) * 2,) * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest")
        return jax.lax.reduce_window(jax.nn.relu(h + bias), -jnp.inf, jax.lax.max, (1, 2, 2, 1),
                                     (1, 1, 1, 1), "VALID")

    def plain(x):
        h = convolved(convolved(2 * x - 1, 0, 8, 2, 3), 1, 4, 2, 0)
        h = jax.nn.relu(h.reshape(3, 512) @ layer(2)[0] + layer(2)[1])
        return h @ layer(3)[0] + layer(3)[1]

    expected = jax.jit(plain)(x)
    np.testing.assert_allclose(jax.jit(net.apply)(params, x), expected, atol=1e-4)
    for i, inputs in enumerate((64, 256, 512, 32)):  # as PyTorch begins
        weights = np.concatenate([part.ravel() for part in layer(i)])
        assert 0.9 / math.sqrt(inputs) < np.abs(weights).max() <= 1 / math.sqrt(inputs)
    with pytest.raises(UserError, match="opacus needs images of at least 14 x 14"):
        topagg_sgd.mechanism(config, IMAGE)


def test_images_too_small_for_the_cnn_are_told_what_to_do():
    with pytest.raises(UserError, match="--network mlp"):
        topagg_sgd.mechanism(CONFIG, ImageSpec(9, 7, 1, 3))
    assert topagg_sgd.mechanism(dataclasses.replace(CONFIG, network="mlp"),
                                ImageSpec(8, 8, 1, 3)).shape == (1, 64 * 5 + 5 + 5 * 3 + 3)
