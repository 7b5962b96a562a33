"""Stacked units: `vmap` inside a chunk, a loop over chunks, one `psum` over devices.

It is the only module that knows about units in the plural. Everything a unit keeps lies in `Units`,
each array with a leading unit axis, and is written back in place; [U, B, D] is never in memory.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.core.types import EMPTY, Array, Method, Private, PyTree, Records, unseal
from dpgen_jax.private.checks import check_contribution, check_message, check_unit
from dpgen_jax.private.layout import AXIS, Layout, put, sharded


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Units:
    """All that units keep.

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
    """Returns a unit before the first round, leaves without a unit axis.

    Args:
        method: The method.
        key: Random key of all units.
        unit_id: int32 [].
    """
    first, later = jax.random.split(jax.random.fold_in(key, unit_id))
    return Units(method.init_unit(first), jax.random.key_data(later), unit_id, jnp.uint8(0))


def stack(method: Method, key: Array, layout: Layout) -> Private[Units]:
    """Initialises all units on their devices, one by one: no second copy of the state.

    Args:
        method: The method.
        key: Random key of all units.
        layout: How units lie on devices.
    """
    ids = put(np.arange(layout.padded, dtype=np.int32), layout.by_unit)
    return layout.fold(compile_stack(method, layout)(key_data(key, layout), ids))


def key_data(key: Array, layout: Layout) -> Array:
    """Returns the data of a random key, which every device has as a whole.

    Args:
        key: A random key, which the compiled function takes as an argument and never holds.
        layout: How units lie on devices.
    """
    return put(np.asarray(jax.random.key_data(key)), layout.replicated)


def compile_stack(method: Method, layout: Layout) -> Callable[[Array, Array], Private[Units]]:
    """Compiles the initialisation of units: a function of the key's data and of unit ids int32 [n].

    The key is an argument: JAX may keep what it compiles on a disk, which is no place for a secret.

    Args:
        method: The method.
        layout: How units lie on devices.
    """
    def local(data: Array, ids: Array) -> Private[Units]:
        key = jax.random.wrap_key_data(data)
        return Private(lax.map(lambda unit_id: one_unit(method, key, unit_id), ids))

    return jax.jit(sharded(local, layout, (False, True), True))


@functools.lru_cache(maxsize=64)
def unit_shapes(method: Method) -> Units:
    """Returns the shapes of one unit, leaves without a unit axis.

    Args:
        method: The method.
    """
    def one(key: Array) -> Units:
        return one_unit(method, key, jnp.int32(0))

    return jax.eval_shape(one, jax.random.key(0))


def unit_bytes(method: Method) -> int:
    """Returns the bytes that the state of one unit takes.

    Args:
        method: The method.
    """
    state = unit_shapes(method).state
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def place(records: Private[Records], layout: Layout) -> Private[Records]:
    """Puts records on the devices of their units, or on every device where units are sampled.

    A CPU takes records that `records.deal` laid out as they are, where a device's part begins at a
    multiple of `records.ALIGNMENT` bytes: there is no second copy, and they must not be changed.
    Where units are on the devices a slab at a time, their records stay on the host likewise.

    Args:
        records: Sealed x [U, m, ...], y int32 [U, m], on the host: those of the units of this
            process (`Layout.dealt_units`): of all units where units are sampled.
        layout: How units lie on devices.

    Raises:
        ValueError: There are records for more units than this process has places, or for fewer.
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
    """Opens the ways by which devices of several processes talk, while nobody is late.

    The first talk waits half a minute for all of them, which a compilation may outlast.

    Args:
        layout: How units lie on devices.
    """
    ones = put(np.ones(len(layout.devices), np.int32), layout.by_unit)
    jax.block_until_ready(jax.jit(sharded(
        lambda one: lax.psum(one, AXIS), layout, (True,), False))(ones))


def query_unit(method: Method, unit: Units, records: Records, query: PyTree, step: Array,
               private_input: Array) -> tuple[Units, Array]:
    """Queries one unit: it learns and answers, and its message is bounded.

    A unit that has nothing but empty slots answers NaN, of which every bound makes 0.

    Args:
        method: The method.
        unit: One unit, leaves without a unit axis.
        records: Its records: x [m, ...], y int32 [m].
        query: The query of the round.
        step: int32 [], the number of the round.
        private_input: The unit's secret bits, as `Mechanism.private_inputs` draws them.

    Returns:
        The unit after the round, and what it adds to the sum, int32 of `contribution_shape`.

    Raises:
        TypeError: A function of the method returns a wrong shape or type; when it is traced.
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(unit.key), step)
    k_learn, k_answer, k_bound = jax.random.split(key, 3)
    state = method.learn(k_learn, unit.state, records, query)
    check_unit(unit.state, state)
    # The barrier keeps accelerators' compilers from computing a message anew for each pass over it.
    # It is for speed: on CPU it is gone before loops are fused; `aggregation.enforce` needs none.
    message = lax.optimization_barrier(method.answer(k_answer, state, records, query))
    check_message(message, method)
    message = jnp.where(jnp.any(records.y != EMPTY), message, jnp.nan)
    votes = method.mechanism.contribution(k_bound, message, private_input)
    check_contribution(votes, method)
    return dataclasses.replace(unit, state=state), votes


class Round(NamedTuple):
    """The public side of one round.

    Attributes:
        query: The query, any pytree of arrays.
        step: int32 [], the number of the round.
        cohort: int32 [], the cohort that is queried.
    """

    query: PyTree
    step: Array
    cohort: Array


def bounded_sum(method: Method, layout: Layout, units: Private[Units], records: Private[Records],
                private_inputs: Array, this: Round) -> tuple[Private[Units], Private[Array]]:
    """Queries every unit of the cohort on this device, and adds up what they contribute.

    It is called per device, inside `layout.on_devices`. One chunk of messages [chunk, B, D] is in
    memory at a time. Integer sums do not depend on order, so the layout cannot change the total.

    Args:
        method: The method.
        layout: How units lie on devices.
        units: Sealed units of the device, leaves [U / devices, ...].
        records: Their sealed records; those of all units where units are sampled.
        private_inputs: [R / devices, ...], the secret bits of the unit in each row.
        this: The round.

    Returns:
        The new units, and the sealed int32 [B, D] sum over all queried units of all devices.
    """
    everyone, data = unseal(units), unseal(records)
    if layout.sampled and len(data.y) != method.mechanism.n_units:
        # A unit beyond the last record would silently read that one's.
        raise ValueError(f"records of {len(data.y)} units, of which {method.mechanism.n_units} are "
                         "sampled")

    def one(unit: Units, own_records: Records, private_input: Array) -> tuple[Units, Array]:
        if layout.sampled:
            # A message may not tell in which place, and so beside whom, its unit was sampled.
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
        # Units that are sampled keep nothing: a place is another unit's in the next round.
        kept = everyone if layout.sampled else jax.tree.map(put, everyone, chunk)
        return kept, method.mechanism.added(total, votes)

    total = jnp.zeros(method.mechanism.shape, jnp.int32)
    chunks = everyone.id.shape[0] // (layout.chunk * layout.n_cohorts)
    everyone, total = lax.fori_loop(0, chunks, query_chunk, (everyone, total))
    return Private(everyone), Private(lax.psum(total, AXIS))


def _chunk(row: Array, cohort: Array, layout: Layout) -> tuple[Callable, Callable]:
    """Returns get(array) and put(array, new) of the cohort's units in rows from `row` on.

    Both leave arrays as they lie: a reshape to [rows, cohorts, ...] would make XLA copy all units.
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
    """Returns `vmap` of a function, but for a chunk of one keeps plain matrix products.

    Args:
        one: A function of one unit.
        chunk: The size of the leading axis of its mapped arguments.
    """
    if chunk > 1:
        return jax.vmap(one)
    def alone(*args: PyTree) -> PyTree:
        out = one(*jax.tree.map(lambda a: a[0], args))
        return jax.tree.map(lambda a: a[None], out)

    return alone
