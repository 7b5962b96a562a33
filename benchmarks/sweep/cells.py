"""Cells of a sweep: configurations that are compared."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

VARIANT = "variant"
CNN = "gen2real.cnn.accuracy"
BUDGETS = "0.2 0.4 0.6 0.8 1"
"""Those of Table 2 of G-PATE and of DataLens."""
DIGITS = {"mnist": "idx:mnist", "fashion": "idx:fashion_mnist"}


def label(point: Mapping[str, str]) -> str:
    """Return the words by which a point is shown, such as "kappa 0.8, epsilon 1"."""
    return ", ".join(value if field == VARIANT else f"{field} {value}"
                     for field, value in point.items())


@dataclasses.dataclass(frozen=True)
class Cell:
    """One configuration of a sweep.

    Attributes:
      point: The values by which it differs from other cells, by field; a name under `VARIANT`.
      settings: All of its flags of the training, by field, and its "method" where that differs.
      printed: What the paper prints for it, by metric.
    """

    point: Mapping[str, str]
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    printed: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The words by which it is shown."""
        return label(self.point)

    def at(self, field: str, value: str, is_named: bool) -> Cell:
        """Return the cell with another value of a field.

        Args:
          field: The field.
          value: The value.
          is_named: Whether the value is part of the point.

        Returns:
          The cell; what the paper prints is left out where its own value was another.
        """
        point = {name: part for name, part in self.point.items() if name != field}
        if is_named:
            point[field] = value
        printed = self.printed if self.point.get(field, value) == value else {}
        return Cell(point, {**self.settings, field: value}, printed)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Configurations of a method that are compared.

    Attributes:
      method: The method.
      source: The table or figure of the paper, and how this differs from it.
      settings: Flags of the training that all cells share, by field.
      cells: The cells.
      metrics: What is measured.
    """

    method: str
    source: str
    settings: Mapping[str, str]
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...] = ()

    def along(self, field: str, values: Sequence[str]) -> Sweep:
        """Return the sweep with a field set to each of these values.

        Cells that alone set the field, such as a variant without a part, keep theirs.

        Args:
          field: A field of the method's configuration, or any other flag of the training.
          values: Its values; a single one is the same in all cells, and no part of their names.

        Returns:
          The sweep, without cells that have become equal.
        """
        is_special = not all(field in cell.settings for cell in self.cells)
        cells: dict[tuple[tuple[str, str], ...], Cell] = {}
        for cell, value in itertools.product(self.cells, values):
            if not (is_special and field in cell.settings):
                cell = cell.at(field, value, is_named=len(values) > 1)
            cells.setdefault(tuple(cell.point.items()), cell)
        settings = {name: part for name, part in self.settings.items() if name != field}
        return dataclasses.replace(self, cells=tuple(cells.values()), settings=settings)


def variants(rows: Mapping[str, Mapping[str, str]],
             printed: Mapping[str, Sequence[float]] | None = None) -> tuple[Cell, ...]:
    """Return a cell for each name.

    Args:
      rows: Settings that change together, by name.
      printed: By metric, what the paper prints for each.

    Returns:
      The cells.
    """
    return tuple(Cell({VARIANT: name}, settings,
                      {metric: values[i] for metric, values in (printed or {}).items()})
                 for i, (name, settings) in enumerate(rows.items()))


def along(field: str, values: str, printed: str = "", **together: str) -> tuple[Cell, ...]:
    """Return a cell for each value of a field.

    Args:
      field: The field.
      values: Its values, with spaces between them.
      printed: What the paper prints for each, a CNN's accuracy, with spaces between them.
      **together: Fields that change with it, each with as many values.

    Returns:
      The cells.
    """
    numbers = [float(text) for text in printed.split()]
    rows = [dict(zip((field, *together), row, strict=True)) for row in zip(
        values.split(), *(texts.split() for texts in together.values()), strict=True)]
    return tuple(Cell({field: row[field]}, row, {CNN: numbers[i]} if numbers else {})
                 for i, row in enumerate(rows))


def digits(name: str, preset: str) -> dict[str, str]:
    """Return the settings of a sweep on MNIST or Fashion-MNIST.

    Args:
      name: A name of `DIGITS`.
      preset: The preset, with {} in place of that name.

    Returns:
      {"preset", "dataset"}.
    """
    return {"preset": preset.format(name), "dataset": DIGITS[name]}
