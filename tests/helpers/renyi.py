"""Epsilon of Gaussian releases by Renyi divergences alone, to compare with the exact one."""

import numpy as np
from scipy.optimize import minimize_scalar

from dpgen_jax.accountant.composition import convert_renyi, mu_squared, require_delta


def rdp_epsilon(events, delta, conversion="improved", orders=None):
    """The best of some orders, or of all real ones; RDP(a) = c a, c = mu^2 / 2."""
    require_delta(delta)
    c = mu_squared(events) / 2
    if c in (0, np.inf):
        return c

    def bound(order):
        return float(convert_renyi(c * order, order, delta, conversion))

    if orders is not None:
        return max(0.0, min(map(bound, orders)))
    centre = np.log(np.log(1 / delta) / c) / 2  # of the order less 1, for the classic conversion
    best = minimize_scalar(lambda log_excess: bound(1 + np.exp(log_excess)), method="bounded",
                           bounds=(centre - 5, centre + 3), options={"xatol": 1e-9})
    return max(0.0, float(best.fun))
