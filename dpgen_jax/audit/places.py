"""Many trials in one release: units whose messages move entries that no other of them moves.

A sum of a million entries of which one message moves a few is slow to release, and says little. So
many units take one of two messages each, all the first or all the second one, and each is judged
by its own entries alone. What is released of these entries has the law that it has where one unit
changes and no other, so every unit is a trial of the claim for one unit. Trials are independent
where the noise of different entries is; an alarm needs no more than that, since the noise that is
charged has independent entries.
"""

from __future__ import annotations

import dataclasses
import math
import time

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.audit import pairs
from dpgen_jax.audit.releases import Features
from dpgen_jax.core.types import Array

MOST = 512
"""trials in one release"""
AS_FAR = 0.9
"""of the squared distance of the best pair: a trial's pair has at least that"""
SHARED = 0.1
"""of a trial's squared distance, at most, in entries that others move too"""
FRUITLESS = 2
"""calls for worst cases, one after another, that bring no further trial"""


@dataclasses.dataclass(frozen=True)
class Trials:
    """Two sums, and the trials that are in them.

    Attributes:
        totals: int32 [2, B, D].
        entries: int64 [K], of the flattened sum, that one trial alone moves.
        owner: int64 [K], the trial that moves an entry, below `count`.
        count: T.
        nearest: The smallest squared distance of a trial in its own entries.
    """

    totals: np.ndarray
    entries: np.ndarray
    owner: np.ndarray
    count: int
    nearest: float

    def features(self) -> Features:
        """Returns the projection of a released sum on the difference of each trial: [T, 1]."""
        one, other = self.totals.reshape(2, -1)[:, self.entries].astype(float)
        weights, middle = jnp.asarray(other - one, jnp.float32), jnp.asarray((one + other) / 2)
        entries, owner = jnp.asarray(self.entries), jnp.asarray(self.owner)

        def features(released: Array) -> Array:
            apart = (released.reshape(-1)[entries] - middle) * weights
            return jax.ops.segment_sum(apart, owner, self.count)[:, None]

        return features


def found(mechanism: pairs.Mechanism, pair: pairs.Pair, seconds: float,
          rng: np.random.Generator) -> Trials:
    """Puts as many trials into one sum as its entries have room for.

    Args:
        mechanism: A mechanism that releases a noisy sum.
        pair: The best pair. It is the only trial where no worst case of the bound is as far.
        seconds: How long places are looked for.
        rng: Of the places of trials.
    """
    most = min(MOST, mechanism.n_units)  # a sum over more units could leave int32
    call = pairs.worst_cases(mechanism, pair.messages.shape[1:])
    fruitless, places, until = 0, _Places(pair), math.inf
    while fruitless < FRUITLESS and len(places.kept) < most and time.monotonic() < until:
        before = len(places.kept)
        for added in call(rng)[1][:most - before]:
            places.offer(added)
        until = min(until, time.monotonic() + seconds)  # compilation is not looking
        fruitless = 0 if len(places.kept) > before else fruitless + 1
    made = places.trials()
    if not made.count:
        alone = _Places(pair)
        alone.offer(pair.added)
        made = alone.trials()
    return made


class _Places:
    """The trials so far, and the entries that they move.

    Attributes:
        kept: Of each trial the entries that it moves, int64, and by how much, squared.
    """

    def __init__(self, pair: pairs.Pair):
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []
        self._least, self._shape = AS_FAR * pair.squared, pair.added.shape
        self._moved = np.zeros(pair.added[0].size, np.int64)
        self._totals = np.zeros((2, pair.added[0].size), np.int64)

    def offer(self, added: np.ndarray) -> None:
        """Keeps what two messages add, int32 [2, B, D], if it is far and has entries of its own."""
        one, other = added.reshape(2, -1)
        entries = np.flatnonzero(one != other)
        squared = (other[entries].astype(float) - one[entries])**2
        shared = squared[self._moved[entries] > 0].sum()
        if squared.sum() >= self._least and shared <= SHARED * squared.sum():
            self._moved[entries] += 1
            self._totals += one, other
            self.kept.append((entries, squared))

    def trials(self) -> Trials:
        """Returns the trials with the entries that each alone moves, but those with few left."""
        entries, owner = [np.zeros(0, int)], [np.zeros(0, int)]
        distances: list[float] = []
        for places, squared in self.kept:
            alone = self._moved[places] == 1
            if squared[alone].sum() >= (1 - 2 * SHARED) * squared.sum():
                owner.append(np.full(alone.sum(), len(distances)))
                entries.append(places[alone])
                distances.append(float(squared[alone].sum()))
        return Trials(self._totals.reshape(self._shape).astype(np.int32), np.concatenate(entries),
                      np.concatenate(owner), len(distances), min(distances, default=0.0))
