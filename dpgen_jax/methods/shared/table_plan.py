"""The plan of noisy tables: a function of the schema and public numbers, of no record."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from dpgen_jax.aggregation.counts import MOST_LEVELS, count_levels
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.methods.shared.grid import Grid

COARSE = 4
"""Groups a side of the tables of all pairs."""
MOST_PAIRS = 2000
"""The most tables of all pairs: more would drown each other."""
MOST_CELLS = 2**23
"""The most cells of all tables of a step: their sum takes 32 MB, and its noise three times that."""
FEWEST = 32
"""Cells of a histogram that is worth its price."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The tables of each step. Nothing here is read from a record or a release.

    Attributes:
        spec: the schema.
        records: n.
        sigma: noise multiplier of a step.
        steps: releases.
        most_cells: the most cells between the bounds of a number.
        most_bins: the most bins of a column beside the class.
        most_groups: the most groups, a side, of an edge of the tree.
        label_weight: what tables with the class weigh beside the others.
        label_part: of the first step, what the histogram of the class gets at least.
        rare_share: the share of records up to which the rarest classes vote for no pair of columns.
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

    @property
    def weight_label(self) -> float:
        """The weight of tables with the class beside the others; 0 where there is but one class."""
        return self.label_weight if self.classes > 1 else 0.0

    @property
    def d(self) -> int:
        """The number of columns beside the class."""
        return len(self.spec.columns)

    @property
    def classes(self) -> int:
        """C."""
        return self.spec.classes

    def noise(self, tables: float, steps: float = 1.0) -> float:
        """Standard deviation of a count, where a step is shared by so many tables of equal weight.

        Args:
            tables: their number.
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
        if self.steps == 1 or cells < (COARSE if self.many_classes else FEWEST):
            return 0
        return int(np.clip(cells, min(FEWEST, self.most_cells), self.most_cells))

    @property
    def many_classes(self) -> bool:
        """Whether a step of histograms tells more of a column than tables beside the class do.

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

        Where no pair is asked for there is none: of 10,000 columns they would take a gigabyte.
        """
        nodes = (self.d + (self.weight_label == 0)) * self.pairs
        return np.stack(np.triu_indices(nodes, 1), 1)

    @functools.cached_property
    def pairs(self) -> bool:
        """Whether coarse tables of all pairs are asked for, and a tree is chosen by them."""
        nodes = self.d + (self.weight_label == 0)
        count = nodes * (nodes - 1) // 2
        return bool(
            self.histograms and self.steps > 2 and 1 <= count <= MOST_PAIRS
            and 0.8 * COARSE**2 * self.noise(count / self.pair_share) < self.records
            and count / self.pair_share < self.levels**2)

    @property
    def pair_share(self) -> float:
        """The share of the second step for the pairs; the columns beside the class get the rest."""
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
        """Standard deviation of a count of a column beside the class, after all steps."""
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
        """B: the most bins of a column beside the class."""
        bins = self.records / (3 * self.classes * self.joint_noise + 1e-9)
        room = MOST_CELLS // (2 * self.d * self.classes)
        if room < 2:
            raise UserError(f"{self.d:,} columns beside {self.classes:,} classes take "
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
        return count_levels(self.sigma, self.records, MOST_LEVELS)

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
        """Whether classes may be rare, and their records vote for columns beside the class alone.

        The tables of pairs, which hold few of them, say nothing of them that noise would not hide.
        """
        return bool(self.rare_share and self.pairs and not self.with_label and self.classes > 1)

    @property
    def rare_weight(self) -> int:
        """The weight of each vote of a record of a rare class, once the pairs are asked for."""
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
