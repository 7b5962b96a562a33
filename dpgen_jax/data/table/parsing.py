"""Cells of text to the codes of a table, by its schema, and the cells of CSV files.

A CSV file is read as text: in blocks of rows, one of which is in memory at a time, or as a whole.
No byte of a row changes how another row is read: each line is decoded by itself, and is one row
unless `Dialect.multiline` says otherwise. What does not fit is an error that names its line.

Python's `csv` reads the rows, and not pyarrow. The reader of pyarrow does not report the line of a
row, which errors name here, and it accepts a quote in the middle of a cell, which is an error here.
"""

from __future__ import annotations

import contextlib
import csv as files
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from dpgen_jax.core import files as core_files
from dpgen_jax.core.errors import listed, nearest, option, quoted
from dpgen_jax.core.types import EMPTY, Column, UserError
from dpgen_jax.data.table import rules, transform
from dpgen_jax.data.table.columns import NULLS, tamed
from dpgen_jax.data.table.schema import (
    DEFAULT_DIALECT,
    LONGEST_LINE,
    SEPARATORS,
    WESTERN,
    WIDE_ENDS,
    Dialect,
    Schema,
    detected,
    dialect_fault,
    dialect_of_header,
    of_lines,
)

ODD = "cells that do not fit their column are read as the value `odd` of the schema"
CLIPPED = "values outside the bounds of the schema were clipped"
OTHER = "texts outside the categories of the schema count as `other`"
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
        encoding_from_rows: Whether its encoding was inferred from rows, which are private, and not
            from its header.
    """

    source: str
    columns: dict[str, list[str]]
    rows: Sequence[str]
    dialect: Dialect = DEFAULT_DIALECT
    encoding_from_rows: bool = False


def joined(parts: Sequence[Cells]) -> Cells:
    """Returns blocks of rows of one table, of which there is one at least, as a whole."""
    columns = {name: [cell for part in parts for cell in part.columns[name]]
               for name in parts[0].columns}
    return dataclasses.replace(parts[0], columns=columns,
                               rows=[row for part in parts for row in part.rows])


def blocks(cells: Cells) -> Iterator[Cells]:
    """Yields a table some rows at a time, as `csv_blocks` does.

    Args:
        cells: The table.
    """
    size = max(1, min(BLOCK_ROWS, BLOCK_CELLS // len(cells.columns)))
    for first in range(0, max(1, len(cells.rows)), size):
        part = slice(first, first + size)
        yield dataclasses.replace(cells, rows=cells.rows[part], columns={
            name: texts[part] for name, texts in cells.columns.items()})


@dataclasses.dataclass(frozen=True)
class Coded:
    """Rows as numbers.

    Attributes:
        codes: float64 [n, columns], numbers as they are in the file (`encode` clips them).
        y: Classes int32 [n]; `EMPTY` of a row that is left out for its label.
        source: The name of the table.
        changes: How many cells or rows are changed or odd, by the message about them and the column
            or constraint; for the data holder only.
    """

    codes: np.ndarray
    y: np.ndarray
    source: str = ""
    changes: Mapping[tuple[str, str], int] = dataclasses.field(default_factory=dict)


def coded(schema: Schema, cells: Cells) -> Coded:
    """Returns the codes of a table, or of a block of its rows, in the order of the schema.

    A UserError names the row and the column; it may quote the cell.
    """
    spec = schema.spec
    columns = spec.all_columns
    _check_names(cells, [*(column.name for column in columns),
                         *(identifier.name for identifier in spec.identifiers), *spec.left_out])
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
            declared = {*column.categories, *(NULLS if column.nullable else ())}
            changes[OTHER, column.name] = sum(
                cell not in declared for cell in cells.columns[column.name])
        codes.append(values)
    y = codes.pop().astype(np.int32) if spec.labelled else np.zeros(len(cells.rows), np.int32)
    y = np.where(unlabelled, np.int32(EMPTY), y)
    table = np.column_stack([*codes, y])
    for text, rule in zip(spec.constraints, rules.read_rules(spec), strict=True):
        changes[BROKEN, text] = int(rule.broken(table).sum())
    return Coded(np.stack(codes, 1), y, cells.source, changes)


def private_notes(source: str, changes: Mapping[tuple[str, str], int], label: Column | None,
                  y: np.ndarray) -> tuple[str, ...]:
    """Returns lines on what is changed in a table, for the data holder only.

    Args:
        source: The name of the table.
        changes: As `Coded` has them, of all its rows.
        label: The column of the classes, or None.
        y: Classes int32 [n] of all its rows.
    """
    notes = []
    for what in (ODD, CLIPPED, OTHER):
        counts = {name: n for (change, name), n in changes.items() if change == what and n}
        if counts:
            columns = listed(f"{name}: {n}" for name, n in counts.items())
            notes.append(f"{sum(counts.values())} {what} (column {columns})")
    if label is not None:
        rows = np.bincount(y[y != EMPTY], minlength=len(label.categories))
        absent = [name for name, n in zip(label.categories, rows, strict=True) if not n]
        if absent:
            notes.append(f"no rows of the class {listed(absent)} (column {label.name})")
    notes += [f"{n} {BROKEN} {text}" for (what, text), n in changes.items() if what == BROKEN and n]
    return tuple(f"{source}: {note}" for note in notes)


def parse(column: Column, cells: Cells, other: str | None = None) -> np.ndarray:
    """Returns the codes of one column: float64 [n], NaN for null.

    `other` is the category of undeclared texts; None if they are an error, as of `coded`.
    """
    texts = cells.columns[column.name]
    values = None if column.categories else _plain_numbers(column, texts)
    if values is None:
        read = _category_reader(column, other) if column.categories else transform.reader(column)
        known = {text: read(text) for text in dict.fromkeys(texts)}
        values = np.array([known[text] for text in texts], np.float64)  # None becomes NaN

    def at(row: int) -> str:
        return f"{cells.source}, {cells.rows[row]}, column {column.name}"

    for i in np.flatnonzero(np.isnan(values)).tolist():
        if not (column.nullable and texts[i] in NULLS):
            raise UserError(f"{at(i)}: {_fault(column, texts[i])}")
    if column.kind == "integer":
        for i in np.flatnonzero(~np.isnan(values) & (values != np.rint(values)))[:1].tolist():
            raise UserError(f"{at(i)}: {texts[i][:100]} is not a whole number; correct the cell, "
                            "or declare the column continuous")
    return values


def _plain_numbers(column: Column, texts: list[str]) -> np.ndarray | None:
    """Returns numbers that are all written as Python writes them, fast; else None."""
    if transform.is_plain(column):
        with contextlib.suppress(ValueError):
            values = np.array(texts, np.float64)
            if np.isfinite(values).all() and "_" not in "".join(texts):  # float() takes 1_000
                return values
    return None


def _category_reader(column: Column, other: str | None) -> Callable[[str], float | None]:
    """Returns the function from a text to the code of its category; None for one of none."""
    fold = str.casefold if column.written == "boolean" else str
    index = {fold(text): float(code) for code, text in enumerate(column.categories)}
    rest = None if other is None else index[other]

    def read(text: str) -> float | None:
        if column.nullable and text in NULLS:
            return None
        found = index.get(fold(text))
        return rest if found is None and text not in NULLS else found

    return read


def _fault(column: Column, text: str) -> str:
    """Returns what is wrong with a cell that has no code, and the mend."""
    if text in NULLS:
        what = f"null ({text!r})" if text else "an empty cell"
        return f"{what}, but the column is not nullable; fill it in, or {DECLARE_NULL}"
    if column.categories:
        return (f"{quoted(text)} is not a declared category{nearest(text, column.categories)}; "
                "correct the cell or declare it")
    more = "" if transform.is_plain(column) else ", or declare another format"
    return f"{quoted(text)} is not a {transform.what(column)}; correct the cell{more}"


def _check_names(cells: Cells, declared: list[str]) -> None:
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


def each_once(source: str, names: list[str]) -> list[str]:
    """Returns the column names, of which none may be there twice, or too long for a schema."""
    earlier: set[str] = set()
    for place, name in enumerate(names, 1):
        if len(name) > LONGEST_NAME:
            raise UserError(f"{source}: column {place} has a name of {len(name):,} letters, and at "
                            f"most {LONGEST_NAME} are taken; rename it")
        if name in earlier:
            raise UserError(f"{source}: column {quoted(name)} is named twice; rename or remove one")
        earlier.add(name)
    return names


MOST_EMPTY = 1_000_000
"""Consecutive empty lines, at most."""
TEXT_SHARE = 4  # of what is allowed, a quarter may be the text of a file that is read as a whole
CELL_BYTES, LINE_BYTES = 100, 150
"""The bytes of a cell in addition to its letters, as a text in the lists of its row and its column,
and of a line in addition to its cells."""
Numbered = tuple[int, list[str]]
"""The number of a line, and the cells of the row that ends there."""
BLOCK_CELLS = 2**19
"""The cells of a block, at most, which take some 50 MB as texts."""
BLOCK_ROWS = 1000
"""The rows of a block of a CSV file, at most: of more, its lists leave the processor's cache, and
Python looks for garbage among them, which takes as long again as reading them."""


def csv_blocks(path: Path, header: Sequence[str] | None = None, remark: str | None = None,
               dialect: Dialect = DEFAULT_DIALECT) -> Iterator[Cells]:
    """Yields the stripped cells of a CSV file, some rows at a time; without rows an empty block.

    Empty lines are skipped: with two columns or more no record is one, whatever its content. In a
    file of one column a null may be one, and they are refused: else it would decide how many
    records there are.

    Args:
        path: The file.
        header: The column names, if the file has no line of them.
        remark: The beginning of a first line that is skipped.
        dialect: How it is written.

    Raises:
        UserError: Naming the file and the line.
    """
    rows = _rows(path, dialect)
    filled = (pair for pair in rows if pair[1])
    first = next(filled, None)
    if remark and first and first[1][0].startswith(remark):
        first = next(filled, None)
    if header is None:
        header = _header(path, first[1] if first else [], dialect)
    elif first:
        rows = itertools.chain([first], rows)
    rows = _filled(path, rows, len(header))
    size = max(1, min(BLOCK_ROWS, BLOCK_CELLS // len(header)))
    block = list(itertools.islice(rows, size))
    while True:
        yield _cells(path, header, block, dialect)
        if not (block := list(itertools.islice(rows, size))):
            return


def read_csv(path: Path, header: Sequence[str] | None = None, remark: str | None = None,
             dialect: Dialect = DEFAULT_DIALECT) -> Cells:
    """Reads all cells of a CSV file into memory; it takes what `csv_blocks` does.

    The memory that the cells would take is known before they are read: too much is a UserError.
    """
    limit = core_files.allowed_bytes() / TEXT_SHARE
    sign, marks, letters, rows = SEPARATORS[dialect.separator].encode(), 0, 0, 1
    for chunk in core_files.chunks(path, limit):
        marks, letters = marks + chunk.count(sign), letters + len(chunk)
        rows += chunk.count(b"\n")
    # Marks in quotes count too: no table has more cells.
    core_files.require_memory(f"{path}: a table of {marks + rows:,} cells",
                              CELL_BYTES * (marks + rows) + LINE_BYTES * rows
                              + TEXT_SHARE * letters)
    return joined(list(csv_blocks(path, header, remark, dialect)))


def drafted(path: Path, multiline: bool = False) -> Cells:
    """Reads all cells of a CSV file for a draft of its schema, which finds out how it is written.

    This is inferred from the header, which is public. Where the header is ASCII only and the rows
    are not UTF-8, the encoding is inferred from the rows. `multiline` says whether cells in quotes
    may hold line ends.
    """
    dialect = dataclasses.replace(dialect_of_header(path), errors="strict", multiline=multiline)
    if dialect.encoding == "utf-8" and "".join(csv_header(path, dialect)).isascii():
        try:
            core_files.read_bytes(path, core_files.allowed_bytes() / TEXT_SHARE).decode("utf-8")
        except UnicodeDecodeError:
            cells = read_csv(path, dialect=dataclasses.replace(dialect, encoding=WESTERN))
            return dataclasses.replace(cells, encoding_from_rows=True)
    return read_csv(path, dialect=dialect)


def csv_header(path: Path, dialect: Dialect) -> list[str]:
    """Returns the column names of a CSV file, which are public, and reads no row for them."""
    return _header(path, next((row for _, row in _rows(path, dialect) if row), []), dialect)


def _rows(path: Path, dialect: Dialect) -> Iterator[Numbered]:
    """Yields the rows of a CSV file, also empty ones, with the numbers of their lines."""
    begins, read = 1, 0  # the first line of the next row, and the line that was read last

    def lines() -> Iterator[str]:
        """Yields the lines, of which each is a row by itself unless the dialect says otherwise."""
        nonlocal read
        for read, line in enumerate(_lines(path, file, dialect), 1):
            if read > begins and not dialect.multiline:
                raise _open(path, begins)
            yield line
        if read >= begins and not dialect.multiline:
            raise _open(path, begins)

    with core_files.opened(path) as file:
        reader = files.reader(lines(), skipinitialspace=True, strict=True,
                              delimiter=SEPARATORS[dialect.separator])
        empty = 0
        try:
            for row in reader:
                empty = 0 if row else empty + 1
                if empty > MOST_EMPTY:  # a megabyte of gzip can hold a thousand million of them
                    raise UserError(f"{path}, line {reader.line_num}: the last {empty:,} lines "
                                    "are empty; the file may be damaged: remove them")
                yield reader.line_num, row
                begins = reader.line_num + 1
        except files.Error as error:
            what = f"{error}; correct the quotes"
            if str(error).startswith("new-line"):
                what = ("a carriage return within the line; remove it, put quotes around its cell, "
                        "or save the file with line ends that other programs read (LF or CRLF)")
            raise UserError(f"{path}, line {begins}: {what}") from error


def _open(path: Path, line: int) -> UserError:
    """Returns the error of a quote that is not closed on its line, where it may not span lines."""
    return UserError(f"{path}, line {line}: a quote is not closed on its line; correct the quotes, "
                     "or declare file: {multiline: true} in the schema (for a draft: "
                     f"{option('multiline')}) if cells hold line ends")


def _filled(path: Path, rows: Iterable[Numbered], columns: int) -> Iterator[Numbered]:
    """Yields the rows that are not empty; in a file of one column such a line may be a record."""
    for line, row in rows:
        if row:
            yield line, row
        elif columns == 1:
            raise UserError(f"{path}, line {line}: an empty line in a file of one column, whose "
                            'empty cells would be empty lines too; write "" for an empty cell, or '
                            "remove the line")


def _lines(path: Path, file: BinaryIO, dialect: Dialect) -> Iterator[str]:
    """Yields the lines of a file, each decoded by itself, of which none may fill the memory."""
    longest = int(min(LONGEST_LINE, core_files.allowed_bytes() / CELL_BYTES))
    source = io.BufferedReader(cast(io.RawIOBase, file))  # fast for .gz files too
    try:
        encoding = of_lines(dialect.encoding, source.peek(4))
    except UnicodeError as error:
        line = source.readline(longest)
        raise UserError(f"{path}, {dialect_fault(line, 1, dialect, error)}") from error
    end = WIDE_ENDS.get(encoding, b"\n")
    for number in itertools.count(1):
        line = source.readline(longest) if len(end) == 1 else _wide_line(source, end, longest)
        if not line:
            return
        if len(line) >= longest and not line.endswith(end):
            raise UserError(f"{path}, line {number}: longer than {longest:,} bytes; correct the "
                            f"line, or raise {option('max_gb')}")
        try:
            text = line.decode(encoding, dialect.errors)
            if number == 1:
                text = _first(text, line, encoding)
        except UnicodeError as error:
            raise UserError(f"{path}, {dialect_fault(line, number, dialect, error)}") from error
        yield text


def _wide_line(source: BinaryIO, end: bytes, longest: int) -> bytes:
    """Reads a line of characters of several bytes each, up to the character that ends it."""
    line = bytearray()
    while len(line) < longest and (part := source.readline(longest - len(line))):
        line += part
        line += source.read(-len(line) % len(end))
        if line.endswith(end):
            break
    return bytes(line)


def _first(text: str, line: bytes, encoding: str) -> str:
    """Returns the first line without its mark; UTF-16 of ASCII is UTF-8 too, with zero bytes."""
    if encoding == "utf-8" and detected(line).encoding.startswith("utf-16"):
        raise UnicodeError("UTF-16")
    return text.removeprefix("\ufeff")


def _cells(path: Path, header: Sequence[str], block: list[Numbered],
           dialect: Dialect) -> Cells:
    for line, row in block:
        if len(row) != len(header):
            raise UserError(f"{path}, line {line}: {len(row)} cells, expected {len(header)}; "
                            "correct the line, or put quotes around a cell that holds a "
                            f"{dialect.separator}")
    columns: Iterable[Sequence[str]] = (
        zip(*(row for _, row in block), strict=True) if block else [[] for _ in header])
    return Cells(str(path), {name: list(map(str.strip, cells)) for name, cells
                             in zip(header, columns, strict=True)},
                 [f"line {line}" for line, _ in block], dialect)


def _header(path: Path, row: list[str], dialect: Dialect) -> list[str]:
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
