"""Subjects in the place of records: which rows are judged together, and what they score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpgen_jax.core.subjects import Subjects
from dpgen_jax.evaluation.attacks import Records

Judged = tuple[Records, np.ndarray]
"""Records, and which of those who are judged has each: int [r], ascending from 0."""
Rows = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From subjects int [s] to their rows int [r], and the place in 0..s-1 of the subject of each."""
Side = tuple[int, Callable[[np.ndarray], Judged]]
"""The number of subjects of a part, and from subjects int [s] to their records."""


def sides(inside: Records, outside: Records, subjects: Subjects | None) -> tuple[Side, Side]:
    """Returns the training and the held-out part as subjects; without them each row is one.

    Args:
        inside: The training records.
        outside: The held-out records.
        subjects: Who has which of them, or None.
    """
    if subjects is None:
        return _side(inside, None, 1, 0), _side(outside, None, 1, 1)
    return (_side(inside, subjects.train, subjects.rows, 0),
            _side(outside, subjects.test, subjects.rows, 1))


def _side(records: Records, owners: np.ndarray | None, most: int, seed: int) -> Side:
    """Returns one part as subjects."""
    x, y = records
    count, of = rows(owners, len(y), most, seed)

    def take(picked: np.ndarray) -> Judged:
        chosen, places = of(picked)
        return (x[chosen], y[chosen]), places

    return count, take


def rows(owners: np.ndarray | None, count: int, most: int, seed: int) -> tuple[int, Rows]:
    """Returns how many subjects there are, and the function that picks their rows.

    Args:
        owners: The subject of each row int [n]; None where each row is its own.
        count: n.
        most: The most rows of a subject that are picked, at random.
        seed: Of that choice.
    """
    if owners is None:
        return count, lambda picked: (picked, np.arange(len(picked)))
    names, own = np.unique(owners, return_inverse=True)
    order = np.random.default_rng(seed).permutation(count)
    order = order[np.argsort(own[order], kind="stable")]
    sizes = np.bincount(own)
    first = np.cumsum(sizes) - sizes

    def of(picked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = np.repeat(np.arange(len(picked)), np.minimum(sizes[picked], most))
        within = np.arange(len(places)) - np.searchsorted(places, places)
        return order[first[picked][places] + within], places

    return len(names), of


def mean(scores: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the mean score of the rows of each subject: float [s].

    Args:
        scores: Of each row, float [r].
        places: The place of its subject, int [r], each of which has a row.
    """
    return np.bincount(places, scores) / np.bincount(places)
