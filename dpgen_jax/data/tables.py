"""Tables with a declared schema: `csv:FILE`. `writing` is the way back, `frames` are pandas'."""

from __future__ import annotations

import csv as files
import dataclasses
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dpgen_jax.core import reading
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data.base import Dataset, frozen, locate, quoted, safe_name
from dpgen_jax.data.dialect import DEFAULT, SEPARATORS, Dialect, detected, fault
from dpgen_jax.data.parsing import Cells, Coded, coded
from dpgen_jax.data.schema import Schema
from dpgen_jax.data.transform import encode

TEXT_SHARE = 4  # of what is allowed, a quarter may be the text of a file
CELL_BYTES, LINE_BYTES = 100, 300
"""The bytes of a cell beside its letters, as a text in the lists of its row and its column, and of
a line beside its cells."""
WIDE = 1000
"""The categories of a column that are many."""
VALUE_BYTES = 12
"""The bytes of an encoded value, as float64 and as float32."""


def csv(path_text: str, schema: Schema, test_csv: str | None = None) -> Dataset:
    """Loads a CSV file (UTF-8 and commas, or as the schema says; one line of column names; or .gz).

    It has exactly the columns of the schema, in any order. Spaces around a cell do not count; an
    empty cell, NA, NaN, null and ? are null.

    Args:
        path_text: The file.
        schema: The schema.
        test_csv: The file of the held-out part, alike; or None.

    Returns:
        The data set.

    Raises:
        UserError: Naming the line and the column; it may quote the cell, so it is for the data
            holder only.
    """
    path = locate(path_text)
    test = None if test_csv is None else coded(
        schema, read(locate(test_csv), dialect=schema.dialect))
    name = schema.name or path.name.removesuffix(".gz").removesuffix(".csv")
    data = table(name, schema, coded(schema, read(path, dialect=schema.dialect)), test)
    return dataclasses.replace(data, content=reading.content_of(path))


def table(name: str, schema: Schema, train: Coded, test: Coded | None,
          notes: Iterable[str] = ()) -> Dataset:
    """Encodes parts that were read by one schema.

    Args:
        name: The name of the data set.
        schema: The schema.
        train: The training part.
        test: The held-out part, or None.
        notes: Public lines on how the data were read.

    Returns:
        The data set.

    Raises:
        UserError: The encoded values would not fit into memory.
    """
    (width,) = schema.spec.shape
    rows = sum(len(part.y) for part in (train, test) if part is not None)
    widest = max(schema.spec.columns, key=lambda column: column.width)
    codes = (f" (column {widest.name} has {widest.width:,} of them; kind: codes makes one of it)"
             if widest.width > WIDE else "")
    reading.require_memory(f"{name}: {rows:,} rows of {width:,} encoded values{codes}",
                           VALUE_BYTES * rows * width)
    x = encode(schema.spec, train.codes)
    x[train.y == EMPTY] = 0
    kept = slice(0) if test is None else test.y != EMPTY
    return Dataset(
        safe_name(name), schema.spec, frozen(x, np.float32), frozen(train.y, np.int32),
        None if test is None else frozen(encode(schema.spec, test.codes[kept]), np.float32),
        None if test is None else frozen(test.y[kept], np.int32),
        ("column names, kinds, bounds, categories and classes are those of the schema",
         *notes, *schema.notes),
        (*train.private_notes, *(test.private_notes if test else ())), schema.bought,
        uncovered=schema.uncovered)


def read(path: Path, header: Sequence[str] | None = None, remark: str | None = None,
         dialect: Dialect | None = DEFAULT) -> Cells:
    """Reads the cells of a CSV file.

    Empty lines are skipped: with two columns or more no record is one, whatever its content.

    Args:
        path: The file.
        header: The column names, if the file has no line of them.
        remark: The beginning of a first line that is skipped.
        dialect: How it is written; None where that is read from the file.

    Returns:
        The cells.

    Raises:
        UserError: Naming the file and the line, or the memory that its cells would take, before
            they are read.
    """
    lines, dialect = _lines(path, dialect)
    if remark and lines and lines[0][1][0].startswith(remark):
        del lines[0]
    if header is None:
        header = _header(path, lines.pop(0)[1] if lines else [], dialect)
    for line, row in lines:
        if len(row) != len(header):
            raise UserError(f"{path}, line {line}: {len(row)} cells, expected {len(header)}; mend "
                            f"the line, or put quotes around a cell that holds a "
                            f"{dialect.separator}")
    columns: Iterable[Sequence[str]] = (
        zip(*(row for _, row in lines), strict=True) if lines else [[] for _ in header])
    return Cells(str(path), {name: list(map(str.strip, cells)) for name, cells
                             in zip(header, columns, strict=True)},
                 [f"line {line}" for line, _ in lines], dialect)


def header(path: Path, dialect: Dialect) -> list[str]:
    """Returns the column names of a CSV file, which are public, and reads no row for them.

    Args:
        path: The file.
        dialect: How it is written.

    Raises:
        UserError: A name is missing or there twice.
    """
    text = reading.read_bytes(path, reading.allowed_bytes() / TEXT_SHARE)
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    file = io.TextIOWrapper(io.BytesIO(text), encoding=encoding, newline="", errors=dialect.errors)
    rows = files.reader(file, skipinitialspace=True, strict=True,
                        delimiter=SEPARATORS[dialect.separator])
    try:
        return _header(path, next((row for row in rows if row), []), dialect)
    except (UnicodeError, files.Error) as error:
        raise UserError(f"{path}, line 1: {error}; mend the header") from error


def _lines(path: Path, dialect: Dialect | None) -> tuple[list[tuple[int, list[str]]], Dialect]:
    """Reads the rows of a CSV file that are not empty, with the numbers of their lines."""
    text = reading.read_bytes(path, reading.allowed_bytes() / TEXT_SHARE)
    dialect = detected(text) if dialect is None else dialect
    sign, rows = SEPARATORS[dialect.separator], text.count(b"\n") + 1
    limit = text.count(sign.encode()) + rows  # those in quotes too: no table has more cells
    reading.require_memory(f"{path}: a table of {limit:,} cells",
                           CELL_BYTES * limit + LINE_BYTES * rows + TEXT_SHARE * len(text))
    try:
        encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
        file = io.TextIOWrapper(io.BytesIO(text), encoding=encoding, newline="",
                                errors=dialect.errors)
        reader = files.reader(file, skipinitialspace=True, strict=True, delimiter=sign)
        if dialect.encoding == "utf-8" and detected(text[:4096]).encoding.startswith("utf-16"):
            raise UserError(f"{path}, {fault(text, dialect)}")
        return [(reader.line_num, row) for row in reader if row], dialect
    except UnicodeError as error:
        raise UserError(f"{path}, {fault(text, dialect)}") from error
    except files.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; mend the quotes") from error


def _header(path: Path, row: list[str], dialect: Dialect) -> list[str]:
    """Returns the column names of a header."""
    names = [name.strip() for name in row]
    if not names:
        raise UserError(f"{path} is empty; its first line must name the columns")
    for word, mark in SEPARATORS.items():
        if len(names) == 1 and mark in names[0] and word != dialect.separator:
            raise UserError(f"{path}: the first line is one cell with {word}s; separate the cells "
                            f"by {dialect.separator}s, or declare file: {{separator: {word}}} in "
                            "the schema")
    if "" in names:
        raise UserError(f"{path}: column {names.index('') + 1} has no name; name it in the first "
                        "line")
    return each_once(str(path), names)


def each_once(source: str, names: list[str]) -> list[str]:
    """Returns the column names, of which none may be there twice.

    Args:
        source: The name of the table.
        names: The names.

    Raises:
        UserError: One is.
    """
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            raise UserError(f"{source}: column {quoted(name)} is named twice; rename or remove one")
        earlier.add(name)
    return names
