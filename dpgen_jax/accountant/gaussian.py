"""The epsilon of a run: Gaussian releases by their exact composition, and all others beside them.

Composition (Dong, Roth and Su, "Gaussian Differential Privacy", JRSSB 2022, Corollary 2): releases
that are mu_i-GDP compose, adaptively, to sqrt(sum mu_i^2)-GDP, and no better statement holds. One
pair (mu, exact delta) therefore describes a whole run of Gaussian releases; `epsilon` reads it off
without any search over orders and without discretisation.
"""

from __future__ import annotations

import math

import numpy as np

from dpgen_jax.accountant import numeric, sampling
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Event,
    Events,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    merge,
    of_kind,
)
from dpgen_jax.accountant.gdp import exact_epsilon, require_delta
from dpgen_jax.accountant.renyi import ROUNDING, epsilon_beside_distance
from dpgen_jax.accountant.rounding import add_up, left_of
from dpgen_jax.core.errors import UserError

# Parts of delta that are tried: fixed, so that epsilon cannot fall when an event is added.
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_FINE_SHARES = (*_SHARES, 1 - 1e-4, 1 - 1e-6)


def epsilon(events: Events, delta: float) -> float:
    """An epsilon at which all `events` together are (epsilon, delta)-private.

    It is the smallest, rounded up, where all are Gaussian: those compose exactly
    (`gdp.exact_epsilon`), with SampledGaussianEvents by Renyi divergences (`_with_sampled`).
    EpsilonDeltaEvents add their epsilons to that and take their deltas from delta: basic
    composition. It holds however the releases are interleaved and depend on each other: each kind
    is an interactive mechanism with its own (epsilon, delta), and those compose like mechanisms
    that run one after the other (Vadhan and Zhang, "Concurrent Composition Theorems for
    Differential Privacy", STOC 2023). With RenyiEvents of one order it is the smaller of that
    (`_each_kind`) and all at that order (`_one_order`). Gaussian events beside Poisson sampling or
    Laplace noise compose with these by their privacy losses (`numeric`), others on top.

    Args:
        events: Pairs (event, count), of any kinds.
        delta: The delta that is to be stated.

    Returns:
        Epsilon >= 0; inf with a NonPrivateEvent, or where delta is not enough; 0.0 for no events.
        It never falls when an event is added or delta is lowered.

    Raises:
        UserError: Unless 0 < delta < 1, and for what `merge` refuses.
    """
    require_delta(delta)
    events = merge(events)
    left = left_of(delta, ((event.delta, count)
                           for event, count in of_kind(EpsilonDeltaEvent, events)))
    if of_kind(NonPrivateEvent, events) or left < 0:
        return math.inf
    if any(isinstance(event, PoissonGaussianEvent | LaplaceEvent) for event, _ in events):
        return numeric.beside(_without_losses, events, left)
    return _without_losses(events, left)


def _without_losses(events: Events, delta: float) -> float:
    """`epsilon` of the kinds whose privacy losses need not be added up."""
    orders = {event.order for event, _ in of_kind(RenyiEvent, events)}
    if len(orders) == 1:
        return min(_each_kind(events, delta), _one_order(events, orders.pop(), delta))
    return _each_kind(events, delta)


def _each_kind(events: Events, delta: float) -> float:
    """Each kind of event by itself, then basic composition.

    Both Gaussian kinds count as one kind, and each order of RenyiEvents as a kind. A share of delta
    is for Renyi, split equally: the best of `_SHARES`. The noise of each kind departs from the
    ideal by its own tau, at the price of its own epsilon.
    """
    renyi: dict[float, tuple[tuple[RenyiEvent, int], ...]] = {}
    for event, count in of_kind(RenyiEvent, events):
        renyi[event.order] = (*renyi.get(event.order, ()), (event, count))
    others = tuple(pair for pair in events if not isinstance(pair[0], RenyiEvent))
    mu, tau = math.sqrt(mu_squared(of_kind(GaussianEvent, events))), total_variation(others)
    sampled = sampling.curve(events)
    pure = [(event.epsilon, n) for event, n in of_kind(EpsilonDeltaEvent, events)]
    divergence = {order: add_up((event.rdp, n) for event, n in same)
                  for order, same in renyi.items()}

    def total(share: float) -> float:
        each = share * delta / max(1, len(renyi)) * (1 - ROUNDING)
        parts = [epsilon_beside_distance(divergence[order], order, total_variation(same), each,
                                         _SHARES)
                 for order, same in renyi.items()]
        parts.append(_with_sampled(sampled, mu, tau, (1 - share) * delta))
        return add_up([*pure, *((part, 1) for part in parts)])

    return min(map(total, _SHARES)) if renyi else total(0.0)


def _one_order(events: Events, order: float, delta: float) -> float:
    """Everything at the one order a of the RenyiEvents, where divergences add up, adaptively.

    Source: Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1. A Gaussian release has
    the divergence a mu^2 / 2; an e-private release min(e, a e^2 / 2) (Bun and Steinke,
    "Concentrated Differential Privacy", TCC 2016, Proposition 3.3). An (e, d)-private release is
    e-private but for a chance of d that it tells all (Kairouz, Oh and Viswanath, "The Composition
    Theorem for Differential Privacy", ICML 2015): delta arrives here without those d. A
    SampledGaussianEvent has the divergence of `sampling`, at its orders only.
    """
    rdp = add_up([
        (order * mu_squared(of_kind(GaussianEvent, events)) / 2, 1),
        (sampling.at_order(events, order), 1),
        *((event.rdp, n) for event, n in of_kind(RenyiEvent, events)),
        *((min(event.epsilon, order * event.epsilon**2 / 2), n)
          for event, n in of_kind(EpsilonDeltaEvent, events))])
    return epsilon_beside_distance(rdp, order, total_variation(events), delta, _SHARES)


def _with_sampled(rdp: np.ndarray, mu: float, tau: float, delta: float) -> float:
    """`exact_epsilon` with SampledGaussianEvents, whose divergences at ORDERS are `rdp` [A]."""
    if not rdp.any():
        return exact_epsilon(mu, tau, delta)
    rdp = rdp + sampling.ORDERS * mu**2 / 2
    return epsilon_beside_distance(rdp, sampling.ORDERS, tau, delta, _FINE_SHARES)


def mu_squared(events: Events) -> float:
    """The mu^2 to which Gaussian releases compose.

    Args:
        events: Pairs (event, count), each a GaussianEvent or NonPrivateEvent.

    Returns:
        The sum of count * squared_sensitivity / sigma^2; inf with a NonPrivateEvent.

    Raises:
        UserError: An event that is not Gaussian, which only `epsilon` can count.
    """
    def squared(event: Event) -> float:
        match event:
            case GaussianEvent():
                return event.mu_squared
            case NonPrivateEvent():
                return math.inf
        raise UserError(f"{event} is not Gaussian: only gaussian.epsilon can count it")

    return math.fsum(count * squared(event) for event, count in merge(events))


def total_variation(events: Events) -> float:
    """By how much the run may differ from one with ideal noise.

    Args:
        events: Pairs (event, count), of any kinds.

    Returns:
        The sum of count * total_variation, rounded up.
    """
    return add_up((event.total_variation, count) for event, count in merge(events))
