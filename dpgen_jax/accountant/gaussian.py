"""Exact accounting of Gaussian releases, what other releases add to it, and the looser accountants
that papers used.

Composition (Dong, Roth and Su, "Gaussian Differential Privacy", JRSSB 2022, Corollary 2): releases
that are mu_i-GDP compose, adaptively, to sqrt(sum mu_i^2)-GDP, and no better statement holds. One
pair (mu, exact delta) therefore describes a whole run; `epsilon` reads it off without any search
over orders and without discretisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfcx, ndtr, ndtri

from dpgen_jax.accountant import numeric, sampling
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Event,
    Events,
    GaussianEvent,
    NonPrivateEvent,
    RenyiEvent,
    merge,
)
from dpgen_jax.accountant.rounding import add_up, left_of
from dpgen_jax.errors import UserError

Conversion = Literal["improved", "classic"]

# `delta_at` is good to about 1e-12 (tests/accountant/test_gaussian.py compares it with 60 digits);
# inflating it by this factor makes every epsilon that is returned an upper bound, at a cost < 1e-9.
_SAFETY = 1 + 1e-9
# More than rounding errors can come to of the few operations that follow each other elsewhere.
_ROUNDING = 1e-14
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Parts of delta that are tried: fixed, so that epsilon cannot fall when an event is added.
_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_FINE_SHARES = (*_SHARES, 1 - 1e-4, 1 - 1e-6)


def delta_at(mu: float, epsilon: float) -> float:
    """The exact delta of mu-GDP at epsilon: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    Dong, Roth and Su, Corollary 1; Balle and Wang, ICML 2018, Theorem 8. Because
    e^eps phi(x + mu) = phi(x) at x = eps/mu - mu/2, this is phi(x) [M(x) - M(x + mu)] with the
    Mills ratio M = (1 - Phi) / phi: neither e^eps nor a difference of two tiny tails is formed.
    """
    if mu <= 0:
        return 0.0
    if mu == math.inf:
        return 1.0
    x = epsilon / mu - mu / 2
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if mu < 0.5:
        # M(x) - M(x + mu) cancels for small mu; its integrand, 1 - t M(t) = -M'(t), does not.
        t = x + mu / 2 * (1 + _NODES)
        return float(density * mu / 2 * (_WEIGHTS @ (1 - t * _mills(t))))
    if x > 0:
        return float(density * (_mills(x) - _mills(x + mu)))
    return float(ndtr(-x) - density * _mills(x + mu))


def _mills(t):
    return math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))


def epsilon(events: Events, delta: float) -> float:
    """An epsilon at which all `events` together are (epsilon, delta)-private; the smallest, rounded
    up, where all are Gaussian.

    Gaussian events compose exactly (`_exact`), with SampledGaussianEvents by Renyi divergences
    (`_drawn`). EpsilonDeltaEvents add their epsilons to that and take their deltas from delta:
    basic composition. It holds however the releases are interleaved and depend on each other: each
    kind is an interactive mechanism with its own (epsilon, delta), and those compose like
    mechanisms that run one after the other (Vadhan and Zhang, "Concurrent Composition Theorems for
    Differential Privacy", STOC 2023). With RenyiEvents of one order it is the smaller of that
    (`_each_kind`) and all at that order (`_one_order`). Gaussian events beside Poisson draws or
    Laplace noise compose with these by their privacy losses (`numeric`), others on top.

    inf with a NonPrivateEvent, or where delta is not enough; 0.0 for no events. Never falls when an
    event is added or delta is lowered. Raises UserError unless 0 < delta < 1.
    """
    require_delta(delta)
    events = merge(events)
    bounded = _only(EpsilonDeltaEvent, events)
    left = left_of(delta, ((event.delta, count) for event, count in bounded))
    if _only(NonPrivateEvent, events) or left < 0:
        return math.inf
    if _only(numeric.NEW, events):
        return numeric.beside(_without_losses, events, left)
    return _without_losses(events, left)


def _without_losses(events: Events, delta: float) -> float:
    """`epsilon` of the kinds whose privacy losses need not be added up."""
    orders = {event.order for event, _ in _only(RenyiEvent, events)}
    if len(orders) == 1:
        return min(_each_kind(events, delta), _one_order(events, *orders, delta))
    return _each_kind(events, delta)


def _each_kind(events: Events, delta: float) -> float:
    """Each kind of event by itself (both Gaussian ones as one), and each order of RenyiEvents, then
    basic composition; a share of delta is for Renyi, split equally. The best of `_SHARES`. What is
    drawn of each kind departs from the ideal by its own tau, at the price of its own epsilon."""
    renyi: dict[float, Events] = {}
    for event, count in _only(RenyiEvent, events):
        renyi[event.order] = (*renyi.get(event.order, ()), (event, count))
    others = tuple((event, n) for event, n in events if not isinstance(event, RenyiEvent))
    mu, tau = math.sqrt(mu_squared(_only(GaussianEvent, events))), total_variation(others)
    drawn = sampling.curve(events)
    pure = [(event.epsilon, n) for event, n in _only(EpsilonDeltaEvent, events)]
    divergence = {order: add_up((event.rdp, n) for event, n in same)
                  for order, same in renyi.items()}

    def total(share: float) -> float:
        each = share * delta / max(1, len(renyi)) * (1 - _ROUNDING)
        parts = [_beside_tau(divergence[order], order, total_variation(same), each, _SHARES)
                 for order, same in renyi.items()]
        parts.append(_drawn(drawn, mu, tau, (1 - share) * delta))
        return add_up([*pure, *((part, 1) for part in parts)])

    return min(map(total, _SHARES)) if renyi else total(0.0)


def _one_order(events: Events, order: float, delta: float) -> float:
    """Everything at the one order a of the RenyiEvents, where divergences add up, adaptively
    (Mironov, Proposition 1). A Gaussian has a mu^2 / 2; an e-private release min(e, a e^2 / 2) (Bun
    and Steinke, "Concentrated Differential Privacy", TCC 2016, Proposition 3.3). An (e, d)-private
    release is e-private but for a chance of d that it tells all (Kairouz, Oh and Viswanath, "The
    Composition Theorem for Differential Privacy", ICML 2015): delta arrives here without those d.
    A SampledGaussianEvent has the divergence of `sampling`, at its orders only.
    """
    rdp = add_up([
        (order * mu_squared(_only(GaussianEvent, events)) / 2, 1),
        (sampling.at_order(events, order), 1),
        *((event.rdp, n) for event, n in _only(RenyiEvent, events)),
        *((min(event.epsilon, order * event.epsilon**2 / 2), n)
          for event, n in _only(EpsilonDeltaEvent, events))])
    return _beside_tau(rdp, order, total_variation(events), delta, _SHARES)


def _drawn(rdp: np.ndarray, mu: float, tau: float, delta: float) -> float:
    """`_exact` with SampledGaussianEvents of this `sampling.curve`: all divergences add up at each
    of its orders."""
    if not rdp.any():
        return _exact(mu, tau, delta)
    rdp = rdp + sampling.ORDERS * mu**2 / 2
    return _beside_tau(rdp, sampling.ORDERS, tau, delta, _FINE_SHARES)


def _beside_tau(rdp, orders, tau: float, delta: float, shares: Sequence[float]) -> float:
    """The smallest epsilon over shares of delta: one part is for `rdp`, the rest for the distance
    between drawn and ideal noise, (1 + e^eps) tau as `_exact` proves."""
    best = math.inf
    for share in shares:
        eps, rest = _from_rdp(rdp, orders, share * delta), (1 - share) * delta
        if tau == 0 or rest > 0 and (math.log(tau) + np.logaddexp(0, eps) + math.log(_SAFETY)
                                     <= math.log(rest)):
            best = min(best, eps)
    return best


def _from_rdp(rdp, orders, delta: float) -> float:
    """The best of one or more orders, each of which bounds the whole; rounded up."""
    if not np.any(rdp) or delta <= 0:
        return math.inf if np.any(rdp) else 0.0
    size = rdp - np.log1p(-1 / orders) + (np.log(orders) - math.log(delta)) / (orders - 1)
    return max(0.0, float(np.min(_convert(rdp, orders, delta, "improved") + _ROUNDING * size)))


def _only(kind: type | tuple[type, ...], events: Events) -> Events:
    return tuple((event, count) for event, count in events if isinstance(event, kind))


def mu_squared(events: Events) -> float:
    """Sum of count * squared_sensitivity / sigma^2; inf with a NonPrivateEvent.

    Raises UserError for events that are not Gaussian, which only `epsilon` can count.
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
    """Sum of count * total_variation, rounded up: by how much the drawn run may differ from the
    ideal one."""
    return add_up((event.total_variation, count) for event, count in merge(events)
                  if hasattr(event, "total_variation"))


def _exact(mu: float, tau: float, delta: float) -> float:
    """The smallest epsilon of Gaussian releases, with the distance between drawn and ideal noise
    charged to delta: the value returned satisfies delta_at(mu, eps) + (1 + e^eps) tau <= delta,
    where mu^2 = sum count * squared_sensitivity / sigma^2 and tau = sum count * total_variation.

    Proof of the charge. Let P, Q be the ideal laws of the transcript on neighbouring data and P',
    Q' those drawn. Replacing the ideal steps by the drawn ones, one at a time, moves the transcript
    by at most the step's total variation (the later steps are the same kernel applied to both), so
    P' and Q' are within tau of P and Q. For every set S:
      P'(S) <= P(S) + tau <= e^eps Q(S) + delta(eps) + tau
            <= e^eps (Q'(S) + tau) + delta(eps) + tau = e^eps Q'(S) + delta(eps) + (1 + e^eps) tau.
    """
    def holds(eps: float) -> bool:
        apart = tau + math.exp(eps + math.log(tau)) if tau else 0.0
        return (delta_at(mu, eps) + apart) * _SAFETY <= delta

    if holds(0.0):
        return 0.0
    if tau >= 1 or mu == 0 or mu == math.inf or delta <= 0:
        return math.inf
    if tau:
        # The left side is convex with slope e^eps (tau - Phi(-eps/mu - mu/2)): lowest here, and
        # e^eps tau = e^eps Phi(..) <= 1 up to here, so nothing overflows.
        enough = mu * (-ndtri(tau) - mu / 2)
        if enough <= 0 or not holds(enough):
            return math.inf
    else:
        # delta_at(mu, eps) <= Phi(mu/2 - eps/mu) <= delta / 2 here, by Phi(-a) <= e^(-a^2/2) / 2
        enough = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return _bisect(holds, 0.0, enough)


def _bisect(holds: Callable[[float], bool], fails: float, does: float) -> float:
    """The edge between `fails` and `does`, to rounding; `holds` is true of the value returned."""
    while abs(does - fails) > 1e-14 * max(abs(does), abs(fails)):
        middle = (does + fails) / 2
        if middle in (does, fails):
            break
        does, fails = (middle, fails) if holds(middle) else (does, middle)
    return does


def zcdp_epsilon(c: float, delta: float, conversion: Conversion = "improved",
                 orders: Sequence[float] | None = None) -> float:
    """Epsilon of RDP(a) = c * a.

    conversion: "classic" is rdp + ln(1/delta) / (a-1) (Mironov, CSF 2017, Proposition 3),
      "improved" is rdp + ln(1 - 1/a) - (ln delta + ln a) / (a-1) (Canonne, Kamath and Steinke,
      NeurIPS 2020, Proposition 12).
    orders: the grid that is searched, all > 1; by default the optimum over all real orders.
    Raises UserError for bad orders.
    """
    if c == 0 or c == math.inf:
        return c
    if orders is not None:
        orders = np.asarray(orders, float)
        if orders.size == 0 or not np.all(orders > 1):
            raise UserError("orders must be numbers above 1, at least one")
        return max(0.0, float(np.min(_convert(c * orders, orders, delta, conversion))))
    best = math.sqrt(math.log(1 / delta) / c)  # order - 1 at the optimum of the classic conversion
    if conversion == "classic":
        return c + 2 * c * best

    def bound(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return float(_convert(c * order, order, delta, conversion))

    # The optimum of the improved conversion is near the classic one. Any order gives a valid bound,
    # so the accuracy of this search is no matter of proof.
    centre = math.log(best)
    found = minimize_scalar(bound, bounds=(centre - 5, centre + 3), method="bounded",
                            options={"xatol": 1e-9})
    return max(0.0, float(found.fun))


def _convert(rdp, order, delta: float, conversion: Conversion):
    if conversion == "classic":
        return rdp + math.log(1 / delta) / (order - 1)
    if conversion == "improved":
        return rdp + np.log1p(-1 / order) - (math.log(delta) + np.log(order)) / (order - 1)
    raise UserError(f"conversion must be 'improved' or 'classic', got {conversion!r}")


def zcdp_for(epsilon: float, delta: float,
             conversion: Literal["exact", "improved", "classic"] = "exact") -> float:
    """The largest c = mu^2 / 2 whose epsilon at `delta` is at most `epsilon`, by one accountant.

    RDP(a) = c * a is c-zCDP; "exact" uses the Gaussian delta itself, the others `zcdp_epsilon`.
    Raises UserError unless 0 < epsilon < inf and 0 < delta < 1.
    """
    require_delta(delta)
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be positive and finite, got {epsilon}")

    def affords(c: float) -> bool:
        if conversion == "exact":
            return _exact(math.sqrt(2 * c), 0.0, delta) <= epsilon
        return zcdp_epsilon(c, delta, conversion) <= epsilon

    too_much = 1.0
    while affords(too_much):
        too_much *= 2
    return _bisect(affords, too_much, 0.0)


def require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta must lie strictly between 0 and 1, got {delta}")
