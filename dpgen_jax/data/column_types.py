"""The types of a table's columns in pandas frames and Parquet files: the `dtype` of a schema.

They are named as pandas names them; `date` and `time` are the values of Python's `datetime`. They
say how values are kept, and change nothing that is learned.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.types import Column, UserError
from dpgen_jax.data import forms, python_values
from dpgen_jax.data.base import listed

WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = ("float16", "float32", "float64")
WITH_NULLS = {name: name.replace("uint", "UInt").replace("int", "Int") for name in WHOLE} | {
    "float32": "Float32", "float64": "Float64", "bool": "boolean"}
"""Types of NumPy, and those of pandas beside them that have a null (a float has NaN)."""
WITHOUT_NULLS = (*WHOLE, "bool")
PLAIN = {masked: name for name, masked in WITH_NULLS.items()}
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Parts of a second."""
TEXTS = ("str", "string")
LAST_NANOSECOND = 2**63 / 10**9  # seconds since 1970


def default(column: Column) -> str:
    """Returns the type of a column whose schema declares none.

    Args:
        column: The column.
    """
    if column.written == "boolean":
        return "boolean" if column.nullable else "bool"
    if column.categories:
        return "category"
    if column.written in ("date", "datetime", "duration"):
        return f"{_moments(column)}[us]"
    if column.written == "time" or not forms.is_plain(column):
        return "str"
    if column.kind == "continuous":
        return "float64"
    return "Int64" if column.nullable else "int64"


def is_whole(dtype: str) -> bool:
    """Returns whether the values of a type are whole numbers.

    Args:
        dtype: The type.
    """
    return PLAIN.get(dtype, dtype) in WHOLE


def check(column: Column) -> None:
    """Checks that a column's values can be of its declared type.

    Args:
        column: The column, with its bounds.

    Raises:
        UserError: Naming the column and the mend.
    """
    known = _known(column)
    if column.dtype not in known:
        raise UserError(f"column {column.name}: dtype is {column.dtype!r}; known for such a "
                        f"column: {listed(known)}")
    if column.nullable and column.dtype in WITHOUT_NULLS:
        raise UserError(f"column {column.name}: {column.dtype} has no null; write dtype: "
                        f"{WITH_NULLS[column.dtype]}")
    if not _holds(column, _numbers(column.dtype)):
        raise UserError(f"column {column.name}: {column.dtype} does not hold all of its values; "
                        f"write a larger one, or leave dtype out for {default(column)}")


def of_identifier(name: str, pattern: str, dtype: str) -> str:
    """Checks the type of an identifier, and returns it.

    Args:
        name: The column.
        pattern: Its pattern.
        dtype: The declared type; an empty text for none.

    Raises:
        UserError: Naming the column and the mend.
    """
    whole = WHOLE if set(pattern) == {"#"} else ()
    if dtype and dtype not in (*TEXTS, *whole):
        raise UserError(f"column {name}: dtype is {dtype!r}; known for such a column: "
                        f"{listed((*TEXTS, *whole))}")
    if dtype in whole and 10**len(pattern) - 1 > np.iinfo(dtype).max:
        raise UserError(f"column {name}: {dtype} does not hold all of its identifiers; write a "
                        "larger one")
    return dtype


def series(column: Column, codes: np.ndarray) -> Any:
    """Returns the codes of a column as what pandas makes a column of.

    Args:
        column: The column.
        codes: float64 [n]; NaN is null.
    """
    import pandas as pd

    dtype, null = column.dtype or default(column), np.isnan(codes)
    if dtype.startswith("category"):
        return pd.Categorical.from_codes(
            np.where(null, -1, codes).astype(np.int64), _choices(column, _numbers(dtype)),
            ordered=column.kind == "ordinal" and column.written != "codes")
    if dtype in TEXTS:
        return strings([text or None for text in forms.texts(column, codes)], dtype)
    if dtype in ("date", "time"):
        return pd.Series([None if missing else getattr(moment, dtype)() for missing, moment in zip(
            null, _python_moments(column, codes), strict=True)], dtype=object)
    if dtype.startswith(("datetime64", "timedelta64")):
        return pd.Series(_ticks(column, codes, dtype)).mask(null)
    made = pd.Series(_values(column, codes, PLAIN.get(dtype, dtype)))
    return made.astype(dtype).mask(null) if dtype in PLAIN else made


def strings(texts: Sequence[str | None], dtype: str) -> Any:
    """Returns texts as what pandas makes a column of.

    Args:
        texts: The texts; None is null.
        dtype: `str`, `string`, or a whole number that the texts are written as.
    """
    import pandas as pd

    if dtype in WHOLE:
        return np.array([int(text or 0) for text in texts], dtype)
    return pd.Series(texts, dtype="string") if dtype == "string" else list(texts)


def declared(column: Column, came: str) -> str:
    """Returns the type that a schema declares, so that columns come out as they came in.

    Args:
        column: The column, which declares none.
        came: The type that it came in.

    Returns:
        The type, with a null where the column has one; an empty text for the default, and for a
        type that no schema declares.
    """
    for dtype in (came, WITH_NULLS.get(came, "")):
        try:
            check(dataclasses.replace(column, dtype=dtype))
        except UserError:
            continue
        return "" if dtype == default(column) else dtype
    return ""


def _moments(column: Column) -> str:
    return "timedelta64" if column.written == "duration" else "datetime64"


def _known(column: Column) -> tuple[str, ...]:
    """Returns the types that a column of its kind can have, whatever its values are."""
    numbers = (*WHOLE, *FLOATS)
    if column.categories:
        simple = (*numbers, "bool")
        return (*TEXTS, "category", *(f"category[{name}]" for name in simple), *simple,
                *PLAIN)
    if column.written == "time":
        return (*TEXTS, "time")
    if column.written != "plain":
        return (*TEXTS, *(f"{_moments(column)}[{part}]" for part in TICKS),
                *(("date",) if column.written == "date" else ()))
    whole = column.kind == "integer" or column.decimals == 0
    plain = numbers if whole else FLOATS
    return (*TEXTS, *plain, *(WITH_NULLS[name] for name in plain if name in WITH_NULLS))


def _numbers(dtype: str) -> str:
    """Returns the type of NumPy of a type whose values are numbers or truth values, else ""."""
    name = dtype.removeprefix("category").strip("[]")
    name = PLAIN.get(name, name)
    return name if name in (*WHOLE, *FLOATS, "bool") else ""


def _holds(column: Column, dtype: str) -> bool:
    """Returns whether all values of a column are values of a type, and are read back from it."""
    if column.categories:
        return not dtype or _choices(column, dtype) is not None
    ends = (column.low, column.high, *column.special)
    if dtype in WHOLE:
        return all(np.iinfo(dtype).min <= end <= np.iinfo(dtype).max for end in ends)
    if dtype:
        return all(abs(end) <= float(np.finfo(dtype).max) for end in ends)
    part = column.dtype.partition("[")[2].strip("]")
    size = forms.DAY if column.written == "date" else 1
    coarse = part and column.written != "date" and TICKS[part] * (forms.step(column) or 1) < 1
    return not coarse and (part != "ns" or all(
        abs(end * size) < LAST_NANOSECOND for end in ends))


def _choices(column: Column, dtype: str) -> Any:
    """Returns the categories in a type; None where one of them would be read as another text."""
    texts = column.categories
    if not dtype:
        return list(texts)
    if dtype == "bool":
        values: list[Any] = [text.casefold() == "true" for text in texts]
        if column.written == "boolean":
            return np.array([False, True])
    else:
        values = [int(text) if dtype in WHOLE and re.fullmatch("-?[0-9]{1,20}", text) else
                  forms.number(text) for text in texts]
    if None in values or (dtype in WHOLE and not all(
            isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
            for value in values)):
        return None
    with np.errstate(over="ignore"):
        made = np.array(values, dtype)
    same = all(python_values.text(value, None) == text
               for value, text in zip(made, texts, strict=True))
    return made if same else None


def _values(column: Column, codes: np.ndarray, dtype: str) -> np.ndarray:
    """Returns numbers or truth values; of a null that the type lacks, any."""
    null = np.isnan(codes)
    whole = dtype in WITHOUT_NULLS
    if column.categories:
        made = _choices(column, dtype)[np.where(null, 0, codes).astype(np.int64)]
        return made if whole else np.where(null, np.nan, made).astype(dtype)
    if whole:
        return np.rint(np.where(null, 0, codes)).astype(dtype)
    exact = forms.rounded(column, codes) if column.kind == "continuous" else codes
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
    seconds = np.nan_to_num(codes) * (forms.DAY if column.written == "date" else 1)
    ticks = np.rint(seconds * size).astype(np.int64) * (TICKS[part] // size)
    return ticks.astype(dtype)


def _python_moments(column: Column, codes: np.ndarray) -> list[datetime.datetime]:
    """Returns dates, or the times of a day, as moments of Python; null as any."""
    seconds = np.nan_to_num(codes) * (forms.DAY if column.written == "date" else 1)
    return [forms.EPOCH + datetime.timedelta(microseconds=round(second * 1e6))
            for second in seconds.tolist()]
