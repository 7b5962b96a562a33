"""Seals the user's arrays as `Private[Records]`, checked against the declared schema."""

from __future__ import annotations

import hashlib
import hmac
import math
from typing import cast

import numpy as np

from dpgen_jax.core import checks, picked
from dpgen_jax.core.types import EMPTY, Array, Private, Records, Spec, UserError, unseal
from dpgen_jax.private.partition import Partition

ALIGNMENT = 64
"""Bytes of whose multiples an array begins at one that a CPU takes as it is, without a copy."""


def seal(x: np.ndarray, y: np.ndarray, spec: Spec) -> Private[Records]:
    """Seals records.

    A label EMPTY beside an x of zeros marks an empty slot, as loaders leave it; it counts in n.

    Args:
        x: Images uint8 [n, H, W, ch] or encoded rows float32 [n, F].
        y: Labels, integers [n].
        spec: The declared schema.

    Raises:
        UserError: A record does not fit the schema; it names the first one. Such a message is for
            the data holder only: it is raised before a run exists and is written nowhere.
    """
    x, y = picked.readable(x), np.asarray(y)
    if x.dtype != spec.dtype:
        raise UserError(f"records are {x.dtype}, expected {spec.dtype}"
                        + "; multiply by 255 and round" * (spec.dtype == "uint8"))
    if x.shape[1:] != spec.shape:
        raise UserError(f"records have shape {x.shape[1:]}, the schema declares {spec.shape}")
    if x.dtype != np.uint8:
        checks.unit_range("records", x)
    slots = np.zeros(len(x), bool)
    unlabelled: np.ndarray | list[int] = (
        np.flatnonzero(y == EMPTY) if y.shape == x.shape[:1] else [])
    slots[unlabelled] = [not x[row].any() for row in unlabelled]
    checks.labels("records", y, len(x), spec.classes, empty=slots)
    return _sealed(x, y.astype(np.int32))


def labels(records: Private[Records], dealt: Partition | None = None) -> Private[np.ndarray]:
    """Returns the labels int32 [n], sealed.

    Args:
        records: Sealed records.
        dealt: If given, the labels of the records that a unit has, each once, and of no other.
    """
    y = np.asarray(unseal(records).y)
    return Private(y if dealt is None else y[np.unique(dealt.index)])


def count(records: Private[Records]) -> int:
    """Returns the number of records, empty slots too, which is public under replace-one.

    Args:
        records: Sealed records.
    """
    return len(unseal(records).y)


def fingerprint(records: Private[Records], key: bytes, dealt: Partition | None = None) -> str:
    """Returns a keyed digest of all records, by which a resume recognises the data.

    It is kept in private state.

    Args:
        records: Sealed records.
        key: Of the digest.
        dealt: If given, the digest is also of which unit has which record: other clients of the
            same records are others.
    """
    opened = unseal(records)
    digest = hmac.new(key, digestmod=hashlib.sha256)
    units = () if dealt is None else (dealt.index, dealt.sizes)
    for array in (*map(picked.readable, (opened.x, opened.y)), *units):
        # Type and shape too, so that no two arrays have the same bytes.
        digest.update(repr((array.dtype.str, array.shape)).encode())
        for rows in picked.blocks(array):
            digest.update(np.ascontiguousarray(array[rows]).data)
    return digest.hexdigest()


def keyed(content: Private[str], key: bytes) -> str:
    """Returns a keyed digest of what records were read from; nothing for nothing.

    It is kept in the journal.

    Args:
        content: A sealed digest of it, or a sealed empty text.
        key: Of the digest.
    """
    opened = unseal(content)
    return hmac.new(key, opened.encode(), hashlib.sha256).hexdigest() if opened else ""


def grouping(owners: np.ndarray | None, key: bytes) -> str:
    """Returns a keyed digest of which records belong together; nothing where each is its own.

    It says nothing of what owners are called. It is kept in private state.

    Args:
        owners: The client or subject of each record, int [n]; None where each is its own.
        key: Of the digest.
    """
    if owners is None:
        return ""
    _, first, codes = np.unique(owners, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes].astype("<i4")  # in the order in which they come
    return hmac.new(key, b"grouping" + codes.tobytes(), hashlib.sha256).hexdigest()


def deal(records: Private[Records], partition: Partition,
         units: tuple[int, int] | None = None) -> Private[Records]:
    """Gives each unit its records: x [U, m, ...], y int32 [U, m], sealed.

    An empty slot is refilled by the unit's own other records in turn, so that what a unit gets is a
    function of its own slots alone. A unit that has nothing but empty slots keeps them, and answers
    nothing (`teachers.query_unit`).

    Args:
        records: Sealed records [n].
        partition: Which records each unit has.
        units: The first of the units that are wanted, and the one behind the last; None: all. What
            is wanted beyond the last unit are places without one, which get zeros.
    """
    opened = unseal(records)
    x, y = picked.readable(opened.x), np.asarray(opened.y)
    first, last = units or (0, len(partition.index))
    index = _refilled(partition.index[first:last], y == EMPTY)
    return _sealed(_gathered(x, index, last - first), _gathered(y, index, last - first))


def _gathered(array: np.ndarray, index: np.ndarray, places: int) -> np.ndarray:
    """Returns array[index], [places, m, ...] with zeros behind the U rows of the index [U, m].

    It is read from its front to its end, as files are read best, and written where it is to stay.
    """
    units, m = index.shape
    result = _aligned((places, m, *array.shape[1:]), array.dtype)
    slots, wanted = result.reshape(places * m, *array.shape[1:]), index.reshape(units * m)
    order = np.argsort(wanted, kind="stable")
    for some in picked.blocks(array, units * m):
        slots[order[some]] = array[wanted[order[some]]]
    return result


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an array of zeros that a CPU takes as it is (`teachers.place`)."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first:first + size].view(dtype).reshape(shape)


def _sealed(x: np.ndarray, y: np.ndarray) -> Private[Records]:
    """Seals arrays of the host; `teachers.place` puts them on devices."""
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
