"""Messages without negative entries: replacing one moves the sum by sqrt 2 of its norm, not by 2.

For integer vectors u, v >= 0 with |u|^2, |v|^2 <= N: |u - v|^2 = |u|^2 + |v|^2 - 2 u.v <= 2 N, as
u.v >= 0; messages with signs may move by 4 N. `NonNegativeL2` takes any such vector, rounded to a
grid; `CellVotes` takes the cells of tables that a record lies in, as they are: nothing is rounded.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import chex
import jax.numpy as jnp

from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.aggregation.noise import MAX_SIGMA
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError

MOST_LEVELS = 2**12 - 1
"""Levels of the longest message: its square is below 2^24, so float32 sums of squares are exact."""
MOST_CELLS = 2**24
"""Numbers of cells are exact in a float32 message below this."""
SLACK = 1 - 1e-4
"""The factor that makes room for what float32 may add to the norm of a message."""


def _positive(bound: object, *names: str) -> None:
    """Makes the fields of a frozen bound plain integers; raises UserError below 1."""
    for name in names:
        value = operator.index(getattr(bound, name))
        object.__setattr__(bound, name, value)
        if value < 1:
            raise UserError(f"{name} is {value}; at least 1 is needed")


def squares_within(entries: Array, limit: int) -> Array:
    """Checks that the sum of squares over the last axis is at most `limit`, exactly.

    Its sums are float32: below 2^24 sums of whole numbers are exact, and a sum that passes 2^24 on
    the way does not come back, as rounding is monotone and nothing that is added is negative.

    Args:
        entries: int32 [..., D].
        limit: Below 2^24.

    Returns:
        bool [..., 1].
    """
    row = entries.astype(jnp.float32)
    return jnp.sum(row * row, -1, keepdims=True) <= limit


@dataclasses.dataclass(frozen=True)
class NonNegativeL2:
    """One long row without negative entries is clipped to L2 norm 1 and put on a grid.

    Negative entries become 0. Rounding is to nearest and moves only entries that are not 0, each by
    at most 1/2: a row with m of them is first scaled to a norm of at most levels - sqrt(m) / 2, so
    that it is not dropped.

    Attributes:
        columns: D.
        levels: Steps of the grid; the longest message is so long.
        entries: The most entries of a message that are not 0, m; more are allowed, but a message of
            norm 1 with more may be dropped.

    Guarantee:
        Unit: a record that itself is the unit. Relation: replace-one. Sensitivity: whatever a
        message was, an integer row with no negative entry and a sum of squares of at most levels^2
        is what is added, or zero. For two of them |u - v|^2 <= 2 levels^2 in grid units, as
        u.v >= 0; rows without a common entry attain it.

    Raises:
        UserError: A field is outside its range.
    """

    columns: int
    levels: int
    entries: int

    rows: ClassVar[int] = 1
    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    def __post_init__(self) -> None:
        _positive(self, "columns", "levels", "entries")
        if not coarsest(self.entries) <= self.levels <= MOST_LEVELS:
            raise UserError(f"{self.levels} levels for rows with {self.entries} entries; they must "
                            f"lie between {coarsest(self.entries)} and {MOST_LEVELS}")

    @property
    def reach(self) -> float:
        """The norm, in grid units, to which a message of norm 1 is scaled before it is rounded."""
        return (self.levels - math.sqrt(self.entries) / 2) * SLACK

    @property
    def max_abs(self) -> int:
        """The largest entry, in grid units."""
        return self.levels

    @property
    def grid(self) -> float:
        """The value of one step of the grid, in units of the message."""
        return 1 / self.reach

    def project(self, key: Array, message: Array) -> Array:
        """Clips and rounds a message; one that is not finite becomes 0."""
        del key
        assert_message(message, self.columns)
        row = jnp.maximum(message, 0)
        # Norms that are no float32 belong to nothing that is meant; the row is dropped.
        norm = jnp.sqrt(jnp.sum(row * row, -1, keepdims=True))
        finite = jnp.isfinite(norm) & jnp.all(jnp.isfinite(message), -1, keepdims=True)
        entries = jnp.round(row * (self.reach / jnp.maximum(norm, 1)))
        return enforce(jnp.where(finite, entries, 0).astype(jnp.int32), self.holds)

    def holds(self, entries: Array) -> Array:
        """Checks that a row is within the bound: bool [..., 1] of int32 [..., D]."""
        none_below = jnp.all(entries >= 0, -1, keepdims=True)
        return none_below & squares_within(entries, self.squared_norm)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of the longest message, in grid units."""
        return self.levels**2

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity: one longest row less, and another one more."""
        return 2 * self.squared_norm


@dataclasses.dataclass(frozen=True)
class CellVotes:
    """Whole votes for cells: a record's weight in each of the tables that are counted.

    A message has the number of a cell for each table, and behind all of them their weights. A cell
    at `columns` or above stands for none. The sum is made of the pairs (cell, weight) themselves:
    a dense row for each record is never in memory.

    Attributes:
        votes: V, the most cells that one message votes for.
        columns: D, the cells of all tables together.
        limit: The most that the squared weights of one message add up to.

    Guarantee:
        Unit: a record that itself is the unit. Relation: replace-one. Sensitivity: what is added is
        sum_t w_t e(c_t) for integers w_t >= 0 with sum_t w_t^2 <= limit and cells c_t that strictly
        increase, so that no two are the same: an integer row without negative entries and with a
        sum of squares of at most limit, or zero. For two of them |u - v|^2 <= 2 limit, as u.v >= 0.
        A record that votes with weight 1 in T tables moves 2 T where it changes its cell in all of
        them, and no more: nothing is rounded.

    Raises:
        UserError: A field is outside its range.
    """

    votes: int
    columns: int
    limit: int

    rows: ClassVar[int] = 1
    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _positive(self, "votes", "columns", "limit")
        if self.limit > MOST_LEVELS**2 or self.columns + self.votes >= MOST_CELLS:
            raise UserError(f"{self.columns} cells, {self.votes} votes and squared weights of "
                            f"{self.limit}; at most {MOST_CELLS - 1} cells and votes together and "
                            f"squared weights of {MOST_LEVELS**2} are possible")

    @property
    def max_abs(self) -> int:
        """The largest weight of a vote."""
        return math.isqrt(self.limit)

    @property
    def compact_shape(self) -> tuple[int, int]:
        """(2, V): cells, and their weights."""
        return (2, self.votes)

    def compact(self, key: Array, message: Array) -> Array:
        """Returns the cells and weights of a message; where they break the bound, weights of 0.

        Args:
            key: Random key, not used.
            message: float32 [1, 2 V]: cells, strictly increasing, and then their weights.

        Returns:
            int32 [2, V].
        """
        del key
        assert_message(message, 2 * self.votes)
        usable = jnp.all((message >= 0) & (message < MOST_CELLS))
        pairs = jnp.where(usable, message, 0).astype(jnp.int32).reshape(self.compact_shape)
        return enforce(pairs, self.holds)

    def holds(self, pairs: Array) -> Array:
        """Checks cells and weights, int32 [..., 2, V]: bool [..., 1, 1]; True of zeros."""
        cells, weights = pairs[..., 0, :], pairs[..., 1, :]
        apart = jnp.all(cells[..., 1:] > cells[..., :-1], -1) & jnp.all(cells >= 0, -1)
        short = jnp.all(weights >= 0, -1) & squares_within(weights, self.limit)[..., 0]
        nothing = jnp.all(pairs == 0, (-2, -1))
        return ((apart & short) | nothing)[..., None, None]

    def added(self, total: Array, pairs: Array) -> Array:
        """Adds the votes of many messages to a sum; it is exact, in integers.

        Args:
            total: int32 [1, D].
            pairs: int32 [n, 2, V], each as `compact` returns it, or zeros.

        Returns:
            int32 [1, D].
        """
        chex.assert_shape(pairs, (None, *self.compact_shape))
        return total.at[0, pairs[:, 0].ravel()].add(pairs[:, 1].ravel(), mode="drop")

    def project(self, key: Array, message: Array) -> Array:
        """Returns the votes as a row, int32 [1, D]: what `added` adds for this message."""
        nobody = jnp.zeros((1, self.columns), jnp.int32)
        return self.added(nobody, self.compact(key, message)[None])

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of the longest message."""
        return self.limit

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity: all votes leave their cells for others."""
        return 2 * self.limit


def coarsest(entries: int) -> int:
    """Returns the fewest levels at which rounding still leaves a message its length.

    Args:
        entries: The most entries of a message that are not 0.
    """
    return math.ceil(2 * math.sqrt(entries))


def count_levels(sigma: float, units: int, most: int = MOST_LEVELS) -> int:
    """Returns the length, in integers, of the longest message whose noise can still be drawn.

    Args:
        sigma: Standard deviation of the noise over the sensitivity, sqrt 2 of the length; 0: none.
        units: The number of units whose sum has to stay in 32 bits.
        most: The most that is useful.

    Raises:
        UserError: The noise is larger than can be drawn, or the units are too many.
    """
    levels = min(most, MOST_LEVELS, (2**31 - 2**20) // units)
    levels = min(levels, int(MAX_SIGMA / (math.sqrt(2) * sigma))) if sigma else levels
    if levels < 1:
        raise UserError(f"noise of {sigma:g} times the sensitivity of counts over {units} units "
                        "cannot be drawn in 32 bits; use less noise, or fewer records")
    return levels
