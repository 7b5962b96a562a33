"""Synthetic rows as a pandas frame, whose columns have the types that the schema declares."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.table import constraints, transform
from dpgen_jax.data.table.columns import (
    PLAIN,
    TEXTS,
    TICKS,
    WHOLE,
    WITHOUT_NULLS,
    default_type,
    numbers_of,
    type_choices,
)

if TYPE_CHECKING:
    import pandas as pd


def to_frame(spec: TableSpec, codes: np.ndarray, y: np.ndarray, first: int = 0) -> pd.DataFrame:
    """Makes a pandas frame of codes.

    Names that a caller's frame had as whole numbers (`TableSpec.numbered`) are whole numbers again.
    A column is of the type that its schema declares as `dtype`. Without one numbers are float64
    and int64 (Int64 if nullable), categories pandas' own, booleans bool (boolean if nullable),
    dates datetime64, durations timedelta64; texts are times, numbers with a unit, and identifiers.
    Synthetic rows come from `constraints.finished`.

    Args:
        spec: The schema.
        codes: float64 [n, columns].
        y: Classes int [n].
        first: How many rows of the table were made before, so that identifiers differ.

    Raises:
        UserError: pandas is not installed, or a pattern has too few identifiers.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("a frame needs pandas; pip install 'dpgen_jax[pandas]'") from error
    data: list[tuple[str, Any]] = [(column.name, series(column, values))
                                   for column, values in constraints.in_order(spec, codes, y)]
    for identifier in spec.identifiers:
        data.insert(identifier.position, (identifier.name, strings(
            constraints.written_identifiers(identifier, first, len(y)), identifier.dtype)))
    return pd.DataFrame(dict(data)).rename(columns={name: int(name) for name in spec.numbered})


def series(column: Column, codes: np.ndarray) -> Any:
    """Returns the codes of a column as what pandas makes a column of.

    Args:
        column: The column.
        codes: float64 [n]; NaN is null.
    """
    import pandas as pd

    dtype, null = column.dtype or default_type(column), np.isnan(codes)
    if column.written == "date" and not re.search("%-?[dj]", column.format):
        codes = _first_days(codes)
    if dtype.startswith("category"):
        return pd.Categorical.from_codes(
            np.where(null, -1, codes).astype(np.int64), type_choices(column, numbers_of(dtype)),
            ordered=column.kind == "ordinal" and column.written != "codes")
    if dtype in TEXTS:
        return strings([text or None for text in transform.texts(column, codes)], dtype)
    if dtype in ("date", "time"):
        return pd.Series([None if missing else getattr(moment, dtype)() for missing, moment in zip(
            null, _python_moments(column, codes), strict=True)], dtype=object)
    if dtype.startswith(("datetime64", "timedelta64")):
        ticks = pd.Series(_ticks(column, codes, dtype)).mask(null)
        return ticks if not column.zone else ticks.dt.tz_localize(
            datetime.UTC).dt.tz_convert(transform.zone_of(column.zone))
    made = pd.Series(_values(column, codes, PLAIN.get(dtype, dtype)))
    return made.astype(dtype).mask(null) if dtype in PLAIN else made


def _first_days(codes: np.ndarray) -> np.ndarray:
    """Returns the first days of the months of dates [n], which are written without a day."""
    months = np.nan_to_num(codes).astype(np.int64).astype("datetime64[D]").astype("datetime64[M]")
    return np.where(np.isnan(codes), np.nan, months.astype("datetime64[D]").astype(np.int64))


def strings(texts: Sequence[str | None], dtype: str) -> Any:
    """Returns texts as what pandas makes a column of.

    Args:
        texts: The texts; None is null.
        dtype: `str`, `string`, or a whole number that the texts are written as.
    """
    import pandas as pd

    if dtype in WHOLE:
        return np.array([int(text or 0) for text in texts], dtype)
    plain = pd.Series(["a"]).dtype  # object of pandas 2, and str of pandas 3
    return pd.Series(texts, dtype="string" if dtype == "string" else plain)


def _values(column: Column, codes: np.ndarray, dtype: str) -> np.ndarray:
    """Returns numbers or truth values; of a null that the type lacks, any."""
    null = np.isnan(codes)
    whole = dtype in WITHOUT_NULLS
    if column.categories:
        made = type_choices(column, dtype)[np.where(null, 0, codes).astype(np.int64)]
        return made if whole else np.where(null, np.nan, made).astype(dtype)
    if whole:
        return np.rint(np.where(null, 0, codes)).astype(dtype)
    exact = transform.rounded(column, codes) if column.kind == "continuous" else codes
    made = exact.astype(dtype)
    # A number is rounded to the next of its type, which lies within the bounds.
    found = made.astype(np.float64)
    above, below = (found > column.high) & (exact <= column.high), (found < column.low) & (
        exact >= column.low)
    return np.where(above, np.nextafter(made, made.dtype.type(-np.inf)), np.where(
        below, np.nextafter(made, made.dtype.type(np.inf)), made))


def _ticks(column: Column, codes: np.ndarray, dtype: str) -> np.ndarray:
    """Returns dates, times and durations in the parts of a second of their type."""
    part = dtype[dtype.index("[") + 1:-1]
    size = min(TICKS[part], 10**6)  # a code keeps no nanoseconds
    seconds = np.nan_to_num(codes) * (transform.DAY if column.written == "date" else 1)
    ticks = np.rint(seconds * size).astype(np.int64) * (TICKS[part] // size)
    return ticks.astype(dtype)


def _python_moments(column: Column, codes: np.ndarray) -> list[datetime.datetime]:
    """Returns dates, or the times of a day, as moments of Python; null as any."""
    seconds = np.nan_to_num(codes) * (transform.DAY if column.written == "date" else 1)
    return [transform.EPOCH + datetime.timedelta(microseconds=round(second * 1e6))
            for second in seconds.tolist()]
