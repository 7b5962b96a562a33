"""Data-dependent Renyi-DP of votes: GNMax and its threshold test (Confident-GNMax).

Source: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable Private Learning with
PATE", ICLR 2018 (arXiv 1802.08908), Theorem 6 and Propositions 7, 8 and 10.

Unit: one teacher. Neighbouring: one teacher changes its vote in every query, which moves one vote
from a class to another: L2 sensitivity sqrt(2) of the counts, 1 of the largest count.

For the counts of the true data D, each bound holds for D_a(M(D) || M(D')) with every neighbour D',
in that direction. It depends on the votes, so it is itself private: it decides nothing, is not an
epsilon, and may be shown only through `smooth_sensitivity`. It applies to a released argmax, never
to released noisy sums.

Shapes: Q queries, m classes, A orders. All logarithms are natural.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from dpgen_jax.accountant import gdp, renyi
from dpgen_jax.accountant.pate_votes import (
    ROUNDED,
    Rounding,
    checked,
    leads,
    require_orders,
    require_positive,
    total_over_queries,
)


def gnmax_log_q(counts: ArrayLike, sigma: float, rounding: Rounding = ROUNDED) -> np.ndarray:
    """The logarithm of an upper bound on q, the chance that GNMax releases another class than j*.

    j* is the class of lowest index among those with most votes. q is at most the sum over j != j*
    of Phi_c((n_j* - n_j - gap) / (sqrt(2) sigma)) (Proposition 7), and at most 1 - 1/m.

    Proof of the cap, for integer noise and released ties that go to the lowest index. For j != j*
    take noise X with which j is released, and swap X_j and X_j*. Let Y be the noisy counts before.
    Now j* has n_j* + X_j >= Y_j, and j has n_j + X_j* <= Y_j*. If j* < j, then Y_j > Y_j*, so j*
    beats j; and Y_j beat every other class from a higher index, so j* does. If j < j*, then
    n_j* >= n_j + 1, so j* has at least Y_j + 1, which is above every Y_i (Y_j >= Y_i), and above
    what j has. So the swap, which keeps the law of the noise, takes {j released} into
    {j* released}: j* is the likeliest class, and its probability at least 1/m. With another rule
    for ties, or another j*, the cap can fail; the sum never does. Unrounded noise has no ties.

    Args:
        counts: Votes, int [Q, m].
        sigma: Noise on each count, in votes.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        ln q [Q].

    Raises:
        UserError: Counts that are not whole numbers [Q, m], m >= 2, or a sigma <= 0.
    """
    return np.minimum(gap_log_q(leads(counts, rounding), require_positive("sigma", sigma)),
                      math.log1p(-1 / np.shape(counts)[1]))


def gap_log_q(gaps: np.ndarray, sigma: float) -> np.ndarray:
    """The logarithm of the sum over the last axis of Phi_c(gap / (sqrt(2) sigma)).

    Args:
        gaps: Leads of j* over the other classes, in votes [Q, m - 1].
        sigma: Noise on each count, in votes.

    Returns:
        Logarithms [Q].
    """
    return logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=-1)


def threshold_log_q(largest: ArrayLike, threshold: float, sigma: float,
                    rounding: Rounding = ROUNDED) -> np.ndarray:
    """The logarithm of q of the threshold test: the chance of the less likely of its two outcomes.

    It is exact; Proposition 10 applies with sqrt(2) sigma.

    Args:
        largest: Votes of the leading class, int [Q]; the test answers if largest + noise >=
            threshold.
        threshold: In votes.
        sigma: Standard deviation of the noise, in votes.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        ln q [Q].

    Raises:
        UserError: A sigma <= 0.
    """
    margin = rounding.threshold(threshold) - np.asarray(largest, float)
    return log_ndtr(-np.abs(margin) / require_positive("sigma", sigma))


def rdp_gaussian(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> np.ndarray:
    """The Renyi divergence of one GNMax query, at most.

    It is the smaller one of a / sigma^2 (data-independent, Proposition 8) and, where it is valid,
    the bound of Theorem 6 at the orders of Proposition 10.

    Args:
        log_q: The logarithm of an upper bound on q, in [-inf, 0], [Q].
        sigma: Noise on each count, in votes; for the threshold test pass sqrt(2) sigma.
        orders: Orders [A], > 1.

    Returns:
        RDP [Q, A].

    Raises:
        UserError: Orders <= 1, or a sigma <= 0.
    """
    orders = require_orders(orders)
    log_q = np.asarray(log_q, float)
    require_positive("sigma", sigma)
    return np.minimum(data_dependent(log_q, sigma, orders), orders / sigma**2)


def data_dependent(log_q: np.ndarray, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Theorem 6 at the orders of Proposition 10: mu2 = sigma sqrt(-ln q) and mu1 = mu2 + 1.

    Args:
        log_q: The logarithm of an upper bound on q [Q].
        sigma: Noise on each count, in votes.
        orders: Orders [A], > 1.

    Returns:
        RDP [Q, A]; inf where the bound is not valid.
    """
    mu2 = sigma * np.sqrt(-log_q)[:, None]
    return likely_outcome(log_q, 1 / sigma**2, mu2 + 1, mu2, orders)


def likely_outcome(log_q: np.ndarray, slope: float, mu1: ArrayLike, mu2: ArrayLike,
                   orders: np.ndarray) -> np.ndarray:
    """Theorem 6 (Theorem 4 of DataLens): the divergence where one outcome is likely.

    The mechanism costs at most e1 = slope mu1 and e2 = slope mu2 at two orders, whatever the data,
    and releases another outcome than the likely one with probability q. With
    A = (1 - q) / (1 - (q e^e2)^(1 - 1/mu2)) and B = e^e1 q^(-1 / (mu1 - 1)), the bound is
    ln[(1 - q) A^(a-1) + q B^(a-1)] / (a - 1). It is written as log1p of
    (1 - q)(A^(a-1) - 1) + q (B^(a-1) - 1), and A as 1 + (x - q) / (1 - x), where
    ln(x / q) = (1 - 1/mu2) e2 - ln q / mu2: sums of positive terms, so no digit is lost however
    small q. Valid are mu1 >= a, mu2 > 1, the limit on q of the theorem, and -ln q > e2, which the
    theorem does not print and its proof needs: A is a ratio of probabilities, and would not be one.

    Args:
        log_q: The logarithm of an upper bound on q [Q].
        slope: The divergence of order a of the mechanism is at most slope a.
        mu1: Orders above 1, that broadcast to [Q, A].
        mu2: As mu1.
        orders: Orders [A], > 1.

    Returns:
        RDP [Q, A]; inf where the bound is not valid.

    Source:
        Papernot et al., ICLR 2018 (arXiv 1802.08908), Theorem 6; Wang et al., CCS 2021 (arXiv
        2103.11109), Theorem 4.
    """
    mu1, mu2 = np.asarray(mu1, float), np.asarray(mu2, float)
    with np.errstate(all="ignore"):  # what is not valid may overflow or be nan
        surprise, e1, e2 = -log_q[:, None], slope * mu1, slope * mu2
        valid = (mu1 >= orders) & (mu2 > 1) & (surprise > e2) & (
            -surprise <= (mu2 - 1) * e2 - mu2 * (np.log1p(1 / (mu1 - 1)) + np.log1p(1 / (mu2 - 1))))
        ratio = (1 - 1 / mu2) * e2 + surprise / mu2  # ln(x / q)
        above = np.exp(ratio - surprise) * -np.expm1(-ratio)  # x - q
        log_a = np.log1p(above / -np.expm1((1 - 1 / mu2) * (e2 - surprise)))
        power = (orders - 1) * (e1 + surprise / (mu1 - 1))  # (a - 1) ln B
        grown = (-np.expm1(-surprise) * np.expm1((orders - 1) * log_a)
                 + np.exp(power - surprise) * -np.expm1(-power))
        return np.where(valid, np.log1p(grown) / (orders - 1), np.inf)


def gnmax_rdp(counts: ArrayLike, sigma: float, orders: ArrayLike,
              rounding: Rounding = ROUNDED) -> np.ndarray:
    """The sum of `rdp_gaussian` over queries that are all answered.

    Args:
        counts: Votes, int [Q, m].
        sigma: Noise on each count, in votes.
        orders: Orders [A], > 1.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        RDP [A].

    Raises:
        UserError: As `gnmax_log_q` and `rdp_gaussian`.
    """
    log_q = gnmax_log_q(counts, sigma, rounding)
    return total_over_queries(lambda part: rdp_gaussian(part, sigma, orders), log_q)


def confident_gnmax_rdp(counts: ArrayLike, answered: ArrayLike, threshold: float, sigma1: float,
                        sigma2: float, orders: ArrayLike,
                        rounding: Rounding = ROUNDED) -> np.ndarray:
    """Confident-GNMax: the threshold test of EVERY query, plus GNMax for each answered one.

    A query may depend on the answers before it, so this sum over the queries of one run is an
    ex-post bound at each order, for the transcript at hand. It is no DP guarantee (see the module's
    docstring).

    Args:
        counts: Votes, int [Q, m].
        answered: The released outcomes of the test, bool [Q] (not their expectation, which is
            private and bounds nothing).
        threshold: In votes.
        sigma1: Noise of the test, in votes.
        sigma2: Noise of GNMax, in votes.
        orders: Orders [A], > 1.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        RDP [A].

    Raises:
        UserError: Arguments that do not fit together.
    """
    counts, answered = checked(counts, answered)
    tests = threshold_log_q(counts.max(axis=1), threshold, sigma1, rounding)
    test_rdp = total_over_queries(lambda part: rdp_gaussian(part, math.sqrt(2) * sigma1, orders),
                                  tests)
    return test_rdp + gnmax_rdp(counts[answered], sigma2, orders, rounding)


def epsilon_of(rdp: ArrayLike, orders: ArrayLike, delta: float) -> float:
    """The smallest epsilon that divergences give. It is as private, and means as much, as they.

    Args:
        rdp: Divergences [A].
        orders: Their orders [A], > 1.
        delta: The delta that is to be stated.

    Returns:
        Epsilon >= 0.

    Raises:
        UserError: A delta outside (0, 1), or orders <= 1.

    Source:
        Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12.
    """
    gdp.require_delta(delta)
    by_order = renyi.convert(np.asarray(rdp, float), require_orders(orders), delta, "improved")
    return max(0.0, float(np.min(by_order)))
