"""The vote sums of a run, stored in private/, and the private figures computed from them.

The votes are one file of int32, appended a block at a time, before the block is settled in the
ledger. Each round has its counts [queries, bins], then which queries were answered [queries]. If
all queries are answered, a round has the counts [queries] of the second of two labels, or the sums
[queries] of signed votes. A part cut off by a crash is dropped when the file is read: those rounds
are charged at their largest cost.

For a finished run they give the agreement of units and a data-dependent epsilon. The file and these
figures are as private as the records. Nothing depends on the figures and they are not exported:
only `for_the_holder` opens them, for the data holder's terminal. The only way to publish a
data-dependent number is `aggregation.teacher_votes`.

The mechanisms are those of `aggregation`, which this module does not import: they have the type
`Any`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from dpgen_jax.accountant import pate
from dpgen_jax.accountant.pate import TopAgg
from dpgen_jax.core import files
from dpgen_jax.core.types import Array, Private, UserError, unseal


@dataclasses.dataclass(frozen=True)
class Votes:
    """The vote sums of a run.

    Attributes:
        counts: int32 [Q, bins].
        answered: bool [Q].
        steps: The number of rounds that they come from.
    """

    counts: np.ndarray
    answered: np.ndarray
    steps: int


def append(path: Path, votes: Private[Array], answered: np.ndarray) -> None:
    """Adds the votes of some rounds to the file.

    The first n rounds of the votes, sealed int32 [S, B, D], are added, as many as `answered` has:
    int32 [n, B, k], or [n, 0] if every query is answered.
    """
    n = len(answered)
    counts = np.asarray(unseal(votes))[:n].reshape(n, -1)
    rows = np.concatenate([counts, answered.reshape(n, -1)], 1).astype("<i4")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as out:
        torn = out.tell() % (4 * rows.shape[1])
        out.truncate(out.tell() - torn)
        out.write(rows.tobytes())
        out.flush()
        os.fsync(out.fileno())


def read(path: Path, queries: int, bins: int) -> Private[Votes]:
    """Reads all complete rounds.

    Raises:
        UserError: There is no such file.
    """
    rows = _steps(path, queries * (bins + 1))
    counts, answered = rows[:, :queries * bins], rows[:, queries * bins:]
    return Private(Votes(counts.reshape(-1, bins), answered.reshape(-1).astype(bool), len(rows)))


def read_labels(path: Path, queries: int, n_units: int) -> Private[Votes]:
    """Reads votes for the second of two labels if every query is answered.

    The count of the first label is `n_units` minus that of the second.

    Raises:
        UserError: There is no such file, or it has impossible counts.
    """
    rows = _steps(path, queries)
    second = rows.reshape(-1)
    if np.any((second < 0) | (second > n_units)):
        raise UserError(f"{path} is damaged: it counts votes outside 0 to {n_units}")
    return Private(Votes(np.stack([n_units - second, second], 1), np.ones(second.shape, bool),
                         len(rows)))


def read_sums(path: Path, rows: int, columns: int, n_units: int) -> Private[Votes]:
    """Reads sums of votes of +1 and -1, all of which are answered: sealed int32 [Q, D].

    There is one row for each of the B queried fakes of each round.

    Raises:
        UserError: There is no such file or no round in it, or it has impossible sums.
    """
    rounds = _steps(path, rows * columns)
    if not len(rounds):
        raise UserError(f"{path} has no whole round; this run kept no votes")
    sums = rounds.reshape(-1, columns)
    if np.any(np.abs(sums.astype(np.int64)) > n_units):
        raise UserError(f"{path} is damaged: it has sums of more than {n_units} votes")
    return Private(Votes(sums, np.ones(len(sums), bool), len(rounds)))


def n_steps(path: Path, queries: int, bins: int = 0) -> int:
    """Returns the number of complete stored rounds, over all starts of the run; 0 without a file.

    `bins` is 0 for single counts or sums.

    Raises:
        UserError: It is not a regular file.
    """
    size = files.require_regular(path).st_size if path.exists() else 0
    return size // (4 * queries * (bins + 1))


def answered(path: Path, queries: int, bins: int) -> np.ndarray:
    """Returns which queries of the stored rounds were answered; public: int32 [S, queries].

    Raises:
        UserError: There is no such file.
    """
    return _steps(path, queries * (bins + 1))[:, queries * bins:]


def _steps(path: Path, width: int) -> np.ndarray:
    """Returns int32 [S, width]."""
    try:
        data = files.read_bytes(path)
    except UserError as error:
        raise UserError(f"{error}; this run kept no votes") from error
    return np.frombuffer(data[:len(data) // (4 * width) * 4 * width], "<i4").reshape(-1, width)


Shown = TypeVar("Shown", "Reading", "Curve")
"""the results that the data holder may see"""
ORDERS = np.concatenate([1 + np.geomspace(0.05, 1, 10), np.arange(2.5, 10, 0.5),
                         np.geomspace(10, 500, 25)])


class Kind(Protocol):
    """The protocol of a mechanism's votes: how they are read and their cost."""

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the stored votes of a run, sealed.

        Raises:
            UserError: The run stored none.
        """

    def rdp(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of all queries together, for these votes."""

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of one round, whatever its votes."""

    def agreement(self, kept: Votes) -> dict[str, float]:
        """Returns mean shares that measure the agreement of units, by name."""


@dataclasses.dataclass(frozen=True)
class Confident:
    """The votes of a `ConfidentGNMax` with noise: `pate.confident_gnmax_rdp`.

    Attributes:
        mechanism: An `aggregation.teacher_votes.ConfidentGNMax`.
    """

    mechanism: Any

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the stored votes of a run, sealed."""
        return read(path, self.mechanism.queries, self.mechanism.vote_bins)

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
    """The votes of a `LabelMechanism` of majorities with noise: `pate.count_test_rdp`.

    Attributes:
        mechanism: An `aggregation.teacher_votes.LabelMechanism`.
        noise: Its noise, with `log_tail`: ln P(X >= k) for whole numbers.
    """

    mechanism: Any
    noise: Any

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the stored votes of a run, sealed."""
        return read_labels(path, self.mechanism.queries, self.mechanism.n_units)

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
        """Returns [n_units + 1, A]: the divergences of a query by its number of votes."""
        mechanism = self.mechanism
        return pate.count_test_rdp(mechanism.votes_needed, mechanism.n_units,
                                   self.noise.log_tail, orders)


@dataclasses.dataclass(frozen=True)
class Signs:
    """The sums of a `TopAggMechanism` with noise: `accountant.pate`.

    Attributes:
        mechanism: An `aggregation.topagg.TopAggMechanism`.
    """

    mechanism: Any

    @property
    def row(self) -> TopAgg:
        """The public parameters of the release of one row of sums."""
        mechanism = self.mechanism
        return TopAgg(mechanism.n_units, min(mechanism.bound.top_k, mechanism.shape[1]),
                      mechanism.votes_needed, mechanism.noise.sigma)

    def votes(self, path: Path) -> Private[Votes]:
        """Returns the stored sums of a run, sealed."""
        rows, columns = self.mechanism.shape
        return read_sums(path, rows, columns, self.mechanism.n_units)

    def rdp(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of all rounds together, for these sums."""
        return self.by_round(kept, orders).sum(0)

    def by_round(self, kept: Votes, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [S, A] of each round, for these sums."""
        rows = self.row.by_entries(kept.counts, orders)
        return rows.reshape(kept.steps, -1, len(orders)).sum(1)

    def worst(self, orders: np.ndarray) -> np.ndarray:
        """Returns Renyi divergences [A] of one round, whatever its sums."""
        return self.mechanism.shape[0] * self.row.independent(orders)

    def agreement(self, kept: Votes) -> dict[str, float]:
        """Returns how far the votes for an entry agree, and how many pass the threshold."""
        sums = np.abs(kept.counts)
        return {"mean lead of an entry": float(sums.mean()) / self.mechanism.n_units,
                "entries that pass without noise": float((sums >= self.row.needed).mean())}


@dataclasses.dataclass(frozen=True)
class Reading:
    """The private figures of a finished run.

    Attributes:
        epsilon: Data-dependent epsilon at the run's delta.
        order: The order of its Renyi bound.
        agreement: Mean shares that measure the agreement of units, by name.
        lost: The number of charged rounds without stored votes.
    """

    epsilon: float
    order: float
    agreement: dict[str, float]
    queries: int
    lost: int


def read_for_the_holder(sealed: Private[Votes], kind: Kind, delta: float,
                        charged: int) -> Private[Reading]:
    """Returns the figures of a run; rounds without votes count at their largest cost."""
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
    """The cost of TopAgg after each round by three accountings, as in Figure 2 of DataLens.

    Attributes:
        independent: Epsilon after each round, whatever the votes [S].
        theorem: Epsilon after each round by Theorems 4 and 5 [S]; inf if they do not apply.
        entries: Epsilon after each round by the distributions of the entries [S].
        log_peak: ln of the largest probability of the likeliest outcome over the rows of a round
            [S]: 1 - q of Theorem 5.
    """

    independent: list[float]
    theorem: list[float]
    entries: list[float]
    log_peak: list[float]


def cost_curve(sealed: Private[Votes], kind: Signs, delta: float) -> Private[Curve]:
    """Returns the data-dependent and data-independent epsilons of TopAgg, round by round."""
    kept, row = unseal(sealed), kind.row
    peak = row.laws(kept.counts).max(-1).sum(-1).reshape(kept.steps, -1)
    theorem = row.theorem(row.log_q(kept.counts), ORDERS).reshape(kept.steps, -1, len(ORDERS))

    def epsilons(rdp: np.ndarray) -> list[float]:
        return [pate.epsilon_of(total, ORDERS, delta) for total in np.cumsum(rdp, 0)]

    return Private(Curve(
        epsilons(np.tile(kind.worst(ORDERS), (kept.steps, 1))), epsilons(theorem.sum(1)),
        epsilons(kind.by_round(kept, ORDERS)), peak.max(1).tolist()))


def for_the_holder(reading: Private[Shown]) -> Shown:
    """Opens private figures, for the data holder only."""
    return unseal(reading)
