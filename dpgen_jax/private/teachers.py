"""Stacked units: their placement on devices, queries in chunks, and sums.

Only this module handles several units at once. Everything a unit keeps is in `Units`, each array
with a leading unit axis, and is written back in place; [U, B, D] is never in memory.

The results of a method's functions are checked once, when a program is traced. The checks use only
shapes and types, so they add nothing to a compiled program.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dpgen_jax.core.errors import option
from dpgen_jax.core.types import (
    EMPTY,
    Array,
    Method,
    Metrics,
    Private,
    PyTree,
    Records,
    UserError,
    unseal,
)


def check_query(query: PyTree) -> None:
    """Checks that a query consists of arrays of at most 32 bits.

    Raises:
        TypeError: A leaf is not an array, or has 64 bits.
    """
    with _named("ask"):
        for leaf in jax.tree.leaves(query):
            if not hasattr(leaf, "dtype"):
                raise AssertionError(f"a leaf is {type(leaf).__name__}, expected an array")
            if jnp.issubdtype(leaf.dtype, jnp.number) and leaf.dtype.itemsize > 4:
                raise AssertionError(f"a leaf is {leaf.dtype}, expected at most 32 bits")


def check_public(before: PyTree, after: PyTree, metrics: Metrics) -> None:
    """Checks that the public state keeps its shapes and types, and that metrics are scalars.

    Raises:
        TypeError: A shape or type differs, or a metric is not a scalar.
    """
    with _named("absorb"):
        chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
        for name, value in metrics.items():
            if jnp.shape(value):
                raise AssertionError(f"metric {name!r} has shape {jnp.shape(value)}, expected a "
                                     "scalar")


@contextmanager
def _named(function: str) -> Iterator[None]:
    """Adds to an error the function of the method that returned the wrong value."""
    try:
        yield
    except AssertionError as error:
        raise TypeError(f"`Method.{function}` returned a wrong shape or type: {error}") from None


AXIS = "units"
"""The name of the mesh axis for units."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The placement of units on devices, which never affects a vote sum or an epsilon.

    Units are padded to a multiple of chunk x devices x cohorts; padded units cast zero votes. Row r
    of a device has one unit of every cohort, so those that a round queries are at equal distances.
    If units are sampled for every round, the places of a sampled batch are laid out instead, and
    every device has the records of all units.

    Attributes:
        chunk: Number of units queried at once.
        parallel: "shard_map", or "pmap": the same per-device function under `jax.pmap`.
        n_cohorts: The number of cohorts of the mechanism's schedule.
        sampled: Whether units are sampled into places.
        slab: Number of units on the devices at a time, a multiple of chunk x devices, if the state
            of all is elsewhere (`private.streaming`); 0 if all are on the devices.
        files: With a slab, the folder of the files with the state; None for host memory.
        pretrained: Number of units of a device that are pretrained at once; 0, or slabs, mean a
        chunk.

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
            raise UserError(f"{option('parallel', 'pmap')} keeps the state of units on the "
                            f"devices; leave it out with {option('state', 'host')} or disk")
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
        """Number of units that a device pretrains at once: at most `pretrained`, in equal parts."""
        units = self.padded // len(self.devices)
        most = min((0 if self.slab else self.pretrained) or self.chunk, units)
        return -(-units // -(-units // most))

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """The mesh of the devices, with one axis; created once, since every array uses it."""
        return jax.make_mesh((len(self.devices),), (AXIS,), axis_types=(AxisType.Auto,),
                             devices=self.devices)

    @property
    def by_unit(self) -> NamedSharding:
        """The sharding of arrays whose leading axis is the unit axis."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @property
    def local(self) -> tuple[int, ...]:
        """The indices in `devices` of this process's devices, which are adjacent."""
        return tuple(place for place, device in enumerate(self.devices)
                     if device.process_index == jax.process_index())

    @property
    def local_units(self) -> tuple[int, int]:
        """The first unit of this process's devices, and one past the last, with padding."""
        per_device = self.padded // len(self.devices)
        return self.local[0] * per_device, (self.local[-1] + 1) * per_device

    @property
    def dealt_units(self) -> tuple[int, int] | None:
        """The units whose records this process needs, as `local_units`; None (all) if sampled."""
        return None if self.sampled else self.local_units

    def fold(self, tree: PyTree) -> PyTree:
        """Returns a tree of [U, ...] leaves in the form for the per-device function.

        `pmap` wants [devices, U / devices, ...]; `shard_map` takes them as they are.

        The argument is consumed.
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
    """Returns an array [R, ...] of the rows of units, padded with zeros."""
    padding = [(0, layout.padded // layout.n_cohorts - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, padding)


def spread(array: np.ndarray, layout: Layout) -> Array:
    """Puts an array [k devices, ...] on the devices, in the form for the per-device function."""
    if layout.parallel == "pmap":
        per = len(array) // len(layout.devices)  # no -1: an array may be empty
        array = array.reshape(len(layout.devices), per, *array.shape[1:])
    return put(array, layout.by_unit)


def put(array: np.ndarray, sharding: NamedSharding, first: int = 0,
        rows: int | None = None) -> Array:
    """Puts an array on the devices of all processes; each process supplies the part of its devices.

    `device_put` would send the values of each process to all others to compare them.

    Args:
        array: A host array with at least this process's rows.
        sharding: The sharding of the whole array.
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
    """Compiles a per-device function that calls `bounded_sum`.

    Args:
        layout: How units lie on devices.
        by_unit: For each argument, True if its leading axis is the unit axis, False if it is
            replicated.
        out_by_unit: Likewise for the (tuple of) results.
        donate: Arguments to update in place.
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
    """Converts a per-device function to one of arrays that are sharded by unit or replicated.

    The arguments are those of `on_devices`.
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


# XLA of JAX 0.11 crashes if it compiles a function that is mapped over devices and takes an array
# without entries (the secret bits of a method that has none): it converts it to a constant, and no
# longer finds the shardings of the others. So none is passed, and each device creates it. Arrays
# that the function closes over would be passed as well, so they stay within a jit.


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Empty:
    """Represents an array without entries, with its shape on a device and its type."""

    shape: tuple[int, ...]
    dtype: Any


def _without_empty(args: tuple, by_unit: tuple[bool, ...],
                   on_one: Callable[[tuple[int, ...]], tuple[int, ...]]) -> tuple:
    """Returns arguments with an `_Empty` for each array without entries.

    `on_one` maps the shape of an array by unit to that of a device's part.
    """
    def one(leaf: Array, split: bool) -> Array | _Empty:
        if np.size(leaf):
            return leaf
        kind = jax.typeof(leaf)
        return _Empty(on_one(kind.shape) if split else kind.shape, kind.dtype)

    return tuple(jax.tree.map(functools.partial(one, split=split), arg)
                 for arg, split in zip(args, by_unit, strict=True))


def _filled(local: Callable) -> Callable:
    """Converts a per-device function to one that takes `_Empty` for arrays without entries."""
    def is_empty(leaf: PyTree) -> bool:
        return isinstance(leaf, _Empty)

    @functools.wraps(local)
    def call(*args: PyTree) -> PyTree:
        return local(*jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype) if is_empty(a) else a,
                                   args, is_leaf=is_empty))

    return jax.jit(call)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Units:
    """Everything that units keep.

    Attributes:
        state: The method's unit pytree, leaves [U, ...].
        key: uint32 [U, 2], the key data of each unit.
        id: int32 [U].
        warm: uint8 [U], 1 after pretraining; checkpoints of old runs know it by this name.
    """

    state: PyTree
    key: Array
    id: Array
    warm: Array


def one_unit(method: Method, key: Array, unit_id: Array) -> Units:
    """Returns a unit before the first round, leaves without a unit axis."""
    first, later = jax.random.split(jax.random.fold_in(key, unit_id))
    return Units(method.init_unit(first), jax.random.key_data(later), unit_id, jnp.uint8(0))


def stack(method: Method, key: Array, layout: Layout) -> Private[Units]:
    """Initialises all units on their devices, one by one, without a second copy of the state."""
    ids = put(np.arange(layout.padded, dtype=np.int32), layout.by_unit)
    return layout.fold(compile_stack(method, layout)(key_data(key, layout), ids))


def key_data(key: Array, layout: Layout) -> Array:
    """Returns the data of a random key, replicated on all devices."""
    return put(np.asarray(jax.random.key_data(key)), layout.replicated)


def compile_stack(method: Method, layout: Layout) -> Callable[[Array, Array], Private[Units]]:
    """Compiles the initialisation of units: a function of the key's data and of unit ids int32 [n].

    The key is an argument, since JAX may store compiled programs on a disk, and they must not
    contain secrets.
    """
    def local(data: Array, ids: Array) -> Private[Units]:
        key = jax.random.wrap_key_data(data)
        return Private(lax.map(lambda unit_id: one_unit(method, key, unit_id), ids))

    return jax.jit(sharded(local, layout, (False, True), True))


@functools.lru_cache(maxsize=64)
def unit_shapes(method: Method) -> Units:
    """Returns the shapes of one unit, leaves without a unit axis."""
    def one(key: Array) -> Units:
        return one_unit(method, key, jnp.int32(0))

    return jax.eval_shape(one, jax.random.key(0))


def unit_bytes(method: Method) -> int:
    """Returns the size of the state of one unit, in bytes."""
    state = unit_shapes(method).state
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def place(records: Private[Records], layout: Layout) -> Private[Records]:
    """Puts records on the devices of their units, or on every device if units are sampled.

    A CPU uses records from `records.deal` without a copy if a device's part begins at a multiple of
    `records.ALIGNMENT` bytes; they must not be changed. With slabs, the records stay on the host
    too.

    Args:
        records: Sealed x [U, m, ...], y int32 [U, m], on the host: those of the units of this
            process (`Layout.dealt_units`), or of all units if units are sampled.
        layout: How units lie on devices.

    Raises:
        ValueError: The number of units with records differs from this process's places.
    """
    if layout.sampled:
        return Private(jax.tree.map(lambda a: put(a, layout.replicated), unseal(records)))
    first, last = layout.local_units

    def one(array: np.ndarray) -> Array | np.ndarray:
        if len(array) != last - first:
            raise ValueError(f"records of {len(array)} units for {last - first} places")
        return array if layout.slab else put(array, layout.by_unit, first, layout.padded)

    return Private(layout.fold(jax.tree.map(one, unseal(records))))


def meet(layout: Layout) -> None:
    """Opens the connections between the devices of several processes.

    The first exchange times out after half a minute, and a compilation may take longer.
    """
    ones = put(np.ones(len(layout.devices), np.int32), layout.by_unit)
    jax.block_until_ready(jax.jit(sharded(
        lambda one: lax.psum(one, AXIS), layout, (True,), False))(ones))


def query_unit(method: Method, unit: Units, records: Records, query: PyTree, step: Array,
               private_input: Array) -> tuple[Units, Array]:
    """Queries one unit: it learns and answers, and its message is bounded.

    A unit with only empty slots answers NaN, which every bound converts to 0.

    Args:
        unit: One unit, leaves without a unit axis.
        records: Its records: x [m, ...], y int32 [m].
        query: The query of the round.
        step: int32 [], the number of the round.
        private_input: The unit's secret bits from `Mechanism.private_inputs`.

    Returns:
        The unit after the round, and its contribution to the sum, int32 of `contribution_shape`.

    Raises:
        TypeError: A function of the method returns a wrong shape or type (raised during tracing).
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(unit.key), step)
    k_learn, k_answer, k_bound = jax.random.split(key, 3)
    state = method.learn(k_learn, unit.state, records, query)
    with _named("learn"):
        chex.assert_trees_all_equal_shapes_and_dtypes(unit.state, state)
    # The barrier prevents compilers for accelerators from recomputing a message for each pass over
    # it. It is for speed only: on CPU it is removed before loops are fused, and `aggregation.bound`
    # needs none.
    message = lax.optimization_barrier(method.answer(k_answer, state, records, query))
    with _named("answer"):
        chex.assert_shape(message, (method.mechanism.bound.rows, None))
        chex.assert_type(message, jnp.float32)
    message = jnp.where(jnp.any(records.y != EMPTY), message, jnp.nan)
    votes = method.mechanism.contribution(k_bound, message, private_input)
    with _named("mechanism.contribution"):
        chex.assert_shape(votes, method.mechanism.contribution_shape)
        chex.assert_type(votes, jnp.int32)
    return dataclasses.replace(unit, state=state), votes


class Round(NamedTuple):
    """The public side of one round.

    Attributes:
        query: The query, any pytree of arrays.
        step: int32 [], the number of the round.
        cohort: int32 [], the queried cohort.
    """

    query: PyTree
    step: Array
    cohort: Array


def bounded_sum(method: Method, layout: Layout, units: Private[Units], records: Private[Records],
                private_inputs: Array, this: Round) -> tuple[Private[Units], Private[Array]]:
    """Queries every unit of the cohort on this device, and adds up their contributions.

    Called per device, inside `on_devices`. One chunk of messages [chunk, B, D] is in memory at a
    time. Integer sums do not depend on order, so the layout cannot change the total.

    Args:
        layout: How units lie on devices.
        units: Sealed units of the device, leaves [U / devices, ...].
        records: Their sealed records; those of all units if units are sampled.
        private_inputs: [R / devices, ...], the secret bits of the unit in each row.

    Returns:
        The new units, and the sealed int32 [B, D] sum over all queried units of all devices.
    """
    everyone, data = unseal(units), unseal(records)
    if layout.sampled and len(data.y) != method.mechanism.n_units:
        # A unit beyond the last record would silently read the last one.
        raise ValueError(f"records of {len(data.y)} units, of which {method.mechanism.n_units} are "
                         "sampled")

    def one(unit: Units, own_records: Records, private_input: Array) -> tuple[Units, Array]:
        if layout.sampled:
            # A message must not depend on the place of its unit, and so not on the rest of the
            # sample.
            key = jax.random.fold_in(jax.random.key(0), private_input[0])
            unit = dataclasses.replace(unit, key=jax.random.key_data(key))
        unit, votes = query_unit(method, unit, own_records, this.query, this.step, private_input)
        return unit, votes * (unit.id < layout.n_units)

    def query_chunk(i: Array, carry: tuple[Units, Array]) -> tuple[Units, Array]:
        everyone, total = carry
        get, put = _chunk(i * layout.chunk, this.cohort, layout)
        private_input = lax.dynamic_slice_in_dim(private_inputs, i * layout.chunk, layout.chunk)
        # A place without a unit reads the last unit's records (index -1), and is not counted.
        own_records = jax.tree.map(
            (lambda a: a[private_input[:, 0]]) if layout.sampled else get, data)
        chunk, votes = vmapped(one, layout.chunk)(
            jax.tree.map(get, everyone), own_records, private_input)
        # Sampled units keep no state: a place belongs to another unit in the next round.
        kept = everyone if layout.sampled else jax.tree.map(put, everyone, chunk)
        return kept, method.mechanism.added(total, votes)

    total = jnp.zeros(method.mechanism.shape, jnp.int32)
    chunks = everyone.id.shape[0] // (layout.chunk * layout.n_cohorts)
    everyone, total = lax.fori_loop(0, chunks, query_chunk, (everyone, total))
    return Private(everyone), Private(lax.psum(total, AXIS))


def _chunk(row: Array, cohort: Array, layout: Layout) -> tuple[Callable, Callable]:
    """Returns get(array) and put(array, new) for the cohort's units in rows from `row` on.

    Both avoid a reshape to [rows, cohorts, ...], for which XLA would copy all units.
    """
    first = row * layout.n_cohorts + cohort
    if 1 in (layout.n_cohorts, layout.chunk):
        return (lambda a: lax.dynamic_slice_in_dim(a, first, layout.chunk),
                lambda a, new: lax.dynamic_update_slice_in_dim(a, new, first, 0))
    at = first + layout.n_cohorts * jnp.arange(layout.chunk)
    # The promises let XLA gather and scatter without checks and in any order.
    def get(a: Array) -> Array:
        return a.at[at].get(mode="promise_in_bounds", unique_indices=True, indices_are_sorted=True)

    def put(a: Array, new: Array) -> Array:
        return a.at[at].set(new, mode="promise_in_bounds", unique_indices=True,
                            indices_are_sorted=True)

    return get, put


def vmapped(one: Callable, chunk: int) -> Callable:
    """Returns `vmap` of a function; a chunk of one keeps plain matrix products."""
    if chunk > 1:
        return jax.vmap(one)
    def alone(*args: PyTree) -> PyTree:
        out = one(*jax.tree.map(lambda a: a[0], args))
        return jax.tree.map(lambda a: a[None], out)

    return alone
