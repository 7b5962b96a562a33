"""Converts stacked units to and from blocks of bounded size.

So saving them needs no second copy. Blocks are ranges of unit ids: what is saved does not depend on
devices, chunks or padding.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core import hosts
from dpgen_jax.core.types import Method, Private, unseal
from dpgen_jax.private import streaming
from dpgen_jax.private.teachers import Layout, Units, unit_bytes, unit_shapes

T = TypeVar("T")
BLOCK_BYTES = 2**28
"""Bytes of one block, at most, where a unit has no more."""


def block_size(method: Method) -> int:
    """Returns the number of units of one block.

    Args:
        method: The method whose units they are.
    """
    return max(1, BLOCK_BYTES // unit_bytes(method))


def blocks(units: Private[T], layout: Layout, size: int) -> Iterator[Private[T]]:
    """Yields the real units of this process, `size` at a time, as host arrays [units, ...].

    Blocks end at multiples of `size`, and where the units of this process end.

    Args:
        units: Sealed units, or one sealed array of all units, on their devices.
        layout: How they lie there.
        size: Units of one block.
    """
    def take(leaf: jax.Array, first: int, last: int) -> np.ndarray:
        if layout.slab:
            return np.array(leaf[first:last])
        pieces = []
        for at, shard in _shards(leaf, layout):
            low, high = max(first - at, 0), min(last - at, _per_device(layout))
            if low < high:
                rows = shard if layout.parallel == "shard_map" else shard[0]
                pieces.append(np.asarray(rows[low:high]))
        return np.concatenate(pieces)

    start, stop = layout.local_units
    for at in range(start // size * size, min(stop, layout.n_units), size):
        first, last = max(at, start), min(at + size, stop, layout.n_units)
        if first >= last:  # this process has places without a unit alone
            continue
        yield Private(jax.tree.map(lambda a, f=first, t=last: take(a, f, t), unseal(units)))


def first_unit(block: Private[Units]) -> int:
    """Returns the first unit of a block, which is public.

    Args:
        block: Sealed units, on the host.
    """
    return int(unseal(block).id[0])


def assemble(parts: Iterator[Private[Units]], method: Method, layout: Layout) -> Private[Units]:
    """Returns the units of blocks, for any layout: the inverse of `blocks`.

    Blocks are written in place as they come.

    Args:
        parts: Blocks that hold all units of this process, in any order.
        method: The method whose units they are.
        layout: How units shall lie on devices.
    """
    if layout.slab:
        units = streaming.empty(method, layout)
        for part in parts:
            first = first_unit(part)
            streaming.write(units, slice(first, first + len(unseal(part).id)), part)
        return units
    unit = unit_shapes(method)
    per = _per_device(layout)
    # Made on each device: on the host they would need the memory of all units once more.
    zeros = jax.jit(lambda: jax.tree.map(lambda a: jnp.zeros((per, *a.shape), a.dtype), unit))
    per_device = []
    places = [(place * per, layout.devices[place]) for place in layout.local]
    for _, device in places:
        with jax.default_device(device):
            per_device.append(jax.device_put(zeros(), device))  # and it stays there
    for part in parts:
        rows, first = unseal(part), first_unit(part)
        last = first + len(rows.id)
        for d, (at, device) in enumerate(places):
            low, high = max(first, at), min(last, at + per)
            if low < high:
                piece = jax.tree.map(lambda a, f=low - first, t=high - first: a[f:t], rows)
                per_device[d] = _write(per_device[d], jax.device_put(piece, device), low - at)
    for d, (at, device) in enumerate(places):
        ids = jax.device_put(np.arange(at, at + per, dtype=np.int32), device)
        per_device[d] = dataclasses.replace(per_device[d], id=ids)
    return Private(jax.tree.map(lambda *shards: _join(shards, layout), *per_device))


def like(method: Method, count: int) -> Private[Units]:
    """Returns host arrays of the shapes of a block.

    Args:
        method: The method whose units they are.
        count: Units of the block.
    """
    return Private(jax.tree.map(lambda a: np.empty((count, *a.shape), a.dtype),
                                unit_shapes(method)))


def warmed(units: Private[Units], layout: Layout) -> np.ndarray:
    """Returns which units have had their pretraining, which is public: bool [U].

    Every process must ask, and hears of the units of all.

    Args:
        units: Sealed units.
        layout: How they lie on devices.
    """
    warm = [np.asarray(unseal(block)).astype(bool)
            for block in blocks(Private(unseal(units).warm), layout, layout.n_units)]
    each = hosts.gather(np.concatenate([*warm, np.zeros(0, bool)]).tolist())
    return np.array(list(itertools.chain(*each)), bool)


def _per_device(layout: Layout) -> int:
    """Returns the number of units on one device, padding included."""
    return layout.padded // len(layout.devices)


def _shards(leaf: jax.Array, layout: Layout) -> Iterator[tuple[int, jax.Array]]:
    """Yields (first unit, the single-device array) of each device of this process."""
    by_device = {shard.device: shard.data for shard in leaf.addressable_shards}
    for place in layout.local:
        yield place * _per_device(layout), by_device[layout.devices[place]]


@jax.jit(donate_argnums=0)
def _write(units: Units, rows: Units, at: int) -> Units:
    """Writes rows of units in place, from row `at` on; the first argument is used up."""
    return jax.tree.map(lambda a, new: jax.lax.dynamic_update_slice_in_dim(a, new, at, 0),
                        units, rows)


def _join(shards: tuple[jax.Array, ...], layout: Layout) -> jax.Array:
    """Returns one sharded array made of the devices' own arrays, without a copy."""
    if layout.parallel == "pmap":
        shards = tuple(shard[None] for shard in shards)
    shape = (len(layout.devices) * shards[0].shape[0], *shards[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, layout.by_unit, list(shards))
