"""Federations: the clients that a data set names, and simulated ones.

In a real federation nobody deals records out: each client brings its records, and nobody sees those
of two clients together. A data set names the client of each record, as `npz:` does by an array
`client_id`. For other data sets clients are simulated, in one of two ways:

  evenly    The run deals the records by its secret partition key (`partition.simulated`). No client
            exists who could be protected, but each record is: replacing one changes one client's
            data alone, so that what holds for clients holds for records. (`client_count` checks
            their number.)
  `split`   plays the world before a run, as benchmarks do: it looks at labels (Dirichlet), or takes
            a public seed so that clients can be given a fault (`flipped`). Replacing one record may
            then change the records of several clients. Runs on it state no guarantee.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpgen_jax.core.types import EMPTY, ImageSpec, UserError
from dpgen_jax.data.base import Dataset, frozen

BY_LABEL = ("the simulated clients were dealt records by their labels, and no bound is proven for "
            "one record")
BY_SEED = ("the simulated clients were dealt records by a public seed, and no bound is proven for "
           "one record")
MAX_ALPHA = 1e6  # shares then differ by a thousandth; far above, numpy's sampler overflows


def client_count(dataset: Dataset, clients: int | None) -> int:
    """Returns U, the number of clients to simulate.

    Args:
        dataset: The records.
        clients: The number that the user requests, or None.

    Raises:
        UserError: There is no number, or it is too small or too large.
    """
    n = len(dataset.y_train)
    if clients is None:
        raise UserError(f"{dataset.name} does not say who holds which record: pass --clients N, or "
                        "an npz: file with an array client_id")
    _check(clients)
    if clients > n:
        raise UserError(f"{n:,} records cannot be split over {clients:,} clients: every client "
                        f"needs at least one; pass --clients {max(2, n // 15)}, for example")
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

    Returns:
        The data set with `clients` and `simulated` set.

    Raises:
        UserError: The number of clients or alpha cannot be used.
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
    Orekondy and Fritz 2020 (GS-WGAN) repeat. Held-out images stay as they are.

    Args:
        dataset: Images with clients.
        share: The share of clients to flip, in (0, 1].
        seed: Samples these clients.

    Returns:
        The data set, and the flipped clients: int [.], ascending.

    Raises:
        UserError: For a table, a data set without clients, or a share of no client.
    """
    if not isinstance(dataset.spec, ImageSpec):
        raise UserError(f"{dataset.name} is a table: pixel intensities can be flipped in images "
                        "only")
    if dataset.clients is None:
        raise UserError(f"{dataset.name} does not say who holds which record: split it first")
    if not 0 < share <= 1:
        raise UserError(f"share {share:g} of clients to flip: give a number above 0, up to 1")
    n_clients = int(dataset.clients.max()) + 1
    count = math.floor(share * n_clients + 0.5)
    if not count:
        raise UserError(f"share {share:g} of {n_clients} clients is none; give "
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

    Args:
        dataset: A data set with `clients`.
        clients: The number of clients that the user requests, or None.
        alpha: The Dirichlet parameter that the user requests, or None.

    Raises:
        UserError: It names no clients, or the user requests others.
    """
    if dataset.clients is None:
        raise UserError(f"{dataset.name} does not say who holds which record: split it first")
    count = int(dataset.clients.max()) + 1
    if clients not in (None, count):
        raise UserError(f"{dataset.name} names {count} clients itself, --clients {clients} was "
                        "given; leave it out")
    if alpha is not None:
        raise UserError(f"{dataset.name} names its clients itself: alpha {alpha:g} does not apply; "
                        "leave it out")
    _check(count)
    note = f"the clients are those the file names; their number, {count}, is public"
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))


def _check(clients: int) -> None:
    """Refuses fewer than two clients."""
    if clients == 1:
        raise UserError("one client is a central run: leave out --federated")
    if clients < 2:
        raise UserError(f"--clients {clients} is too small; give 2 or more")


def _by_class(dataset: Dataset, clients: int, alpha: float,
              rng: np.random.Generator) -> np.ndarray:
    """Returns the client of each record; it gets its share of each class up to one record."""
    if not 0 < alpha <= MAX_ALPHA:
        raise UserError(f"Dirichlet alpha {alpha:g}: give a number above 0 (0.1 for clients of few "
                        f"classes, 100 for nearly equal ones) up to {MAX_ALPHA:g}, or leave it out "
                        "for an even split")
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
