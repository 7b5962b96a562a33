"""Stacked units: `vmap` inside a chunk, a loop over chunks, one `psum` over devices.

The only module that knows about units in the plural. Everything a unit keeps lies in `Units`, each
array with a leading unit axis, and is written back in place; [U, B, D] is never held.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dpgen_jax.types import EMPTY, Array, Method, Private, Records, UserError, unseal

AXIS = "units"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Units:
    """state: the method's unit pytree, leaves [U, ...]; key uint32 [U, 2]; id int32 [U]; warm
    uint8 [U]: 1 after a warm start."""

    state: Any
    key: Array
    id: Array
    warm: Array


@dataclasses.dataclass(frozen=True)
class Layout:
    """How units lie on devices. It changes speed and memory, never a vote sum or an epsilon.

    Units are padded to a multiple of chunk x devices x groups; padded units cast zero votes.
    parallel: "shard_map", or "pmap": the same per-device function under `jax.pmap`. groups: of the
    mechanism's schedule. Row r of a device holds one unit of every group, so those that a step
    visits lie at equal distances. drawn: units are drawn for every step; then what is laid out are
    the places of a draw, and every device has the records of all units.
    """

    n_units: int
    chunk: int
    devices: tuple[jax.Device, ...]
    parallel: str = "shard_map"
    groups: int = 1
    drawn: bool = False

    def __post_init__(self):
        if self.parallel not in ("shard_map", "pmap"):
            raise UserError(f"parallel is {self.parallel!r}; use 'shard_map' or 'pmap'")
        if self.chunk < 1 or not self.devices:
            raise UserError(f"chunk {self.chunk} on {len(self.devices)} devices; at least 1 each")

    @property
    def padded(self) -> int:
        multiple = self.chunk * len(self.devices) * self.groups
        return -(-self.n_units // multiple) * multiple

    @property
    def mesh(self) -> jax.sharding.Mesh:
        return jax.make_mesh((len(self.devices),), (AXIS,), axis_types=(AxisType.Auto,),
                             devices=self.devices)

    @property
    def by_unit(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    def fold(self, tree: Any) -> Any:
        """[U, ...] leaves to the form that the per-device function takes: `pmap` wants
        [devices, U / devices, ...]; `shard_map` takes them as they are."""
        if self.parallel == "shard_map":
            return tree
        shape = (len(self.devices), self.padded // len(self.devices))
        fold = jax.jit(lambda t: jax.tree.map(lambda a: a.reshape(shape + a.shape[1:]), t),
                       out_shardings=self.by_unit, donate_argnums=0)
        return fold(tree)

    @property
    def replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())


def one_unit(method: Method, key: Array, unit_id: Array) -> Units:
    """Unit number `unit_id` before the first step."""
    first, later = jax.random.split(jax.random.fold_in(key, unit_id))
    return Units(method.init_unit(first), jax.random.key_data(later), unit_id, jnp.uint8(0))


def stack(method: Method, key: Array, layout: Layout) -> Private[Units]:
    """Initialises all units on their devices, one by one: no second copy of the state."""
    ids = jax.device_put(jnp.arange(layout.padded, dtype=jnp.int32), layout.by_unit)

    def local(ids):
        return lax.map(lambda unit_id: one_unit(method, key, unit_id), ids)

    return Private(layout.fold(jax.jit(_shard_map(local, layout, (True,), True))(ids)))


def unit_bytes(method: Method) -> int:
    """Bytes that one unit's state takes."""
    state = jax.eval_shape(method.init_unit, jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def place(records: Private[Records], layout: Layout) -> Private[Records]:
    """Puts records [U, m, ...] on the devices of their units, padded units get zeros; or on every
    device, where units are drawn."""
    if layout.drawn:
        return Private(jax.device_put(unseal(records), layout.replicated))

    def one(array):
        padding = [(0, layout.padded - layout.n_units)] + [(0, 0)] * (array.ndim - 1)
        return jax.device_put(np.pad(array, padding), layout.by_unit)

    return Private(layout.fold(jax.tree.map(one, unseal(records))))


def rows(array: np.ndarray, layout: Layout) -> Array:
    """Puts an array [R, ...] on the devices of the rows of units, padded with zeros."""
    padding = [(0, layout.padded // layout.groups - len(array))] + [(0, 0)] * (array.ndim - 1)
    return spread(np.pad(array, padding), layout)


def spread(array: np.ndarray, layout: Layout) -> Array:
    """Puts an array [k devices, ...] on the devices, as the per-device function takes it."""
    if layout.parallel == "pmap":
        per = len(array) // len(layout.devices)  # no -1: an array may be empty
        array = array.reshape(len(layout.devices), per, *array.shape[1:])
    return jax.device_put(array, layout.by_unit)


def visit_one(method: Method, unit: Units, own: Records, query: Any, step: Array, secret: Array
              ) -> tuple[Units, Array]:
    """What one unit does in a step: learn, answer, bound. Returns the unit and int32 [B, D].

    A unit that has nothing but empty slots answers NaN, of which every bound makes 0.
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(unit.key), step)
    k_learn, k_answer, k_bound = jax.random.split(key, 3)
    state = method.learn(k_learn, unit.state, own, query)
    # The barrier keeps accelerators' compilers from computing a message anew for each pass over it.
    # It is for speed: on CPU it is gone before loops are fused; `aggregation.enforce` needs none.
    message = lax.optimization_barrier(method.answer(k_answer, state, own, query))
    message = jnp.where(jnp.any(own.y != EMPTY), message, jnp.nan)
    votes = method.mechanism.contribution(k_bound, message, secret)
    return dataclasses.replace(unit, state=state), votes


def bounded_sum(method: Method, layout: Layout, units: Private[Units], records: Private[Records],
                secrets: Array, query: Any, step: Array, group: Array
                ) -> tuple[Private[Units], Private[Array]]:
    """One visit to every unit of the group on this device: learn, answer, bound, and add up.

    Per device, inside `on_devices`. secrets: what each row's unit is told, [R, ...]. Returns the
    new units and the int32 [B, D] sum over all visited units of all devices. Holds one chunk of
    messages [chunk, B, D] at a time. Integer sums do not depend on order, so the layout cannot
    change the total.
    """
    held, data = unseal(units), unseal(records)

    def one(unit, own, secret):
        if layout.drawn:  # a message may not tell in which place, and so beside whom, it was drawn
            key = jax.random.fold_in(jax.random.key(0), secret[0])
            unit = dataclasses.replace(unit, key=jax.random.key_data(key))
        unit, votes = visit_one(method, unit, own, query, step, secret)
        return unit, votes * (unit.id < layout.n_units)

    def visit(i, carry):
        held, total = carry
        get, put = _chunk(i * layout.chunk, group, layout)
        told = lax.dynamic_slice_in_dim(secrets, i * layout.chunk, layout.chunk)
        # A place that nobody was drawn for reads the last unit's records, and is not heard.
        own = jax.tree.map((lambda a: a[told[:, 0]]) if layout.drawn else get, data)
        chunk, votes = vmapped(one, layout.chunk)(jax.tree.map(get, held), own, told)
        # Units that are drawn keep nothing: a place is another unit's in the next step.
        kept = held if layout.drawn else jax.tree.map(put, held, chunk)
        return kept, total + votes.sum(0)

    total = jnp.zeros(method.mechanism.shape, jnp.int32)
    chunks = held.id.shape[0] // (layout.chunk * layout.groups)
    held, total = lax.fori_loop(0, chunks, visit, (held, total))
    return Private(held), Private(lax.psum(total, AXIS))


def _chunk(row: Array, group: Array, layout: Layout) -> tuple[Callable, Callable]:
    """get(array) and put(array, new) of the group's units in a chunk of rows from `row` on.

    Both leave arrays as they lie: a reshape to [rows, groups, ...] would make XLA copy all units.
    """
    first = row * layout.groups + group
    if 1 in (layout.groups, layout.chunk):
        return (lambda a: lax.dynamic_slice_in_dim(a, first, layout.chunk),
                lambda a, new: lax.dynamic_update_slice_in_dim(a, new, first, 0))
    at = first + layout.groups * jnp.arange(layout.chunk)
    known = {"mode": "promise_in_bounds", "unique_indices": True, "indices_are_sorted": True}
    return lambda a: a.at[at].get(**known), lambda a, new: a.at[at].set(new, **known)


def vmapped(one: Callable, chunk: int) -> Callable:
    """`vmap`, except that a chunk of one keeps plain matrix products instead of batched ones."""
    if chunk > 1:
        return jax.vmap(one)
    add, drop = (lambda a: a[None]), (lambda a: a[0])
    return lambda *args: jax.tree.map(add, one(*jax.tree.map(drop, args)))


def on_devices(local: Callable, layout: Layout, by_unit: tuple[bool, ...],
               out_by_unit: Any, donate: tuple[int, ...]) -> Callable:
    """Compiles a per-device function that calls `bounded_sum`.

    by_unit: for each argument, True where its leading axis is the unit axis, False where it is
    replicated; out_by_unit likewise for the (tuple of) results. Donated arguments are updated in
    place.
    """
    if layout.parallel == "pmap":
        return jax.pmap(local, axis_name=AXIS, devices=layout.devices, donate_argnums=donate,
                        in_axes=jax.tree.map(lambda f: 0 if f else None, by_unit),
                        out_axes=jax.tree.map(lambda f: 0 if f else None, out_by_unit))
    return jax.jit(_shard_map(local, layout, by_unit, out_by_unit), donate_argnums=donate)


def _shard_map(local, layout, by_unit, out_by_unit):
    def spec(flags):
        return jax.tree.map(lambda f: PartitionSpec(AXIS) if f else PartitionSpec(), flags)

    # check_vma=False: under the default, the gradient with respect to a replicated input (the
    # query images) is silently summed over devices, which would mix the teachers' answers.
    return jax.shard_map(local, mesh=layout.mesh, in_specs=spec(by_unit),
                         out_specs=spec(out_by_unit), check_vma=False)
