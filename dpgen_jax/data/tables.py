"""Tables with a declared schema: `csv:FILE`. `writing` is the way back, `frames` are pandas'."""

from __future__ import annotations

import collections
import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from dpgen_jax.core import reading
from dpgen_jax.core.types import EMPTY
from dpgen_jax.data import csv_files, growing, mapped
from dpgen_jax.data.base import Dataset, frozen, locate, safe_name
from dpgen_jax.data.parsing import Cells, Coded, coded, private_notes
from dpgen_jax.data.schema import Schema
from dpgen_jax.data.transform import encode

WIDE = 1000
"""The categories of a column that are many."""
VALUE_BYTES, CODE_BYTES = 4, 8
"""The bytes of an encoded value, and beside it while its block is encoded."""


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
    return of_files(path_text, schema, test_csv,
                    lambda path: csv_files.blocks(path, dialect=schema.dialect))


def of_files(path_text: str, schema: Schema, test_path: str | None,
             blocks: Callable[[Path], Iterator[Cells]]) -> Dataset:
    """Loads a table that lies in a file of rows.

    Args:
        path_text: The file.
        schema: The schema.
        test_path: The file of the held-out part, alike; or None.
        blocks: From a file to its cells, some rows at a time.

    Returns:
        The data set.

    Raises:
        UserError: As `csv`.
    """
    path = locate(path_text)

    def rows(place: Path) -> Iterator[Coded]:
        for number, block in enumerate(blocks(place)):
            if not number:
                _require_room(place, schema, block)
            yield coded(schema, block)

    test = None if test_path is None else rows(locate(test_path))
    name = schema.name or re.sub(r"(\.csv|\.parquet)?(\.gz)?$", "", path.name)
    return dataclasses.replace(table(name, schema, rows(path), test),
                               content=reading.content_of(path))


def table(name: str, schema: Schema, train: Iterable[Coded], test: Iterable[Coded] | None,
          notes: Iterable[str] = ()) -> Dataset:
    """Encodes parts that were read by one schema, block by block.

    Args:
        name: The name of the data set.
        schema: The schema.
        train: The rows of the training part, in blocks, of which there is one at least.
        test: The held-out part, alike; or None.
        notes: Public lines on how the data were read.

    Returns:
        The data set.

    Raises:
        UserError: The encoded values would not fit into memory.
    """
    x, y, private = _encoded(name, schema, train)
    x_test = y_test = None
    if test is not None:
        x_test, y_test, more = _encoded(name, schema, test, len(y))
        private += more
        if (labelled := y_test != EMPTY).sum() < len(y_test):
            x_test, y_test = x_test[labelled], y_test[labelled]
    private = (*growing.notes(x, x_test), *private)
    if x_test is not None and y_test is not None:
        x_test, y_test = frozen(x_test, np.float32), frozen(y_test, np.int32)
    return Dataset(
        safe_name(name), schema.spec, frozen(x, np.float32), frozen(y, np.int32), x_test, y_test,
        ("column names, kinds, bounds, categories and classes are those of the schema",
         *notes, *schema.notes),
        private, schema.bought, uncovered=schema.uncovered)


def _require_room(path: Path, schema: Schema, block: Cells) -> None:
    """Refuses at the first rows what the whole file would not have room for, by its size."""
    encoding = schema.dialect.encoding
    size = sum(len(cell.encode(encoding, "replace")) + 1
               for cells in block.columns.values() for cell in cells)
    rows = path.stat().st_size * len(block.rows) / max(1, size)
    (width,) = schema.spec.shape
    mapped.require_memory(f"{path.name}: about {rows:,.0f} rows of {width:,} encoded values"
                          f"{_codes_instead(schema)}", VALUE_BYTES * width * rows)


def _codes_instead(schema: Schema) -> str:
    """Returns what to do about the widest column, if it is one of very many categories."""
    widest = max(schema.spec.columns, key=lambda column: column.width)
    return (f" (column {widest.name} has {widest.width:,} of them; kind: codes makes one of it)"
            if widest.width > WIDE else "")


def _encoded(name: str, schema: Schema, blocks: Iterable[Coded], others: int = 0
             ) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Encodes a part whose number of rows is known at its end.

    Args:
        name: The name of the data set.
        schema: The schema.
        blocks: The rows of the part.
        others: The rows of the parts before it, which were read too.

    Returns:
        x float32 [n, F], y int32 [n], and lines for the data holder alone.
    """
    (width,) = schema.spec.shape
    codes = _codes_instead(schema)
    classes, n = [], 0
    changes: Counter[tuple[str, str]] = collections.Counter()
    with _clock(name) as clock, growing.Rows(width) as rows:
        for block in blocks:
            n += len(block.y)
            mapped.require_memory(
                f"{name}: {others + n:,} rows of {width:,} encoded values{codes}",
                width * VALUE_BYTES * (others + n), width * CODE_BYTES * len(block.y))
            encoded = encode(schema.spec, block.codes)
            encoded[block.y == EMPTY] = 0
            rows.add(encoded)
            classes.append(block.y)
            changes.update(block.changes)
            clock.update()
        x = rows.all()
    y, label = np.concatenate(classes), schema.spec.label if schema.spec.labelled else None
    return x, y, private_notes(block.source, changes, label, y)


def _clock(name: str) -> tqdm:
    """Returns what shows how long reading takes, each ten seconds; of subjects' rows no number."""
    live = sys.stderr.isatty()
    return tqdm(desc=f"reading {name}", delay=10, mininterval=1 if live else 10,
                bar_format="{desc}: {elapsed} gone" + "\n" * (not live))
