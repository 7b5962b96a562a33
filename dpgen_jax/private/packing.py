"""Stacked units to and from blocks of bounded size, so that saving them needs no second copy.

Blocks are ranges of unit ids: what is saved does not depend on devices, chunks or padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.private.teachers import Layout, Units, one_unit, unit_bytes
from dpgen_jax.types import Method, Private, unseal

BLOCK_BYTES = 2**28


def block_size(method: Method) -> int:
    """Units in one block."""
    return max(1, BLOCK_BYTES // unit_bytes(method))


def blocks(units: Private[Units], layout: Layout, size: int) -> Iterator[Private[Units]]:
    """The real units, `size` at a time, as host arrays with a leading unit axis."""
    def take(leaf, first, last):
        pieces = []
        for at, shard in _shards(leaf, layout):
            low, high = max(first - at, 0), min(last - at, _per_device(layout))
            if low < high:
                rows = shard if layout.parallel == "shard_map" else shard[0]
                pieces.append(np.asarray(rows[low:high]))
        return np.concatenate(pieces)

    for first in range(0, layout.n_units, size):
        last = min(first + size, layout.n_units)
        yield Private(jax.tree.map(lambda a, f=first, t=last: take(a, f, t), unseal(units)))


def assemble(parts: Iterator[Private[Units]], method: Method, layout: Layout) -> Private[Units]:
    """The inverse of `blocks`, for any layout: parts are written in place as they come."""
    unit = _unit(method)
    per = _per_device(layout)
    zeros = jax.jit(lambda: jax.tree.map(lambda a: jnp.zeros((per, *a.shape), a.dtype), unit))
    held = []
    for device in layout.devices:
        with jax.default_device(device):
            held.append(jax.device_put(zeros(), device))  # and it stays there
    first = 0
    for part in parts:
        rows = unseal(part)
        last = first + len(rows.id)
        for d, at in enumerate(range(0, layout.padded, per)):
            low, high = max(first, at), min(last, at + per)
            if low < high:
                own = jax.tree.map(lambda a, f=low - first, t=high - first: a[f:t], rows)
                held[d] = _write(held[d], jax.device_put(own, layout.devices[d]), low - at)
        first = last
    for d, at in enumerate(range(0, layout.padded, per)):
        ids = jax.device_put(np.arange(at, at + per, dtype=np.int32), layout.devices[d])
        held[d] = dataclasses.replace(held[d], id=ids)
    return Private(jax.tree.map(lambda *shards: _join(shards, layout), *held))


def like(method: Method, count: int) -> Private[Units]:
    """Shapes of a block of `count` units, as host arrays."""
    return Private(jax.tree.map(lambda a: np.empty((count, *a.shape), a.dtype), _unit(method)))


def _unit(method: Method) -> Units:
    """Shapes of one unit."""
    def one(key):
        return one_unit(method, key, jnp.int32(0))

    return jax.eval_shape(one, jax.random.key(0))


def warmed(units: Private[Units], layout: Layout) -> np.ndarray:
    """bool [U]: which units have had their warm start: public."""
    (block,) = blocks(Private(unseal(units).warm), layout, layout.n_units)
    return unseal(block).astype(bool)


def _per_device(layout: Layout) -> int:
    return layout.padded // len(layout.devices)


def _shards(leaf: jax.Array, layout: Layout) -> Iterator[tuple[int, jax.Array]]:
    """(first unit, the single-device array) of each device."""
    by_device = {shard.device: shard.data for shard in leaf.addressable_shards}
    for d, device in enumerate(layout.devices):
        yield d * _per_device(layout), by_device[device]


@jax.jit(donate_argnums=0)
def _write(held: Any, rows: Any, at: int) -> Any:
    return jax.tree.map(lambda a, new: jax.lax.dynamic_update_slice_in_dim(a, new, at, 0),
                        held, rows)


def _join(shards: tuple[jax.Array, ...], layout: Layout) -> jax.Array:
    """One sharded array from the devices' own arrays, without a copy."""
    if layout.parallel == "pmap":
        shards = tuple(shard[None] for shard in shards)
    shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, layout.by_unit, list(shards))
