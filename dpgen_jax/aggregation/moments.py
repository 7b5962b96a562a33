"""Counts, sums and second moments by blocks: what a mixture of Gaussians is estimated from.

A record answers with one vector, the number of its block (its class, or its cell), and, where they
are asked for, its shades. What is put on a grid, checked and sealed is that vector, a few hundred
integers; what is summed are polynomials of it with integer coefficients: its block's count, its
block's sum, and the products of its entries. They are made a chunk of records at a time and added
by block, so that an array of [records, blocks x length] is never in memory.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.aggregation.counts import squares_within
from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.aggregation.moment_sums import SHIFT, Sums, entries_rounded, nearest, with_rounding
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError

MOST_LEVELS, MOST_SHADES = 2**8 - 1, 2**12 - 1
"""of the grids; squares of both are below 2^24, so that float32 sums of squares are exact"""
MOST_PRODUCT = 2**30
"""of a factor and what it multiplies; with C <= sqrt 2 B, v_i v_j <= N / 2 for i < j, and half a
step for the rounding, all stays below 2^31"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moments:
    """The count, the sum and the products of one vector of norm at most 1, in one of many blocks.

    A message is [1, 1 + length + shades]: the number of the block, the vector, and the shares. A
    vector is shortened to norm 1, put on a grid of about 1 / levels by dither, and dropped where it
    is then longer than `levels`. With v the integers, e the one-hot of the block, A = `first` /
    2^SHIFT, B = `square` / 2^SHIFT and C = `product` / 2^SHIFT, the record adds `count` e, A e v
    and, as an upper triangle in its block or in one that all share, (B v_i^2, C v_i v_j), each
    entry rounded to the nearest integer. Shares, which have no signs, are put on a grid of 1 /
    tint.

    Attributes:
        blocks: Blocks of counts and sums.
        square_blocks: Blocks of products: 0, 1 or `blocks`.
        length: M, of the vector.
        shades: T, how many shares.
        levels: L, the longest v.
        first: The factor of the sums, in units of 2^-SHIFT.
        square: The factor of v_i^2, in units of 2^-SHIFT; not used where no products are asked for.
        count: g, the factor of the counts.
        tint: H, the longest vector of shares on their grid.
        columns: D of the sum, which has zeros at its end.
        limit: S, the declared squared sensitivity.
        relation: Replace-one or zero-out.

    Guarantee:
        Unit: a record. Relation: as the field says. Sensitivity: the squared distance of what two
        messages of one record add is at most `exact`, which is at most S. Let v, w be the integers
        of the two, p = v.v <= N, q = w.w <= N, r = v.w, all integers, N = L^2, b = B^2 if products
        are asked for, else 0. First without the rounding. Products: a distance of matrices v v^T
        and w w^T is p^2 + q^2 - 2 r^2, since <v v^T, w w^T> = (v.w)^2 >= 0; an off-diagonal entry
        stands for two, and as C^2 <= 2 B^2, the triangle moves by at most b (p^2 + q^2 - 2 r^2),
        whether blocks share it or not (in two blocks r^2 is missing, and p^2 + q^2 <= 2 N^2).
        Shares h, k >= 0 of norm at most H: |h - k|^2 <= |h|^2 + |k|^2 <= 2 H^2. Together,
        replace-one, is the largest, E, of
          one block:  2 H^2 + A^2 (p + q - 2 r) + b (p^2 + q^2 - 2 r^2), which grows in p and in q,
                      so p = q = N, and is largest at the whole r in [-N, N] next to -A^2 / (2 b);
          two blocks: 2 H^2 + A^2 (p + q) + b (p^2 + q^2) + 2 g^2, at p = q = N;
          a record that is dropped beside one that is not: at most half of "two blocks".
        Zero-out: E = H^2 + A^2 N + b N^2 + g^2. Then the rounding: it moves each of the m = M + M
        (M + 1) / 2 entries of sums and products by at most 1/2 (counts and shares are whole), so
        what one record adds by at most sqrt(m) / 2 in norm, and a distance of two by sqrt(m). So
        the sensitivity is sqrt(E) + sqrt(m), and for zero-out sqrt(E) + sqrt(m) / 2. The rounding
        is in integers, of the integers that were checked; no float is between.

    Source:
        The Gaussian mechanism on covariances: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss"
        (STOC 2014); joint bounds and integers are this library's.

    Raises:
        UserError: A field is outside its range, or the declared sensitivity is not proven.
    """

    blocks: int
    square_blocks: int
    length: int
    shades: int
    levels: int
    first: int
    square: int
    count: int
    tint: int
    columns: int
    limit: int
    relation: Relation = Relation.REPLACE_ONE

    rows: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0
    unit: ClassVar[Unit] = Unit.RECORD

    def __post_init__(self) -> None:
        if self.relation not in (Relation.REPLACE_ONE, Relation.ZERO_OUT):
            raise UserError(f"relation is '{self.relation}'; use replace-one or zero-out")
        if (min(self.blocks, self.length, self.levels, self.first) < 1 or self.square < min(
                self.square_blocks, 1) or min(self.shades, self.count, self.tint) < 0):
            raise UserError(f"{self} has a size below 1")
        if max(self.first * self.levels, self.square * self.levels**2) > MOST_PRODUCT:
            raise UserError(f"factors of {self.first} and {self.square} on a grid of {self.levels} "
                            "levels leave 32 bits")
        if self.levels > MOST_LEVELS or self.tint > MOST_SHADES:
            raise UserError(f"{self.levels} levels, {self.tint} for shades; at most {MOST_LEVELS} "
                            f"and {MOST_SHADES} are exact")
        if self.square_blocks not in (0, 1, self.blocks):
            raise UserError(f"{self.square_blocks} blocks of products beside {self.blocks}")
        if self.columns < self.used:
            raise UserError(f"{self.columns} columns; {self.used} are needed")
        if self.exact > self.limit:
            raise UserError(f"a squared sensitivity of {self.exact}, above the declared "
                            f"{self.limit}")
        object.__setattr__(self, "relation", Relation(self.relation))

    @property
    def used(self) -> int:
        """The columns that are no padding."""
        return (self.shades + self.blocks * (1 + self.length)
                + self.square_blocks * self.length * (self.length + 1) // 2)

    @property
    def product(self) -> int:
        """The factor of v_i v_j, i < j, in units of 2^-SHIFT: nearly sqrt 2 times `square`."""
        return math.isqrt(2 * self.square**2)

    @property
    def exact(self) -> int:
        """The squared L2 sensitivity, in integers; see Guarantee."""
        if self.relation == Relation.ZERO_OUT:
            return self.squared_norm
        n, a = self.levels**2, self.first**2
        b = self.square**2 if self.square_blocks else 0
        nearest = -(a // (2 * b)) if b else -n
        turned = max(-2 * a * r - 2 * b * r * r
                     for r in (max(-n, min(n, nearest + i)) for i in (-1, 0, 1)))
        far = 2 * a * n + 2 * b * n * n
        other = 2 * (self.count << SHIFT)**2 if self.blocks > 1 else 0
        moved = 2 * (self.tint << SHIFT)**2 + far + max(turned, other)
        return max(with_rounding(moved, 4 * self.rounded), self.squared_norm)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of what one record adds, at most, in integers."""
        b = self.square**2 if self.square_blocks else 0
        added = (((self.tint << SHIFT)**2 + (self.count << SHIFT)**2)
                 + self.first**2 * self.levels**2 + b * self.levels**4)
        return with_rounding(added, self.rounded)

    @property
    def rounded(self) -> int:
        """The entries that are rounded, m, of what one record adds."""
        return entries_rounded(self.length, self.square_blocks > 0)

    def squared_sensitivity(self) -> int:
        """Returns the declared squared L2 sensitivity, S."""
        return self.limit

    @property
    def max_abs(self) -> int:
        """The largest magnitude of an entry of what one record adds."""
        squares = self.square * self.levels**2 if self.square_blocks else 0
        return max(self.tint, self.count, nearest(self.first * self.levels), nearest(squares))

    @property
    def reach(self) -> float:
        """The length on the grid of a vector of norm 1: dither makes few longer than `levels`."""
        shorter = max(self.levels**2 - self.length / 4, self.levels**2 / 4)
        return max(math.sqrt(shorter) - 1.5, self.levels / 3)

    @property
    def tint_reach(self) -> float:
        """The same of shares."""
        return max(self.tint - 2.0, self.tint / 2)

    @property
    def compact_shape(self) -> tuple[int, int]:
        """(1, 2 + length + shades): 1 for a record that is there, its block, v, its shares."""
        return (1, 2 + self.length + self.shades)

    def compact(self, key: Array, message: Array) -> Array:
        """Puts the message of one record on its grid, or drops it.

        Args:
            key: Random key of the dither; it protects nothing.
            message: float32 [1, 1 + length + shades].

        Returns:
            int32 of `compact_shape`; zeros for a record that is dropped.
        """
        assert_message(message, 1 + self.length + self.shades)
        finite = jnp.all(jnp.isfinite(message))
        message = jnp.where(finite, message, 0)
        vector, shares = message[:, 1:1 + self.length], message[:, 1 + self.length:]
        # Scaled by the largest entry first: the square of a huge entry is not a float32.
        largest = jnp.maximum(jnp.max(jnp.abs(vector)), 1e-30)
        norm = largest * jnp.linalg.norm(vector / largest)
        total = jnp.linalg.norm(jnp.clip(shares, 0, 1e9))
        scaled = jnp.concatenate([vector * (self.reach / jnp.maximum(norm, 1)),
                                  jnp.clip(shares, 0, 1e9) * (self.tint_reach
                                                              / jnp.maximum(total, 1))], 1)
        low = jnp.floor(scaled)
        entries = low + (jax.random.uniform(key, scaled.shape) < scaled - low)
        block = jnp.clip(jnp.round(message[:, :1]), 0, self.blocks - 1)
        entries = jnp.concatenate([jnp.ones((1, 1)), block, entries], 1) * finite
        return enforce(entries.astype(jnp.int32), self.holds)

    def holds(self, entries: Array) -> Array:
        """Checks that a message is one of those that the proof is about, exactly.

        Args:
            entries: int32 of `compact_shape`.

        Returns:
            bool [1, 1].
        """
        there, block = entries[:, :1], entries[:, 1:2]
        v, shares = entries[:, 2:2 + self.length], entries[:, 2 + self.length:]
        nothing = jnp.all(entries == 0, 1, keepdims=True)
        return (((there == 1) | nothing) & (block >= 0) & (block < self.blocks)
                & squares_within(v, self.levels**2) & squares_within(shares, self.tint**2)
                & jnp.all(shares >= 0, 1, keepdims=True))

    def added(self, total: Array, messages: Array) -> Array:
        """Adds what the records of a chunk add, by block, to a sum; it is exact, in integers.

        Args:
            total: int32 [1, D].
            messages: int32 [n, *compact_shape], each as `compact` returns it, or zeros.

        Returns:
            int32 [1, D].
        """
        chex.assert_shape(messages, (None, *self.compact_shape))
        chex.assert_type(messages, jnp.int32)
        there, block = messages[:, 0, :1], messages[:, 0, 1]
        v, shares = messages[:, 0, 2:2 + self.length], messages[:, 0, 2 + self.length:]
        counted = jnp.concatenate([self.count * there, nearest(self.first * v)], 1)
        parts = [shares.sum(0), jax.ops.segment_sum(counted, block, self.blocks).reshape(-1)]
        if self.square_blocks:
            rows, columns, factors = self._triangle
            products = nearest(v[:, rows] * v[:, columns] * factors)
            parts.append(products.sum(0) if self.square_blocks == 1 else
                         jax.ops.segment_sum(products, block, self.blocks).reshape(-1))
        return total + jnp.pad(jnp.concatenate(parts), (0, self.columns - self.used))

    def project(self, key: Array, message: Array) -> Array:
        """Returns what the message of one record adds, int32 [1, D]: what `added` makes of it."""
        return self.added(jnp.zeros((1, self.columns), jnp.int32), self.compact(key, message)[None])

    def sums(self, released: Array) -> Sums:
        """Takes a noisy sum apart.

        Args:
            released: float32 [1, D], in integers of the grid.
        """
        chex.assert_shape(released, (1, self.columns))
        t, m = self.shades, self.length
        end = t + self.blocks * (1 + m)
        counted = released[0, t:end].reshape(self.blocks, 1 + m)
        second = jnp.zeros((self.square_blocks, m, m))
        if self.square_blocks:  # the triangle of a long vector would fill the memory
            flat = released[0, end:self.used].reshape(self.square_blocks, m * (m + 1) // 2)
            rows, columns, factors = self._triangle
            upper = second.at[:, rows, columns].set(flat / (factors * self.reach**2 / 2**SHIFT))
            second = upper + jnp.swapaxes(jnp.triu(upper, 1), 1, 2)
        return Sums(released[0, :t] / max(self.tint_reach, 1), counted[:, 0] / max(self.count, 1),
                    counted[:, 1:] / (self.first * self.reach / 2**SHIFT), second)

    def noise(self, sigma: float) -> tuple[float, float, float, float]:
        """Returns the standard deviations of the noise that `sums` leaves.

        Args:
            sigma: Of the noise over the square root of the declared sensitivity.

        Returns:
            Of a share, a count, an entry of a sum, and an entry of the products off the diagonal
            (of one on it: `product` / `square` as much).
        """
        grid = sigma * math.sqrt(self.limit)
        return (grid / max(self.tint_reach, 1), grid / max(self.count, 1),
                grid * 2**SHIFT / (self.first * self.reach),
                grid * 2**SHIFT / (max(self.product, 1) * self.reach**2))

    @property
    def _triangle(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and factors of an upper triangle."""
        rows, columns = np.triu_indices(self.length)
        return rows, columns, np.where(rows == columns, self.square, self.product).astype(np.int32)
