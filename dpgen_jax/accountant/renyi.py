"""Renyi differential privacy: conversions of divergences to epsilon, and those that papers used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from dpgen_jax.accountant import gdp
from dpgen_jax.core.errors import UserError

Conversion = Literal["improved", "classic"]
Values = float | np.ndarray

# More than rounding errors can come to of the few operations that follow each other elsewhere.
ROUNDING = 1e-14


def convert(rdp: Values, order: Values, delta: float, conversion: Conversion) -> Values:
    """The epsilon that a Renyi divergence gives at each order.

    Args:
        rdp: Divergences, a number or an array [A].
        order: Their orders, all > 1, of the same shape or one that broadcasts.
        delta: The delta that is to be stated, 0 < delta < 1.
        conversion: "classic" is rdp + ln(1/delta) / (a-1), "improved" is
            rdp + ln(1 - 1/a) - (ln delta + ln a) / (a-1).

    Returns:
        Epsilon by order, in the shape of the arguments; it may be negative.

    Raises:
        UserError: Another conversion.

    Source:
        Classic: Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 3. Improved: Canonne,
        Kamath and Steinke, NeurIPS 2020, Proposition 12.
    """
    if conversion == "classic":
        return rdp + math.log(1 / delta) / (order - 1)
    if conversion == "improved":
        return rdp + np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
    raise UserError(f"conversion must be 'improved' or 'classic', got {conversion!r}")


def epsilon_beside_distance(rdp: Values, orders: Values, tau: float, delta: float,
                            shares: Sequence[float]) -> float:
    """The smallest epsilon of releases with these divergences, over a few splits of delta.

    One part of delta is for the divergences, the rest for the distance between sampled and ideal
    noise, (1 + e^eps) tau as `gdp.exact_epsilon` proves.

    Args:
        rdp: Divergences, a number or an array [A].
        orders: Their orders.
        tau: The sum of count * total_variation.
        delta: The delta that is to be stated.
        shares: The shares of delta for the divergences that are tried.

    Returns:
        Epsilon >= 0; inf where delta is not enough.
    """
    best = math.inf
    for share in shares:
        eps, rest = _from_rdp(rdp, orders, share * delta), (1 - share) * delta
        if tau == 0 or rest > 0 and (math.log(tau) + np.logaddexp(0, eps) + math.log(gdp.SAFETY)
                                     <= math.log(rest)):
            best = min(best, eps)
    return best


def _from_rdp(rdp: Values, orders: Values, delta: float) -> float:
    """The best of one or more orders, each of which bounds the whole; rounded up."""
    if not np.any(rdp) or delta <= 0:
        return math.inf if np.any(rdp) else 0.0
    size = rdp - np.log1p(-1 / orders) + (np.log(orders) - math.log(delta)) / (orders - 1)
    return max(0.0, float(np.min(convert(rdp, orders, delta, "improved") + ROUNDING * size)))


def zcdp_epsilon(c: float, delta: float, conversion: Conversion = "improved",
                 orders: Sequence[float] | np.ndarray | None = None) -> float:
    """Epsilon of a divergence in proportion to the order, RDP(a) = c * a, which is c-zCDP.

    Args:
        c: The factor, 0 to inf.
        delta: The delta that is to be stated, 0 < delta < 1.
        conversion: As in `convert`.
        orders: The grid that is searched, all > 1; by default the optimum over all real orders.

    Returns:
        Epsilon >= 0.

    Raises:
        UserError: Bad orders.
    """
    if c == 0 or c == math.inf:
        return c
    if orders is not None:
        grid = np.asarray(orders, float)
        if grid.size == 0 or not np.all(grid > 1):
            raise UserError("orders must be numbers above 1, at least one")
        return max(0.0, float(np.min(convert(c * grid, grid, delta, conversion))))
    best = math.sqrt(math.log(1 / delta) / c)  # order - 1 at the optimum of the classic conversion
    if conversion == "classic":
        return c + 2 * c * best

    def bound(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return float(convert(c * order, order, delta, conversion))

    # The optimum of the improved conversion is near the classic one. Any order gives a valid bound,
    # so the accuracy of this search is no matter of proof.
    centre = math.log(best)
    optimum = minimize_scalar(bound, bounds=(centre - 5, centre + 3), method="bounded",
                              options={"xatol": 1e-9})
    return max(0.0, float(optimum.fun))


def zcdp_for(epsilon: float, delta: float,
             conversion: Literal["exact", "improved", "classic"] = "exact") -> float:
    """The largest c = mu^2 / 2 whose epsilon at `delta` is at most `epsilon`, by one accountant.

    Args:
        epsilon: The target.
        delta: The target.
        conversion: "exact" uses the Gaussian delta itself, the others `zcdp_epsilon`.

    Returns:
        The c of c-zCDP, RDP(a) = c * a.

    Raises:
        UserError: Unless 0 < epsilon < inf and 0 < delta < 1.
    """
    gdp.require_delta(delta)
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be positive and finite, got {epsilon}")

    def affords(c: float) -> bool:
        if conversion == "exact":
            return gdp.exact_epsilon(math.sqrt(2 * c), 0.0, delta) <= epsilon
        return zcdp_epsilon(c, delta, conversion) <= epsilon

    too_much = 1.0
    while affords(too_much):
        too_much *= 2
    return gdp.bisect(affords, too_much, 0.0)
