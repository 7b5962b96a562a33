"""`epsilon` once more, by the `dp_accounting` package: an independent check, never a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpgen_jax.accountant.events import Event, Events, GaussianEvent, NonPrivateEvent, merge
from dpgen_jax.accountant.gaussian import require_delta
from dpgen_jax.errors import UserError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def to_dp_event(events: Events) -> DpEvent:
    """The one adapter to the `dp_accounting` package: a Gaussian has the noise multiplier
    sigma / sensitivity, to be read with NeighboringRelation.ADD_OR_REMOVE_ONE whatever the relation
    of the run. The sensitivity of an event already is the distance between neighbouring messages;
    under REPLACE_ONE the package's PLD accountant would double it again, and its RDP one would not.

    Raises UserError for other events: the package has no counterpart that is their worst case.
    """
    import dp_accounting as dp

    def single(event: Event) -> DpEvent:
        match event:
            case NonPrivateEvent():
                return dp.NonPrivateDpEvent()
            case GaussianEvent(squared_sensitivity=0):
                return dp.NoOpDpEvent()
            case GaussianEvent():
                return dp.GaussianDpEvent(event.sigma / event.sensitivity)
        raise UserError(f"dp_accounting has no counterpart of {type(event).__name__}; "
                        "cross-check the other events without it")

    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(single(e), n) for e, n in merge(events)])


def pld_epsilon(events: Events, delta: float) -> float:
    """Epsilon by privacy loss distributions (`dp_accounting`): a cross-check of `epsilon`.

    Pessimistic by its discretisation; the distance to ideal noise is not charged.
    """
    from dp_accounting import pld

    return _by_package(pld.PLDAccountant, events, delta)


def dp_accounting_rdp_epsilon(events: Events, delta: float,
                              orders: Sequence[float] | None = None) -> float:
    """Epsilon by the Renyi accountant of `dp_accounting`: a cross-check of `rdp_epsilon`."""
    from dp_accounting import rdp

    return _by_package(lambda relation: rdp.RdpAccountant(orders, relation), events, delta)


def _by_package(accountant: Callable, events: Events, delta: float) -> float:
    from dp_accounting import NeighboringRelation

    require_delta(delta)
    composed = accountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(to_dp_event(events))
    return float(composed.get_epsilon(delta))
