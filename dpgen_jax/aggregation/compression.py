"""Compressed gradients: rotation and rounding to levels (D2P-Fed), count sketches (FetchSGD).

D2P-Fed (Wang, Jia and Song 2020, arXiv 2006.13039) rotates gradients by the randomised Hadamard
transform and rounds them to k levels without bias (`KLevels`). The transform is x -> H S x, with S
random signs and H the orthonormal Hadamard matrix. For any x, its length is spread over all
coordinates like that of a normal vector (Suresh et al., ICML 2017), so no entry needs a wide range.
The signs come from a public key and depend on nothing private: rotating costs no privacy, and
anyone may rotate the release back (post-processing). Rows are padded with zeros to a power of two,
which is public. Algorithms 5 and 6 of DataLens (arXiv 2103.11109) have the same messages, but their
levels are biased and their rows are not rotated back.

Count sketches are those of FetchSGD (Rothchild et al., ICML 2020, arXiv 2007.07682), here of the
votes of teachers (Algorithm 7 of DataLens). There, noise is added after the largest entries were
chosen, so the choice itself is not private. Here it is added to the sum of the sketches, and
everything computed from that sum is post-processing.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.bound import assert_message, enforce, require_whole
from dpgen_jax.aggregation.topagg import TopKSign, magnitude_bits, select_top_k
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


def padded_width(columns: int) -> int:
    """Returns the number of coordinates of a rotated row: the next power of two."""
    return 1 << (columns - 1).bit_length()


def random_signs(key: Array, rows: int, columns: int) -> Array:
    """Draws separate signs S for each row: float32 [B, padded_width(D)] of -1 and 1."""
    return jax.random.rademacher(key, (rows, padded_width(columns)), jnp.float32)


def rotate(signs: Array, x: Array) -> Array:
    """Returns H S x.

    From `signs` float32 [B, padded_width(D)] and `x` float32 [..., B, D] to float32 [..., B,
    padded_width(D)].
    """
    chex.assert_rank(signs, 2)
    chex.assert_axis_dimension(signs, -1, padded_width(x.shape[-1]))
    # Zeros keep the length of a row, on which the clip and the sensitivity depend.
    padding = [(0, 0)] * (x.ndim - 1) + [(0, signs.shape[-1] - x.shape[-1])]
    return hadamard_transform(signs * jnp.pad(x, padding))


def unrotate(signs: Array, rotated: Array, columns: int) -> Array:
    """Returns the inverse of `rotate`, S H.

    From `signs` float32 [B, padded_width(D)] and `rotated` float32 [..., B, padded_width(D)] to
    float32 [..., B, D].
    """
    chex.assert_axis_dimension(rotated, -1, padded_width(columns))
    return (signs * hadamard_transform(rotated))[..., :columns]


def hadamard_transform(x: Array) -> Array:
    """Returns H x: orthonormal, symmetric, its own inverse.

    Args:
        x: float32 [..., n], n a power of two.

    Returns:
        float32 [..., n].
    """
    chex.assert_type(x, jnp.float32)
    n = x.shape[-1]
    spread = x
    # Sums and differences of neighbours; writing them in two halves rotates the bits of the index
    # by one, so that after log2(n) passes every bit has had its turn and is back in place.
    for _ in range(n.bit_length() - 1):
        first, second = spread[..., ::2], spread[..., 1::2]
        spread = jnp.concatenate([first + second, first - second], -1)
    return spread / jnp.sqrt(jnp.float32(n))


@dataclasses.dataclass(frozen=True)
class KLevels:
    """Scales each row of a message to one length and rounds it to k levels.

    The sum of such messages is released with a rounded Gaussian, where D2P-Fed draws a discrete
    one. Rounding an ideal Gaussian commutes with adding an integer, so exact Gaussian accounting
    holds; for the discrete Gaussian only a zCDP bound is known, which allows fewer rounds.

    A row is scaled until its length is `reach` or its largest entry is k - 1, whichever comes
    first, so no entry is truncated. An entry becomes one of the two adjacent levels, with the
    probability that makes the mean exact, so the mean message has the direction of the row. Rotated
    rows (`rotate`) are hardly ever limited by their largest entry.

    Attributes:
        levels: k, the integers -(k - 1), -(k - 3), ..., k - 1, so log2(k) bits for an entry.
        columns: D.
        rows: B.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: for two
        messages of one unit, whatever they are and whatever the keys, ||project(v) -
        project(v')||^2 <= 4 squared_row_norm rows: each row is an integer vector with a sum of
        squares of at most `squared_row_norm`, checked in integers, or zero.

    Source:
        D2P-Fed (Wang, Jia and Song 2020, arXiv 2006.13039), k-level quantisation.

    Raises:
        UserError: A field is outside its range.
    """

    levels: int
    columns: int
    rows: int

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    def __post_init__(self) -> None:
        require_whole(self, levels=2, columns=1, rows=1)
        if self.max_abs**2 * self.columns >= 2**31:
            raise UserError(f"{self.levels} levels are too many for {self.columns} columns; use "
                            f"at most {math.isqrt((2**31 - 1) // self.columns) + 1}")

    @property
    def max_abs(self) -> int:
        """The largest magnitude of a level."""
        return self.levels - 1

    @property
    def reach(self) -> float:
        """The length of a row before rounding.

        The largest entry of a normal vector of this length is about k - 1.
        """
        largest = math.sqrt(max(1.0, 2 * math.log(self.columns)))
        return self.max_abs * math.sqrt(self.columns) / largest

    @property
    def squared_row_norm(self) -> int:
        """The largest sum of squares of a row: a longer row is dropped.

        Rounding adds at most D to the mean square of the length and has a standard deviation of one
        in the length, so four of those leave hardly any row out; for few levels it is the sum of
        squares of a row whose entries are all at the end.
        """
        rounded = math.sqrt(self.reach**2 + self.columns) + 4
        return min(self.max_abs**2 * self.columns, math.floor(rounded**2))

    @property
    def squared_norm(self) -> int:
        """The largest squared L2 norm of a message of B rows."""
        return self.squared_row_norm * self.rows

    @property
    def grid(self) -> float:
        """The value of one step of the integers: rows are released as if they had length one."""
        return 1 / self.reach

    def project(self, key: Array, message: Array) -> Array:
        """Scales and rounds the rows of a message; a row that is zero or not finite becomes 0.

        Args:
            key: Random key for rounding; it protects nothing.
            message: float32 [B, D].

        Returns:
            int32 [B, D].
        """
        assert_message(message, self.columns)
        largest = jnp.max(jnp.abs(message), -1, keepdims=True)
        usable = jnp.isfinite(largest) & (largest >= jnp.finfo(jnp.float32).tiny)
        # Relative to the largest entry, since the square of a tiny or huge entry is not a float32.
        unit = jnp.where(usable, message / jnp.where(usable, largest, 1), 0)
        norm = jnp.maximum(jnp.linalg.norm(unit, axis=-1, keepdims=True), 1)
        # The level as a real number from 0 to k - 1; rounding is by chance, so its mean is exact.
        place = (unit * jnp.minimum(self.reach / norm, self.max_abs) + self.max_abs) / 2
        low = jnp.clip(jnp.floor(place), 0, self.levels - 2)
        level = low + (jax.random.uniform(key, message.shape) < place - low)
        entries = jnp.where(usable, 2 * level.astype(jnp.int32) - self.max_abs, 0)
        # The proof is in integers: whatever the float operations above gave, a longer row is
        # dropped here.
        entries = jnp.clip(entries, -self.max_abs, self.max_abs)
        return enforce(
            entries, lambda rows: jnp.sum(rows * rows, -1, keepdims=True) <= self.squared_row_norm)

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: every row may turn to its opposite."""
        return 4 * self.squared_norm


def shuffle(key: Array, rows: int, columns: int) -> tuple[Array, Array]:
    """Makes a public shuffle, which makes the hashes of `CountSketch` random, anew for every fake.

    Returns:
        order int32 [B, D], a permutation in each row, and signs float32 [B, D] of -1 and 1.
    """
    k_order, k_signs = jax.random.split(key)
    order = jnp.broadcast_to(jnp.arange(columns, dtype=jnp.int32), (rows, columns))
    return (jax.random.permutation(k_order, order, axis=1, independent=True),
            jax.random.rademacher(k_signs, (rows, columns), jnp.float32))


def shuffled(shuffle: tuple[Array, Array], x: Array) -> Array:
    """Returns rows in the order and with the signs of a shuffle: float32 [B, D].

    Args:
        shuffle: As `shuffle` returns it.
        x: float32 [B, D].
    """
    order, signs = shuffle
    chex.assert_equal_shape([order, signs, x])
    return signs * jnp.take_along_axis(x, order, -1)


def unshuffled(shuffle: tuple[Array, Array], x: Array) -> Array:
    """Returns the inverse of `shuffled`: float32 [B, D].

    Args:
        shuffle: As `shuffle` returns it.
        x: float32 [B, D].
    """
    order, signs = shuffle
    chex.assert_equal_shape([order, signs, x])
    return jnp.take_along_axis(signs * x, jnp.argsort(order, -1), -1)


@dataclasses.dataclass(frozen=True)
class CountSketch:
    """The linear map of D coordinates to `depth` rows of `width` sums, and the way back.

    Coordinate a width + b is added to place (b + i a) mod width of row i. Two coordinates meet in
    at most one row, so they disturb at most one of the estimates that the median is taken of; which
    ones meet, and with which signs, is made random by `shuffle`.

    Attributes:
        depth: Rows of the sketch.
        width: Places of a row.

    Source:
        Charikar, Chen and Farach-Colton, "Finding Frequent Items in Data Streams" (ICALP 2002); the
        hashes are this library's.

    Raises:
        UserError: A field is outside its range, or two coordinates would meet more than once.
    """

    depth: int
    width: int
    columns: int

    def __post_init__(self) -> None:
        require_whole(self, depth=1, width=1, columns=1)
        # They collide in rows i and j if (i - j)(a - a') is a multiple of the width.
        if (self.depth - 1) * (self.blocks - 1) >= self.width:
            raise UserError(f"a sketch of {self.depth} x {self.width} is too narrow for "
                            f"{self.columns} columns; use fewer rows or more columns")

    @property
    def blocks(self) -> int:
        """The most coordinates that collide in one place."""
        return -(-self.columns // self.width)

    @property
    def size(self) -> int:
        """The number of sums."""
        return self.depth * self.width

    def table(self, x: Array) -> Array:
        """Sketches rows of any type, from [..., D] to sums [..., depth * width] of that type."""
        chex.assert_axis_dimension(x, -1, self.columns)
        # members[i, j, b] is the coordinate of block j that is added to place b of row i.
        row, block, place = np.ogrid[:self.depth, :self.blocks, :self.width]
        members = block * self.width + (place - row * block) % self.width
        padding = [(0, 0)] * (x.ndim - 1) + [(0, self.blocks * self.width - self.columns)]
        sums = jnp.pad(x, padding)[..., members].sum(-2)
        return sums.reshape(*x.shape[:-1], self.size)

    def estimates(self, table: Array) -> Array:
        """Estimates each coordinate by the median over the rows of the sketch.

        From `table` [..., depth * width] to [..., D].
        """
        chex.assert_axis_dimension(table, -1, self.size)
        row, at = np.ogrid[:self.depth, :self.columns]
        block, place = at // self.width, at % self.width
        return jnp.median(table[..., row * self.width + (place + row * block) % self.width], -2)


@dataclasses.dataclass(frozen=True)
class SketchedSigns:
    """Converts each row of a message to top-k stochastic signs, and these to a count sketch.

    Attributes:
        votes: Top-k signs, of `votes.rows` rows.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: for two
        messages of one unit, whatever they are and whatever the keys, ||project(v) -
        project(v')||^2 <= 4 squared_row_norm rows: the sketch of each row is an integer vector with
        a sum of squares of at most `squared_row_norm`, or zero. The bound holds for any public
        shuffle of the message.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 7, with the noise on the sum of the sketches.

    Raises:
        UserError: A sum of squares could leave 32 bits.
    """

    votes: TopKSign
    sketch: CountSketch

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if self._longest >= 2**31:
            raise UserError("the sketch of so many votes could leave 32-bit integers; use fewer "
                            "votes or more columns")

    @property
    def rows(self) -> int:
        """B."""
        return self.votes.rows

    @property
    def max_abs(self) -> int:
        """The largest magnitude of a sum of the sketch."""
        return min(self.votes.top_k, self.sketch.blocks)

    @property
    def _longest(self) -> int:
        """The largest sum of squares of the sketch of a row, by its number of votes."""
        return self.sketch.depth * self.votes.top_k * self.max_abs

    @property
    def squared_row_norm(self) -> int:
        """The largest allowed sum of squares of the sketch of a row: a longer one is dropped.

        With random signs, k votes have a sum of squares of mean r k and standard deviation k sqrt(2
        r / c), for r rows of c places (each of the k^2 / 2 c colliding pairs in a row adds 2 or
        -2). A limit four standard deviations above the mean drops hardly any.
        """
        k, depth = self.votes.top_k, self.sketch.depth
        usual = depth * k + 4 * k * math.sqrt(2 * depth / self.sketch.width)
        return min(self._longest, math.floor(usual))

    @property
    def squared_norm(self) -> int:
        """The largest squared L2 norm of a message of B rows."""
        return self.squared_row_norm * self.rows

    def project(self, key: Array, message: Array) -> Array:
        """Converts the message of one unit to sketches of its votes: int32 [B, depth * width].

        Args:
            key: Random key for the signs; privacy does not depend on it.
            message: float32 [B, D].
        """
        assert_message(message, self.sketch.columns)
        table = self.sketch.table(self.votes.project(key, message))
        return enforce(
            table, lambda rows: jnp.sum(rows * rows, -1, keepdims=True) <= self.squared_row_norm)

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: every sketch may change sign."""
        return 4 * self.squared_norm

    def unsketch(self, released: Array) -> Array:
        """Returns the k largest estimates of a released sketch, and zeros elsewhere.

        From `released` float32 [B, depth * width] to float32 [B, D].
        """
        estimates = self.sketch.estimates(released)
        largest = select_top_k(magnitude_bits(estimates), self.votes.top_k)
        return jnp.where(largest, estimates, 0)
