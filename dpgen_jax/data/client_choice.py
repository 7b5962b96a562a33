"""Clients chosen by how well a classifier reads their records.

In the debugging task of Augenstein et al. 2020 (ICLR, arXiv 1911.06679, section 6), which GS-WGAN
repeats (Chen et al. 2020, arXiv 2006.08265, appendix C.2), one generator is trained over the
clients whose records a classifier reads well and one over those whose records it reads badly. That
is a choice by private records. Whether it costs something depends on the classifier:

  trained on the clients' records    `left_out`: which clients take part, and how many, is then a
                                     function of all records, which no epsilon covers. The data set
                                     names it in `uncovered`, and a release says "not covered".
  public, or released under          `emptied`: whether a client takes part is a function of its own
  differential privacy               records, and one that does not keeps its place as a client
                                     without records, who cannot be told from the others. This
                                     costs nothing; what the classifier cost is charged again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import EMPTY, UserError
from dpgen_jax.data.base import Dataset, Uncovered, frozen

Classifier = Callable[[np.ndarray], np.ndarray]
"""From images uint8 [n, H, W, ch] to labels int [n]."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The accuracies of the clients that take part: least <= accuracy <= most.

    Attributes:
        least: In [0, 1].
        most: In [0, 1].
    """

    least: float = 0.0
    most: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most <= 1:
            raise UserError(f"accuracies from {self.least:g} to {self.most:g} are no range in 0..1")

    def contains(self, accuracy: np.ndarray) -> np.ndarray:
        """Returns which accuracies lie in the range: bool [U]; NaN lies in none.

        Args:
            accuracy: float [U].
        """
        inside: np.ndarray = (accuracy >= self.least) & (accuracy <= self.most)
        return inside

    def __str__(self) -> str:
        return f"from {self.least:.4g} to {self.most:.4g}"


def accuracies(data: Dataset, classifier: Classifier) -> np.ndarray:
    """Computes how well a classifier reads each client's records. The result is private.

    Args:
        data: A data set that names its clients.
        classifier: The classifier.

    Returns:
        float64 [U], each in [0, 1]; NaN for a client without records.

    Raises:
        UserError: The data set names no clients.
    """
    clients = _clients(data)
    count, present = clients.max() + 1, np.flatnonzero(data.y_train != EMPTY)
    right = classifier(data.x_train[present]) == data.y_train[present]
    with np.errstate(invalid="ignore"):
        shares: np.ndarray = (np.bincount(clients[present], right, count)
                              / np.bincount(clients[present], minlength=count))
    return shares


def left_out(data: Dataset, stays: np.ndarray, how: str) -> Dataset:
    """Leaves out clients, by whatever private records said.

    Args:
        data: A data set that names its clients.
        stays: bool [U], the clients that stay.
        how: One line for the statement on what decided, as in "those whose records a classifier
            reads".

    Returns:
        The records of the clients that stay, who are numbered anew. `uncovered` names the choice.

    Raises:
        UserError: The data set names no clients, or fewer than two stay.
    """
    if stays.sum() < 2:
        raise UserError(f"{data.name}: {stays.sum()} clients are {how}; choose so that 2 or more "
                        "stay")
    choice = Uncovered(f"{stays.sum():,} of {len(stays):,} clients take part: {how}",
                       "no choice by private records")
    return dataclasses.replace(part_of(data, stays), uncovered=(*data.uncovered, choice))


def part_of(data: Dataset, stays: np.ndarray) -> Dataset:
    """Returns the records of some clients, chosen without a look at any record.

    Args:
        data: A data set that names its clients.
        stays: bool [U], the clients that stay; they are numbered anew.

    Raises:
        UserError: The data set names no clients.
    """
    clients = _clients(data)
    rows, ranks = stays[clients], np.cumsum(stays) - 1
    return dataclasses.replace(
        data, x_train=frozen(data.x_train[rows], data.x_train.dtype),
        y_train=frozen(data.y_train[rows], np.int32),
        clients=frozen(ranks[clients[rows]], np.int32))


def emptied(data: Dataset, classifier: Classifier, taking_part: Range, origin: str,
            bought: tuple[Json, ...] = ()) -> Dataset:
    """Empties clients by a classifier that is public, or was released under differential privacy.

    Guarantee:
        Unit: a client. Relation: replace-one: all its records change, their number too. The set of
        clients stays; whether a client is emptied is a function of its own records, the classifier
        and the range, so that the records of exactly one unit change. It holds if no private record
        decided about the classifier or the range except through the events in `bought`, which a run
        on the result charges beside its own.

    Args:
        data: A data set that names its clients.
        classifier: A classifier that no private record decided about, except through releases whose
            events are `bought`.
        taking_part: The accuracies of the clients that keep their records; named without a look at
            the records.
        origin: Where the classifier comes from, for the statement.
        bought: The events of the releases that it was made of, as rows of
            `accountant.events.to_json`; their unit is a client.

    Returns:
        The same clients; those with another accuracy have empty slots only.

    Raises:
        UserError: The data set names no clients, or its schema was bought at the level of records.
    """
    if data.bought and data.bought_unit != Unit.CLIENT:
        raise UserError(f"{data.name}: its schema was bought at the level of single records, which "
                        "does not cover a client; declare the schema")
    stays = taking_part.contains(accuracies(data, classifier))
    rows = stays[_clients(data)]
    x = np.where(rows.reshape(-1, *[1] * (data.x_train.ndim - 1)), data.x_train, 0)
    note = (f"clients whose records a classifier reads with an accuracy that is not {taking_part} "
            f"take part without records; the classifier: {origin}")
    return dataclasses.replace(
        data, x_train=frozen(x, data.x_train.dtype),
        y_train=frozen(np.where(rows, data.y_train, EMPTY), np.int32),
        notes=(*data.notes, note), bought=(*data.bought, *bought), bought_unit=Unit.CLIENT)


def _clients(data: Dataset) -> np.ndarray:
    """Returns the client of each record."""
    if data.clients is None:
        raise UserError(f"{data.name} does not say who holds which record: split it first")
    return data.clients
