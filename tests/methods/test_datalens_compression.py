"""DataLens with the compressions of D2P-Fed and FetchSGD: what they say and hear,
their presets, and the commands."""

import dataclasses
import functools
import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens

from benchmarks.sweep import cells
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import account, presets
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.cli import terminal
from dpgen_jax.core.types import UserError
from dpgen_jax.methods import datalens

CONFIG = dataclasses.replace(small_datalens.CONFIG, sketch_columns=24, step_size=0.1)
WAYS = ("d2p", "fetchsgd")
ways = pytest.mark.parametrize("way", WAYS)
D, UNITS = 64, 1000


def configured(way, **fields):
    return dataclasses.replace(CONFIG, aggregate=way, **fields)


@functools.cache
def parts(config):
    """(question of a key, message, direction): what the skeleton is given."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(datalens, "build_gan", lambda *args: args[-1])
        messages = datalens.build(config, small_datalens.SPEC)
    return messages.question, messages.message, messages.direction


def aggregated(config, gradients):
    """How far the fakes are moved, without noise, when all of many teachers answer the same."""
    question, message, direction = parts(config)
    built = dataclasses.replace(datalens.mechanism(config, small_datalens.SPEC), noise=NoNoise(),
                                    n_units=UNITS)
    query = question(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), UNITS)
    votes = jax.jit(jax.vmap(built.bound.project, (0, None)))(keys, message(query, gradients))
    assert votes.shape[1:] == built.shape
    released = built.decide(votes.sum(0), jnp.zeros(built.bits_shape, jnp.uint32))
    return np.asarray(direction(query, released))


# The conversation.

@pytest.mark.parametrize("levels", [2, 16])
def test_rotated_and_rounded_gradients_come_back_with_length_sqrt_d(rng, levels):
    gradients = rng.normal(size=(4, D)).astype(np.float32)
    moved = aggregated(configured("d2p", levels=levels, clip=math.inf), gradients)
    direction = gradients / np.linalg.norm(gradients, axis=1, keepdims=True)
    along = (moved * direction).sum(1) / (0.1 * math.sqrt(D))
    assert along.min() > 0.7 and along.max() < 1.02  # a row of few levels may be stopped early
    off = np.linalg.norm(moved - (moved * direction).sum(1, keepdims=True) * direction, axis=1)
    assert off.max() < 0.1 * 3 * math.sqrt(D / UNITS) * 8 / math.sqrt(levels)


def test_gradients_are_clipped_before_they_are_rotated(rng):
    gradients = rng.choice([-1e-3, 2e-3], (4, D)).astype(np.float32)
    moved = aggregated(configured("d2p"), gradients)
    np.testing.assert_allclose(moved, 0.1 * np.sign(gradients), atol=0.05)


@pytest.mark.slow
def test_the_votes_of_a_sketch_come_back(rng):
    """Ten of 64 entries, of one size: the ten largest estimates are most of them."""
    gradients = np.zeros((4, D), np.float32)
    places = np.stack([rng.permutation(D)[:10] for _ in range(4)])
    np.put_along_axis(gradients, places, rng.choice([-1e-3, 1e-3], (4, 10)), 1)
    moved = aggregated(configured("fetchsgd"), gradients)
    assert ((moved != 0).sum(1) <= 10).all()
    assert np.corrcoef(moved.ravel(), gradients.ravel())[0, 1] > 0.7
    wide = aggregated(configured("fetchsgd", sketch_columns=D), gradients)  # nothing meets
    np.testing.assert_allclose(wide, 0.1 * np.sign(gradients), atol=1e-6)


@ways
def test_the_threshold_is_a_share_of_the_teachers(rng, way):
    gradients = np.zeros((4, D), np.float32)
    gradients[:, :10] = rng.choice([-1e-3, 1e-3], (4, 10))
    fields = {"sketch_columns": D, "decode": "threshold"}
    assert set(np.unique(aggregated(configured(way, threshold=0.9, **fields), gradients).round(6))
               ) == {np.float32(-0.1), 0, np.float32(0.1)}
    _, _, direction = parts(configured(way, threshold=0.9, **fields))
    released = jnp.zeros(datalens.mechanism(configured(way, **fields), small_datalens.SPEC).shape)
    assert not np.any(direction(parts(configured(way, **fields))[0](jax.random.key(0)), released))
    with pytest.raises(UserError, match="threshold is 1.5"):
        datalens.build(configured(way, threshold=1.5, **fields), small_datalens.SPEC)


@ways
def test_a_query_is_new_every_time_and_depends_on_its_key_alone(way):
    question = parts(configured(way))[0]
    first, again, other = (question(jax.random.key(seed)) for seed in (0, 0, 1))
    assert small_datalens.equal(first, again) and not small_datalens.equal(first, other)


@ways
def test_a_row_that_is_not_finite_casts_no_vote(way, rng):
    question, message, _ = parts(configured(way))
    gradients = rng.normal(size=(4, D)).astype(np.float32)
    gradients[[0, 1, 3], 7] = math.nan, math.inf, -math.inf
    bound = datalens.mechanism(configured(way), small_datalens.SPEC).bound
    query = question(jax.random.key(1))
    votes = jax.jit(bound.project)(jax.random.key(0), message(query, gradients))
    assert np.any(votes, 1).tolist() == [False, False, True, False]


# Presets and budgets.

ALL = {name: preset for name, preset in presets.all_of("datalens").items()
       if preset.config.aggregate in WAYS}


def test_every_data_set_has_one_preset_of_each():
    names = {f"{data}-{way}" for way in WAYS for data in (
        "glyphs", "mnist-eps1", "mnist-eps10", "fashion-eps1", "fashion-eps10")}
    assert set(ALL) == names


def test_the_published_sweep_leaves_out_every_component():
    """Each is another method at the same budget."""
    rows = {cell.label: cells.job(sweep, cell) for sweep in (
        SWEEPS["datalens:table5:mnist"], SWEEPS["datalens:table7:mnist"]) for cell in sweep.cells}
    assert set(rows) == {"topagg", "d2p-fed", "fetchsgd", "datalens", "w/o top-k",
                         "w/o stochastic signs", "w/o threshold"}
    spec = presets.all_of("datalens")["mnist-eps1"].spec
    mechanisms = {name: datalens.mechanism(dataclasses.replace(row.args.config, sigma=9.0), spec)
                  for name, row in rows.items()}
    assert mechanisms.pop("topagg") == mechanisms["datalens"]
    assert len(set(mechanisms.values())) == len(rows) - 1
    features = math.prod(spec.shape)
    assert mechanisms["w/o top-k"].bound.squared_sensitivity() == 4 * 15 * features
    assert mechanisms["fetchsgd"].shape[1] <= features + 2
    x = 1e-9 * jnp.linspace(-1, 2, features)[None]
    signs = jax.jit(mechanisms["w/o stochastic signs"].bound.project)(jax.random.key(0), x)
    np.testing.assert_array_equal(signs, np.where(signs != 0, np.sign(x), 0))


def test_the_noise_of_the_paper_allows_d2p_fed_a_single_step():
    """Which is why the paper's has not learned: sixteen levels move a sum by so much more."""
    steps = {cell.label: cells.job(SWEEPS["datalens:table5:mnist"], cell).planned().steps
             for cell in SWEEPS["datalens:table5:mnist"].cells}
    assert steps == {"topagg": 149, "d2p-fed": 1, "fetchsgd": 41}


# The commands.

@ways
def test_account_states_what_a_preset_costs(capsys, monkeypatch, way):
    monkeypatch.setattr(sys, "argv", ["account", "datalens", "--preset", f"mnist-eps1-{way}",
                                      "--json"])
    terminal.main(account.command)
    stated = json.loads(capsys.readouterr().out)
    assert stated["proven"]["steps"] == 50
    assert stated["proven"]["epsilon"] == pytest.approx(1, abs=2e-3)
