"""Clipped gradients on an integer grid, for noisy sums of real-valued messages."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.aggregation.noise import MAX_SIGMA
from dpgen_jax.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class RowL2:
    """Each row of a message is clipped to L2 norm `clip` and put on a grid of clip / levels.

    Guarantee: for two messages of one unit, whatever they are and whatever the keys,
    ||project(v) - project(v')||^2 <= 4 levels^2 rows, in grid units: each row is an integer vector
    with a sum of squares of at most levels^2, or zero. Unit: a record, through its unit's message;
    replace-one. Raises UserError for values outside their range.

    Rounding uses dither: an entry becomes one of its two neighbours on the grid with the
    probability that makes the mean exact, since rounding to nearest would silence small entries.
    Rows are first scaled to a norm slightly below `clip`, so that rounding hardly ever pushes one
    over the bound, where it would be dropped.
    """

    clip: float
    columns: int
    rows: int
    levels: int

    unit: ClassVar[str] = "record"
    relation: ClassVar[str] = "replace-one"

    def __post_init__(self):
        for name in ("columns", "rows", "levels"):
            value = operator.index(getattr(self, name))
            object.__setattr__(self, name, value)
            if value < 1:
                raise UserError(f"{name} is {value}; at least 1 is needed")
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0")
        if self.levels < coarsest(self.columns):
            raise UserError(f"{self.levels} levels are too coarse for {self.columns} columns; use "
                            f"at least {coarsest(self.columns)}")
        if self.levels > 2**15 or self.columns > 2**16:
            raise UserError(f"{self.levels} levels and {self.columns} columns; at most {2**15} and "
                            f"{2**16} are possible, so that sums of squares stay exact")

    @property
    def max_abs(self) -> int:
        return self.levels

    @property
    def grid(self) -> float:
        return self.clip / self.levels

    def project(self, key: Array, message: Array) -> Array:
        """float32 [B, D] to int32 [B, D]; a row that is not finite becomes 0; the key protects
        nothing."""
        reach = math.sqrt(self.levels**2 - self.columns / 4) - 2
        unit = message / self.clip
        unit = jnp.where(jnp.all(jnp.isfinite(unit), -1, keepdims=True), unit, 0)
        # Scaled by the largest entry first: the square of a tiny or huge entry is not a float32.
        largest = jnp.maximum(jnp.max(jnp.abs(unit), -1, keepdims=True), 1e-30)
        norm = largest * jnp.linalg.norm(unit / largest, axis=-1, keepdims=True)
        scaled = unit * (reach / jnp.maximum(norm, 1))
        low = jnp.floor(scaled)
        entries = (low + (jax.random.uniform(key, message.shape) < scaled - low)).astype(jnp.int32)
        # The proof is in integers: whatever floats did above, a longer row is dropped here.
        entries = jnp.clip(entries, -self.levels, self.levels)
        return enforce(entries, lambda rows: _squares_within(rows, self.levels**2))

    def squared_sensitivity(self) -> int:
        """Of the whole message, replace-one: every row may turn to its opposite."""
        return 4 * self.levels**2 * self.rows


def coarsest(columns: int) -> int:
    """The fewest levels at which rounding still leaves a row its length: 8 sqrt(columns) cost
    nothing, 2 sqrt(columns) about a fifteenth of a row's norm."""
    return math.ceil(2 * math.sqrt(columns))


def _squares_within(entries: Array, most: int) -> Array:
    """bool [..., 1]: whether a row's sum of squares is at most `most`, exactly.

    entries int32 [..., D], |entries| <= 2^15, D <= 2^16. Summed in halves of 16 bits, none of
    which can leave uint32.
    """
    squares = (entries * entries).astype(jnp.uint32)
    low = jnp.sum(squares & 0xFFFF, -1, keepdims=True, dtype=jnp.uint32)
    high = jnp.sum(squares >> 16, -1, keepdims=True, dtype=jnp.uint32) + (low >> 16)
    low = low & 0xFFFF
    return (high < most >> 16) | ((high == most >> 16) & (low <= most & 0xFFFF))


MOST_GRADIENT_LEVELS = 2**12 - 1


@dataclasses.dataclass(frozen=True)
class GradientL2:
    """One long row, a gradient with respect to all parameters, clipped to L2 norm `clip` as a whole
    and rounded to a grid of clip / levels.

    Guarantee: a message is an integer vector with a sum of squares of at most levels^2, in grid
    units, or zero, whatever it was. Unit: a record, or a client, that itself is the unit.
    Replace-one: it may turn to its opposite, squared sensitivity 4 levels^2; zero-out: it may turn
    to 0, levels^2. Raises UserError for values outside their range.

    Rounding is to nearest: no random numbers are needed for each entry of each record, and the grid
    is fine beside the entries (`gradient_levels`).
    """

    clip: float
    columns: int
    levels: int
    relation: str = "replace-one"
    unit: str = "record"

    rows: ClassVar[int] = 1

    def __post_init__(self):
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0")
        if self.relation not in ("replace-one", "zero-out"):
            raise UserError(f"relation is {self.relation!r}; use replace-one or zero-out")
        if not 1 <= coarsest(self.columns) <= self.levels <= MOST_GRADIENT_LEVELS:
            raise UserError(f"{self.levels} levels for {self.columns} columns; they must lie "
                            f"between {coarsest(self.columns)} and {MOST_GRADIENT_LEVELS}")

    @property
    def max_abs(self) -> int:
        return self.levels

    @property
    def grid(self) -> float:
        return self.clip / self.levels

    def project(self, key: Array, message: Array) -> Array:
        """float32 [1, D] to int32 [1, D]; a row that is not finite becomes 0; no key is needed."""
        # Gradients whose norm is no float32 are dropped: they are about to diverge.
        norm = jnp.sqrt(jnp.sum(message * message, -1, keepdims=True)) / self.clip
        finite = jnp.isfinite(norm)
        # Rounding moves a row by at most sqrt(columns) / 2: a row of this norm is not dropped.
        reach = (self.levels - math.sqrt(self.columns) / 2) * (1 - 1e-4)
        entries = jnp.round(message * (reach / self.clip / jnp.maximum(norm, 1)))
        return enforce(jnp.where(finite, entries, 0).astype(jnp.int32), self.holds)

    def holds(self, entries: Array) -> Array:
        """bool [1, 1]: whether a row int32 [1, D] is within the bound.

        Exact although its sums are float32: below 2^24 sums of whole numbers are, and a sum that
        passes 2^24 on the way does not come back, as rounding is monotone and nothing that is added
        is negative. levels^2 is below 2^24.
        """
        row = entries.astype(jnp.float32)
        return jnp.sum(row * row, -1, keepdims=True) <= self.levels**2

    def squared_norm(self) -> int:
        """Of the longest message."""
        return self.levels**2

    def squared_sensitivity(self) -> int:
        return self.squared_norm() * (4 if self.relation == "replace-one" else 1)


def gradient_levels(sigma: float, columns: int, units: int) -> int:
    """The finest grid for `GradientL2` whose noise, of standard deviation sigma * clip, can still
    be drawn, and on which the sum over `units` stays in 32 bits. Errors: UserError where that is
    too coarse for so many columns."""
    levels = min(MOST_GRADIENT_LEVELS, (2**31 - 2**20) // units)
    levels = min(levels, int(MAX_SIGMA / sigma)) if sigma else levels
    if levels < coarsest(columns):
        raise UserError(f"noise of {sigma:g} times the clip on the sum over {units} gradients of "
                        f"{columns} values leaves a grid of {levels} levels, of which "
                        f"{coarsest(columns)} are needed; use a smaller network, or less noise")
    return levels


@dataclasses.dataclass(frozen=True)
class GridMean:
    """Decoder: the noisy sum over the number of units, in the units of the message: float32."""

    grid: float

    def __call__(self, noised: Array, n_units: int) -> Array:
        return noised.astype(jnp.float32) * (self.grid / n_units)
