"""Data-dependent Renyi differential privacy of votes: GNMax, majorities and TopAgg.

Every bound here depends on teachers' votes, so it is as private as they are: nothing may depend on
it, and it is not an epsilon. Only a cost of Confident-GNMax may be published, and only through
`smooth_sensitivity`.

Shapes: Q queries, m classes, A orders; for TopAgg Q rows of sums (one for each queried fake) and D
entries. Votes are whole numbers; noise and thresholds are in votes; orders are above 1. All
logarithms are natural. Arguments out of range raise a UserError.

GNMax and Confident-GNMax. Source: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson,
"Scalable Private Learning with PATE", ICLR 2018 (arXiv 1802.08908), Theorem 6 and Propositions 7, 8
and 10. Unit: one teacher. Neighbouring: one teacher changes its vote in every query, which moves
one vote from a class to another: L2 sensitivity sqrt(2) of the counts, 1 of the largest count. For
the counts of the true data D, each bound holds for D_a(M(D) || M(D')) with every neighbour D', in
that direction. It applies to a released argmax, never to released noisy sums.

Noisy majorities of two labels. The published bound is that of Papernot et al., ICLR 2017 (arXiv
1610.05755), Theorem 3, as PATE-GAN (Jordon et al., ICLR 2019) uses it; `count_test_rdp` is exact.

TopAgg: sums of top-k sign votes with noise, thresholded to signs. Source: Wang et al., "DataLens",
CCS 2021 (arXiv 2103.11109), Algorithm 3, Theorems 4 and 5. Unit: one teacher. Neighbouring: one
teacher changes all its votes in a row, at most k of +1 or -1 before and at most k after: L2
sensitivity 2 sqrt(k) of a row of sums (Lemma 1). For the sums of the true data D, each bound holds
for D_a(M(D) || M(D')) with every neighbour D', in that direction, if only the thresholded signs are
released: never for the noisy sums.

Theorem 5 of DataLens is wrong as printed, in two of its three factors (the last line of its proof
drops the sign of beta N). A sum f becomes -1 with probability Phi((-beta N - f) / sigma), where the
paper has Phi((beta N - f) / sigma); and 0 with Phi((beta N - f) / sigma) - Phi((-beta N - f) /
sigma), where it has erf((beta N - f) / (sqrt(2) sigma)), which is the same only for f = 0. For sums
below zero both printed terms are too large, and q would be too small to be a bound. `TopAgg.laws`
has the correct ones.

Theorem 4 of DataLens leaves out a condition of its proof, q e^alpha2 < 1 (`likely_outcome`). With
that condition the theorem applies only if the likeliest outcome of a row has a probability above 1
- e^(-2 k / sigma^2). At all published settings the probability over the entries of an image is
smaller, whatever the teachers vote (`TopAgg.most_log_peak`); in fewer dimensions, with little
noise, the theorem can be the tighter bound. So the paper is right that the data-dependent bound is
looser, but this is a property of the bound and not of the data: the distributions of all outcomes
are known, and the divergence computed from them (`TopAgg.by_entries`) is never above the
data-independent one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from dpgen_jax.accountant import composition
from dpgen_jax.core.errors import UserError

_CHUNK = 4096
"""Number of distinct queries whose bounds are in memory at a time."""


@dataclasses.dataclass(frozen=True)
class Rounding:
    """How rounding the noise to whole votes changes the probabilities of a vote.

    Attributes:
        gap: Votes by which a lead must be reduced so that the Gaussian tail is still an upper
        bound. threshold: A function from the threshold of the test to the equivalent one for
        unrounded noise.
    """

    gap: int
    threshold: Callable[[float], float]


IDEAL = Rounding(0, float)
"""noise that is not rounded, as in the papers"""

ROUNDED = Rounding(1, lambda threshold: math.ceil(threshold) - 0.5)
"""noise that is rounded to whole votes: v + round(sigma Z), as this package draws it

A gap g: round(X) - round(Y) >= g needs X - Y >= g - 1, whatever happens at a tie. A threshold t: v
+ round(sigma Z) >= t if and only if v + sigma Z >= ceil(t) - 1/2, for integer v, so the
distribution of the answer is exact.
"""


def checked(counts: ArrayLike, answered: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Checks and returns votes, int64 [Q, m], and outcomes, bool [Q].

    Args:
        counts: Votes [Q, m].
        answered: Outcomes of the threshold test [Q].
    """
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


def leads(counts: ArrayLike, rounding: Rounding) -> np.ndarray:
    """Votes by which j* leads each other class, reduced for rounding.

    Returns:
        Leads [Q, m - 1], ascending along the last axis.
    """
    ordered = np.sort(_votes(counts), axis=1)[:, ::-1]
    return ordered[:, :1] - ordered[:, 1:] - rounding.gap


def require_orders(orders: ArrayLike) -> np.ndarray:
    """Checks the orders of Renyi divergences, and returns them: floats [A].

    Raises:
        UserError: Unless all are above 1, and there is at least one.
    """
    orders = np.atleast_1d(np.asarray(orders, float))
    if orders.ndim != 1 or orders.size == 0 or not np.all(orders > 1):
        raise UserError("orders must be numbers above 1, at least one")
    return orders


def require_positive(name: str, value: float) -> float:
    """Checks a number.

    Raises:
        UserError: Unless it is positive and finite.
    """
    if not 0 < value < math.inf:
        raise UserError(f"{name} must be positive and finite, got {value}")
    return value


def total_over_queries(bound: Callable[[np.ndarray], np.ndarray], log_q: np.ndarray) -> np.ndarray:
    """The sum of a bound over queries, computed once for equal q.

    Args:
        bound: A function from ln q [Q] to costs [Q, A].
        log_q: ln q [Q].
    """
    values, times = np.unique(log_q, return_counts=True)
    total = bound(values[:0]).sum(axis=0)
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += times[part] @ bound(values[part])
    return total


def gnmax_log_q(counts: ArrayLike, sigma: float, rounding: Rounding = ROUNDED) -> np.ndarray:
    """Ln of an upper bound on q, the probability that GNMax releases a class other than j*.

    j* is the class of lowest index among those with most votes. q is at most the sum over j != j*
    of Phi_c((n_j* - n_j - gap) / (sqrt(2) sigma)) (Proposition 7), and at most 1 - 1/m.

    Proof of the cap, for integer noise and released ties that go to the lowest index. For j != j*
    take noise X with which j is released, and swap X_j and X_j*. Let Y be the noisy counts before.
    Now j* has n_j* + X_j >= Y_j, and j has n_j + X_j* <= Y_j*. If j* < j, then Y_j > Y_j*, so j*
    beats j; and Y_j beat every other class from a higher index, so j* does. If j < j*, then n_j* >=
    n_j + 1, so j* has at least Y_j + 1, which is above every Y_i (Y_j >= Y_i), and above what j
    has. So the swap, which preserves the distribution of the noise, maps {j released} into {j*
    released}: j* is the likeliest class, and its probability at least 1/m. With another rule for
    ties, or another j*, the cap can fail; the sum never does. Unrounded noise has no ties.

    Returns:
        ln q [Q].
    """
    return np.minimum(gap_log_q(leads(counts, rounding), require_positive("sigma", sigma)),
                      math.log1p(-1 / np.shape(counts)[1]))


def gap_log_q(gaps: np.ndarray, sigma: float) -> np.ndarray:
    """The logarithm of the sum over the last axis of Phi_c(gap / (sqrt(2) sigma)): [Q].

    Args:
        gaps: Leads of j* over the other classes, in votes [Q, m - 1].
    """
    return logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=-1)


def threshold_log_q(largest: ArrayLike, threshold: float, sigma: float,
                    rounding: Rounding = ROUNDED) -> np.ndarray:
    """Ln q of the threshold test: q is the probability of the less likely of its two outcomes.

    It is exact; Proposition 10 applies with sqrt(2) sigma.

    Args:
        largest: Votes of the leading class, int [Q]; the test answers if largest + noise >=
            threshold.

    Returns:
        ln q [Q].
    """
    margin = rounding.threshold(threshold) - np.asarray(largest, float)
    return log_ndtr(-np.abs(margin) / require_positive("sigma", sigma))


def rdp_gaussian(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> np.ndarray:
    """An upper bound on the Renyi divergence of one GNMax query: RDP [Q, A].

    It is the smaller one of a / sigma^2 (data-independent, Proposition 8) and, where it is valid,
    the bound of Theorem 6 at the orders of Proposition 10.

    Args:
        log_q: The logarithm of an upper bound on q, in [-inf, 0], [Q].
        sigma: Noise on each count, in votes; for the threshold test pass sqrt(2) sigma.
    """
    orders = require_orders(orders)
    log_q = np.asarray(log_q, float)
    require_positive("sigma", sigma)
    return np.minimum(data_dependent(log_q, sigma, orders), orders / sigma**2)


def data_dependent(log_q: np.ndarray, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Theorem 6 at the orders of Proposition 10: mu2 = sigma sqrt(-ln q) and mu1 = mu2 + 1.

    Args:
        log_q: The logarithm of an upper bound on q [Q].

    Returns:
        RDP [Q, A]; inf if the bound is not valid.
    """
    mu2 = sigma * np.sqrt(-log_q)[:, None]
    return likely_outcome(log_q, 1 / sigma**2, mu2 + 1, mu2, orders)


def likely_outcome(log_q: np.ndarray, slope: float, mu1: ArrayLike, mu2: ArrayLike,
                   orders: np.ndarray) -> np.ndarray:
    """Theorem 6 (Theorem 4 of DataLens): the divergence if one outcome is likely.

    The mechanism costs at most e1 = slope mu1 and e2 = slope mu2 at two orders, whatever the data,
    and releases an outcome other than the likely one with probability q. With A = (1 - q) / (1 - (q
    e^e2)^(1 - 1/mu2)) and B = e^e1 q^(-1 / (mu1 - 1)), the bound is ln[(1 - q) A^(a-1) + q B^(a-1)]
    / (a - 1). It is written as log1p of (1 - q)(A^(a-1) - 1) + q (B^(a-1) - 1), and A as 1 + (x -
    q) / (1 - x), where ln(x / q) = (1 - 1/mu2) e2 - ln q / mu2: sums of positive terms, so no digit
    is lost however small q is. The conditions are mu1 >= a, mu2 > 1, the limit on q of the theorem,
    and -ln q > e2. The theorem does not print the last one, but its proof needs it: otherwise A
    would not be a ratio of probabilities.

    Args:
        log_q: The logarithm of an upper bound on q [Q].
        slope: The divergence of order a of the mechanism is at most slope * a.
        mu1: Orders above 1, that broadcast to [Q, A].
        mu2: As mu1.

    Returns:
        RDP [Q, A]; inf if the bound is not valid.

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
    """The sum of `rdp_gaussian` over answered queries."""
    log_q = gnmax_log_q(counts, sigma, rounding)
    return total_over_queries(lambda part: rdp_gaussian(part, sigma, orders), log_q)


def confident_gnmax_rdp(counts: ArrayLike, answered: ArrayLike, threshold: float, sigma1: float,
                        sigma2: float, orders: ArrayLike,
                        rounding: Rounding = ROUNDED) -> np.ndarray:
    """Confident-GNMax: the threshold test of EVERY query, plus GNMax for each answered one.

    A query may depend on the answers before it, so this sum over the queries of one run is an
    ex-post bound at each order, for this transcript. It is not a DP guarantee (see the docstring of
    the module).

    Args:
        answered: The released outcomes of the test, bool [Q] (not their expectation, which is
            private and not a bound).
    """
    counts, answered = checked(counts, answered)
    tests = threshold_log_q(counts.max(axis=1), threshold, sigma1, rounding)
    test_rdp = total_over_queries(lambda part: rdp_gaussian(part, math.sqrt(2) * sigma1, orders),
                                  tests)
    return test_rdp + gnmax_rdp(counts[answered], sigma2, orders, rounding)


def epsilon_of(rdp: ArrayLike, orders: ArrayLike, delta: float) -> float:
    """The smallest epsilon from divergences; as private as they are, and as little a guarantee.

    Args:
        rdp: Divergences [A].
        orders: Their orders [A], > 1.

    Returns:
        Epsilon >= 0.

    Source:
        Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12.
    """
    composition.require_delta(delta)
    by_order = composition.convert_renyi(np.asarray(rdp, float), require_orders(orders), delta,
                                         "improved")
    return max(0.0, float(np.min(by_order)))


def count_test_rdp(needed: int, most: int, log_tail: Callable[[np.ndarray], np.ndarray],
                   orders: ArrayLike) -> np.ndarray:
    """The cost of testing count + noise >= needed, for each count 0..most: RDP [most + 1, A].

    PATE-GAN's majority is such a test: the count of one label, with `needed` more than half of
    `most` teachers.

    One teacher moves a count c to c - 1, c or c + 1 within 0..most, and both distributions of the
    released bit are known. So the result is not a bound but exactly the largest D_a(M(D) || M(D'))
    over neighbours, for any noise; PATE's l-th moment is l times it at a = l + 1. The bit is a
    function of the noisy count, so the cost never exceeds the data-independent cost of the count.
    Nor does it exceed the theorem (PATE, Theorem 3; PATE-GAN, Theorem 2), which has two conditions:
    each query is (epsilon, 0)-private, and q bounds the probability of an outcome other than the
    likeliest. ONE Laplace noise on ONE count that changes by 1 gives epsilon = 1 / scale, and q is
    the smaller probability; but the theorem uses nothing else of the distribution. Both require
    that only the bit is released: for a released count only the data-independent cost holds. Sums
    over queries are ex-post, as in `confident_gnmax_rdp`.

    Args:
        needed: The smallest count that passes.
        most: The largest count.
        log_tail: A function from whole k to ln P(noise >= k), of a symmetric distribution.
    """
    orders, counts = require_orders(orders), np.arange(most + 1)
    bits = np.stack([log_tail(needed - counts), log_tail(counts - needed + 1)], axis=1)
    table = np.zeros((most + 1, len(orders)))
    table[:-1] = renyi_of_laws(bits[:-1], bits[1:], orders)
    table[1:] = np.maximum(table[1:], renyi_of_laws(bits[1:], bits[:-1], orders))
    return table


def renyi_of_laws(log_p: np.ndarray, log_q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The Renyi divergences D_a(P || Q) of distributions on a few outcomes: [Q, A].

    Small ones are computed as sums of P (e^x - 1), x = (a - 1) ln(P / Q), without loss of digits;
    large ones from logarithms.

    Args:
        log_p: ln P of each outcome [Q, outcomes].
        log_q: ln Q, likewise.
    """
    log_p, power = log_p[..., None], (log_p - log_q)[..., None] * (orders - 1)
    with np.errstate(over="ignore"):
        grown = np.sum(np.exp(log_p + np.maximum(power, 0)) * -np.expm1(-np.abs(power))
                       * np.sign(power), axis=1)
        small = np.log1p(np.clip(grown, 0, 1))
    return np.where(grown < 1, small, np.logaddexp.reduce(log_p + power, axis=1)) / (orders - 1)


_ABOVE_ONE = 1 + np.geomspace(1e-2, 1e6, 33)
"""Candidates for mu1 and mu2. The choice affects how tight a bound is, not its validity."""


@dataclasses.dataclass(frozen=True)
class TopAgg:
    """The public parameters of one release of thresholded votes.

    Attributes:
        n_units: Teachers.
        top_k: Votes of a teacher in a row.
        needed: An entry becomes 1 from this sum on, and -1 up to minus this sum; in votes, above 0.
        sigma: Noise on each sum, in votes.
        rounding: ROUNDED, or IDEAL for the noise of the paper.

    Raises:
        UserError: A number is not positive.
    """

    n_units: int
    top_k: int
    needed: float
    sigma: float
    rounding: Rounding = ROUNDED

    def __post_init__(self) -> None:
        for name in ("n_units", "top_k", "needed", "sigma"):
            require_positive(name, getattr(self, name))

    @property
    def slope(self) -> float:
        """The divergence of one row at order 1, whatever the votes: 2 k / sigma^2 (Theorem 3)."""
        return 2 * self.top_k / self.sigma**2

    def laws(self, sums: ArrayLike) -> np.ndarray:
        """The distribution of the sign of each sum.

        Args:
            sums: Votes [...], whole numbers.

        Returns:
            Logarithms of the probabilities of -1, 0 and 1, float64 [..., 3].
        """
        f, at = np.asarray(sums, float), self.rounding.threshold(self.needed)
        # By symmetry in the left tail, where a difference of two tails keeps its digits.
        below, above = (log_ndtr((side * at - np.abs(f)) / self.sigma) for side in (-1, 1))
        zero = above + np.log1p(-np.exp(below - above))
        return np.stack([log_ndtr((-at - f) / self.sigma), zero,
                         log_ndtr((f - at) / self.sigma)], axis=-1)

    def log_q(self, sums: ArrayLike) -> np.ndarray:
        """Ln q, exact: q is the probability of an outcome other than the likeliest one.

        Args:
            sums: Votes [Q, D].

        Returns:
            ln q [Q].
        """
        return _log_not(self.laws(sums).max(-1).sum(-1))

    def most_log_peak(self, columns: int) -> float:
        """An upper bound on ln Pr of the likeliest outcome of a row, whatever the teachers vote.

        The probability that an entry is 0 is largest if its votes cancel. Let m entries of the
        outcome not be 0: the magnitudes of their sums add up to at most k n_units, and ln Phi is
        concave, so they are likeliest if these magnitudes are equal. The bound is public.
        """
        m = np.arange(columns + 1)
        lead = np.minimum(self.n_units, self.top_k * self.n_units / np.maximum(m, 1))
        return float(np.max(m * self.laws(lead)[:, 2] + (columns - m) * self.laws(0)[1]))

    def independent(self, orders: ArrayLike) -> np.ndarray:
        """The data-independent divergence of one row [A] (Theorem 3)."""
        return self.slope * require_orders(orders)

    def theorem(self, log_q: ArrayLike, orders: ArrayLike) -> np.ndarray:
        """Theorem 4 with the best of many mu1 and mu2, without the data-independent bound.

        Args:
            log_q: ln of an upper bound on q [Q].

        Returns:
            RDP [Q, A]; inf if the theorem does not apply.
        """
        orders, log_q = require_orders(orders), np.asarray(log_q, float)
        best = np.full((len(log_q), len(orders)), np.inf)
        some = -log_q > self.slope  # or no mu2 > 1 has q e^alpha2 < 1
        if not some.any():
            return best
        for mu1, mu2 in itertools.product(_ABOVE_ONE, _ABOVE_ONE):
            bound = likely_outcome(log_q[some], self.slope, np.maximum(mu1, orders), mu2, orders)
            best[some] = np.minimum(best[some], bound)
        return best

    def by_entries(self, sums: ArrayLike, orders: ArrayLike) -> np.ndarray:
        """An upper bound on the divergence of each row from its neighbours, by exact distributions.

        For given sums the entries of an outcome are independent, and divergences of independent
        entries add up. A teacher changes an entry by 0, 1 or 2, and a row by at most 2 k in all: k
        votes before and k after. With D_j(s) the larger divergence of entry j from sums at distance
        s, a change by one unit costs at most u_j = max(D_j(1), D_j(2) / 2), and no entry changes by
        more than two. So a row costs at most the sum of the k largest 2 u_j. Signs are
        post-processing of the noisy sum, D_j(s) <= a s^2 / (2 sigma^2), so this is at most 2 k a /
        sigma^2.

        Args:
            sums: Votes [Q, D], whole numbers from -n_units to n_units.

        Returns:
            RDP [Q, A].

        Raises:
            UserError: Sums that are impossible with so many teachers.
        """
        orders, sums = require_orders(orders), np.asarray(sums)
        if sums.dtype.kind not in "iu" or np.any(np.abs(sums) > self.n_units):
            raise UserError(f"sums of the votes of {self.n_units} teachers must be whole numbers "
                            f"from {-self.n_units} to {self.n_units}")
        table, index = self._twice_a_unit(orders), np.abs(sums)
        k = min(self.top_k, sums.shape[-1])
        rows = np.empty((len(sums), len(orders)))
        for i, costs in enumerate(table.T):
            each = costs[index]
            rows[:, i] = np.partition(each, -k, axis=-1)[:, -k:].sum(-1)
        return np.minimum(rows, self.slope * orders)

    def _twice_a_unit(self, orders: np.ndarray) -> np.ndarray:
        """2 u_j for each magnitude 0..n_units of a sum: [n_units + 1, A]."""
        f = np.arange(self.n_units + 1)
        here = self.laws(f)

        def away(distance: int) -> np.ndarray:
            return np.maximum(*(renyi_of_laws(here, self.laws(f + side * distance), orders)
                                for side in (-1, 1)))

        return np.maximum(2 * away(1), away(2))


def _log_not(log_p: np.ndarray) -> np.ndarray:
    """ln(1 - p) from ln p <= 0."""
    with np.errstate(divide="ignore"):  # p = 1: ln 0
        return np.where(log_p > -1, np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p)))
