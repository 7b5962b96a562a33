"""The types of a table's columns in pandas frames and Parquet files: the `dtype` of a schema.

They are named as pandas names them; `date` and `time` are the values of Python's `datetime`. They
say how values are kept, and change nothing that is learned.
"""

from __future__ import annotations

import dataclasses
import re
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
FEWEST = 256
"""Numbers of a float between the bounds of a column, at least."""
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


def check_name(column: Column) -> None:
    """Checks that a column of its kind can have its declared type, whatever its values are.

    Args:
        column: The column.

    Raises:
        UserError: Naming the column and the mend.
    """
    known = _known(column)
    if column.dtype not in known:
        raise UserError(f"column {column.name}: dtype is {column.dtype!r}; known for such a "
                        f"column: {listed(known)}")


def check(column: Column) -> None:
    """Checks that all values of a column are values of its declared type, and are kept by it.

    Floats of fewer bits round what is neither whole nor special.

    Args:
        column: The column, with its bounds.

    Raises:
        UserError: Naming the column and the mend.
    """
    check_name(column)
    if column.nullable and column.dtype in WITHOUT_NULLS:
        raise UserError(f"column {column.name}: {column.dtype} has no null; write dtype: "
                        f"{WITH_NULLS[column.dtype]}")
    if not _holds(column, numbers_of(column.dtype)):
        raise UserError(f"column {column.name}: {column.dtype} does not hold all of its values; "
                        f"write a larger one, or leave dtype out for {default(column)}")


def clipped(dtype: str, low: float, high: float) -> tuple[float, float]:
    """Returns the part of a range that is of a type of whole numbers; of other types all of it.

    Args:
        dtype: The type.
        low: The lower end.
        high: The upper end.
    """
    if not is_whole(dtype):
        return low, high
    limits = np.iinfo(PLAIN.get(dtype, dtype))
    return min(max(low, limits.min), limits.max), min(max(high, limits.min), limits.max)


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
    if dtype != "" and dtype not in (*TEXTS, *whole):
        raise UserError(f"column {name}: dtype is {dtype!r}; known for such a column: "
                        f"{listed((*TEXTS, *whole))}")
    if dtype in whole and 10**len(pattern) - 1 > np.iinfo(dtype).max:
        raise UserError(f"column {name}: {dtype} does not hold all of its identifiers; write a "
                        "larger one")
    return dtype


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


def numbers_of(dtype: str) -> str:
    """Returns the type of NumPy of a type whose values are numbers or truth values, else "".

    Args:
        dtype: The type.
    """
    name = dtype.removeprefix("category").strip("[]")
    name = PLAIN.get(name, name)
    return name if name in (*WHOLE, *FLOATS, "bool") else ""


def _holds(column: Column, dtype: str) -> bool:
    """Returns whether all values of a column are values of a type, and are read back from it."""
    if column.categories:
        return not dtype or choices(column, dtype) is not None
    ends = (column.low, column.high, *column.special)
    if dtype in WHOLE:
        return all(np.iinfo(dtype).min <= end <= np.iinfo(dtype).max for end in ends)
    if dtype:
        return _holds_floats(column, dtype)
    part = column.dtype.partition("[")[2].strip("]")
    if not part:
        return True
    ends = tuple(end * (forms.DAY if column.written == "date" else 1) for end in ends)
    return all(float(end * TICKS[part]).is_integer() for end in ends) and (
        part != "ns" or max(map(abs, ends)) < LAST_NANOSECOND)


def _holds_floats(column: Column, dtype: str) -> bool:
    """Returns whether a float keeps whole numbers and special values, and tells others apart."""
    if dtype == "float64":  # as codes are
        return True
    most = max(abs(column.low), abs(column.high))
    if most > float(np.finfo(dtype).max):
        return False
    with np.errstate(over="ignore"):
        special = all(float(np.dtype(dtype).type(value)) == value for value in column.special)
    if column.kind == "integer" or column.decimals == 0:
        largest = max([most, *map(abs, column.special)])
        return special and largest <= 2.0**(np.finfo(dtype).nmant + 1)
    steps = (column.high - column.low) / float(np.spacing(np.dtype(dtype).type(most)))
    return special and steps >= FEWEST


def choices(column: Column, dtype: str) -> Any:
    """Returns the categories in a type; None where one of them would be read as another text.

    Args:
        column: A column of categories.
        dtype: A type of NumPy; an empty text for texts.
    """
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
