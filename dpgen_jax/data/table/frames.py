"""Typed tables: pandas frames and Parquet files, and the draft of a schema for a frame."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import numbers
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpgen_jax.core import files
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import listed, nearest, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.table import draft, patterns, tables, transform
from dpgen_jax.data.table.columns import NULLS, TYPES, column, declared_type
from dpgen_jax.data.table.parsing import BLOCK_CELLS, CELL_BYTES, Cells, coded, each_once, joined
from dpgen_jax.data.table.schema import Schema

if TYPE_CHECKING:
    import pandas as pd


def from_frame(frame: pd.DataFrame, schema: Schema, test: pd.DataFrame | None = None) -> Dataset:
    """Loads a pandas frame. NaN, None, NaT and NA are null.

    Args:
        frame: A frame with exactly the columns of the schema, in any order. Dates may be texts in
            the declared format, or of pandas' types; booleans likewise.
        schema: The schema.
        test: The held-out part, alike; or None.

    Returns:
        The data set.

    Raises:
        UserError: As `tables.csv`, with the row of the frame.
    """
    spec = schema.spec
    held_out = None if test is None else [coded(schema, cells_of_frame("test frame", test, spec))]
    data = tables.table("frame", schema, [coded(schema, cells_of_frame("frame", frame, spec))],
                        held_out)
    return dataclasses.replace(data, content=content_of_frame(frame))


def content_of_frame(frame: pd.DataFrame) -> str:
    """Returns a digest of a frame, whatever its schema. It is as private as the rows."""
    import pandas as pd

    digest = hashlib.sha256(repr([str(name) for name in frame.columns]).encode())
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        cells = column.map(repr) if column.dtype == object else column
        digest.update(pd.util.hash_pandas_object(cells, index=False).to_numpy().tobytes())
    return digest.hexdigest()


def cells_of_frame(source: str, frame: pd.DataFrame, spec: TableSpec | None, first: int = 0,
                   is_draft: bool = False) -> Cells:
    """Returns the cells of a frame, each by its own value (`transform.python_reader`).

    A UserError where it is not a frame, or has two columns of one name, and where values have lost
    the difference between them.

    Args:
        source: Its name, for errors.
        frame: The frame.
        spec: The schema, by which dates and booleans become texts; None for texts as of Python.
        first: The number of its first row.
        is_draft: Whether a schema is drafted of it, of which not all columns are known.
    """
    names = each_once(source, names_of_frame(frame, source))
    rows = [f"row {first + i}" for i in range(len(frame))]
    declared = {column.name: column for column in spec.all_columns} if spec else {}
    columns = {}
    for i, name in enumerate(names):
        columns[name] = [""] * len(rows) if spec and name in spec.left_out else _texts(
            source, name, frame.iloc[:, i], declared.get(name), rows, is_draft)
    return Cells(source, columns, rows)


def names_of_frame(frame: pd.DataFrame, source: str = "frame") -> list[str]:
    """Returns the names of a frame's columns.

    Args:
        frame: The frame.
        source: Its name, for errors.

    Raises:
        UserError: It is not a frame.
    """
    _require_frame(source, frame)
    return [str(name).strip() for name in frame.columns]


def numbered_names(frame: pd.DataFrame) -> tuple[str, ...]:
    """Returns the names of a frame's columns that are whole numbers, as texts."""
    return tuple(str(name) for name in frame.columns
                 if isinstance(name, numbers.Integral) and not isinstance(name, bool))


def _require_frame(source: str, frame: object) -> None:
    """Refuses what is no frame."""
    if not all(hasattr(frame, name) for name in ("columns", "isna")):
        raise UserError(f"{source} is a {type(frame).__name__}; give a pandas DataFrame")


def _texts(source: str, name: str, series: pd.Series, column: Column | None, rows: list[str],
           is_draft: bool) -> list[str]:
    """Returns the cells of a column."""
    values = series.astype(object).where(series.notna(), "").tolist()
    kind = getattr(series.dtype, "numpy_dtype", series.dtype)
    is_float = isinstance(kind, np.dtype) and kind.kind == "f"
    exact = 2.0**(np.finfo(kind).nmant + 1) if is_float else transform.EXACT
    if is_draft and any(isinstance(value, float) and not (
            value.is_integer() and abs(value) < 2**64) for value in values):
        exact = np.inf  # measured values: their last digits do not matter
    if column is None and not is_draft:
        values = [transform.duration_text(value) if isinstance(value, datetime.timedelta) else value
                  for value in values]
    read, texts = transform.python_reader(column, exact), []
    try:
        for value in values:
            texts.append(read(value))
    except (ValueError, OverflowError) as error:  # or Python's: of 5,000 digits, or years
        raise UserError(f"{source}, {rows[len(texts)]}, column {name}: {error}; read it by "
                        f"pandas.read_csv(..., dtype={{{name!r}: 'string'}}), or as 'Int64' where "
                        "these are numbers, or give the file itself") from error
    return texts


def require_one_type(frame: pd.DataFrame, column: str) -> None:
    """Refuses subjects of which some are numbers and some texts: one may be in two of them.

    pandas infers types of some rows of a long file at a time.
    """
    for i, name in enumerate(frame.columns):
        if str(name).strip() == column and len(set(
                frame.iloc[:, i].dropna().map(lambda value: isinstance(value, str)))) > 1:
            raise UserError(f"frame, column {column}: some units are texts and some are none, so "
                            "that one may be there as both, as 7 and 007; read it by "
                            f"pandas.read_csv(..., dtype={{{column!r}: 'string'}})")


def of_seconds(series: pd.Series) -> bool:
    """Returns whether all durations of a column, pandas' or Python's, are whole seconds."""
    import pandas as pd

    rest = pd.to_timedelta(series.dropna()) % pd.Timedelta(1, "s")
    return bool((rest == pd.Timedelta(0)).all())


OBJECTS = {"string": "str", "date": "date", "time": "time", "timedelta": "timedelta64[us]"}
"""Types of columns of objects, by what pandas infers of their values."""


def draft_schema(frame: pd.DataFrame, label: str | int | None = None, *, unit: str | None = None,
                 types_declared: bool = False) -> Json:
    """Drafts the schema of a frame: a dict to edit, which `fit` takes as `schema`.

    What it says of the columns is read from the rows, and no epsilon covers it: `read_from_data`
    lists these entries, and `fit` refuses them until they are declared from what is known without
    the rows and taken off that list, or `accept_uncovered` says that they may be published.

    Args:
        frame: The frame.
        label: The column of the classes; None for rows without classes.
        unit: The column that names the person or household of each row, which is left out of the
            schema, as `fit` takes it.
        types_declared: Whether the types of pandas count as declared: the `dtype` of each column
            but those of objects, the kind of a whole number and of a truth value, and a Categorical
            with all its categories. That is right only where they were chosen without a look at the
            rows: pandas itself infers types from them.

    Returns:
        The document of the schema.

    Raises:
        UserError: It is not a frame, or naming the column at fault.
    """
    _require_frame("frame", frame)
    label = None if label is None else str(label)
    if unit is not None:
        frame = _without(frame, unit)
    types = {str(name).strip(): _type(frame.iloc[:, i]) for i, name in enumerate(frame.columns)}
    durations = [name for i, name in enumerate(types) if types[name].startswith("timedelta64")
                 and name != label and of_seconds(frame.iloc[:, i])]
    cells = cells_of_frame("frame", frame, draft.with_durations(durations), is_draft=True)
    known = {str(name).strip(): _known(frame.iloc[:, i], str(name).strip() == label)
             for i, name in enumerate(frame.columns)} if types_declared else {}
    drafted = draft.draft(cells, label, known, types)
    made = drafted.document
    of_types = {f"{str(name).strip()}.dtype" for name, dtype in zip(
        frame.columns, frame.dtypes, strict=True) if types_declared and str(dtype) != "object"}
    made["read_from_data"] = [entry for entry in made["read_from_data"] if entry not in of_types]
    read = made["read_from_data"]
    counted = "" if types_declared else (
        "; the types of pandas are not counted as declared: if they were chosen without the rows, "
        "say types_declared=True")
    if read:
        tell(f"note: {len(read)} entries of this draft were read from the rows, and no epsilon "
             "covers them: declare them, and take them off read_from_data" + counted, sys.stderr)
    for name, remark in drafted.remarks.items():
        others = f"; or write {' or '.join(remark.instead)}" * bool(remark.instead)
        tell(f"private: column {name} is of kind {made['columns'][name]['kind']}: {remark.why}"
             f"{others}", sys.stderr)
    return patterns.condensed(made)


def _without(frame: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Returns a frame without the column of the units."""
    names = names_of_frame(frame)
    if unit not in names:
        raise UserError(f"{option('unit', unit)}: no such column{nearest(unit, names)}; known: "
                        f"{listed(names)}")
    return frame.iloc[:, [i for i, name in enumerate(names) if name != unit]]


def _type(series: pd.Series) -> str:
    """Returns the name of a column's type, as `columns` has it; of objects by their values."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        values = series.cat.categories
        return "category" if values.dtype.kind not in "biuf" else f"category[{values.dtype}]"
    if isinstance(series.dtype, pd.ArrowDtype):
        return _arrow_type(str(series.dtype.pyarrow_dtype))
    if series.dtype == object:
        return OBJECTS.get(pd.api.types.infer_dtype(series), "")
    return re.sub(r", .*\]", "]", str(series.dtype))  # without a zone


def _known(series: pd.Series, is_label: bool) -> Json:
    """Returns the entries of a column that its type declares."""
    import pandas as pd

    kind = series.dtype
    if isinstance(kind, pd.CategoricalDtype):
        return {"kind": "ordinal" if kind.ordered and not is_label else "categorical",
                "categories": [transform.python_text(text, None) for text in kind.categories]}
    if kind.kind == "b":
        has_null = {} if hasattr(kind, "na_value") else {"nullable": "false"}
        return {"kind": "categorical" if is_label else "boolean", "categories": ["False", "True"]
                } | ({} if is_label else has_null)
    if zone := zone_of_type(kind):
        return {"zone": zone}
    if kind.kind not in "iu" or is_label:
        return {}
    return {"kind": "integer"} | ({} if hasattr(kind, "na_value") else {"nullable": "false"})


def typed(document: Json, frame: pd.DataFrame, label: str | None) -> Json:
    """Returns the document of a schema, with what the types of a frame declare of other columns.

    A Categorical and a column of truth values are declared as a whole, and of others the type and
    the time zone.

    Args:
        document: The document; of columns that it has, nothing is changed.
        frame: The frame.
        label: The column of the classes, where it is stated.

    Raises:
        UserError: It is not a frame.
    """
    declared = document.get("columns", {})
    label = document.get("label", label)
    columns: Json = {name: declared.get(name) or _of_type(frame.iloc[:, i], name, name == label)
                     for i, name in enumerate(names_of_frame(frame))}
    label_of = {"label": label} if label and "categories" in columns.get(label, {}) else {}
    return label_of | document | {"columns": columns | declared}


def _of_type(series: pd.Series, name: str, is_label: bool) -> Json:
    """Returns the entries of a column that its type declares; a label needs two classes."""
    if series.dtype == object:
        return {}
    made, dtype = _known(series, is_label), _type(series)
    categories = made.get("categories", [])
    is_sound = len({*categories} - NULLS) == len(categories) >= 1 + is_label
    if "categories" in made and is_sound:
        odd = {"odd": "null"} if is_label else {"nullable": "true", "odd": "null"}
        made = odd | made | ({"odd": "False"} if made.get("nullable") == "false" else {})
        declared = declared_type(column(name, made), dtype)
        return made | ({"dtype": declared} if declared else {})
    zone = zone_of_type(series.dtype)
    return ({"dtype": dtype} if dtype in TYPES else {}) | ({"zone": zone} if zone else {})


def zone_of_type(dtype: object) -> str:
    """Returns the name of the time zone of a type of pandas; empty where it has no such name."""
    zone = str(getattr(dtype, "tz", None) or getattr(
        getattr(dtype, "pyarrow_dtype", None), "tz", None) or "")
    zone = re.sub(r"^UTC(?=[+-])", "", zone)
    return zone if zone and transform.zone_of(zone) is not None else ""


ARROW = {"halffloat": "float16", "float": "float32", "double": "float64", "string": "str",
         "large_string": "str", "date32": "date", "date64": "date", "time32": "time",
         "time64": "time"}
"""Types by Arrow's names, where they have other names."""


def parquet(path_text: str, schema: Schema, test_path: str | None = None) -> Dataset:
    """Loads a Parquet file with exactly the columns of the schema, in any order.

    Nulls and NaN are null; dates may be texts in the declared format too. The rest is as of
    `tables.csv`, with the row of the file, from 0, in errors.
    """
    return tables.of_files(path_text, schema, test_path,
                           lambda path: parquet_blocks(path, schema.spec))


def read_parquet(path: Path, spec: TableSpec | None = None, is_draft: bool = True) -> Cells:
    """Reads all cells of a Parquet file into memory, for a draft of its schema.

    A UserError for cells that would take more memory than is allowed.
    """
    parts, count = [], 0
    for part in parquet_blocks(path, spec, is_draft):
        count += len(part.rows) * len(part.columns)
        files.require_memory(f"{path}: a table of {count:,} cells", CELL_BYTES * count)
        parts.append(part)
    return joined(parts)


def parquet_names(path: Path) -> list[str]:
    """Returns the names of a Parquet file's columns; no row is read for them.

    Args:
        path: The file.
    """
    with _readable(path):
        import pyarrow.parquet

        return [name.strip() for name in pyarrow.parquet.read_schema(path).names]


def parquet_types(path: Path) -> dict[str, str]:
    """Returns the types of a Parquet file's columns by name, as `columns` names them.

    They are facts of the file, and as private as it is. One that has no such name is left out.
    """
    with _readable(path):
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(path)
    named = {name.strip(): _arrow_type(str(kind)) for name, kind in zip(
        schema.names, schema.types, strict=True)}
    return {name: kind for name, kind in named.items() if kind}


def parquet_durations(path: Path) -> list[str]:
    """Returns the columns of a Parquet file whose values are durations of whole seconds."""
    with _readable(path):
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(path)
        return [name.strip() for name, kind in zip(schema.names, schema.types, strict=True)
                if _arrow_type(str(kind)).startswith("timedelta64") and of_seconds(
                    pyarrow.parquet.read_table(path, columns=[name])[name].to_pandas())]


def _arrow_type(arrow: str) -> str:
    """Returns the type of a column by Arrow's name of it, or an empty text."""
    base, _, rest = arrow.partition("[")
    if base in ("timestamp", "duration"):
        unit = rest.rstrip("]").partition(",")[0]
        return f"{'datetime64' if base == 'timestamp' else 'timedelta64'}[{unit}]"
    if arrow.startswith("dictionary<values=string"):
        return "category"
    return ARROW.get(base, base)


def parquet_blocks(path: Path, spec: TableSpec | None, is_draft: bool = False) -> Iterator[Cells]:
    """Yields the cells of a Parquet file, some rows at a time; of one without rows an empty block.

    The schema and `is_draft` are those of `cells_of_frame`.
    """
    first = 0
    with _readable(path):
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            rows = max(1, BLOCK_CELLS // max(1, len(file.schema_arrow.names)))
            batches = (file.iter_batches(rows) if file.metadata.num_rows
                       else [file.schema_arrow.empty_table()])
            for batch in batches:
                frame = batch.to_pandas(integer_object_nulls=True, ignore_metadata=True)
                yield cells_of_frame(str(path), frame, spec, first, is_draft)
                first += len(frame)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Makes one line of what fails within, where a Parquet file is read."""
    files.require_parquet()
    import pyarrow

    files.require_regular(path)
    try:
        yield
    except UserError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # of dates too
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} cannot be read as Parquet ({reason}); write it again") from error
