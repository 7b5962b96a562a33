"""The plan of noisy tables: cells and tables to count, from the schema and public numbers.

`Grid` has the finest cells of the columns, by the declared schema only, and the way back to
features. A category or an ordinal has a cell for each value, and so has an integer of few values.
Any other number has one for each bound, where clipped values and zeros pile up, and cells of equal
width between them, as it is encoded. Behind them each special value has a cell, and null.

The columns that are learned (`learned`) are those that follow from no others: a column that is a
function of others is left out. Of two dates or times whose order a constraint keeps, as
`admitted <= discharged`, the lower one is learned, and how far the other lies above it, on a log
scale. Bins are too wide to order two dates in one of them, and rows that are mended lose what lies
between the two.

`Plan` has the tables of each step.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.moments import MOST_COUNT_LEVELS, count_levels
from dpgen_jax.core.types import Array, Column, TableSpec, UserError, Wanted

APART = 0.5
"""The value of a number that is null or special, as records are encoded."""


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

    @functools.cached_property
    def exact(self) -> np.ndarray:
        """Whether each value of a column has a cell: bool [d]."""
        return np.array([_is_exact(column, self.most) for column in self.spec.columns])

    @functools.cached_property
    def whole_steps(self) -> np.ndarray:
        """The steps between the bounds of columns of whole numbers, float32 [d]; 0 of others."""
        return np.array([_steps(column) * _is_whole(column) for column in self.spec.columns],
                        np.float32)

    def codes(self, x: Array, start: Array | None = None) -> Array:
        """Returns the cells of an encoded row: from float32 [F] in [0, 1] to int32 [d].

        Args:
            start: float32 [d, W], where cells begin that follow counts (`table_zoom`).
        """
        _, _, place, first = self._features
        columns = self.spec.columns
        last = first + np.array([column.width for column in columns]) - 1
        # Which place of a one-hot is 1, as sums of whole numbers, which float32 holds exactly.
        sums = jnp.cumsum(x * place)
        which = jnp.round(sums[last] - sums[first] + (x * place)[first])
        value = x[first]
        steps = np.array([_steps(column) for column in columns], np.float32)
        between = self.inside - 2
        few = self.exact
        whole = np.array([_is_whole(column) for column in columns])
        inner = (jnp.round(value * steps) - 0.5) / np.maximum(steps - 1, 1)
        inner = jnp.floor(jnp.where(whole, inner, value) * between)
        if start is not None and not few.all():
            inner = jax.vmap(lambda edges, at: jnp.searchsorted(edges, at, side="right"))(
                start[:, 2:self.most + 1], value)
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

    def within(self, i: int, wanted: Wanted, start: np.ndarray, width: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Narrows the cells of a column to what is wanted.

        Args:
            wanted: what it may be.
            start, width: [W] twice, the cells of the column.

        Returns:
            [W] three times: the share of each cell that is wanted, and the start and width of what
            is left of it.
        """
        column = self.spec.columns[i]
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
            alone = real & np.isin(np.arange(self.widest), (0, self.inside[i] - 1))
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


def learned(spec: TableSpec) -> TableSpec:
    """Returns the schema of what is learned; as it is where all columns are functions of others."""
    lower = {high: low for low, high in spec.gaps}
    named = {column.name: column for column in spec.columns}
    columns = tuple(
        _gap(named[lower[column.name]], column) if column.name in lower else column
        for column in spec.columns if column.name not in spec.derived)
    return dataclasses.replace(spec, columns=columns, derived=(), gaps=()) if columns else spec


def learned_features(spec: TableSpec, rows: Array) -> Array:
    """Returns the learned features float32 [..., f] of encoded rows [..., F]."""
    changed = rows
    for low, high, at, above in _gaps(spec):
        gap = rows[..., above] * (high.high - high.low) - _beyond(low, high, rows[..., at])
        gap = jnp.round(gap) if _is_whole_learned(low, high) else gap
        value = jnp.log1p(jnp.maximum(gap, 0)) / np.log1p(_gap(low, high).high)
        changed = _with(changed, high, above, value)
    return changed[..., _places(spec)]


def whole_features(spec: TableSpec, rows: Array) -> Array:
    """Returns encoded rows [N, F] from the learned features [N, f].

    Derived columns have the first category, or the lower bound, as a placeholder for what
    constraints compute later. A column that is learned by its gap is at most its upper bound.
    """
    start = np.zeros(spec.shape[0], np.float32)
    first = 0
    for column in spec.columns:
        start[first] = column.kind == "categorical"
        first += column.width
    empty = jnp.broadcast_to(jnp.asarray(start), (len(rows), len(start)))
    rows = empty.at[:, _places(spec)].set(rows)
    for low, high, at, above in _gaps(spec):
        gap = jnp.expm1(rows[:, above] * np.log1p(_gap(low, high).high))
        gap = jnp.round(gap) if _is_whole_learned(low, high) else gap
        value = (gap + _beyond(low, high, rows[:, at])) / (high.high - high.low)
        rows = _with(rows, high, above, jnp.clip(value, 0, 1))
    return rows


def layout(grid: Grid, spec: TableSpec) -> dict[str, np.ndarray]:
    """Returns what `Grid.rows` and `whole_features` do, as arrays of `release.numpy_samplers`.

    Args:
        grid: The cells of the learned columns.
        spec: The schema of whole rows.
    """
    column, sort, place, _ = grid._features
    empty = np.asarray(whole_features(spec, jnp.zeros((1, len(column)))))[0]
    gaps = [(at, above, _is_whole_learned(low, high), 2 if high.special else high.nullable,
             np.log1p(_gap(low, high).high), low.low - high.low, low.high - low.low,
             high.high - high.low) for low, high, at, above in _gaps(spec)]
    return {"category": grid.category, "inside": grid.inside, "column": column,
            "is_value": sort == "value", "place": place, "empty": empty, "learned": _places(spec),
            "gaps": np.array(gaps, np.float64).reshape(-1, 8)}


def _gap(low: Column, high: Column) -> Column:
    """Returns the column of how far the one lies above the other, encoded as the other is."""
    return dataclasses.replace(high, name=f"{high.name} - {low.name}", low=0.0,
                               high=high.high - low.low, scale="log", written="plain")


def _beyond(low: Column, high: Column, value: Array) -> Array:
    """Returns how far the lower column, an encoded value, lies above the other's lower bound."""
    return (low.low - high.low) + value * (low.high - low.low)


def _with(rows: Array, column: Column, at: int, value: Array) -> Array:
    """Returns encoded rows with other values of a number, where it is not null or special."""
    if column.special:
        value = jnp.where(rows[..., at + 1] > 0.5, value, rows[..., at])
    elif column.nullable:
        value = jnp.where(rows[..., at + 1] > 0.5, rows[..., at], value)
    return rows.at[..., at].set(value)


def _is_whole_learned(low: Column, high: Column) -> bool:
    return low.kind == high.kind == "integer"


def _gaps(spec: TableSpec) -> list[tuple[Column, Column, int, int]]:
    """Returns the columns of each gap, and the places of their values in an encoded row."""
    named = {column.name: column for column in spec.columns}
    ends = np.cumsum([column.width for column in spec.columns]).tolist()
    first = dict(zip(named, [0, *ends], strict=False))
    return [(named[low], named[high], first[low], first[high]) for low, high in spec.gaps]


def _places(spec: TableSpec) -> np.ndarray:
    """Returns the places of the learned features in an encoded row, int [f]."""
    left = [column.name not in spec.derived for column in spec.columns]
    kept = left if any(left) else [True] * len(left)
    return np.flatnonzero(np.repeat(kept, [column.width for column in spec.columns]))


COARSE = 4
"""Groups a side of the tables of all pairs."""
MOST_PAIRS = 2000
"""The most tables of all pairs: more would drown each other."""
MOST_CELLS = 2**23
"""The most cells of all tables of a step: their sum takes 32 MB, and its noise three times that."""
FEWEST = 32
"""Cells of a histogram that is worth its price."""
FOUND = 4.0
"""Standard deviations of noise of a cell that all records must be, for a histogram to find them."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The tables of each step. Nothing here is read from a record or a release.

    Attributes:
        spec: the schema.
        records: n.
        sigma: noise multiplier of a step.
        steps: releases.
        most_cells: the most cells between the bounds of a number.
        most_bins: the most bins of a column with the class.
        most_groups: the most groups, a side, of an edge of the tree.
        label_weight: relative weight of tables that contain the class.
        label_part: of the first step, what the histogram of the class gets at least.
        rare_share: the share of records up to which the rarest classes vote for no pair of columns.
        follows: whether cells and bins of numbers follow the counts of the first step.
    """

    spec: TableSpec
    records: int
    sigma: float
    steps: int
    most_cells: int
    most_bins: int
    most_groups: int
    label_weight: float
    label_part: float = 0.0
    rare_share: float = 0.0
    follows: bool = False

    @property
    def weight_label(self) -> float:
        """Relative weight of tables that contain the class; 0 for a single class."""
        return self.label_weight if self.classes > 1 else 0.0

    @property
    def d(self) -> int:
        """The number of columns without the class."""
        return len(self.spec.columns)

    @property
    def classes(self) -> int:
        """C."""
        return self.spec.classes

    def noise(self, tables: float, steps: float = 1.0) -> float:
        """Standard deviation of a count, where a step is shared by so many tables of equal weight.

        Args:
            steps: over how many steps it is averaged.
        """
        return math.sqrt(2 * tables / max(steps, 1e-9)) * self.sigma

    @property
    def first_label(self) -> float:
        """The share of the first step that the histogram of the class gets."""
        return max(self.label_part * (self.classes > 1), 1 / (self.d + 1))

    @property
    def first_noise(self) -> float:
        """Standard deviation of a count of a column's histogram."""
        return self.noise(self.d / (1 - self.first_label))

    @functools.cached_property
    def histograms(self) -> int:
        """The most cells of the histograms of the first step; 0: there are none."""
        cells = 4 * (0.1 * self.records / (self.first_noise + 1e-9))**2
        if (self.d + 1) * max(Grid(self.spec, self.most_cells).widest, self.classes) > MOST_CELLS:
            return 0
        if self.steps == 1 or cells < (COARSE if self.many_classes else FEWEST) and not (
                self.wide):
            return 0
        return int(np.clip(cells, min(FEWEST, self.most_cells), self.most_cells))

    @property
    def wide(self) -> bool:
        """Whether a histogram is needed to find where the records of numbers are.

        Bins of equal width would be all that there is without it. It needs enough records to stand
        out of the noise in a few cells.
        """
        return (self.follows and not Grid(self.spec, FEWEST).exact.all()
                and self.records > FOUND * self.first_noise)

    @property
    def many_classes(self) -> bool:
        """Whether a step of histograms is more precise for a column than tables with the class.

        These have to be summed over all classes, and the noise of each with them.
        """
        return self.first_noise < math.sqrt(self.classes) * self.noise(self.d, self.steps)

    @functools.cached_property
    def grid(self) -> Grid:
        """The cells of all columns."""
        grid = Grid(self.spec, self.histograms or FEWEST)
        if self.d * grid.widest > 2 * MOST_CELLS:
            raise UserError(f"{self.d:,} columns, the widest of {grid.widest:,} values, are more "
                            "than a model is made of; leave columns out, or merge categories")
        return grid

    @property
    def widest(self) -> int:
        """The places of a histogram, of a column or of the class."""
        return max(self.grid.widest, self.classes)

    @property
    def with_label(self) -> bool:
        """Whether the class is a column like any other, which gets no tables of its own."""
        return self.weight_label == 0 and self.pairs

    @functools.cached_property
    def couples(self) -> np.ndarray:
        """The pairs of columns; the class, if it is one of them, is the last: int [P, 2].

        It is empty where no pair is counted: for 10,000 columns it would take a gigabyte.
        """
        nodes = (self.d + (self.weight_label == 0)) * self.pairs
        return np.stack(np.triu_indices(nodes, 1), 1)

    @functools.cached_property
    def pairs(self) -> bool:
        """Whether coarse tables of all pairs are counted, and a tree is chosen by them."""
        nodes = self.d + (self.weight_label == 0)
        count = nodes * (nodes - 1) // 2
        return bool(
            self.histograms and self.steps > 2 and 1 <= count <= MOST_PAIRS
            and 0.8 * COARSE**2 * self.noise(count / self.pair_share) < self.records
            and count / self.pair_share < self.levels**2)

    @property
    def pair_share(self) -> float:
        """The share of the second step for the pairs; the columns with the class get the rest."""
        return 1.0 if self.weight_label == 0 else 0.5

    @property
    def joint_share(self) -> float:
        """The share of the later steps for the tables of each column and the class."""
        if not self.pairs:
            return 1.0
        return self.weight_label / (1 + self.weight_label)

    @property
    def kinds(self) -> tuple[int, ...]:
        """The kind of each step: 0 histograms, 1 pairs, 2 tables."""
        first = [0] * bool(self.histograms) + [1] * self.pairs
        return (*first, *[2] * (self.steps - len(first)))

    @property
    def joint_noise(self) -> float:
        """Standard deviation of a count of a column with the class, after all steps."""
        tables = self.kinds.count(2)
        if self.with_label:
            return self.noise(self.d, tables)
        earlier = (1 - self.pair_share) * self.pairs
        return self.noise(self.d, self.joint_share * tables + earlier)

    @property
    def edge_noise(self) -> float:
        """Standard deviation of a count of an edge of the tree, after all steps."""
        return self.noise(self.d, (1 - self.joint_share) * self.kinds.count(2))

    @functools.cached_property
    def bins(self) -> int:
        """B: the most bins of a column with the class."""
        bins = self.records / (3 * self.classes * self.joint_noise + 1e-9)
        room = MOST_CELLS // (2 * self.d * self.classes)
        if room < 2:
            raise UserError(f"{self.d:,} columns and {self.classes:,} classes take "
                            f"{2 * self.d * self.classes:,} cells, and at most {MOST_CELLS // 2:,} "
                            "are counted; leave columns out, or merge classes")
        return int(np.clip(bins, 4, max(min(self.most_bins, room), 2)))

    @functools.cached_property
    def _edge(self) -> tuple[int, int]:
        """Classes that an edge is counted for, each apart or all together, and its groups."""
        if not self.pairs:
            return 1, 2
        for classes in dict.fromkeys((1 if self.with_label else self.classes, 1)):
            cells = 0.25 * self.records / (self.edge_noise + 1e-9) / classes
            room = MOST_CELLS // (2 * self.d * classes)
            groups = int(min(math.sqrt(cells), math.sqrt(room), self.most_groups, self.bins))
            if groups >= 3:
                return classes, groups
        return 1, 2

    @property
    def edge_classes(self) -> int:
        """C where an edge of the tree is counted for each class apart, else 1."""
        return self._edge[0]

    @property
    def groups(self) -> int:
        """G: the groups, a side, of an edge of the tree."""
        return self._edge[1]

    @functools.cached_property
    def levels(self) -> int:
        """The length of the longest message."""
        return count_levels(self.sigma, self.records, MOST_COUNT_LEVELS)

    @functools.cached_property
    def first_weight(self) -> int:
        """The weight of the vote for a cell of a column in the first step."""
        part = 1 - self.first_label if self.histograms else 1.0
        weight = math.isqrt(int(self.levels**2 * part) // self.d)
        if weight < 1:
            raise UserError(f"{self.d + bool(self.histograms):,} tables of one step are more than "
                            f"noise of {self.sigma:g} leaves room for; leave columns out, or use "
                            "less noise")
        return weight

    @functools.cached_property
    def first_class_weight(self) -> int:
        """The weight of the vote for a class in the first step; 0: there is none."""
        if not self.histograms:
            return 0
        return math.isqrt(int(self.levels**2 * self.first_label))

    @property
    def limit(self) -> int:
        """The most that squared weights of a message add up to: what the first step spends."""
        return self.first_weight**2 * self.d + self.first_class_weight**2

    def weight(self, share: float, tables: int) -> int:
        """Returns the weight of each of so many tables that have this share of a step."""
        return math.isqrt(int(share * self.limit / tables))

    @property
    def with_rare(self) -> bool:
        """Whether classes may be rare, and their records vote only for columns with the class.

        The tables of pairs hold few of these records, and noise would hide them.
        """
        return bool(self.rare_share and self.pairs and not self.with_label and self.classes > 1)

    @property
    def rare_weight(self) -> int:
        """The weight of each vote of a record of a rare class, from the step of pairs on."""
        return math.isqrt(self.limit // self.d)

    @property
    def edge_tables(self) -> int:
        """The tables of edges in a step: one for each column, or none."""
        return self.d * self.pairs

    @property
    def votes(self) -> int:
        """V: the most votes of a record in a step."""
        pairs = (len(self.couples) + self.d * (not self.with_label)) * self.pairs
        return max(self.d + 1, pairs, self.d + self.edge_tables)

    @property
    def columns(self) -> int:
        """D: the most cells of a step."""
        joint = self.d * self.classes * self.bins
        return max((self.d + 1) * self.widest * bool(self.histograms),
                   (len(self.couples) * COARSE**2 + joint) * self.pairs,
                   joint + self.edge_tables * self.edge_classes * self.groups**2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: earlier releases, and the tables of the next step.

    Attributes:
        step: int32 [], releases so far.
        label: float32 [C], noisy counts of the classes times their precision.
        label_precision: float32 [], their precision, as below.
        fine: float32 [d, W], masses of the cells, of sum 1.
        bin_of: int32 [d, W], the bin of a cell.
        coarse_of: int32 [d, W], its group in the pairs' tables.
        label_of: int32 [C], the group of a class in the pairs' tables.
        group_of: int32 [d, B], the group of a bin.
        parent: int32 [d], in the tree, or -1.
        order: int32 [d], columns, each behind its parent.
        beside: float32 [d], 1 where the table of a column and the class is counted.
        weights: int32 [2 d], of the votes for columns with the class, and for edges.
        joint: float32 [d, C, B], sums of noisy counts times their precision.
        joint_precision: float32 [d], the sums of their precisions: squared weights of votes.
        edge: float32 [d, E, G, G], as `joint`, of the parent's and the column's groups.
        edge_precision: float32 [d].
        rare_precision: float32 [], in place of `joint_precision` for rare classes; None: no class
            is treated as rare.
        pairs: float32 [P, 4, 4], noisy masses of all pairs, for models beyond a tree; None: not
            kept.
        start: float32 [d, W], where the cells of the next steps begin, in encoded values, where
            they follow the counts; None: they are those of the grid.
        width: float32 [d, W], their widths; or None.
    """

    step: Array
    label: Array
    label_precision: Array
    fine: Array
    bin_of: Array
    coarse_of: Array
    label_of: Array
    group_of: Array
    parent: Array
    order: Array
    beside: Array
    weights: Array
    joint: Array
    joint_precision: Array
    edge: Array
    edge_precision: Array
    rare_precision: Array | None = None
    pairs: Array | None = None
    start: Array | None = None
    width: Array | None = None
