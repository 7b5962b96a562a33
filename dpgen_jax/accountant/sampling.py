"""Amplification by sampling without replacement: the Renyi divergences of a round.

Units are sampled uniformly, without replacement, afresh for each round. Throughout
q = sample_size / population and t = sensitivity / sigma. The bound is that of Wang, Balle and
Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical Moments Accountant", AISTATS
2019 (arXiv 1808.00087); the relation is replace-one of one unit. It needs the sample to stay
secret, and each unit's state to be a function of its own data and of what was released before.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import gammaln

from dpgen_jax.accountant.events import Events, SampledGaussianEvent

_INTEGERS = (*range(2, 65), *(int(64 * 1.07**k) for k in range(1, 52)), 2048)
ORDERS = np.asarray(sorted([1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 1.75, *_INTEGERS,
                            *(k + 0.5 for k in range(2, 11)), *(2.0**k for k in range(12, 21))]))
"""The orders at which a run with drawn units is counted; fixed, so that epsilon cannot fall when an
event is added."""

_LOG_FACTORIAL = gammaln(np.arange(2050) + 1.0)
_LARGEST_TERM = 128  # terms above are left to Theorem 9, which is valid too: they hardly count
_SAFETY = 1 + 1e-9  # rounding errors are below this


def curve(events: Events) -> np.ndarray:
    """The divergences of all SampledGaussianEvents, which adaptive composition adds up.

    Args:
        events: Pairs (event, count), of any kinds; the others are left out.

    Returns:
        RDP [A], by order of ORDERS.

    Source:
        Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1.
    """
    total = np.zeros_like(ORDERS)
    for event, count in events:
        if isinstance(event, SampledGaussianEvent):
            total = total + count * _one(event.rate, event.gaussian.mu_squared)
    return total


def at_order(events: Events, order: float) -> float:
    """`curve` at one order.

    Args:
        events: Pairs (event, count), of any kinds.
        order: The order.

    Returns:
        RDP; inf where the order is none of ORDERS, 0.0 without SampledGaussianEvents.
    """
    rdp = curve(events)
    where = np.flatnonzero(order == ORDERS)
    return float(rdp[where[0]]) if where.size else math.inf if rdp.any() else 0.0


@functools.lru_cache(maxsize=1024)
def _one(q: float, t_squared: float) -> np.ndarray:
    """The divergences of one round, by order: the smaller bound, also of those at higher orders.

    The Renyi divergence does not fall with its order.
    """
    if t_squared == 0:
        return np.zeros_like(ORDERS)
    rdp = by_convexity(q, t_squared, ORDERS)
    whole = np.isin(ORDERS, _INTEGERS)
    rdp[whole] = np.minimum(rdp[whole], without_replacement(q, t_squared, _INTEGERS))
    rdp = np.minimum.accumulate(rdp[::-1])[::-1] * _SAFETY
    rdp.flags.writeable = False
    return rdp


def by_convexity(q: float, t_squared: float, orders: np.ndarray) -> np.ndarray:
    """The divergence ln(1 - q + q e^((a-1) a t^2 / 2)) / (a - 1), by convexity.

    The power divergence is jointly convex, and given the sample, the laws on neighbouring data are
    equal, or (with chance q) those of the Gaussian mechanism. It holds for every order a > 1; for q
    = 1 it is the Gaussian's own a t^2 / 2.

    Args:
        q: The chance of a unit to be sampled.
        t_squared: Squared sensitivity over sigma^2.
        orders: Orders [A], > 1.

    Returns:
        RDP [A].
    """
    cgf = orders * (orders - 1) * t_squared / 2
    small = np.log1p(q * np.expm1(np.minimum(cgf, 1)))
    return np.where(cgf < 1, small, cgf + np.log(q + (1 - q) * np.exp(-cgf))) / (orders - 1)


@functools.lru_cache(maxsize=64)
def without_replacement(q: float, t_squared: float, orders: tuple[int, ...]) -> np.ndarray:
    """RDP of one round at integer orders, by the expansion in powers of q.

    It is e^((a-1) RDP(a)) <= 1 + sum_{j=2..a} C(a,j) q^j T_j, where T_j bounds the integral of
    |p - p'|^j / r^(j-1) for any three laws of the Gaussian mechanism that are pairwise neighbours.

    T_j is the smaller of two. Theorem 9: 2 e^(j (j-1) t^2 / 2), as |p - p'|^j <= p^j + p'^j.
    Theorem 27: 4 sqrt(B(l) B(l')) with l, l' the even numbers around j, for a mechanism with one
    worst pair of neighbours, here B(l) = E (e^(t Z - t^2/2) - 1)^l, Z standard normal. The 4: where
    p > p', |p - p'|^j / r^(j-1) is at most |p - p'|^j / p'^(j-1) if r > p', else at most
    |p - r|^j / r^(j-1); where p < p' likewise; so the integral is at most four divergences between
    neighbours, those of even j grow with the distance of two Gaussians, and an odd j follows by
    Cauchy-Schwarz. That counts where t is small.

    Args:
        q: The chance of a unit to be sampled.
        t_squared: Squared sensitivity over sigma^2, > 0.
        orders: Integers from 2 to 2048.

    Returns:
        RDP by order; read-only, as it is cached.
    """
    j = np.arange(max(orders) + 1)
    log_terms = math.log(2) + j * (j - 1) * t_squared / 2
    if t_squared < 1:  # above, the first is the smaller one
        log_moment, k = _even_moments(math.sqrt(t_squared)), j[2:_LARGEST_TERM + 1]
        tighter = math.log(4) + (log_moment[k // 2] + log_moment[(k + 1) // 2]) / 2
        log_terms[k] = np.minimum(log_terms[k], tighter)
    log_terms += j * math.log(q) - _LOG_FACTORIAL[j]

    def log_sum(order: int) -> float:
        k = j[2:order + 1]
        log_choose = _LOG_FACTORIAL[order] - _LOG_FACTORIAL[order - k]  # times k!, divided above
        return np.logaddexp(0.0, np.logaddexp.reduce(log_terms[k] + log_choose))

    rdp = np.asarray([log_sum(order) / (order - 1) for order in orders])
    rdp.flags.writeable = False  # it is kept
    return rdp


def _even_moments(t: float) -> np.ndarray:
    """The logarithm of B(2k) at index k, for t < 1.

    By the trapezoidal rule, exact to rounding on an integrand that is analytic and decays like a
    Gaussian; all its terms are positive, so nothing cancels.
    """
    step = 1 / 8
    z = np.arange(-40, 40 + _LARGEST_TERM * t, step)
    with np.errstate(divide="ignore"):  # the integrand may be exactly 0
        log_base = np.log(np.abs(np.expm1(t * z - t * t / 2)))
    powers = 2 * np.arange(_LARGEST_TERM // 2 + 1)[1:, None]
    log_parts = powers * log_base - z**2 / 2
    top = log_parts.max(axis=1)
    sums = top + np.log(np.exp(log_parts - top[:, None]).sum(axis=1))
    return np.concatenate([[0.0], sums + math.log(step / math.sqrt(2 * math.pi))])
