"""What the votes of a finished run tell the data holder: agreement, and a data-dependent epsilon.

All of it is as private as the records. It decides nothing and is exported nowhere; `Reading` leaves
this folder through `for_the_holder` alone, to be shown on the data holder's own terminal. The one
way to publish a data-dependent number is `aggregation.sanitise`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpgen_jax.accountant import pate
from dpgen_jax.private import votes
from dpgen_jax.private.votes import Votes
from dpgen_jax.types import Private, unseal

ORDERS = np.concatenate([1 + np.geomspace(0.05, 1, 10), np.arange(2.5, 10, 0.5),
                         np.geomspace(10, 500, 25)])


class Kind(Protocol):
    """How the votes of a mechanism are read and what they cost: Renyi divergences at orders [A]."""

    mechanism: Any

    def votes(self, path: Path) -> Private[Votes]:
        """Those that a run kept. Errors: UserError where it kept none."""

    def rdp(self, held: Votes, orders: np.ndarray) -> np.ndarray:
        """[A]: of all queries together, for these votes."""

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """[A]: of one query, whatever its votes."""


@dataclasses.dataclass(frozen=True)
class Confident:
    """Of a `ConfidentGNMax` with noise: `pate.confident_gnmax_rdp`."""

    mechanism: Any

    def votes(self, path: Path) -> Private[Votes]:
        return votes.read(path, self.mechanism.queries, self.mechanism.bound.bins)

    def rdp(self, held: Votes, orders: np.ndarray) -> np.ndarray:
        ours = self.mechanism
        return pate.confident_gnmax_rdp(held.counts, held.answered, ours.votes_needed,
                                        ours.test_noise.sigma, ours.noise.sigma, orders)

    def worst(self, orders: np.ndarray) -> np.ndarray:
        test, vote = self.mechanism.test_noise.sigma, self.mechanism.noise.sigma
        return orders * (1 / (2 * test**2) + 1 / vote**2)


@dataclasses.dataclass(frozen=True)
class Majority:
    """Of a `LabelMechanism` with noise that releases majorities: `pate.count_test_rdp`."""

    mechanism: Any

    def votes(self, path: Path) -> Private[Votes]:
        return votes.read_labels(path, self.mechanism.queries, self.mechanism.n_units)

    def rdp(self, held: Votes, orders: np.ndarray) -> np.ndarray:
        times = np.bincount(held.counts[:, 1], minlength=self.mechanism.n_units + 1)
        return times @ self._each(orders)

    def worst(self, orders: np.ndarray) -> np.ndarray:
        return self._each(orders).max(0)

    def _each(self, orders: np.ndarray) -> np.ndarray:
        """[n_units + 1, A]: of a query with so many votes."""
        ours = self.mechanism
        return pate.count_test_rdp(ours.votes_needed, ours.n_units, ours.noise.log_tail, orders)


@dataclasses.dataclass(frozen=True)
class Reading:
    """epsilon: data-dependent, at the run's delta; order: of its Renyi bound; answered: share of
    the queries; first, second: mean share of the votes in the most voted bin and in the next;
    queries: that were kept; lost: steps that were charged and kept no votes."""

    epsilon: float
    order: float
    answered: float
    first: float
    second: float
    queries: int
    lost: int


def read(sealed: Private[Votes], kind: Kind, delta: float, charged: int) -> Private[Reading]:
    """The reading of a run of which `charged` steps stand in the ledger; those without votes count
    at their worst."""
    held, mechanism = unseal(sealed), kind.mechanism
    lost = max(0, charged - held.steps)
    rdp = kind.rdp(held, ORDERS) + lost * mechanism.queries * kind.worst(ORDERS)
    best = int(np.argmin([pate.epsilon_of(rdp[i:i + 1], ORDERS[i:i + 1], delta)
                          for i in range(len(ORDERS))]))
    ordered = np.sort(held.counts, 1)[:, ::-1] / mechanism.n_units
    first, second = ordered[:, :2].mean(0)
    return Private(Reading(pate.epsilon_of(rdp, ORDERS, delta), float(ORDERS[best]),
                           float(held.answered.mean()), float(first), float(second),
                           len(held.counts), lost))


def for_the_holder(reading: Private[Reading]) -> Reading:
    """Opens a reading, for the data holder's own eyes."""
    return unseal(reading)
