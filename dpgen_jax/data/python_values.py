"""Values of Python, NumPy and pandas as the texts that a file of the schema would hold."""

from __future__ import annotations

import datetime
import decimal
import functools
import re
from collections.abc import Callable

import numpy as np

from dpgen_jax.core.types import Column, UserError
from dpgen_jax.data import forms

EXACT = 2**53
"""The whole number up to which a float of 64 bits holds all of them."""


def reader(column: Column | None, exact: float = EXACT) -> Callable[[object], str]:
    """Returns `text` for the values of a typed column, in whose rows the types may be inferred.

    What infers types looks at all rows: the cells 001 and 1.0 are numbers in one table, and texts
    in another one that differs in one record. So a cell is here of the category that is the same
    number or truth value, whether it is a text or not; and where types have lost what tells
    values apart, it is refused.

    Args:
        column: The column; None for one of which the texts tell rows apart, as identifiers do.
        exact: The whole number from which on its floats do not hold all of them.

    Returns:
        A function from a value, null as an empty text, to its text. It raises a UserError on a
        value that may be of several texts, without the name of the cell.
    """
    names = column.categories if column else ()
    alike = _alike(names)
    if column and column.written == "boolean":
        alike = {"False": (names[0],), "True": (names[1],)} | alike

    @functools.cache
    def category(found: str, is_text: bool) -> str:
        same = alike.get(_same(found), ())
        if is_text and found in same:
            return found
        if len(same) > 1 and not is_text:
            raise UserError(f"{found} may be any of the categories {', '.join(same)}")
        return same[0] if len(same) == 1 else found

    def read(value: object) -> str:
        value = value.item() if isinstance(value, np.generic) else value
        found = text(value, column)
        if isinstance(value, float) and (names or column is None) and (
                value.is_integer() and abs(value) >= exact):
            raise UserError(f"{value:.0f} may be another whole number, which a float does not hold")
        if names:
            if isinstance(value, datetime.date | datetime.time | datetime.timedelta) and (
                    found not in alike):
                raise UserError(f"{found!r} is of a type of dates and times, and the categories "
                                "are texts")
            return category(found, isinstance(value, str | bytes))
        if column and not isinstance(value, str):
            _require_kept(value, found, column)
        return found

    return read


@functools.lru_cache(1000)
def _alike(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the categories by the number or truth value that they are, other texts by itself."""
    alike: dict[str, tuple[str, ...]] = {}
    for name in names:
        alike[_same(name)] = (*alike.get(_same(name), ()), name)
    return alike


def _require_kept(value: object, found: str, column: Column) -> None:
    """Refuses a number whose text may have had other digits or marks than a number holds."""
    if column.written in ("date", "datetime", "time") and isinstance(value, int | float):
        code = forms.reader(column)(found)
        if code is not None and forms.texts(column, np.array([code])) != [found]:
            raise UserError(f"{found} may lack zeros in front, which a number does not hold")
    if isinstance(value, float) and not (column.unit or column.dtype) and column.marks[1:] == ".":
        raise UserError(f"{value!r} may have had a point between thousands (where it had none, "
                        "declare dtype: float64 for the column)")


def _same(text: str) -> str:
    """Returns the text of the number or truth value that a text is; of other texts themselves."""
    if text.casefold() in ("true", "false"):
        return text.capitalize()
    value = forms.number(text)
    if value is None:
        infinite = re.fullmatch(r"[+-]?inf(inity)?", text, re.IGNORECASE)
        return str(float(text)) if infinite else text
    if value.is_integer() and abs(value) < EXACT:
        return str(int(value))
    exact = decimal.Decimal(text)
    return str(int(exact)) if exact == exact.to_integral_value() else str(value)


def text(value: object, column: Column | None) -> str:
    """Returns the text of a value that is not null.

    Args:
        value: A value of a frame, of a Parquet file, or of a condition. A number is a number,
            whatever unit and marks the texts of its column have; a text is taken as it is.
        column: Its column, by which dates and booleans become texts; None for texts as of Python.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():  # of integers where there is a null
        value = int(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if column is None or isinstance(value, str):
        return str(value).strip()
    if isinstance(value, bool) and column.written == "boolean":
        return column.categories[value]
    if isinstance(value, int | float | decimal.Decimal) and not column.categories:
        return forms.placed(column.unit, str(value).replace(".", column.marks[0]))
    code = None if column.written == "plain" else _code(value, column)
    return str(value).strip() if code is None else forms.texts(column, np.array([code]))[0]


def _code(value: object, column: Column) -> float | None:
    """Returns the code of a date or time of Python's or pandas' types; None for anything else."""
    if isinstance(value, datetime.timedelta) and column.written == "duration":
        return value.total_seconds()
    if isinstance(value, datetime.time) and column.written == "time" and value.tzinfo is None:
        value = datetime.datetime.combine(forms.EPOCH, value)
    elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        return None
    seconds = (value - forms.EPOCH).total_seconds()
    if column.written == "date":
        return seconds // forms.DAY
    return seconds if column.written in ("datetime", "time") else None
