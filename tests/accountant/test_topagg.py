"""Data-dependent bounds of TopAgg (DataLens, Theorems 4, 5): simulation and brute force."""

import dataclasses
import itertools
import math

import jax
import numpy as np
import pytest
from scipy.special import erf, ndtr

from dpgen_jax.accountant.pate import IDEAL, TopAgg, renyi_of_laws
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.topagg import Threshold, TopAggMechanism, TopKSign
from dpgen_jax.core.types import UserError

UNITS, SIGMA, BETA, DRAWS = 12, 5.0, 0.4, 100_000
ORDERS = np.array([1.1, 2.0, 4.0, 16.0, 100.0])
SUMS = np.array([9, -7, 0, 4, -12, 12, -3, 1], np.int32)


def mechanism(columns, top_k=2):
    return TopAggMechanism(
        bound=TopKSign(top_k, 1), noise=RoundedGaussian(SIGMA), schedule=FullParticipation(),
        n_units=UNITS, shape=(1, columns), decode=Threshold(BETA))


def row(columns, top_k=2, **fields):
    declared = mechanism(columns, top_k)
    return dataclasses.replace(TopAgg(UNITS, top_k, declared.votes_needed, SIGMA), **fields)


def log_match(law, sums, signs):
    """Theorem 5, mended: ln Pr[M = signs] of each row [Q]."""
    index = np.asarray(signs)[..., None] + 1
    return np.take_along_axis(law.laws(sums), index, -1)[..., 0].sum(-1)


def printed(sums, signs, needed):
    """Pr[M = signs] as Theorem 5 prints it, with noise that is not rounded."""
    at = (needed - sums) / SIGMA
    factors = {1: 1 - ndtr(at), -1: ndtr(at), 0: erf(at / math.sqrt(2))}
    return np.prod([factors[sign][j] for j, sign in enumerate(signs)])


@pytest.fixture(scope="module")
def released():
    """Signs [DRAWS, 8] that the mechanism itself releases for SUMS; entries are independent."""
    law = mechanism(8)
    bits = np.random.default_rng(0).integers(0, 2**32, (DRAWS, *law.bits_shape), np.uint32)
    decide = jax.jit(jax.vmap(law.decide, (None, 0)))
    return np.asarray(decide(SUMS[None], bits))[:, 0].astype(int)


@pytest.mark.parametrize("columns", range(2, 9))
def test_theorem_5_is_the_law_of_what_is_released(released, columns):
    signs, count = np.unique(released[:, :columns], axis=0, return_counts=True)
    law = np.exp(log_match(row(columns), SUMS[None, :columns].repeat(len(signs), 0), signs))
    # of all outcomes that were seen, each a binomial count; six standard deviations and one draw
    off = np.abs(count - DRAWS * law)
    assert np.all(off <= 6 * np.sqrt(DRAWS * law) + 1)
    likeliest = signs[np.argmax(count)]
    q = np.exp(row(columns).log_q(SUMS[None, :columns]))[0]
    missed = np.mean(np.any(released[:, :columns] != likeliest, axis=1))
    assert abs(missed - q) < 6 * math.sqrt(q * (1 - q) / DRAWS)
    everything = np.array(list(itertools.product((-1, 0, 1), repeat=columns)))
    total = np.exp(log_match(row(columns), SUMS[None, :columns].repeat(len(everything), 0),
                                          everything)).sum()
    assert total == pytest.approx(1, rel=1e-12)


def test_theorem_5_as_printed_is_no_bound(released):
    """With a sum below zero it has q too small: another outcome comes more often than it says."""
    sums, likeliest = np.array([-12, -7]), [-1, 0]
    missed = np.mean(np.any(released[:, [4, 1]] != likeliest, axis=1))
    assert 1 - printed(sums, likeliest, BETA * UNITS) < missed - 0.2
    assert 1 - np.exp(log_match(row(2), [sums], [likeliest]))[0] == pytest.approx(missed, abs=0.01)


def test_where_the_paper_prints_the_right_factors_they_are_ours():
    """Signs of 1 anywhere, and of 0 where the votes cancel."""
    law = row(3, needed=BETA * UNITS, rounding=IDEAL)
    for signs in ((1, 1, 1), (1, 1, 0)):
        ours = np.exp(log_match(law, [[9, -7, 0]], [signs]))[0]
        assert ours == pytest.approx(printed(np.array([9, -7, 0]), signs, BETA * UNITS), rel=1e-12)


def neighbours(sums, top_k):
    """All sums after one teacher has changed its votes, whatever they were."""
    votes = [v for v in itertools.product((-1, 0, 1), repeat=len(sums)) if
             np.count_nonzero(v) <= top_k]
    moves = {tuple(np.subtract(b, a)) for a in votes for b in votes}
    found = np.add(sums, sorted(moves))
    return found[np.abs(found).max(1) <= UNITS]


def law_of_all(event, sums):
    """ln Pr of all 3^D outcomes: [Q, 3^D]."""
    entries = event.laws(sums)
    outcomes = np.array(list(itertools.product(range(3), repeat=entries.shape[1])))
    return np.stack([entries[:, np.arange(entries.shape[1]), o].sum(-1) for o in outcomes], 1)


@pytest.mark.parametrize(("columns", "top_k"), [(2, 1), (2, 2), (3, 2), (4, 1)])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 9.0])
def test_both_bounds_hold_for_every_neighbour(columns, top_k, sigma):
    rng = np.random.default_rng(columns)
    law = row(columns, top_k, sigma=sigma)
    for sums in (rng.integers(-UNITS + 2, UNITS - 1, columns), np.full(columns, UNITS - 2)):
        around = neighbours(sums, top_k)
        here = law_of_all(law, np.tile(sums, (len(around), 1)))
        exact = renyi_of_laws(here, law_of_all(law, around), ORDERS).max(0)
        by_entries = law.by_entries(sums[None], ORDERS)[0]
        theorem = law.theorem(law.log_q(sums[None]), ORDERS)[0]
        assert np.all(exact <= by_entries * (1 + 1e-9) + 1e-15)
        assert np.all(exact <= theorem * (1 + 1e-9) + 1e-15)
        assert np.all(by_entries <= law.independent(ORDERS))


def test_theorem_4_helps_where_teachers_agree_in_few_dimensions():
    law = TopAgg(200, 2, 80, 20.0)
    assert law.theorem(law.log_q([[200, -200]]), [4.0])[0, 0] < 0.1 * law.independent(4.0)[0]


@pytest.mark.parametrize(("top_k", "share", "sigma", "columns"), [
    (200, 0.7, 5000.0, 784), (200, 0.9, 5000.0, 784), (300, 0.2, 800.0, 784),
    (700, 0.85, 9000.0, 12288)])
def test_at_published_settings_no_votes_let_the_theorem_apply(top_k, share, sigma, columns):
    """Whatever 4,000 teachers vote, which the paper finds by a run on private data."""
    law = TopAgg(4000, top_k, share * 4000, sigma)
    assert math.exp(law.most_log_peak(columns)) < 1 - math.exp(-law.slope)
    sums = np.random.default_rng(0).integers(-4000, 4001, (2, columns))
    sums[0, :top_k], sums[0, top_k:] = 4000, 0
    peaks = law.laws(sums[:1]).max(-1).sum(-1)  # votes that are possible: k for each teacher
    assert peaks[0] <= law.most_log_peak(columns) * (1 - 1e-12)
    assert np.all(np.isinf(law.theorem(law.log_q(sums), ORDERS)))
    assert np.all(law.by_entries(sums, ORDERS) < law.independent(ORDERS))


@pytest.mark.parametrize("sums", [[[13, 0]], [[0.5, 0.0]]])
def test_sums_that_cannot_be_are_refused(sums):
    with pytest.raises(UserError, match="teachers must be whole numbers"):
        row(2).by_entries(sums, ORDERS)
