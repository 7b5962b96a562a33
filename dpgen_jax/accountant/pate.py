"""Data-dependent Renyi-DP of votes: GNMax, its threshold test (Confident-GNMax), LNMax, and noisy
majorities of two labels.

Source: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable Private Learning with
PATE", ICLR 2018 (arXiv 1802.08908), Theorem 6 and Propositions 7, 8 and 10; LNMax: Papernot et al.,
ICLR 2017 (arXiv 1610.05755), Theorem 3, as PATE-GAN (Jordon et al., ICLR 2019) uses it.

Unit: one teacher. Neighbouring: one teacher changes its vote in every query, which moves one vote
from a class to another: L2 sensitivity sqrt(2) of the counts, 1 of the largest count.

What is bounded, and what is not. For the counts of the true data D, each bound holds for
D_a(M(D) || M(D')) with every neighbour D', in that direction. It depends on the votes, so it is
itself private: it decides nothing, is not an epsilon, and may be shown only through
`smooth_sensitivity`. It applies to a released argmax, never to released noisy sums.

Shapes: Q queries, m classes, A orders, L moments. All logarithms are natural.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from dpgen_jax.accountant import gaussian
from dpgen_jax.errors import UserError

_CHUNK = 4096
"""distinct queries whose bounds are held at a time; the rest of a run is a few numbers a query"""


@dataclasses.dataclass(frozen=True)
class Rounding:
    """What rounding the noise to whole votes does to the probabilities of a vote.

    gap: votes by which a lead must be reduced for the Gaussian tail to stay an upper bound;
    threshold: from the threshold of the test to the one at which the noise, unrounded, answers.
    """

    gap: int
    threshold: Callable[[float], float]


IDEAL = Rounding(0, float)
"""noise that is not rounded, as in the papers"""

ROUNDED = Rounding(1, lambda threshold: math.ceil(threshold) - 0.5)
"""noise that is rounded to whole votes: v + round(sigma Z), what this package draws

A gap g: round(X) - round(Y) >= g needs X - Y >= g - 1, whatever happens at a tie.
A threshold t: v + round(sigma Z) >= t if and only if v + sigma Z >= ceil(t) - 1/2, for integer v,
so the law of the answer is exact and nothing is lost."""


def gnmax_log_q(counts: ArrayLike, sigma: float, rounding: Rounding = ROUNDED) -> np.ndarray:
    """ln of an upper bound on q, the probability that GNMax releases another class than j*.

    counts: votes int [Q, m]; sigma: noise on each count, in votes. Returns [Q].
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
    Raises UserError for counts that are not whole numbers [Q, m], m >= 2, or a sigma <= 0.
    """
    return np.minimum(gap_log_q(_gaps(counts, rounding), _positive("sigma", sigma)),
                      math.log1p(-1 / np.shape(counts)[1]))


def gap_log_q(gaps: np.ndarray, sigma: float) -> np.ndarray:
    """ln of the sum over the last axis of Phi_c(gap / (sqrt(2) sigma)); gaps [Q, m - 1] -> [Q]."""
    return logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=-1)


def threshold_log_q(largest: ArrayLike, threshold: float, sigma: float,
                    rounding: Rounding = ROUNDED) -> np.ndarray:
    """ln q of the threshold test: of the less likely one of its two outcomes.

    largest: votes of the leading class, int [Q]; the test answers if largest + noise >= threshold,
    of standard deviation sigma. Returns [Q]. Exact, Proposition 10 applies with sqrt(2) sigma.
    """
    margin = rounding.threshold(threshold) - np.asarray(largest, float)
    return log_ndtr(-np.abs(margin) / _positive("sigma", sigma))


def rdp_gaussian(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> np.ndarray:
    """The Renyi divergence of one GNMax query, at most: log_q [Q], orders [A] -> [Q, A].

    The smaller one of a / sigma^2 (data-independent, Proposition 8) and, where it is valid, the
    bound of Theorem 6 at the orders of Proposition 10. log_q: ln of an upper bound on q, in
    [-inf, 0]. For the threshold test pass sqrt(2) sigma. Raises UserError for orders <= 1.
    """
    orders = _orders(orders)
    log_q = np.asarray(log_q, float)
    return np.minimum(data_dependent(log_q, _positive("sigma", sigma), orders), orders / sigma**2)


def data_dependent(log_q: np.ndarray, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Theorem 6 at the orders of Proposition 10: [Q, A], inf where it is not valid.

    With mu2 = sigma sqrt(-ln q), mu1 = mu2 + 1, e1 = mu1 / sigma^2, e2 = mu2 / sigma^2,
    A = (1 - q) / (1 - (q e^e2)^(1 - 1/mu2)) and B = e^e1 q^(-1 / (mu1 - 1)), the bound is
    ln[(1 - q) A^(a-1) + q B^(a-1)] / (a - 1). It is written as log1p of
    (1 - q)(A^(a-1) - 1) + q (B^(a-1) - 1), and A as 1 + (x - q) / (1 - x), where
    ln x = ln q + 2 e2 - 1 / sigma^2: sums of positive terms, so no digit is lost however small q.
    Valid are mu1 > a, mu2 > 1 (the same as -ln q > e2 here), and the limit on q of the theorem.
    """
    with np.errstate(all="ignore"):  # what is not valid may overflow or be nan
        surprise = -log_q[:, None]
        root = np.sqrt(surprise)
        mu2, e2 = sigma * root, root / sigma
        valid = (mu2 > 1) & (
            -surprise <= (mu2 - 1) * e2 - mu2 * (np.log1p(1 / mu2) + np.log1p(1 / (mu2 - 1))))
        ratio = 2 * e2 - 1 / sigma**2  # ln(x / q)
        above = np.exp(ratio - surprise) * -np.expm1(-ratio)  # x - q
        log_a = np.log1p(above / -np.expm1((1 - 1 / mu2) * (e2 - surprise)))
        power = (orders - 1) * (2 * e2 + 1 / sigma**2)  # (a - 1) ln B
        grown = (-np.expm1(-surprise) * np.expm1((orders - 1) * log_a)
                 + np.exp(power - surprise) * -np.expm1(-power))
        return np.where(valid & (mu2 + 1 > orders), np.log1p(grown) / (orders - 1), np.inf)


def gnmax_rdp(counts: ArrayLike, sigma: float, orders: ArrayLike,
              rounding: Rounding = ROUNDED) -> np.ndarray:
    """The sum of `rdp_gaussian` over queries that are all answered: counts int [Q, m] -> [A]."""
    log_q = gnmax_log_q(counts, sigma, rounding)
    return _total(lambda part: rdp_gaussian(part, sigma, orders), log_q)


def confident_gnmax_rdp(counts: ArrayLike, answered: ArrayLike, threshold: float, sigma1: float,
                        sigma2: float, orders: ArrayLike,
                        rounding: Rounding = ROUNDED) -> np.ndarray:
    """Confident-GNMax: the threshold test of EVERY query, plus GNMax for each answered one.

    counts: votes int [Q, m]; answered: the released outcomes of the test, bool [Q] (not their
    expectation, which is private and bounds nothing); threshold, sigma1, sigma2: in votes. -> [A].

    A query may depend on the answers before it, so this sum of what was met is an ex-post bound at
    each order, for the transcript at hand. It is no DP guarantee (see the module's docstring).
    """
    counts, answered = checked(counts, answered)
    tests = threshold_log_q(counts.max(axis=1), threshold, sigma1, rounding)
    return (_total(lambda part: rdp_gaussian(part, math.sqrt(2) * sigma1, orders), tests)
            + gnmax_rdp(counts[answered], sigma2, orders, rounding))


def lnmax_log_q(counts: ArrayLike, rate: float, rounding: Rounding = ROUNDED) -> np.ndarray:
    """ln of an upper bound on the probability that LNMax releases another class than j*.

    counts: votes int [Q, m]; rate: 1 / scale of the Laplace noise on each count (the papers' gamma
    or lambda). Returns [Q]. A class g votes behind wins with probability at most
    (2 + rate g) / (4 e^(rate g)); rounding, j* and the cap 1 - 1/m as in `gnmax_log_q`.
    """
    lead = _positive("rate", rate) * _gaps(counts, rounding)
    tail = (2 + np.abs(lead)) / 4 * np.exp(-np.abs(lead))
    with np.errstate(divide="ignore"):  # a tail below the smallest float: ln q = -inf
        log_q = np.log(np.where(lead < 0, 1 - tail, tail).sum(axis=1))
    return np.minimum(log_q, math.log1p(-1 / np.shape(counts)[1]))


def moments_laplace(log_q: ArrayLike, rate: float, moments: ArrayLike) -> np.ndarray:
    """alpha(l) of one LNMax query, at most: log_q [Q], moments l > 0 [L] -> [Q, L].

    The smaller one of 2 rate^2 l (l + 1), and
    ln[(1 - q) ((1 - q) / (1 - q e^(2 rate)))^l + q e^(2 rate l)], which is valid only for
    q < (e^(2 rate) - 1) / (e^(4 rate) - 1). One teacher moves two counts, hence 2 rate.
    alpha(l) = l RDP(l + 1), so `epsilon_of(alpha / l, l + 1, delta)` converts a total.
    """
    moments, q = np.asarray(moments, float), np.exp(np.asarray(log_q, float))[:, None]
    if moments.size == 0 or not np.all(moments > 0):
        raise UserError("moments must be positive numbers, at least one")
    twice = 2 * _positive("rate", rate)
    cap = twice * rate * moments * (moments + 1)
    with np.errstate(all="ignore"):
        log_a = np.log1p(q * np.expm1(twice) / (1 - q * np.exp(twice)))
        bound = np.log1p((1 - q) * np.expm1(moments * log_a) + q * np.expm1(moments * twice))
        valid = q < 1 / (np.exp(twice) + 1)
    return np.where(valid, np.minimum(bound, cap), cap)


def lnmax_moments(counts: ArrayLike, rate: float, moments: ArrayLike,
                  rounding: Rounding = ROUNDED) -> np.ndarray:
    """The sum of `moments_laplace` over queries: counts int [Q, m] -> [L]. Ex-post, as above."""
    log_q = lnmax_log_q(counts, rate, rounding)
    return _total(lambda part: moments_laplace(part, rate, moments), log_q)


def count_test_rdp(needed: int, most: int, log_tail: Callable[[np.ndarray], np.ndarray],
                   orders: ArrayLike) -> np.ndarray:
    """One test whether a count + noise >= needed, for every count 0..most: [most + 1, A].

    It is PATE-GAN's majority: counts of one label, needed: those of more than half of `most`
    teachers. log_tail(k): ln P(noise >= k) for whole k, of a symmetric law.

    One teacher moves a count c to c - 1, c or c + 1 within 0..most, and both laws of the released
    bit are known. So this is no bound but the largest D_a(M(D) || M(D')) over neighbours itself,
    whichever the noise; PATE's l-th moment is l times it at a = l + 1. The bit is a function of the
    noisy count, so it never exceeds the data-independent cost of that. Nor does it exceed what the
    theorem says (PATE, Theorem 3; PATE-GAN, Theorem 2), which asks for two things: each query is
    (epsilon, 0)-private, and q bounds the chance of another outcome than the likeliest. ONE Laplace
    noise on ONE count that moves by 1 gives epsilon = 1 / scale (`moments_laplace` with half of it
    as rate, for its two counts), and q is the smaller chance; but q is all that it knows of the
    law. Both ways need that the bit is all that is released: of a released count only the
    data-independent cost holds. Sums over queries are ex-post, as above.
    """
    orders, counts = _orders(orders), np.arange(most + 1)
    bits = np.stack([log_tail(needed - counts), log_tail(counts - needed + 1)], axis=1)
    table = np.zeros((most + 1, len(orders)))
    table[:-1] = _renyi(bits[:-1], bits[1:], orders)
    table[1:] = np.maximum(table[1:], _renyi(bits[1:], bits[:-1], orders))
    return table


def _renyi(log_p: np.ndarray, log_q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """D_a(P || Q) of laws on two outcomes, ln P and ln Q [Q, 2] -> [Q, A]. A small one is a sum of
    P (e^x - 1), x = (a - 1) ln(P / Q), each without loss of digits; a large one of logarithms."""
    log_p, power = log_p[..., None], (log_p - log_q)[..., None] * (orders - 1)
    with np.errstate(over="ignore"):
        grown = np.sum(np.exp(log_p + np.maximum(power, 0)) * -np.expm1(-np.abs(power))
                       * np.sign(power), axis=1)
        small = np.log1p(np.clip(grown, 0, 1))
    return np.where(grown < 1, small, np.logaddexp.reduce(log_p + power, axis=1)) / (orders - 1)


def epsilon_of(rdp: ArrayLike, orders: ArrayLike, delta: float) -> float:
    """The smallest epsilon that RDP [A] at orders [A] gives by the conversion of Canonne, Kamath
    and Steinke (NeurIPS 2020, Proposition 12). It is as private, and means as much, as the RDP."""
    gaussian.require_delta(delta)
    found = gaussian._convert(np.asarray(rdp, float), _orders(orders), delta, "improved")
    return max(0.0, float(np.min(found)))


def checked(counts: ArrayLike, answered: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Votes int64 [Q, m] and outcomes bool [Q]. Raises UserError for anything else."""
    counts, answered = _votes(counts), np.asarray(answered)
    if answered.dtype != bool or answered.shape != counts.shape[:1]:
        raise UserError(f"answered must be one True or False for each of {len(counts)} queries, "
                        f"got {answered.dtype}{list(answered.shape)}")
    return counts, answered


def _votes(counts: ArrayLike) -> np.ndarray:
    counts = np.asarray(counts)
    if (counts.ndim != 2 or counts.shape[1] < 2 or counts.dtype.kind not in "iu"
            or np.any(counts < 0)):
        raise UserError("counts must be whole numbers of votes [queries, classes], with at least "
                        f"two classes, got {counts.dtype}{list(counts.shape)}")
    return counts.astype(np.int64)


def _gaps(counts: ArrayLike, rounding: Rounding) -> np.ndarray:
    """Votes by which j* leads each other class, reduced for rounding: [Q, m - 1], not falling."""
    ordered = np.sort(_votes(counts), axis=1)[:, ::-1]
    return ordered[:, :1] - ordered[:, 1:] - rounding.gap


def _total(bound: Callable[[np.ndarray], np.ndarray], log_q: np.ndarray) -> np.ndarray:
    """The sum of bound(log_q) [Q, A] over queries; equal q are computed once."""
    values, times = np.unique(log_q, return_counts=True)
    total = bound(values[:0]).sum(axis=0)
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += times[part] @ bound(values[part])
    return total


def _orders(orders: ArrayLike) -> np.ndarray:
    orders = np.atleast_1d(np.asarray(orders, float))
    if orders.ndim != 1 or orders.size == 0 or not np.all(orders > 1):
        raise UserError("orders must be numbers above 1, at least one")
    return orders


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise UserError(f"{name} must be positive and finite, got {value}")
    return value
