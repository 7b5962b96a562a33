"""Which unit holds which record: a teacher by a keyed hash of the public record id, a client what
it brought; never by content.

Guarantee of `assign` (replace-one record): the assignment is a function of (n, units, key) alone.
Changing the image or label behind one id therefore changes the records of exactly one unit. Under
add-or-remove every rank after the record shifts and every unit could change, so that relation is
refused for teachers (`aggregation.mechanism`).

Guarantee of `by_client` (replace-one client: all of a client's records, and how many there are,
change; the set of clients is public): a client's row is a function of its own records and of the
public `most`, so that the records of exactly one unit change.
"""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from dpgen_jax.types import UserError

# The writers of Federated EMNIST hold 198 records each on average (671,585 over 3,400). A wider row
# makes every visit dearer, whatever a client holds.
MOST = 512


@dataclasses.dataclass(frozen=True)
class Partition:
    """index int64 [U, m]: the record ids of each unit, sizes int64 [U]: how many of them differ.

    They are the first ones of a row; a unit with fewer than m repeats its own records in turn, so
    that shapes are equal and units stay disjoint. Sizes are public where `assign` dealt, and then
    equal up to one; they are private where clients brought them.
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
            f"at least one; pass --teachers (or --critics) {max(1, n_records // 15)}, for example")


def assign(n_records: int, n_units: int, key: bytes) -> Partition:
    """Deals the ids 0..n-1, ordered by BLAKE2b(key, id), round the units. Errors: as `check`."""
    check(n_records, n_units)
    digests = [hashlib.blake2b(i.to_bytes(8, "little"), key=key, digest_size=16).digest()
               for i in range(n_records)]
    order = np.array(sorted(range(n_records), key=digests.__getitem__), dtype=np.int64)
    sizes = np.full(n_units, n_records // n_units) + (np.arange(n_units) < n_records % n_units)
    place = np.arange(-(-n_records // n_units))[None, :] % sizes[:, None]
    return Partition(order[place * n_units + np.arange(n_units)[:, None]], sizes)


def by_client(clients: np.ndarray, n_clients: int, most: int = MOST) -> Partition:
    """The records of each client in their given order: index int64 [U, most].

    clients: int [n], the client 0..U-1 of each record. n_clients: U.
    most: public. A client with more records contributes this many, evenly spaced in its own order
      (the first ones would be of few classes where a client sorts by label). It is never the size
      of the largest client: a batch is drawn from all places of a row, so that a width read off one
      client would change what the others draw.
    Errors: UserError, one line, when a client has no record, a record no client, or most < 1.
    """
    if clients.ndim != 1 or not np.issubdtype(clients.dtype, np.integer):
        raise UserError(f"clients are {clients.dtype} of shape {clients.shape}; give one integer "
                        "a record")
    if most < 1:
        raise UserError(f"a client may contribute {most} records: at least 1 is needed")
    outside = np.flatnonzero((clients < 0) | (clients >= n_clients))
    if outside.size:
        raise UserError(f"record {outside[0]} is of client {clients[outside[0]]}, outside "
                        f"0..{n_clients - 1}; mend the record or give the number of clients")
    held = np.bincount(clients.astype(np.int64), minlength=n_clients)
    if not held.all():
        raise UserError(f"client {held.argmin()} holds no records: leave it out of the federation")
    order = np.argsort(clients, kind="stable")
    place, held = np.arange(most), held[:, None]
    own = np.where(held <= most, place % held, place * held // most)
    return Partition(order[np.cumsum(held)[:, None] - held + own], np.minimum(held[:, 0], most))
