"""Rounding to k levels without bias: the messages of D2P-Fed (arXiv 2006.13039).

Algorithms 5 and 6 of DataLens (arXiv 2103.11109) have the same messages, but biased levels, and
rows that are not rotated back.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class KLevels:
    """Each row of a message is scaled to one length and rounded to k levels.

    The sum of such messages is released with a rounded Gaussian, where D2P-Fed draws a discrete
    one. Rounding an ideal Gaussian commutes with adding an integer, so exact Gaussian accounting
    holds; of the discrete Gaussian only a bound by zCDP is known, which allows fewer rounds.

    A row is scaled until its length is `reach` or its largest entry is k - 1, whichever comes
    first, so no entry is cut off, and an entry becomes one of the two levels beside it with the
    probability that makes the mean exact: the mean message has the direction of the row. Rows that
    were rotated (`hadamard`) are hardly ever stopped by their largest entry.

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
        for name, least in (("levels", 2), ("columns", 1), ("rows", 1)):
            value = operator.index(getattr(self, name))
            object.__setattr__(self, name, value)
            if value < least:
                raise UserError(f"{name} is {value}; at least {least} needed")
        if self.max_abs**2 * self.columns >= 2**31:
            raise UserError(f"{self.levels} levels are too many for {self.columns} columns; use "
                            f"at most {math.isqrt((2**31 - 1) // self.columns) + 1}")

    @property
    def max_abs(self) -> int:
        """The largest magnitude of a level."""
        return self.levels - 1

    @property
    def reach(self) -> float:
        """The length of a row before it is rounded.

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
        """The squared L2 norm that no message of B rows exceeds."""
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
        # Relative to the largest entry: the square of a tiny or huge entry is not a float32.
        unit = jnp.where(usable, message / jnp.where(usable, largest, 1), 0)
        norm = jnp.maximum(jnp.linalg.norm(unit, axis=-1, keepdims=True), 1)
        # The level as a real number from 0 to k - 1; rounding is by chance, so its mean is exact.
        place = (unit * jnp.minimum(self.reach / norm, self.max_abs) + self.max_abs) / 2
        low = jnp.clip(jnp.floor(place), 0, self.levels - 2)
        level = low + (jax.random.uniform(key, message.shape) < place - low)
        entries = jnp.where(usable, 2 * level.astype(jnp.int32) - self.max_abs, 0)
        # The proof is in integers: whatever floats did above, a longer row is dropped here.
        entries = jnp.clip(entries, -self.max_abs, self.max_abs)
        return enforce(
            entries, lambda rows: jnp.sum(rows * rows, -1, keepdims=True) <= self.squared_row_norm)

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: every row may turn to its opposite."""
        return 4 * self.squared_norm
