"""Gaussian differential privacy: the exact delta of mu-GDP, and the epsilon it gives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, ndtr, ndtri

from dpgen_jax.core.errors import UserError

# `delta_at` is good to about 1e-12 (tests/accountant/test_gaussian.py compares it with 60 digits);
# inflating it by this factor makes every epsilon that is returned an upper bound, at a cost < 1e-9.
SAFETY = 1 + 1e-9
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def delta_at(mu: float, epsilon: float) -> float:
    """The exact delta of mu-GDP at epsilon: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    Because e^eps phi(x + mu) = phi(x) at x = eps/mu - mu/2, this is phi(x) [M(x) - M(x + mu)] with
    the Mills ratio M = (1 - Phi) / phi: neither e^eps nor a difference of two tiny tails is formed.

    Args:
        mu: Sensitivity over standard deviation; 0 to inf.
        epsilon: Any finite number >= 0.

    Returns:
        Delta, in [0, 1].

    Source:
        Dong, Roth and Su, "Gaussian Differential Privacy", JRSSB 2022, Corollary 1; Balle and Wang,
        ICML 2018, Theorem 8.
    """
    if mu <= 0:
        return 0.0
    if mu == math.inf:
        return 1.0
    x = epsilon / mu - mu / 2
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if mu < 0.5:
        # M(x) - M(x + mu) cancels for small mu; its integrand, 1 - t M(t) = -M'(t), does not.
        t = x + mu / 2 * (1 + _NODES)
        return float(density * mu / 2 * (_WEIGHTS @ (1 - t * _mills(t))))
    if x > 0:
        return float(density * (_mills(x) - _mills(x + mu)))
    return float(ndtr(-x) - density * _mills(x + mu))


def _mills(t: np.ndarray | float) -> np.ndarray:
    """The Mills ratio (1 - Phi(t)) / phi(t)."""
    return math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))


def exact_epsilon(mu: float, tau: float, delta: float) -> float:
    """The smallest epsilon of Gaussian releases whose noise is at a distance from the ideal one.

    The value returned satisfies delta_at(mu, eps) + (1 + e^eps) tau <= delta: the distance between
    sampled and ideal noise is charged to delta.

    Proof of the charge. Let P, Q be the ideal laws of the transcript on neighbouring data and P',
    Q' those that are sampled. Replacing the ideal rounds by the sampled ones, one at a time, moves
    the transcript by at most the round's total variation (the later rounds are the same kernel
    applied to both), so P' and Q' are within tau of P and Q. For every set S:
      P'(S) <= P(S) + tau <= e^eps Q(S) + delta(eps) + tau
            <= e^eps (Q'(S) + tau) + delta(eps) + tau = e^eps Q'(S) + delta(eps) + (1 + e^eps) tau.

    Args:
        mu: mu^2 is the sum of count * squared_sensitivity / sigma^2.
        tau: The sum of count * total_variation.
        delta: The delta that is to be stated.

    Returns:
        Epsilon >= 0; inf where delta is not enough.
    """
    def holds(eps: float) -> bool:
        apart = tau + math.exp(eps + math.log(tau)) if tau else 0.0
        return (delta_at(mu, eps) + apart) * SAFETY <= delta

    if holds(0.0):
        return 0.0
    if tau >= 1 or mu == 0 or mu == math.inf or delta <= 0:
        return math.inf
    if tau:
        # The left side is convex with slope e^eps (tau - Phi(-eps/mu - mu/2)): lowest here, and
        # e^eps tau = e^eps Phi(..) <= 1 up to here, so nothing overflows.
        enough = mu * (-ndtri(tau) - mu / 2)
        if enough <= 0 or not holds(enough):
            return math.inf
    else:
        # delta_at(mu, eps) <= Phi(mu/2 - eps/mu) <= delta / 2 here, by Phi(-a) <= e^(-a^2/2) / 2
        enough = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return bisect(holds, 0.0, enough)


def bisect(holds: Callable[[float], bool], failing: float, holding: float) -> float:
    """The edge between a value at which a condition fails and one at which it holds.

    Args:
        holds: The condition, monotone between the two values.
        failing: A value at which it fails, above or below the other.
        holding: A value at which it holds.

    Returns:
        The edge, to rounding; the condition holds at it.
    """
    while abs(holding - failing) > 1e-14 * max(abs(holding), abs(failing)):
        middle = (holding + failing) / 2
        if middle in (holding, failing):
            break
        holding, failing = (middle, failing) if holds(middle) else (holding, middle)
    return holding


def require_delta(delta: float) -> None:
    """Refuses a delta that is no chance of a failure.

    Raises:
        UserError: Unless 0 < delta < 1.
    """
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}")
