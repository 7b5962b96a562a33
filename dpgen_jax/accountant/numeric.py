"""Tight composition of many releases by the sum of their privacy losses.

It counts Gaussian releases of Poisson-sampled units, discrete Laplace noise and Gaussian releases,
any number of each.

Dominating pairs compose, adaptively, to their products (Zhu, Dong and Wang, "Optimal Accounting of
Differential Privacy via Characteristic Function", AISTATS 2022, Theorem 10), so delta(eps) of the
whole is read off the law of the sum of the releases' losses (`loss`). Powers of characteristic
functions give it (Koskela, Jalko and Honkela, "Computing Tight Differential Privacy Guarantees
Using FFT", AISTATS 2020), here of laws tilted by e^(order * loss): their mass lies where delta is
decided, so that errors are small beside delta, and not only beside 1.

All that is neglected is charged: losses beyond the grid, what wraps around, rounding (`_NOISE`).
Adding an event never makes the grid of another finer, and a coarser one dominates, so epsilon does
not fall but for rounding, 1e-8 of it. It is within 1 % of that of far finer grids, mostly 0.1 %.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import fft

from dpgen_jax.accountant import loss
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Events,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
)
from dpgen_jax.accountant.loss import ORDERS, Loss
from dpgen_jax.accountant.rounding import add_up, left_of

# Nodes of a composed law, and of one of several kinds; where more are needed, the grid is widened.
_LARGEST, _LARGEST_MIXED = 2**21, 2**17
_SLICE = math.log(1e-14)  # of a tilted law, which may wrap around at each end
_ROUNDED_UP = 1 + 1e-12  # of a product
_NOISE = 1e-13, 1e-15  # of a tilted law: for each kind what wraps around, for each step rounding

_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)  # of delta, for what is not of KINDS

NEW = (PoissonGaussianEvent, LaplaceEvent)
KINDS = (GaussianEvent, *NEW)

Step = Callable[..., Loss]
Steps = tuple[tuple[Step, int], ...]


class Law(NamedTuple):
    """The law of a sum of losses, tilted.

    Attributes:
        first: Index of the first node.
        mass: Masses [n] at (first + i) * width, times e^(order * loss) and scaled to the sum 1.
        width: The distance of the nodes.
    """

    first: int
    mass: np.ndarray
    width: float


def beside(others: Callable[[Events, float], float], events: Events, delta: float) -> float:
    """An epsilon of any events, those of NEW kinds by their privacy losses.

    The two parts add up by basic composition, with a part of delta each. LaplaceEvents may also
    count as purely private, if that is cheaper: for few of them. The result is never less than what
    `others` says of the events that it knows, so that adding one that it does not know never helps.

    Args:
        others: From events and a delta to the epsilon of all kinds but NEW.
        events: Pairs (event, count), merged.
        delta: The delta that is to be stated.

    Returns:
        Epsilon >= 0; inf where delta is not enough.
    """
    known = tuple((event, n) for event, n in events if isinstance(event, KINDS))
    rest = tuple((event, n) for event, n in events if not isinstance(event, KINDS))
    as_pure = tuple((dataclasses.replace(event, sensitivity=0), n)
                    if isinstance(event, LaplaceEvent) else (event, n) for event, n in known)
    pure = add_up((event.epsilon, n) for event, n in known if isinstance(event, LaplaceEvent))

    def total(share: float) -> float:
        left = (1 - share) * delta
        tight = epsilon(known, left)
        best = min(tight, epsilon(as_pure, left, pure)) if pure else tight
        return add_up([(best, 1), (others(rest, share * delta), 1)])

    without = tuple(pair for pair in events if not isinstance(pair[0], NEW))
    shares = (0.0,) if all(isinstance(event, EpsilonDeltaEvent) for event, _ in rest) else _SHARES
    return max(min(map(total, shares)), others(without, delta))


@functools.lru_cache(maxsize=4096)
def epsilon(events: Events, delta: float, pure: float = 0.0) -> float:
    """An epsilon at which events of KINDS together are (epsilon, delta)-private.

    The distance tau between sampled and ideal laws is charged as `gdp.exact_epsilon` proves:
    delta(eps) + (1 + e^eps) tau <= delta. Where relations differ it is a zero-out guarantee (a
    message of 0 is one that a replaced unit may send, so replace-one events cover it).

    Args:
        events: Pairs (event, count), merged, each of one of KINDS.
        delta: The delta that is to be stated.
        pure: Epsilon of further releases, which is added; their tau is in that of the events.

    Returns:
        Epsilon >= 0; inf where delta is not enough.
    """
    tau = add_up((event.total_variation, count) for event, count in events)
    zeroed = any(isinstance(event, PoissonGaussianEvent) and event.relation == "zero-out"
                 for event, _ in events)
    apart = tau * math.exp(min(pure, 700.0)) * _ROUNDED_UP
    return add_up([(pure, 1), (max(_smallest(_steps(events, way), apart, delta)
                                   for way in (("remove", "add") if zeroed else ("both",))), 1)])


def _steps(events: Events, way: loss.Direction) -> Steps:
    """The makers of the loss of each kind of round, and their number; `way` for zero-out events."""
    mu_squared = math.fsum(n * event.mu_squared for event, n in events
                           if isinstance(event, GaussianEvent))
    # Gaussian releases compose to one, which is a draw with chance 1 of a norm of mu / 2
    steps = [(functools.partial(loss.gaussian, 1.0, math.sqrt(mu_squared) / 2, "both"), 1)]
    steps = steps if mu_squared else []
    for event, n in events:
        match event:
            case PoissonGaussianEvent(squared_norm=0) | PoissonGaussianEvent(rate=0.0):
                continue
            case PoissonGaussianEvent():
                towards = "both" if event.relation == "replace-one" else way
                ratio = event.gaussian.sensitivity / event.gaussian.sigma
                steps.append((functools.partial(loss.gaussian, event.rate, ratio, towards), n))
            case LaplaceEvent() if event.sensitivity:
                steps.append((functools.partial(loss.laplace, event.scale, event.sensitivity), n))
    return tuple(steps)


def _smallest(steps: Steps, tau: float, delta: float) -> float:
    """The smallest epsilon, from Chernoff's bound (the best over ORDERS) downwards.

    The law is tilted to lie around the best epsilon so far, again where that was so far off that
    errors would count.
    """
    if not steps:
        return 0.0 if 2 * tau <= delta else math.inf
    losses = [make() for make, _ in steps]
    left = left_of(delta, ((one.infinite, n)
                           for one, (_, n) in zip(losses, steps, strict=True)))
    if not left > 0:
        return math.inf
    log_mgf = np.asarray(sum(n * one.log_mgf
                             for one, (_, n) in zip(losses, steps, strict=True)))
    eps = max(0.0, float(np.min((log_mgf - math.log(left))[1:] / ORDERS[1:])))
    noise = _NOISE[0] * len(steps) + _NOISE[1] * sum(n for _, n in steps)
    # higher orders would be far beyond the resolution of the grid
    highest = np.searchsorted(ORDERS, min(ORDERS[-16], 100 / min(one.width for one in losses)))
    orders = slice(1, max(2, highest))
    result, tried = math.inf, set()
    while (k := 1 + int(np.argmin((log_mgf - ORDERS * eps)[orders]))) not in tried:
        tried.add(k)
        law, log_scale = _composed(steps, k, eps)
        result = min(result, _read_off(law, ORDERS[k], log_scale, noise, tau, left))
        eps = min(eps, result)
        if log_scale - ORDERS[k] * eps + math.log(noise) < math.log(left) - 16:
            break
    return result


def _composed(steps: Steps, k: int, centre: float) -> tuple[Law, float]:
    """The sum of all losses, tilted by ORDERS[k], and the logarithm of what it was divided by.

    The law starts around 0 or well below `centre`.
    """
    order, log_scale, laws = ORDERS[k], 0.0, []
    for make, count in steps:
        one = make()
        low, high = _window(count * one.log_mgf, k, one.width)
        while high - low > _LARGEST:
            one = make(least=2 * one.width)
            low, high = _window(count * one.log_mgf, k, one.width)
        log_scale += count * one.log_mgf[k]
        laws.append(_power(one, count, k, low, high))
    first, mass, width = laws[0] if len(laws) == 1 else _sum(laws, order)
    start = math.floor(max(0.0, centre - 40 / order) / width)
    mass = np.concatenate([np.zeros(max(0, first - start)), np.maximum(mass, 0.0)])
    return Law(min(first, start), mass, width), log_scale


def _window(log_mgf: np.ndarray, k: int, width: float) -> tuple[int, int]:
    """The nodes outside of which a tilted law has no more than the slice that may wrap around.

    Chernoff's bound at the other ORDERS gives them, for either end.
    """
    above = (log_mgf[k + 1:] - log_mgf[k] - _SLICE) / (ORDERS[k + 1:] - ORDERS[k])
    below = (log_mgf[k] - log_mgf[:k] + _SLICE) / (ORDERS[k] - ORDERS[:k])
    return math.floor(below.max() / width), math.ceil(above.min() / width)


def _power(one: Loss, count: int, k: int, low: int, high: int) -> Law:
    """The law of the sum of `count` equal losses, between the nodes `low` and `high`."""
    size = fft.next_fast_len(high - low + 1, real=True)
    mass = np.bincount(one.node % size, np.exp(one.tilted(ORDERS[k]) - one.log_mgf[k]), size)
    mass = fft.irfft(fft.rfft(mass) ** count, size)
    return Law(low, np.roll(mass, -low), one.width)


def _sum(laws: list[Law], order: float) -> Law:
    """The law of the sum of independent losses, on one grid."""
    from scipy.signal import fftconvolve  # here: loading it takes as long as loading JAX

    width = min(law.width for law in laws)
    while sum(len(law.mass) * law.width for law in laws) > _LARGEST_MIXED * width:
        width *= 2
    return functools.reduce(
        lambda a, b: Law(a.first + b.first, fftconvolve(a.mass, b.mass), width),
        (_regridded(law, width, order) for law in laws))


def _regridded(law: Law, width: float, order: float) -> Law:
    """The same law on a finer grid; on a coarser one what dominates it, by the split of `loss`."""
    losses = (law.first + np.arange(len(law.mass))) * law.width
    cell = np.floor(losses / width).astype(int)
    above = losses - cell * width
    up, first = loss.share_up(above, width), int(cell[0])
    size = cell[-1] - first + 2
    mass = (np.bincount(cell - first, law.mass * (1 - up) * np.exp(-order * above), size)
            + np.bincount(cell - first + 1, law.mass * up * np.exp(order * (width - above)), size))
    return Law(first, mass, width)


def _read_off(law: Law, order: float, log_scale: float, noise: float, tau: float, delta: float
              ) -> float:
    """The smallest eps >= 0 with delta(eps) + (1 + e^eps) tau <= delta.

    In e^eps the left side is a straight line between nodes.
    """
    from scipy.signal import lfilter

    losses = (law.first + np.arange(len(law.mass))) * law.width
    # delta(l - w) = delta(l) + (1 - e^-w) T(l) with T(l) = sum over l' >= l of mass(l') e^(l - l');
    # both times e^(order l), so that nothing is too large or too small.
    decay = math.exp(-order * law.width)
    tail = lfilter([1.0], [1.0, -decay * math.exp(-law.width)], law.mass[::-1])
    tilted = lfilter([0.0, -decay * math.expm1(-law.width)], [1.0, -decay], tail)[::-1]
    with np.errstate(over="ignore", divide="ignore"):
        deltas = np.exp(np.log(tilted + noise) + log_scale - order * losses)
        if tau:
            deltas += np.exp(math.log(tau) + np.logaddexp(0, losses))
        start = max(0, -law.first)
        enough = np.flatnonzero(deltas[start:] <= delta)
        if not enough.size:
            return math.inf
        i = start + int(enough[0])
        if i == start or not np.isfinite(deltas[i - 1]):
            return max(0.0, float(losses[i]))
        share = (deltas[i - 1] - delta) / (deltas[i - 1] - deltas[i])
        step = np.logaddexp(np.log1p(-share), np.log(share) + law.width)
    return float(losses[i - 1] + step)
