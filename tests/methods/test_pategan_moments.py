"""The cost of a noisy majority by the votes: by hand, by brute force, and against the theorems."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy import stats

from dpgen_jax.accountant import pate
from dpgen_jax.aggregation.noise import DiscreteLaplace, RoundedGaussian, thresholds
from dpgen_jax.aggregation.teacher_votes import Majority

ORDERS = np.array([1.05, 1.5, 2, 3.5, 8, 32])


def table(noise, units, orders=ORDERS):
    return pate.count_test_rdp(units // 2 + 1, units, noise.log_tail, orders)


def test_laplace_by_hand():
    """e^(-1 / scale) = 1/2: of 0..5 votes for real, "real" has 1/12, 1/6, 1/3, 2/3, 5/6, 11/12."""
    found = table(DiscreteLaplace(1 / math.log(2)), 5, [2])
    assert np.exp(found[:, 0]) == pytest.approx([1.05, 1.125, 1.5, 1.5, 1.125, 1.05], rel=1e-14)
    # The whole count of even the closest vote costs no more: its loss is ln 2 or -ln 2.
    assert found.max() == pytest.approx(math.log(2**2 / 3 + 2**-1 / 3), rel=1e-14)


def test_gaussian_by_hand():
    """3 of 5 and sigma 2: "real" has Phi(1/4), with 2 votes Phi(-1/4) and with 4 Phi(3/4)."""
    p, q = .59870633, .77337265
    found = table(RoundedGaussian(2.0), 5, [2])[3, 0]
    assert found == pytest.approx(math.log(p**2 / q + (1 - p)**2 / (1 - q)), rel=1e-6)
    assert found == pytest.approx(.160474, abs=5e-7) and found < 2 / (2 * 2**2)


def mass(noise, k):
    """P(noise = k), in many digits."""
    if isinstance(noise, DiscreteLaplace):
        r = mpmath.exp(-1 / mpf(noise.scale))
        return (1 - r) / (1 + r) * r ** abs(k)
    half = mpf(1) / 2
    return mpmath.ncdf((k + half) / noise.sigma) - mpmath.ncdf((k - half) / noise.sigma)


def law_of_the_majority(noise, units):
    """(P(fake), P(real)) for every count, through the decoder, one noise after the other."""
    reach = math.ceil(80 * getattr(noise, "scale", 0.2 * getattr(noise, "sigma", 0))) + units
    values = range(-reach, reach + 1)
    masses = [mass(noise, k) for k in values]
    noised = np.arange(units + 1)[:, None] + np.array(values)
    real = np.asarray(Majority()(noised.astype(np.int32), units)) == 1
    chances = [[mpmath.fsum(m for m, r in zip(masses, row, strict=True) if r == label)
                for label in (False, True)] for row in real]
    assert all(abs(sum(pair) - 1) < mpf(10) ** -25 for pair in chances)
    return chances


def renyi(p, q, a):
    a = mpf(a)
    return float(mpmath.log(sum(x**a * y**(1 - a) for x, y in zip(p, q, strict=True))) / (a - 1))


@pytest.mark.parametrize("noise", [DiscreteLaplace(0.7), DiscreteLaplace(4.0), RoundedGaussian(0.6),
                                   RoundedGaussian(5.0)], ids=repr)
@pytest.mark.parametrize("units", [1, 4, 9])
def test_it_is_the_divergence_from_the_worst_neighbour(noise, units):
    """Never below that of either neighbour, and that of one of them."""
    with mpmath.workdps(30):
        laws, found = law_of_the_majority(noise, units), table(noise, units)
        for c in range(units + 1):
            true = [[renyi(laws[c], laws[other], a) for a in ORDERS]
                    for other in (c - 1, c + 1) if 0 <= other <= units]
            assert np.all(found[c] >= np.max(true, 0) * (1 - 1e-10))
            assert found[c] == pytest.approx(np.max(true, 0), rel=1e-10)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.3, 3000), st.integers(1, 300), st.floats(1.001, 400))
def test_it_is_never_above_the_data_independent_bound(scale, units, order):
    votes = table(RoundedGaussian(scale), units, [order])
    assert np.all(votes >= 0) and votes.max() <= order / (2 * scale**2) * (1 + 1e-9)
    votes, e = table(DiscreteLaplace(scale), units, [order]), 1 / scale
    exact = np.logaddexp(order * e, (1 - order) * e) - np.logaddexp(0, e)  # of the noisy count
    assert np.all(votes >= 0) and votes.max() <= exact / (order - 1) * (1 + 1e-5)
    assert votes.max() <= min(e, order * e**2 / 2) * (1 + 1e-5)


def moments_laplace(log_q, rate, moments):
    """PATE (2017), Theorem 3: the moments [Q, L] of (2 rate, 0)-private queries, at most."""
    q, twice = np.exp(log_q)[:, None], 2 * rate
    with np.errstate(all="ignore"):
        grown = ((1 - q) / (1 - q * np.exp(twice)))**moments
        bound = np.log((1 - q) * grown + q * np.exp(moments * twice))
    cap = twice * rate * moments * (moments + 1)
    return np.where(q < 1 / (np.exp(twice) + 1), np.minimum(bound, cap), cap)


@pytest.mark.parametrize("scale", [2.0, 20.0, 200.0])
def test_the_theorems_of_the_papers_are_above_it(scale):
    """They bound the same moments from q alone: PATE (2017), Theorem 3, for (1 / scale, 0)-private
    queries, and its Gaussian form (2018), Theorem 6."""
    counts, moments = np.arange(101 + 1), np.array([1, 2, 7, 30])
    for noise in (DiscreteLaplace(scale), RoundedGaussian(scale)):
        needed = 101 // 2 + 1
        log_q = np.minimum(noise.log_tail(needed - counts), noise.log_tail(counts - needed + 1))
        exact = table(noise, 101, moments + 1)
        if isinstance(noise, DiscreteLaplace):
            theorem = moments_laplace(log_q, 1 / (2 * scale), moments) / moments
        else:
            np.testing.assert_allclose(log_q, pate.threshold_log_q(counts, needed, scale))
            theorem = pate.rdp_gaussian(log_q, math.sqrt(2) * scale, moments + 1)
        assert np.all(exact <= theorem * (1 + 1e-9))
        assert np.any(exact < theorem / 3) or scale > 20


def test_the_tails_are_those_of_what_is_drawn():
    k = np.arange(1, 30)
    below = np.array(thresholds(3.0)[:29], float) / 2.0**95  # P(|X| <= k - 1)
    tail = np.exp(RoundedGaussian(3.0).log_tail(k))
    np.testing.assert_allclose(tail, (1 - below) / 2, atol=1e-15)
    for scale in (0.3, 5.0, 900.0):
        k, law = np.arange(-50, 50), stats.dlaplace(1 / scale)
        found = np.exp(DiscreteLaplace(scale).log_tail(k))
        np.testing.assert_allclose(found, law.cdf(-k), rtol=1e-10)
    for noise in (RoundedGaussian(3.0), DiscreteLaplace(3.0)):
        far = noise.log_tail(np.array([-10**6, 10**6]))
        assert far[0] == 0 and -math.inf < far[1] < -3e5
    assert np.all(np.isfinite(table(DiscreteLaplace(0.1), 4000)))
