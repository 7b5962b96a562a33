"""Parts of a data set: some of its training records, and what belongs to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from dpgen_jax.core import digests, picked
from dpgen_jax.core.types import EMPTY
from dpgen_jax.data.base import Dataset, frozen

Take = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From records [n, ...] and bool [n] to those that are taken."""


def copied(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns a read-only copy of some records.

    Args:
        x: Records [n, ...].
        rows: bool [n], which of them.
    """
    return frozen(x[rows], x.dtype)


def where_they_lie(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns some records, those of a mapped file without a copy (`core.picked.Picked`).

    Args:
        x: Records [n, ...].
        rows: bool [n], which of them.
    """
    return copied(x, rows) if picked.mapping(x) is None else picked.pick(x, rows)


def only(data: Dataset, rows: np.ndarray, take: Take = copied) -> Dataset:
    """Returns the data set with some of its training records.

    Args:
        data: A data set.
        rows: bool [n], the training records that stay, in their order. Of a data set with subjects
            each keeps its number, and those without rows theirs.
        take: Takes them, as a copy or where they lie.
    """
    clients, subjects = data.clients, data.subjects
    return dataclasses.replace(
        data, x_train=take(data.x_train, rows),
        y_train=frozen(data.y_train[rows], np.int32),
        clients=None if clients is None else frozen(clients[rows], np.int32),
        subjects=subjects and dataclasses.replace(subjects,
                                                  train=frozen(subjects.train[rows], np.int32)))


def without_empty_slots(data: Dataset) -> Dataset:
    """Returns the data set without its empty slots, to be looked at rather than trained on.

    Args:
        data: A data set.
    """
    present = data.y_train != EMPTY
    return data if present.all() else only(data, present)


def share_of(x: np.ndarray, data: Dataset) -> float:
    """Returns the share of some records that a data set has, bit for bit, in either of its parts.

    Labels do not count: the same images may be read with the classes in another order.

    Args:
        x: Records [m, ...] of its type and shape; at least one.
        data: The data set. What comes out is as private as its records.
    """
    wanted = _digests(x)
    known = set(_digests(data.x_train))
    if data.x_test is not None:
        known |= set(_digests(data.x_test))
    return sum(digest in known for digest in wanted) / len(wanted)


def _digests(x: np.ndarray) -> list[bytes]:
    """A digest of each record, without its label."""
    return [digest.tobytes() for digest in digests.of(digests.rows(x), 16)]
