"""The table of the rounded Gaussian: P(|round(sigma Z)| <= m) in units of 2^-95."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np

ONE = 1 << 95
"""A probability of 1, in units of 2^-95."""
FIXED = 192
"""Fractional bits of the arithmetic that builds a table."""
TERMS = 7
"""J: terms of the series of `_recurrence`."""


@functools.lru_cache(maxsize=8)
def padded_table(sigma: float) -> np.ndarray:
    """Returns uint32 [2^n - 1, 3]: thresholds, filled up with a number that is above every draw."""
    values = thresholds(sigma)
    size = (1 << len(values).bit_length()) - 1
    data = b"".join(v.to_bytes(12, "big") for v in values) + b"\xff" * 12 * (size - len(values))
    table = np.frombuffer(data, ">u4").astype(np.uint32).reshape(size, 3)
    table.setflags(write=False)
    return table


@functools.lru_cache(maxsize=8)
def thresholds(sigma: float) -> tuple[int, ...]:
    """Returns T_m = P(|round(sigma Z)| <= m) for m = 0, 1, ... up to the last below 1.

    They are in units of 2^-95. Each is within one unit of its ideal value, and none is below the
    one before. |X| is the number of thresholds that are at most W, for W uniform in 0..2^95 - 1.

    Args:
        sigma: In steps of the integer grid.
    """
    cumulated = _recurrence(sigma) if sigma >= 64 else _reference(sigma)
    values: list[int] = []
    for value in cumulated:
        rounded = _threshold(value)
        if rounded >= ONE:
            return tuple(values)
        values.append(rounded)
    raise AssertionError("a cumulative distribution that does not reach 1")


def _threshold(value: int) -> int:
    """Returns a fixed-point number in units of 2^-95."""
    return (value + (1 << (FIXED - 96))) >> (FIXED - 95)


def _inside(sigma: float, m: int) -> int:
    """Returns P(|X| <= m) as a fixed-point integer, by mpmath."""
    with mpmath.workprec(FIXED + 64):
        inside = mpmath.erf((m + mpmath.mpf(0.5)) / (mpmath.mpf(sigma) * mpmath.sqrt(2)))
        return int(mpmath.floor(mpmath.ldexp(inside, FIXED)))


def _reference(sigma: float) -> Iterator[int]:
    """Yields P(|X| <= m) as fixed-point integers for all m in turn."""
    return (_inside(sigma, m) for m in range(int(14 * sigma) + 2))


def _recurrence(sigma: float) -> Iterator[int]:
    """Yields the same for sigma >= 64, summed up from P(X = m).

    With h = 1 / sigma, x = m h and phi the normal density, exp(x t - t^2 / 2) generates the Hermite
    polynomials, and integrating over |t| <= h / 2 gives
        P(X = m) = h phi(x) sum_j He_2j(x) (h / 2)^(2 j) / (2 j + 1)!
    Errors, in P(|X| <= m) for every m below 14 sigma < 2^20:
      - Terms j >= J are left out. phi(x) |He_2j(x)| <= 0.44 sqrt((2 j)!) (Cramer), so all of them
        together, over 2 * 14 / h values, are below 13 (h / 2)^(2 J) / ((2 J + 1) sqrt((2 J)!)),
        which is 2^-115 at h = 1/64 and J = 7 and less for smaller h.
      - Each product loses at most 2^-192, and so does each constant. The ratios carry m of these,
        the densities m^2 / 2, the total m^3 / 6: below 2^-134. In the series they are multiplied by
        powers of x^2 up to the sixth, which the density, a factor of the same product, keeps
        below 2^14; the error of x^2 itself, m^2 of these, is multiplied by h^2 / 24. Again below
        2^-134.
    """
    with mpmath.workprec(FIXED + 64):
        h = 1 / mpmath.mpf(sigma)

        def fixed(value: mpmath.mpf) -> int:
            return int(mpmath.nint(mpmath.ldexp(value, FIXED)))

        h_squared, ratio = fixed(h * h), fixed(mpmath.exp(-h * h / 2))
        density, shrink = fixed(h / mpmath.sqrt(2 * mpmath.pi)), fixed(mpmath.exp(-h * h))
        series = [fixed(c) for c in _midpoint_series(h)]
    total = 0
    for m in range(int(14 * sigma)):
        x_squared, factor = m * m * h_squared, 0
        for c in series:
            factor = (factor * x_squared >> FIXED) + c
        mass = density * factor >> FIXED
        total += mass if m == 0 else 2 * mass
        yield total
        density = density * ratio >> FIXED
        ratio = ratio * shrink >> FIXED


def _midpoint_series(h: mpmath.mpf) -> list[mpmath.mpf]:
    """Coefficients, the highest power of x^2 first, of sum_j He_2j(x) (h / 2)^(2 j) / (2 j + 1)!"""
    powers = [mpmath.mpf(0)] * TERMS
    for j in range(TERMS):
        for i in range(j + 1):  # He_n(x) = sum_i (-1)^i n! / (i! (n - 2 i)! 2^i) x^(n - 2 i)
            c = Fraction((-1) ** i, math.factorial(i) * math.factorial(2 * (j - i)) * 2**i
                         * 4**j * (2 * j + 1))
            powers[j - i] += h ** (2 * j) * c.numerator / c.denominator
    return powers[::-1]


def threshold(sigma: float, m: int) -> int:
    """Returns T_m, by mpmath.

    Args:
        sigma: In steps of the integer grid.
        m: At least 0.
    """
    return _threshold(_inside(sigma, m))
