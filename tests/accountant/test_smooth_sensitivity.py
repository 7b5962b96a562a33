"""Smooth sensitivity against the published vectors, and against brute force over all neighbours."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpgen_jax.accountant import pate
from dpgen_jax.accountant import smooth_sensitivity as ss
from dpgen_jax.accountant.pate import IDEAL, ROUNDED
from dpgen_jax.accountant.smooth_sensitivity import Curve
from dpgen_jax.core.errors import UserError


def walk(curve, counts, distances, rounding=IDEAL):
    return list(itertools.islice(ss.gnmax_local_sensitivity(curve, counts, rounding), distances))


@pytest.mark.parametrize("counts, sigma, order, expected", [
    ([10, 0, 0], .5, 1.5, [3.13503646e-17, 1.60178280e-08, 5.90681786e-03] + [5.99981308] * 7),
    ([1000, 500, 300, 200, 0], 250, 10,
     [0] * 298 + [2.77693450548e-7, 2.10853979548e-6] + [2.73113623988e-6] * 1700)])
def test_published_gnmax_sensitivities(counts, sigma, order, expected):
    curve = Curve(sigma, len(counts), order)
    assert walk(curve, [counts], len(expected)) == pytest.approx(expected, rel=1e-8, abs=0)
    # a run is the sum over its queries, whatever the order of the classes
    run = [counts, counts[::-1], counts]
    assert walk(curve, run, 10) == pytest.approx(3 * np.array(expected[:10]), rel=1e-8, abs=0)


STEPS = [1.48454129e-4, 1.47826870e-2, 3.94153241e-2, 6.45775697e-2]
# Printed as 9.01543247e-2 and 1.16054002e-1, 2e-8 away: the published code loses digits in 1 - p.
# With p and 1 - p exchanged the same source prints these.
STEPS += [9.01543266e-2, 1.16054000e-1, 1.42180452e-1]


@pytest.mark.parametrize("threshold, expected", [
    (16, [0] * 3 + STEPS + STEPS[-1:] + STEPS + [1.68302106e-1] + [1.93127860e-1] * 2),
    (2, [1.60212079e-1, 2.07021132e-1, 2.07021132e-1, 1.93127860e-1, 1.68302106e-1] + STEPS[::-1]),
    (50, [1.35750725752e-19, 1.88990500499e-17, 2.05403154065e-15, 1.74298153642e-13,
          1.15489723995e-11, 5.97584949325e-10, 2.41486826748e-8, 7.62150641922e-7,
          1.87846248741e-5, 3.60973025976e-4, 3.60973025976e-4, 2.76377015215e-50])])
def test_published_threshold_sensitivities(threshold, expected):
    table = ss.threshold_table(threshold, 2, 10, 30, IDEAL)
    found = ss.threshold_local_sensitivity(20, table)
    assert len(found) == 31
    assert found[:len(expected)] == pytest.approx(expected, rel=1e-8, abs=1e-90)
    if threshold < 30:  # both counts out of range, or too far from the threshold to matter
        assert np.all(found[len(expected):] == 0)


def published_gnss(beta, sigma_ss, order):
    """Theorem 23 of Papernot et al. 2018."""
    return (order * math.exp(2 * beta) / sigma_ss**2
            + (beta * order - math.log(1 - 2 * order * beta) / 2) / (order - 1))


def divergence(shift, ratio, order):
    """Renyi divergence of N(shift, 1) from N(0, ratio^2), by integration."""
    def log_density(x, mean, sd):
        return -((x - mean) / sd)**2 / 2 - math.log(sd * math.sqrt(2 * math.pi))

    x, step = np.linspace(-100, 100, 40_001, retstep=True)
    grown = order * log_density(x, shift, 1.0) + (1 - order) * log_density(x, 0.0, ratio)
    return math.log(np.exp(grown).sum() * step) / (order - 1)


def test_cost_of_the_noise_is_the_largest_divergence():
    for beta, sigma_ss, order in ((1 / 60, 20, 20), (.06, 2, 8), (.3, 1.5, 1.5), (.025, 10, 8)):
        cost = ss.gnss_rdp(beta, sigma_ss, order)
        worst = math.exp(-beta)
        assert divergence(worst / sigma_ss, worst, order) == pytest.approx(cost, rel=1e-6)
        for ratio in np.exp(np.linspace(-beta, beta, 5)):
            assert divergence(min(1, ratio) / sigma_ss, ratio, order) <= cost * (1 + 1e-6)


def test_the_published_cost_of_the_noise():
    """The published number, which ours is below; and a case where the published formula is not a
    bound, so that it must not be what is charged."""
    assert published_gnss(1 / 60, 20, 20) == pytest.approx(.09814946502659386, rel=1e-14)
    assert ss.gnss_rdp(1 / 60, 20, 20) == pytest.approx(.0807396, rel=1e-5)
    beta, sigma_ss, order = .06, 2, 8
    true = divergence(math.exp(-beta) / sigma_ss, math.exp(-beta), order)
    assert published_gnss(beta, sigma_ss, order) < .6 * true


def test_published_conditions():
    assert Curve(20, 10, 25).conditions() == (True, False)
    assert Curve(30, 10, 25).conditions() == (True, True)
    with pytest.raises(UserError, match="no sanitised release .* C6") as caught:
        ss.smooth_sensitivity([[200, *[0] * 9]], [True], 150, 40, 20, 25, .01, 200)
    assert "\n" not in str(caught.value)
    ss.smooth_sensitivity([[200, *[0] * 9]], [True], 150, 40, 30, 25, .01, 200)


@pytest.mark.parametrize("sigma, classes, order", [
    (100, 10, 8), (400, 10, 20), (5, 3, 3), (1, 3, 1.5), (.5, 3, 1.5)])
def test_curve(sigma, classes, order):
    curve = Curve(sigma, classes, order)
    assert curve.log_q1 < curve.log_q0 < -1
    near = np.array([curve.log_q0 - 1e-9, curve.log_q0])
    assert curve.rdp(near)[1] == order / sigma**2
    if curve.log_q0 > -(1 + 1 / sigma)**2 - 1e-12:  # the edge of the range, not a crossing
        assert curve.rdp(near)[0] < order / sigma**2
    else:
        assert curve.rdp(near)[0] == pytest.approx(order / sigma**2, rel=1e-6)
    inverse = curve.largest(curve.smallest(np.array([-2.0, -30, -400])))
    assert inverse == pytest.approx([-2, -30, -400], rel=1e-9)
    below = -np.geomspace(-curve.log_q0, 2000, 300)
    assert np.all(curve.sensitivity(below) <= curve.plateau * (1 + 1e-12))


def vote_vectors(teachers, classes, least):
    """Votes of so many teachers, or of at least so many: others have no message, or one of NaN."""
    return [n for n in itertools.product(range(teachers + 1), repeat=classes)
            if least <= sum(n) <= teachers]


def distance(one, other):
    """Teachers that must vote otherwise, at least, for both: the moves may coincide in queries."""
    return max(np.maximum(sign * np.subtract(a, b), 0).sum()
               for a, b in zip(one, other, strict=True) for sign in (1, -1))


@pytest.mark.parametrize("classes, teachers, queries, sigma1, sigma2, threshold, order, least", [
    (2, 9, 2, 1.0, 2.0, 7, 2, 9), (3, 7, 1, .8, 1.2, 5, 1.5, 7), (2, 8, 2, 1.5, .5, 3, 1.5, 8),
    (3, 4, 2, 1.0, 1.0, 3, 1.5, 4), (2, 4, 2, 1.0, 1.0, 3, 1.5, 0), (3, 4, 1, .5, .8, 3, 1.5, 0)])
@pytest.mark.parametrize("rounding", [IDEAL, ROUNDED], ids=["ideal", "rounded"])
def test_against_all_data_sets(classes, teachers, queries, sigma1, sigma2, threshold, order, least,
                               rounding):
    """SS bounds the change of the total at every data set, discounted by its distance, and is
    itself beta-smooth: what the proof of the release needs, over all vote vectors."""
    beta = .1
    answered = np.arange(queries) % 2 == 0
    fixed = (answered, threshold, sigma1, sigma2, order)
    votes = vote_vectors(teachers, classes, least)
    runs = list(itertools.combinations_with_replacement(votes, queries))
    if queries == 2:  # every first query, with some second ones
        runs = [(a, b) for a in votes for b in votes[::3]]
    total = {run: ss.total_rdp(run, *fixed, rounding) for run in runs}
    smooth = {run: ss.smooth_sensitivity(run, *fixed, beta, teachers, rounding) for run in runs}
    everywhere = itertools.product(runs, runs)
    apart = {pair: distance(*pair) for pair in everywhere}
    change = dict.fromkeys(runs, 0.0)
    for (one, other), d in apart.items():
        if d == 1:
            change[one] = max(change[one], abs(total[one] - total[other]))
            assert smooth[one] <= math.exp(beta) * smooth[other] * (1 + 1e-12)
    assert max(change.values()) > 0
    for (one, other), d in apart.items():
        assert math.exp(-beta * d) * change[other] <= smooth[one] * (1 + 1e-12)


def test_shifts_of_several_queries_need_not_be_equal():
    """The test's sensitivity summed at exactly d teachers, as in the published code, would miss a
    data set at distance d where one query has moved by d and another by less, to where each is
    most sensitive."""
    n, beta, run = 60, .01, [(45, 15), (55, 5)]
    fixed = ([False, False], 40, 2.0, 5.0, 2)
    table = ss.threshold_table(40, 2.0, 2, n)
    first, second = (ss.threshold_local_sensitivity(max(votes), table) for votes in run)
    exactly = max(np.exp(-beta * np.arange(n + 1)) * (first + second))
    worst = 40 + int(np.argmax(np.abs(np.diff(table[40:50]))))
    there, beside = [(worst, n - worst)] * 2, [(worst + 1, n - worst - 1)] * 2
    change = abs(ss.total_rdp(there, *fixed) - ss.total_rdp(beside, *fixed))
    discounted = math.exp(-beta * distance(run, there)) * change
    assert 1.3 * exactly < discounted <= ss.smooth_sensitivity(run, *fixed, beta, n)


def test_early_exit_changes_nothing(rng):
    counts = rng.multinomial(200, rng.dirichlet([.3] * 4, size=60))
    answered = rng.random(60) < .7
    curve = Curve(10, 4, 6)
    table = ss.threshold_table(120, 25, 6, 200)
    tests = sum(np.maximum.accumulate(ss.threshold_local_sensitivity(n, table))
                for n in counts.max(axis=1))
    votes = np.array(walk(curve, counts[answered], 201, ROUNDED))
    assert np.all(np.diff(votes) >= -1e-15)
    for beta in (1e-3, .02, .08, 2):
        direct = np.max(np.exp(-beta * np.arange(201)) * (tests + votes))
        assert ss.smooth_sensitivity(counts, answered, 120, 25, 10, 6, beta, 200) == pytest.approx(
            direct, rel=1e-12)


def test_the_total_is_that_of_the_ledger_where_the_bounds_cross(rng):
    counts = rng.multinomial(200, rng.dirichlet([.3] * 4, size=60))
    answered = rng.random(60) < .7
    run = counts, answered, 120, 25, 10, 6
    assert ss.total_rdp(*run) == pytest.approx(pate.confident_gnmax_rdp(*run)[0], rel=1e-12)
    # q0 an edge, q above it, and the other bound still valid and smaller
    votes, log_q = [[3, 0]], pate.gnmax_log_q([[3, 0]], .7)
    assert log_q[0] > Curve(.7, 2, 1.5).log_q0
    assert pate.rdp_gaussian(log_q, .7, [1.5])[0, 0] < .8 * 1.5 / .7**2
    test = pate.confident_gnmax_rdp(votes, [False], 2, 3, .7, [1.5])[0]
    assert ss.total_rdp(votes, [True], 2, 3, .7, 1.5) == pytest.approx(test + 1.5 / .7**2)


def test_no_queries_and_none_answered():
    nothing = np.zeros((0, 3), int), np.zeros(0, bool)
    assert ss.smooth_sensitivity(*nothing, 5, 2, 2, 2, .1, 10) == 0
    assert ss.total_rdp(*nothing, 5, 2, 2, 2) == 0


SANITISER = ss.Sanitiser(order=8, beta=.025, sigma_ss=10, log_sigma=12, z=3)


def test_own_cost_and_coverage():
    assert SANITISER.rdp() == pytest.approx(ss.gnss_rdp(.025, 10, 8) + 8 / (2 * 144), rel=1e-15)
    assert SANITISER.failure == pytest.approx(2 * ndtr(-3))
    # what the docstring says about this choice
    assert SANITISER.failure == pytest.approx(.0027, rel=1e-3)
    assert SANITISER.rdp() == pytest.approx(.097, abs=5e-4)
    placed = SANITISER.place(0.0, 1.0, 100.0)
    assert SANITISER.upper_bound(placed.total, placed.log, placed.step) == pytest.approx(74, abs=.5)


def test_upper_bound_is_the_formula_and_covers(rng):
    total, sens = 1.7, .01
    low = ss.Sanitiser(order=8, beta=.025, sigma_ss=10, log_sigma=12, z=1)
    placed = low.place(total, sens, 5.0)
    normals = rng.standard_normal((20_000, 2))
    noise = np.rint(normals * [placed.sigma, 12 * 1024]).astype(int)
    bounds = np.array([low.upper_bound(placed.total + a, placed.log + b, placed.step)
                       for a, b in noise.tolist()])
    u = math.log(sens) + .025 * 12 * normals[:, 1] + 1 * .025 * 12
    assert bounds == pytest.approx(total + 10 * sens * normals[:, 0] + 1 * 10 * np.exp(u), rel=2e-3)
    missed = np.mean(bounds < total)
    assert 0.01 < missed <= low.failure
    # certain where both noises are within z of their means
    assert np.all(bounds[np.all(normals >= -1, axis=1)] >= total)


@pytest.mark.parametrize("total, sens, most", [(0.0, 0.0, 0.0), (2.5, 0.0, 3.0), (3.0, 9.0, 3.0)])
def test_noise_that_is_as_low_as_is_covered_is_covered(total, sens, most):
    """Also where a sensitivity is 0, or beyond what is possible."""
    placed = SANITISER.place(total, sens, most)
    lowest = math.floor(-3 * placed.sigma + .5), math.floor(-3 * 12 * 1024 + .5)
    bound = SANITISER.upper_bound(placed.total + lowest[0], placed.log + lowest[1], placed.step)
    assert total <= bound <= total + (1e-3 if sens == 0 else 1)


@pytest.mark.parametrize("fields, what", [
    ({"order": 20}, "order"), ({"order": 1}, "order"), ({"beta": 1 / 16}, "beta"),
    ({"beta": 0}, "beta"), ({"beta": 5e-5}, "beta must be at least 0.0001"),
    ({"beta": math.nan}, "beta"), ({"sigma_ss": 0}, "sigma_ss"),
    ({"log_sigma": 0}, "log_sigma"), ({"z": -1}, "z"), ({"z": math.inf}, "z")])
def test_a_sanitiser_without_a_guarantee_is_refused(fields, what):
    good = {"order": 8, "beta": .025, "sigma_ss": 10, "log_sigma": 12, "z": 3}
    with pytest.raises(UserError, match=what) as caught:
        ss.Sanitiser(**{**good, **fields})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changed, what", [
    ({"n_teachers": 9}, "9 votes"), ({"beta": 0}, "beta"), ({"order": 1}, "order"),
    ({"sigma2": 0}, "sigma"), ({"sigma1": -1}, "sigma"), ({"answered": [1]}, "answered"),
    ({"counts": [[10]]}, "classes")])
def test_bad_input(changed, what):
    good = {"counts": [[8, 2]], "answered": [True], "threshold": 5, "sigma1": 2, "sigma2": 2,
            "order": 2, "beta": .1, "n_teachers": 10}
    assert ss.smooth_sensitivity(**good) > 0
    with pytest.raises(UserError, match=what) as caught:
        ss.smooth_sensitivity(**{**good, **changed})
    assert "\n" not in str(caught.value)
