"""Bounds of a column from noisy counts of its bins: post-processing, which opens nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpgen_jax.aggregation import schema_queries
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Private, UserError
from dpgen_jax.data import forms, readings
from dpgen_jax.data.draft_columns import AMONG, SPIKE, TAIL, numbers
from dpgen_jax.data.readings import SIGNED, YEARS, Reading
from dpgen_jax.data.schema_columns import column as checked

SCALES = (1, 2, 4, 8, 16)
"""How many bins are seen as one, where one alone does not stand out of the noise."""
KEPT = 0.95
"""The share of the values that bounds must hold, or more bins are seen as one."""
NEAR = 0.1
"""Bounds that begin below this share of their end begin at zero."""
DIGITS = 3
"""The digits of a bound; it is rounded outward."""
ZERO = len(SIGNED) // 2 - 1
"""The bin of zero."""


def has_bins(reading: Reading) -> bool:
    """Returns whether a column that is read so has bounds to be bought.

    Args:
        reading: The reading.
    """
    return reading.entries["kind"] in ("integer", "continuous", "date", "datetime", "duration")


def bins(reading: Reading, texts: list[str]) -> tuple[Private[np.ndarray], int]:
    """Returns the bins of the cells of a column, sealed, and how many bins there are.

    Args:
        reading: How its cells are read; a cell that is not has no bin.
        texts: The cells.
    """
    read: Callable[[str], float | None] = forms.reader(reading.column)
    one, edges = _day(reading), YEARS if _is_date(reading) else SIGNED
    known = {text: read(text) for text in dict.fromkeys(texts)}
    values = np.array([np.nan if (value := known[text]) is None else value / one
                       for text in texts], np.float64)
    return Private(readings.binned(edges, values)), len(edges) - 1


def _is_date(reading: Reading) -> bool:
    return reading.entries["kind"] in ("date", "datetime")


def _day(reading: Reading) -> int:
    """The code of one day."""
    return forms.DAY if reading.entries["kind"] == "datetime" else 1


def bounded(reading: Reading, noisy: np.ndarray, sigma: float, present: float
            ) -> tuple[Json, float] | None:
    """Returns the entries of a column, and the code of a value from its middle.

    Args:
        reading: How its cells are read.
        noisy: The noisy counts of its bins.
        sigma: The standard deviation of their noise.
        present: The noisy number of values.

    Returns:
        Both; None where no bounds stand out of the noise.
    """
    if _is_date(reading):
        ends = _ends(noisy, sigma, present)
        return None if ends is None else _dates(reading, noisy, *ends)
    rest = noisy.copy()
    rest[ZERO] = 0
    ends = _ends(rest, sigma, present - noisy[ZERO])
    spike = ends is not None and noisy[ZERO] >= max(SPIKE * present, 3 * sigma) and (
        max(-SIGNED[ends[0]], SIGNED[ends[1] + 1]) > AMONG)
    if spike and ends is not None:
        return _numbers(reading, rest, *ends, [0.0])
    ends = _ends(noisy, sigma, present)
    return None if ends is None else _numbers(reading, noisy, *ends, [])


def _ends(noisy: np.ndarray, sigma: float, present: float) -> tuple[int, int] | None:
    """The first and the last bin of most values; where bins are too fine, of blocks of them."""
    widest = None
    for scale in SCALES:
        blocks = np.add.reduceat(noisy, np.arange(0, noisy.size, scale))
        found = schema_queries.interval(blocks, partial(_least, sigma * math.sqrt(scale)))
        if found is None:
            continue
        first, last = found[0] * scale, min((found[1] + 1) * scale, noisy.size) - 1
        mass = noisy[first:last + 1].sum()
        if mass >= KEPT * present - 2 * sigma * math.sqrt(last - first + 1):
            return first, last
        widest = widest or (first, last)
    return widest


def _least(sigma: float, chance: float) -> int:
    """The count that rounded Gaussian noise reaches with this chance at most."""
    return math.ceil(0.5 - sigma * ndtri(chance))


def _middle(noisy: np.ndarray, first: int, last: int) -> int:
    """The bin of the median, as far as the noise lets it be seen."""
    below = np.cumsum(np.maximum(noisy[first:last + 1], 0))
    return first + int(np.searchsorted(below, below[-1] / 2))


def _numbers(reading: Reading, noisy: np.ndarray, first: int, last: int, special: list[float]
             ) -> tuple[Json, float]:
    """The entries of a column of numbers, or of durations in seconds."""
    median = _middle(noisy, first, last)
    low, high, middle = map(float, (
        SIGNED[first] * (first != ZERO), SIGNED[last + 1] * (last != ZERO),
        (SIGNED[median] + SIGNED[median + 1]) / 2))
    whole = reading.entries["kind"] == "integer"
    digits = int(str(reading.entries.get("decimals", 15)))
    if whole:
        low, high = math.ceil(low), max(math.ceil(low), math.ceil(high) - 1)
    else:
        low, high = _outward(low, math.floor, digits), _outward(high, math.ceil, digits)
    if 0 < low < NEAR * high and not special and middle - low >= TAIL * (high - low):
        low = 0  # bins get finer towards zero, until noise hides what they hold
    made = _written(reading, low, high, special)
    if middle - low < TAIL * (high - low):
        try:
            checked("", made | {"scale": "log"})
            made["scale"] = "log"
        except UserError:  # whole numbers that a log scale would not keep apart
            pass
    return made, min(max(math.floor(middle) if whole else middle, low), high)


def _written(reading: Reading, low: float, high: float, special: list[float]) -> Json:
    """The entries of a column with these bounds."""
    column = reading.column
    if column.written == "duration":
        least, most = forms.bounds_texts(column, low, high)
        made = {**reading.entries, "min": least, "max": most}
        texts = forms.texts(column, np.array(special))
    else:
        made = {**reading.entries, **numbers(low, high, reading.entries["kind"] == "integer")}
        texts = [repr(int(value)) for value in special]
    return made | ({"special": texts} if special else {})


def _outward(value: float, direction: Any, most: int) -> float:
    """Rounds a bound to few digits, of which no more than `most` follow the point."""
    if value == 0:
        return 0.0
    digits = min(most, DIGITS - 1 - math.floor(math.log10(abs(value))))
    return float(round(direction(value * 10.0**digits) / 10.0**digits, max(digits, 0)))


def _dates(reading: Reading, noisy: np.ndarray, first: int, last: int) -> tuple[Json, float]:
    """The entries of a column of dates."""
    shaped, one = reading.column, _day(reading)
    low, high = forms.bounds_texts(shaped, YEARS[first] * one, YEARS[last + 1] * one - 1)
    return ({**reading.entries, "min": low, "max": high},
            float(YEARS[_middle(noisy, first, last)] * one))


def typical(entries: Json, code: float) -> str:
    """Returns the text of a value, as a cell of its column has it.

    Args:
        entries: The entries of the column.
        code: The code of the value.
    """
    return forms.texts(checked("", entries), np.array([code], np.float64))[0]
