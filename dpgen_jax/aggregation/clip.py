"""Clipped gradients on an integer grid, for noisy sums of real-valued messages."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.bound import assert_message, enforce, require_whole, squares_within
from dpgen_jax.aggregation.noise import MAX_SIGMA
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError

MOST_COLUMNS = 2**16
"""The most values in a row for which the sum of squares is exact."""


@dataclasses.dataclass(frozen=True)
class RowL2:
    """Clips each row of a message to L2 norm `clip` and rounds it to a grid of clip / levels.

    Rounding uses dither: an entry becomes one of the two adjacent grid points, with the probability
    that makes the mean exact; rounding to nearest would set small entries to 0. Rows are first
    scaled to a norm slightly below `clip`, so rounding hardly ever pushes one over the bound, where
    it would be dropped.

    Attributes:
        clip: The largest L2 norm of a row, in units of the message.
        columns: D.
        rows: B.
        levels: Steps of the grid from 0 to clip.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: for two
        messages of one unit, whatever they are and whatever the keys, ||project(v) -
        project(v')||^2 <= 4 levels^2 rows, in grid units: each row is an integer vector with a sum
        of squares of at most levels^2, or zero.

    Source:
        Clipping: Abadi et al., "Deep Learning with Differential Privacy" (arXiv 1607.00133),
        Algorithm 1; the grid and its check in integers are from this library.

    Raises:
        UserError: A field is outside its range.
    """

    clip: float
    columns: int
    rows: int
    levels: int

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    def __post_init__(self) -> None:
        require_whole(self, columns=1, rows=1, levels=1)
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0")
        if self.levels < coarsest(self.columns):
            raise UserError(f"{self.levels} levels are too coarse for {self.columns} columns; use "
                            f"at least {coarsest(self.columns)}")
        if self.levels > 2**15 or self.columns > MOST_COLUMNS:
            raise UserError(f"{self.levels} levels and {self.columns} columns; at most {2**15} and "
                            f"{MOST_COLUMNS} are possible, so that sums of squares stay exact")

    @property
    def max_abs(self) -> int:
        """The largest magnitude of an entry, in grid units."""
        return self.levels

    @property
    def grid(self) -> float:
        """The value of one step of the grid, in units of the message."""
        return self.clip / self.levels

    def project(self, key: Array, message: Array) -> Array:
        """Clips and rounds the rows of a message; a row that is not finite becomes 0."""
        assert_message(message, self.columns)
        reach = math.sqrt(self.levels**2 - self.columns / 4) - 2
        unit = message / self.clip
        unit = jnp.where(jnp.all(jnp.isfinite(unit), -1, keepdims=True), unit, 0)
        # Scaled by the largest entry first: the square of a tiny or huge entry is not a float32.
        largest = jnp.maximum(jnp.max(jnp.abs(unit), -1, keepdims=True), 1e-30)
        norm = largest * jnp.linalg.norm(unit / largest, axis=-1, keepdims=True)
        scaled = unit * (reach / jnp.maximum(norm, 1))
        low = jnp.floor(scaled)
        entries = (low + (jax.random.uniform(key, message.shape) < scaled - low)).astype(jnp.int32)
        # The proof is in integers: whatever the float operations above gave, a longer row is
        # dropped here.
        entries = jnp.clip(entries, -self.levels, self.levels)
        return enforce(entries, lambda rows: halves_within(rows, self.levels**2))

    @property
    def squared_norm(self) -> int:
        """The largest squared L2 norm of a message of B rows, in grid units."""
        return self.levels**2 * self.rows

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: every row may change sign."""
        return 4 * self.squared_norm


def coarsest(columns: int) -> int:
    """Returns the fewest levels at which rounding preserves the length of a row.

    8 sqrt(columns) levels lose nothing, 2 sqrt(columns) about a fifteenth of the norm of a row.
    """
    return math.ceil(2 * math.sqrt(columns))


def row_levels(columns: int, sigma: float) -> int:
    """Returns the levels of `RowL2` for rows of gradients under a noise of 2 C sigma.

    8 sqrt(D), at which rounding loses nothing, or as many as the table of a large noise allows.

    Args:
        columns: D, the entries of a row.
        sigma: Standard deviation of the noise over 2 C, twice the clip; 0 for none.

    Raises:
        UserError: The noise is larger than can be drawn for D entries.
    """
    levels = math.ceil(8 * math.sqrt(columns))
    levels = min(levels, int(MAX_SIGMA / (2 * sigma))) if sigma else levels
    if levels < coarsest(columns):
        raise UserError(f"sigma is {sigma:g}; for records of {columns} values at most "
                        f"{MAX_SIGMA / (2 * coarsest(columns)):g} can be drawn")
    return levels


def halves_within(entries: Array, limit: int) -> Array:
    """Checks exactly that the sum of squares of a row is at most `limit`: bool [..., 1].

    entries int32 [..., D], |entries| <= 2^15, D <= 2^16. Squares are summed in halves of 16 bits,
    neither of which can overflow uint32.
    """
    squares = (entries * entries).astype(jnp.uint32)
    low = jnp.sum(squares & 0xFFFF, -1, keepdims=True, dtype=jnp.uint32)
    # The carry of the low halves belongs to the high ones; then both compare as one number.
    high = jnp.sum(squares >> 16, -1, keepdims=True, dtype=jnp.uint32) + (low >> 16)
    low = low & 0xFFFF
    return (high < limit >> 16) | ((high == limit >> 16) & (low <= limit & 0xFFFF))


MOST_GRADIENT_LEVELS = 2**12 - 1
"""The finest grid of a gradient: its square is below 2^24, so float32 sums of squares are exact."""


@dataclasses.dataclass(frozen=True)
class GradientL2:
    """Clips one long row, a gradient with respect to all parameters, to L2 norm `clip`.

    It is rounded to the nearest point of a grid of clip / levels. This needs no random numbers for
    each entry of each record, and the grid is much finer than the entries (`gradient_levels`).

    Attributes:
        clip: The largest L2 norm, in units of the message.
        columns: D.
        levels: Steps of the grid from 0 to clip.
        relation: Replace-one or zero-out.
        unit: A record or a client, if each is a unit.

    Guarantee:
        Unit and relation: as the fields say. Sensitivity: a message is an integer vector with a sum
        of squares of at most levels^2, in grid units, or zero, whatever the input was. Replace-one:
        it may change sign, squared sensitivity 4 levels^2; zero-out: it may become 0, levels^2.

    Source:
        Abadi et al., "Deep Learning with Differential Privacy" (arXiv 1607.00133), Algorithm 1; the
        grid and its check are from this library.

    Raises:
        UserError: A field is outside its range.
    """

    clip: float
    columns: int
    levels: int
    relation: Relation = Relation.REPLACE_ONE
    unit: Unit = Unit.RECORD

    rows: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0")
        if self.relation not in (Relation.REPLACE_ONE, Relation.ZERO_OUT):
            raise UserError(f"relation is '{self.relation}'; use replace-one or zero-out")
        if not 1 <= coarsest(self.columns) <= self.levels <= MOST_GRADIENT_LEVELS:
            raise UserError(f"{self.levels} levels for {self.columns} columns; they must lie "
                            f"between {coarsest(self.columns)} and {MOST_GRADIENT_LEVELS}")
        object.__setattr__(self, "relation", Relation(self.relation))
        object.__setattr__(self, "unit", Unit(self.unit))

    @property
    def max_abs(self) -> int:
        """The largest magnitude of an entry, in grid units."""
        return self.levels

    @property
    def grid(self) -> float:
        """The value of one step of the grid, in units of the message."""
        return self.clip / self.levels

    def project(self, key: Array, message: Array) -> Array:
        """Clips and rounds a gradient; one that is not finite becomes 0."""
        assert_message(message, self.columns)
        # Gradients whose norm is not finite in float32 are dropped: they are about to diverge.
        norm = jnp.sqrt(jnp.sum(message * message, -1, keepdims=True)) / self.clip
        finite = jnp.isfinite(norm)
        # Rounding moves a row by at most sqrt(columns) / 2: a row of this norm is not dropped.
        reach = (self.levels - math.sqrt(self.columns) / 2) * (1 - 1e-4)
        entries = jnp.round(message * (reach / self.clip / jnp.maximum(norm, 1)))
        return enforce(jnp.where(finite, entries, 0).astype(jnp.int32), self.holds)

    def holds(self, entries: Array) -> Array:
        """Checks that a row is within the bound: bool [1, 1] of int32 [1, D]."""
        return squares_within(entries, self.levels**2)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of the longest message, in grid units."""
        return self.levels**2

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message, in grid units, under the relation."""
        return self.squared_norm * (4 if self.relation == Relation.REPLACE_ONE else 1)


def gradient_levels(sigma: float, columns: int, units: int,
                    mend: str = "use a smaller network, or less noise") -> int:
    """Returns the finest grid for `GradientL2` whose noise can still be drawn.

    Args:
        sigma: The standard deviation of the noise, in units of the clip.
        units: The number of units whose sum must fit in 32 bits.
        mend: Advice to the user if the grid is too coarse.

    Raises:
        UserError: The grid is too coarse for so many columns.
    """
    levels = min(MOST_GRADIENT_LEVELS, (2**31 - 2**20) // units)
    levels = min(levels, int(MAX_SIGMA / sigma)) if sigma else levels
    if levels < coarsest(columns):
        raise UserError(f"noise of {sigma:g} times the clip on the sum over {units} gradients of "
                        f"{columns} values leaves a grid of {levels} levels, of which "
                        f"{coarsest(columns)} are needed; {mend}")
    return levels


@dataclasses.dataclass(frozen=True)
class GridMean:
    """A decoder: the noisy sum over the number of units, in units of the message.

    Attributes:
        grid: The value of one step of the grid.
    """

    grid: float

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes a noisy sum.

        From `noised` int32 [B, D] to float32 [B, D].
        """
        chex.assert_rank(noised, 2)
        chex.assert_type(noised, jnp.int32)
        return noised.astype(jnp.float32) * (self.grid / n_units)
