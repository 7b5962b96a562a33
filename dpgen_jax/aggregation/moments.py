"""Messages without negative entries, and counts, sums and second moments by blocks.

Replacing a message without negative entries changes the sum by sqrt 2 of its norm, not by 2. Proof:
for integer vectors u, v >= 0 with |u|^2, |v|^2 <= N, |u - v|^2 = |u|^2 + |v|^2 - 2 u.v <= 2 N, as
u.v >= 0; messages with signs may change it by 4 N. `CellVotes` has the cells of tables that a
record belongs to.

With `Moments` a record answers with one vector, the number of its block (its class, or its cell),
and optionally its shades. Only this message, a few hundred integers, is rounded to a grid, checked
and sealed. The sums are over polynomials of it with integer coefficients: the count of its block,
the sum of its block, and the products of its entries. They are computed for a chunk of records at a
time and added by block, so an array of [records, blocks x length] is never in memory.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.bound import assert_message, enforce, require_whole, squares_within
from dpgen_jax.aggregation.noise import MAX_SIGMA
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError

MOST_COUNT_LEVELS = 2**12 - 1
"""Levels of the longest message: its square is below 2^24, so float32 sums of squares are exact."""
MOST_CELLS = 2**24
"""Numbers of cells below this are exact in a float32 message."""


@dataclasses.dataclass(frozen=True)
class CellVotes:
    """Integer votes for cells: a record's weight in each counted table.

    A message has the number of a cell for each table, followed by their weights. A cell at
    `columns` or above means no cell. The sum is computed from the pairs (cell, weight): a dense row
    for each record is never in memory.

    Attributes:
        votes: V, the largest number of cells in one message.
        columns: D, the cells of all tables together.
        limit: The largest sum of squared weights of one message.

    Guarantee:
        Unit: a record, where each record is a unit. Relation: replace-one. Sensitivity: the
        contribution is sum_t w_t e(c_t) for integers w_t >= 0 with sum_t w_t^2 <= limit and cells
        c_t that strictly increase, so that no two are the same: an integer row without negative
        entries and with a sum of squares of at most limit, or zero. For two of them |u - v|^2 <= 2
        limit, as u.v >= 0. A record that votes with weight 1 in T tables changes the sum by at most
        2 T in squared norm, if its cell changes in all of them: nothing is rounded.

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
        require_whole(self, votes=1, columns=1, limit=1)
        if self.limit > MOST_COUNT_LEVELS**2 or self.columns + self.votes >= MOST_CELLS:
            raise UserError(f"{self.columns} cells, {self.votes} votes and squared weights of "
                            f"{self.limit}; at most {MOST_CELLS - 1} cells and votes together and "
                            f"squared weights of {MOST_COUNT_LEVELS**2} are possible")

    @property
    def max_abs(self) -> int:
        """The largest weight of a vote."""
        return math.isqrt(self.limit)

    @property
    def compact_shape(self) -> tuple[int, int]:
        """(2, V): cells, and their weights."""
        return (2, self.votes)

    def compact(self, key: Array, message: Array) -> Array:
        """Returns the cells and weights of a message, or weights of 0 if they break the bound.

        Args:
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
        """Checks cells and weights, int32 [..., 2, V]: bool [..., 1, 1]; True for zeros."""
        cells, weights = pairs[..., 0, :], pairs[..., 1, :]
        apart = jnp.all(cells[..., 1:] > cells[..., :-1], -1) & jnp.all(cells >= 0, -1)
        short = jnp.all(weights >= 0, -1) & squares_within(weights, self.limit)[..., 0]
        nothing = jnp.all(pairs == 0, (-2, -1))
        return ((apart & short) | nothing)[..., None, None]

    def added(self, total: Array, pairs: Array) -> Array:
        """Adds the votes of many messages to a sum, exactly, in integers: int32 [1, D].

        Args:
            total: int32 [1, D].
            pairs: int32 [n, 2, V], each from `compact`, or zeros.
        """
        chex.assert_shape(pairs, (None, *self.compact_shape))
        return total.at[0, pairs[:, 0].ravel()].add(pairs[:, 1].ravel(), mode="drop")

    def project(self, key: Array, message: Array) -> Array:
        """Returns the votes as a row, int32 [1, D], as `added` adds them."""
        nobody = jnp.zeros((1, self.columns), jnp.int32)
        return self.added(nobody, self.compact(key, message)[None])

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of the longest message."""
        return self.limit

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity: all votes move to other cells."""
        return 2 * self.limit


def count_levels(sigma: float, units: int, most: int = MOST_COUNT_LEVELS) -> int:
    """Returns the length, in integers, of the longest message whose noise can still be drawn.

    Args:
        sigma: Standard deviation of the noise over the sensitivity, sqrt 2 of the length; 0: none.
        units: The number of units whose sum must fit in 32 bits.
        most: The largest useful length.

    Raises:
        UserError: The noise is larger than can be drawn, or there are too many units.
    """
    levels = min(most, MOST_COUNT_LEVELS, (2**31 - 2**20) // units)
    levels = min(levels, int(MAX_SIGMA / (math.sqrt(2) * sigma))) if sigma else levels
    if levels < 1:
        raise UserError(f"noise of {sigma:g} times the sensitivity of counts over {units} units "
                        "cannot be drawn in 32 bits; use less noise, or fewer records")
    return levels


Integers = TypeVar("Integers", int, Array)
SHIFT = 12
"""The factors of sums and of products are multiples of 2^-12: results are rounded to the nearest
integer, in integers, before they are summed.
"""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sums:
    """The parts of a noisy sum over records, in units of the records' vectors.

    Attributes:
        shades: float32 [T], sums of shares.
        count: float32 [blocks].
        first: float32 [blocks, M].
        second: float32 [square_blocks, M, M], symmetric; [0, M, M] without products.
    """

    shades: Array
    count: Array
    first: Array
    second: Array


def entries_rounded(length: int, products: bool) -> int:
    """Returns how many entries of a record's contribution are rounded.

    Args:
        products: Whether products are released.
    """
    return length + products * (length * (length + 1) // 2)


def nearest(scaled: Integers) -> Integers:
    """Returns the integers nearest to numbers in units of 2^-SHIFT, exactly.

    Args:
        scaled: An int, or int32 of any shape, below 2^31 - 2^(SHIFT - 1).
    """
    return (scaled + (1 << SHIFT - 1)) >> SHIFT


def with_rounding(squared: int, quarters: int) -> int:
    """Returns an upper bound of (sqrt(squared) / 2^SHIFT + sqrt(quarters) / 2)^2, in integers.

    Args:
        squared: A squared norm before the rounding, in units of 4^-SHIFT.
        quarters: The largest squared norm of the rounding error, in quarters.
    """
    whole = -(-squared >> 2 * SHIFT)
    return whole + -(-quarters // 4) + math.isqrt(max(whole * quarters - 1, 0)) + 1


MOST_LEVELS, MOST_SHADES = 2**8 - 1, 2**12 - 1
"""Levels of the two grids; squares are below 2^24, so float32 sums of squares are exact."""
MOST_PRODUCT = 2**30
"""The largest product with a factor: with C <= sqrt 2 B, v_i v_j <= N / 2 for i < j, and half a
step for the rounding, all stays below 2^31.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moments:
    """The count, sum and products of one vector of norm at most 1, in one of many blocks.

    A message is [1, 1 + length + shades]: the number of the block, the vector, and the shares. A
    vector is shortened to norm 1, rounded to a grid of about 1 / levels by dither, and dropped if
    it is then longer than `levels`. With v the integers, e the one-hot of the block, A = `first` /
    2^SHIFT, B = `square` / 2^SHIFT and C = `product` / 2^SHIFT, the record adds `count` e, A e v
    and, as an upper triangle in its block or in one that all share, (B v_i^2, C v_i v_j), each
    entry rounded to the nearest integer. Shares, which are not negative, are rounded to a grid of 1
    / tint.

    Attributes:
        square_blocks: Blocks of products: 0, 1 or `blocks`.
        length: M, of the vector.
        shades: T, how many shares.
        levels: L, the longest v.
        first: The factor of the sums, in units of 2^-SHIFT.
        square: The factor of v_i^2, in units of 2^-SHIFT; not used if no products are released.
        count: g, the factor of the counts.
        tint: H, the longest vector of shares on their grid.
        columns: D of the sum, which is padded with zeros.
        limit: S, the declared squared sensitivity.
        relation: Replace-one or zero-out.

    Guarantee:
        Unit: a record. Relation: as the field says. Sensitivity: the squared distance of the
        contributions of two messages of one record is at most `exact`, which is at most S. Let v, w
        be the integers of the two, p = v.v <= N, q = w.w <= N, r = v.w, all integers, N = L^2, b =
        B^2 if products are released, else 0. First without the rounding. Products: the squared
        distance of matrices v v^T and w w^T is p^2 + q^2 - 2 r^2, since <v v^T, w w^T> = (v.w)^2 >=
        0; an off-diagonal entry represents two, and as C^2 <= 2 B^2, the triangle changes by at
        most b (p^2 + q^2 - 2 r^2), whether blocks share it or not (in two blocks r^2 is missing,
        and p^2 + q^2 <= 2 N^2). Shares h, k >= 0 of norm at most H: |h - k|^2 <= |h|^2 + |k|^2 <= 2
        H^2. Together, for replace-one, the squared distance is at most E, the largest of
          one block:  2 H^2 + A^2 (p + q - 2 r) + b (p^2 + q^2 - 2 r^2), which grows in p and in q,
                      so p = q = N, and is largest at the whole r in [-N, N] next to -A^2 / (2 b);
          two blocks: 2 H^2 + A^2 (p + q) + b (p^2 + q^2) + 2 g^2, at p = q = N;
          a record that is dropped against one that is not: at most half of "two blocks".
        Zero-out: E = H^2 + A^2 N + b N^2 + g^2. Then the rounding: it changes each of the m = M + M
        (M + 1) / 2 entries of sums and products by at most 1/2 (counts and shares are whole), so a
        contribution by at most sqrt(m) / 2 in norm, and the distance of two by sqrt(m). So the
        sensitivity is sqrt(E) + sqrt(m), and for zero-out sqrt(E) + sqrt(m) / 2. The rounding is
        done in integers, on the integers that were checked, without floats.

    Source:
        The Gaussian mechanism on covariances: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss"
        (STOC 2014); joint bounds and integers are from this library.

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
            raise UserError(f"{self.square_blocks} blocks of products for {self.blocks} blocks")
        if self.columns < self.used:
            raise UserError(f"{self.columns} columns; {self.used} are needed")
        if self.exact > self.limit:
            raise UserError(f"a squared sensitivity of {self.exact}, above the declared "
                            f"{self.limit}")
        object.__setattr__(self, "relation", Relation(self.relation))

    @property
    def used(self) -> int:
        """The columns without padding."""
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
        """Upper bound on the squared L2 norm of a record's contribution, in integers."""
        b = self.square**2 if self.square_blocks else 0
        added = (((self.tint << SHIFT)**2 + (self.count << SHIFT)**2)
                 + self.first**2 * self.levels**2 + b * self.levels**4)
        return with_rounding(added, self.rounded)

    @property
    def rounded(self) -> int:
        """m, the number of rounded entries of a record's contribution."""
        return entries_rounded(self.length, self.square_blocks > 0)

    def squared_sensitivity(self) -> int:
        """Returns the declared squared L2 sensitivity, S."""
        return self.limit

    @property
    def max_abs(self) -> int:
        """The largest magnitude of an entry of a record's contribution."""
        squares = self.square * self.levels**2 if self.square_blocks else 0
        return max(self.tint, self.count, nearest(self.first * self.levels), nearest(squares))

    @property
    def reach(self) -> float:
        """The length on the grid of a vector of norm 1; dither makes few longer than `levels`."""
        shorter = max(self.levels**2 - self.length / 4, self.levels**2 / 4)
        return max(math.sqrt(shorter) - 1.5, self.levels / 3)

    @property
    def tint_reach(self) -> float:
        """The same for shares."""
        return max(self.tint - 2.0, self.tint / 2)

    @property
    def compact_shape(self) -> tuple[int, int]:
        """(1, 2 + length + shades): 1 for a present record, its block, v, its shares."""
        return (1, 2 + self.length + self.shades)

    def compact(self, key: Array, message: Array) -> Array:
        """Rounds the message of one record to its grid, or drops it.

        Args:
            key: Random key of the dither; privacy does not depend on it.
            message: float32 [1, 1 + length + shades].

        Returns:
            int32 of `compact_shape`; zeros if the record is dropped.
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
        """Checks exactly that a message satisfies the conditions of the proof: bool [1, 1].

        Args:
            entries: int32 of `compact_shape`.
        """
        there, block = entries[:, :1], entries[:, 1:2]
        v, shares = entries[:, 2:2 + self.length], entries[:, 2 + self.length:]
        nothing = jnp.all(entries == 0, 1, keepdims=True)
        return (((there == 1) | nothing) & (block >= 0) & (block < self.blocks)
                & squares_within(v, self.levels**2) & squares_within(shares, self.tint**2)
                & jnp.all(shares >= 0, 1, keepdims=True))

    def added(self, total: Array, messages: Array) -> Array:
        """Adds the contributions of a chunk of records to a sum, by block, exactly, in integers.

        Args:
            total: int32 [1, D].
            messages: int32 [n, *compact_shape], each from `compact`, or zeros.

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
        """Returns the contribution of one message, int32 [1, D], as `added` computes it."""
        return self.added(jnp.zeros((1, self.columns), jnp.int32), self.compact(key, message)[None])

    def sums(self, released: Array) -> Sums:
        """Splits a noisy sum into its parts.

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
        """Returns the standard deviations of the noise in the result of `sums`.

        Args:
            sigma: Standard deviation of the noise over the square root of the declared sensitivity.

        Returns:
            For a share, a count, an entry of a sum, and an off-diagonal entry of the products (on
            the diagonal it is `product` / `square` times as much).
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


MOST_ROUNDING = 0.5
"""The largest part of a sensitivity that rounding may take."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseShares:
    """The parts of one phase's message, and their shares of its squared norm.

    Attributes:
        blocks: Blocks of counts and sums.
        square_blocks: Blocks of products: 0, 1 or `blocks`.
        length: M, of the vector.
        shades: T, how many shares of intensities.
        first: Share of the vector.
        second: Share of the products.
        count: Smallest share of the count.
        tint: Share of the shades.
        fields: The fields of the configuration that shorten messages, for advice.
    """

    blocks: int
    square_blocks: int
    length: int
    first: float
    second: float = 0.0
    count: float = 0.0
    shades: int = 0
    tint: float = 0.0
    fields: tuple[str, ...] = ("frequencies", "dimensions")

    def in_real_numbers(self, relation: Relation) -> float:
        """Returns `Moments.exact` in real numbers, with the shares as squared norms."""
        if relation == Relation.ZERO_OUT:
            return self.first + self.second + self.count + self.tint
        far = 2 * self.first + 2 * self.second
        turned = (2 * self.first - 2 * self.second if self.first > 2 * self.second
                  else self.first**2 / (2 * self.second))
        return 2 * self.tint + far + max(turned, 2 * self.count)

    def on_grid(self, limit: int, relation: Relation) -> tuple[int, int, int, int]:
        """Returns first, square, count and tint for a squared sensitivity of at most `limit`.

        Args:
            limit: The squared sensitivity, in integers, including the part for rounding.
        """
        zero_out = relation == Relation.ZERO_OUT
        rounding = math.sqrt(self.rounded) / (2 if zero_out else 1)
        left = int((math.sqrt(limit) - rounding)**2) - 2
        size = math.sqrt(max(left, 0) / self.in_real_numbers(relation))
        first = int(2**SHIFT * size * math.sqrt(self.first) / MOST_LEVELS)
        square = int(2**SHIFT * size * math.sqrt(self.second) / MOST_LEVELS**2)
        tint = min(int(size * math.sqrt(self.tint)), MOST_SHADES)
        # The count gets what rounding down left over.
        moving = (first * MOST_LEVELS)**2 + square**2 * MOST_LEVELS**4
        left = left // (1 if zero_out else 2) - -(-moving >> 2 * SHIFT) - tint**2
        return first, square, max(int(size * math.sqrt(self.count)), math.isqrt(max(left, 0))), tint

    @property
    def rounded(self) -> int:
        """The number of rounded entries of a message."""
        return entries_rounded(self.length, self.square_blocks > 0)


def alike(phases: tuple[PhaseShares, ...], sigma: float, records: int, relation: Relation
          ) -> tuple[Moments, ...]:
    """Returns the bound of each phase, with the same declared sensitivity and number of columns.

    So a round of any phase is the same event. The integers are as large as the noise table and
    32-bit sums allow.

    Args:
        phases: The parts of the message in each phase.
        sigma: The noise of a round over the square root of the squared sensitivity; 0 for none.

    Raises:
        UserError: Messages are too long for integers that can be summed and noised.
    """
    relation = Relation(relation)
    largest = min((2**31 - 2**20) // records, 2**18)
    # A count may take all that is left: its square is the sensitivity, or half of it.
    limit = int(min(largest, MAX_SIGMA / sigma if sigma else largest))**2
    columns = max(_columns(phase) for phase in phases)
    bounds = []
    for phase in phases:
        too_long = math.isqrt(phase.rounded) > MOST_ROUNDING * math.isqrt(limit)
        first, square, count, tint = phase.on_grid(limit, relation)
        if too_long or first < 1 or square < min(phase.square_blocks, 1):
            raise UserError(f"sigma is {sigma:g} for {records:,} records: the integers that can be "
                            f"summed and noised are too small for vectors of {phase.length} "
                            f"entries; raise {option('epsilon')}, or lower or "
                            f"leave out {' or '.join(map(option, phase.fields))}")
        bounds.append(Moments(
            blocks=phase.blocks, square_blocks=phase.square_blocks, length=phase.length,
            shades=phase.shades, levels=MOST_LEVELS, first=first, square=square, count=count,
            tint=tint, columns=columns, limit=limit, relation=relation))
    return tuple(bounds)


def _columns(phase: PhaseShares) -> int:
    """The number of integers in a phase's sum."""
    triangle = phase.length * (phase.length + 1) // 2
    return phase.shades + phase.blocks * (1 + phase.length) + phase.square_blocks * triangle
