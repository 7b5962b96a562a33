"""The only way in which a data-dependent cost of Confident-GNMax may be shown: smooth sensitivity.

Source: Papernot et al., "Scalable Private Learning with PATE", ICLR 2018 (arXiv 1802.08908),
appendices B and C; smooth sensitivity: Nissim, Raskhodnikova and Smith, STOC 2007.

Unit: one teacher; neighbouring: one teacher changes its vote in every query. `total_rdp` of the
votes is private. Its smooth sensitivity SS bounds by how much it can differ at a neighbour, and
ln SS differs by at most beta; `Sanitiser` adds noise in proportion and states what that costs.

What comes out is an EX-POST bound at ONE order, fixed before the run: later queries depend on
earlier answers, so a total over the queries that were met is a reading of what this transcript
revealed, not a guarantee given beforehand, and the best of several orders would be a further look
at the votes. Label it so, and never write it where an epsilon is expected. Every parameter must be
fixed without looking at the votes.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from dpgen_jax.accountant import pate
from dpgen_jax.accountant.local_sensitivity import (
    gnmax_local_sensitivity,
    threshold_local_sensitivity,
    threshold_table,
)
from dpgen_jax.accountant.pate_curve import Curve
from dpgen_jax.accountant.pate_votes import ROUNDED, Rounding, checked
from dpgen_jax.core.errors import UserError


def total_rdp(counts: ArrayLike, answered: ArrayLike, threshold: float, sigma1: float,
              sigma2: float, order: float, rounding: Rounding = ROUNDED) -> float:
    """The total whose smooth sensitivity this file bounds; private.

    It is `pate.confident_gnmax_rdp` at this order, except that a query with q >= q0 is charged the
    data-independent cost even where the data-dependent bound is smaller (which it is only where
    `Curve.log_q0` is no crossing): the released total must be the function that was analysed.

    Args:
        counts: As in `smooth_sensitivity`.
        answered: As in `smooth_sensitivity`.
        threshold: As in `smooth_sensitivity`.
        sigma1: As in `smooth_sensitivity`.
        sigma2: As in `smooth_sensitivity`.
        order: As in `smooth_sensitivity`.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        The RDP of all queries.

    Raises:
        UserError: Arguments that do not fit together.
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
    teachers from these votes. The largest count of a query may move by any number up to d, and by
    another one in each query, so LS1_i(d) is the largest of all shifts up to d: the sum at exactly
    d, as in the authors' code, can fall below the sensitivity of such a neighbour.

    Args:
        counts: Votes, int [Q, m], at most n_teachers in a query.
        answered: The released outcomes of the threshold test, bool [Q].
        threshold: In votes.
        sigma1: Noise of the test, in votes.
        sigma2: Noise of GNMax, in votes.
        order: The order a > 1.
        beta: How much ln SS may differ between neighbours.
        n_teachers: T.
        rounding: ROUNDED, or IDEAL for the noise of the papers.

    Returns:
        SS.

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
    largest divergence there is between N(f, s^2) and N(f', s'^2) for |ln(s' / s)| <= beta and
    |f - f'| sigma_ss <= min(s, s').

    Proof. With t = ln(s' / s) and v = 1 - a + a e^(2t), the divergence (Gil, Alajaji and Linder,
    2013) is a (f - f')^2 / (2 s^2 v) + g(t), where g(t) = t + (2t - ln v) / (2 (a - 1)). The first
    term is at most a / (2 sigma_ss^2 (a - (a - 1) e^(-2t))) for t <= 0, which rises as t falls, and
    less for t > 0. g(0) = 0 and g'(t) = a (e^(2t) - 1) / v, which is larger in size at -t than at
    t. So both are largest at t = -beta.

    The formula of the paper (Theorem 23), a e^(2 beta) / sigma_ss^2 + (beta a - ln(1 - 2 a beta) /
    2) / (a - 1), is larger in most cases, but too small where 2 a beta is near 1 and sigma_ss is
    small: its first term misses the factor 1 / v.

    Args:
        beta: The smoothness of SS.
        sigma_ss: Standard deviation of the noise, in smooth sensitivities.
        order: The order a.

    Returns:
        RDP at that order.

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
"""steps of the grids: of the largest total, and of beta"""


@dataclasses.dataclass(frozen=True)
class Placed:
    """A total and the logarithm of its smooth sensitivity in whole steps of public grids; private.

    Attributes:
        total: The total, in steps of `step`.
        sigma: The noise that it gets, in the same steps, itself private.
        log: ln S, in steps of `Sanitiser.log_step`.
        step: The grid of the total.
    """

    total: int
    sigma: float
    log: int
    step: float


@dataclasses.dataclass(frozen=True)
class Sanitiser:
    """A one-sided release of a total at one order: an upper bound, except with a stated chance.

    All parameters are fixed before the run, without looking at votes.

    A choice for thousands of teachers: beta = 0.2 / a, sigma_ss = 10, log_sigma = 1.5 a, z = 3. It
    costs 0.097 at order 8 (0.069 for the total, 0.028 for SS) and fails with probability 0.0027;
    with both noises at their means the bound is z sigma_ss e^(0.2 * 1.5 z) = 74 SS above the total.
    A larger beta lowers SS, but from a beta = 1/4 on the first cost grows fast (1 / w in
    `gnss_rdp`); beta log_sigma = 0.3 keeps e^U within a factor of about 2.5 of z deviations.
    benchmarks/pate_accounting.py measures it on simulated votes. Smaller sigma2, or teachers that
    agree less, bring more votes near q0, and SS up: then the data-independent total is better.

    Attributes:
        order: The order a.
        beta: Of the smooth sensitivity, from 0.0001 to below 1 / (2 a).
        sigma_ss: Noise on the total, in smooth sensitivities.
        log_sigma: Noise on ln SS, in units of its sensitivity, beta.
        z: How many standard deviations of each noise are added on top.

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
                            "sensitivity have to be small beside it")

    def require_conditions(self, sigma2: float, bins: int) -> None:
        """Refuses a run whose smooth sensitivity is not proven at this order, whatever its votes.

        Args:
            sigma2: Noise of GNMax, in votes.
            bins: Of one histogram.

        Raises:
            UserError: C5 or C6 fails.
        """
        Curve(sigma2, bins, self.order).require_conditions()

    def rdp(self) -> float:
        """The cost of the release itself, at its order; to be added to the bound it gives.

        It is `gnss_rdp` for the noised total, and a / (2 log_sigma^2) for the Gaussian mechanism on
        ln S, whose sensitivity is beta and whose noise beta log_sigma. Both are public.
        """
        return (gnss_rdp(self.beta, self.sigma_ss, self.order)
                + self.order / (2 * self.log_sigma**2))

    @property
    def failure(self) -> float:
        """At most the probability that the bound released is below the total: 2 Phi(-z)."""
        return 2 * float(ndtr(-self.z))

    @property
    def log_step(self) -> float:
        """The grid of ln S."""
        return self.beta / LOG_STEPS

    @property
    def sigmas(self) -> tuple[float, float]:
        """The noise in steps: the largest that the total can get, and that of ln S. Public."""
        return self.sigma_ss * (STEPS + 2), self.log_sigma * LOG_STEPS

    def place(self, total_rdp: float, ss: float, most: float) -> Placed:
        """The whole numbers from which the two releases start.

        Noise in floats would tell of the floats under it. So both numbers become whole steps h and
        g = beta / 1024 of public grids, a multiple of neither being private, and the noise is
        round(sigma Z): for an integer v, v + round(sigma Z) = round(v + sigma Z) is post-processing
        of the Gaussian mechanism that `rdp` prices, but for the total variation of the sampled law.
        The noise of the total is in proportion to S = SS + 2 h, h = most 2^-20 rounded up to a
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

        Returns:
            The numbers, as private as the votes.
        """
        step = 2.0 ** (math.ceil(math.log2(most)) - 20) if most > 0 else 2.0**-20
        s = min(ss, most) + 2 * step
        return Placed(math.ceil(min(total_rdp, most) / step), self.sigma_ss * s / step,
                      math.ceil(math.log(s) / self.log_step), step)

    def upper_bound(self, total: int, log: int, step: float) -> float:
        """The bound to release: h (F + 1) + z sigma_ss e^U, with U = g (G + 1 + z log_sigma 1024).

        The noised total alone is too low half of the time. Z1 >= -z and Z2 >= -z fail with
        probability Phi(-z) each. Otherwise h F is at least the total less z sigma_ss S and half a
        step, and U is at least ln S; the steps that are added cover rounding. The result may be
        below 0 or above the data-independent total, which is the better bound then, and public.

        Args:
            total: The noised F of a `Placed`, public.
            log: The noised G of a `Placed`, public.
            step: The grid of the total, h.

        Returns:
            RDP at the sanitiser's order.
        """
        spread = math.exp(self.log_step * (log + 1 + self.z * self.sigmas[1]))
        return step * (total + 1) + self.z * self.sigma_ss * spread
