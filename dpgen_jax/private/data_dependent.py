"""Reads the votes of a finished run for the data holder: agreement, and a data-dependent epsilon.

All of it is as private as the records. It decides nothing and is exported nowhere; `Reading` leaves
this folder through `for_the_holder` alone, to be shown on the data holder's own terminal. The one
way to publish a data-dependent number is `aggregation.sanitise`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from dpgen_jax.accountant import pate, pate_laplace
from dpgen_jax.accountant.topagg import TopAgg
from dpgen_jax.core.types import Private, unseal
from dpgen_jax.private import votes
from dpgen_jax.private.vote_mechanisms import KeepsHistograms, KeepsSums, KeepsVotes, WithTails
from dpgen_jax.private.votes import Votes

Shown = TypeVar("Shown", "Reading", "Curve")
"""the readings that the data holder may see"""
ORDERS = np.concatenate([1 + np.geomspace(0.05, 1, 10), np.arange(2.5, 10, 0.5),
                         np.geomspace(10, 500, 25)])


class Kind(Protocol):
    """The protocol of a mechanism's votes: how they are read and what they cost."""

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the votes that a run kept, sealed.

        Args:
            path: The file.

        Raises:
            UserError: The run kept none.
        """

    def rdp(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of all queries together, for these votes.

        Args:
            kept: The votes.
            orders: float64 [A].
        """

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of one round, whatever its votes.

        Args:
            orders: float64 [A].
        """

    def agreement(self, kept: Votes) -> dict[str, float]:
        """Returns mean shares that say how far the units agreed, by name.

        Args:
            kept: The votes.
        """


@dataclasses.dataclass(frozen=True)
class Confident:
    """The votes of a `ConfidentGNMax` with noise: `pate.confident_gnmax_rdp`.

    Attributes:
        mechanism: The mechanism.
    """

    mechanism: KeepsHistograms

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the votes that a run kept, sealed."""
        return votes.read(path, self.mechanism.queries, self.mechanism.vote_bins)

    def rdp(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of all queries together, for these votes."""
        mechanism = self.mechanism
        return pate.confident_gnmax_rdp(kept.counts, kept.answered, mechanism.votes_needed,
                                        mechanism.test_noise.sigma, mechanism.noise.sigma, orders)

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of one round, whatever its votes."""
        test, vote = self.mechanism.test_noise.sigma, self.mechanism.noise.sigma
        return self.mechanism.queries * (orders * (1 / (2 * test**2) + 1 / vote**2))

    def agreement(self, kept: Votes) -> dict[str, float]:
        """Returns mean shares of the votes in the two largest bins, and of queries answered."""
        return _of_bins(kept, self.mechanism.n_units)


@dataclasses.dataclass(frozen=True)
class Majority:
    """The votes of a `LabelMechanism` of majorities with noise: `pate_laplace.count_test_rdp`.

    Attributes:
        mechanism: The mechanism.
        noise: Its noise.
    """

    mechanism: KeepsVotes
    noise: WithTails

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the votes that a run kept, sealed."""
        return votes.read_labels(path, self.mechanism.queries, self.mechanism.n_units)

    def rdp(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of all queries together, for these votes."""
        times = np.bincount(kept.counts[:, 1], minlength=self.mechanism.n_units + 1)
        return times @ self._each(orders)

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of one round, whatever its votes."""
        return self.mechanism.queries * self._each(orders).max(0)

    def agreement(self, kept: Votes) -> dict[str, float]:
        """Returns mean shares of the votes for the two labels, and of queries answered."""
        return _of_bins(kept, self.mechanism.n_units)

    def _each(self, orders: np.ndarray) -> np.ndarray:
        """Returns [n_units + 1, A]: the divergences of a query with so many votes."""
        mechanism = self.mechanism
        return pate_laplace.count_test_rdp(mechanism.votes_needed, mechanism.n_units,
                                   self.noise.log_tail, orders)


@dataclasses.dataclass(frozen=True)
class Signs:
    """The sums of a `TopAggMechanism` with noise: `accountant.topagg`.

    Attributes:
        mechanism: The mechanism.
    """

    mechanism: KeepsSums

    @property
    def row(self) -> TopAgg:
        """The public numbers of the release of one row of sums."""
        mechanism = self.mechanism
        return TopAgg(mechanism.n_units, min(mechanism.bound.top_k, mechanism.shape[1]),
                      mechanism.votes_needed, mechanism.noise.sigma)

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the sums that a run kept, sealed."""
        rows, columns = self.mechanism.shape
        return votes.read_sums(path, rows, columns, self.mechanism.n_units)

    def rdp(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of all rounds together, for these sums."""
        return self.by_round(kept, orders).sum(0)

    def by_round(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [S, A] of each round, for these sums.

        Args:
            kept: The sums.
            orders: float64 [A].
        """
        rows = self.row.by_entries(kept.counts, orders)
        return rows.reshape(kept.steps, -1, len(orders)).sum(1)

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of one round, whatever its sums."""
        return self.mechanism.shape[0] * self.row.independent(orders)

    def agreement(self, kept: Votes) -> dict[str, float]:
        """Returns how far the votes of an entry agree, and how many pass the threshold."""
        sums = np.abs(kept.counts)
        return {"mean lead of an entry": float(sums.mean()) / self.mechanism.n_units,
                "entries that pass without noise": float((sums >= self.row.needed).mean())}


@dataclasses.dataclass(frozen=True)
class Reading:
    """A private reading of a finished run.

    Attributes:
        epsilon: Data-dependent, at the run's delta.
        order: Of its Renyi bound.
        agreement: Mean shares that say how far the units agreed, by name.
        queries: Queries that were kept.
        lost: Rounds that were charged and kept no votes.
    """

    epsilon: float
    order: float
    agreement: dict[str, float]
    queries: int
    lost: int


def read(sealed: Private[Votes], kind: Kind, delta: float, charged: int) -> Private[Reading]:
    """Returns the reading of a run; rounds without votes count at their worst.

    Args:
        sealed: The votes of the run.
        kind: How they are read.
        delta: The run's delta.
        charged: Rounds that stand in the ledger.
    """
    kept = unseal(sealed)
    lost = max(0, charged - kept.steps)
    rdp = kind.rdp(kept, ORDERS) + lost * kind.worst(ORDERS)
    best = int(np.argmin([pate.epsilon_of(rdp[i:i + 1], ORDERS[i:i + 1], delta)
                          for i in range(len(ORDERS))]))
    return Private(Reading(pate.epsilon_of(rdp, ORDERS, delta), float(ORDERS[best]),
                           kind.agreement(kept), len(kept.counts), lost))


def _of_bins(kept: Votes, n_units: int) -> dict[str, float]:
    first, second = (np.sort(kept.counts, 1)[:, ::-1] / n_units)[:, :2].mean(0)
    return {"most agreed bin": float(first), "second": float(second),
            "answered": float(kept.answered.mean())}


@dataclasses.dataclass(frozen=True)
class Curve:
    """The cost of TopAgg after each round, by three accountings: Figure 2 of DataLens.

    Attributes:
        independent: Epsilon after each round, whatever the votes [S].
        theorem: Epsilon after each round by Theorems 4 and 5 [S]; inf where they say nothing.
        entries: Epsilon after each round by the laws of the entries [S].
        log_peak: ln of the largest probability that any row of a round had of its likeliest
            outcome [S]: 1 - q of Theorem 5.
    """

    independent: list[float]
    theorem: list[float]
    entries: list[float]
    log_peak: list[float]


def curve(sealed: Private[Votes], kind: Signs, delta: float) -> Private[Curve]:
    """Returns the data-dependent epsilons of TopAgg round by round, beside the data-independent.

    Args:
        sealed: The sums of the run.
        kind: How they are read.
        delta: The run's delta.
    """
    kept, row = unseal(sealed), kind.row
    peak = row.laws(kept.counts).max(-1).sum(-1).reshape(kept.steps, -1)
    theorem = row.theorem(row.log_q(kept.counts), ORDERS).reshape(kept.steps, -1, len(ORDERS))

    def epsilons(rdp: np.ndarray) -> list[float]:
        return [pate.epsilon_of(total, ORDERS, delta) for total in np.cumsum(rdp, 0)]

    return Private(Curve(
        epsilons(np.tile(kind.worst(ORDERS), (kept.steps, 1))), epsilons(theorem.sum(1)),
        epsilons(kind.by_round(kept, ORDERS)), peak.max(1).tolist()))


def for_the_holder(reading: Private[Shown]) -> Shown:
    """Opens a reading, for the data holder's own eyes.

    Args:
        reading: As `read` or `curve` returns it.
    """
    return unseal(reading)
