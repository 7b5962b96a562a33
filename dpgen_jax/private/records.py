"""Private records: sealed as `Private[Records]`, checked against the schema, and dealt to units.

Records are dealt to teachers by a keyed hash (`assign`), subjects likewise with all their rows
(`by_subject`), and clients keep their own records (`by_client`).

Guarantee of `assign` (replace-one record: the image and label behind one record change, n is
public). The key is 32 uniform bytes of the operating system, kept secret in private/. So the order
of the positions by their keyed hash is a uniformly random permutation P of 0..n-1, up to the
strength of BLAKE2b as a pseudorandom function, and independent of the records.

  1. Lists whose positions are public (rows of an array or of a table): for every P, the records of
     exactly one unit differ between neighbours.
  2. Lists whose order is a function of the records (files sorted by class folder, a table sorted by
     age). Let D' be D with one record replaced and then reordered: the record at position s(i) of
     D' is at position i of D, except for the replaced record. P and s after P have the same
     distribution, as P is uniform. Couple a run on D that deals by P with a run on D' that deals by
     s after P: every unit gets the same records in the same order, except one unit, which gets the
     new record in the place of the old one. Given P, the output of one run is therefore (epsilon,
     delta)-close to that of the other; and a mixture over P of close pairs is close, as e^epsilon
     and delta do not depend on P.

Part 2 requires that P is secret and uniform, and that nothing else distinguishes positions: units
are numbered only by P, and what a unit does is a function of its number, its records in their
order, and earlier releases. A run with a known key (a seeded one) has no guarantee anyway. Under
add-or-remove the number of records changes too, and with it every unit's share; that relation is
refused for teachers (`aggregation.mechanism`).

`simulated_partition` deals in the same way, and the same proof holds for one record: a simulated
client is a teacher. Its bound is proven for all records of a client, of which one record is a part.

Guarantee of `by_subject` (replace-one subject: all rows of one subject, how many there are and its
name change; the number of subjects U and the limit k are public, the number of rows is not). First
each subject becomes k slots: its rows in the order of BLAKE2b(key, name, values, label), of which
the first k are kept, and empty slots if it has fewer. These slots are a function of the key and of
this subject's rows, whatever their order in the file (rows with equal hashes are equal). Then
`assign` deals subjects instead of records, all slots of a subject to one unit, which fills empty
slots with its own rows. So for every key the slots of exactly one unit differ, and parts 1 and 2
above hold with "subject" for "record", part 2 for any new order of all rows of the file. Shapes are
functions of U, k and the number of units. A unit's message is bounded whatever its slots contain,
so a subject changes a sum no more than one record does if each record is a unit.

Guarantee of `by_client` (replace-one client: all of a client's records, and how many there are,
change; the set of clients is public): a client's row is a function of its own records and of the
public `most`, so the records of exactly one unit change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import math
from typing import cast

import numpy as np

from dpgen_jax.core import arrays
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import EMPTY, Array, Private, Records, Spec, Subjects, UserError, unseal

# The writers of Federated EMNIST have 198 records each on average (671,585 over 3,400). A wider row
# makes every query slower, however many records a client has.
MOST = 512
"""The most records of a client, unless the user sets another number."""


@dataclasses.dataclass(frozen=True)
class Partition:
    """The assignment of records to units.

    The distinct records come first in a row; a unit with fewer than m repeats its own records in
    turn, so shapes are equal and units stay disjoint. Sizes by `assign` are public, and equal up to
    one; sizes of clients are private.

    Attributes:
        index: int64 [U, m], the record ids of each unit.
        sizes: int64 [U], the number of distinct records.
    """

    index: np.ndarray
    sizes: np.ndarray


def check_partition(n_records: int, n_units: int, what: str = "records") -> None:
    """Checks that every unit gets a record, from the public counts only.

    The number of units is never adapted to the data.

    Raises:
        UserError: A unit would get no record.
    """
    if n_units < 1:
        raise UserError(f"teachers is {n_units}: at least 1 is needed")
    if n_records < n_units:
        raise UserError(
            f"{n_records:,} {what} cannot be dealt to {n_units:,} teachers: each teacher needs at "
            f"least one; pass {option('teachers')} (or {option('critics')}) "
            f"{max(1, n_records // 15)}, for example")


def assign(n_records: int, n_units: int, key: bytes) -> Partition:
    """Deals the ids 0..n-1, ordered by BLAKE2b(key, id), to the units in turn.

    Args:
        n_units: U.
        key: The secret partition key.

    Guarantee:
        Unit: a record. Relation: replace-one. The records of exactly one unit change; the proof
        is in the docstring of the module.

    Source:
        This library's.

    Raises:
        UserError: A unit would get no record.
    """
    check_partition(n_records, n_units)
    numbers = arrays.digest_rows(np.arange(n_records, dtype="<u8"))
    order = arrays.order_of_digests(arrays.digests_of(numbers, 16, key=key))
    sizes = np.full(n_units, n_records // n_units) + (np.arange(n_units) < n_records % n_units)
    place = np.arange(-(-n_records // n_units))[None, :] % sizes[:, None]
    return Partition(order[place * n_units + np.arange(n_units)[:, None]], sizes)


def simulated_partition(n_records: int, n_clients: int, key: bytes, width: int) -> Partition:
    """Deals the records to simulated clients, as `assign` does.

    A client contributes at most `width` records, which is public: the first ones of its share,
    which are a random part of it.

    Raises:
        UserError: A client would get no record.
    """
    everyone = assign(n_records, n_clients, key)
    sizes = np.minimum(everyone.sizes, width)
    index = np.take_along_axis(everyone.index, np.arange(width) % sizes[:, None], 1)
    return Partition(index, sizes)


def by_subject(subjects: Subjects, x: np.ndarray, y: np.ndarray, n_units: int, key: bytes
               ) -> Partition:
    """Deals subjects to the units in turn, each with at most k of its rows.

    Slots of subjects with fewer rows are filled with the rows of their unit in turn. If each
    subject is a unit, the mean over its slots therefore gives subjects equal weight, and its size
    does not depend on k: a sum of rows would need noise in proportion to k.

    Args:
        x: The rows [n, F].
        y: Their labels int [n].
        n_units: U of the mechanism, at most the number of subjects.
        key: The secret partition key.

    Returns:
        The partition: for each unit k slots for each of its subjects.

    Guarantee:
        Unit: a subject. Relation: replace-one. The records of exactly one unit change; the proof
        is in the docstring of the module.

    Source:
        This library's.

    Raises:
        UserError: A unit would get no subject.
    """
    check_partition(subjects.count, n_units, "subjects")
    everyone, slots = assign(subjects.count, n_units, key), kept(subjects, x, y, key)
    taken = np.arange(everyone.index.shape[1]) < everyone.sizes[:, None]
    index = np.where(taken[..., None], slots[everyone.index], -1).reshape(n_units, -1)
    sizes = (index >= 0).sum(1)  # at least 1: a subject has a row
    own = np.take_along_axis(index, np.argsort(index < 0, axis=1, kind="stable"), 1)
    place = np.arange(index.shape[1]) % sizes[:, None]
    return Partition(np.take_along_axis(own, place, 1), sizes)


def kept(subjects: Subjects, x: np.ndarray, y: np.ndarray, key: bytes) -> np.ndarray:
    """Returns the kept rows of each subject: int64 [U, k], -1 for none.

    The choice of rows has no effect on privacy, and favours none.
    """
    content = arrays.digest_rows(subjects.ids[subjects.train], np.asarray(y, np.int64), x)
    high, low = arrays.digests_of(content, 16, key=key, person=b"rows of subject").view("<u8").T
    order = np.lexsort((low, high, subjects.train))
    sizes = np.bincount(subjects.train, minlength=subjects.count)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    slots = np.full((subjects.count, subjects.rows), -1, np.int64)
    inside = place < subjects.rows
    slots[subjects.train[order[inside]], place[inside]] = order[inside]
    return slots


def by_client(clients: np.ndarray, n_clients: int, most: int = MOST) -> Partition:
    """Gives each client its own records, in their given order.

    Args:
        clients: int [n], the client 0..U-1 of each record.
        n_clients: U.
        most: m, public. A client with more records contributes this many, evenly spaced in its
            order (the first ones would be of few classes if a client sorts by label). It is never
            the size of the largest client: a batch is drawn from all places of a row, so a width
            derived from one client would change what the others draw.

    Guarantee:
        Unit: a client. Relation: replace-one. The records of exactly one unit change.

    Source:
        This library's.

    Raises:
        UserError: A client has no record, a record has no client, or most < 1.
    """
    if clients.ndim != 1 or not np.issubdtype(clients.dtype, np.integer):
        raise UserError(f"clients are {clients.dtype} of shape {clients.shape}; give one integer "
                        "per record")
    if most < 1:
        raise UserError(f"a client may contribute {most} records: at least 1 is needed")
    outside = np.flatnonzero((clients < 0) | (clients >= n_clients))
    if outside.size:
        raise UserError(f"record {outside[0]} belongs to client {clients[outside[0]]}, outside "
                        f"0..{n_clients - 1}; correct the record or give the number of clients")
    sizes = np.bincount(clients.astype(np.int64), minlength=n_clients)
    if not sizes.all():
        raise UserError(f"client {sizes.argmin()} has no records: leave it out of the federation")
    order = np.argsort(clients, kind="stable")
    place, size = np.arange(most), sizes[:, None]
    chosen = np.where(size <= most, place % size, place * size // most)
    first = np.cumsum(sizes)[:, None] - size
    return Partition(order[first + chosen], np.minimum(sizes, most))


ALIGNMENT = 64
"""Alignment in bytes at which a CPU uses an array without a copy."""


def seal(x: np.ndarray, y: np.ndarray, spec: Spec) -> Private[Records]:
    """Seals records.

    A label EMPTY with an x of zeros marks an empty slot; it counts in n.

    Args:
        x: Images uint8 [n, H, W, ch] or encoded rows float32 [n, F].
        y: Labels, integers [n].
        spec: The declared schema.

    Raises:
        UserError: A record does not fit the schema; the message names the first one. It is for the
            data holder only: it is raised before a run exists and is not written to any file.
    """
    x, y = arrays.readable(x), np.asarray(y)
    if x.dtype != spec.dtype:
        raise UserError(f"records are {x.dtype}, expected {spec.dtype}"
                        + "; multiply by 255 and round" * (spec.dtype == "uint8"))
    if x.shape[1:] != spec.shape:
        raise UserError(f"records have shape {x.shape[1:]}, the schema declares {spec.shape}")
    if x.dtype != np.uint8:
        arrays.check_unit_range("records", x)
    slots = np.zeros(len(x), bool)
    unlabelled: np.ndarray | list[int] = (
        np.flatnonzero(y == EMPTY) if y.shape == x.shape[:1] else [])
    slots[unlabelled] = [not x[row].any() for row in unlabelled]
    arrays.check_labels("records", y, len(x), spec.classes, empty=slots)
    return _sealed(x, y.astype(np.int32))


def labels(records: Private[Records], dealt: Partition | None = None) -> Private[np.ndarray]:
    """Returns the labels int32 [n], sealed; with `dealt`, those that units have, each once."""
    y = np.asarray(unseal(records).y)
    return Private(y if dealt is None else y[np.unique(dealt.index)])


def count(records: Private[Records]) -> int:
    """Returns the number of records including empty slots, which is public under replace-one."""
    return len(unseal(records).y)


def fingerprint(records: Private[Records], key: bytes, dealt: Partition | None = None) -> str:
    """Returns a keyed digest of all records, by which a resume recognises the data.

    It is stored in private state.

    With `dealt`, the digest also covers which unit has which record, so the same records with other
    clients have another digest.
    """
    opened = unseal(records)
    digest = hmac.new(key, digestmod=hashlib.sha256)
    units = () if dealt is None else (dealt.index, dealt.sizes)
    for array in (*map(arrays.readable, (opened.x, opened.y)), *units):
        # Type and shape too, so that no two arrays have the same bytes.
        digest.update(repr((array.dtype.str, array.shape)).encode())
        for rows in arrays.blocks(array):
            digest.update(np.ascontiguousarray(array[rows]).data)
    return digest.hexdigest()


def keyed(content: Private[str], key: bytes) -> str:
    """Returns a keyed digest of the source of records; empty for an empty argument.

    It is stored in the journal.
    """
    opened = unseal(content)
    return hmac.new(key, opened.encode(), hashlib.sha256).hexdigest() if opened else ""


def grouping(owners: np.ndarray | None, key: bytes) -> str:
    """Returns a keyed digest of which records belong together; empty if each record is a unit.

    It does not depend on the names of owners. It is stored in private state.
    """
    if owners is None:
        return ""
    _, first, codes = np.unique(owners, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes].astype("<i4")  # in the order in which they come
    return hmac.new(key, b"grouping" + codes.tobytes(), hashlib.sha256).hexdigest()


def deal(records: Private[Records], partition: Partition,
         units: tuple[int, int] | None = None) -> Private[Records]:
    """Gives each unit its records: x [U, m, ...], y int32 [U, m], sealed.

    An empty slot is filled with the unit's other records in turn, so the result for a unit is a
    function of its own slots only. A unit with only empty slots keeps them, and contributes nothing
    (`teachers.query_unit`).

    Args:
        records: Sealed records [n].
        units: The first unit, and one past the last; None for all. Places beyond the last unit of
            the partition get zeros.
    """
    opened = unseal(records)
    x, y = arrays.readable(opened.x), np.asarray(opened.y)
    first, last = units or (0, len(partition.index))
    index = _refilled(partition.index[first:last], y == EMPTY)
    return _sealed(_gathered(x, index, last - first), _gathered(y, index, last - first))


def _gathered(array: np.ndarray, index: np.ndarray, places: int) -> np.ndarray:
    """Returns array[index], [places, m, ...], with zeros after the U rows of the index [U, m].

    The array is read sequentially, which is best for files, and written to its final place.
    """
    units, m = index.shape
    result = _aligned((places, m, *array.shape[1:]), array.dtype)
    slots, wanted = result.reshape(places * m, *array.shape[1:]), index.reshape(units * m)
    order = np.argsort(wanted, kind="stable")
    for some in arrays.blocks(array, units * m):
        slots[order[some]] = array[wanted[order[some]]]
    return result


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an array of zeros that a CPU uses without a copy (`teachers.place`)."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first:first + size].view(dtype).reshape(shape)


def _sealed(x: np.ndarray, y: np.ndarray) -> Private[Records]:
    """Seals host arrays; `teachers.place` puts them on devices."""
    return Private(Records(cast(Array, x), cast(Array, y)))


def _refilled(index: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """Returns the index [U, m] of records without empty slots, unit by unit."""
    index = index.copy()
    for unit in np.flatnonzero(empty[index].any(1)):
        holes = empty[index[unit]]
        filled = index[unit][~holes]
        if len(filled):
            index[unit][holes] = np.resize(filled, holes.sum())
    return index
