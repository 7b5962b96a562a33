"""Which unit holds which record: by a keyed hash of the public record id, never by content.

Guarantee (replace-one): the assignment is a function of (n, units, key) alone. Changing the image
or label behind one id therefore changes the records of exactly one unit. Under add-or-remove every
rank after the record shifts and every unit could change, so that relation is refused for teachers
(`aggregation.mechanism`).
"""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from dpgen_jax.types import UserError


@dataclasses.dataclass(frozen=True)
class Partition:
    """index int64 [U, m]: the record ids of each unit, sizes int64 [U].

    Sizes are equal up to one; a unit with one record less fills its last place with its own first
    record again, so that shapes are equal and units stay disjoint.
    """

    index: np.ndarray
    sizes: np.ndarray


def check(n_records: int, n_units: int) -> None:
    """Errors: UserError when a unit would get no record, from the public counts alone: the number
    of units is never adapted to the data."""
    if n_units < 1:
        raise UserError(f"teachers is {n_units}: at least 1 is needed")
    if n_records < n_units:
        raise UserError(
            f"{n_records:,} records cannot be dealt to {n_units:,} teachers: every teacher needs "
            f"at least one; pass --teachers {max(1, n_records // 15)}, for example")


def assign(n_records: int, n_units: int, key: bytes) -> Partition:
    """Deals the ids 0..n-1, ordered by BLAKE2b(key, id), round the units. Errors: as `check`."""
    check(n_records, n_units)
    digests = [hashlib.blake2b(i.to_bytes(8, "little"), key=key, digest_size=16).digest()
               for i in range(n_records)]
    order = np.array(sorted(range(n_records), key=digests.__getitem__), dtype=np.int64)
    sizes = np.full(n_units, n_records // n_units) + (np.arange(n_units) < n_records % n_units)
    place = np.arange(-(-n_records // n_units))[None, :] % sizes[:, None]
    return Partition(order[place * n_units + np.arange(n_units)[:, None]], sizes)
