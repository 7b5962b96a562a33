"""Smooth sensitivity: the only way to publish a data-dependent cost of Confident-GNMax.

Source: Papernot et al., "Scalable Private Learning with PATE", ICLR 2018 (arXiv 1802.08908),
appendices B and C: Algorithm 3 and Proposition 13 (local sensitivity), conditions C5 and C6
(B.4.2). Smooth sensitivity: Nissim, Raskhodnikova and Smith, STOC 2007.

Unit: one teacher; neighbouring: one teacher changes its vote in every query. The cost of one query
is a function of q at one order (`Curve`). Its local sensitivity at distance d bounds how much one
more teacher changes that cost, after d teachers have changed their votes. The smooth sensitivity SS
of the total over queries (`total_rdp`) bounds the change of the total at a neighbour, and ln SS
itself changes by at most beta. All of these are as private as the votes. `Sanitiser` adds noise in
proportion to SS and computes its cost.

The result is an EX-POST bound at ONE order, fixed before the run: later queries depend on earlier
answers, so a total over the queries that were made measures what this transcript revealed. It is
not a guarantee given beforehand, and choosing the best of several orders would read the votes
again. Label it so, and never write it where an epsilon is expected. Every parameter must be fixed
without looking at the votes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri_exp

from dpgen_jax.accountant import composition, pate
from dpgen_jax.accountant.pate import ROUNDED, Rounding, checked
from dpgen_jax.core.errors import UserError

_GRID = 4000
_DEEPEST = -3000.0
"""Number of points, and smallest ln q, of the grid on which C5 and C6 are checked."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """The cost b(q) of one GNMax query at one order, as a function of ln q, and its sensitivity.

    Below q0, b is the data-dependent bound; from q0 on it is data-independent. q0 is where the two
    cross, or the upper end of the range in which all conditions of the data-dependent bound hold,
    if they do not cross below it.

    Attributes:
        sigma: Noise on each count, in votes.
        classes: The number of classes, m.
        order: The order a > 1.

    Raises:
        UserError: A sigma, number of classes or order outside of its range.
    """

    sigma: float
    classes: int
    order: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise UserError(f"sigma must be positive and finite, got {self.sigma}")
        if not 1 < self.order < math.inf:
            raise UserError(f"the order must be a number above 1, got {self.order}")
        if self.classes < 2:
            raise UserError(f"a vote needs at least two classes, got {self.classes}")

    @cached_property
    def log_q0(self) -> float:
        """Ln q0; from q0 on the cost is data-independent."""
        edge = -max((1 + 1 / self.sigma)**2, ((self.order - 0.99) / self.sigma)**2)

        def below(log_q: float) -> bool:
            cost = pate.data_dependent(np.array([log_q]), self.sigma, np.array([self.order]))
            return bool(cost[0, 0] < self.independent)

        if below(edge):
            return edge
        small = 2 * edge
        while not below(small):
            small *= 2
        return composition.bisect(below, edge, small)

    @cached_property
    def log_q1(self) -> float:
        """Ln q1; q1 is the smallest q that a neighbour of a vote with q0 can have."""
        return float(self.smallest(np.array(self.log_q0)))

    @property
    def independent(self) -> float:
        """The data-independent cost, a / sigma^2."""
        return self.order / self.sigma**2

    def rdp(self, log_q: np.ndarray) -> np.ndarray:
        """The cost b at ln q; any shape."""
        flat = pate.rdp_gaussian(np.ravel(log_q), self.sigma, self.order)
        return np.where(log_q >= self.log_q0, self.independent, flat.reshape(np.shape(log_q)))

    def largest(self, log_q: np.ndarray) -> np.ndarray:
        """Ln B_U(q), the largest q of a neighbour: all leads are equal and two smaller.

        One changed vote changes each lead by at most two. Phi_c(Phi_c^-1(p) - c) is concave in p
        and, with +c, convex, so equal leads are the extreme case (Jensen), whatever the leads are;
        this also holds for leads reduced for rounding.
        """
        return np.minimum(self._shifted(log_q, -math.sqrt(2) / self.sigma), 0.0)

    def smallest(self, log_q: np.ndarray) -> np.ndarray:
        """Ln B_L(q), the smallest q of a neighbour: all leads are equal and two larger."""
        return self._shifted(log_q, math.sqrt(2) / self.sigma)

    def _shifted(self, log_q: np.ndarray, by: float) -> np.ndarray:
        others = math.log(self.classes - 1)
        return others + log_ndtr(ndtri_exp(log_q - others) - by)

    def sensitivity(self, log_q: np.ndarray) -> np.ndarray:
        """Upper bound on |b(q) - b(q')| over neighbours; it is largest from q1 to q0.

        If the neighbour has another leader, no lead is above two, so both q are at least
        Phi_c(sqrt(2) / sigma) > e^-(1 + 1/sigma)^2 >= q0, and b is equal.
        """
        between = (self.log_q1 <= log_q) & (log_q <= self.log_q0)
        log_q = np.where(between, self.log_q1, log_q)
        here = self.rdp(log_q)
        # B_U(q1) is q0 itself, from which on b is data-independent: not left to rounding, since b
        # jumps there if q0 is not a crossing
        above = np.where(between, self.independent, self.rdp(self.largest(log_q)))
        return np.maximum(above - here, here - self.rdp(self.smallest(log_q)))

    @cached_property
    def plateau(self) -> float:
        """The largest local sensitivity."""
        return float(self.sensitivity(np.array(self.log_q1)))

    def conditions(self) -> tuple[bool, bool]:
        """Checks that b(q) rises on (0, q0) (C5) and b(B_U(q)) - b(q) rises on (0, q1) (C6).

        Without them `smooth_sensitivity` need not be a bound. They depend on public parameters
        only. They are checked on a grid in ln q, which is not a proof.

        Returns:
            Whether C5 holds, and whether C6 does.
        """
        def rises(values: np.ndarray) -> bool:
            return bool(np.all(np.diff(values) >= -1e-12 * np.abs(values[1:])))

        to_q0, to_q1 = (end - np.geomspace(-_DEEPEST, 1e-9, _GRID)
                        for end in (self.log_q0, self.log_q1))
        return rises(self.rdp(to_q0)), rises(self.rdp(self.largest(to_q1)) - self.rdp(to_q1))

    def require_conditions(self) -> None:
        """Refuses parameters for which the smooth sensitivity is not proven.

        Raises:
            UserError: C5 or C6 fails.
        """
        c5, c6 = self.conditions()
        if not (c5 and c6):
            failing = " and ".join(name for name, holds in (("C5", c5), ("C6", c6)) if not holds)
            raise UserError(f"no sanitised release at order {self.order:g} with sigma "
                            f"{self.sigma:g} and {self.classes} classes: condition {failing} of "
                            "the smooth sensitivity fails; take a larger sigma or a smaller order")


def gnmax_local_sensitivity(curve: Curve, counts: ArrayLike,
                            rounding: Rounding = ROUNDED) -> Iterator[float]:
    """Yields the sum over queries of the local sensitivity at distance 0, 1, 2, ... without end.

    A vote with q > q0 is changed towards its leader, and one with q < q1 away from it, one teacher
    at a time and in the direction that changes q fastest, until q lies between. From then on the
    largest local sensitivity counts. Equal votes are computed once.

    Yields:
        The sum at the next distance.
    """
    ordered = np.sort(np.asarray(counts, np.int64), axis=1)[:, ::-1]
    votes, times = np.unique(ordered, axis=0, return_counts=True)
    settled = 0
    while len(votes):
        log_q = pate.gnmax_log_q(votes, curve.sigma, rounding)
        yield settled * curve.plateau + float(times @ curve.sensitivity(log_q))
        weak, strong = log_q > curve.log_q0, log_q < curve.log_q1
        moving = strong | (weak & (votes[:, 1] > 0))
        settled += int(times[~moving].sum())
        votes, times = votes[moving], times[moving]
        step = np.where(weak[moving], 1, -1)
        votes[:, 0] += step
        votes[:, 1] -= step
        votes[:, 1:] = np.sort(votes[:, 1:], axis=1)[:, ::-1]
    while True:
        yield settled * curve.plateau


def threshold_local_sensitivity(largest: int, table: np.ndarray) -> np.ndarray:
    """The local sensitivity of one threshold test if the largest count changes by exactly 0..T.

    Args:
        largest: Votes of the leading class, 0..T.
        table: Cost of the test at each largest count [T + 1].

    Returns:
        Sensitivities [T + 1]; 0 if neither count is in range.
    """
    steps = np.abs(np.diff(table))
    either = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))  # to v + 1, to v - 1
    moved = np.zeros(len(table))
    moved[:len(table) - largest] = either[largest:]
    moved[:largest + 1] = np.maximum(moved[:largest + 1], either[largest::-1])
    return moved


def threshold_table(threshold: float, sigma: float, order: float, n_teachers: int,
                    rounding: Rounding = ROUNDED) -> np.ndarray:
    """The cost of the threshold test at one order, for each largest count 0..T: RDP [T + 1].

    Args:
        order: The order a > 1.
    """
    log_q = pate.threshold_log_q(np.arange(n_teachers + 1), threshold, sigma, rounding)
    return pate.rdp_gaussian(log_q, math.sqrt(2) * sigma, order)[:, 0]


def total_rdp(counts: ArrayLike, answered: ArrayLike, threshold: float, sigma1: float,
              sigma2: float, order: float, rounding: Rounding = ROUNDED) -> float:
    """The total whose smooth sensitivity this module bounds; private.

    It is `pate.confident_gnmax_rdp` at this order, except that a query with q >= q0 is charged the
    data-independent cost even if the data-dependent bound is smaller (only if `Curve.log_q0` is not
    a crossing): the released total must be the function that was analysed.
    """
    counts, answered = checked(counts, answered)
    curve = Curve(sigma2, counts.shape[1], order)
    tests = pate.confident_gnmax_rdp(counts, np.zeros_like(answered), threshold, sigma1, sigma2,
                                     order, rounding)
    return float(tests[0] + curve.rdp(pate.gnmax_log_q(counts[answered], sigma2, rounding)).sum())


def smooth_sensitivity(counts: ArrayLike, answered: ArrayLike, threshold: float, sigma1: float,
                       sigma2: float, order: float, beta: float, n_teachers: int,
                       rounding: Rounding = ROUNDED) -> float:
    """The smooth sensitivity SS = max over d of e^(-beta d) sum_i [LS1_i(d) + answered_i LS2_i(d)].

    It is private. LS1 is the local sensitivity of the threshold test and LS2 that of GNMax, at d
    teachers from these votes. The largest count of a query may change by any number up to d, and
    differently in each query, so LS1_i(d) is the largest over all shifts up to d. The sum at
    exactly d, as in the authors' code, can be below the sensitivity of such a neighbour.

    Args:
        counts: Votes, int [Q, m], at most n_teachers in a query.
        answered: The released outcomes of the threshold test, bool [Q].
        order: The order a > 1.
        beta: The largest difference of ln SS between neighbours.

    Raises:
        UserError: C5 or C6 fails, or arguments that do not fit together.
    """
    counts, answered = checked(counts, answered)
    if np.any(counts.sum(axis=1) > n_teachers):
        raise UserError(f"a query has more than {n_teachers} votes; give the number of teachers")
    if not 0 < beta < math.inf:
        raise UserError(f"beta must be positive and finite, got {beta}")
    curve = Curve(sigma2, counts.shape[1], order)
    curve.require_conditions()
    table = threshold_table(threshold, sigma1, order, n_teachers, rounding)
    tests = np.zeros(n_teachers + 1)
    for largest, times in zip(*np.unique(counts.max(axis=1), return_counts=True), strict=True):
        tests += times * np.maximum.accumulate(threshold_local_sensitivity(largest, table))
    largest_sum = tests[-1] + np.count_nonzero(answered) * curve.plateau
    best = 0.0
    votes = gnmax_local_sensitivity(curve, counts[answered], rounding)
    for distance in range(n_teachers + 1):
        weight = math.exp(-beta * distance)
        if weight * largest_sum <= best:  # no larger distance can be the maximum
            break
        best = max(best, weight * (tests[distance] + next(votes)))
    return best


def gnss_rdp(beta: float, sigma_ss: float, order: float) -> float:
    """RDP at one order of adding sigma_ss SS N(0, 1) to a number whose SS is beta-smooth (GNSS).

    It is a / (2 sigma_ss^2 w) - beta - ln(w) / (2 (a - 1)), with w = a - (a - 1) e^(2 beta): the
    largest divergence between N(f, s^2) and N(f', s'^2) for |ln(s' / s)| <= beta and |f - f'|
    sigma_ss <= min(s, s').

    Proof. With t = ln(s' / s) and v = 1 - a + a e^(2t), the divergence (Gil, Alajaji and Linder,
    2013) is a (f - f')^2 / (2 s^2 v) + g(t), where g(t) = t + (2t - ln v) / (2 (a - 1)). The first
    term is at most a / (2 sigma_ss^2 (a - (a - 1) e^(-2t))) for t <= 0, which rises as t falls, and
    less for t > 0. g(0) = 0 and g'(t) = a (e^(2t) - 1) / v, which is larger in size at -t than at
    t. So both are largest at t = -beta.

    The formula of the paper (Theorem 23), a e^(2 beta) / sigma_ss^2 + (beta a - ln(1 - 2 a beta) /
    2) / (a - 1), is larger in most cases, but too small where 2 a beta is near 1 and sigma_ss is
    small: its first term misses the factor 1 / v.

    Args:
        sigma_ss: Standard deviation of the noise, in smooth sensitivities.

    Raises:
        UserError: Unless 1 < a < 1 / (2 beta), the paper's range, in which w > 0.
    """
    if not (beta > 0 and 1 < order < 1 / (2 * beta)):
        raise UserError(f"the order must lie between 1 and 1/(2 beta), got order {order:g} with "
                        f"beta {beta:g}; take a smaller beta")
    if not 0 < sigma_ss < math.inf:
        raise UserError(f"sigma_ss must be positive and finite, got {sigma_ss}")
    w = 1 - (order - 1) * math.expm1(2 * beta)
    return order / (2 * sigma_ss**2 * w) - beta - math.log(w) / (2 * (order - 1))


STEPS, LOG_STEPS = 2**20, 1024
"""Number of steps of the public grids of a `Sanitiser`: for the largest total, and for beta."""


@dataclasses.dataclass(frozen=True)
class Placed:
    """A total and the logarithm of its smooth sensitivity, in whole steps of public grids; private.

    Attributes:
        total: The total, in steps of `step`.
        sigma: The noise for the total in the same steps; also private.
        log: ln S, in steps of `Sanitiser.log_step`.
    """

    total: int
    sigma: float
    log: int
    step: float


@dataclasses.dataclass(frozen=True)
class Sanitiser:
    """A one-sided release of a total at one order: an upper bound, except with a small probability.

    All parameters are fixed before the run, without looking at votes.

    A choice for thousands of teachers: beta = 0.2 / a, sigma_ss = 10, log_sigma = 1.5 a, z = 3. It
    costs 0.097 at order 8 (0.069 for the total, 0.028 for SS) and fails with probability 0.0027;
    with both noises at their means the bound is z sigma_ss e^(0.2 * 1.5 z) = 74 SS above the total.
    A larger beta lowers SS, but from a beta = 1/4 on the first cost grows fast (1 / w in
    `gnss_rdp`); beta log_sigma = 0.3 keeps e^U within a factor of about 2.5 of z deviations.
    benchmarks/results/pate_accounting.json has figures for simulated votes. With a smaller sigma2,
    or teachers that agree less, more votes are near q0 and SS is larger; the data-independent total
    is then better.

    Attributes:
        beta: Of the smooth sensitivity, from 0.0001 to below 1 / (2 a).
        sigma_ss: Noise on the total, in smooth sensitivities.
        log_sigma: Noise on ln SS, in units of its sensitivity, beta.
        z: How many standard deviations of each noise are added.

    Raises:
        UserError: A parameter outside of its range.
    """

    order: float
    beta: float
    sigma_ss: float
    log_sigma: float
    z: float

    def __post_init__(self) -> None:
        gnss_rdp(self.beta, self.sigma_ss, self.order)  # refuses what it cannot price
        for name in ("log_sigma", "z"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.beta < 1e-4:
            raise UserError(f"beta must be at least 0.0001, got {self.beta}: float errors of the "
                            "sensitivity must be small in comparison")

    def require_conditions(self, sigma2: float, bins: int) -> None:
        """Refuses a run whose smooth sensitivity is not proven at this order, whatever its votes.

        Raises:
            UserError: C5 or C6 fails.
        """
        Curve(sigma2, bins, self.order).require_conditions()

    def rdp(self) -> float:
        """The cost of the release itself, at its order; to be added to the bound it gives.

        It is `gnss_rdp` for the noisy total, and a / (2 log_sigma^2) for the Gaussian mechanism on
        ln S, whose sensitivity is beta and whose noise beta log_sigma. Both are public.
        """
        return (gnss_rdp(self.beta, self.sigma_ss, self.order)
                + self.order / (2 * self.log_sigma**2))

    @property
    def failure(self) -> float:
        """Upper bound on the probability that the released bound is below the total: 2 Phi(-z)."""
        return 2 * float(ndtr(-self.z))

    @property
    def log_step(self) -> float:
        """The grid of ln S."""
        return self.beta / LOG_STEPS

    @property
    def sigmas(self) -> tuple[float, float]:
        """The noise in steps: the largest possible for the total, and that for ln S. Public."""
        return self.sigma_ss * (STEPS + 2), self.log_sigma * LOG_STEPS

    def place(self, total_rdp: float, ss: float, most: float) -> Placed:
        """The integers to which the two noises are added.

        Float noise would reveal low bits of the floats. So both numbers become whole numbers of
        public steps h and g = beta / 1024, and the noise is round(sigma Z): for an integer v, v +
        round(sigma Z) = round(v + sigma Z) is post-processing of the Gaussian mechanism whose cost
        is `rdp`, except for the total variation of the sampled distribution. The noise of the total
        is in proportion to S = SS + 2 h, h = most 2^-20 rounded up to a
        power of two:
          - The total in steps, F = ceil(total / h), differs between neighbours by less than
            SS / h + 1, so h F by less than SS + h, and S is at least that at both of them. The
            second h is for the floats in which total and SS are computed, good to 1e-11 of `most`.
          - S is beta-smooth as SS is: (e^beta SS + 2 h) / (SS + 2 h) < e^beta, by a factor that
            float errors cannot make up for from beta = 0.0001 on. Cutting both off at `most`, which
            neither exceeds but for rounding, changes nothing of this.
          - G = ceil(ln S / g) therefore differs by at most 1024, and log_sigma 1024 is its noise.

        Args:
            total_rdp: The `total_rdp` at this order; private.
            ss: The `smooth_sensitivity` at this order and beta; private.
            most: The data-independent total, which no total exceeds; public.
        """
        step = 2.0 ** (math.ceil(math.log2(most)) - 20) if most > 0 else 2.0**-20
        s = min(ss, most) + 2 * step
        return Placed(math.ceil(min(total_rdp, most) / step), self.sigma_ss * s / step,
                      math.ceil(math.log(s) / self.log_step), step)

    def upper_bound(self, total: int, log: int, step: float) -> float:
        """The bound to release: h (F + 1) + z sigma_ss e^U, with U = g (G + 1 + z log_sigma 1024).

        The noisy total without the margin is too low half of the time. Z1 >= -z and Z2 >= -z fail
        with probability Phi(-z) each. Otherwise h F is at least the total less z sigma_ss S and
        half a step, and U is at least ln S; the added steps cover rounding. The result may be below
        0 or above the data-independent total, which is then the better bound, and public.

        Args:
            total: The noisy F of a `Placed`; public.
            log: The noisy G of a `Placed`; public.
            step: The grid of the total, h.

        Returns:
            RDP at the sanitiser's order.
        """
        spread = math.exp(self.log_step * (log + 1 + self.z * self.sigmas[1]))
        return step * (total + 1) + self.z * self.sigma_ss * spread
