"""Tight composition of many releases: the sum of their privacy losses on a grid.

Any number of Gaussian releases, Gaussian releases of Poisson-sampled units, and releases with
discrete Laplace noise can be composed.

A pair of distributions (P, Q) dominates a mechanism if no pair of neighbours has a larger
hockey-stick divergence H_g = sup_S P(S) - g Q(S), at any g >= 0. The privacy loss is ln dP/dQ under
P. Dominating pairs compose, adaptively, to their products (Zhu, Dong and Wang, "Optimal Accounting
of Differential Privacy via Characteristic Function", AISTATS 2022, Theorem 10), so delta(eps) of
the composition follows from the distribution of the sum of the releases' losses.

The loss of one release is put on a grid. Outcomes with masses (p, q), whose ln(p / q) lies between
two nodes, are split between these so that both total masses are preserved. Forgetting the split
gives the original pair, so the pair on the grid dominates it: H is unchanged at the nodes, and a
chord of it between them, in g (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the Dots:
Tighter Discrete Approximations of Privacy Loss Distributions", PETS 2022). Losses above the last
node count as infinite.

Nodes are multiples of a width, a power of two: 1/16 of the loss's root mean square, rounded down.
From 32 widths on they are 1/32 of the loss apart, but never more than 1/16 of the change of the
loss over one standard deviation of the noise. The nodes of a wider grid are a subset of those of a
finer one, so a wider grid dominates too.

Powers of characteristic functions give the distribution of the sum (Koskela, Jalko and Honkela,
"Computing Tight Differential Privacy Guarantees Using FFT", AISTATS 2020), here of distributions
tilted by e^(order * loss). The mass of a tilted distribution lies where delta is determined, so
errors are small relative to delta, and not only relative to 1. All that is neglected is charged:
losses beyond the grid, what wraps around, and rounding (`_NOISE`).

Adding an event never makes the grid of another event finer, and a coarser grid dominates. So
epsilon does not fall when an event is added, except by rounding (1e-8 of it). It is within 1 % of
the epsilon of much finer grids, mostly within 0.1 %.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from scipy import fft
from scipy.special import ndtr

from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    Events,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    add_up,
    left_of,
)

Direction = Literal["both", "remove", "add"]
Values = float | np.ndarray
LossAt = Callable[[Values], np.ndarray]
OutcomeOf = Callable[[np.ndarray], np.ndarray]

ORDERS = np.concatenate([[0.0], 2.0 ** (np.arange(-112, 161) / 8)])
"""The orders of the moments. They are fixed, so epsilon cannot fall when an event is added."""

_FAR = 10.0  # standard deviations to the last node: 1e-23 of the loss is above
_LOUDEST = 1e12  # a message over sigma; noise below that counts as none
_PER_OCTAVE = 32
_PART = 16
_LARGEST_COARSE = 2**12  # nodes; only noise far below the norm of a message needs more


@dataclasses.dataclass(frozen=True, eq=False)
class Loss:
    """The distribution of a privacy loss on a grid.

    Attributes:
        node: Integers [n], increasing; the loss is node * width.
        mass: Probabilities [n] under P at the nodes.
        width: The grid's unit, a power of two.
        infinite: The probability of losses above the last node.
    """

    node: np.ndarray
    mass: np.ndarray
    width: float
    infinite: float

    @functools.cached_property
    def log_mgf(self) -> np.ndarray:
        """The logarithm of the sum of mass * e^(order * loss), for each of ORDERS."""
        return np.asarray([np.logaddexp.reduce(self.tilted(order)) for order in ORDERS])

    def tilted(self, order: float) -> np.ndarray:
        """The logarithm of mass * e^(order * loss): [n]; -inf where the mass is 0.

        Args:
            order: Any real number.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.mass) + order * self.width * self.node


@functools.lru_cache(maxsize=256)
def gaussian_loss(rate: float, ratio: float, direction: Direction, least: float = 0.0) -> Loss:
    """The loss of one Gaussian release of a sum over units, each sampled with probability q.

    N(v) is the normal distribution around v, of standard deviation 1 (lengths are in units of
    sigma), and c the `ratio`. The dominating pairs are, for "both" (replace-one), P = (1-q) N(0) +
    q N(c) and Q = (1-q) N(0) + q N(-c); for zero-out "remove", with the same P and Q = N(0), and
    "add", P and Q exchanged.

    Proof that these dominate. Let v, v' be one unit's messages on the two data sets. Given the
    samples of all others, whose sum shifts both distributions equally, they are P = (1-q) N(0) + q
    N(v) and P' = (1-q) N(0) + q N(v'), and H_g is jointly convex, so mixing over the samples does
    not increase it. For g >= 1,
      P(S) - g P'(S) = q N(v)(S) - (g-1) (1-q) N(0)(S) - g q N(v')(S),
    and where N(v)(S) = s, the Neyman-Pearson lemma bounds the subtracted terms:
      N(0)(S) >= Phi(Phi^-1(s) - |v|),  N(v')(S) >= Phi(Phi^-1(s) - |v - v'|).
    The right sides fall with |v| <= c and |v - v'| <= 2c. For v = c, v' = -c one half-line attains
    both, whatever s. So this pair has the largest H_g; also for g < 1, since
    H_g(P, P') = 1 - g + g H_{1/g}(P', P) and the pair is symmetric. Zero-out, v' = 0: there
    P(S) - g P'(S) is q N(v)(S) - (g - 1 + q) N(0)(S), largest at |v| = c likewise (for g <= 1 - q
    at the whole line, 1 - g), and the other order follows by the same identity.

    Args:
        rate: The probability q that a unit is sampled, in (0, 1].
        ratio: The largest norm of a message over sigma, c > 0.
        direction: "both", "remove" or "add", as above.
        least: The smallest width, a power of two.
    """
    if ratio > _LOUDEST:
        return Loss(np.arange(2), np.zeros(2), 1.0, 1.0)
    pair = _antipodal if direction == "both" else _one_sided
    loss_at, outcome_of = pair(rate, ratio)
    x = np.linspace(-_FAR, _FAR + ratio, 4001)
    chance = rate if direction != "add" else 0.0
    density = (1 - chance) * np.exp(-x**2 / 2) + chance * np.exp(-(x - ratio)**2 / 2)
    slope = ratio * (2 if direction == "both" else 1)
    top = float(loss_at(x[-1]))
    finest = max(min(_size(loss_at(x), density), slope) / _PART, top / 2**40, 1e-200)
    width = max(least, _power_of_two(finest))
    coarse = max(width, _power_of_two(max(slope / _PART, top / _LARGEST_COARSE)))
    half = _half_grid(width, coarse, top)
    node = np.concatenate([-half[:0:-1], half])
    bounds = np.concatenate([[-np.inf], outcome_of(node * width), [np.inf]])
    silent = _between(bounds)
    p = (1 - rate) * silent + rate * _between(bounds - ratio)
    q = silent
    if direction == "both":
        q = (1 - rate) * silent + rate * _between(bounds + ratio)
    if direction == "add":  # the loss changes its sign: the same cells from above
        p, q = q[::-1], p[::-1]
    return _on_grid(node, width, p, q)


@functools.lru_cache(maxsize=64)
def laplace_loss(scale: float, sensitivity: int, least: float = 0.0) -> Loss:
    """The loss of one discrete Laplace release.

    P(k) is proportional to e^(-|k| / scale), against the same distribution shifted by
    `sensitivity`: the loss is (sensitivity - 2 k) / scale at k = 0 .. sensitivity.

    Args:
        scale: Scale of the noise.
        sensitivity: The shift, > 0.
        least: The smallest width, a power of two.
    """
    k = np.arange(sensitivity + 1)
    largest = sensitivity / scale
    losses = (largest - 2 * k / scale)[::-1]
    mass = np.exp(-k / scale) * math.tanh(1 / scale / 2)
    mass[0] = 1 / (1 + math.exp(-1 / scale))
    mass[-1] = math.exp(-largest) / (1 + math.exp(-1 / scale))
    mass = mass[::-1]
    width = max(least, _power_of_two(_size(losses, mass) / _PART))
    top = math.ceil(largest / width)
    node = np.arange(-top, top + 1)
    cell = np.clip(np.floor(losses / width).astype(int) + top, 0, 2 * top - 1)
    up = share_up(losses - node[cell] * width, width)
    size = len(node)
    placed = (np.bincount(cell, mass * (1 - up), size) + np.bincount(cell + 1, mass * up, size))
    return Loss(node, placed, width, 0.0)


def _antipodal(q: float, c: float) -> tuple[LossAt, OutcomeOf]:
    """The loss at an outcome x, which is increasing, and its inverse.

    With b = (1-q) e^(c^2/2) / q: e^(loss) = (b + e^(cx)) / (b + e^(-cx)), so
    e^(cx - loss/2) - e^(loss/2 - cx) is 2 b sinh(loss / 2).
    """
    with np.errstate(divide="ignore"):
        log_b = np.log1p(-q) - math.log(q) + c * c / 2

    def loss_at(x: Values) -> np.ndarray:
        share = -np.logaddexp(0, log_b), -np.logaddexp(0, -log_b)
        return _log_mean(*share, c * x) - _log_mean(*share, -c * x)

    def outcome_of(loss: np.ndarray) -> np.ndarray:
        size = np.abs(loss)
        with np.errstate(divide="ignore"):
            log_w = log_b + size / 2 + np.log(-np.expm1(-size)) - math.log(2)
        asinh = np.where(log_w > 18, log_w + math.log(2), np.arcsinh(np.exp(np.minimum(log_w, 18))))
        return np.sign(loss) * (size / 2 + asinh) / c

    return loss_at, outcome_of


def _one_sided(q: float, c: float) -> tuple[LossAt, OutcomeOf]:
    """The same for e^(loss) = 1 - q + q e^(cx - c^2/2), whose loss is above ln(1 - q)."""
    def loss_at(x: Values) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return _log_mean(math.log(q), np.log1p(-q), c * x - c * c / 2)

    def outcome_of(loss: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.log1p(np.maximum(np.expm1(np.minimum(loss, 1)) / q, -1))
            high = loss + np.log1p((q - 1) * np.exp(-np.maximum(loss, 1))) - math.log(q)
        return (np.where(loss < 1, low, high) + c * c / 2) / c

    return loss_at, outcome_of


def _log_mean(log_w: Values, log_rest: Values, t: Values) -> np.ndarray:
    """The logarithm of 1 - w + w e^t, accurate for tiny w; log_rest is ln(1 - w)."""
    near = np.log1p(np.exp(log_w) * np.expm1(np.clip(t, -1, 1)))
    return np.where(np.abs(t) < 1, near, np.logaddexp(log_rest, log_w + t))


def _size(values: np.ndarray, weights: np.ndarray) -> float:
    """Root mean square."""
    return math.sqrt(weights @ values**2 / weights.sum())


def _power_of_two(value: float) -> float:
    return 2.0 ** math.floor(math.log2(value))


def _half_grid(width: float, coarse: float, top: float) -> np.ndarray:
    """The nodes from 0 to the first at or above `top`, in widths."""
    pieces, first, step = [np.arange(2 * _PER_OCTAVE)], 2 * _PER_OCTAVE, 2
    last, widest = math.ceil(top / width), round(coarse / width)
    while first < last and step < widest:
        pieces.append(np.arange(first, 2 * first, step))
        first, step = 2 * first, 2 * step
    step = min(step, widest)
    pieces.append(np.arange(first, max(first, last) + step + 1, step))
    nodes = np.concatenate(pieces)
    return nodes[:max(2, np.searchsorted(nodes, last) + 1)]


def _between(x: np.ndarray) -> np.ndarray:
    """Mass of a standard normal between adjacent x, accurate in both tails."""
    low, high = x[:-1], x[1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def share_up(above: np.ndarray, gap: Values) -> np.ndarray:
    """The share of a mass between two nodes that goes to the upper node.

    Args:
        above: Distance of the mass, under P, from the node below it.
        gap: The distance of the two nodes.
    """
    return np.expm1(-np.clip(above, 0, gap)) / np.expm1(-gap)


def _on_grid(node: np.ndarray, width: float, p: np.ndarray, q: np.ndarray) -> Loss:
    """The loss with masses [n + 1] in the cells below, between and above the nodes."""
    inner_p, inner_q = p[1:-1], q[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(inner_p > 0, np.log(inner_p / inner_q), 0.0)
    up = share_up(loss - node[:-1] * width, np.diff(node) * width)
    mass = np.zeros(len(node))
    mass[:-1] += inner_p * (1 - up)
    mass[1:] += inner_p * up
    mass[0] += p[0]
    return Loss(node, mass, width, float(p[-1]))


# Nodes of a composed distribution, and of one of several kinds; if more are needed, the grid is
# widened.
_LARGEST, _LARGEST_MIXED = 2**21, 2**17
_SLICE = math.log(1e-14)  # of a tilted distribution, which may wrap around at each end
_ROUNDED_UP = 1 + 1e-12  # of a product
_NOISE = 1e-13, 1e-15  # tilted: mass that wraps around for each kind, rounding for each step

_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)  # of delta, for what is not of KINDS

NEW = (PoissonGaussianEvent, LaplaceEvent)
KINDS = (GaussianEvent, *NEW)

Step = Callable[..., Loss]
Steps = tuple[tuple[Step, int], ...]


class Law(NamedTuple):
    """The tilted distribution of a sum of losses.

    Attributes:
        first: Index of the first node.
        mass: Masses [n] at (first + i) * width, times e^(order * loss) and scaled to the sum 1.
        width: The distance of the nodes.
    """

    first: int
    mass: np.ndarray
    width: float


def beside(others: Callable[[Events, float], float], events: Events, delta: float) -> float:
    """An epsilon of any events, using privacy losses for the kinds NEW.

    The two parts add up by basic composition, with a part of delta each. LaplaceEvents may also
    count as purely private, if that is cheaper (if they are few). The result is never less than
    `others` gives for the events that it supports, so adding an event of another kind never lowers
    it.

    Args:
        others: A function from events and a delta to the epsilon of all kinds except NEW.

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

    The distance tau between sampled and ideal distributions is charged as
    `composition.exact_epsilon` proves: delta(eps) + (1 + e^eps) tau <= delta. If relations differ,
    it is a zero-out guarantee (a replaced unit may send the message 0, so replace-one events cover
    it).

    Args:
        events: Pairs (event, count), merged, each of one of KINDS.
        pure: Epsilon of further releases, which is added; their tau is included in that of the
        events.

    Returns:
        Epsilon >= 0; inf where delta is not enough.
    """
    tau = add_up((event.total_variation, count) for event, count in events)
    zeroed = any(isinstance(event, PoissonGaussianEvent) and event.relation == "zero-out"
                 for event, _ in events)
    apart = tau * math.exp(min(pure, 700.0)) * _ROUNDED_UP
    return add_up([(pure, 1), (max(_smallest(_steps(events, way), apart, delta)
                                   for way in (("remove", "add") if zeroed else ("both",))), 1)])


def _steps(events: Events, way: Direction) -> Steps:
    """For each kind of round the function that makes its loss, and the number of rounds."""
    mu_squared = math.fsum(n * event.mu_squared for event, n in events
                           if isinstance(event, GaussianEvent))
    # Gaussian releases compose to one: sampling with probability 1, and a norm of mu / 2
    steps = [(functools.partial(gaussian_loss, 1.0, math.sqrt(mu_squared) / 2, "both"), 1)]
    steps = steps if mu_squared else []
    for event, n in events:
        match event:
            case PoissonGaussianEvent(squared_norm=0) | PoissonGaussianEvent(rate=0.0):
                continue
            case PoissonGaussianEvent():
                towards = "both" if event.relation == "replace-one" else way
                ratio = event.gaussian.sensitivity / event.gaussian.sigma
                steps.append((functools.partial(gaussian_loss, event.rate, ratio, towards), n))
            case LaplaceEvent() if event.sensitivity:
                steps.append((functools.partial(laplace_loss, event.scale, event.sensitivity), n))
    return tuple(steps)


def _smallest(steps: Steps, tau: float, delta: float) -> float:
    """The smallest epsilon, searched downwards from Chernoff's bound (the best over ORDERS).

    The distribution is tilted to lie around the best epsilon so far, and again if that was so far
    off that errors would matter.
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
    """The sum of all losses, tilted by ORDERS[k], and the logarithm of its normalising constant.

    The distribution starts around 0 or well below `centre`.
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
    """The nodes outside of which a tilted distribution has at most the mass that may wrap around.

    Chernoff's bound at the other ORDERS gives both ends.
    """
    above = (log_mgf[k + 1:] - log_mgf[k] - _SLICE) / (ORDERS[k + 1:] - ORDERS[k])
    below = (log_mgf[k] - log_mgf[:k] + _SLICE) / (ORDERS[k] - ORDERS[:k])
    return math.floor(below.max() / width), math.ceil(above.min() / width)


def _power(one: Loss, count: int, k: int, low: int, high: int) -> Law:
    """The distribution of the sum of `count` equal losses, between the nodes `low` and `high`."""
    size = fft.next_fast_len(high - low + 1, real=True)
    mass = np.bincount(one.node % size, np.exp(one.tilted(ORDERS[k]) - one.log_mgf[k]), size)
    mass = fft.irfft(fft.rfft(mass) ** count, size)
    return Law(low, np.roll(mass, -low), one.width)


def _sum(laws: list[Law], order: float) -> Law:
    """The distribution of the sum of independent losses, on one grid."""
    from scipy.signal import fftconvolve  # here: loading it takes as long as loading JAX

    width = min(law.width for law in laws)
    while sum(len(law.mass) * law.width for law in laws) > _LARGEST_MIXED * width:
        width *= 2
    return functools.reduce(
        lambda a, b: Law(a.first + b.first, fftconvolve(a.mass, b.mass), width),
        (_regridded(law, width, order) for law in laws))


def _regridded(law: Law, width: float, order: float) -> Law:
    """The distribution on a finer grid, or one that dominates it on a coarser grid (`share_up`)."""
    losses = (law.first + np.arange(len(law.mass))) * law.width
    cell = np.floor(losses / width).astype(int)
    above = losses - cell * width
    up, first = share_up(above, width), int(cell[0])
    size = cell[-1] - first + 2
    mass = (np.bincount(cell - first, law.mass * (1 - up) * np.exp(-order * above), size)
            + np.bincount(cell - first + 1, law.mass * up * np.exp(order * (width - above)), size))
    return Law(first, mass, width)


def _read_off(law: Law, order: float, log_scale: float, noise: float, tau: float, delta: float
              ) -> float:
    """The smallest eps >= 0 with delta(eps) + (1 + e^eps) tau <= delta.

    The left side is linear in e^eps between nodes.
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
