"""Parts of a data set: some of its training records, and what belongs to them."""

from __future__ import annotations

import dataclasses

import numpy as np

from dpgen_jax.core.types import EMPTY
from dpgen_jax.data.base import Dataset, frozen


def only(data: Dataset, rows: np.ndarray) -> Dataset:
    """Returns the data set with some of its training records.

    Args:
        data: A data set.
        rows: bool [n], the training records that stay, in their order. Of a data set with subjects
            each keeps its number, and those without rows theirs.
    """
    clients, subjects = data.clients, data.subjects
    return dataclasses.replace(
        data, x_train=frozen(data.x_train[rows], data.x_train.dtype),
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
