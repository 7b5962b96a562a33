"""Sums of what is charged, never below the exact ones: floats are added as fractions and rounded
up once, and what is left of an allowance is rounded down."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

Terms = Iterable[tuple[float, int]]
"""values, each with how often it counts"""


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def add_up(terms: Terms) -> float:
    """The sum of value * count, rounded up; inf if a value is."""
    pairs = [(value, count) for value, count in terms if count and value]
    if any(value == math.inf for value, _ in pairs):
        return math.inf
    return round_up(_exact(pairs))


def left_of(allowance: float, terms: Terms) -> float:
    """The allowance less the sum, rounded down; below 0 where that is more."""
    return -round_up(_exact(terms) - Fraction(allowance))


def _exact(terms: Terms) -> Fraction:
    return sum((Fraction(value) * count for value, count in terms), Fraction())
