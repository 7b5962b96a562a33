"""The one way in which a data-dependent number leaves: through smooth sensitivity, with noise."""

from __future__ import annotations

import math
from typing import Any

from dpgen_jax.accountant import smooth_sensitivity
from dpgen_jax.accountant.events import RenyiEvent
from dpgen_jax.accountant.rounding import add_up
from dpgen_jax.accountant.smooth_sensitivity import Placed, Sanitiser
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.noise import distance, draw_one
from dpgen_jax.types import Private, UserError, unseal

DIGITS = 3


def event(sanitiser: Sanitiser) -> RenyiEvent:
    """What one release costs: an RDP guarantee at the sanitiser's order, and how far the two draws
    are from ideal ones."""
    tau = add_up((distance(sigma, 1), 1) for sigma in sanitiser.sigmas)
    return RenyiEvent(sanitiser.order, sanitiser.rdp(), "smooth-sensitivity", tau)


def totals(votes: Private[Any], mechanism: Any, sanitiser: Sanitiser, charged: int
           ) -> Private[Placed]:
    """Total RDP and smooth sensitivity at the sanitiser's order, on its grids: sealed, before
    anything is charged. votes: a sealed `private.votes.Votes` of a Confident-GNMax mechanism;
    charged: steps of the ledger, all of which must be among them (a number of steps is public).

    Errors: UserError where votes are missing, or where the conditions C5 or C6 do not hold: then
    nothing may be released.
    """
    held = unseal(votes)
    if held.steps != charged:
        raise UserError(f"{charged} steps are charged and the votes of {held.steps} are here: a "
                        "bound on all of them cannot be published")
    given = (held.counts, held.answered, mechanism.votes_needed, mechanism.test_noise.sigma,
             mechanism.noise.sigma, sanitiser.order)
    # Of the tests and answers of the run, which are public, whatever the votes were.
    most = sanitiser.order / 2 * add_up(
        (event.mu_squared, n) for event, n in mechanism.settled(held.answered, ()))
    return Private(sanitiser.place(
        smooth_sensitivity.total_rdp(*given), smooth_sensitivity.smooth_sensitivity(
            *given, sanitiser.beta, mechanism.n_units), most))


def upper_bound(sealed: Private[Placed], sanitiser: Sanitiser, bits: BitSource) -> float:
    """Releases an upper bound on the total RDP at the sanitiser's order: `totals` with noise.

    Guarantee: `event(sanitiser)`, replace-one through one unit; the bound holds except with
    probability sanitiser.failure. Noise is added to whole numbers of public grids, and is made of
    integers alone (`noise.draw_one`): `Sanitiser.place` has the proof. What is made of the two
    noised numbers, rounded up to 10^-3, is public. Errors: as `Sanitiser`.
    """
    placed = unseal(sealed)
    first, second = bits.draw((1, 2, 3))[0]
    total = placed.total + draw_one(placed.sigma, first)
    log = placed.log + draw_one(sanitiser.sigmas[1], second)
    bound = sanitiser.upper_bound(total, log, placed.step)
    return math.ceil(bound * 10**DIGITS) / 10**DIGITS
