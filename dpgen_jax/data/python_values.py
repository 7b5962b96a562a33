"""Values of Python, NumPy and pandas as the texts that a file of the schema would hold."""

from __future__ import annotations

import datetime
import decimal

import numpy as np

from dpgen_jax.core.types import Column
from dpgen_jax.data import forms


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
