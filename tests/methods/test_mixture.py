"""The mixture of Gaussians: every phase through the real loop, samples that have the
moments that were released, and what is refused."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest
import small_datalens
import small_mixture

from dpgen_jax import presets
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import EMPTY, BudgetExceeded, ImageSpec, Method, UserError
from dpgen_jax.methods import mixture
from dpgen_jax.methods.shared import gaussians
from dpgen_jax.presets import numbers
from dpgen_jax.run import calibrate_config, loop
from dpgen_jax.run.loop import initial_state

N, SPEC = 12, ImageSpec(4, 4, 1, 2)
CONFIG = mixture.Config(records=N, cells=2, frequencies=3, dimensions=4, sigma=0.0)
WITH_CLASSIFIER = dataclasses.replace(CONFIG, classifier=1, steps=5)
PHASES = ("classes", "spread", "means", "cells", "classifier")
compile_block = loop.compile_block


# What one record can do, through the real loop.

@functools.cache
def method(relation="replace-one"):
    return mixture.build(dataclasses.replace(WITH_CLASSIFIER, relation=relation), SPEC)


@functools.cache
def started():
    """A public state with a basis and cells: that of the first two rounds on images of noise."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 4, 4, 1), dtype=np.uint8)

    def rounds(x, y):
        public = method().init(jax.random.key(0))
        for phase in method().phases[:2]:
            public = small_mixture.absorbed(phase, public, x, y, jax.random.key(0), 0.0)
        return public

    return jax.device_get(jax.jit(rounds)(x, np.arange(40, dtype=np.int32) % 2))


def recorder(phase: str, relation: str) -> Method:
    """The method of one phase, whose public state is what it released."""
    part, public = method(relation).phases[PHASES.index(phase)], started()
    return Method(
        mechanism=part.mechanism, init=lambda key: jnp.zeros(part.mechanism.shape),
        ask=lambda key, _: part.ask(key, jax.tree.map(jnp.asarray, public)),
        answer=part.answer, absorb=lambda key, public, query, released: (released, {}))


@functools.cache
def compiled(phase, where, relation):
    return compile_block(recorder(phase, relation), where)


def released(path, phase, x, y, where, relation="replace-one"):
    """The sum of a phase's round in the real loop, without noise: int64 [D]."""
    made = recorder(phase, relation)
    with Ledger.create(path, {"epsilon": float("inf"), "delta": 1e-5}) as ledger, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", lambda *_: compiled(phase, where, relation))
        state = loops.train(made, small_datalens.placed(x, y, where, SPEC),
                            initial_state(made, jax.random.key(0), where), where, ledger,
                            SeededBits(0), steps=1, on_block=lambda state, metrics: None)
    return np.asarray(state.public, np.int64).ravel()


WHERE = small_datalens.layout(4, 1, units=N)


def extremes():
    """Images as far apart as can be, with either label: another class, other cells."""
    board = np.indices((4, 4)).sum(0)[..., None] % 2 * 255
    images = [np.full((4, 4, 1), 255), board, 255 - board]
    return [(np.uint8(image), label) for image in images for label in (0, 1)]


@pytest.mark.parametrize("phase", PHASES)
def test_a_replaced_record_moves_the_sum_by_no_more_than_is_declared(tmp_path, phase):
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 256, (N, 4, 4, 1), dtype=np.uint8), np.arange(N) % 2
    sums = []
    for i, (image, label) in enumerate(extremes()):
        x[5], y[5] = image, label
        sums.append(released(tmp_path / str(i), phase, x, y, WHERE))
    moved = max(int(((a - b)**2).sum()) for a in sums for b in sums)
    bound = method().phases[PHASES.index(phase)].mechanism.bound
    # Images cannot say all that a message may; another class alone makes a tenth or more of it.
    assert 0.1 * bound.exact < moved <= bound.exact <= bound.squared_sensitivity()


@pytest.mark.parametrize("phase", PHASES)
def test_a_record_that_is_left_out_moves_the_sum_by_no_more_than_its_own_relation_allows(
        tmp_path, phase):
    """Zero-out: nothing is in its place, and n stays; a message is the longer for it."""
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 256, (N, 4, 4, 1), dtype=np.uint8), np.arange(N) % 2
    sums = []
    for i, (image, label) in enumerate([(np.uint8(0), EMPTY), *extremes()]):
        x[5], y[5] = image, label
        sums.append(released(tmp_path / str(i), phase, x, y, WHERE, "zero-out"))
    moved = max(int(((with_it - sums[0])**2).sum()) for with_it in sums[1:])
    bound = method("zero-out").phases[PHASES.index(phase)].mechanism.bound
    assert 0.1 * bound.exact < moved <= bound.exact <= bound.squared_sensitivity()


@pytest.mark.parametrize("phase", PHASES)
def test_sums_do_not_depend_on_chunks_and_devices(tmp_path, phase):
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 256, (N, 4, 4, 1), dtype=np.uint8), rng.integers(0, 2, N)
    layouts = [WHERE, small_datalens.layout(5, 2, units=N),
               small_datalens.layout(1, 2, "pmap", units=N)]
    first, *others = [released(tmp_path / str(i), phase, x, y, where)
                      for i, where in enumerate(layouts[:3 if phase == "cells" else 2])]
    assert first.any() and all(np.array_equal(first, other) for other in others)


def test_every_phase_costs_the_same_and_the_last_goes_on():
    built = mixture.build(dataclasses.replace(CONFIG, sigma=1.0, means=2, steps=9), SPEC)
    events = {phase.mechanism.events(1) for phase in built.phases}
    assert len(events) == 1 and built.mechanism.events(1) in events
    (event, count), = built.mechanism.events(9)
    assert count == 9 and event.mu_squared == pytest.approx(1.0, rel=1e-6)
    kinds = [built.phases.index(built.at(step)[0]) for step in range(9)]
    assert kinds == [0, 1, 2, 2] + [4] * 5
    asks = mixture.build(dataclasses.replace(CONFIG, sigma=1.0, classifier=2), SPEC)
    assert len({phase.mechanism.events(1) for phase in asks.phases} | events) == 1
    kinds = [asks.phases.index(asks.at(step)[0]) for step in range(9)]
    assert kinds == [0, 1, 2] + [3] * 3 + [6] * 3  # five of cells less two


# The generator.

def test_sampled_vectors_have_the_moments_of_the_mixture():
    rng = np.random.default_rng(0)
    pixels, k, n = 9, 3, 20_000
    basis, _ = np.linalg.qr(rng.normal(size=(pixels, k)))
    roots, means = rng.normal(size=(2, 2, k, k)), 3 * rng.normal(size=(2, 2, k))
    weight = np.array([[1.0, 3.0], [2.0, 0.0]])
    model = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), {
        "centre": np.arange(9.0), "basis": basis, "mean": means, "root": roots, "weight": weight})
    labels = np.arange(n, dtype=np.int32) % 2
    points = np.asarray(jax.jit(gaussians.low)(model, jax.random.key(0), labels))
    places = (points - np.arange(9.0)) @ basis
    for label in (0, 1):
        share = weight[label] / weight[label].sum()
        mean = share @ means[label]
        second = sum(w * (r @ r.T + np.outer(m, m))
                     for w, r, m in zip(share, roots[label], means[label], strict=True))
        own = places[labels == label]
        np.testing.assert_allclose(own.mean(0), mean, atol=0.15)
        np.testing.assert_allclose(own.T @ own / len(own), second, atol=0.08 * np.trace(second))


# Sizes by formula, and what is refused.

@pytest.mark.parametrize(("side", "channels", "classes", "records"), [
    (8, 1, 2, 3), (28, 1, 10, 60_000), (64, 3, 2, 500), (64, 3, 100, 50_000), (512, 3, 2, 60)])
def test_any_images_get_sizes_and_a_sum_that_fits_into_memory(side, channels, classes, records):
    for epsilon in (0.01, 1.0, 10.0, 100.0):
        config, spec = mixture.Config(records=records), ImageSpec(side, side, channels, classes)
        found = calibrate_config.complete("mixture", config, spec, Budget(epsilon, 1e-5))
        bound = mixture.mechanism(found, spec).bound
        assert bound.columns < 5_000_000 and bound.levels >= 2


def test_what_is_drawn_beyond_a_moved_image():
    """A black background goes on; a scene does not end in a frame."""
    s = mixture.sizes(CONFIG, SPEC)
    white = {"centre": np.zeros(9), "basis": np.zeros((9, 2)), "mean": np.zeros((2, 1, 2)),
             "root": np.zeros((2, 1, 2, 2)), "weight": np.ones((2, 1)),
             "raw": np.array([0.0, 1.0]), "shade": np.ones(2)}

    def least(grey):
        sizes = dataclasses.replace(s, grey=grey)
        model = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), white)
        return gaussians.sample_images(sizes, model, jax.random.key(0), jnp.arange(8) % 2, SPEC,
                                       0.5)

    with_frame, without = (np.asarray(jax.jit(least, static_argnums=0)(g)) for g in (0.0, 0.5))
    assert with_frame.min() < 0.5 and without.min() > 0.999


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_the_budget_is_spent(relation):
    config = mixture.Config(records=60_000, relation=relation)
    spec = ImageSpec(28, 28, 1, 10)  # 8 rounds, each of mu 1 / sigma, are 1-DP at mu 0.268
    found = calibrate_config.complete("mixture", config, spec, Budget(1.0, 1e-5))
    assert found.sigma == pytest.approx(10.553, rel=1e-3)  # in units of the relation's sensitivity
    assert mixture.mechanism(found, spec).relation == relation


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="for images"):
        mixture.mechanism(CONFIG, numbers(3))
    with pytest.raises(UserError, match="too small for vectors of 9 entries; raise --epsilon"):
        mixture.mechanism(dataclasses.replace(CONFIG, sigma=1e5), SPEC)
    with pytest.raises(UserError, match="vectors of 3430 entries; .* leave out --classifier"):
        mixture.mechanism(dataclasses.replace(WITH_CLASSIFIER, sigma=700), ImageSpec(28, 28, 1, 10))
    with pytest.raises(BudgetExceeded):
        calibrate_config.complete("mixture", mixture.Config(records=60_000), SPEC,
                                  Budget(1e-6, 1e-5))


def test_no_preset_sets_cells_frequencies_or_noise():
    for preset in presets.all_of("mixture").values():
        assert preset.config.cells is preset.config.frequencies is preset.config.sigma is None
