"""Tables as pandas frames, and back, in the types that the schema declares (`column_types`)."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data import python_values, tables, typed_columns, writing
from dpgen_jax.data.base import Dataset
from dpgen_jax.data.parsing import Cells, coded, each_once
from dpgen_jax.data.schema import Schema

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
    held_out = None if test is None else [coded(schema, cells("test frame", test, spec))]
    data = tables.table("frame", schema, [coded(schema, cells("frame", frame, spec))], held_out)
    return dataclasses.replace(data, content=content(frame))


def content(frame: pd.DataFrame) -> str:
    """Returns a digest of a frame, whatever its schema. It is as private as the rows.

    Args:
        frame: A frame whose columns each have a name of their own.
    """
    import pandas as pd

    digest = hashlib.sha256(repr([str(name) for name in frame.columns]).encode())
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        cells = column.map(repr) if column.dtype == object else column
        digest.update(pd.util.hash_pandas_object(cells, index=False).to_numpy().tobytes())
    return digest.hexdigest()


def cells(source: str, frame: pd.DataFrame, spec: TableSpec | None, first: int = 0,
          is_draft: bool = False) -> Cells:
    """Returns the cells of a frame, each by its own value (`python_values.reader`).

    Args:
        source: Its name, for errors.
        frame: The frame.
        spec: The schema, by which dates and booleans become texts; None for texts as of Python.
        first: The number of its first row.
        is_draft: Whether a schema is drafted of it, of which not all columns are known.

    Raises:
        UserError: It is no frame, or has two columns of one name; values have lost what tells them
            apart; without a schema, times of a zone.
    """
    if not all(hasattr(frame, name) for name in ("columns", "isna")):
        raise UserError(f"{source} is a {type(frame).__name__}; give a pandas DataFrame")
    names = each_once(source, [str(name).strip() for name in frame.columns])
    rows = [f"row {first + i}" for i in range(len(frame))]
    declared = {column.name: column for column in spec.all_columns} if spec else {}
    columns = {}
    for i, name in enumerate(names):
        if name not in declared and getattr(frame.iloc[:, i].dtype, "tz", None) is not None:
            raise UserError(f"{source}: column {name} has a time zone, which no schema declares; "
                            "make its times those of UTC without one, as .dt.tz_convert(None) does")
        columns[name] = _texts(source, name, frame.iloc[:, i], declared.get(name), rows, is_draft)
    return Cells(source, columns, rows)


def _texts(source: str, name: str, series: pd.Series, column: Column | None, rows: list[str],
           is_draft: bool) -> list[str]:
    """Returns the cells of a column."""
    values = series.astype(object).where(series.notna(), "").tolist()
    kind = getattr(series.dtype, "numpy_dtype", series.dtype)
    is_float = isinstance(kind, np.dtype) and kind.kind == "f"
    exact = 2.0**(np.finfo(kind).nmant + 1) if is_float else python_values.EXACT
    if is_draft and any(isinstance(value, float) and not (
            value.is_integer() and abs(value) < 2**64) for value in values):
        exact = np.inf  # measured values, whose last digits tell nothing apart
    read, texts = python_values.reader(column, exact), []
    try:
        for value in values:
            texts.append(read(value))
    except UserError as error:
        raise UserError(f"{source}, {rows[len(texts)]}, column {name}: {error}; read it by "
                        f"pandas.read_csv(..., dtype={{{name!r}: 'string'}}), or as 'Int64' where "
                        "these are numbers, or give the file itself") from error
    return texts


def require_one_type(frame: pd.DataFrame, column: str) -> None:
    """Refuses subjects of which some are numbers and some texts: one may be in two of them.

    pandas infers types of some rows of a long file at a time.

    Args:
        frame: The frame.
        column: The column of the subjects.

    Raises:
        UserError: They are of several types.
    """
    for i, name in enumerate(frame.columns):
        if str(name).strip() == column and len(set(
                frame.iloc[:, i].dropna().map(lambda value: isinstance(value, str)))) > 1:
            raise UserError(f"frame, column {column}: some units are texts and some are none, so "
                            "that one may be there as both, as 7 and 007; read it by "
                            f"pandas.read_csv(..., dtype={{{column!r}: 'string'}})")


def of_seconds(series: pd.Series) -> bool:
    """Returns whether all durations of a column are whole seconds, as a schema has them.

    Args:
        series: A column of pandas' or Python's durations.
    """
    import pandas as pd

    rest = pd.to_timedelta(series.dropna()) % pd.Timedelta(1, "s")
    return bool((rest == pd.Timedelta(0)).all())


def frame(spec: TableSpec, codes: np.ndarray, y: np.ndarray, first: int = 0) -> pd.DataFrame:
    """Makes a pandas frame of codes.

    A column is of the type that its schema declares as `dtype`. Without one numbers are float64
    and int64 (Int64 if nullable), categories pandas' own, booleans bool (boolean if nullable),
    dates datetime64, durations timedelta64; texts are times, numbers with a unit, and identifiers.
    Synthetic rows come from `finishing.finished`.

    Args:
        spec: The schema.
        codes: float64 [n, columns].
        y: Classes int [n].
        first: How many rows of the table were made before, which identifiers tell apart.

    Raises:
        UserError: pandas is not installed, or a pattern has too few identifiers.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("a frame needs pandas; pip install 'dpgen_jax[pandas]'") from error
    data: list[tuple[str, Any]] = [(column.name, typed_columns.series(column, values))
                                   for column, values in writing.in_order(spec, codes, y)]
    for identifier in spec.identifiers:
        data.insert(identifier.position, (identifier.name, typed_columns.strings(
            writing.identifiers(identifier, first, len(y)), identifier.dtype)))
    return pd.DataFrame(dict(data))
