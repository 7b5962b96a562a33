"""Membership inference: planted memorisers are found, honest generators are not, bounds by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from written import written

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import membership as a
from dpgen_jax.evaluation.results import Real, Score

STATEMENT = {"epsilon": 1.0, "delta": 1e-5, "relation": "replace-one", "unit": "record",
             "noise_source": "os-entropy"}
LN3 = math.log(3)


def images(n, seed):
    """uint8 [n, 8, 8, 1] of three classes, each a picture that varies in twelve directions."""
    rng = np.random.default_rng([seed, 1])
    directions = np.random.default_rng(7).normal(size=(3, 13, 64))
    y = rng.integers(0, 3, n)
    latent = np.column_stack([np.full(n, 2.0), rng.normal(size=(n, 12))])
    x = 1 / (1 + np.exp(-np.einsum("nk,nkf->nf", latent, directions[y]) / 3))
    return np.round(x.reshape(n, 8, 8, 1) * 255).astype(np.uint8), y.astype(np.int32)


def rows(n, seed):
    """float32 [n, 10]: six numbers and a one-hot of four."""
    rng = np.random.default_rng([seed, 2])
    y = rng.integers(0, 2, n)
    numbers = rng.beta(2 + y[:, None], 3, (n, 6))
    return np.column_stack([numbers, np.eye(4)[rng.integers(0, 4, n)]]).astype(np.float32), y


def memoriser(members, noise=0.0, share=1.0, fresh=None):
    """Draws training records, a `share` of them, the others from the population `fresh`."""
    def draw(n, seed):
        rng = np.random.default_rng([seed, 3])
        picked = rng.integers(0, len(members[1]), n)
        x, y = a.flat_records(members[0])[picked], members[1][picked]
        x = np.clip(x + noise * rng.normal(size=x.shape), 0, 1)
        if fresh:
            x_new, y_new = fresh(n, 100 + seed)
            new = rng.random(n) > share
            x, y = np.where(new[:, None], a.flat_records(x_new), x), np.where(new, y_new, y)
        return x, y

    return draw


def auroc(synthetic, population, seeds=2, n=400, statement=STATEMENT):
    draws = [synthetic(2 * n, seed) for seed in range(seeds)]
    return attack(draws, population(n, 1), population(2 * n, 2), statement)


def attack(draws, members, others, statement=STATEMENT):
    """The part `membership` of metrics.json."""
    part = a.attacked(draws, Real(None, others, members), statement)
    return written(part)["membership"]


# What attacks find.

@pytest.mark.parametrize("population", [images, rows])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_memoriser_is_found_and_flagged(population, noise):
    result = auroc(memoriser(population(400, 1), noise), population)
    best = result["attacks"][result["strongest"]]
    assert best["auroc"]["mean"] > 0.9 and best["advantage"]["mean"] > 0.7
    assert best["tpr_at_1_percent_fpr"]["mean"] > 0.6
    assert result["exceeds_guarantee"] and "SOMETHING IS WRONG" in result["sentence"]


@pytest.mark.parametrize("population", [images, rows])
def test_an_honest_generator_is_not(population):
    result = auroc(lambda n, seed: population(n, 50 + seed), population, seeds=3)
    for scores in result["attacks"].values():
        assert abs(scores["auroc"]["mean"] - 0.5) < 0.05
        assert abs(scores["advantage"]["mean"]) < 0.06
        assert scores["tpr_at_1_percent_fpr"]["mean"] < 0.04
    assert not result["exceeds_guarantee"]
    assert "0.5 is guessing" in result["sentence"] and "proves nothing" in result["sentence"]


@pytest.mark.parametrize("population", [images, rows])
def test_an_overfit_generator_lies_between(population):
    def at(share):
        synthetic = memoriser(population(400, 1), 0.0, share, population)
        return auroc(synthetic, population, 1)["attacks"]["closest_record"]["auroc"]["mean"]

    none, some, much = (at(share) for share in (0.0, 0.15, 0.8))
    assert none + 0.04 < some < much - 0.1


def test_the_reference_takes_out_what_is_typical():
    """Candidates that lie where records are many score high, members or not: a ratio does not."""
    members, typical = rows(400, 1), rows(800, 2)
    scored = a.attack_scores(typical, memoriser(members)(800, 0), rows(400, 9))
    centre = -np.linalg.norm(typical[0][:, :6] - typical[0][:, :6].mean(0), axis=1)
    density, ratio = (np.corrcoef(centre, scored[name])[0, 1] for name in a.ATTACKS[1:])
    assert density > 0.5 > 0.3 > ratio


def test_a_class_that_is_never_drawn_and_records_without_spread_do_no_harm():
    members, others = rows(60, 1), rows(120, 2)
    for x in (rows(200, 3)[0], np.full((200, 10), 0.5)):
        result = attack([(x, np.zeros(200, int))], members, others)
        assert all(0 <= s["auroc"]["mean"] <= 1 for s in result["attacks"].values())


# How scores are measured.

def test_thresholds_are_not_chosen_on_the_records_that_they_are_judged_on():
    rng = np.random.default_rng(0)
    result = [a.measured(*rng.normal(size=(2, 100))) for _ in range(100)]
    assert abs(np.mean([f["advantage"] for f in result])) < 0.02  # the best of all gives 0.1
    wide = [a.measured(*rng.normal(size=(2, 300)))["tpr_at_1_percent_fpr"] for _ in range(100)]
    assert 0.004 < np.mean(wide) < 0.012


def test_measures_by_hand():
    high, low = np.arange(200) + 500.0, np.arange(200.0)
    assert a.measured(high, low) == {"auroc": 1, "advantage": pytest.approx(1, abs=0.01),
                                     "tpr_at_1_percent_fpr": 1}
    assert a.measured(low, high)["auroc"] == 0
    same = a.measured(np.ones(200), np.ones(200))
    assert (same["auroc"], same["advantage"], same["tpr_at_1_percent_fpr"]) == (0.5, 0, 0)
    assert set(a.measured(high[:190], low[:190])) == {"auroc", "advantage"}


# What the guarantee allows.

def bound(epsilon, delta=0.0, steps=1):
    return a.Guarantee(epsilon, delta, steps)


def test_bounds_by_hand():
    assert bound(0).allowed() == a.CHANCE
    assert bound(0, 0.1).advantage == pytest.approx(0.1)
    assert bound(0, 0.1).tpr(0.01) == pytest.approx(0.11)
    third = bound(LN3)
    assert (third.advantage, third.auroc) == pytest.approx((0.5, 0.75))
    assert (third.tpr(0.01), third.tpr(0.25), third.tpr(0.7)) == pytest.approx((0.03, 0.75, 0.9))
    # add-or-remove: p <= 1 - e^-eps / 2 beside q >= e^-eps / 2 through m = 1/2
    assert bound(LN3, steps=2).advantage == pytest.approx(2 / 3)
    assert bound(LN3, steps=2).tpr(0.01) == pytest.approx(0.09)
    assert bound(0, 0.1, 2).advantage == pytest.approx(0.2)


@given(st.floats(0, 12), st.floats(0, 0.6), st.sampled_from([1, 2]))
def test_bounds_are_those_of_the_trade_off_function(epsilon, delta, steps):
    def f(x):
        return np.maximum(0, np.maximum(1 - delta - np.exp(epsilon) * x,
                                        np.exp(-epsilon) * (1 - delta - x)))

    edges = [(1 - delta) / (1 + math.exp(epsilon)), 1 - delta]
    edges += [float(f(1 - e)) for e in edges]  # where the second step reaches those of the first
    grid = np.sort(np.concatenate([np.linspace(0, 1, 2001), np.logspace(-12, 0, 2001), edges]))
    g = grid
    for _ in range(steps):
        g = 1 - f(g)
    promise = bound(epsilon, delta, steps)
    assert promise.advantage == pytest.approx(min(1, (g - grid).max()), abs=1e-6)
    area = float(np.trapezoid(g, grid))
    assert promise.auroc <= area + 1e-5
    if delta == 0 and steps == 1:
        assert promise.auroc == pytest.approx(area, abs=1e-5)
    assert promise.tpr(0.3) == pytest.approx(np.interp(0.3, grid, g), abs=1e-5)


@pytest.mark.parametrize("epsilon", [50.0, 700.0, 710.0, 1000.0])
@pytest.mark.parametrize("steps", [1, 2])
def test_large_epsilons_do_not_overflow(epsilon, steps):
    assert bound(epsilon, 1e-6, steps).allowed() == pytest.approx(dict.fromkeys(a.CHANCE, 1.0))
    assert all(0 <= v <= 1 for v in bound(1e-300, 1e-300, steps).allowed().values())


@pytest.mark.parametrize(("change", "why"), [
    ({"noise_source": "seeded: no privacy claim"}, "made from a seed"),
    ({"noise_source": "os-entropy; seeded: no privacy claim"}, "made from a seed"),
    ({"noise_source": None}, "a source that is not known"), ({"epsilon": "inf"}, "epsilon is inf"),
    ({"epsilon": math.inf}, "epsilon is inf"), ({"epsilon": None}, "epsilon is inf"),
    ({"epsilon": math.nan}, "epsilon is nan"), ({"delta": 1.0}, "delta 1"),
    ({"guarantee": "no valid guarantee"}, "says 'no valid guarantee', which is not a known"),
    ({"relation": "edge-level"}, "no bound is known"), ({"unit": "family"}, "no bound is known")])
def test_where_nothing_is_promised_nothing_is_allowed(change, why):
    assert why in a.guarantee(STATEMENT | change)
    result = auroc(memoriser(rows(40, 1)), rows, 1, 40, STATEMENT | change)
    assert result["allowed"] is None and not result["exceeds_guarantee"]
    assert "no guarantee holds" in result["sentence"] and why in result["sentence"]


@pytest.mark.parametrize(("relation", "unit", "steps"), [
    ("replace-one", "record", 1), ("replace-one", "client", 1), ("add-remove", "record", 2),
    ("zero-out", "record", 2)])
def test_relations_and_units(relation, unit, steps):
    result = a.guarantee(STATEMENT | {"relation": relation, "unit": unit})
    assert result == a.Guarantee(1.0, 1e-5, steps)


@pytest.mark.parametrize("seed", range(5))
def test_an_attack_at_the_bound_is_not_flagged_and_one_beyond_it_is(seed):
    """Randomised response: the score of each record is whether it was trained on, in e^eps of
    1 + e^eps cases. This meets the bound with equality."""
    rng = np.random.default_rng(seed)

    def flagged(epsilon):
        right = math.exp(epsilon) / (1 + math.exp(epsilon))
        scores = a.measured((rng.random(2000) < right) * 1.0, (rng.random(2000) > right) * 1.0)
        result = {"x": {name: Score.of([value]) for name, value in scores.items()}}
        return bool(a.beyond(result, bound(1.0), 2000))

    assert not flagged(1.0) and flagged(1.3)


def test_a_large_epsilon_is_said_to_say_little_and_the_result_is_json():
    lines = []
    part = a.attacked([rows(50, 0), rows(50, 1)], Real(None, rows(100, 2), rows(50, 1)),
                      STATEMENT | {"epsilon": 10.0}, lines.append)
    result = written(part)["membership"]
    assert len(lines) == 2 and "density_ratio" in lines[1]
    assert "says little" in result["sentence"] and "allows at most 0.99995" in result["sentence"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert part.findings[0].path == "membership.attacks.closest_record.auroc"
    assert all(one.from_real and one.allowed and one.chance is not None for one in part.findings)


# Few and malformed records.

def test_ten_held_out_records_are_enough_and_three_are_not():
    result = attack([rows(20, 0), rows(20, 1)], rows(30, 1), rows(10, 2))
    assert (result["n_members"], result["n_non_members"], result["n_reference"]) == (5, 5, 5)
    assert set(result["attacks"]["density"]) == {"auroc", "advantage"}
    assert not result["exceeds_guarantee"]
    for n, n_others in ((30, 3), (1, 10)):
        with pytest.raises(UserError, match="hold out more"):
            attack([rows(20, 0)], rows(n, 1), rows(n_others, 2))
    with pytest.raises(UserError, match="seeds must be at least 1"):
        attack([], rows(30, 1), rows(10, 2))


@pytest.mark.parametrize(("x", "message"), [
    (np.full((9, 10), np.nan), r"synthetic: row 0 has values outside \[0, 1\] or NaN"),
    (np.full((9, 10), 2.0), r"outside \[0, 1\]"), (np.zeros((9, 11)), "have 11 values"),
    (np.zeros((8, 10)), "one label a record"), (np.zeros(9), "one label a record")])
def test_malformed_records_are_refused_in_one_line(x, message):
    with pytest.raises(UserError, match=message) as error:
        attack([(x, np.zeros(9, int))], rows(30, 1), rows(30, 2))
    assert "\n" not in str(error.value)


# Neighbours, for the data holder.

def test_nearest_is_exact():
    x, real = rows(70, 1)[0], rows(1100, 2)[0]
    real[5] = x[3]
    places, distances = a.nearest(x, real, 4)
    truth = cdist(x, real)
    np.testing.assert_allclose(distances, np.sort(truth, 1)[:, :4], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(truth, places, 1), distances, atol=1e-6)
    assert places[3, 0] == 5 and distances[3, 0] == 0
    assert a.nearest(x, real[:2], 4)[0].shape == (70, 2)


def test_closeness_tells_copies_from_records_that_lie_as_held_out_ones_do():
    training, held_out, fresh = (images(n, s)[0] for n, s in ((600, 1), (400, 2), (400, 3)))
    copied, honest = (a.closeness(x, training, held_out) for x in (training[:300], fresh))
    assert copied["closer_than_held_out"] == 1 == copied["synthetic"]["copies"]
    assert honest["closer_than_held_out"] < 0.04 and honest["synthetic"]["copies"] == 0
    assert honest["held_out"] == copied["held_out"]
    assert honest["synthetic"]["median"] == pytest.approx(honest["held_out"]["median"], rel=0.1)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("limit", [("BLOCK", 7), ("VALUES", 33)])  # 33 values: six records
def test_real_records_may_be_searched_in_blocks(monkeypatch, k, limit):
    rng = np.random.default_rng(0)
    x, real = rng.uniform(size=(20, 5)), rng.uniform(size=(31, 5))
    x[:4] = real[[0, 13, 14, 30]]
    whole = a.nearest(x, real, k)
    monkeypatch.setattr(a, *limit)
    for ours, theirs in zip(a.nearest(x, real, k), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert whole[0][:4, 0].tolist() == [0, 13, 14, 30] and not whole[1][:4, 0].any()
