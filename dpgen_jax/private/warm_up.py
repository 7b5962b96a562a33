"""Warm start: every unit learns from its own records alone before the first question is asked.

Nothing is released and nothing public is read, so it costs no privacy; what it leaves is private
state like any other. Units are warmed up chunk by chunk to the end, so that only one chunk's
throw-away state (a generator and its optimiser, say) is ever held. What a unit becomes is a
function of its key and its records: an interrupted warm-up goes on with the first unit that is not
done, and ends where it would have.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.private.packing import warmed
from dpgen_jax.private.teachers import Layout, Units, on_devices, spread, vmapped
from dpgen_jax.types import Array, Method, Private, Records, unseal

CALL_SECONDS = 1.0
LONGEST_CALL = 256


def warm_one(method: Method, unit: Units, own: Records) -> Units:
    """One unit, from cold to warm."""
    warm = method.warm
    state = lax.fori_loop(0, warm.steps, lambda i, s: warm.step(_key(unit, i + 1), s, own),
                          warm.init(_key(unit, 0)))
    return dataclasses.replace(unit, state=warm.finish(state), warm=jnp.ones_like(unit.warm))


def _key(unit: Units, i: Array) -> Array:
    """Keys of the warm-up, apart from those of the steps, which are folded in from 0 upwards."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(unit.key), 2**32 - 1), i)


def compile_call(method: Method, layout: Layout) -> Callable:
    """(units, records, states, at, first, n) -> (units, states), compiled: see `warm_chunk`."""
    return on_devices(functools.partial(warm_chunk, method, layout), layout,
                      (True, True, True, False, False, False), (True, True), donate=(0, 2))


def warm_chunk(method: Method, layout: Layout, units: Private[Units], records: Private[Records],
               states: Private[Any], at: Array, first: Array, n: Array
               ) -> tuple[Private[Units], Private[Any]]:
    """Warm-up steps first .. first + n of the chunk at each device's unit `at`; per device.

    At first = 0 it starts; after the last step it is done.
    """
    warm, held, data = method.warm, unseal(units), unseal(records)
    mine, own = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, at, layout.chunk), (held, data))

    def one(unit, own, state):
        fresh = warm.init(_key(unit, 0))
        state = jax.tree.map(lambda a, b: jnp.where(first == 0, a, b), fresh, state)
        state = lax.fori_loop(first, first + n,
                              lambda i, s: warm.step(_key(unit, i + 1), s, own), state)
        done = jnp.asarray(first + n == warm.steps, unit.warm.dtype)
        return dataclasses.replace(unit, state=warm.finish(state), warm=done), state

    mine, states = vmapped(one, layout.chunk)(mine, own, unseal(states))
    held = jax.tree.map(lambda a, new: lax.dynamic_update_slice_in_dim(a, new, at, 0), held, mine)
    return Private(held), Private(states)


def warm_up(method: Method, units: Private[Units], records: Private[Records], layout: Layout
            ) -> Iterator[tuple[Private[Units], float]]:
    """After each call of about a second: the units, and the share of the work that is done.

    The units given are used up by the next call. A method without a warm start yields nothing.
    """
    if method.warm is None or not method.warm.steps:
        return
    call = compile_call(method, layout)
    todo = np.flatnonzero(~_ready(units, layout))
    shapes = jax.eval_shape(method.warm.init, jax.random.key(0))
    wide = layout.chunk * len(layout.devices)
    states = Private(jax.tree.map(
        lambda a: spread(np.zeros((wide, *a.shape), a.dtype), layout), shapes))
    steps, n = method.warm.steps, 1
    for position, chunk in enumerate(todo):
        first = 0
        while first < steps:
            n = min(n, steps - first)
            started = time.perf_counter()
            units, states = jax.block_until_ready(
                call(units, records, states, int(chunk) * layout.chunk, first, n))
            seconds, first = time.perf_counter() - started, first + n
            n = max(1, min(LONGEST_CALL, 2 * n, int(CALL_SECONDS * n / seconds)))
            yield units, (position + first / steps) / len(todo)


def _ready(units: Private[Units], layout: Layout) -> np.ndarray:
    """bool [chunks of a device]: whether all real units of a chunk are warm, on all devices. How
    far a warm-up has come is public."""
    done = np.ones(layout.padded, bool)
    done[:layout.n_units] = warmed(units, layout)
    return done.reshape(len(layout.devices), -1, layout.chunk).all((0, 2))
