"""The law of the noise that a mechanism draws, against the law that it is charged for.

Noise is drawn through the mechanism itself, of fresh bits, on sums of zeros. Each test has a chance
of at most `findings.ALARM` to fail where all is well.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from scipy.stats import binom, chi2

from dpgen_jax.accountant.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
)
from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism, release
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.audit import lowered
from dpgen_jax.audit.attacks import as_it_is
from dpgen_jax.audit.findings import ALARM, Findings
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, Private

BLOCK = 2**20
"""numbers that are drawn at once"""
MOST = 2**24
"""numbers that are drawn in all"""
BINS = 40
FEWEST = 50
"""expected draws of a bin of the chi-square test"""
Law = RoundedGaussian | DiscreteLaplace


def charged_law(event: Event) -> Law | None:
    """Returns the law of the noise that an event is charged for."""
    match event:
        case SampledGaussianEvent() | PoissonGaussianEvent():
            return RoundedGaussian(event.gaussian.sigma)
        case GaussianEvent():
            return RoundedGaussian(event.sigma)
        case LaplaceEvent():
            return DiscreteLaplace(event.scale)
    return None


def noise_maker(mechanism: Mechanism) -> tuple[Callable[[Array], Array], tuple[int, ...]]:
    """Returns the function from the bits of one release to its noise, and the shape of the bits."""
    mechanism = lowered.attackable(mechanism)
    zeros = jnp.zeros(mechanism.shape, jnp.int32)
    if isinstance(mechanism, LocalMechanism):
        nothing = jnp.full((mechanism.shape[0], 1), jnp.nan)
        empty = dataclasses.replace(mechanism, bound=_Silent(mechanism.shape))
        return lambda bits: empty.contribution(jax.random.key(0), nothing, bits), (
            mechanism.client_bits_shape)
    if isinstance(mechanism, ConfidentGNMax):  # each histogram's bins, behind its test
        noise = mechanism.noise
        return lambda bits: noise.sample(bits[:, 1:]), mechanism.bits_shape
    plain = dataclasses.replace(mechanism, decode=as_it_is)
    return lambda bits: release(plain, bits, Private(zeros)), mechanism.bits_shape


@dataclasses.dataclass(frozen=True)
class _Silent:
    """A bound that makes nothing of any message, for clients that send noise alone."""

    shape: tuple[int, int]
    unit: ClassVar[Unit] = Unit.CLIENT
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 0
    grid: ClassVar[float] = 1.0
    squared_norm: ClassVar[int] = 0

    @property
    def rows(self) -> int:
        return self.shape[0]

    def project(self, key: Array, message: Array) -> Array:
        del key, message
        return jnp.zeros(self.shape, jnp.int32)

    def squared_sensitivity(self) -> int:
        return 0


def drawn(mechanism: Mechanism, seconds: float) -> tuple[np.ndarray, int]:
    """Draws noise through the mechanism, on all devices in turn.

    Returns:
        int64 [rounds, entries], and how many of its 96-bit numbers were the same as another.
    """
    make, shape = noise_maker(mechanism)
    compiled = jax.jit(jax.vmap(make))
    at_once = max(2, BLOCK // max(1, math.prod(shape)))
    rows: list[np.ndarray] = []
    repeats, until = 0, math.inf
    devices = jax.devices()
    while not rows or (sum(row.size for row in rows) < MOST
                       and time.monotonic() < until):
        bits = OsBits().draw((at_once, *shape))
        words = np.ascontiguousarray(bits.reshape(-1, 3)).view("V12").ravel()
        repeats += len(words) - len(np.unique(words))
        device = devices[len(rows) % len(devices)]
        rows.append(np.asarray(compiled(jax.device_put(bits, device))).reshape(at_once, -1).astype(
            np.int64))
        until = min(until, time.monotonic() + seconds)  # compilation is not drawing
    return np.concatenate(rows), repeats


def chi_square(values: np.ndarray, law: Law) -> tuple[float, float]:
    """Returns the chi-square statistic of draws over its degrees of freedom, and its p-value."""
    far = -law.log_tail(np.arange(1, law.max_abs + 1))
    ks = 1 + np.searchsorted(far, -np.log(np.linspace(0.5, 0, BINS // 2, endpoint=False)))
    edges = np.unique(np.concatenate([1 - ks, ks]))
    tails = np.concatenate([[1.0], np.exp(law.log_tail(edges)), [0.0]])
    expected = len(values) * -np.diff(tails)
    counted = np.diff(np.concatenate([[0], np.searchsorted(np.sort(values), edges),
                                      [len(values)]]))
    rare = expected < FEWEST
    expected = np.append(expected[~rare], max(expected[rare].sum(), 1e-9))
    counted = np.append(counted[~rare], counted[rare].sum())
    usable = expected >= FEWEST
    statistic = float(((counted - expected)[usable]**2 / expected[usable]).sum())
    freedom = max(1, int(usable.sum()) - (1 if usable.all() else 0))
    return statistic / freedom, float(chi2.sf(statistic, freedom))


def tail_p(values: np.ndarray, law: Law) -> tuple[float, str]:
    """Returns the smallest p-value of the counts of far draws, times how many, and in words."""
    magnitudes, worst, words = np.abs(values), 1.0, []
    levels = [10.0**-i for i in range(2, 8) if 10.0**-i * len(values) >= 10]
    for level in levels:
        k = int(np.searchsorted(-law.log_tail(np.arange(1, 2**21)), -math.log(level / 2))) + 1
        chance = 2 * math.exp(float(law.log_tail(np.array(k))))
        beyond = int((magnitudes >= k).sum())
        p = 2 * min(binom.cdf(beyond, len(values), chance),
                    binom.sf(beyond - 1, len(values), chance))
        worst = min(worst, p)
        words.append(f"{beyond} beyond {k} of {chance * len(values):.4g}")
    return min(1.0, worst * max(1, len(levels))), ", ".join(words)


def correlations(rows: np.ndarray) -> dict[str, float]:
    """Returns correlations in standard deviations of what independent draws have."""
    x = rows / max(float(rows.std()), 1e-12)
    pairs = {"neighbouring entries": (x[:, 1:], x[:, :-1]),
             "entries from both ends": (x[:, :x.shape[1] // 2], x[:, ::-1][:, :x.shape[1] // 2]),
             "one round and the next": (x[1:], x[:-1]),
             "one round and the last": (x[:len(x) // 2], x[::-1][:len(x) // 2])}
    return {name: float((a * b).sum() / math.sqrt(a.size)) for name, (a, b) in pairs.items()
            if a.size >= 100}


def audit(mechanism: Mechanism, seconds: float, found: Findings, name: str) -> None:
    """Adds whether noise has the law that is charged, and is independent.

    Args:
        mechanism: The mechanism, with the noise of its preset.
        seconds: How long noise is drawn.
        found: Where findings are added.
        name: Of the mechanism.
    """
    event = mechanism.events(1)[-1][0]
    law = charged_law(event)
    if law is None:
        return
    rows, repeats = drawn(mechanism, seconds)
    values = rows.ravel()
    ratio, p = chi_square(values, law)
    found.found(f"{name}: law of the noise", p > ALARM, f"{values.size:,} draws, chi-square "
                f"{ratio:.3g} for each degree of freedom, p {p:.3g}")
    p, words = tail_p(values, law)
    found.found(f"{name}: tails of the noise", p > ALARM, f"{words or 'too few draws'}, p {p:.3g}")
    apart = correlations(rows)
    limit = float(-ndtri(ALARM / 2 / max(1, len(apart))))
    found.found(f"{name}: independence of the noise",
                all(abs(z) < limit for z in apart.values()),
                ", ".join(f"{what} {z:+.2f}" for what, z in apart.items())
                + f" standard deviations, at most {limit:.2f}")
    found.found(f"{name}: no random number is drawn twice", not repeats, f"{repeats} repeats")
