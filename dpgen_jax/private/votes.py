"""The vote sums of a run, kept in private/ for data-dependent accounting by the data holder.

One file of int32, appended a block at a time, before the block is settled in the ledger: for each
round the counts [queries, bins], then which queries were answered [queries]; where all are, counts
[queries] of one label alone, or sums [queries] of signed votes. The file is as private as the
records. What a crash cut off is dropped when it is read: those rounds are charged at their worst.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from dpgen_jax.core import reading
from dpgen_jax.core.types import Array, Private, UserError, unseal


@dataclasses.dataclass(frozen=True)
class Votes:
    """The vote sums of a run.

    Attributes:
        counts: int32 [Q, bins].
        answered: bool [Q].
        steps: Rounds that they come from.
    """

    counts: np.ndarray
    answered: np.ndarray
    steps: int


def append(path: Path, votes: Private[Array], answered: np.ndarray) -> None:
    """Adds the votes of some rounds to the file.

    Args:
        path: The file.
        votes: Sealed int32 [S, B, D], of which the first n rounds count.
        answered: int32 [n, B, k], or [n, 0] where every query is answered.
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
    """Reads all whole rounds.

    Args:
        path: The file.
        queries: Of one round.
        bins: Of one histogram.

    Raises:
        UserError: There is no such file.
    """
    rows = _steps(path, queries * (bins + 1))
    counts, answered = rows[:, :queries * bins], rows[:, queries * bins:]
    return Private(Votes(counts.reshape(-1, bins), answered.reshape(-1).astype(bool), len(rows)))


def read_labels(path: Path, queries: int, n_units: int) -> Private[Votes]:
    """Reads votes for the second of two labels, where every query is answered.

    Counts of the first label are what is missing to `n_units`.

    Args:
        path: The file.
        queries: Of one round.
        n_units: U.

    Raises:
        UserError: There is no such file, or it has counts that cannot be.
    """
    rows = _steps(path, queries)
    second = rows.reshape(-1)
    if np.any((second < 0) | (second > n_units)):
        raise UserError(f"{path} is damaged: it counts votes outside of 0 to {n_units}")
    return Private(Votes(np.stack([n_units - second, second], 1), np.ones(second.shape, bool),
                         len(rows)))


def read_sums(path: Path, rows: int, columns: int, n_units: int) -> Private[Votes]:
    """Reads sums of votes of +1 and -1, of which every entry is answered.

    Args:
        path: The file.
        rows: B, of one round.
        columns: D.
        n_units: U.

    Returns:
        Sealed votes, counts int32 [Q, D]: one row for each queried fake of each round.

    Raises:
        UserError: There is no such file or no round in it, or it has sums that cannot be.
    """
    rounds = _steps(path, rows * columns)
    if not len(rounds):
        raise UserError(f"{path} has no whole round; this run kept no votes")
    sums = rounds.reshape(-1, columns)
    if np.any(np.abs(sums.astype(np.int64)) > n_units):
        raise UserError(f"{path} is damaged: it has sums of more than {n_units} votes")
    return Private(Votes(sums, np.ones(len(sums), bool), len(rounds)))


def n_steps(path: Path, queries: int, bins: int = 0) -> int:
    """Returns the number of whole rounds that are kept, of any start of the run; 0 without a file.

    Args:
        path: The file.
        queries: Of one round.
        bins: Of one histogram; 0 where single counts or sums are kept.

    Raises:
        UserError: It is no regular file.
    """
    size = reading.require_regular(path).st_size if path.exists() else 0
    return size // (4 * queries * (bins + 1))


def answered(path: Path, queries: int, bins: int) -> np.ndarray:
    """Returns which queries of the kept rounds were answered, which every round makes public.

    Args:
        path: The file.
        queries: Of one round.
        bins: Of one histogram.

    Returns:
        int32 [S, queries].

    Raises:
        UserError: There is no such file.
    """
    return _steps(path, queries * (bins + 1))[:, queries * bins:]


def _steps(path: Path, width: int) -> np.ndarray:
    """Returns int32 [S, width]."""
    try:
        data = reading.read_bytes(path)
    except UserError as error:
        raise UserError(f"{error}; this run kept no votes") from error
    return np.frombuffer(data[:len(data) // (4 * width) * 4 * width], "<i4").reshape(-1, width)
