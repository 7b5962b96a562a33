"""The one way in which a data-dependent number leaves: through smooth sensitivity, with noise."""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import numpy as np

from dpgen_jax.accountant import smooth_sensitivity
from dpgen_jax.accountant.events import Event, GaussianEvent, RenyiEvent
from dpgen_jax.accountant.rounding import add_up
from dpgen_jax.accountant.smooth_sensitivity import Placed, Sanitiser
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.noise import distance, draw_one
from dpgen_jax.core.types import Private, UserError, unseal

DIGITS = 3


class KeptVotes(Protocol):
    """The protocol of `private.votes.Votes`, which this folder does not import."""

    @property
    def counts(self) -> np.ndarray:
        """The vote sums of each query: int32 [Q, bins]."""

    @property
    def answered(self) -> np.ndarray:
        """Whether each query was answered: bool [Q]."""

    @property
    def steps(self) -> int:
        """The rounds that they come from."""


Kept = TypeVar("Kept", bound=KeptVotes)


def event(sanitiser: Sanitiser) -> RenyiEvent:
    """Returns the cost of one release.

    It is an RDP guarantee at the order of the sanitiser, and how far the two draws are from ideal
    ones.

    Args:
        sanitiser: The declared parameters.
    """
    tau = add_up((distance(sigma, 1), 1) for sigma in sanitiser.sigmas)
    return RenyiEvent(sanitiser.order, sanitiser.rdp(), "smooth-sensitivity", tau)


def require(mechanism: ConfidentGNMax, sanitiser: Sanitiser, kept: int, charged: int) -> None:
    """Refuses a run of which no bound can be released, by what is public of it.

    Args:
        mechanism: The mechanism, with noise.
        sanitiser: The declared parameters.
        kept: Rounds whose votes are here.
        charged: Rounds of the ledger, all of which must be among them.

    Raises:
        UserError: Votes are missing, or the conditions C5 or C6 do not hold.
    """
    if kept != charged:
        raise UserError(f"{charged} steps are charged and the votes of {kept} are here: a bound on "
                        "all of them cannot be published")
    sanitiser.require_conditions(mechanism.noise.sigma, mechanism.vote_bins)


def totals(votes: Private[Kept], mechanism: ConfidentGNMax, sanitiser: Sanitiser,
           charged: int) -> Private[Placed]:
    """Returns the total RDP and its smooth sensitivity, on the sanitiser's grids: sealed.

    It is called before anything is charged.

    Args:
        votes: The votes of the mechanism, sealed.
        mechanism: The mechanism, with noise.
        sanitiser: The declared parameters.
        charged: Rounds of the ledger, all of which must be among the votes (a number of rounds is
            public).

    Raises:
        UserError: Votes are missing, or there is no noise, or the conditions C5 or C6 do not hold:
            then nothing may be released.
    """
    counted = unseal(votes)
    require(mechanism, sanitiser, counted.steps, charged)
    queries = (counted.counts, counted.answered, mechanism.votes_needed, mechanism.test_noise.sigma,
               mechanism.noise.sigma, sanitiser.order)
    # Of the tests and answers of the run, which are public, whatever the votes were.
    largest = sanitiser.order / 2 * add_up(
        (_mu_squared(event), n) for event, n in mechanism.actual_charge(counted.answered, ()))
    return Private(sanitiser.place(
        smooth_sensitivity.total_rdp(*queries), smooth_sensitivity.smooth_sensitivity(
            *queries, sanitiser.beta, mechanism.n_units), largest))


def _mu_squared(event: Event) -> float:
    if isinstance(event, GaussianEvent):
        return event.mu_squared
    raise UserError("votes without Gaussian noise have no smooth sensitivity; train with a sigma")


def upper_bound(sealed: Private[Placed], sanitiser: Sanitiser, bits: BitSource) -> float:
    """Releases an upper bound on the total RDP at the sanitiser's order: `totals` with noise.

    Noise is added to whole numbers of public grids, and is made of integers alone
    (`noise.draw_one`): `Sanitiser.place` has the proof. What is made of the two noised numbers,
    rounded up to 10^-3, is public.

    Args:
        sealed: As `totals` returns it.
        sanitiser: The declared parameters.
        bits: The source of the noise.

    Guarantee:
        Unit: a record, through one unit. Relation: replace-one. Cost: `event(sanitiser)`. The bound
        holds except with probability sanitiser.failure.

    Source:
        Papernot et al., "Scalable Private Learning with PATE" (arXiv 1802.08908), appendices B and
        C.

    Raises:
        UserError: As `Sanitiser` does.
    """
    placed = unseal(sealed)
    first, second = bits.draw((1, 2, 3))[0]
    total = placed.total + draw_one(placed.sigma, first)
    log = placed.log + draw_one(sanitiser.sigmas[1], second)
    bound = sanitiser.upper_bound(total, log, placed.step)
    return math.ceil(bound * 10**DIGITS) / 10**DIGITS
