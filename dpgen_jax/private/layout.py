"""How units lie on devices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dpgen_jax.core.types import Array, PyTree, UserError

AXIS = "units"
"""The name of the mesh axis that units lie along."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How units lie on devices. It changes speed and memory, never a vote sum or an epsilon.

    Units are padded to a multiple of chunk x devices x cohorts; padded units cast zero votes. Row r
    of a device has one unit of every cohort, so those that a round queries lie at equal distances.
    Where units are sampled for every round, what is laid out are the places of a sampled batch, and
    every device has the records of all units.

    Attributes:
        n_units: U.
        chunk: Units that are queried at once.
        devices: The devices.
        parallel: "shard_map", or "pmap": the same per-device function under `jax.pmap`.
        n_cohorts: Of the mechanism's schedule.
        sampled: Whether units are sampled into places.
        slab: Units that are on the devices at a time, a multiple of chunk x devices, where the
            state of all lies elsewhere (`private.streaming`); 0: all are on the devices.
        files: With a slab, the folder of the files that hold the state; None: host memory.
        pretrained: Units of a device that are pretrained at once; 0, and with slabs: a chunk.

    Raises:
        UserError: A field is outside its range.
    """

    n_units: int
    chunk: int
    devices: tuple[jax.Device, ...]
    parallel: str = "shard_map"
    n_cohorts: int = 1
    sampled: bool = False
    slab: int = 0
    files: Path | None = None
    pretrained: int = 0

    def __post_init__(self) -> None:
        if self.parallel not in ("shard_map", "pmap"):
            raise UserError(f"parallel is {self.parallel!r}; use 'shard_map' or 'pmap'")
        if self.chunk < 1 or not self.devices:
            raise UserError(f"chunk {self.chunk} on {len(self.devices)} devices; at least 1 each")
        if self.slab and self.parallel == "pmap":
            raise UserError("--parallel pmap keeps the state of units on the devices; leave it out "
                            "with --state host or disk")
        if self.slab % (self.chunk * len(self.devices)):
            raise ValueError(f"slabs of {self.slab} units, in chunks of {self.chunk} on "
                             f"{len(self.devices)} devices")

    @property
    def padded(self) -> int:
        """The number of units with padding."""
        multiple = (self.slab or self.chunk * len(self.devices)) * self.n_cohorts
        return -(-self.n_units // multiple) * multiple

    @property
    def pretrained_at_once(self) -> int:
        """Units of a device that are pretrained at once: at most `pretrained`, in equal parts."""
        units = self.padded // len(self.devices)
        most = min((0 if self.slab else self.pretrained) or self.chunk, units)
        return -(-units // -(-units // most))

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """The mesh of the devices, with one axis; it is made once, as each array asks for it."""
        return jax.make_mesh((len(self.devices),), (AXIS,), axis_types=(AxisType.Auto,),
                             devices=self.devices)

    @property
    def by_unit(self) -> NamedSharding:
        """The sharding of arrays whose leading axis is the unit axis."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @property
    def local(self) -> tuple[int, ...]:
        """The places in `devices` of those that this process drives, next to each other."""
        return tuple(place for place, device in enumerate(self.devices)
                     if device.process_index == jax.process_index())

    @property
    def local_units(self) -> tuple[int, int]:
        """The first unit of this process's devices, and the one behind the last; with padding."""
        per_device = self.padded // len(self.devices)
        return self.local[0] * per_device, (self.local[-1] + 1) * per_device

    @property
    def dealt_units(self) -> tuple[int, int] | None:
        """The units whose records this process needs, as `local_units`; None, all, if sampled."""
        return None if self.sampled else self.local_units

    def fold(self, tree: PyTree) -> PyTree:
        """Returns a tree of [U, ...] leaves in the form that the per-device function takes.

        `pmap` wants [devices, U / devices, ...]; `shard_map` takes them as they are.

        Args:
            tree: Leaves [U, ...]; it is used up.
        """
        if self.parallel == "shard_map":
            return tree
        shape = (len(self.devices), self.padded // len(self.devices))
        fold = jax.jit(lambda t: jax.tree.map(lambda a: a.reshape(shape + a.shape[1:]), t),
                       out_shardings=self.by_unit, donate_argnums=0)
        return fold(tree)

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of arrays that every device has as a whole."""
        return NamedSharding(self.mesh, PartitionSpec())


def padded_rows(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns an array [R, ...] of the rows of units, padded with zeros.

    Args:
        array: On the host.
        layout: How units lie on devices.
    """
    padding = [(0, layout.padded // layout.n_cohorts - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, padding)


def spread(array: np.ndarray, layout: Layout) -> Array:
    """Puts an array [k devices, ...] on the devices, as the per-device function takes it.

    Args:
        array: On the host.
        layout: How units lie on devices.
    """
    if layout.parallel == "pmap":
        per = len(array) // len(layout.devices)  # no -1: an array may be empty
        array = array.reshape(len(layout.devices), per, *array.shape[1:])
    return put(array, layout.by_unit)


def put(array: np.ndarray, sharding: NamedSharding, first: int = 0,
        rows: int | None = None) -> Array:
    """Puts an array on the devices of all processes, each of which gives what its own have.

    `device_put` would send the values of each process to all others, to compare them.

    Args:
        array: On the host: at least this process's rows of the whole.
        sharding: How the whole lies.
        first: The first of these rows.
        rows: All rows of the whole; by default those of `array`.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    shape = (len(array) if rows is None else rows, *array.shape[1:]) if array.ndim else ()

    def part(index: tuple[slice, ...] | None) -> np.ndarray:
        if not index:
            return array
        start, stop, _ = index[0].indices(shape[0])
        return array[start - first:stop - first]

    return jax.make_array_from_callback(shape, sharding, part)


def on_devices(local: Callable, layout: Layout, by_unit: tuple[bool, ...],
               out_by_unit: PyTree, donate: tuple[int, ...]) -> Callable:
    """Compiles a per-device function that calls `teachers.bounded_sum`.

    Args:
        local: The per-device function.
        layout: How units lie on devices.
        by_unit: For each argument, True where its leading axis is the unit axis, False where it is
            replicated.
        out_by_unit: Likewise for the (tuple of) results.
        donate: Arguments that are updated in place.
    """
    if layout.parallel == "shard_map":
        return jax.jit(sharded(local, layout, by_unit, out_by_unit), donate_argnums=donate)
    mapped = jax.pmap(_filled(local), axis_name=AXIS, devices=layout.devices,
                      donate_argnums=donate,
                      in_axes=jax.tree.map(lambda f: 0 if f else None, by_unit),
                      out_axes=jax.tree.map(lambda f: 0 if f else None, out_by_unit))
    return lambda *args: mapped(*_without_empty(args, by_unit, lambda shape: shape[1:]))


def sharded(local: Callable, layout: Layout, by_unit: tuple[bool, ...], out_by_unit: PyTree
               ) -> Callable:
    """Returns a per-device function as one of arrays that are sharded by unit or replicated.

    Args:
        local: As in `on_devices`, like the others.
        layout: How units lie on devices.
        by_unit: For each argument, whether it is sharded.
        out_by_unit: For each result.
    """
    def spec(flags: PyTree) -> PyTree:
        return jax.tree.map(lambda f: PartitionSpec(AXIS) if f else PartitionSpec(), flags)

    # check_vma=False: under the default, the gradient with respect to a replicated input (the
    # query images) is silently summed over devices, which would mix the teachers' answers.
    mapped = jax.shard_map(_filled(local), mesh=layout.mesh, in_specs=spec(by_unit),
                           out_specs=spec(out_by_unit), check_vma=False)

    @functools.wraps(local)
    def call(*args: PyTree) -> PyTree:
        return mapped(*_without_empty(args, by_unit, lambda shape: (
            shape[0] // len(layout.devices), *shape[1:])))

    return call


# XLA of JAX 0.11 crashes where it compiles a function that is mapped over devices and takes an
# array without entries (the secret bits of a method that has none): it makes a constant of it, and
# finds the shardings of the others no more. So none is passed: each device makes its own. What the
# function closes over would be passed as well, and stays within a jit.


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Empty:
    """Stands for an array without entries, with its shape on a device and its type."""

    shape: tuple[int, ...]
    dtype: Any


def _without_empty(args: tuple, by_unit: tuple[bool, ...],
                   on_one: Callable[[tuple[int, ...]], tuple[int, ...]]) -> tuple:
    """Returns arguments with an `_Empty` for each array without entries.

    Args:
        args: Of all devices.
        by_unit: As in `on_devices`.
        on_one: From the shape of an array by unit to that of a device's part.
    """
    def one(leaf: Array, split: bool) -> Array | _Empty:
        if np.size(leaf):
            return leaf
        kind = jax.typeof(leaf)
        return _Empty(on_one(kind.shape) if split else kind.shape, kind.dtype)

    return tuple(jax.tree.map(functools.partial(one, split=split), arg)
                 for arg, split in zip(args, by_unit, strict=True))


def _filled(local: Callable) -> Callable:
    """Returns a per-device function as one that takes an `_Empty` for an array without entries."""
    def is_empty(leaf: PyTree) -> bool:
        return isinstance(leaf, _Empty)

    @functools.wraps(local)
    def call(*args: PyTree) -> PyTree:
        return local(*jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype) if is_empty(a) else a,
                                   args, is_leaf=is_empty))

    return jax.jit(call)
