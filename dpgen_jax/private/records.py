"""Sealing: from the user's arrays to `Private[Records]`, checked against the declared schema."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

from dpgen_jax.private.partition import Partition
from dpgen_jax.types import ImageSpec, Private, Records, UserError, unseal


def seal(x: np.ndarray, y: np.ndarray, spec: ImageSpec) -> Private[Records]:
    """Seals images x uint8 [n, H, W, ch] and labels y int [n].

    Errors: UserError naming the first offending row. Such a message is for the data holder only:
    it is raised before a run exists and is written nowhere.
    """
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype != np.uint8:
        raise UserError(f"images are {x.dtype}, expected uint8; multiply by 255 and round")
    if x.shape[1:] != spec.shape:
        raise UserError(f"images have shape {x.shape[1:]}, the schema declares {spec.shape}")
    if y.shape != x.shape[:1]:
        raise UserError(f"{len(x)} images but labels {y.shape}; one label an image is needed")
    if not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"labels are {y.dtype}, expected integers 0..{spec.classes - 1}")
    outside = np.flatnonzero((y < 0) | (y >= spec.classes))
    if outside.size:
        raise UserError(f"label {y[outside[0]]} in row {outside[0]} is outside the declared "
                        f"0..{spec.classes - 1}; mend the row or declare more classes")
    return Private(Records(x, y.astype(np.int32)))


def count(records: Private[Records]) -> int:
    """The number of records, which is public under replace-one."""
    return len(unseal(records).y)


def fingerprint(records: Private[Records], key: bytes) -> str:
    """Keyed digest of all records, kept in private state, by which a resume recognises the data."""
    held = unseal(records)
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for array in (held.x, held.y):
        digest.update(repr((array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def deal(records: Private[Records], partition: Partition) -> Private[Records]:
    """Records of each unit: x uint8 [U, m, H, W, ch], y int32 [U, m]."""
    held = unseal(records)
    return Private(Records(held.x[partition.index], held.y[partition.index]))
