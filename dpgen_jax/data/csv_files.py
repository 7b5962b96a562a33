"""CSV files as text: in blocks of rows, of which one is in memory, or as a whole.

No byte of a row changes how another row is read: each line is decoded by itself, and is a row by
itself unless `Dialect.multiline` says otherwise. What does not fit is an error of its line.

Python's `csv` reads them, and not pyarrow, whose reader tells of a row no line, which errors name
here, and takes a quote in the middle of a cell as it is, which is an error here.
"""

from __future__ import annotations

import csv as files
import dataclasses
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from dpgen_jax.core import reading
from dpgen_jax.core.types import UserError
from dpgen_jax.data.dialect import (
    DEFAULT,
    LONGEST_LINE,
    SEPARATORS,
    WESTERN,
    WIDE_ENDS,
    Dialect,
    detected,
    fault,
    of_header,
    of_lines,
)
from dpgen_jax.data.parsing import Cells, each_once, joined

MOST_EMPTY = 1_000_000
"""Empty lines on end, at most."""
TEXT_SHARE = 4  # of what is allowed, a quarter may be the text of a file that is read as a whole
CELL_BYTES, LINE_BYTES = 100, 150
"""The bytes of a cell beside its letters, as a text in the lists of its row and its column, and of
a line beside its cells."""
Numbered = tuple[int, list[str]]
"""The number of a line, and the cells of the row that ends there."""
BLOCK_CELLS = 2**19
"""The cells of a block, at most, which take some 50 MB as texts."""
BLOCK_ROWS = 1000
"""The rows of a block of a CSV file, at most: of more, its lists leave the processor's cache, and
Python looks for garbage among them, which takes as long again as reading them."""


def blocks(path: Path, header: Sequence[str] | None = None, remark: str | None = None,
           dialect: Dialect = DEFAULT) -> Iterator[Cells]:
    """Yields the cells of a CSV file, some rows at a time; of a file without rows an empty block.

    Empty lines are skipped: with two columns or more no record is one, whatever its content. In a
    file of one column a null may be one, and they are refused: else it would decide how many
    records there are.

    Args:
        path: The file.
        header: The column names, if the file has no line of them.
        remark: The beginning of a first line that is skipped.
        dialect: How it is written.

    Yields:
        The stripped cells of the next rows.

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


def read(path: Path, header: Sequence[str] | None = None, remark: str | None = None,
         dialect: Dialect = DEFAULT) -> Cells:
    """Reads all cells of a CSV file into memory.

    Args:
        path: The file.
        header: As `blocks` takes it.
        remark: As `blocks` takes it.
        dialect: How it is written.

    Returns:
        The cells.

    Raises:
        UserError: As `blocks`, and naming the memory that the cells would take, before they are
            read.
    """
    limit = reading.allowed_bytes() / TEXT_SHARE
    sign, marks, letters, rows = SEPARATORS[dialect.separator].encode(), 0, 0, 1
    for chunk in reading.chunks(path, limit):
        marks, letters = marks + chunk.count(sign), letters + len(chunk)
        rows += chunk.count(b"\n")
    # Marks in quotes count too: no table has more cells.
    reading.require_memory(f"{path}: a table of {marks + rows:,} cells",
                           CELL_BYTES * (marks + rows) + LINE_BYTES * rows + TEXT_SHARE * letters)
    return joined(list(blocks(path, header, remark, dialect)))


def drafted(path: Path, multiline: bool = False) -> Cells:
    """Reads all cells of a CSV file for a draft of its schema, which finds out how it is written.

    The header tells that, and is public. Where it is of ASCII alone, and the rows are not UTF-8,
    they tell the encoding.

    Args:
        path: The file.
        multiline: Whether cells in quotes may hold line ends.

    Raises:
        UserError: As `read`.
    """
    dialect = dataclasses.replace(of_header(path), errors="strict", multiline=multiline)
    if dialect.encoding == "utf-8" and "".join(header(path, dialect)).isascii():
        try:
            reading.read_bytes(path, reading.allowed_bytes() / TEXT_SHARE).decode("utf-8")
        except UnicodeDecodeError:
            cells = read(path, dialect=dataclasses.replace(dialect, encoding=WESTERN))
            return dataclasses.replace(cells, rows_told=True)
    return read(path, dialect=dialect)


def header(path: Path, dialect: Dialect) -> list[str]:
    """Returns the column names of a CSV file, which are public, and reads no row for them.

    Args:
        path: The file.
        dialect: How it is written.

    Raises:
        UserError: A name is missing or there twice.
    """
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

    with reading.opened(path) as file:
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
            what = f"{error}; mend the quotes"
            if str(error).startswith("new-line"):
                what = ("a carriage return within the line; remove it, put quotes around its cell, "
                        "or save the file with line ends that other programs read (LF or CRLF)")
            raise UserError(f"{path}, line {begins}: {what}") from error


def _open(path: Path, line: int) -> UserError:
    """Returns the error of a quote that is not closed on its line, where it may not span lines."""
    return UserError(f"{path}, line {line}: a quote is not closed on its line; mend the quotes, or "
                     "declare file: {multiline: true} in the schema (for a draft: --multiline) if "
                     "cells hold line ends")


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
    longest = int(min(LONGEST_LINE, reading.allowed_bytes() / CELL_BYTES))
    source = io.BufferedReader(cast(io.RawIOBase, file))  # fast for .gz files too
    try:
        encoding = of_lines(dialect.encoding, source.peek(4))
    except UnicodeError as error:
        line = source.readline(longest)
        raise UserError(f"{path}, {fault(line, 1, dialect, error)}") from error
    end = WIDE_ENDS.get(encoding, b"\n")
    for number in itertools.count(1):
        line = source.readline(longest) if len(end) == 1 else _wide_line(source, end, longest)
        if not line:
            return
        if len(line) >= longest and not line.endswith(end):
            raise UserError(f"{path}, line {number}: longer than {longest:,} bytes; mend the line, "
                            "or raise --max-gb")
        try:
            text = line.decode(encoding, dialect.errors)
            if number == 1:
                text = _first(text, line, encoding)
        except UnicodeError as error:
            raise UserError(f"{path}, {fault(line, number, dialect, error)}") from error
        yield text


def _wide_line(source: BinaryIO, end: bytes, longest: int) -> bytes:
    """Reads a line of whole signs of several bytes each, until one of them is the end of a line."""
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
    """Returns the stripped cells of rows that come with the numbers of their lines."""
    for line, row in block:
        if len(row) != len(header):
            raise UserError(f"{path}, line {line}: {len(row)} cells, expected {len(header)}; mend "
                            f"the line, or put quotes around a cell that holds a "
                            f"{dialect.separator}")
    columns: Iterable[Sequence[str]] = (
        zip(*(row for _, row in block), strict=True) if block else [[] for _ in header])
    return Cells(str(path), {name: list(map(str.strip, cells)) for name, cells
                             in zip(header, columns, strict=True)},
                 [f"line {line}" for line, _ in block], dialect)


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
