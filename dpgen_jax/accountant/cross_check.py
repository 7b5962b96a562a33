"""`epsilon` once more, by the `dp_accounting` package: an independent check, never a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpgen_jax.accountant.events import (
    Event,
    Events,
    GaussianEvent,
    NonPrivateEvent,
    SampledGaussianEvent,
    merge,
)
from dpgen_jax.accountant.gaussian import require_delta
from dpgen_jax.errors import UserError

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation


def to_dp_event(events: Events) -> DpEvent:
    """The one adapter to the `dp_accounting` package: a Gaussian has the noise multiplier
    sigma / sensitivity, to be read with NeighboringRelation.ADD_OR_REMOVE_ONE whatever the relation
    of the run. The sensitivity of an event already is the distance between neighbouring messages;
    under REPLACE_ONE the package's PLD accountant would double it again, and its RDP one does not
    (google/differential-privacy, issue 378).
    A SampledGaussianEvent is one drawn without replacement, which only the RDP accountant has, and
    with REPLACE_ONE only: `dp_accounting_rdp_epsilon` chooses that.

    Raises UserError for other events: the package has no counterpart that is their worst case.
    """
    import dp_accounting as dp

    def single(event: Event) -> DpEvent:
        match event:
            case NonPrivateEvent():
                return dp.NonPrivateDpEvent()
            case GaussianEvent(squared_sensitivity=0) | SampledGaussianEvent(squared_sensitivity=0):
                return dp.NoOpDpEvent()
            case GaussianEvent():
                return dp.GaussianDpEvent(event.sigma / event.sensitivity)
            case SampledGaussianEvent():
                return dp.SampledWithoutReplacementDpEvent(event.population, event.drawn,
                                                           single(event.undrawn))
        raise UserError(f"dp_accounting has no counterpart of {type(event).__name__}; "
                        "cross-check the other events without it")

    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(single(e), n) for e, n in merge(events)])


def pld_epsilon(events: Events, delta: float) -> float:
    """Epsilon by privacy loss distributions (`dp_accounting`): a cross-check of `epsilon`.

    Pessimistic by its discretisation; the distance to ideal noise is not charged. Raises UserError
    for a SampledGaussianEvent, which the package cannot count in this way.
    """
    from dp_accounting import NeighboringRelation, pld

    if any(isinstance(event, SampledGaussianEvent) for event, _ in events):
        raise UserError("no privacy loss distribution is known for a draw without replacement; "
                        "cross-check it with dp_accounting_rdp_epsilon")
    return _by_package(pld.PLDAccountant, NeighboringRelation.ADD_OR_REMOVE_ONE, events, delta)


def dp_accounting_rdp_epsilon(events: Events, delta: float,
                              orders: Sequence[float] | None = None) -> float:
    """Epsilon by the Renyi accountant of `dp_accounting`: a cross-check of `rdp_epsilon`, and of
    `epsilon` where there are SampledGaussianEvents."""
    from dp_accounting import NeighboringRelation, rdp

    drawn = any(isinstance(event, SampledGaussianEvent) for event, _ in events)
    relation = NeighboringRelation.REPLACE_ONE if drawn else NeighboringRelation.ADD_OR_REMOVE_ONE
    return _by_package(lambda relation: rdp.RdpAccountant(orders, relation), relation, events,
                       delta)


def _by_package(accountant: Callable, relation: NeighboringRelation, events: Events, delta: float
                ) -> float:
    require_delta(delta)
    return float(accountant(relation).compose(to_dp_event(events)).get_epsilon(delta))
