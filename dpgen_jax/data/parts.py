"""Parts of a data set, among them a held-out part for one that brings none: `--test-fraction`.

Guarantee of `hold_out` for records (replace-one record: the values and label of one record change,
n is public): one record of the training part changes, whatever the order of the records. All n
records are ranked by a public hash of their own values and label, and of the number of equal
records counted before them. Equal records are interchangeable, so only their number matters. The m
records of the lowest rank are held out, where m = round(fraction n) is public. Let D' be D with one
record r replaced by s. D has one r more than D': the last one counted. D' has one s more than D:
again the last one counted. All other n - 1 records keep their hashes, and so their order among each
other. In this order only the m-th lowest record, t, may change its part: it is held out if the
added record (r or s) ranks above it, and trained on if that ranks below it. So the training part
consists of the n - m - 1 records above t and one more, which is r or t in D, and s or t in D'. No
guarantee rests on the order of the training records (`private.records`).

Zero-out (s is an empty slot, which contributes nothing): empty slots rank above all records, so
that s is trained on. The training parts then differ in r or t on the one side and s on the other:
one record is left empty, and none is replaced. If empty slots were ranked by a hash, as records
are, s could be held out in the place of t, and r be replaced by t, which moves a sum further than
is charged.

Subjects (replace-one subject: all its rows and their number change; the number of subjects is
public) are ranked by a public hash of their names only, of which no two are the same. The same
argument holds with subjects in the place of records: one subject of the training part changes.

A split by position would not do: where the order of a file depends on its records (creditcard.csv
is sorted by time), a replaced record that is sorted into its new place moves other records between
the two parts. The split by hash favours no class and does not depend on the order of the file, and
what a share holds out, a larger share holds out too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from dpgen_jax.core import arrays
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import EMPTY, Subjects, UserError
from dpgen_jax.data.base import Dataset, frozen

Take = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From records [n, ...] and bool [n] to those that are taken."""


def copied(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns a read-only copy of the records [n, ...] where rows, bool [n], is True."""
    return frozen(x[rows], x.dtype)


def where_they_lie(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns some records, those of a mapped file without a copy (`core.arrays.Picked`)."""
    return copied(x, rows) if arrays.mapping(x) is None else arrays.pick(x, rows)


def only(data: Dataset, rows: np.ndarray, take: Take = copied) -> Dataset:
    """Returns the data set with some of its training records, bool [n], in their order.

    Of a data set with subjects each keeps its number, and those without rows theirs. `take` takes
    the records, as a copy or where they lie.
    """
    clients, subjects = data.clients, data.subjects
    return dataclasses.replace(
        data, x_train=take(data.x_train, rows),
        y_train=frozen(data.y_train[rows], np.int32),
        clients=None if clients is None else frozen(clients[rows], np.int32),
        subjects=subjects and dataclasses.replace(subjects,
                                                  train=frozen(subjects.train[rows], np.int32)))


def without_empty_slots(data: Dataset) -> Dataset:
    """Returns the data set without its empty slots, to be looked at rather than trained on."""
    present = data.y_train != EMPTY
    return data if present.all() else only(data, present)


def share_of(x: np.ndarray, data: Dataset) -> float:
    """Returns the share of records [m, ...] that a data set has, bit for bit, in either part.

    Labels do not count: the same images may be read with the classes in another order. What comes
    out is as private as the records of the data set.
    """
    wanted = _digests(x)
    known = set(_digests(data.x_train))
    if data.x_test is not None:
        known |= set(_digests(data.x_test))
    return sum(digest in known for digest in wanted) / len(wanted)


def _digests(x: np.ndarray) -> list[bytes]:
    return [digest.tobytes() for digest in arrays.digests_of(arrays.digest_rows(x), 16)]


HELD_OUT_SHARE = 0.2
"""The share that the command `train` holds out where the data bring no held-out part."""
FEWEST = 3
"""With fewer records than this it holds out none."""
HELD_OUT_NOTE = "held out for tests: a share of"
"""The start of the public line on the held-out part, by which an evaluation compares it."""


def held_out_note(fraction: float, column: str = "") -> str:
    """Returns the public line on the held-out part: a share of the records, or of the subjects.

    The latter are held out whole, and `column` is theirs.
    """
    if column:
        return (f"{HELD_OUT_NOTE} {fraction:g} of all units ({column}), by a public hash of their "
                "names")
    return (f"{HELD_OUT_NOTE} {fraction:g} of all records, by a public hash of their values and "
            "labels")


def held_out_hashes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the hash of each record [n, ...], as the module describes it: uint8 [n, 24].

    Different records have different ones.
    """
    values = arrays.digests_of(arrays.digest_rows(x, np.asarray(y, np.int64)), 16)
    place = arrays.counted_before(values).astype("<u8")
    rank = arrays.digests_of(arrays.digest_rows(values, place), 8, person=b"held out")
    return np.concatenate([rank, values], 1)


def hold_out(data: Dataset, fraction: float, take: Take = copied) -> Dataset:
    """Moves a share of the records to the held-out part.

    Args:
        data: A data set without a held-out part and without clients.
        fraction: The share, above 0 and below 1; of n records, round(fraction n) are moved. Of a
            data set with subjects it is that share of them, each with all its rows.
        take: Takes the records of each part, as a copy or where they lie.

    Returns:
        The data set with both parts, each in the order that it had.

    Raises:
        UserError: For another fraction, for a data set that has a held-out part or clients, and
            where a part would have no record.
    """
    check(fraction, data.x_test is not None, data.name)
    if data.clients is not None:
        raise UserError(f"{data.name} has clients, of whom {option('test_fraction')} does not "
                        "support; hold out clients beforehand, and drop the option")
    if data.subjects is not None:
        return _whole_subjects(data, data.subjects, fraction, take)
    order = arrays.order_of_digests(held_out_hashes(data.x_train, data.y_train),
                                    data.y_train == EMPTY)
    lowest = _lowest(order, fraction, "records")
    return _moved(data, lowest, fraction, take)


def check(fraction: float, tested: bool, name: str) -> None:
    """Refuses a share that cannot be held out of a data set, whatever the records are."""
    if not 0 < fraction < 1:
        raise UserError(f"{option('test_fraction')} is {fraction}; it must lie between 0 and 1, as "
                        "in 0.2")
    if tested:
        raise UserError(f"{name} already has a held-out part; drop {option('test_fraction')}")


def count(fraction: float, n: int, what: str = "records") -> int:
    """Returns how many records, or subjects, a share of n holds out.

    A UserError where one of the parts would have none.
    """
    moved = round(fraction * n)
    if not 0 < moved < n:
        raise UserError(f"{option('test_fraction', fraction)} of {n} {what} is {moved}; each part "
                        f"needs at least 1 {what[:-1]}, so choose another share")
    return moved


def _whole_subjects(data: Dataset, subjects: Subjects, fraction: float, take: Take
                    ) -> Dataset:
    ranks = arrays.digests_of((name.tobytes() for name in subjects.ids), 16, person=b"held out")
    lowest = _lowest(arrays.order_of_digests(ranks), fraction, "units")
    numbers = np.where(lowest, np.cumsum(lowest), np.cumsum(~lowest)) - 1
    rows = lowest[subjects.train]
    test = numbers[subjects.train[rows & (data.y_train != EMPTY)]]
    left = dataclasses.replace(subjects, ids=subjects.ids[~lowest],
                               train=numbers[subjects.train], test=frozen(test, np.int32))
    return _moved(dataclasses.replace(data, subjects=left), rows, fraction, take)


def _lowest(order: np.ndarray, fraction: float, what: str) -> np.ndarray:
    """Returns bool [n]: True for the share that comes first in an order, int [n]."""
    lowest = np.zeros(len(order), bool)
    lowest[order[:count(fraction, len(order), what)]] = True
    return lowest


def _moved(data: Dataset, rows: np.ndarray, fraction: float, take: Take) -> Dataset:
    tested = rows & (data.y_train != EMPTY)  # a share may be larger than that of all records
    if not tested.any():
        raise UserError(f"{data.name}: all that {option('test_fraction', fraction)} holds out "
                        "could not be read; choose a larger share")
    line = held_out_note(fraction, data.subjects.column if data.subjects else "")
    return dataclasses.replace(
        only(data, ~rows, take), x_test=take(data.x_train, tested),
        y_test=frozen(data.y_train[tested], np.int32), notes=(*data.notes, line),
        held_out=0 if data.subjects else int(rows.sum()))


def check_same_held_out(trained: Iterable[str], data: Dataset) -> None:
    """Checks that what is tested on was held out when a release was trained.

    `trained` are the public lines on the data in the release's statement. A UserError where the
    shares differ: what one held out, the other trained on.
    """
    before, now = ([line for line in map(str, lines) if line.startswith(HELD_OUT_NOTE)]
                   for lines in (trained, data.notes))
    if before != now:
        raise UserError(f"{_said('the training', before)}, {_said('this evaluation', now)}: some "
                        "test records would be training records; pass the "
                        f"{option('test_fraction')} of the training")


def _said(part: str, lines: list[str]) -> str:
    share = lines[0].removeprefix(HELD_OUT_NOTE).split()[0] if lines else "no share"
    return f"{part} held out {share}"
