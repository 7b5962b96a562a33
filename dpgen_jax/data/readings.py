"""Readings of a cell of a CSV file: a fixed, public list, and public bins of its values.

Each cell has one reading and one bin, by its own text alone, so that a noisy histogram of them says
what a column holds (`run.table_purchase`).
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Sequence

import numpy as np

from dpgen_jax.core.types import Column
from dpgen_jax.data import forms
from dpgen_jax.data.draft_columns import FORMATS
from dpgen_jax.data.schema_columns import NULLS

SAMPLE = datetime.datetime(2003, 11, 22, 13, 45, 59, 123456)
"""A moment whose text shows the shape of a format."""
LARGEST = 2.0**53
"""Whole numbers beyond it are read as numbers."""
SIGNED = np.concatenate([-(2.0 ** (np.arange(80, -41, -1) / 2)), 2.0 ** (np.arange(-40, 81) / 2)])
"""Edges of the bins of numbers: two an octave from 2^-20 to 2^40, on both sides of zero."""
YEARS = np.array([(datetime.datetime(year, 1, 1) - forms.EPOCH).days for year in range(1900, 2101)],
                 np.float64)
"""Edges of the bins of dates, in days: one a year."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """A way to read a cell.

    Attributes:
        family: Readings of one family are told apart by whether the later of them occurs at all.
        entries: What a schema says of a column that is read so.
    """

    family: str
    entries: dict[str, str | list[str]]

    @property
    def column(self) -> Column:
        """A column of dates or times that is read so."""
        return Column("", "integer", written=self.entries["kind"],  # type: ignore[arg-type]
                      format=str(self.entries["format"]))


MISSING, INTEGER, NUMBER, TEXT = (Reading(kind, {"kind": kind}) for kind in (
    "missing", "integer", "continuous", "categorical"))
BOOLEANS = tuple(Reading("boolean", {"kind": "boolean", "categories": list(pair)}) for pair in (
    ("false", "true"), ("False", "True"), ("FALSE", "TRUE")))
MOMENTS = tuple(
    Reading(f"{kind} {form.replace('%m/%d', '%d/%m')}", {"kind": kind, "format": form})
    for kind, form in FORMATS if kind != "duration")
READINGS = (MISSING, dataclasses.replace(INTEGER, family="number"),
            dataclasses.replace(NUMBER, family="number"), *BOOLEANS, *MOMENTS, TEXT)
"""All readings; a cell has the first that fits."""
FAMILIES = tuple(dict.fromkeys(reading.family for reading in READINGS))


def code(text: str) -> int:
    """Returns the place in READINGS of the reading of a cell.

    Args:
        text: The cell, stripped.
    """
    if text in NULLS:
        return 0
    value = forms.number(text)
    if value is not None:
        return 1 if value.is_integer() and abs(value) <= LARGEST else 2
    for place, reading in enumerate(BOOLEANS, 3):
        if text in reading.entries["categories"]:
            return place
    for place, read in _by_shape().get(_shape(text), ()):
        if read(text) is not None:
            return place
    return len(READINGS) - 1


def codes(texts: Sequence[str]) -> np.ndarray:
    """Returns the places in READINGS of cells.

    Args:
        texts: n cells.

    Returns:
        int16 [n].
    """
    known = {text: code(text) for text in dict.fromkeys(texts)}
    return np.array([known[text] for text in texts], np.int16)


def binned(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the bins of numbers or dates; the outer ones hold what lies beyond.

    Args:
        edges: SIGNED or YEARS.
        values: float64 [n], NaN for null; dates in days.

    Returns:
        int64 [n], 0..len(edges) - 2, and -1 for null.
    """
    inside = np.clip(np.searchsorted(edges, np.nan_to_num(values), "right") - 1, 0, len(edges) - 2)
    return np.where(np.isnan(values), -1, inside)


def _shape(text: str) -> str:
    """Returns a text with 9 for each run of digits and A for each run of letters."""
    return re.sub(r"[A-Za-z]+", "A", re.sub(r"[0-9]+", "9", text)) if len(text) < 40 else ""


@functools.cache
def _by_shape() -> dict[str, list[tuple[int, Callable[[str], float | None]]]]:
    """The readings of dates and times, with their places, by the shape of their texts."""
    made: dict[str, list[tuple[int, Callable[[str], float | None]]]] = {}
    for place, reading in enumerate(READINGS):
        if reading in MOMENTS:
            shape = _shape(SAMPLE.strftime(str(reading.entries["format"])))
            made.setdefault(shape, []).append((place, forms.reader(reading.column)))
    return made
