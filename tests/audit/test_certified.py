"""Certified bounds cover the truth at their confidence, and are not far below it: simulations of
Gaussian releases with a known mu, 1,000 repeats each."""

import functools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dpgen_jax.accountant import composition
from dpgen_jax.audit import attacks
from dpgen_jax.audit import canaries as audit_canaries

REPEATS = 1000
ALPHA = 0.05
MISSES = 72
"""of 1,000 repeats with a chance of 0.05 each more miss with a chance below 1e-3"""


@functools.cache
def gaussian_scores(mu, n=400):
    rng = np.random.default_rng(7)
    return rng.standard_normal((REPEATS, n)), mu + rng.standard_normal((REPEATS, n))


@pytest.mark.parametrize("mu", [0.02, 1.0, 3.0])
def test_mu_is_covered_and_most_of_it_is_certified(mu):
    found = attacks.certified(*gaussian_scores(mu), attacks.mu_of, ALPHA)
    assert found.shape == (REPEATS,) and (found > mu).sum() <= MISSES
    assert np.median(found) > {0.02: -1, 1.0: 0.5, 3.0: 2.4}[mu]


def test_epsilon_is_covered_on_either_side():
    zeros, ones = gaussian_scores(2.0)
    epsilon = composition.exact_epsilon(2.0, 0.0, 0.05)
    for pair in ((zeros, ones), (-ones, -zeros)):
        found = attacks.certified(*pair, attacks.epsilon_of(0.05), ALPHA)
        assert (found > epsilon).sum() <= MISSES
        assert np.median(found) > 0.4 * epsilon


def test_a_threshold_that_is_chosen_where_it_is_judged_misses_too_often(monkeypatch):
    """The planted fault: of sums that are the same, the luckiest threshold certifies something."""
    zeros, ones = gaussian_scores(0.0, 60)
    sound = (attacks.certified(zeros, ones, attacks.mu_of, 0.4) > 0).sum()
    assert sound <= 450
    tried = np.linspace(-2, 2, 81)[:, None, None]
    false_positives = attacks.above((zeros > tried).sum(-1), 60, 0.2)
    false_negatives = attacks.above((ones <= tried).sum(-1), 60, 0.2)
    lucky = attacks.mu_of(false_positives, false_negatives).max(0)
    assert (lucky > 0).sum() > 3 * max(1, sound)


@pytest.mark.parametrize(("canaries", "mu"), [(40, 2.0), (300, 0.3)])
def test_one_run_covers_mu(canaries, mu):
    """The chance of every number of right guesses is known: the miss rate is exact."""
    from scipy.stats import binom

    right = np.arange(canaries // 2, canaries + 1)
    found = np.array([audit_canaries.certified(audit_canaries.gaussian, canaries, canaries, int(v),
                                               ALPHA) for v in right])
    assert binom.pmf(right, canaries, ndtr(mu / 2))[found > mu].sum() <= ALPHA
    assert found[-1] > mu / 2 and (np.diff(found) >= 0).all()


def test_one_run_covers_epsilon_and_reaches_it():
    """Randomised response is the worst that pure epsilon allows: nothing may be lost."""
    from scipy.stats import binom

    canaries, epsilon = 400, 1.0
    right = np.arange(canaries // 2, canaries + 1)
    found = np.array([audit_canaries.certified_epsilon(canaries, canaries, int(v), 0.0, ALPHA)
                      for v in right])
    law = binom.pmf(right, canaries, 1 / (1 + math.exp(-epsilon)))
    assert 0.02 < law[found > epsilon].sum() <= ALPHA


def test_guesses_that_are_all_tied_together_are_covered():
    """One coin of all canaries' guesses leaks with chance alpha / 2: what independence would miss.

    A training that says all coins with a chance of 0.03, and else nothing, is 0.03-TV for each, so
    its (0, delta)-promise with delta 0.03 may not be rejected at 0.02.
    """
    promise = audit_canaries.of_pairs([(0.0, 0.03)])
    assert not audit_canaries.rejected(promise, 100, 100, 100, 0.02)
    assert audit_canaries.rejected(promise, 100, 100, 100, 0.2)


def test_guesses_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="right of"):
        audit_canaries.rejected(audit_canaries.gaussian(1.0), 10, 11, 5, ALPHA)
