"""Federations: the clients that a data set names, simulated ones, and a choice among them.

In a real federation nobody deals records out: each client brings its records, and nobody sees those
of two clients together. A data set names the client of each record, as `npz:` does by an array
`client_id`. For other data sets clients are simulated, in one of two ways:

  evenly    The run deals the records by its secret partition key
            (`private.records.simulated_partition`). No client exists who could be protected, but
            each record is: replacing one record changes the data of one client only, so that what
            holds for clients holds for records. (`client_count` checks the number of clients.)
  `split`   simulates clients before a run, as benchmarks do: it reads labels (Dirichlet), or
            takes a public seed so that clients can be given a fault (`flipped`). Replacing one
            record may then change the records of several clients. Runs on it state no guarantee.

Clients can also be chosen by how well a classifier reads their records. In the debugging task of
Augenstein et al. 2020 (ICLR, arXiv 1911.06679, section 6), which GS-WGAN repeats (Chen et al. 2020,
arXiv 2006.08265, appendix C.2), one generator is trained on the clients whose records a classifier
reads well, and one on those whose records it reads badly. The choice depends on private records.
Whether it costs privacy depends on the classifier:

  trained on the clients' records    `left_out`: which clients take part, and how many, is then a
                                     function of all records, which no epsilon covers. The data set
                                     names it in `uncovered`, and a release says "not covered".
  public, or released under          `emptied`: whether a client takes part is a function of its own
  differential privacy               records. One that does not take part keeps its place as a
                                     client without records, who cannot be distinguished from the
                                     others. This costs nothing more; the cost of the classifier
                                     itself is charged again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import EMPTY, ImageSpec, UserError
from dpgen_jax.data.base import Dataset, Uncovered, frozen

BY_LABEL = ("the simulated clients were dealt records by their labels, and no bound is proven for "
            "one record")
BY_SEED = ("the simulated clients were dealt records by a public seed, and no bound is proven for "
           "one record")
MAX_ALPHA = 1e6  # shares then differ by a thousandth; far above, numpy's sampler overflows


def client_count(dataset: Dataset, clients: int | None) -> int:
    """Returns U, the number of clients to simulate, which the user requests."""
    n = len(dataset.y_train)
    if clients is None:
        raise UserError(f"{dataset.name} does not say which client has which record: pass "
                        f"{option('clients', 'N')}, or an npz: file with an array client_id")
    _check(clients)
    if clients > n:
        raise UserError(f"{n:,} records cannot be split over {clients:,} clients: every client "
                        f"needs at least one; pass {option('clients', max(2, n // 15))}, for "
                        "example")
    return clients


def split(dataset: Dataset, clients: int | None, alpha: float | None, seed: int) -> Dataset:
    """Simulates clients, for a federated run without a guarantee.

    Args:
        dataset: The records.
        clients: The number of clients.
        alpha: None deals evenly at random: sizes are equal up to one. A number, small for clients
            that differ much, deals each class by shares over the clients that are sampled from a
            symmetric Dirichlet(alpha) (Yurochkin et al. 2019, arXiv 1905.12022), so that sizes
            differ too. In the related benchmark of Hsu, Qi and Brown 2019 (arXiv 1909.06335) each
            client samples shares over the classes instead, and all have one size. Both look at the
            labels, as only a simulation may. A client without records takes one of the largest.
        seed: Public; it decides who gets which record.
    """
    n_clients, rng = client_count(dataset, clients), np.random.default_rng(seed)
    if alpha is None:
        dealt, how = rng.permutation(len(dataset.y_train)) % n_clients, "evenly, by a public seed"
    else:
        dealt, how = _by_class(dataset, n_clients, alpha, rng), f"by class, Dirichlet({alpha:g})"
    dealt, moved = _fill_empty(dealt, n_clients)
    note = f"{n_clients} simulated clients: records are dealt {how}"
    # How many were empty depends on the labels: it is not published.
    private = (f"{moved} of {n_clients} clients were dealt no record and took one of the then "
               "largest client",) * bool(moved)
    return dataclasses.replace(
        dataset, clients=frozen(dealt, np.int32), notes=(*dataset.notes, note),
        private_notes=dataset.private_notes + private,
        simulated=BY_SEED if alpha is None else BY_LABEL)


def flipped(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, np.ndarray]:
    """Gives a share of the clients a fault that samples should show: images become 255 - x.

    It is the debugging task of Augenstein et al. 2020 (ICLR, arXiv 1911.06679), which Chen,
    Orekondy and Fritz 2020 (GS-WGAN) repeat. Held-out images stay as they are. The share lies in
    (0, 1], and the seed samples the clients.

    Returns:
        The data set, and the flipped clients: int [.], ascending.
    """
    if not isinstance(dataset.spec, ImageSpec):
        raise UserError(f"{dataset.name} is a table: pixel intensities can be flipped only in "
                        "images")
    if dataset.clients is None:
        raise UserError(f"{dataset.name} does not say which client "
                        "has which record: split it first")
    if not 0 < share <= 1:
        raise UserError(f"share {share:g} of clients to flip: give a number above 0 and up to 1")
    n_clients = int(dataset.clients.max()) + 1
    count = math.floor(share * n_clients + 0.5)
    if not count:
        raise UserError(f"share {share:g} of {n_clients} clients means no client; give "
                        f"{1 / n_clients:.2g} or more")
    affected = np.sort(np.random.default_rng(seed).permutation(n_clients)[:count])
    x = np.array(dataset.x_train)
    rows = np.isin(dataset.clients, affected) & (dataset.y_train != EMPTY)
    x[rows] = 255 - x[rows]
    note = f"simulated clients: pixel intensities are flipped at {count} of {n_clients} clients"
    return dataclasses.replace(dataset, x_train=frozen(x, np.uint8),
                               notes=(*dataset.notes, note)), affected


def with_declared_clients(dataset: Dataset, clients: int | None, alpha: float | None) -> Dataset:
    """Returns a data set that names its clients, with a note of their public number.

    The number of clients and the Dirichlet parameter that the user requests are refused where they
    are others.
    """
    if dataset.clients is None:
        raise UserError(f"{dataset.name} does not say which client "
                        "has which record: split it first")
    count = int(dataset.clients.max()) + 1
    if clients not in (None, count):
        raise UserError(f"{dataset.name} names {count} clients itself, "
                        f"{option('clients', clients)} was given; leave it out")
    if alpha is not None:
        raise UserError(f"{dataset.name} already names its clients: alpha {alpha:g} does not "
                        "apply; leave it out")
    _check(count)
    note = f"the clients are those the file names; their number, {count}, is public"
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))


def _check(clients: int) -> None:
    if clients == 1:
        raise UserError(f"one client is a central run: leave out {option('federated')}")
    if clients < 2:
        raise UserError(f"{option('clients', clients)} is too small; give 2 or more")


def _by_class(dataset: Dataset, clients: int, alpha: float,
              rng: np.random.Generator) -> np.ndarray:
    """Returns the client of each record; it gets its share of each class up to one record."""
    if not 0 < alpha <= MAX_ALPHA:
        raise UserError(f"Dirichlet alpha {alpha:g}: give a number above 0 (0.1 for clients with "
                        f"few classes, 100 for nearly equal clients) up to {MAX_ALPHA:g}, or leave "
                        "it out for an even split")
    dealt = np.arange(len(dataset.y_train)) % clients  # an empty slot is of no class
    shares = rng.dirichlet(np.full(clients, alpha), dataset.spec.classes)
    for c, ends in enumerate(np.cumsum(shares, 1)):
        rows = rng.permutation(np.flatnonzero(dataset.y_train == c))
        # Record i of n lies at the quantile (i + 1/2) / n, which falls to one client's share.
        dealt[rows] = np.searchsorted(ends[:-1], (np.arange(len(rows)) + 0.5) / max(len(rows), 1))
    return dealt


def _fill_empty(dealt: np.ndarray, clients: int) -> tuple[np.ndarray, int]:
    """Gives each empty client the last record of the then largest; also returns their number."""
    sizes = np.bincount(dealt, minlength=clients)
    empty = np.flatnonzero(sizes == 0)
    for client in empty:
        largest = sizes.argmax()
        dealt[np.flatnonzero(dealt == largest)[-1]] = client
        sizes[[largest, client]] += [-1, 1]
    return dealt, len(empty)


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
            raise UserError(f"accuracies from {self.least:g} to {self.most:g} are not a range "
                            "within 0..1")

    def contains(self, accuracy: np.ndarray) -> np.ndarray:
        """Returns which accuracies float [U] lie in the range: bool [U]; NaN lies in none."""
        inside: np.ndarray = (accuracy >= self.least) & (accuracy <= self.most)
        return inside

    def __str__(self) -> str:
        return f"from {self.least:.4g} to {self.most:.4g}"


def accuracies(data: Dataset, classifier: Classifier) -> np.ndarray:
    """Computes how well a classifier reads each client's records: float64 [U] in [0, 1].

    The result is private. It is NaN for a client without records.
    """
    clients = _clients(data)
    count, present = clients.max() + 1, np.flatnonzero(data.y_train != EMPTY)
    right = classifier(data.x_train[present]) == data.y_train[present]
    with np.errstate(invalid="ignore"):
        shares: np.ndarray = (np.bincount(clients[present], right, count)
                              / np.bincount(clients[present], minlength=count))
    return shares


def left_out(data: Dataset, stays: np.ndarray, how: str) -> Dataset:
    """Leaves out the clients that do not stay, by a choice that depends on private records.

    Those that stay, bool [U], are renumbered, and `uncovered` names the choice: `how` is one line
    for the statement on what decided, as in "those whose records a classifier reads".
    """
    if stays.sum() < 2:
        raise UserError(f"{data.name}: {stays.sum()} clients are {how}; choose so that 2 or more "
                        "stay")
    choice = Uncovered(f"{stays.sum():,} of {len(stays):,} clients take part: {how}",
                       "no choice by private records")
    return dataclasses.replace(part_of(data, stays), uncovered=(*data.uncovered, choice))


def part_of(data: Dataset, stays: np.ndarray) -> Dataset:
    """Returns the records of the clients that stay, bool [U], who are renumbered.

    They are chosen without reading any record.
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
        influenced the classifier or the range except through the events in `bought`, which a run on
        the result charges in addition to its own.

    Args:
        data: A data set that names its clients.
        classifier: A classifier that no private record influenced, except through releases whose
            events are `bought`.
        taking_part: The accuracies of the clients that keep their records; chosen without reading
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
        raise UserError(f"{data.name}: its schema was bought for single records, which does not "
                        "cover a client; declare the schema")
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
    if data.clients is None:
        raise UserError(f"{data.name} does not say which client has which record: split it first")
    return data.clients
