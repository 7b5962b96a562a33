"""The finest cells of the columns of a table, by the declared schema alone, and back to features.

A category or an ordinal has a cell for each value, and so has an integer of few values. Any other
number has one for each bound, where clipped values and zeros pile up, and cells of equal width
between them. A nullable column has a last cell for null.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, Column, TableSpec

NULL_VALUE = 0.5
"""The value of a null number, as records are encoded."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The cells of all columns.

    Attributes:
        spec: The schema.
        most: The most cells between the bounds of a number; an integer of up to as many values has
            a cell for each.
    """

    spec: TableSpec
    most: int

    @functools.cached_property
    def _ends(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and width of the cells of each column, null among them, in encoded values."""
        return [_cells(column, self.most) for column in self.spec.columns]

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """The cells of each column: int [d]."""
        return np.array([len(start) for start, _ in self._ends])

    @property
    def widest(self) -> int:
        """W: the most cells of a column."""
        return int(self.sizes.max())

    @functools.cached_property
    def null(self) -> np.ndarray:
        """Whether the last cell of a column is null: bool [d]."""
        return np.array([column.nullable for column in self.spec.columns])

    @functools.cached_property
    def category(self) -> np.ndarray:
        """Whether the cells of a column have no order: bool [d]."""
        return np.array([column.kind == "categorical" for column in self.spec.columns])

    @functools.cached_property
    def real(self) -> np.ndarray:
        """The cells that there are: bool [d, W]."""
        return np.arange(self.widest) < self.sizes[:, None]

    @functools.cached_property
    def is_null(self) -> np.ndarray:
        """The cells that are null: bool [d, W]."""
        return self.null[:, None] & (np.arange(self.widest) == self.sizes[:, None] - 1)

    @functools.cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and width of each cell, in encoded values: float32 [d, W] twice."""
        def padded(arrays: list[np.ndarray]) -> np.ndarray:
            return np.stack([np.pad(a, (0, self.widest - len(a))) for a in arrays])

        starts, widths = zip(*self._ends, strict=True)
        return (padded(list(starts)).astype(np.float32), padded(list(widths)).astype(np.float32))

    @functools.cached_property
    def _features(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each column the first feature; of each feature its column, and place in it."""
        widths = [column.width for column in self.spec.columns]
        first = np.cumsum([0, *widths[:-1]])
        column = np.repeat(np.arange(len(widths)), widths)
        return first, column, np.arange(len(column)) - first[column]

    def codes(self, x: Array) -> Array:
        """Returns the cells of an encoded row: from float32 [F] in [0, 1] to int32 [d]."""
        first, _, place = self._features
        columns = self.spec.columns
        last = first + np.array([column.width for column in columns]) - 1
        # The place of a one-hot's 1, as sums of whole numbers, which float32 holds exactly.
        sums = jnp.cumsum(x * place)
        category = sums[last] - sums[first] + (x * place)[first]
        value = x[first]
        steps = np.array([_steps(column) for column in columns], np.float32)
        between = self.sizes - self.null - 2
        few = np.array([_is_exact(column, self.most) for column in columns])
        whole = np.array([column.kind == "integer" for column in columns])
        inner = (jnp.round(value * steps) - 0.5) / np.maximum(steps - 1, 1)
        inner = jnp.floor(jnp.where(whole, inner, value) * between)
        cell = 1 + jnp.clip(inner, 0, np.maximum(between - 1, 0))
        cell = jnp.where(value <= 0, 0, jnp.where(value >= 1, between + 1, cell))
        cell = jnp.where(few, jnp.round(value * steps), cell)
        cell = jnp.where(self.null & (x[last] > 0.5), self.sizes - 1, cell)
        cell = jnp.where(self.category, category, cell)
        return jnp.clip(jnp.round(cell), 0, self.sizes - 1).astype(jnp.int32)

    def within(self, i: int, values: Sequence[float]
               ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Narrows the cells of a column to wanted values.

        Args:
            i: the column.
            values: of a category or ordinal indices; of a number (low, high), its ends included;
                NaN among them for null.

        Returns:
            [W] three times: the share of each cell that is wanted, and the start and width of what
            is left of it.
        """
        column, (start, width) = self.spec.columns[i], (a[i].copy() for a in self.ends)
        numbers = np.array([v for v in values if not np.isnan(v)], np.float64)
        weight = self.is_null[i] & (len(numbers) < len(values))
        if column.categories:
            return np.isin(np.arange(self.widest), numbers) | weight, start, width
        if not len(numbers):
            return weight, start, width
        slack = 0.5 if column.kind == "integer" else 0.0
        low, high = ((end - column.low) / ((column.high - column.low) or 1.0)
                     for end in (numbers.min() - slack, numbers.max() + slack))
        first, last = np.maximum(start, low), np.minimum(start + width, high)
        real = self.real[i] & ~self.is_null[i] & (first <= last)
        share = np.where(width > 0, (last - first) / np.maximum(width, 1e-30), 1.0)
        if low == high:  # one value of a continuous number: its cell, or the bound's own
            share = np.where(width > 0, float(not np.any(real & (width == 0))), share)
        narrowed = real & (width > 0)
        return (np.where(real, share, weight), np.where(narrowed, first, start),
                np.where(narrowed, last - first, width))

    def rows(self, cells: Array, values: Array) -> Array:
        """Returns encoded rows float32 [N, F] of cells int32 [N, d] and values float32 [N, d].

        The value of a column counts where it is a number or an ordinal.
        """
        _, column, place = self._features
        is_null = self.null & (cells == self.sizes - 1)
        onehot = cells[:, column] == place
        number = jnp.where(place == 0, jnp.clip(values, 0, 1)[:, column], is_null[:, column])
        return jnp.where(self.category[column], onehot, number).astype(jnp.float32)


def _steps(column: Column) -> float:
    """Returns the steps between the values of a column of whole numbers, from lowest to highest."""
    return len(column.categories) - 1 if column.categories else column.high - column.low


def _is_exact(column: Column, most: int) -> bool:
    """Whether each value of a column has a cell of its own."""
    few = column.kind == "integer" and _steps(column) < most
    return bool(column.categories) or few or column.low == column.high


def _cells(column: Column, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns start and width of the cells of a column."""
    steps = _steps(column)
    if _is_exact(column, most):
        start = np.arange(int(steps) + 1 if column.low < column.high or column.categories else 1
                          ) / max(steps, 1)
        width = np.zeros(len(start))
    else:
        edges = np.linspace(0, 1, most + 1)
        if column.kind == "integer":  # the numbers from low + 1 to high - 1, each as wide as a step
            edges = (np.ceil(edges * (steps - 1) + 0.5 - 1e-9) - 0.5) / steps
        start = np.concatenate([[0], edges[:-1], [1]])
        width = np.concatenate([[0], np.diff(edges), [0]])
    nulls = [NULL_VALUE] * column.nullable
    return np.concatenate([start, nulls]), np.concatenate([width, np.zeros(len(nulls))])
