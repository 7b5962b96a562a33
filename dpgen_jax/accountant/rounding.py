"""Sums of what is charged, never below the exact ones.

Floats are added as fractions and rounded up once; what is left of an allowance is rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

Terms = Iterable[tuple[float, int]]
"""values, each with how often it counts"""


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below an exact number.

    Args:
        exact: Any fraction.

    Returns:
        The float.
    """
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def as_written(value: float) -> Fraction:
    """The decimal number that a person reads and types for a float: three of 0.1 make 0.3.

    Args:
        value: A finite number.

    Returns:
        The number, to be added and compared without rounding.
    """
    return Fraction(repr(float(value)))


def add_up(terms: Terms) -> float:
    """The sum of value * count, rounded up.

    Args:
        terms: Pairs (value, count), in any order.

    Returns:
        The sum; inf if a value that counts is infinite.
    """
    pairs = [(value, count) for value, count in terms if count and value]
    if any(value == math.inf for value, _ in pairs):
        return math.inf
    return round_up(_exact(pairs))


def left_of(allowance: float, terms: Terms) -> float:
    """The allowance less the sum of value * count, rounded down.

    Args:
        allowance: A finite number, such as delta.
        terms: Pairs (value, count) of finite values.

    Returns:
        The remainder; below 0 where the sum is more than the allowance.
    """
    return -round_up(_exact(terms) - Fraction(allowance))


def _exact(terms: Terms) -> Fraction:
    return sum((Fraction(value) * count for value, count in terms), Fraction())
