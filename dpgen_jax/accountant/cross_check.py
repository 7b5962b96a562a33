"""`epsilon` once more, by the `dp_accounting` package and by Renyi divergences alone: independent
checks, never a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpgen_jax.accountant.events import (
    Event,
    Events,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
    merge,
)
from dpgen_jax.accountant.gaussian import (
    Conversion,
    mu_squared,
    require_delta,
    zcdp_epsilon,
)
from dpgen_jax.errors import UserError

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation


def rdp_epsilon(events: Events, delta: float, conversion: Conversion = "improved",
                orders: Sequence[float] | None = None) -> float:
    """Epsilon of Gaussian releases by Renyi DP, RDP(a) = a mu^2 / 2; `epsilon` is never larger.

    conversion, orders: as in `gaussian.zcdp_epsilon`. The distance between drawn and ideal noise is
    not charged. inf with a NonPrivateEvent.
    """
    require_delta(delta)
    return zcdp_epsilon(mu_squared(events) / 2, delta, conversion, orders)


def to_dp_event(events: Events) -> DpEvent:
    """The one adapter to the `dp_accounting` package: a Gaussian has the noise multiplier
    sigma / sensitivity, to be read with NeighboringRelation.ADD_OR_REMOVE_ONE whatever the relation
    of the run. The sensitivity of an event already is the distance between neighbouring messages;
    under REPLACE_ONE the package's PLD accountant would double it again, and its RDP one does not
    (google/differential-privacy, issue 378).
    A SampledGaussianEvent is one drawn without replacement, which only the RDP accountant has, and
    with REPLACE_ONE only: `dp_accounting_rdp_epsilon` chooses that. A PoissonGaussianEvent has the
    multiplier sigma / norm, to be read with REPLACE_ONE if that is its relation, which only the PLD
    accountant can; plain Gaussians have twice their multiplier then, against the doubling.

    Raises UserError for other events: the package has no counterpart that is their worst case.
    """
    import dp_accounting as dp

    doubled = 2 if _poisson_replaced(events) else 1

    def single(event: Event) -> DpEvent:
        match event:
            case NonPrivateEvent():
                return dp.NonPrivateDpEvent()
            case GaussianEvent(squared_sensitivity=0) | SampledGaussianEvent(squared_sensitivity=0):
                return dp.NoOpDpEvent()
            case GaussianEvent():
                return dp.GaussianDpEvent(doubled * event.sigma / event.sensitivity)
            case PoissonGaussianEvent(squared_norm=0) | LaplaceEvent(sensitivity=0):
                return dp.NoOpDpEvent()
            case PoissonGaussianEvent():
                norm = math.sqrt(event.squared_norm)
                return dp.PoissonSampledDpEvent(event.rate, dp.GaussianDpEvent(event.sigma / norm))
            case LaplaceEvent():
                return dp.dp_event.DiscreteLaplaceDpEvent(1 / event.scale, event.sensitivity)
            case SampledGaussianEvent():
                return dp.SampledWithoutReplacementDpEvent(event.population, event.drawn,
                                                           single(event.undrawn))
        raise UserError(f"dp_accounting has no counterpart of {type(event).__name__}; "
                        "cross-check the other events without it")

    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(single(e), n) for e, n in merge(events)])


def _poisson_replaced(events: Events) -> bool:
    return any(isinstance(event, PoissonGaussianEvent) and event.relation == "replace-one"
               for event, _ in events)


def pld_epsilon(events: Events, delta: float) -> float:
    """Epsilon by privacy loss distributions (`dp_accounting`): a cross-check of `epsilon`.

    Pessimistic by its discretisation; the distance to ideal noise is not charged. Raises UserError
    for a SampledGaussianEvent, which the package cannot count in this way, and ValueError for
    LaplaceEvents beside replace-one Poisson draws.
    """
    from dp_accounting import NeighboringRelation, pld

    if any(isinstance(event, SampledGaussianEvent) for event, _ in events):
        raise UserError("no privacy loss distribution is known for a draw without replacement; "
                        "cross-check it with dp_accounting_rdp_epsilon")
    relation = (NeighboringRelation.REPLACE_ONE if _poisson_replaced(events)
                else NeighboringRelation.ADD_OR_REMOVE_ONE)
    return _by_package(pld.PLDAccountant, relation, events, delta)


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
