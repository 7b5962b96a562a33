"""Tables of which one person has many rows: `--unit COLUMN --rows-per-unit K`.

The column names the subject of each row. It is not a feature, and its cells are hashed as they are
read. A run keeps at most K rows of each subject; the proof is in `private.records.by_subject`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen_jax.core.errors import listed, nearest, option, quoted
from dpgen_jax.core.files import content_of, require_memory
from dpgen_jax.core.types import EMPTY, Subjects, TableSpec, UserError
from dpgen_jax.data.base import Dataset, frozen, locate
from dpgen_jax.data.table import frames as parquets
from dpgen_jax.data.table import parsing, tables
from dpgen_jax.data.table import schema as schemas
from dpgen_jax.data.table.columns import NULLS, UNREAD
from dpgen_jax.data.table.parsing import Cells, Coded, coded
from dpgen_jax.data.table.schema import ENCODING, Schema

if TYPE_CHECKING:
    import pandas as pd

MOST = 10_000
"""The largest number of rows of a subject: each has so many places in memory."""
ID_BYTES = 16
PLACE_BYTES = 12
"""The bytes that an encoded value takes at its unit, dealt and on its device."""
Source = str | Path | Mapping[str, Any]
"""A schema's file or name, or a dict as such a file holds it."""


def csv(place: str, schema: Source, test_csv: str | None, column: str, rows: int) -> Dataset:
    """Loads a CSV file whose rows belong to subjects.

    Args:
        place: The file, as `tables.csv` takes it, with the column of the subjects.
        schema: The schema; it need not declare the column.
        test_csv: The file of the held-out part, of other subjects; or None.
        column: The column of the subjects.
        rows: k, the most rows of a subject that are kept.
    """
    form = without(schema, column)[0].dialect
    return _of_files(lambda path: parsing.csv_blocks(path, dialect=form), place, schema, test_csv,
                     (column, rows))


def parquet(place: str, schema: Source, test_file: str | None, column: str, rows: int) -> Dataset:
    """Loads a Parquet file whose rows belong to subjects; it takes what `csv` does."""
    spec = _with_unit(schema, column)
    return _of_files(lambda path: parquets.parquet_blocks(path, spec), place, schema, test_file,
                     (column, rows))


def _with_unit(schema: Source, column: str) -> TableSpec:
    """Returns the schema by which typed values become texts, those of the units among them."""
    spec = without(schema, column)[0].spec
    return dataclasses.replace(spec, left_out=tuple(
        name for name in spec.left_out if name != column))


def _of_files(blocks: Callable[[Path], Iterator[Cells]], place: str, schema: Source,
              test: str | None, unit: tuple[str, int]) -> Dataset:
    """Loads a file of rows, and that of the held-out part, by what yields the cells of a file."""
    path = locate(place)
    held_out = None if test is None else blocks(locate(test))
    name = re.sub(r"(\.csv|\.parquet)?(\.gz)?$", "", path.name)
    data = table(name, schema, blocks(path), held_out, *unit)
    return dataclasses.replace(data, content=content_of(path))


def from_frame(frame: pd.DataFrame, schema: Source, column: str, rows: int) -> Dataset:
    """Loads a pandas frame whose rows belong to subjects; the rest is as `csv` takes it."""
    cells = parquets.cells_of_frame("frame", frame, _with_unit(schema, column))
    parquets.require_one_type(frame, column)
    data = table("frame", schema, [cells], None, column, rows)
    return dataclasses.replace(data, content=parquets.content_of_frame(frame))


def table(name: str, schema: Source, train: Iterable[Cells], test: Iterable[Cells] | None,
          column: str, rows: int) -> Dataset:
    """Encodes blocks of cells of a table whose rows belong to subjects; the rest is as of `csv`."""
    declared, notes = without(schema, column)
    owners: list[str] = []
    others: list[str] = []  # without a row that has no class: it is not in the held-out part

    def part(blocks: Iterable[Cells], names: list[str]) -> Iterator[Coded]:
        for block in blocks:
            cells, block_names = split(block, column, declared)
            codes = coded(declared, cells)
            names += [name for name, y in zip(block_names, codes.y, strict=True)
                      if y != EMPTY or names is owners]
            yield codes

    notes = (*notes, f"the unit is the column {column}: at most {rows} rows of each of its values "
             "are kept, by a keyed hash")
    data = tables.table(name, declared, part(train, owners),
                        None if test is None else part(test, others), notes)
    subjects = numbered(column, rows, owners, None if test is None else others)
    require_memory(f"{name}: {subjects.count:,} units of {rows:,} rows",
                   PLACE_BYTES * subjects.count * rows * data.x_train.shape[1])
    return dataclasses.replace(data, subjects=subjects,
                               private_notes=(*data.private_notes, *left_out(subjects)))


def required(column: str | None, rows: int | None) -> tuple[str, int]:
    """Returns both options, of which neither may be missing or mean nothing."""
    if column is None or not column.strip():
        raise UserError(f"{option('rows_per_unit')} needs {option('unit', 'COLUMN')}, the column "
                        "that names the person, the household or other unit of each row")
    if rows is None:
        raise UserError(f"{option('unit', column)} needs {option('rows_per_unit', 'K')}, the most "
                        "rows of a unit that are kept; choose it without looking at the records, "
                        "since it is public")
    if not 1 <= rows <= MOST:
        raise UserError(f"{option('rows_per_unit', rows)}: give a whole number from 1 to {MOST:,}")
    return column.strip(), rows


def without(source: Source, column: str) -> tuple[Schema, tuple[str, ...]]:
    """Reads a schema whose features are without the column of the subjects.

    Returns:
        The schema, and public notes on what was removed from it.
    """
    if isinstance(source, Schema):
        raise UserError(f"{option('unit', column)}: give the path of a schema, or a dict, in place "
                        "of a schema that is read already")
    if isinstance(source, Mapping):
        document, source = schemas.texts(source), "schema"
    else:
        source = str(source)
        packaged = source in schemas.NAMES and not Path(source).is_file()
        document = schemas.document(
            str(schemas.PACKAGED / f"{source}.yaml") if packaged else source)
    columns: Any = document.get("columns") if isinstance(document, dict) else None
    entries = columns.get(column) if isinstance(columns, dict) else None
    kind = entries.get("kind") if isinstance(entries, dict) else None
    if entries is None or kind in UNREAD:  # whose cells are never read
        return schemas.parse(document, source), ()
    if document.get("label") == column:
        raise UserError(f"{option('unit', column)} is the label of {source}; a unit cannot be what "
                        "is learned, so name another column or declare another label")
    if any(_of(entry, column) for entry in document.get("bought") or ()):
        raise UserError(f"{source}: entries of column {column} were bought at the level of single "
                        "rows, which does not cover all rows of a unit; remove the column from the "
                        "schema, and mind that the purchase stays spent")
    left = {name: entry for name, entry in columns.items() if name != column}
    lists = {}
    if isinstance(document.get("read_from_data"), list):
        lists["read_from_data"] = [entry for entry in document["read_from_data"]
                                   if not _of(entry, column)]
    note = f"column {column} is declared in the schema, and removed from the features"
    return schemas.parse({**document, "columns": left, **lists}, source), (note,)


def _of(entry: object, column: str) -> bool:
    """Whether an entry of a list of a schema, as `age.min`, is of this column."""
    name = entry.get("entry", "") if isinstance(entry, dict) else entry
    return name != ENCODING and str(name).rpartition(".")[0] == column


def split(cells: Cells, column: str, schema: Schema | None = None) -> tuple[Cells, list[str]]:
    """Takes the names of the subjects, one of each row, from a table.

    The schema by which the rest is read may declare the column as one that is never read, and then
    the column stays.
    """
    if column not in cells.columns:
        raise UserError(f"{cells.source}: {option('unit', quoted(column))}: no such "
                        f"column{nearest(column, cells.columns)}; known: {listed(cells.columns)}")
    names = cells.columns[column]
    for row, name in zip(cells.rows, names, strict=True):
        if name in NULLS:
            raise UserError(f"{cells.source}, {row}, column {column}: {name!r} is null, and each "
                            "row needs its unit; fill it in, or leave the row out")
    unread = {*(identifier.name for identifier in schema.spec.identifiers),
              *schema.spec.left_out} if schema else set()
    left = {name: texts for name, texts in cells.columns.items()
            if name != column or name in unread}
    return dataclasses.replace(cells, columns=left), names


def numbered(column: str, rows: int, train: Iterable[str], test: Iterable[str] | None = None
             ) -> Subjects:
    """Numbers subjects in the order in which they come.

    Args:
        column: The column of the subjects.
        rows: k, the most rows of a subject that are kept.
        train: The subject of each training row.
        test: The subject of each held-out row, or None. None of them has training rows.
    """
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(name, len(places)) for name in train], np.int32)
    others: dict[str, int] = {}
    held_out = None if test is None else np.array(
        [others.setdefault(name, len(others)) for name in test], np.int32)
    both = len(others.keys() & places.keys())
    if both:
        raise UserError(f"{option('unit', column)}: {both:,} of the {len(others):,} units of the "
                        "held-out part have rows in the training part too; give all rows of a "
                        f"unit to one part, or hold out units by {option('test_fraction')}")
    ids = np.frombuffer(b"".join(
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()
        for name in places), np.uint8).reshape(-1, ID_BYTES)
    return Subjects(column, rows, ids, frozen(codes, np.int32),
                    None if held_out is None else frozen(held_out, np.int32))


def left_out(subjects: Subjects) -> tuple[str, ...]:
    """Returns a line for the data holder on the rows that are beyond the limit."""
    sizes = np.bincount(subjects.train, minlength=subjects.count)
    more = sizes > subjects.rows
    if not more.any():
        return ()
    return (f"{more.sum():,} of {subjects.count:,} units ({subjects.column}) have more than "
            f"{subjects.rows} rows; {(sizes[more] - subjects.rows).sum():,} of "
            f"{len(subjects.train):,} rows are left out",)
