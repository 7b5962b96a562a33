"""Pairs of messages of one unit that change a sum as much as possible: the start of an attack.

`opposites` has the worst case of each bound, and `search` continues from there at random, so a
declared sensitivity is attacked and not assumed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.bound import FewRows
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.compression import SketchedSigns
from dpgen_jax.aggregation.mechanism import LocalMechanism, Mechanism
from dpgen_jax.aggregation.moments import CellVotes, Moments
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array

EDGES = np.array([0.0, -0.0, 1e-45, 1e-38, 0.5, 1.0, 1e19, 3e38, np.inf, np.nan], np.float32)
"""numbers at which float32 arithmetic changes its behaviour"""


def wild(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns adversarial pairs of messages of many kinds, float32 [n, 2, B, M]."""
    return np.stack([_pair(rng, shape[1:]) for _ in range(shape[0])])


def _pair(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    first = _one(rng, shape[1:])
    other = (lambda: -first, lambda: _one(rng, shape[1:]), lambda: np.roll(first, 1, -1),
             lambda: rng.permuted(first, axis=-1))[rng.integers(4)]()
    return np.stack([first, other]).astype(np.float32)


def _one(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """One message: dense, sparse, with ties, of counting numbers, or with edge values."""
    with np.errstate(over="ignore"):
        size = np.float32(10.0 ** rng.uniform(-6, 6))
        kinds = (lambda: rng.standard_normal(shape), lambda: rng.choice([-1.0, 1.0], shape),
                 lambda: rng.standard_normal(shape) * (rng.random(shape) < 4 / shape[-1]),
                 lambda: np.ones(shape), lambda: np.round(rng.uniform(0, 50, shape)),
                 lambda: np.where(rng.random(shape) < 0.02, rng.choice(EDGES, shape),
                                  rng.standard_normal(shape)))
        message = kinds[rng.integers(len(kinds))]()
        return (message * (size if rng.random() < 0.8 else 1.0)).astype(np.float32)


def mutated(rng: np.random.Generator, pair: np.ndarray, n: int) -> np.ndarray:
    """Returns n pairs float32 [n, 2, B, M] that differ from one, [2, B, M], in some entries."""
    return np.stack([_mutated(rng, pair) for _ in range(n)])


def _mutated(rng: np.random.Generator, pair: np.ndarray) -> np.ndarray:
    chosen = rng.random(pair.shape) < 10.0 ** rng.uniform(-4, 0)
    chosen.reshape(-1)[rng.integers(pair.size)] = True
    step = np.float32(1 + rng.choice([-1, 1]) * 2.0 ** -rng.integers(0, 24))
    with np.errstate(all="ignore"):
        values = (lambda: -pair, lambda: pair[::-1], lambda: 0 * pair, lambda: pair * step,
                  lambda: pair + rng.choice([-1.0, 1.0, 0.5]), lambda: rng.permuted(pair, axis=-1),
                  lambda: np.full_like(pair, rng.choice(EDGES)),
                  lambda: rng.standard_normal(pair.shape))[rng.integers(8)]()
        return np.where(chosen, values, pair).astype(np.float32)


HUGE = 1e3
"""an entry that every bound truncates"""
MOST_AT_ONCE = 2**23
"""numbers of all messages of one call"""

Add = Callable[[Array, Array], Array]
"""A function from a key and a message float32 [B, M] to its contribution, int32 [B, D]."""
AddPairs = Callable[[Array, np.ndarray], Array]
"""The same for keys [n, 2] and pairs float32 [n, 2, B, M]: int32 [n, 2, B, D]."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two messages of one unit.

    Attributes:
        messages: float32 [2, B, M].
        added: int32 [2, B, D], their contributions to the sum.
        tried: How many pairs were compared to find this one.
    """

    messages: np.ndarray
    added: np.ndarray
    tried: int = 1

    @property
    def squared(self) -> int:
        """The squared distance of their contributions, exactly."""
        return int(squared(self.added[None])[0])


@functools.singledispatch
def opposites(bound: object, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Returns two messages float32 [B, M] with distant contributions; another pair for each key.

    `shape` is (B, M).
    """
    signs = HUGE * jax.random.rademacher(key, shape, jnp.float32)
    return signs, -signs


@opposites.register
def _(bound: TopKSign, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    k_signs, k_places = jax.random.split(key)
    order = jax.random.uniform(k_places, shape)
    kth = jnp.sort(order, -1)[:, -min(bound.top_k, shape[1])][:, None]
    votes = jnp.where(order >= kth, jax.random.rademacher(k_signs, shape, jnp.float32), 0)
    return votes, -votes


@opposites.register
def _(bound: SketchedSigns, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    return opposites(bound.votes, key, shape)


@opposites.register
def _(bound: FewRows, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    a, b = opposites(bound.bound, key, shape)
    used = (jnp.arange(shape[0]) < bound.bound.rows)[:, None]
    return jnp.where(used, a, 0), jnp.where(used, b, 0)


@opposites.register(GradientL2)
@opposites.register(RowL2)
def _(bound: GradientL2 | RowL2, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    places = jax.random.randint(key, (shape[0], 1), 0, shape[1])
    spike = jnp.where(jnp.arange(shape[1]) == places, HUGE * bound.clip, 0.0)
    return spike, -spike


@opposites.register
def _(bound: CellVotes, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Votes of equal weight for distinct cells."""
    weight = math.isqrt(bound.limit // bound.votes) * jnp.ones(bound.votes)
    last = max(bound.columns - 2 * bound.votes, 0)
    cells = jax.random.randint(key, (), 0, last + 1) + 2 * jnp.arange(bound.votes)
    return tuple(jnp.concatenate([cells + i, weight]).astype(jnp.float32)[None]  # type: ignore
                 for i in (0, 1))


@opposites.register
def _(bound: Moments, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Different shades, and orthogonal vectors in two blocks, or opposite ones in one."""
    k_place, k_block = jax.random.split(key)
    first = jax.random.randint(k_place, (), 0, bound.length)
    block = jax.random.randint(k_block, (), 0, bound.blocks)
    next_block = (block + 1) % bound.blocks
    place = jnp.arange(bound.length)
    one = 1.0 * (place == first)
    other = 1.0 * (place == (first + bound.length // 2) % bound.length)
    vectors = (one, other if bound.square_blocks else -one)
    blocks = (block, next_block if bound.square_blocks else block)
    shades = [1.0 * (jnp.arange(bound.shades) == i) for i in (0, bound.shades - 1)]
    a, b = (jnp.concatenate([jnp.full(1, 1.0 * blocks[i]), vectors[i], shades[i]]).astype(
        jnp.float32)[None] for i in (0, 1))
    return a, b


def adder(mechanism: Mechanism) -> Add:
    """Returns the function from a counted unit's message to its contribution, by the mechanism."""
    if isinstance(mechanism, LocalMechanism):  # whose contributions have noise
        return mechanism.bound.project
    inputs = mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0).shape[2:]
    empty = jnp.zeros(mechanism.shape, jnp.int32)
    return lambda key, message: mechanism.added(
        empty, mechanism.contribution(key, message, jnp.ones(inputs, jnp.int32))[None])


def squared(added: np.ndarray) -> np.ndarray:
    """Returns the squared distances of pairs int32 [n, 2, B, D], exactly: int64 [n]."""
    difference = added[:, 0].astype(np.int64) - added[:, 1]
    return np.einsum("nbd,nbd->n", difference, difference)


def within(seconds: float, least: int = 1, most: float = math.inf) -> Iterator[int]:
    """Yields 0, 1, ... for the given seconds after the first iteration, which compiles.

    There are at least `least` iterations, however long they take, and at most `most`.
    """
    number, until = 0, math.inf
    while number < most and (number < least or time.monotonic() < until):
        yield number
        number, until = number + 1, min(until, time.monotonic() + seconds)


def search(mechanism: Mechanism, shape: tuple[int, int], seconds: float,
           rng: np.random.Generator) -> Pair:
    """Searches for two messages, (B, M) each, with the most distant contributions.

    It begins with the worst case of the bound and with `wild` messages, and repeatedly changes some
    entries of the best pair, since rounding leaves no gradient to follow. The search takes the
    given seconds, and at least one iteration.
    """
    add = _adding(mechanism)
    worst = worst_cases(mechanism, shape, add)
    candidates, added = worst(rng)
    n, best, latest = len(candidates), Pair(candidates[0], added[0]), candidates[0]
    for i in within(seconds):
        if i:
            half = wild(rng, (n - n // 2, 2, *shape))
            candidates = _left_out(mechanism, np.concatenate(
                [half, mutated(rng, latest, n // 2)]))
            added = np.asarray(add(_keys(rng, (n, 2)), candidates))
        distances = squared(added)
        first = int(np.argmax(distances))
        if distances[first] > best.squared:
            best = Pair(candidates[first], added[first])
        if distances[first] >= best.squared:  # as far: the search goes on from another place
            latest = candidates[first]
    return dataclasses.replace(best, tried=(i + 1) * n)


def worst_cases(mechanism: Mechanism, shape: tuple[int, int], add: AddPairs | None = None
                ) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    """Returns a function that makes worst cases of the bound, different in each call.

    From a generator it makes messages float32 [n, 2, B, M] and their contributions, int32 [n, 2, B,
    D]. `add` is `_adding` of the mechanism if that is already compiled.
    """
    n = max(2, min(64, MOST_AT_ONCE // max(math.prod(shape), math.prod(mechanism.shape)) // 2))
    add = add or _adding(mechanism)
    worst = jax.jit(lambda keys: jax.vmap(
        lambda key: jnp.stack(opposites(mechanism.bound, key, shape)))(keys))

    def call(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        messages = _left_out(mechanism, np.array(worst(_keys(rng, (n,)))))
        return messages, np.asarray(add(_keys(rng, (n, 2)), messages))

    return call


def _adding(mechanism: Mechanism) -> AddPairs:
    """Returns `adder`, compiled, for messages [n, 2, B, M]."""
    return jax.jit(jax.vmap(jax.vmap(adder(mechanism))))


def _left_out(mechanism: Mechanism, messages: np.ndarray) -> np.ndarray:
    """Returns pairs in which the second unit answers NaN, if the relation lets it be left out."""
    if mechanism.bound.relation == Relation.ZERO_OUT:
        messages[:, 1] = np.nan
    return messages


def _keys(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """New keys for rounding; privacy does not depend on them."""
    return jax.random.split(jax.random.key(int(rng.integers(2**32))), shape)
