"""Count sketches of votes, as in FetchSGD (Rothchild et al., ICML 2020, arXiv 2007.07682), for
teachers that vote (Algorithm 7 of DataLens, arXiv 2103.11109).

There, noise is added after the largest entries were chosen, so the choice itself is not private.
Here it is added to the sum of the sketches, and whatever is read off it is post-processing.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.aggregation.topk_sign import TopKSign, magnitude_bits, select_top_k
from dpgen_jax.types import Array, UserError


def shuffle(key: Array, rows: int, columns: int) -> tuple[Array, Array]:
    """Public (order int32 [rows, D], signs float32 [rows, D]): what makes the hashes of
    `CountSketch` random, drawn anew for every fake."""
    k_order, k_signs = jax.random.split(key)
    order = jnp.broadcast_to(jnp.arange(columns, dtype=jnp.int32), (rows, columns))
    return (jax.random.permutation(k_order, order, axis=1, independent=True),
            jax.random.rademacher(k_signs, (rows, columns), jnp.float32))


def shuffled(shuffle: tuple[Array, Array], x: Array) -> Array:
    """x float32 [B, D] in that order and with those signs."""
    order, signs = shuffle
    return signs * jnp.take_along_axis(x, order, -1)


def unshuffled(shuffle: tuple[Array, Array], x: Array) -> Array:
    """The inverse of `shuffled`."""
    order, signs = shuffle
    return jnp.take_along_axis(signs * x, jnp.argsort(order, -1), -1)


@dataclasses.dataclass(frozen=True)
class CountSketch:
    """The linear map of D coordinates to `depth` rows of `width` sums, and the way back.

    Coordinate a width + b is added to place (b + i a) mod width of row i. Two coordinates meet in
    at most one row, so they disturb at most one of the estimates that the median is taken of; which
    ones meet, and with which signs, is made random by `shuffle`. Raises UserError where they would
    meet more often.
    """

    depth: int
    width: int
    columns: int

    def __post_init__(self):
        for name in ("depth", "width", "columns"):
            value = operator.index(getattr(self, name))
            object.__setattr__(self, name, value)
            if value < 1:
                raise UserError(f"the {name} of a sketch is {value}; at least 1 is needed")
        # They meet in rows i and j where (i - j)(a - a') is a multiple of the width.
        if (self.depth - 1) * (self.blocks - 1) >= self.width:
            raise UserError(f"a sketch of {self.depth} x {self.width} is too narrow for "
                            f"{self.columns} columns; use fewer rows or more columns")

    @property
    def blocks(self) -> int:
        """The most coordinates that meet in one place."""
        return -(-self.columns // self.width)

    @property
    def size(self) -> int:
        return self.depth * self.width

    def table(self, x: Array) -> Array:
        """[..., D] to the sums [..., depth * width], of the same type."""
        row, block, place = np.ogrid[:self.depth, :self.blocks, :self.width]
        members = block * self.width + (place - row * block) % self.width
        padding = [(0, 0)] * (x.ndim - 1) + [(0, self.blocks * self.width - self.columns)]
        sums = jnp.pad(x, padding)[..., members].sum(-2)
        return sums.reshape(*x.shape[:-1], self.size)

    def estimates(self, table: Array) -> Array:
        """[..., depth * width] to [..., D]: of each coordinate the median over the rows."""
        row, at = np.ogrid[:self.depth, :self.columns]
        block, place = at // self.width, at % self.width
        return jnp.median(table[..., row * self.width + (place + row * block) % self.width], -2)


@dataclasses.dataclass(frozen=True)
class SketchedSigns:
    """Each row of a message becomes top-k stochastic signs, and these a count sketch.

    votes: top-k signs, of `votes.rows` rows; sketch: of one row.

    Guarantee: for two messages of one unit, whatever they are and whatever the keys,
    ||project(v) - project(v')||^2 <= 4 squared_norm rows: the sketch of each row is an integer
    vector with a sum of squares of at most `squared_norm`, or zero. Unit: a record, through its
    unit's message; replace-one. The bound holds for any public shuffle of the message.
    Raises UserError where a sum of squares could leave 32 bits.
    """

    votes: TopKSign
    sketch: CountSketch

    unit: ClassVar[str] = "record"
    relation: ClassVar[str] = "replace-one"
    grid: ClassVar[float] = 1.0

    def __post_init__(self):
        if self._longest >= 2**31:
            raise UserError("the sketch of so many votes could leave 32-bit integers; use fewer "
                            "votes or more columns")

    @property
    def rows(self) -> int:
        return self.votes.rows

    @property
    def max_abs(self) -> int:
        return min(self.votes.top_k, self.sketch.blocks)

    @property
    def _longest(self) -> int:
        """No sketch has a larger sum of squares: in each row the votes have this at most."""
        return self.sketch.depth * self.votes.top_k * self.max_abs

    @property
    def squared_norm(self) -> int:
        """C_s squared, the most that the squares of a sketch may come to: a longer one is dropped.
        With signs at random, k votes come to r k, with a standard deviation of k sqrt(2 r / c) for
        r rows of c places (of the k^2 / 2 c pairs that meet in a row each adds 2 or -2); four of
        those leave hardly any."""
        k, depth = self.votes.top_k, self.sketch.depth
        usual = depth * k + 4 * k * math.sqrt(2 * depth / self.sketch.width)
        return min(self._longest, math.floor(usual))

    def project(self, key: Array, message: Array) -> Array:
        """float32 [B, D] to int32 [B, depth * width]; the key protects nothing."""
        table = self.sketch.table(self.votes.project(key, message))
        return enforce(
            table, lambda rows: jnp.sum(rows * rows, -1, keepdims=True) <= self.squared_norm)

    def squared_sensitivity(self) -> int:
        """Of the whole message, replace-one: every sketch may turn to its opposite."""
        return 4 * self.squared_norm * self.rows

    def unsketch(self, released: Array) -> Array:
        """float32 [B, depth * width] to [B, D]: the k largest estimates, and zeros."""
        found = self.sketch.estimates(released)
        return jnp.where(select_top_k(magnitude_bits(found), self.votes.top_k), found, 0)
