"""Pretraining: every unit learns from its own records before the first query.

Nothing is released and nothing public is read, so it costs no privacy. The pretrained state is
private like any other. Units are pretrained chunk by chunk to the end, so the temporary state (for
example a generator and its optimiser) of only one chunk is in memory. The result for a unit is a
function of its key and its records: an interrupted pretraining resumes with the first unit that is
not finished, and gives the same units as without the interruption.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.core import hosts
from dpgen_jax.core.types import Array, Method, Pretraining, Private, PyTree, Records, unseal
from dpgen_jax.private import streaming
from dpgen_jax.private.streaming import warmed
from dpgen_jax.private.teachers import Layout, Units, on_devices, spread, vmapped

CALL_SECONDS = 1.0
"""Target duration of one call, in seconds."""
LONGEST_CALL = 256
"""The largest number of steps in one call."""


def pretrain_one(method: Method, unit: Units, records: Records) -> Units:
    """Returns one unit, leaves without a unit axis, pretrained from its initial state."""
    warm_start = _warm_start(method)
    state = lax.fori_loop(0, warm_start.steps,
                          lambda i, s: warm_start.step(_key(unit, i + 1), s, records),
                          warm_start.init(_key(unit, 0)))
    done = jnp.ones_like(unit.warm)
    return dataclasses.replace(unit, state=warm_start.finish(state), warm=done)


def _warm_start(method: Method) -> Pretraining:
    if method.pretraining is None:
        raise ValueError("the method has no pretraining")
    return method.pretraining


def _key(unit: Units, i: Array | int) -> Array:
    """Returns the key of a step, distinct from the keys of rounds, which count up from 0."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(unit.key), 2**32 - 1), i)


def compile_call(method: Method, layout: Layout) -> Callable:
    """Compiles (units, records, states, span) -> (units, states), see `warm_chunk`."""
    return on_devices(functools.partial(warm_chunk, method, layout), layout,
                      (True, True, True, False), (True, True), donate=(0, 2))


class Span(NamedTuple):
    """Some steps of one chunk of units, which a device pretrains at once.

    Attributes:
        at: int32 [], the first unit of the chunk on its device.
        first: int32 [], the first of the steps.
        n: int32 [], the number of steps.
    """

    at: Array | int
    first: Array | int
    n: Array | int


def warm_chunk(method: Method, layout: Layout, units: Private[Units], records: Private[Records],
               states: Private[PyTree], span: Span) -> tuple[Private[Units], Private[PyTree]]:
    """Runs some steps of one chunk of units on each device; called per device.

    Pretraining starts at first = 0 and ends after the last step.

    Args:
        method: A method with pretraining.
        layout: The placement of units on devices.
        units: Sealed units of the device, leaves [U / devices, ...].
        records: Their sealed records.
        states: Sealed states of the chunk, leaves [units of a chunk, ...].

    Returns:
        The units and the states, of the same shapes.
    """
    warm_start, everyone, (at, first, n) = _warm_start(method), unseal(units), span
    size = layout.pretrained_at_once
    chunk, own_records = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, at, size),
                                      (everyone, unseal(records)))

    def one(unit: Units, records: Records, state: PyTree) -> tuple[Units, PyTree]:
        fresh = warm_start.init(_key(unit, 0))
        state = jax.tree.map(lambda a, b: jnp.where(first == 0, a, b), fresh, state)
        state = lax.fori_loop(first, first + n,
                              lambda i, s: warm_start.step(_key(unit, i + 1), s, records), state)
        done = jnp.asarray(first + n == warm_start.steps, unit.warm.dtype)
        moved = dataclasses.replace(unit, state=warm_start.finish(state), warm=done)
        # Two chunks may contain one unit; if one of them has pretrained it, it does not change.
        return jax.tree.map(lambda old, new: jnp.where(unit.warm, old, new), unit, moved), state

    chunk, after = vmapped(one, size)(chunk, own_records, unseal(states))
    # Written into the donated arrays: no second copy of the units.
    everyone = jax.tree.map(lambda a, new: lax.dynamic_update_slice_in_dim(a, new, at, 0),
                            everyone, chunk)
    return Private(everyone), Private(after)


class Chunks:
    """Pretrains chunks of units, one after the other, call by call; each from step 0 on."""

    def __init__(self, method: Method, layout: Layout):
        self._call, self._layout = compile_call(method, layout), layout
        shapes = jax.eval_shape(_warm_start(method).init, jax.random.key(0))
        wide = layout.pretrained_at_once * len(layout.devices)
        self._states = Private(jax.tree.map(
            lambda a: spread(np.zeros((wide, *a.shape), a.dtype), layout), shapes))

    def __call__(self, units: Private[Units], records: Private[Records], chunk: int, first: int,
                 n: int) -> Private[Units]:
        """Runs some steps of one chunk of each device; the argument units are consumed.

        With slabs, chunks are numbered over all devices.
        """
        if not self._layout.slab:
            units, self._states = jax.block_until_ready(self._call(
                units, records, self._states, Span(_starts(self._layout)[chunk], first, n)))
            return units
        wide = self._layout.chunk * len(self._layout.devices)
        rows = slice(chunk * wide, (chunk + 1) * wide)
        part, own_records = (streaming.read(a, rows, self._layout) for a in (units, records))
        part, self._states = self._call(part, own_records, self._states, Span(0, first, n))
        return streaming.write(units, rows, part)


def pretrain(method: Method, units: Private[Units], records: Private[Records], layout: Layout
            ) -> Iterator[tuple[Private[Units], float]]:
    """Yields the units and the finished share of the work after each call of about a second.

    The next call consumes the units. A method without pretraining yields nothing.
    """
    if method.pretraining is None or not method.pretraining.steps:
        return
    call = Chunks(method, layout)
    hosts.tell("warmed")
    todo = np.flatnonzero(~_ready(units, layout))
    steps, n = method.pretraining.steps, 1
    for position, chunk in enumerate(todo):
        first = 0
        while first < steps:
            n = min(n, steps - first)
            started = time.perf_counter()
            hosts.tell("pretrain", {"chunk": int(chunk), "first": first, "n": n})
            units = call(units, records, int(chunk), first, n)
            seconds, first = time.perf_counter() - started, first + n
            n = max(1, min(LONGEST_CALL, 2 * n, int(CALL_SECONDS * n / seconds)))
            yield units, (position + first / steps) / len(todo)


def _ready(units: Private[Units], layout: Layout) -> np.ndarray:
    """Returns whether all real units of a chunk are pretrained, on all devices: bool [chunks].

    The progress of pretraining is public.
    """
    done = np.ones(layout.padded, bool)
    done[:layout.n_units] = warmed(units, layout)
    if layout.slab:
        return np.asarray(done.reshape(-1, len(layout.devices) * layout.chunk).all(1))
    by_device = done.reshape(len(layout.devices), -1)
    return np.asarray([by_device[:, at:at + layout.pretrained_at_once].all()
                       for at in _starts(layout)])


def _starts(layout: Layout) -> list[int]:
    """Returns the first unit of each chunk on its device.

    The last chunk starts early enough to be full. Units that it repeats keep their state.
    """
    units, size = layout.padded // len(layout.devices), layout.pretrained_at_once
    return [min(at, units - size) for at in range(0, units, size)]
