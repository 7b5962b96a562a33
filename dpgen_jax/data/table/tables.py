"""Tables with a declared schema: `csv:FILE`, and public ones with packaged schemas.

Encoded rows come in blocks, and their number is known only after the last block (`Rows`). A table
of less than `base.LARGE_ARRAY` bytes is in memory. The rows of a larger one are written, as they
come, to a file without a name in the cache folder, and mapped: a process then needs memory for a
block, and for the records that it deals to its units. A table that comes in one block, as a frame
does, is in memory as a whole anyway and stays there: it is never written to a disk.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from tqdm import tqdm

from dpgen_jax.core import files
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data import base, cache
from dpgen_jax.data.base import Dataset, frozen, locate, safe_name
from dpgen_jax.data.table import parsing, schema
from dpgen_jax.data.table.parsing import Cells, Coded, coded, private_notes
from dpgen_jax.data.table.schema import Schema
from dpgen_jax.data.table.transform import encode


class Rows:
    """Rows float32 [n, F] that grow; a context manager, which leaves no file open."""

    def __init__(self, width: int):
        """Begins without a row of F values."""
        self._rows = np.empty((0, width), np.float32)
        self._count = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Rows:
        """Returns the rows."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Closes the file, which is then deleted unless `all` mapped it."""
        if self._file is not None:
            self._file.close()

    def add(self, rows: np.ndarray) -> None:
        """Adds a block, float [m, F].

        A UserError where the rows are large, and the cache folder cannot be written.
        """
        first, self._count = self._count, self._count + len(rows)
        width = self._rows.shape[1]
        if self._file is None and first and (
                self._count * width * self._rows.itemsize >= base.LARGE_ARRAY):
            self._file = cache.nameless()
            self._write(self._rows[:first])
            self._rows = np.empty((0, width), np.float32)
        if self._file is not None:
            self._write(np.ascontiguousarray(rows, np.float32))
            return
        if self._count > len(self._rows):  # in place: no second copy
            self._rows.resize((self._count + first // 8, width), refcheck=False)
        self._rows[first:self._count] = rows

    def all(self) -> np.ndarray:
        """Returns all rows, float32 [n, F], read-only if they are mapped; none is added after."""
        shape = self._count, self._rows.shape[1]
        if self._file is not None:
            return base.mapped_array(self._file, self._rows.dtype, 0, shape)
        self._rows.resize(shape, refcheck=False)
        return self._rows

    def _write(self, rows: np.ndarray) -> None:
        """Writes rows behind those that are in the file."""
        left = rows.reshape(-1).view(np.uint8).data
        try:
            while left and self._file:  # one call may write a part
                left = left[self._file.write(left):]
        except OSError as error:
            raise cache.unusable(cache.location(), error) from error


def notes_of_rows(*parts: np.ndarray | None) -> tuple[str, ...]:
    """Returns the line for the data holder on where rows lie, where `Rows` put them on a disk."""
    if not any(isinstance(rows, np.memmap) for rows in parts):
        return ()
    return (f"encoded rows lie in a file without a name under {cache.location()}, until this "
            "process ends",)


WIDE = 1000
"""A column has very many categories if it has more than this."""
VALUE_BYTES, CODE_BYTES = 4, 8
"""The bytes of an encoded value, and those that it takes in addition while its block is encoded."""


def csv(path_text: str, schema: Schema, test_csv: str | None = None) -> Dataset:
    """Loads a CSV file (UTF-8 and commas, or as the schema says; one line of column names; or .gz).

    It has exactly the columns of the schema, in any order, and so has the file of the held-out
    part. Spaces around a cell do not count; an empty cell, NA, NaN, null and ? are null. A
    UserError names the line and the column; it may quote the cell, so it is for the data holder
    only.
    """
    return of_files(path_text, schema, test_csv,
                    lambda path: parsing.csv_blocks(path, dialect=schema.dialect))


def of_files(path_text: str, schema: Schema, test_path: str | None,
             blocks: Callable[[Path], Iterator[Cells]]) -> Dataset:
    """Loads a table that lies in a file of rows, which `blocks` reads as cells, some at a time.

    The rest is as of `csv`.
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
                               content=files.content_of(path))


def table(name: str, schema: Schema, train: Iterable[Coded], test: Iterable[Coded] | None,
          notes: Iterable[str] = ()) -> Dataset:
    """Encodes parts that were read by one schema, block by block.

    Args:
        name: The name of the data set.
        schema: The schema.
        train: The rows of the training part, in blocks, of which there is one at least.
        test: The held-out part, alike; or None.
        notes: Public lines on how the data were read.
    """
    x, y, private = _encoded(name, schema, train)
    x_test = y_test = None
    if test is not None:
        x_test, y_test, more = _encoded(name, schema, test, len(y))
        private += more
        if (labelled := y_test != EMPTY).sum() < len(y_test):
            x_test, y_test = x_test[labelled], y_test[labelled]
    private = (*notes_of_rows(x, x_test), *private)
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
    base.require_mapped_memory(f"{path.name}: about {rows:,.0f} rows of {width:,} encoded values"
                               f"{_codes_instead(schema)}", VALUE_BYTES * width * rows)


def _codes_instead(schema: Schema) -> str:
    """Returns what to do about the widest column, if it is one of very many categories."""
    widest = max(schema.spec.columns, key=lambda column: column.width)
    return (f" (column {widest.name} has {widest.width:,} of them; kind: codes makes one of it)"
            if widest.width > WIDE else "")


def _encoded(name: str, schema: Schema, blocks: Iterable[Coded], others: int = 0
             ) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Encodes a part whose number of rows is known at its end.

    `others` counts the rows of the parts before it.

    Returns:
        x float32 [n, F], y int32 [n], and lines for the data holder only.
    """
    (width,) = schema.spec.shape
    codes = _codes_instead(schema)
    classes, n = [], 0
    changes: Counter[tuple[str, str]] = collections.Counter()
    with _clock(name) as clock, Rows(width) as rows:
        for block in blocks:
            n += len(block.y)
            base.require_mapped_memory(
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


TRAIN_PART = 0.8
PUBLIC = ("public data",)


def breast_cancer() -> Dataset:
    """Loads scikit-learn's Wisconsin Diagnostic data.

    It has 455 train and 114 test rows of 30 numbers, by a fixed random split; the classes are
    malignant and benign.
    """
    from sklearn.datasets import load_breast_cancer  # slow to import

    source = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(source.data))
    train, test = ([Coded(source.data[rows], source.target[rows])]
                   for rows in np.split(order, [int(TRAIN_PART * len(order))]))
    return table("breast_cancer", schema.packaged("breast_cancer"), train, test, PUBLIC)


def adult(path: str) -> Dataset:
    """Loads the UCI layout: adult.data and adult.test, plain or .gz; classes <=50K and >50K."""
    folder, declared = locate(path), schema.packaged("adult")
    names = [column.name for column in declared.spec.columns] + [declared.spec.label.name]
    train, test = ([coded(declared, _adult_part(folder, name, names))]
                   for name in ("adult.data", "adult.test"))
    return table("adult", declared, train, test, PUBLIC)


def _adult_part(folder: Path, name: str, names: list[str]) -> Cells:
    """Reads a part, without the remark of adult.test's first line and the dots of its labels."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            cells = parsing.read_csv(path, names, remark="|")
            label = [text.removesuffix(".") for text in cells.columns[names[-1]]]
            return dataclasses.replace(cells, columns={**cells.columns, names[-1]: label})
    raise UserError(f"{folder / name}[.gz] is missing; put it there or correct the folder")
