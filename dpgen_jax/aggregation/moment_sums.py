"""Sums of moments: taken apart once they are noisy, and rounded before they are summed."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeVar

import jax

from dpgen_jax.core.types import Array

Integers = TypeVar("Integers", int, Array)
SHIFT = 12
"""The factors of sums and of products are whole numbers of 2^-12: what is made with them is rounded
to the nearest integer, in integers, before it is summed."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sums:
    """A noisy sum over records, taken apart, in units of the vectors that records answered with.

    Attributes:
        shades: float32 [T], sums of shares.
        count: float32 [blocks].
        first: float32 [blocks, M].
        second: float32 [square_blocks, M, M], symmetric; [0, M, M] where none was asked for.
    """

    shades: Array
    count: Array
    first: Array
    second: Array


def entries_rounded(length: int, products: bool) -> int:
    """Returns how many entries of what a record adds are rounded.

    Args:
        length: Of the vector.
        products: Whether products are asked for.
    """
    return length + products * (length * (length + 1) // 2)


def nearest(scaled: Integers) -> Integers:
    """Returns the integers nearest to numbers in units of 2^-SHIFT, exactly.

    Args:
        scaled: An int, or int32 of any shape, below 2^31 - 2^(SHIFT - 1).
    """
    return (scaled + (1 << SHIFT - 1)) >> SHIFT


def with_rounding(squared: int, quarters: int) -> int:
    """Returns an upper bound of (sqrt(squared) / 2^SHIFT + sqrt(quarters) / 2)^2, in integers.

    Args:
        squared: A squared norm before the rounding, in units of 4^-SHIFT.
        quarters: The squared norm of what the rounding moves, in quarters.
    """
    whole = -(-squared >> 2 * SHIFT)
    return whole + -(-quarters // 4) + math.isqrt(max(whole * quarters - 1, 0)) + 1
