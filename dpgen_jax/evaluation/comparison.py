"""Synthetic and real cells, and what a difference between them has to exceed to be a finding.

A number of the synthetic rows is compared with the same of the real rows, and with how far the two
halves of the real rows differ by chance, over `SPLITS` random halves. A finding counts where it
exceeds that noise. Its size is what is left of it, in units of a change that a user of the rows
would begin to mind: five points of a correlation, two of nulls, and so on. So sizes compare across
kinds of findings, and the largest is the worst loss.

Cells are float64 [n, K], as `evaluation.marginals` defines them. All of it reads real rows, and no
epsilon covers it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import cast

import numpy as np

from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.results import Finding, Real, Score, Setting, Severity, Synthetic

SPLITS = 4
"""Random halves of the real rows."""
MOST_ROWS = 10_000
"""The most rows of either kind that are compared."""
MOST = 20.0
"""The largest size of a finding."""
MOST_OF_A_GROUP = 8.0
"""The largest size of a finding on a subgroup, which is not about all rows."""
ALARM = 4.0
"""The size from which a finding is an alarm, and no caution."""
ERRORS = 3.0
"""How often a difference must exceed the noise before the rest of it counts."""
EPSILON = "train with a larger epsilon, or with fewer columns"


LEAST = 40
"""With fewer rows of either kind nothing is compared."""


@dataclasses.dataclass(frozen=True)
class Tables:
    """The cells that are compared: float64 [n, K] and [m, K]."""

    columns: tuple[Column, ...]
    labelled: bool
    """Whether the last column is the label."""
    made: np.ndarray
    """Synthetic cells float64 [n, K]."""
    real: np.ndarray
    """Real cells float64 [m, K]."""
    spec: TableSpec
    bought: str | None = None
    """The notes of a statement on what a purchase declared; None without a release."""

    @functools.cached_property
    def halves(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """The row numbers of random halves of the real rows."""
        orders = (np.random.default_rng(seed).permutation(len(self.real))
                  for seed in range(SPLITS))
        middle = len(self.real) // 2
        return tuple((order[:middle], order[middle:2 * middle]) for order in orders)

    @property
    def scale(self) -> float:
        """The noise of synthetic against all real rows, as a share of that of the halves."""
        m = len(self.real)
        return math.sqrt((1 / len(self.made) + 1 / m) / (4 / m))

    def noise(self, of_rows: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the chance deviation of a statistic: of one half from the other, scaled.

        Args:
          of_rows: A function of the numbers of real rows.
        """
        gaps = [np.square(of_rows(one) - of_rows(other)) for one, other in self.halves]
        return np.asarray(self.scale * np.sqrt(np.mean(gaps, 0)))

    @functools.cached_property
    def bins(self) -> list[Bins]:
        """The bins of each column."""
        return [Bins.of(column, self.made[:, i], self.real[:, i])
                for i, column in enumerate(self.columns)]


    def name(self, column: int, place: int) -> str:
        """Return the condition of a bin of a column, as text."""
        return self.bins[column].name(place, np.concatenate(
            [self.made[:, column], self.real[:, column]]))


TENTHS = np.linspace(0, 1, 11)[1:-1]


@dataclasses.dataclass(frozen=True)
class Bins:
    """The bins of a column: its categories, or tenths of the real numbers; the last one is null.

    Those of synthetic cells are int [n], those of real cells int [m].
    """

    column: Column
    made: np.ndarray
    """The bin of each synthetic cell, int [n]."""
    real: np.ndarray
    """The bin of each real cell, int [m]."""
    size: int

    @classmethod
    def of(cls, column: Column, made: np.ndarray, real: np.ndarray) -> Bins:
        """Return the bins of the cells of a column."""
        if column.categories:
            size, codes = len(column.categories) + 1, (made, real)
        else:
            known = real[~np.isnan(real)]
            values = np.unique(known)
            edges = (values[1:] if len(values) <= len(TENTHS) + 1 else
                     np.unique(np.quantile(known, TENTHS)))
            size = len(edges) + 2
            codes = (np.searchsorted(edges, made, "right"), np.searchsorted(edges, real, "right"))
        made, real = (np.where(np.isnan(cells), size - 1, code).astype(np.int64)
                      for cells, code in zip((made, real), codes, strict=True))
        return cls(column, made, real, size)

    def shares(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the shares of the bins among real rows, or some of them."""
        return shares_of(self.real if rows is None else self.real[rows], self.size)

    def name(self, place: int, cells: np.ndarray) -> str:
        """Return the condition of a bin, as text.

        Args:
          place: The bin.
          cells: Synthetic and real cells [n + m] of the column.
        """
        if place == self.size - 1:
            return f"{self.column.name} empty"
        if self.column.categories:
            return f"{self.column.name} = {self.column.categories[place]}"
        inside = cells[np.concatenate([self.made, self.real]) == place]
        low, high = written(self.column, inside.min(), inside.max())
        return f"{self.column.name} {low}" + (f" to {high}" if low != high else "")


def shares_of(codes: np.ndarray, size: int) -> np.ndarray:
    """Return the shares of bins."""
    return np.bincount(codes, minlength=size) / max(1, len(codes))


def written(column: Column, *values: float) -> list[str]:
    """Return numbers of a column as texts, plain ones with six digits."""
    if column.written == "plain" and not column.categories:
        return [f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.6g}" for value in values]
    return [text or "empty" for text in transform.texts(column, np.array(values, float))]


def loss(kind: str, columns: Iterable[str], values: tuple[float, float, float], size: float,
         said: tuple[str, str]) -> Finding:
    """Return a finding.

    Args:
      kind: Its kind.
      columns: The columns that it is of.
      values: The number of synthetic rows, of real rows, and the deviation by chance.
      size: How bad it is, in units that a user would begin to mind.
      said: The sentence, and what can be done.
    """
    made, real, noise = map(float, values)
    size = float(min(size, MOST))
    return Finding(("losses", kind, *columns), Score(made), Score(real), noise, text=said[0],
                   advice=said[1], size=size,
                   severity=Severity.ALARM if size >= ALARM else Severity.CAUTION)


def read(entry: Json) -> Finding:
    """Return the finding of an entry of the fact `losses`."""
    return loss(entry["kind"], entry["columns"],
                (entry["synthetic"], entry["real"], entry["noise"]), entry["size"],
                (entry["text"], entry["advice"]))


def tables(real: Real, synthetic: Synthetic, setting: Setting) -> Tables:
    """Return the cells of a draw and of all real rows, at most `MOST_ROWS` of each."""
    spec = cast(TableSpec, real.spec)
    parts = [real.test] if real.train is None else [real.train, real.test]
    truth = np.concatenate([marginals.cells(spec, part) for part in parts])
    made = marginals.cells(spec, setting.draws(synthetic)[0])
    made, truth = (cells[np.random.default_rng(0).permutation(len(cells))[:MOST_ROWS]]
                   for cells in (made, truth))
    named, release = marginals.columns(spec), synthetic.release
    notes = None if release is None else release.privacy.get("data_notes") or ()
    return Tables(named, spec.labelled, on_grid(named, made), on_grid(named, truth), spec,
                  None if notes is None else "; ".join(
                      str(note) for note in notes if str(note).startswith("bought")))


def on_grid(columns: tuple[Column, ...], cells: np.ndarray) -> np.ndarray:
    """Return cells without the rounding errors of features, which are float32 in part."""
    cells = cells.copy()
    for i, column in enumerate(columns):
        if column.kind == "continuous":
            size = max((column.high - column.low) * 1e-6, transform.step(column) or 0.0)
            digits = -math.floor(math.log10(size)) if size > 0 else 9
            cells[:, i] = np.round(cells[:, i], digits)
    return cells
