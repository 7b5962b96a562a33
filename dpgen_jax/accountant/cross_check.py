"""Compares epsilon with the `dp_accounting` package: a check, never a budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.composition import require_delta
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Event,
    Events,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    SampledGaussianEvent,
    merge,
    of_kind,
)
from dpgen_jax.core.errors import UserError

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation, PrivacyAccountant

LARGEST_EPSILON = 1000.0
"""Largest epsilon for which the package is called: above it, its grid may not fit in memory."""

BY_LOSSES = "privacy loss distributions"
BY_RENYI = "Renyi divergences"


@dataclasses.dataclass(frozen=True)
class SecondOpinion:
    """Epsilon of some events by this package and by `dp_accounting`.

    Attributes:
        ours: Epsilon by `composition.epsilon_of`.
        theirs: Epsilon by `dp_accounting`; None if it cannot be computed.
        accountant: BY_LOSSES or BY_RENYI; empty if `theirs` is None.
        remark: The expected gap and its reason, or why `theirs` is None.
    """

    ours: float
    theirs: float | None
    accountant: str
    remark: str


def second_opinion(events: Events, delta: float) -> SecondOpinion:
    """Computes the epsilon of events by `dp_accounting` too, if it supports them.

    Args:
        events: Pairs (event, count): one event of a run, or all of them.
        delta: The delta at which both epsilons are stated.
    """
    ours = composition.epsilon_of(events, delta)
    noisy = tuple(pair for pair in events if not isinstance(pair[0], NonPrivateEvent))
    if reason := _why_none(events) or _why_too_large(composition.epsilon_of(noisy, delta)):
        return SecondOpinion(ours, None, "", f"no second opinion: {reason}")
    if of_kind(SampledGaussianEvent, events):
        theirs, by = dp_accounting_rdp_epsilon(events, delta), BY_RENYI
    else:
        theirs, by = pld_epsilon(events, delta), BY_LOSSES
    return SecondOpinion(ours, theirs, by, _expected_gap(events))


def _why_none(events: Events) -> str:
    """Why the package cannot account for the events; empty if it can."""
    unknown = sorted({type(event).__name__ for event, _ in events
                      if isinstance(event, EpsilonDeltaEvent | RenyiEvent)})
    if unknown:
        return f"dp_accounting has no counterpart of {' and '.join(unknown)}"
    poisson, laplace = of_kind(PoissonGaussianEvent, events), of_kind(LaplaceEvent, events)
    if of_kind(SampledGaussianEvent, events) and (poisson or laplace):
        return ("only the Renyi accountant of dp_accounting counts sampling without replacement, "
                "and it does not count Poisson sampling or Laplace noise together with that")
    if len({event.relation for event, _ in poisson}) > 1:
        return "dp_accounting counts all events under one relation, and these have two"
    if laplace and _replaces_one(events):
        return "dp_accounting counts no Laplace noise under replace-one, as its Poisson sampling is"
    return ""


def _why_too_large(epsilon: float) -> str:
    if epsilon <= LARGEST_EPSILON:
        return ""
    return (f"epsilon is {epsilon:g}, and above {LARGEST_EPSILON:g} the losses that dp_accounting "
            "puts on a grid may not fit in memory")


def _expected_gap(events: Events) -> str:
    """Says which of the two epsilons is expected to be larger, and why."""
    if of_kind(NonPrivateEvent, events):
        return "both are infinite: a release without noise bounds nothing"
    if of_kind(SampledGaussianEvent, events):
        return ("theirs is expected to be equal or larger, except for its last digits: both are "
                "Renyi accountants under replace-one; ours searches more orders, rounds up and "
                "charges the distance to ideal noise")
    if of_kind(PoissonGaussianEvent, events):
        convention = ("under replace-one in both" if _replaces_one(events) else
                      "zero-out being read as add-or-remove-one, whose pairs of laws are the same")
        return ("either may be a little larger: each uses a grid of privacy losses of its own and "
                f"rounds up, {convention}")
    if of_kind(LaplaceEvent, events):
        return ("either may be a little larger: each uses a grid of privacy losses of its own and "
                "rounds up")
    return ("theirs is expected to be a little larger: ours is exact, theirs puts privacy losses "
            "on a grid and rounds up; both take the sensitivity, a distance between neighbours, "
            "as it is, whatever the relation is called")


def to_dp_event(events: Events) -> DpEvent:
    """Converts an event for the `dp_accounting` package.

    A Gaussian has the noise multiplier sigma / sensitivity, to be read with
    NeighboringRelation.ADD_OR_REMOVE_ONE whatever the relation of the run: the sensitivity of an
    event is already the distance between neighbouring messages. Under REPLACE_ONE the package's PLD
    accountant would double it again; its RDP accountant does not (google/differential-privacy,
    issue 378). A SampledGaussianEvent is sampled without replacement, which only the RDP accountant
    supports, and only with REPLACE_ONE: `dp_accounting_rdp_epsilon` chooses that. A
    PoissonGaussianEvent has the multiplier sigma / norm, to be read with REPLACE_ONE if that is its
    relation, which only the PLD accountant supports. Plain Gaussians then have twice their
    multiplier, to cancel the doubling.

    Raises:
        UserError: The package has no event that bounds these.
    """
    import dp_accounting as dp

    doubling = 2 if _replaces_one(events) else 1
    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(_single(event, doubling), count)
                               for event, count in merge(events)])


def _single(event: Event, doubling: int) -> DpEvent:
    """The package's counterpart of one event."""
    import dp_accounting as dp

    match event:
        case NonPrivateEvent():
            return dp.NonPrivateDpEvent()
        case (GaussianEvent(squared_sensitivity=0) | LaplaceEvent(sensitivity=0)
              | SampledGaussianEvent(gaussian=GaussianEvent(squared_sensitivity=0))
              | PoissonGaussianEvent(squared_norm=0)):
            return dp.NoOpDpEvent()
        case GaussianEvent():
            return dp.GaussianDpEvent(doubling * event.sigma / event.sensitivity)
        case PoissonGaussianEvent():
            return dp.PoissonSampledDpEvent(event.rate, _single(event.gaussian, 1))
        case LaplaceEvent():
            return dp.dp_event.DiscreteLaplaceDpEvent(1 / event.scale, event.sensitivity)
        case SampledGaussianEvent():
            return dp.SampledWithoutReplacementDpEvent(event.population, event.sample_size,
                                                       _single(event.gaussian, doubling))
    raise UserError(f"dp_accounting has no counterpart of {type(event).__name__}; "
                    "cross-check the other events without it")


def _replaces_one(events: Events) -> bool:
    """Whether there is Poisson sampling under replace-one."""
    return any(event.relation == "replace-one"
               for event, _ in of_kind(PoissonGaussianEvent, events))


def pld_epsilon(events: Events, delta: float) -> float:
    """Epsilon by privacy loss distributions (`dp_accounting`), to check `composition.epsilon_of`.

    Its discretisation is pessimistic. The distance to ideal noise is not charged.

    Returns:
        Epsilon; inf with a NonPrivateEvent.

    Raises:
        UserError: A SampledGaussianEvent, for which this does not work, or an unknown event.
        ValueError: LaplaceEvents together with Poisson sampling under replace-one.
    """
    from dp_accounting import NeighboringRelation, pld

    if of_kind(SampledGaussianEvent, events):
        raise UserError("no privacy loss distribution is known for sampling without replacement; "
                        "cross-check it with dp_accounting_rdp_epsilon")
    relation = (NeighboringRelation.REPLACE_ONE if _replaces_one(events)
                else NeighboringRelation.ADD_OR_REMOVE_ONE)
    return _by_package(pld.PLDAccountant, relation, events, delta)


def dp_accounting_rdp_epsilon(events: Events, delta: float,
                              orders: Sequence[float] | None = None) -> float:
    """Epsilon by the Renyi accountant of `dp_accounting`.

    It checks `composition.epsilon_of` for SampledGaussianEvents.

    Args:
        orders: The orders to search; by default the package's.

    Returns:
        Epsilon; inf with a NonPrivateEvent.

    Raises:
        UserError: Unless 0 < delta < 1; an event unknown to the package.
    """
    from dp_accounting import NeighboringRelation, rdp

    relation = (NeighboringRelation.REPLACE_ONE if of_kind(SampledGaussianEvent, events)
                else NeighboringRelation.ADD_OR_REMOVE_ONE)
    return _by_package(lambda relation: rdp.RdpAccountant(orders, relation), relation, events,
                       delta)


def _by_package(accountant: Callable[[NeighboringRelation], PrivacyAccountant],
                relation: NeighboringRelation, events: Events, delta: float) -> float:
    require_delta(delta)
    return float(accountant(relation).compose(to_dp_event(events)).get_epsilon(delta))
