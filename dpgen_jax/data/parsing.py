"""Cells of text to the codes of a table, by its schema; errors name the row and the column."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.types import EMPTY, Column, UserError
from dpgen_jax.data import constraints, forms
from dpgen_jax.data.base import listed, quoted
from dpgen_jax.data.dialect import DEFAULT, Dialect
from dpgen_jax.data.schema import Schema
from dpgen_jax.data.schema_columns import NULLS
from dpgen_jax.data.schema_odd import tamed

ODD = "cells that have no value of their column are read as its `odd`"
CLIPPED = "values outside the declared bounds were clipped"
OTHER = "texts outside the declared categories count as `other`"
BROKEN = "rows break the constraint"
DECLARE_NULL = "declare nullable: true"
LONGEST_NAME = 500
"""The letters of a column's name, at most: a key of YAML has 1,024 with its escapes."""


@dataclasses.dataclass(frozen=True)
class Cells:
    """A table as text.

    Attributes:
        source: The name of the table, for errors.
        columns: The stripped cells of each column, by its name.
        rows: The names of the rows, for errors.
        dialect: How its file is written.
        rows_told: Whether its encoding was told by rows, which are private, and not by its header.
    """

    source: str
    columns: dict[str, list[str]]
    rows: Sequence[str]
    dialect: Dialect = DEFAULT
    rows_told: bool = False


def joined(parts: Sequence[Cells]) -> Cells:
    """Returns blocks of rows of one table as a whole.

    Args:
        parts: The blocks, of which there is one at least.
    """
    columns = {name: [cell for part in parts for cell in part.columns[name]]
               for name in parts[0].columns}
    return dataclasses.replace(parts[0], columns=columns,
                               rows=[row for part in parts for row in part.rows])


@dataclasses.dataclass(frozen=True)
class Coded:
    """Rows as numbers.

    Attributes:
        codes: float64 [n, columns], numbers as they are in the file (`encode` clips them).
        y: Classes int32 [n]; `EMPTY` of a row that is left out for its label.
        source: The name of the table.
        changes: How many cells or rows are changed or odd, by what is to be said of them and the
            column or constraint; for the data holder alone.
    """

    codes: np.ndarray
    y: np.ndarray
    source: str = ""
    changes: Mapping[tuple[str, str], int] = dataclasses.field(default_factory=dict)


def coded(schema: Schema, cells: Cells) -> Coded:
    """Returns the codes of the declared columns, in the schema's order.

    Args:
        schema: The schema of the table.
        cells: The table, or a block of its rows.

    Raises:
        UserError: Naming the row and the column; it may quote the cell.
    """
    spec = schema.spec
    columns = spec.all_columns
    _check_names(cells, [*(column.name for column in columns),
                         *(identifier.name for identifier in spec.identifiers)])
    if not cells.rows:
        raise UserError(f"{cells.source}: no rows; at least 1 is needed")
    texts, odd, unlabelled = tamed(spec, schema.odd, schema.others, cells.columns)
    cells = dataclasses.replace(cells, columns=texts)
    changes = {(ODD, name): count for name, count in odd.items()}
    codes = []
    for column in columns:
        try:
            values = parse(column, cells, schema.others.get(column.name))
        except UserError as error:
            if column != spec.label:
                raise
            # A label takes no null, so that another mend is right.
            raise UserError(str(error).replace(DECLARE_NULL, "write odd: null at the label, by "
                                               "which such rows are left out")) from error
        if not column.categories:
            outside = (values < column.low) | (values > column.high)
            changes[CLIPPED, column.name] = int((outside & ~np.isin(values, column.special)).sum())
        elif column.name in schema.others:
            declared = set(column.categories)
            changes[OTHER, column.name] = sum(
                cell not in declared for cell in cells.columns[column.name])
        codes.append(values)
    y = codes.pop().astype(np.int32) if spec.labelled else np.zeros(len(cells.rows), np.int32)
    y = np.where(unlabelled, np.int32(EMPTY), y)
    table = np.column_stack([*codes, y])
    for text, rule in zip(spec.constraints, constraints.rules(spec), strict=True):
        changes[BROKEN, text] = int(rule.broken(table).sum())
    return Coded(np.stack(codes, 1), y, cells.source, changes)


def private_notes(source: str, changes: Mapping[tuple[str, str], int], label: Column | None,
                  y: np.ndarray) -> tuple[str, ...]:
    """Returns lines on what is changed in a table, for the data holder alone.

    Args:
        source: The name of the table.
        changes: As `Coded` has them, of all its rows.
        label: The column of the classes, or None.
        y: Classes int32 [n] of all its rows.
    """
    notes = [_counted(changes, what) for what in (ODD, CLIPPED, OTHER)]
    notes += [] if label is None else _absent(label, y)
    notes += [f"{count} {BROKEN} {text}" for (what, text), count in changes.items()
              if what == BROKEN and count]
    return tuple(f"{source}: {note}" for note in notes if note)


def parse(column: Column, cells: Cells, other: str | None = None) -> np.ndarray:
    """Returns the codes of one column.

    Args:
        column: The column, as it is declared.
        cells: The table.
        other: The category of undeclared texts; None if they are an error.

    Returns:
        float64 [n], NaN for null.

    Raises:
        UserError: As `coded`.
    """
    texts = cells.columns[column.name]
    if column.categories:
        index = {text: code for code, text in enumerate(column.categories)}
        if column.written == "boolean":
            index = {text.casefold(): code for text, code in index.items()}
            texts = [text if column.nullable and text in NULLS else text.casefold()
                     for text in texts]
        values = np.array([index.get(text, -1) for text in texts], np.float64)
        for i in np.flatnonzero(values < 0).tolist():
            values[i] = _category(column, index, texts[i], other, partial(_at, cells, column, i))
        return values
    if not forms.is_plain(column):
        return _whole(column, _formed(column, cells), cells)
    with contextlib.suppress(ValueError):
        values = np.array(texts, np.float64)
        if np.isfinite(values).all() and "_" not in "".join(texts):  # float() takes 1_000
            return _whole(column, values, cells)
    values = np.array([_number(column, text, partial(_at, cells, column, i))
                       for i, text in enumerate(texts)], np.float64)
    return _whole(column, values, cells)


def _at(cells: Cells, column: Column, i: int) -> str:
    """Returns the name of a cell, for errors."""
    return f"{cells.source}, {cells.rows[i]}, column {column.name}"


def _formed(column: Column, cells: Cells) -> np.ndarray:
    """Returns the codes of dates, times, and numbers with a unit; each text is read once."""
    texts, read = cells.columns[column.name], forms.reader(column)
    known = {text: None if text in NULLS else read(text) for text in dict.fromkeys(texts)}
    values = [known[text] for text in texts]
    return np.array([_number(column, texts[i], partial(_at, cells, column, i))
                     if value is None else value for i, value in enumerate(values)], np.float64)


def _number(column: Column, text: str, at: Callable[[], str]) -> float:
    """Returns the code of a cell of numbers."""
    value = forms.number(text) if forms.is_plain(column) else None
    if value is not None:
        return value
    if text not in NULLS:
        raise UserError(f"{at()}: {quoted(text)} is no {forms.what(column)}; mend the "
                        f"cell{'' if forms.is_plain(column) else ', or declare another format'}")
    return _null(column, text, at)


def _category(column: Column, index: dict[str, int], text: str, other: str | None,
              at: Callable[[], str]) -> float:
    """Returns the code of a cell that is no declared category."""
    if text in NULLS:
        return _null(column, text, at)
    if other is None:
        raise UserError(f"{at()}: {quoted(text)} is no declared category"
                        f"{nearest(text, index)}; mend the cell or declare it")
    return index[other]


def _null(column: Column, text: str, at: Callable[[], str]) -> float:
    """Returns the code of null, which the column must allow."""
    if not column.nullable:
        what = f"null ({text!r})" if text else "an empty cell"
        raise UserError(f"{at()}: {what}, but the column is not nullable; fill it in, or "
                        f"{DECLARE_NULL}")
    return np.nan


def _whole(column: Column, values: np.ndarray, cells: Cells) -> np.ndarray:
    """Checks that an integer column has whole numbers."""
    if column.kind == "integer":
        for i in np.flatnonzero(~np.isnan(values) & (values != np.rint(values)))[:1].tolist():
            text = cells.columns[column.name][i]
            raise UserError(f"{_at(cells, column, i)}: {text[:100]} is no whole number; mend the "
                            "cell, or declare the column continuous")
    return values


def _check_names(cells: Cells, declared: list[str]) -> None:
    """Checks that the table has the declared columns and no other."""
    expected = set(declared)
    for name in declared:
        if name not in cells.columns:
            unknown = (present for present in cells.columns if present not in expected)
            raise UserError(f"{cells.source}: column {quoted(name)} is missing"
                            f"{nearest(name, unknown)}; add it, or remove it from the schema")
    for name in cells.columns:
        if name not in expected:
            raise UserError(f"{cells.source}: column {quoted(name)} is not declared; add it to the "
                            "schema, or remove it from the file")


def _counted(changes: Mapping[tuple[str, str], int], what: str) -> str:
    """Returns a line on counts by column; empty where all are 0."""
    counts = {name: count for (change, name), count in changes.items()
              if change == what and count}
    columns = listed(f"{name}: {count}" for name, count in counts.items())
    return f"{sum(counts.values())} {what} (column {columns})" if counts else ""


def _absent(label: Column, y: np.ndarray) -> list[str]:
    """Returns a line on the classes without rows, if any."""
    counts = np.bincount(y[y != EMPTY], minlength=len(label.categories))
    absent = [name for name, count in zip(label.categories, counts, strict=True) if not count]
    return [f"no rows of the class {listed(absent)} (column {label.name})"] if absent else []


def each_once(source: str, names: list[str]) -> list[str]:
    """Returns the column names, of which none may be there twice, or too long for a schema.

    Args:
        source: The name of the table.
        names: The names.

    Raises:
        UserError: One is.
    """
    earlier: set[str] = set()
    for place, name in enumerate(names, 1):
        if len(name) > LONGEST_NAME:
            raise UserError(f"{source}: column {place} has a name of {len(name):,} letters, and at "
                            f"most {LONGEST_NAME} are taken; rename it")
        if name in earlier:
            raise UserError(f"{source}: column {quoted(name)} is named twice; rename or remove one")
        earlier.add(name)
    return names
