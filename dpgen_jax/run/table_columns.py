"""Bounds of a column from noisy counts of its bins: post-processing, which opens nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpgen_jax.aggregation import schema_queries
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
    return reading.entries["kind"] in ("integer", "continuous", "date", "datetime")


def bins(reading: Reading, texts: list[str]) -> tuple[Private[np.ndarray], int]:
    """Returns the bins of the cells of a column, sealed, and how many bins there are.

    Args:
        reading: How its cells are read; a cell that is not has no bin.
        texts: The cells.
    """
    number = reading.family == "number"
    read: Callable[[str], float | None] = forms.number if number else forms.reader(reading.column)
    one = forms.DAY if reading.entries["kind"] == "datetime" else 1
    known = {text: read(text) for text in dict.fromkeys(texts)}
    values = np.array([np.nan if (value := known[text]) is None else value / one
                       for text in texts], np.float64)
    edges = SIGNED if number else YEARS
    return Private(readings.binned(edges, values)), len(edges) - 1


def bounded(reading: Reading, noisy: np.ndarray, sigma: float, present: float
            ) -> tuple[dict[str, Any], str] | None:
    """Returns the entries of a column, and a value from its middle.

    Args:
        reading: How its cells are read.
        noisy: The noisy counts of its bins.
        sigma: The standard deviation of their noise.
        present: The noisy number of values.

    Returns:
        Both; None where no bounds stand out of the noise.
    """
    if reading.family != "number":
        ends = _ends(noisy, sigma, present)
        return None if ends is None else _dates(reading, noisy, *ends)
    rest = noisy.copy()
    rest[ZERO] = 0
    ends = _ends(rest, sigma, present - noisy[ZERO])
    spike = ends is not None and noisy[ZERO] >= max(SPIKE * present, 3 * sigma) and (
        max(-SIGNED[ends[0]], SIGNED[ends[1] + 1]) > AMONG)
    if spike and ends is not None:
        return _numbers(reading, rest, *ends, ["0"])
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


def _numbers(reading: Reading, noisy: np.ndarray, first: int, last: int, special: list[str]
             ) -> tuple[dict[str, Any], str]:
    """The entries of a column of numbers."""
    median = _middle(noisy, first, last)
    low, high, middle = map(float, (
        SIGNED[first] * (first != ZERO), SIGNED[last + 1] * (last != ZERO),
        (SIGNED[median] + SIGNED[median + 1]) / 2))
    whole = reading.entries["kind"] == "integer"
    if whole:
        low, high = math.ceil(low), max(math.ceil(low), math.ceil(high) - 1)
    else:
        low, high = _outward(low, math.floor), _outward(high, math.ceil)
    more: dict[str, Any] = {"special": special} if special else {}
    if middle - low < TAIL * (high - low):
        more["scale"] = "log"
    elif 0 < low < NEAR * high and not special:
        low = 0  # bins get finer towards zero, until noise hides what they hold
    made = numbers(low, high, whole) | more
    try:
        checked("", made)
    except UserError:  # whole numbers that a log scale would not keep apart
        del made["scale"]
    typical = min(max(math.floor(middle) if made["kind"] == "integer" else middle, low), high)
    return made, repr(typical)


def _outward(value: float, direction: Any) -> float:
    """Rounds a bound to few digits."""
    if value == 0:
        return 0.0
    digits = DIGITS - 1 - math.floor(math.log10(abs(value)))
    return float(direction(value * 10.0**digits) / 10.0**digits)


def _dates(reading: Reading, noisy: np.ndarray, first: int, last: int
           ) -> tuple[dict[str, Any], str]:
    """The entries of a column of dates."""
    shaped, one = reading.column, forms.DAY if reading.entries["kind"] == "datetime" else 1
    low, high = forms.bounds_texts(shaped, YEARS[first] * one, YEARS[last + 1] * one - 1)
    middle = YEARS[_middle(noisy, first, last)] * one
    return {**reading.entries, "min": low, "max": high}, forms.bounds_texts(
        shaped, middle, middle)[0]


