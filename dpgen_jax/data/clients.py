"""Federations: clients that a data set names, and simulated ones.

In a real federation nobody deals records out: each client brings its own, nobody sees two clients'
records together, and `npz:` with an array `client_id` says whose each is. Where nobody is named,
clients are made up, and there are two ways:

  evenly    The run deals the records by its secret partition key (`partition.simulated`). No client
            exists who could be protected, but each record is: replacing one changes one client's
            data alone, so that what holds for clients holds for records. (`counted` checks their
            number.)
  `split`   plays the world before a run, as benchmarks do: it looks at labels (Dirichlet), or takes
            a public seed so that clients can be given a fault (`flipped`). Replacing one record may
            then change what several clients hold. Runs on it state no guarantee.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpgen_jax.data.base import Dataset, frozen
from dpgen_jax.types import EMPTY, ImageSpec, UserError

BY_LABEL = ("the simulated clients were dealt records by their labels, and no bound is proven for "
            "one record")
BY_SEED = ("the simulated clients were dealt records by a public seed, and no bound is proven for "
           "one record")
MOST_EVEN = 1e6  # alpha; shares then differ by a thousandth, and far above numpy's draw overflows


def counted(dataset: Dataset, clients: int | None) -> int:
    """The number of clients to simulate, U. Errors: UserError, one line, for too few or many."""
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
    """The data set with `clients` set, for a federated run without a guarantee.

    clients: how many.
    alpha: None deals evenly at random: sizes are equal up to one. A number, small for clients that
      differ much, deals each class by shares over the clients that are drawn from a symmetric
      Dirichlet(alpha) (Yurochkin et al. 2019, arXiv 1905.12022), so that sizes differ too. In the
      kindred benchmark of Hsu, Qi and Brown 2019 (arXiv 1909.06335) each client draws shares
      over the classes instead, and all have one size. Both look at the labels, as only a
      simulation may. A client that got nothing takes a record of the largest one.
    Errors: UserError, one line.
    """
    clients, rng = counted(dataset, clients), np.random.default_rng(seed)
    if alpha is None:
        dealt, how = rng.permutation(len(dataset.y_train)) % clients, "evenly, by a public seed"
    else:
        dealt, how = _by_class(dataset, clients, alpha, rng), f"by class, Dirichlet({alpha:g})"
    dealt, moved = _fill_empty(dealt, clients)
    note = f"{clients} simulated clients: records are dealt {how}"
    # How many were empty tells about the labels: not to be published.
    private = (f"{moved} of {clients} clients were dealt no record and got one of the then largest "
               "client",) * bool(moved)
    return dataclasses.replace(
        dataset, clients=frozen(dealt, np.int32), notes=(*dataset.notes, note),
        private_notes=dataset.private_notes + private,
        simulated=BY_SEED if alpha is None else BY_LABEL)


def flipped(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, np.ndarray]:
    """A fault to be found from samples: images become 255 - x at a share of the clients, which are
    drawn at random. Also returns these clients, int [.], ascending; held-out images stay.

    The debugging task of Augenstein et al. 2020 (ICLR, arXiv 1911.06679), which Chen, Orekondy and
    Fritz 2020 (GS-WGAN) repeat. Errors: UserError, one line.
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
    chosen = np.sort(np.random.default_rng(seed).permutation(n_clients)[:count])
    x = dataset.x_train.copy()
    rows = np.isin(dataset.clients, chosen) & (dataset.y_train != EMPTY)
    x[rows] = 255 - x[rows]
    note = f"simulated clients: pixel intensities are flipped at {count} of {n_clients} clients"
    return dataclasses.replace(dataset, x_train=frozen(x, np.uint8),
                               notes=(*dataset.notes, note)), chosen


def named(dataset: Dataset, clients: int | None, alpha: float | None) -> Dataset:
    """A data set that names its clients, with a note of their public number. Errors: UserError
    where others were asked for."""
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
    if clients == 1:
        raise UserError("one client is a central run: leave out --federated")
    if clients < 2:
        raise UserError(f"--clients {clients} is too small; give 2 or more")


def _by_class(dataset: Dataset, clients: int, alpha: float,
              rng: np.random.Generator) -> np.ndarray:
    """The client of each record; of a class, each client holds its share up to one record."""
    if not 0 < alpha <= MOST_EVEN:
        raise UserError(f"Dirichlet alpha {alpha:g}: give a number above 0 (0.1 for clients of few "
                        f"classes, 100 for nearly equal ones) up to {MOST_EVEN:g}, or leave it out "
                        "for an even split")
    dealt = np.arange(len(dataset.y_train)) % clients  # an empty slot is of no class
    shares = rng.dirichlet(np.full(clients, alpha), dataset.spec.classes)
    for c, ends in enumerate(np.cumsum(shares, 1)):
        own = rng.permutation(np.flatnonzero(dataset.y_train == c))
        dealt[own] = np.searchsorted(ends[:-1], (np.arange(len(own)) + 0.5) / max(len(own), 1))
    return dealt


def _fill_empty(dealt: np.ndarray, clients: int) -> tuple[np.ndarray, int]:
    """Gives each empty client, in turn, the last record of the then largest one; and how many."""
    sizes = np.bincount(dealt, minlength=clients)
    empty = np.flatnonzero(sizes == 0)
    for client in empty:
        largest = sizes.argmax()
        dealt[np.flatnonzero(dealt == largest)[-1]] = client
        sizes[[largest, client]] += [-1, 1]
    return dealt, len(empty)
