"""DataLens with the compressions of D2P-Fed and FetchSGD: what they say and hear, through the real
loop, their presets, and the commands."""

import dataclasses
import functools
import json
import math
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import observed
import pytest
import runs
import toy
from scipy.stats import norm

from benchmarks import datalens_ablation
from dpgen_jax import account, cli, loop, plan, presets
from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.config import Budget
from dpgen_jax.methods import datalens
from dpgen_jax.private import partition
from dpgen_jax.run.bundle import load
from dpgen_jax.types import Column, TableSpec, UserError

CONFIG = dataclasses.replace(toy.CONFIG, sketch_columns=24, step_size=0.1)
WAYS = ("d2p", "fetchsgd")
ways = pytest.mark.parametrize("way", WAYS)
D, UNITS = 64, 1000


def configured(way, **fields):
    return dataclasses.replace(CONFIG, aggregate=way, **fields)


@functools.cache
def given(config):
    """(question of a key, message, direction): what the skeleton is given."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(datalens, "converse", lambda *args, **functions: functions)
        functions = datalens.build(config, toy.SPEC)
    return functions["question"], functions["message"], functions["direction"]


def aggregated(config, gradients):
    """How far the fakes are moved, without noise, when all of many teachers answer the same."""
    question, message, direction = given(config)
    held = dataclasses.replace(datalens.mechanism(config, toy.SPEC), noise=NoNoise(),
                               n_units=UNITS)
    asked = question(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), UNITS)
    votes = jax.jit(jax.vmap(held.bound.project, (0, None)))(keys, message(asked, gradients))
    assert votes.shape[1:] == held.shape
    released = held.decide(votes.sum(0), jnp.zeros(held.bits_shape, jnp.uint32))
    return np.asarray(direction(asked, released))


# The conversation.

@pytest.mark.parametrize("levels", [2, 16])
def test_rotated_and_rounded_gradients_are_given_back_with_length_sqrt_d(rng, levels):
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


def test_the_votes_of_a_sketch_are_given_back(rng):
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
    _, _, direction = given(configured(way, threshold=0.9, **fields))
    released = jnp.zeros(datalens.mechanism(configured(way, **fields), toy.SPEC).shape)
    assert not np.any(direction(given(configured(way, **fields))[0](jax.random.key(0)), released))
    with pytest.raises(UserError, match="threshold is 1.5"):
        datalens.build(configured(way, threshold=1.5, **fields), toy.SPEC)


@ways
def test_a_question_is_drawn_anew_and_depends_on_its_key_alone(way):
    question = given(configured(way))[0]
    first, again, other = (question(jax.random.key(seed)) for seed in (0, 0, 1))
    assert toy.equal(first, again) and not toy.equal(first, other)


@ways
def test_a_row_that_is_not_finite_casts_no_vote(way, rng):
    question, message, _ = given(configured(way))
    gradients = rng.normal(size=(4, D)).astype(np.float32)
    gradients[[0, 1, 3], 7] = math.nan, math.inf, -math.inf
    bound = datalens.mechanism(configured(way), toy.SPEC).bound
    asked = question(jax.random.key(1))
    votes = jax.jit(bound.project)(jax.random.key(0), message(asked, gradients))
    assert np.any(votes, 1).tolist() == [False, False, True, False]


# Through the real loop, on a small table.

TABLE = TableSpec(tuple(Column(f"number {i}", "continuous", 0, 1) for i in range(12)),
                  Column("class", "categorical", categories=("a", "b", "c")), 0)
RECORD = 17
OWNER = int(np.argwhere(partition.assign(50, 11, toy.KEY).index == RECORD)[0][0])


def trained(path, method, data, told):
    """(public, units) after four steps; told 0: the generator hears zeros, whatever was voted."""
    where = toy.layout()
    state = loop.initial_state(method, jax.random.key(0), where)
    public = dataclasses.replace(state.public, told=np.float32(told))
    state = dataclasses.replace(state, public=jax.device_put(public, where.replicated))
    with Ledger.create(path, {"epsilon": math.inf, "delta": 1e-5}) as ledger:
        state = loop.train(method, toy.placed(*data, where, TABLE), state, where, ledger,
                           SeededBits(0), steps=4, on_block=lambda state, metrics: None)
    return toy.held(state, where)


@ways
def test_one_record_changes_one_unit_and_the_public_side_through_the_votes_alone(
        tmp_path, monkeypatch, way):
    monkeypatch.setattr(loop, "compile_block", functools.cache(loop.compile_block))
    method = observed.observe(datalens.build(configured(way, sketch_columns=8), TABLE))
    rng = np.random.default_rng(0)
    x, y = rng.random((50, 12), np.float32), rng.integers(0, 3, 50)
    other, labels = x.copy(), y.copy()
    other[RECORD], labels[RECORD] = 1 - x[RECORD], (y[RECORD] + 1) % 3
    pair = (x, y), (other, labels)
    (public, units), (public2, units2) = (
        trained(tmp_path / f"muted-{i}", method, data, 0) for i, data in enumerate(pair))
    assert toy.equal(public.inner, public2.inner) and int(public.inner.step) == 4
    assert toy.differing_units(units, units2) == {OWNER}
    assert np.any(public.seen != public2.seen)
    heard = [trained(tmp_path / f"heard-{i}", method, data, 1)[0] for i, data in enumerate(pair)]
    assert not toy.equal(heard[0].inner, heard[1].inner)


# Presets and budgets.

ALL = {name: preset for name, preset in presets.all_of("datalens").items()
       if preset.config.aggregate in WAYS}


def sensitivity_by_hand(config, preset):
    """2 C sqrt(B), C the integer length that one row is allowed."""
    d = math.prod(preset.spec.shape)
    if config.aggregate == "fetchsgd":
        k, r, c = min(config.top_k, d), config.sketch_rows, config.sketch_columns
        squared = math.floor(r * k * (1 + 4 * math.sqrt(2 / (r * c))))
    else:
        n, k = 2 ** math.ceil(math.log2(d)), config.levels
        reach = (k - 1) * math.sqrt(n / (2 * math.log(n)))
        squared = math.floor((math.sqrt(reach**2 + n) + 4) ** 2)
    return 2 * math.sqrt(squared * config.batch)


def epsilon_by_hand(mu, delta):
    """The Gaussian mechanism of Balle and Wang (2018), inverted by bisection."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        found = norm.cdf(mu / 2 - middle / mu) - math.exp(middle + norm.logcdf(
            -mu / 2 - middle / mu))
        low, high = (middle, high) if found > delta else (low, middle)
    return high


def test_every_data_set_has_one_preset_of_each():
    names = {f"{data}-{way}" for way in WAYS for data in (
        "glyphs", "mnist-eps1", "mnist-eps10", "fashion-eps1", "fashion-eps10")}
    assert set(ALL) == names


@pytest.mark.parametrize("name", ALL)
def test_presets_spend_the_budget_and_not_more(name):
    preset = ALL[name]
    done = plan.complete("datalens", preset.config, preset.spec,
                         Budget(preset.epsilon, preset.delta))
    total = math.sqrt(done.steps) * sensitivity_by_hand(done, preset)
    spent = epsilon_by_hand(total / done.sigma, preset.delta)
    assert 0.998 * preset.epsilon < spent <= preset.epsilon * (1 + 1e-6)
    held = datalens.mechanism(done, preset.spec)
    assert gaussian.epsilon(held.events(done.steps), preset.delta) == pytest.approx(spent, rel=1e-5)
    compared = presets.all_of("datalens")[
        "glyphs" if name.startswith("glyphs") else name.rpartition("-")[0] + "-mean"]
    same = ("teachers", "batch", "steps", "top_k", "generator", "discriminator", "d_steps")
    assert all(getattr(done, field) == getattr(compared.config, field) for field in same)


@pytest.mark.parametrize(("fields", "text"), [
    ({"aggregate": "d2p", "levels": 1}, "levels is 1"),
    ({"aggregate": "d2p", "levels": 0}, "levels is 0"),
    ({"aggregate": "fetchsgd", "sketch_rows": 0}, "sketch_rows is 0"),
    ({"aggregate": "fetchsgd", "sketch_columns": -1}, "sketch_columns is -1"),
    ({"aggregate": "fetchsgd", "sketch_columns": 2}, "too narrow")])
def test_settings_that_mean_nothing_are_named(fields, text):
    with pytest.raises(UserError, match=text):
        datalens.mechanism(dataclasses.replace(CONFIG, **fields), toy.SPEC)


def test_the_ablation_has_a_row_for_every_component():
    """Of presets with a threshold and without; each is another method at the same budget."""
    for name, decode in (("mnist-eps1", "mean"), ("glyphs", "threshold")):
        preset = presets.all_of("datalens")[name]
        asked = SimpleNamespace(teachers=None, steps=None)
        base = datalens_ablation.planned(asked, preset, preset.spec)
        features = math.prod(preset.spec.shape)
        rows = datalens_ablation.variants(base, features, 0.2)
        assert set(rows) == {"topagg", "d2p-fed", "fetchsgd", "w/o top-k", "w/o stochastic signs",
                             "w/o threshold", decode}
        assert base.sigma is None and base.steps == (149 if name == "mnist-eps1" else 100)
        held = {row: datalens.mechanism(dataclasses.replace(config, sigma=9.0), preset.spec)
                for row, config in rows.items()}
        assert len(set(held.values())) == len(rows)
        assert held["w/o top-k"].bound.squared_sensitivity() == 4 * 15 * features
        assert held["fetchsgd"].shape[1] <= features + 2
    x = 1e-9 * jnp.linspace(-1, 2, features)[None]
    signs = jax.jit(held["w/o stochastic signs"].bound.project)(jax.random.key(0), x)
    np.testing.assert_array_equal(signs, np.where(signs != 0, np.sign(x), 0))


# The commands.

def test_a_run_is_made_and_loaded(tmp_path):
    release, _ = runs.train(tmp_path / "run", aggregate="fetchsgd", sketch_columns=24, steps=2)
    assert release.privacy["epsilon"] == runs.BUDGET.epsilon
    event, = release.privacy["events"]
    bound = datalens.mechanism(release.config, toy.SPEC).bound
    assert event["sensitivity"] == pytest.approx(math.sqrt(bound.squared_sensitivity()))
    again = load(tmp_path / "run")
    assert again.config == release.config and again.config.aggregate == "fetchsgd"
    x, y = again.sample(6, seed=0)
    assert x.shape == (6, 8, 8, 1) and len(y) == 6


@ways
def test_what_a_preset_costs_can_be_asked(capsys, monkeypatch, way):
    monkeypatch.setattr(sys, "argv", ["account", "datalens", "--preset", f"mnist-eps1-{way}",
                                      "--json"])
    cli.main(account.command)
    told = json.loads(capsys.readouterr().out)
    assert told["proven"]["steps"] == 50 and told["proven"]["epsilon"] == pytest.approx(1, abs=2e-3)
