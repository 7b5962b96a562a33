"""Votes of teachers as the data-dependent bounds take them: checked, rounded, and added up.

Shapes: Q queries, m classes, A orders.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dpgen_jax.core.errors import UserError

_CHUNK = 4096
"""distinct queries whose bounds are held at a time; the rest of a run is a few numbers a query"""


@dataclasses.dataclass(frozen=True)
class Rounding:
    """How rounding the noise to whole votes changes the probabilities of a vote.

    Attributes:
        gap: Votes by which a lead must be reduced for the Gaussian tail to stay an upper bound.
        threshold: From the threshold of the test to the one at which the noise, unrounded, answers.
    """

    gap: int
    threshold: Callable[[float], float]


IDEAL = Rounding(0, float)
"""noise that is not rounded, as in the papers"""

ROUNDED = Rounding(1, lambda threshold: math.ceil(threshold) - 0.5)
"""noise that is rounded to whole votes: v + round(sigma Z), what this package draws

A gap g: round(X) - round(Y) >= g needs X - Y >= g - 1, whatever happens at a tie.
A threshold t: v + round(sigma Z) >= t if and only if v + sigma Z >= ceil(t) - 1/2, for integer v,
so the law of the answer is exact and nothing is lost."""


def checked(counts: ArrayLike, answered: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Checks votes and outcomes.

    Args:
        counts: Votes [Q, m].
        answered: Outcomes of the threshold test [Q].

    Returns:
        Votes int64 [Q, m] and outcomes bool [Q].

    Raises:
        UserError: Anything else.
    """
    counts, answered = _votes(counts), np.asarray(answered)
    if answered.dtype != bool or answered.shape != counts.shape[:1]:
        raise UserError(f"answered must be one True or False for each of {len(counts)} queries, "
                        f"got {answered.dtype}{list(answered.shape)}")
    return counts, answered


def _votes(counts: ArrayLike) -> np.ndarray:
    counts = np.asarray(counts)
    if (counts.ndim != 2 or counts.shape[1] < 2 or counts.dtype.kind not in "iu"
            or np.any(counts < 0)):
        raise UserError("counts must be whole numbers of votes [queries, classes], with at least "
                        f"two classes, got {counts.dtype}{list(counts.shape)}")
    return counts.astype(np.int64)


def leads(counts: ArrayLike, rounding: Rounding) -> np.ndarray:
    """Votes by which j* leads each other class, reduced for rounding.

    Args:
        counts: Votes, int [Q, m].
        rounding: The reduction.

    Returns:
        Leads [Q, m - 1], not falling along the last axis.

    Raises:
        UserError: Counts that are not whole numbers [Q, m], m >= 2.
    """
    ordered = np.sort(_votes(counts), axis=1)[:, ::-1]
    return ordered[:, :1] - ordered[:, 1:] - rounding.gap


def require_orders(orders: ArrayLike) -> np.ndarray:
    """Checks the orders of Renyi divergences.

    Args:
        orders: A number or numbers.

    Returns:
        Floats [A].

    Raises:
        UserError: Unless all are above 1, and there is at least one.
    """
    orders = np.atleast_1d(np.asarray(orders, float))
    if orders.ndim != 1 or orders.size == 0 or not np.all(orders > 1):
        raise UserError("orders must be numbers above 1, at least one")
    return orders


def require_positive(name: str, value: float) -> float:
    """Checks a number.

    Args:
        name: Its name in the message.
        value: The number.

    Returns:
        The number.

    Raises:
        UserError: Unless it is positive and finite.
    """
    if not 0 < value < math.inf:
        raise UserError(f"{name} must be positive and finite, got {value}")
    return value


def total_over_queries(bound: Callable[[np.ndarray], np.ndarray], log_q: np.ndarray) -> np.ndarray:
    """The sum of a bound over queries; equal q are computed once.

    Args:
        bound: From ln q [Q] to costs [Q, A].
        log_q: ln q [Q].

    Returns:
        Costs [A].
    """
    values, times = np.unique(log_q, return_counts=True)
    total = bound(values[:0]).sum(axis=0)
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += times[part] @ bound(values[part])
    return total
