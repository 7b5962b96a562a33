"""The finest cells of the columns of a table, by the declared schema alone, and back to features.

A category or an ordinal has a cell for each value, and so has an integer of few values. Any other
number has one for each bound, where clipped values and zeros pile up, and cells of equal width
between them, as it is encoded. Behind them each special value has a cell, and null.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, Column, TableSpec

APART = 0.5
"""The value of a number that is null or special, as records are encoded."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The values of a column that meet a condition.

    Attributes:
        codes: indices of a category, an ordinal or the label; special values of a number; NaN for
            null.
        low: the lower end of a range of a number, encoded as `data.transform.unit` does it.
        high: its upper end, which belongs to it; below `low` there is no range. Of whole numbers
            the ends are the numbers themselves.
    """

    codes: tuple[float, ...] = ()
    low: float = 1.0
    high: float = 0.0


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
    def _ranges(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and width of the cells of each column that are not apart, in encoded values."""
        return [_cells(column, self.most) for column in self.spec.columns]

    @functools.cached_property
    def inside(self) -> np.ndarray:
        """The cells of each column that are not apart, int [d]: apart are null and specials."""
        return np.array([len(start) for start, _ in self._ranges])

    @functools.cached_property
    def apart(self) -> np.ndarray:
        """The other cells of each column, behind them: int [d]."""
        return np.array([len(column.special) + column.nullable for column in self.spec.columns])

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """The cells of each column: int [d]."""
        return self.inside + self.apart

    @property
    def widest(self) -> int:
        """W: the most cells of a column."""
        return int(self.sizes.max())

    @functools.cached_property
    def category(self) -> np.ndarray:
        """Whether the cells of a column have no order: bool [d]."""
        return np.array([column.kind == "categorical" for column in self.spec.columns])

    @functools.cached_property
    def real(self) -> np.ndarray:
        """The cells that there are: bool [d, W]."""
        return np.arange(self.widest) < self.sizes[:, None]

    @functools.cached_property
    def is_apart(self) -> np.ndarray:
        """The cells that are null or special: bool [d, W]."""
        return self.real & (np.arange(self.widest) >= self.inside[:, None])

    @functools.cached_property
    def is_range(self) -> np.ndarray:
        """The cells of numbers that are neither null nor special: bool [d, W]."""
        named = np.array([bool(column.categories) for column in self.spec.columns])
        return self.real & ~self.is_apart & ~named[:, None]

    @functools.cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and width of each cell, in encoded values: float32 [d, W] twice."""
        start = np.full((len(self.sizes), self.widest), APART, np.float32)
        width = np.zeros_like(start)
        for i, (starts, widths) in enumerate(self._ranges):
            start[i, :len(starts)], width[i, :len(starts)] = starts, widths
        return start, width

    @functools.cached_property
    def _features(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The column, sort and place of each feature, and the first feature of each column.

        The place of a null flag is 1, as if "not null" had one before it.
        """
        rows = [(i, sort, place + (sort == "flag")) for i, column in enumerate(self.spec.columns)
                for sort, size in column.parts for place in range(size)]
        column, sort, place = (np.array(part) for part in zip(*rows, strict=True))
        widths = [column.width for column in self.spec.columns]
        return column, sort, place, np.cumsum([0, *widths[:-1]])

    def codes(self, x: Array) -> Array:
        """Returns the cells of an encoded row: from float32 [F] in [0, 1] to int32 [d]."""
        _, _, place, first = self._features
        columns = self.spec.columns
        last = first + np.array([column.width for column in columns]) - 1
        # Which place of a one-hot is 1, as sums of whole numbers, which float32 holds exactly.
        sums = jnp.cumsum(x * place)
        which = jnp.round(sums[last] - sums[first] + (x * place)[first])
        value = x[first]
        steps = np.array([_steps(column) for column in columns], np.float32)
        between = self.inside - 2
        few = np.array([_is_exact(column, self.most) for column in columns])
        whole = np.array([_is_whole(column) for column in columns])
        inner = (jnp.round(value * steps) - 0.5) / np.maximum(steps - 1, 1)
        inner = jnp.floor(jnp.where(whole, inner, value) * between)
        cell = 1 + jnp.clip(inner, 0, np.maximum(between - 1, 0))
        cell = jnp.where(value <= 0, 0, jnp.where(value >= 1, between + 1, cell))
        cell = jnp.where(few, jnp.round(value * steps), cell)
        cell = jnp.where(which > 0, self.inside + which - 1, cell)
        cell = jnp.where(self.category, which, cell)
        return jnp.clip(cell, 0, self.sizes - 1).astype(jnp.int32)

    def rows(self, cells: Array, values: Array) -> Array:
        """Returns encoded rows float32 [N, F] of cells int32 [N, d] and values float32 [N, d].

        The value of a column counts where it is a number or an ordinal.
        """
        column, sort, place, _ = self._features
        which = jnp.where(self.category, cells, jnp.maximum(cells - self.inside + 1, 0))
        number = jnp.clip(values, 0, 1)[:, column]
        return jnp.where(sort == "value", number, which[:, column] == place).astype(jnp.float32)

    def within(self, i: int, wanted: Wanted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Narrows the cells of a column to what is wanted.

        Args:
            i: the column.
            wanted: what it may be.

        Returns:
            [W] three times: the share of each cell that is wanted, and the start and width of what
            is left of it.
        """
        column, (start, width) = self.spec.columns[i], (a[i].copy() for a in self.ends)
        if column.categories:
            named = [*range(len(column.categories)), *[np.nan] * column.nullable]
        else:
            named = [*[None] * int(self.inside[i]), *column.special, *[np.nan] * column.nullable]
        chosen = [code is not None and (code in wanted.codes or bool(
            np.isnan(code) and np.isnan(wanted.codes).any())) for code in named]
        weight = np.pad(np.array(chosen, float), (0, self.widest - len(named)))
        if column.categories or wanted.low > wanted.high:
            return weight, start, width
        slack = 0.5 / max(_steps(column), 1) if _is_whole(column) else 1e-7
        low, high = wanted.low - slack, wanted.high + slack
        real = (self.real[i] & ~self.is_apart[i] & (np.maximum(start, low)
                                                    <= np.minimum(start + width, high)))
        narrowed = real & (width > 0)
        if wanted.low == wanted.high and not _is_whole(column):
            # One value of a continuous number: its cell, or that of the bound itself.
            alone = real & (width == 0)
            chosen = alone if alone.any() else narrowed & (np.cumsum(narrowed) == 1)
            start = np.where(chosen, wanted.low, start)
            return np.maximum(weight, chosen), start, np.where(chosen, 0, width)
        first, last = np.maximum(start, low), np.minimum(start + width, high)
        share = np.where(narrowed, (last - first) / np.maximum(width, 1e-30), real)
        return (np.maximum(weight, share), np.where(narrowed, first, start),
                np.where(narrowed, last - first, width))


def _steps(column: Column) -> float:
    """Returns the steps between the values of a column of whole numbers, from lowest to highest."""
    return len(column.categories) - 1 if column.categories else column.high - column.low


def _is_whole(column: Column) -> bool:
    """Whether equal steps of the encoding are whole numbers."""
    return column.kind == "integer" and column.scale == "linear"


def _is_exact(column: Column, most: int) -> bool:
    """Whether each value of a column has a cell of its own."""
    few = _is_whole(column) and _steps(column) < most
    return bool(column.categories) or few or column.low == column.high


def _cells(column: Column, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns start and width of the cells of a column that are not apart."""
    steps = _steps(column)
    if _is_exact(column, most):
        start = np.arange(int(steps) + 1 if _steps(column) else 1) / max(steps, 1)
        return start, np.zeros(len(start))
    edges = np.linspace(0, 1, most + 1)
    if _is_whole(column):  # the numbers from low + 1 to high - 1, each as wide as a step
        edges = (np.ceil(edges * (steps - 1) + 0.5 - 1e-9) - 0.5) / steps
    return (np.concatenate([[0], edges[:-1], [1]]), np.concatenate([[0], np.diff(edges), [0]]))
