"""Tables with a declared schema: `csv:FILE`, pandas frames, and both ways back."""

from __future__ import annotations

import csv as files
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpgen_jax import reading
from dpgen_jax.data.base import Dataset, frozen, locate, quoted, safe_name
from dpgen_jax.data.parsing import Cells, Coded, coded
from dpgen_jax.data.schema import Schema
from dpgen_jax.data.transform import encode
from dpgen_jax.types import Column, TableSpec, UserError

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 6  # significant digits of a number that is written
TEXT_SHARE = 4  # of what is allowed, a quarter may be the text of a file
CELL_BYTES, LINE_BYTES = 100, 300
"""that a cell takes beside its letters, as a text in the lists of its row and its column, and a
line beside its cells"""
VALUE_BYTES = 12
"""of an encoded value, as float64 and as float32"""


def csv(given: str, schema: Schema, test_csv: str | None = None) -> Dataset:
    """A CSV file (UTF-8, commas, one line of column names; or .gz), and one of the held-out part.

    Both hold exactly the columns of the schema, in any order. Spaces around a cell do not count; an
    empty cell, NA, NaN, null and ? are null. Errors: UserError naming the line and the column; it
    may quote the cell, so it is for the data holder only.
    """
    path = locate(given)
    test = None if test_csv is None else coded(schema, read(locate(test_csv)))
    return table(path.name.removesuffix(".gz").removesuffix(".csv"), schema,
                 coded(schema, read(path)), test)


def table(name: str, schema: Schema, train: Coded, test: Coded | None,
          notes: Iterable[str] = ()) -> Dataset:
    """The encoded data set of parts that were read by one schema."""
    parts, (width,) = [None, None], schema.spec.shape
    rows = sum(len(part.y) for part in (train, test) if part is not None)
    reading.require_memory(f"{name}: {rows:,} rows of {width:,} encoded values",
                           VALUE_BYTES * rows * width)
    for i, part in enumerate((train, test)):
        if part is not None:
            parts[i] = frozen(encode(schema.spec, part.codes), np.float32)
    return Dataset(
        safe_name(name), schema.spec, parts[0], frozen(train.y, np.int32), parts[1],
        None if test is None else frozen(test.y, np.int32),
        ("column names, kinds, bounds, categories and classes are those of the schema",
         *notes, *schema.notes),
        (*train.private_notes, *(test.private_notes if test else ())), schema.bought,
        uncovered=schema.uncovered)


def read(path: Path, header: Sequence[str] | None = None, remark: str | None = None) -> Cells:
    """The cells of a CSV file; header: its column names if the file has no line of them.

    Empty lines are skipped: with two columns or more no record is one, whatever it holds. So is a
    first line that starts with `remark`. Errors: UserError naming the file and the line, or the
    memory that its cells would take, before they are made.
    """
    held = reading.read_bytes(path, reading.allowed_bytes() / TEXT_SHARE)
    rows = held.count(b"\n") + 1
    most = held.count(b",") + rows
    reading.require_memory(f"{path}: a table of {most:,} cells",
                           CELL_BYTES * most + LINE_BYTES * rows + TEXT_SHARE * len(held))
    try:
        file = io.TextIOWrapper(io.BytesIO(held), encoding="utf-8-sig", newline="")
        reader = files.reader(file, skipinitialspace=True, strict=True)
        lines = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read ({error}); give a CSV file in UTF-8, or such a "
                        "file in .gz") from error
    except files.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; mend the quotes") from error
    if remark and lines and lines[0][1][0].startswith(remark):
        del lines[0]
    if header is None:
        header = _header(path, lines.pop(0)[1] if lines else [])
    for line, row in lines:
        if len(row) != len(header):
            raise UserError(f"{path}, line {line}: {len(row)} cells, expected {len(header)}; mend "
                            "the line, or put quotes around a cell that holds a comma")
    columns = zip(*(row for _, row in lines), strict=True) if lines else [[] for _ in header]
    return Cells(str(path), {name: list(map(str.strip, cells)) for name, cells
                             in zip(header, columns, strict=True)},
                 [f"line {line}" for line, _ in lines])


def _header(path: Path, row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if not names:
        raise UserError(f"{path} is empty; its first line must name the columns")
    for mark, word in ((";", "semicolon"), ("\t", "tab"), ("|", "bar")):
        if len(names) == 1 and mark in names[0]:
            raise UserError(f"{path}: the first line is one cell with {word}s; separate the cells "
                            "by commas")
    if "" in names:
        raise UserError(f"{path}: column {names.index('') + 1} has no name; name it in the first "
                        "line")
    return _each_once(str(path), names)


def _each_once(source: str, names: list[str]) -> list[str]:
    seen = set()
    for name in names:
        if name in seen:
            raise UserError(f"{source}: column {quoted(name)} is named twice; rename or remove one")
        seen.add(name)
    return names


def cells(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> tuple[list[str], list[list[str]]]:
    """(column names, rows of text) of codes float64 [n, columns] and classes y int [n].

    The columns of the schema in its order: whole numbers without a point, other numbers to 6
    significant digits within their bounds, null as an empty cell. `csv` reads them back.
    """
    columns = _columns(spec, codes, y)
    texts = [_texts(column, values) for column, values in columns]
    return [column.name for column, _ in columns], [list(row) for row in zip(*texts, strict=True)]


def _columns(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> list[tuple[Column, np.ndarray]]:
    """All columns in the order of the file, with their codes [n]."""
    columns = list(zip(spec.columns, np.asarray(codes, np.float64).T, strict=True))
    columns.insert(spec.label_position, (spec.label, np.asarray(y, np.float64)))
    return columns


def _texts(column: Column, values: np.ndarray) -> list[str]:
    null = np.isnan(values)
    if column.kind == "continuous":
        values = [repr(value) for value in _rounded(column, values).tolist()]
        return ["" if missing else value for missing, value in zip(null, values, strict=True)]
    whole = np.where(null, 0, values).astype(np.int64).tolist()
    return ["" if missing else column.categories[value] if column.categories else str(value)
            for missing, value in zip(null, whole, strict=True)]


def _rounded(column: Column, values: np.ndarray) -> np.ndarray:
    rounded = np.array([float(f"{value:.{DIGITS}g}") for value in values.tolist()])
    return np.clip(rounded, column.low, column.high) + 0.0  # no negative zero


def from_frame(frame: pd.DataFrame, schema: Schema, test: pd.DataFrame | None = None) -> Dataset:
    """The data set of a pandas frame with exactly the columns of the schema, in any order; `test`
    is its held-out part. NaN, None, NaT and NA are null. Errors: as `csv`, with the frame's row."""
    parts = [None if part is None else coded(schema, _frame_cells(name, part))
             for name, part in (("frame", frame), ("test frame", test))]
    return table("frame", schema, *parts)


def _frame_cells(source: str, frame: pd.DataFrame) -> Cells:
    if not all(hasattr(frame, name) for name in ("columns", "isna")):
        raise UserError(f"{source} is a {type(frame).__name__}; give a pandas DataFrame")
    names = _each_once(source, [str(name).strip() for name in frame.columns])
    columns = {name: [_text(cell) for cell in frame.iloc[:, i].astype(object).where(
        frame.iloc[:, i].notna(), "").tolist()] for i, name in enumerate(names)}
    return Cells(source, columns, [f"row {i}" for i in range(len(frame))])


def _text(cell: object) -> str:
    """A whole float as an integer: pandas makes floats of integers with a null among them."""
    whole = isinstance(cell, float) and cell.is_integer()
    return str(int(cell) if whole else cell).strip()


def frame(spec: TableSpec, codes: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """A pandas frame of the same columns: float64, int64 (Int64 if nullable), and categories.

    codes float64 [n, columns], y int [n]. Errors: UserError where pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("a frame needs pandas; pip install 'dpgen_jax[pandas]'") from error
    made = {}
    for column, values in _columns(spec, codes, y):
        null = np.isnan(values)
        if column.kind == "continuous":
            made[column.name] = _rounded(column, values)
        elif column.kind == "integer":
            whole = pd.Series(np.where(null, 0, values).astype(np.int64))
            made[column.name] = whole.astype("Int64").mask(null) if column.nullable else whole
        else:
            made[column.name] = pd.Categorical.from_codes(
                np.where(null, -1, values).astype(np.int64), list(column.categories),
                ordered=column.kind == "ordinal")
    return pd.DataFrame(made)
