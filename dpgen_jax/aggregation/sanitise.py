"""The one way in which a data-dependent number leaves: through smooth sensitivity, with noise."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant import smooth_sensitivity
from dpgen_jax.accountant.events import RenyiEvent
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.types import Private, UserError, unseal

NORMAL = RoundedGaussian(2.0**14)
"""a standard normal number is a draw over 2^14"""
DIGITS = 3


def event(sanitiser: Sanitiser) -> RenyiEvent:
    """What one release costs: an RDP guarantee at the sanitiser's order."""
    return RenyiEvent(sanitiser.order, sanitiser.rdp(), "smooth-sensitivity")


def totals(votes: Private[Any], mechanism: Any, sanitiser: Sanitiser, charged: int
           ) -> Private[np.ndarray]:
    """(total RDP, smooth sensitivity) at the sanitiser's order: sealed, before anything is charged.
    votes: a sealed `private.votes.Votes` of a Confident-GNMax mechanism; charged: steps of the
    ledger, all of which must be among them (a number of steps is public).

    Errors: UserError where votes are missing, or where the conditions C5 or C6 do not hold: then
    nothing may be released.
    """
    held = unseal(votes)
    if held.steps != charged:
        raise UserError(f"{charged} steps are charged and the votes of {held.steps} are here: a "
                        "bound on all of them cannot be published")
    given = (held.counts, held.answered, mechanism.votes_needed, mechanism.test_noise.sigma,
             mechanism.noise.sigma, sanitiser.order)
    return Private(np.array([
        smooth_sensitivity.total_rdp(*given),
        smooth_sensitivity.smooth_sensitivity(*given, sanitiser.beta, mechanism.n_units)]))


def upper_bound(sealed: Private[np.ndarray], sanitiser: Sanitiser, bits: BitSource) -> float:
    """Releases an upper bound on the total RDP at the sanitiser's order: `totals` with noise.

    Guarantee: `event(sanitiser)`, replace-one through one unit; the bound holds except with
    probability sanitiser.failure. Rounded up to a public grid of 10^-3, so that no trace of float
    arithmetic on private values is left in the digits. Errors: as `Sanitiser`.
    """
    total, sensitivity = unseal(sealed)
    words = jnp.asarray(bits.draw((1, *NORMAL.bits_shape((2,)))))[0]
    first, second = np.asarray(NORMAL.sample(words), float) / NORMAL.sigma
    bound = sanitiser.upper_bound(total, sensitivity, first, second)
    return math.ceil(bound * 10**DIGITS) / 10**DIGITS
