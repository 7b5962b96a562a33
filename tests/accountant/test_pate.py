"""Data-dependent costs of votes against published vectors, many digits and exact small cases."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from renyi import rdp_epsilon

from dpgen_jax.accountant import composition, pate
from dpgen_jax.accountant.pate import IDEAL, ROUNDED
from dpgen_jax.core.errors import UserError

ORDERS = [1.1, 2, 3, 4, 8, 16, 24, 32, 64]
A = [1564, *[0] * 7, 22, 2414]
B = [780, *[0] * 7, 20, 1200]
C = [200, *[0] * 8, 1800]
E = [220, 20, 10, *[0] * 7]


def gnmax(counts, sigma, orders):
    log_q = pate.gnmax_log_q([counts], sigma, IDEAL)
    return log_q[0], pate.rdp_gaussian(log_q, sigma, orders)[0]


def threshold_test(counts, threshold, sigma, orders):
    log_q = pate.threshold_log_q([max(counts)], threshold, sigma, IDEAL)
    return log_q[0], pate.rdp_gaussian(log_q, math.sqrt(2) * sigma, orders)[0]


@pytest.mark.parametrize("counts, threshold, sigma1, sigma2, log_p, log_q", [
    (A, 2000, 3000, 1000, -.58900378, -.46729905), (B, 1000, 600, 100, -.46114909, -6.5091581),
    (E, 150, 30, 20, -.0098638165, -27.792324)])
def test_published_probabilities(counts, threshold, sigma1, sigma2, log_p, log_q):
    refused, _ = threshold_test(counts, threshold, sigma1, ORDERS)
    assert math.log1p(-math.exp(refused)) == pytest.approx(log_p, rel=1e-8)
    assert gnmax(counts, sigma2, ORDERS)[0] == pytest.approx(log_q, rel=2e-8)


def test_published_costs():
    orders = np.array(ORDERS)
    assert gnmax(A, 1000, ORDERS)[1] == pytest.approx(orders / 1000**2, rel=1e-15)
    assert threshold_test(A, 2000, 3000, ORDERS)[1] == pytest.approx(orders / (2 * 3000**2))
    assert gnmax(B, 100, ORDERS)[1] == pytest.approx(
        [1.1e-4, 1.5597e-4, 1.5801e-4, 1.6012e-4, 1.6933e-4, 1.9212e-4, 2.2249e-4, 2.6325e-4,
         6.3394e-4], abs=5.1e-9)
    log_q, rdp = gnmax(C, 100, [2, 8, 64])
    assert log_q == pytest.approx(-67.352619, abs=5e-7)
    assert rdp == pytest.approx([2.00214673e-30, 2.72985418e-30, 2.77686e-27], rel=2e-6)
    assert rdp[:2] == pytest.approx([2.00214673e-30, 2.72985418e-30], rel=3e-9)
    assert gnmax(E, 20, [2, 64])[1] == pytest.approx([1.1815e-12, .0885962], rel=5e-5)
    assert threshold_test(E, 150, 30, [4, 8, 16, 64])[1] == pytest.approx(
        [.00220616, .00248348, .00332939, .03109288], abs=5.1e-9)


@pytest.mark.parametrize("counts, sigma, order, log_q, rdp", [
    ([200, 30, 10, 5, 5], 20, 10, -20.78520188, 6.900470137732305e-09),
    ([150, 90, 5, 3, 2], 20, 10, -4.07761966, .012994698234011951),
    ([250, *[0] * 9], 40, 20, -10.01922829, 5.3213177518040856e-05)])
def test_own_vectors(counts, sigma, order, log_q, rdp):
    found_q, found = gnmax(counts, sigma, [order])
    assert found_q == pytest.approx(log_q, abs=5e-9)
    assert found[0] == pytest.approx(rdp, rel=1e-12)
    assert found[0] < order / sigma**2


def exact_rdp(log_q, sigma, order):
    """Theorem 6 as it is printed, with its conditions, in enough digits for 1 + 1e-300."""
    with mpmath.workdps(350):
        log_q, sigma, a = mpf(log_q), mpf(sigma), mpf(order)
        q, independent = mpmath.exp(log_q), a / sigma**2
        mu2 = sigma * mpmath.sqrt(-log_q)
        mu1 = mu2 + 1
        e1, e2 = mu1 / sigma**2, mu2 / sigma**2
        if mu2 <= 1 or mu1 <= a or -log_q <= e2 or log_q > (mu2 - 1) * e2 - mu2 * mpmath.log(
                mu1 / (mu1 - 1) * mu2 / (mu2 - 1)):
            return independent
        big_a = (1 - q) / (1 - (q * mpmath.exp(e2)) ** (1 - 1 / mu2))
        big_b = mpmath.exp(e1) / q ** (1 / (mu1 - 1))
        dependent = mpmath.log((1 - q) * big_a ** (a - 1) + q * big_b ** (a - 1)) / (a - 1)
        return min(dependent, independent)


def test_agrees_with_many_digits():
    log_q, orders = -np.geomspace(.01, 690, 40), [1.01, 1.5, 4, 20.5, 64, 300]
    active = 0
    for sigma in (.4, 1, 7, 40, 1000):
        found = pate.rdp_gaussian(log_q, sigma, orders)
        for (i, value), (k, order) in itertools.product(enumerate(log_q), enumerate(orders)):
            exact = exact_rdp(value, sigma, order)
            assert found[i, k] == pytest.approx(float(exact), rel=1e-9, abs=0)
            active += exact < .99 * order / sigma**2
    assert active > 300


def test_a_tempting_value_outside_of_the_range_is_not_used():
    """Here only the last condition of Theorem 6 fails, and the formula would give 11.15."""
    sigma, order = .39551507666513397, 1.7474328960124027
    assert pate.rdp_gaussian([-6.432815673030618], sigma, [order])[0, 0] == order / sigma**2
    assert exact_rdp(-6.432815673030618, sigma, order) == pytest.approx(order / sigma**2)
    assert pate.rdp_gaussian([-6.8], sigma, [order])[0, 0] < order / sigma**2


@settings(max_examples=100)
@given(st.lists(st.integers(0, 3000), min_size=2, max_size=12), st.floats(.3, 2000),
       st.floats(1.001, 500), st.integers(0, 3000))
def test_never_above_the_data_independent_bound(counts, sigma, order, threshold):
    for rounding in (IDEAL, ROUNDED):
        rdp = pate.confident_gnmax_rdp([counts], [True], threshold, sigma, sigma, [order], rounding)
        assert 0 <= rdp[0] <= (order / sigma**2 + order / (2 * sigma**2)) * (1 + 1e-12)
        log_q = pate.gnmax_log_q([counts], sigma, rounding)[0]
        assert log_q <= math.log1p(-1 / len(counts))
    assert pate.gnmax_log_q([counts], sigma, IDEAL) <= pate.gnmax_log_q([counts], sigma, ROUNDED)


def test_a_run_is_every_test_and_each_answered_vote(rng):
    counts = rng.multinomial(300, [.6, .3, .1], size=5000)
    answered = rng.random(5000) < .4
    orders = [2, 8.5, 30]
    total = pate.confident_gnmax_rdp(counts, answered, 150.5, 40, 20, orders)
    tests = pate.rdp_gaussian(pate.threshold_log_q(counts.max(1), 150.5, 40), math.sqrt(2) * 40,
                              orders)
    votes = pate.rdp_gaussian(pate.gnmax_log_q(counts, 20), 20, orders)
    assert total == pytest.approx(tests.sum(0) + votes[answered].sum(0), rel=1e-12)
    refused = pate.confident_gnmax_rdp(counts, np.zeros(5000, bool), 150.5, 40, 20, orders)
    assert refused == pytest.approx(tests.sum(0), rel=1e-12)
    shuffled = pate.gnmax_rdp(counts[:, [2, 0, 1]], 20, orders)
    assert np.array_equal(shuffled, pate.gnmax_rdp(counts, 20, orders))
    nothing = pate.confident_gnmax_rdp(counts[:0], answered[:0], 150.5, 40, 20, orders)
    assert np.array_equal(nothing, np.zeros(3))


def test_epsilon_is_the_improved_conversion():
    orders = np.arange(2, 200)
    events = ((composition.GaussianEvent(40, 2), 30),)
    assert pate.epsilon_of(30 * orders / 40**2, orders, 1e-5) == pytest.approx(
        rdp_epsilon(events, 1e-5, orders=orders), rel=1e-12)
    assert pate.epsilon_of([1.5], [4], 1e-5) == pytest.approx(
        1.5 + math.log(.75) - (math.log(1e-5) + math.log(4)) / 3)
    assert pate.epsilon_of([0.0], [1e9], .1) == 0


@pytest.mark.parametrize("log_q", [0.0, -0.0, -1e-300, -1e6, -1e300, -math.inf])
def test_extreme_probabilities_are_covered(log_q):
    rdp = pate.rdp_gaussian([log_q], 2.0, [1.5, 30])[0]
    assert np.all(rdp >= 0) and np.all(rdp <= np.array([1.5, 30]) / 4)


@pytest.mark.parametrize("call, what", [
    (lambda: pate.gnmax_log_q([[1.5, 2]], 1), "counts"),
    (lambda: pate.gnmax_log_q([[1, -2]], 1), "counts"),
    (lambda: pate.gnmax_log_q([[3]], 1), "counts"),
    (lambda: pate.gnmax_log_q([3, 4], 1), "counts"),
    (lambda: pate.gnmax_log_q([[3, 4]], 0), "sigma"),
    (lambda: pate.threshold_log_q([3], 2, math.nan), "sigma"),
    (lambda: pate.rdp_gaussian([-1.0], 1, [1, 2]), "orders"),
    (lambda: pate.rdp_gaussian([-1.0], 1, []), "orders"),
    (lambda: pate.confident_gnmax_rdp([[3, 4]], [.5], 2, 1, 1, [2]), "answered"),
    (lambda: pate.confident_gnmax_rdp([[3, 4]], [True, True], 2, 1, 1, [2]), "answered"),
    (lambda: pate.epsilon_of([1.0], [2], 0), "delta")])
def test_bad_input(call, what):
    with pytest.raises(UserError, match=what) as caught:
        call()
    assert "\n" not in str(caught.value)
