"""Sealing: from the user's arrays to `Private[Records]`, checked against the declared schema."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from dpgen_jax.private.partition import Partition
from dpgen_jax.types import EMPTY, Private, Records, Spec, UserError, unseal


def seal(x: np.ndarray, y: np.ndarray, spec: Spec) -> Private[Records]:
    """Seals images x uint8 [n, H, W, ch] or encoded rows float32 [n, F], and labels y int [n].

    A label EMPTY beside an x of zeros marks an empty slot, as loaders leave it; it counts in n.
    Errors: UserError naming the first offending row. Such a message is for the data holder only:
    it is raised before a run exists and is written nowhere.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype != spec.dtype:
        raise UserError(f"records are {x.dtype}, expected {spec.dtype}"
                        + "; multiply by 255 and round" * (spec.dtype == "uint8"))
    if x.shape[1:] != spec.shape:
        raise UserError(f"records have shape {x.shape[1:]}, the schema declares {spec.shape}")
    if x.dtype != np.uint8 and not (x.min() >= 0 and x.max() <= 1):  # NaN fails both
        raise UserError("encoded rows must lie in [0, 1]; encode them with their schema")
    if y.shape != x.shape[:1]:
        raise UserError(f"{len(x)} records but labels {y.shape}; one label a record is needed")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"labels are {y.dtype}, expected integers 0..{spec.classes - 1}")
    outside = np.flatnonzero((y < 0) | (y >= spec.classes))
    outside = [row for row in outside if y[row] != EMPTY or x[row].any()]
    if outside:
        raise UserError(f"label {y[outside[0]]} in row {outside[0]} is outside the declared "
                        f"0..{spec.classes - 1}; mend the row or declare more classes")
    return Private(Records(x, y.astype(np.int32)))


def labels(records: Private[Records]) -> Private[np.ndarray]:
    """The labels int32 [n], sealed."""
    return Private(unseal(records).y)


def count(records: Private[Records]) -> int:
    """The number of records, empty slots too, which is public under replace-one."""
    return len(unseal(records).y)


def fingerprint(records: Private[Records], key: bytes, dealt: Partition | None = None) -> str:
    """Keyed digest of all records, kept in private state, by which a resume recognises the data;
    with `dealt` also of which unit holds which: other clients of the same records are others."""
    held = unseal(records)
    digest = hmac.new(key, digestmod=hashlib.sha256)
    units = () if dealt is None else (dealt.index, dealt.sizes)
    for array in (held.x, held.y, *units):
        digest.update(repr((array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def deal(records: Private[Records], partition: Partition) -> Private[Records]:
    """Records of each unit: x [U, m, ...], y int32 [U, m].

    An empty slot is refilled by the unit's own other records in turn, so that what a unit gets is a
    function of its own slots alone. A unit that has nothing but empty slots keeps them, and answers
    nothing (`teachers.visit_one`).
    """
    held = unseal(records)
    index = _refilled(partition.index, held.y == EMPTY)
    return Private(Records(held.x[index], held.y[index]))


def _refilled(index: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """The index [U, m] of records without empty slots, unit by unit."""
    index = index.copy()
    for unit in np.flatnonzero(empty[index].any(1)):
        holes = empty[index[unit]]
        own = index[unit][~holes]
        if len(own):
            index[unit][holes] = np.resize(own, holes.sum())
    return index
