"""The state of units that exceeds the devices: slabs in host memory or files, and blocks.

A slab is the units on the devices at a time. While it is computed, the next one is read and the
previous one is written. Sums of integers do not depend on order, so the release is the same as with
all units on the devices. The state outside of the devices is scratch space: it is changed in place
within a round, and a run resumes only from its checkpoints, which contain copies.

For a checkpoint, stacked units are converted to and from blocks of bounded size, so saving needs no
second copy. Blocks are ranges of unit ids, so checkpoints do not depend on devices, chunks or
padding.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core import hosts
from dpgen_jax.core.types import Array, Method, Private, PyTree, Records, UserError, unseal
from dpgen_jax.private.teachers import (
    Layout,
    Round,
    Units,
    bounded_sum,
    compile_stack,
    key_data,
    on_devices,
    put,
    spread,
    unit_bytes,
    unit_shapes,
)


class FileArray:
    """An array [U, ...] in a file, read and written by rows.

    The file has no name, so no other process can open it, and it disappears with the process,
    however that ends. It is read and written by system calls: a memory map would count as memory of
    this process, and a failing disk would end the process.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype):
        self.shape, self.dtype, self._folder = shape, np.dtype(dtype), folder
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * self.dtype.itemsize
        self._turn = threading.Lock()  # a file has one position
        try:
            # 0600, and on Windows removed when it is closed
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            self._file.truncate(shape[0] * self._row_bytes)
        except OSError as error:
            raise self._failed(error) from error

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Returns a copy of some rows. Raises UserError if they cannot be read."""
        out = np.empty((len(range(*rows.indices(self.shape[0]))), *self.shape[1:]), self.dtype)
        self._each(self._file.readinto, rows, out)
        return out

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        """Writes some rows. Raises UserError if they cannot be written."""
        self._each(self._file.write, rows, np.ascontiguousarray(values, self.dtype))

    def _each(self, call: Callable[[memoryview], int | None], rows: slice, values: np.ndarray
              ) -> None:
        """Calls `call` for each contiguous part of the file with these rows until it is done."""
        view, (start, stop, step) = values.reshape(-1).view(np.uint8).data, rows.indices(
            self.shape[0])
        size = len(view) if step == 1 else self._row_bytes
        try:
            with self._turn:
                for i, row in enumerate([start] if step == 1 else range(start, stop, step)):
                    self._file.seek(row * self._row_bytes)
                    left = view[i * size:(i + 1) * size]
                    while left:
                        done = call(left)
                        if not done:
                            raise OSError("the file ends early")
                        left = left[done:]
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> UserError:
        return UserError(f"the state of units cannot be kept on the disk of {self._folder} "
                         f"({error.strerror or error}); free some space, then resume the run")


def empty(method: Method, layout: Layout) -> Private[Units]:
    """Returns numbered units of zeros, outside of the devices."""
    def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | FileArray:
        if layout.files is None:
            return np.zeros(shape, dtype)
        return FileArray(layout.files, shape, dtype)

    unit = unit_shapes(method)
    state = jax.tree.map(lambda a: zeros((layout.padded, *a.shape), a.dtype), unit.state)
    small: Any = (np.zeros((layout.padded, *unit.key.shape), unit.key.dtype),
                  np.arange(layout.padded, dtype=np.int32),
                  np.zeros(layout.padded, unit.warm.dtype))
    return Private(Units(state, *small))


def read(stored: Private[PyTree], rows: slice, layout: Layout) -> Private[PyTree]:
    """Returns a copy of some rows on the devices."""
    def one(array: np.ndarray | FileArray) -> Array:
        part = array[rows]
        # An array on a CPU may share the memory of the one that it was made of.
        return spread(part.copy() if isinstance(array, np.ndarray) else part, layout)

    return Private(jax.tree.map(one, unseal(stored)))


def write(stored: Private[Units], rows: slice, new: Private[Units]) -> Private[Units]:
    """Writes some rows in place, and returns all."""
    def one(array: np.ndarray | FileArray, values: Array) -> None:
        array[rows] = np.asarray(values)

    jax.tree.map(one, unseal(stored), unseal(new))
    return stored


def stack(method: Method, key: Array, layout: Layout) -> Private[Units]:
    """Initialises all units, one slab at a time."""
    make, data, units = compile_stack(method, layout), key_data(key, layout), empty(method, layout)
    for rows, _ in _slabs(dataclasses.replace(layout, n_cohorts=1), 0, layout.padded):
        ids = np.arange(rows.start, rows.stop, dtype=np.int32)
        write(units, rows, make(data, put(ids, layout.by_unit)))
    return units


def _slabs(layout: Layout, cohort: int, units: int) -> Iterator[tuple[slice, slice]]:
    """Yields the rows of each slab of a cohort, among all units and among those of the cohort."""
    apart = layout.n_cohorts
    for first in range(0, units // apart, layout.slab):
        last = first + layout.slab
        yield slice(first * apart + cohort, last * apart, apart), slice(first, last)


def compile_sum(method: Method, layout: Layout) -> Callable[..., Private[Array]]:
    """Compiles `teachers.bounded_sum` for units outside of the devices.

    The compiled function takes (units, records, private inputs [R, ...], round), all on the host
    except the query. It updates the units in place and returns the sealed sum, int32 [B, D]. If it
    fails, only some units may have learnt. As a trial it computes one slab, changes no units, and
    returns an empty sum.
    """
    # A slab holds units of one cohort only.
    one_cohort = dataclasses.replace(layout, n_cohorts=1)

    def local(units: Private[Units], records: Private[Records], private_inputs: Array,
              total: Private[Array], this: Round) -> tuple[Private[Units], Private[Array]]:
        units, part = bounded_sum(method, one_cohort, units, records, private_inputs, this)
        return units, Private(unseal(total) + unseal(part))

    call = on_devices(local, layout, (True, True, True, False, False), (True, False), (0, 3))

    def nothing() -> Private[Array]:
        return Private(put(np.zeros(method.mechanism.shape, np.int32), layout.replicated))

    def add_up(units: Private[Units], records: Private[Records], private_inputs: np.ndarray,
               this: Round, is_trial: bool = False) -> Private[Array]:
        slabs = list(_slabs(layout, int(this.cohort), layout.padded))
        total, this = nothing(), this._replace(cohort=jnp.int32(0))

        def load(i: int) -> tuple[Private[Units], Private[Records], Array]:
            rows, places = slabs[i]
            return (read(units, rows, layout), read(records, rows, layout),
                    spread(private_inputs[places], layout))

        if is_trial:
            jax.block_until_ready(call(*load(0), total, this))
            return nothing()
        with ThreadPoolExecutor(2) as pool:
            ahead, behind = pool.submit(load, 0), None
            for i, (rows, _) in enumerate(slabs):
                slab = ahead.result()
                if i + 1 < len(slabs):
                    ahead = pool.submit(load, i + 1)
                after, total = call(*slab, total, this)
                if behind:
                    behind.result()
                behind = pool.submit(write, units, rows, after)
            if behind:
                behind.result()
        return total

    return add_up


T = TypeVar("T")
BLOCK_BYTES = 2**28
"""The most bytes of one block, unless one unit has more."""


def block_size(method: Method) -> int:
    """Returns the number of units of one block."""
    return max(1, BLOCK_BYTES // unit_bytes(method))


def blocks(units: Private[T], layout: Layout, size: int) -> Iterator[Private[T]]:
    """Yields the real units of this process, `size` at a time, as host arrays [units, ...].

    Blocks end at multiples of `size`, and at the end of this process's units.

    `units` may also be one sealed array of all units.
    """
    def take(leaf: jax.Array, first: int, last: int) -> np.ndarray:
        if layout.slab:
            return np.array(leaf[first:last])
        pieces, per = [], _per_device(layout)
        shards = {shard.device: shard.data for shard in leaf.addressable_shards}
        for place in layout.local:
            low, high = max(first - place * per, 0), min(last - place * per, per)
            if low < high:
                rows = shards[layout.devices[place]]
                rows = rows if layout.parallel == "shard_map" else rows[0]
                pieces.append(np.asarray(rows[low:high]))
        return np.concatenate(pieces)

    start, stop = layout.local_units
    for at in range(start // size * size, min(stop, layout.n_units), size):
        first, last = max(at, start), min(at + size, stop, layout.n_units)
        if first >= last:  # this process has only places without a unit
            continue
        yield Private(jax.tree.map(lambda a, f=first, t=last: take(a, f, t), unseal(units)))


def first_unit(block: Private[Units]) -> int:
    """Returns the first unit of a block, which is public."""
    return int(unseal(block).id[0])


def assemble(parts: Iterator[Private[Units]], method: Method, layout: Layout) -> Private[Units]:
    """Returns the units of blocks for any layout: the inverse of `blocks`.

    Blocks are written in place as they arrive.

    The parts hold all units of this process, in any order.
    """
    if layout.slab:
        units = empty(method, layout)
        for part in parts:
            first = first_unit(part)
            write(units, slice(first, first + len(unseal(part).id)), part)
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
    """Returns host arrays with the shapes of a block."""
    return Private(jax.tree.map(lambda a: np.empty((count, *a.shape), a.dtype),
                                unit_shapes(method)))


def warmed(units: Private[Units], layout: Layout) -> np.ndarray:
    """Returns which units are pretrained, which is public: bool [U].

    Every process must call it, and gets the result for all units.
    """
    warm = [np.asarray(unseal(block)).astype(bool)
            for block in blocks(Private(unseal(units).warm), layout, layout.n_units)]
    each = hosts.gather(np.concatenate([*warm, np.zeros(0, bool)]).tolist())
    return np.array(list(itertools.chain(*each)), bool)


def _per_device(layout: Layout) -> int:
    """Returns the number of units on one device, padding included."""
    return layout.padded // len(layout.devices)


@jax.jit(donate_argnums=0)
def _write(units: Units, rows: Units, at: int) -> Units:
    """Writes rows of units in place, from row `at` on; the first argument is consumed."""
    return jax.tree.map(lambda a, new: jax.lax.dynamic_update_slice_in_dim(a, new, at, 0),
                        units, rows)


def _join(shards: tuple[jax.Array, ...], layout: Layout) -> jax.Array:
    """Joins the arrays of devices to one sharded array, without a copy."""
    if layout.parallel == "pmap":
        shards = tuple(shard[None] for shard in shards)
    shape = (len(layout.devices) * shards[0].shape[0], *shards[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, layout.by_unit, list(shards))
