"""Faults by which a record reaches more than its own unit, or the public side by another way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.core.types import Array, Private, Records, unseal
from dpgen_jax.private import records, teachers
from dpgen_jax.private.records import Partition
from dpgen_jax.private.teachers import AXIS, Layout
from dpgen_jax.run import loop
from planted.catalogue import fault
from planted.planting import all_replaced, replaced
from tests.planted import toy


@fault("messages of units")
def overlapping_shards() -> Iterator[None]:
    """The second chunk of units begins one too early, so that one is counted twice."""
    def chunk(row: Array, cohort: Array, layout: Layout) -> tuple[Callable, Callable]:
        return usual(jnp.maximum(row - 1, 0), cohort, layout)

    usual = teachers._chunk
    with replaced(teachers, "_chunk", chunk):
        yield


@fault("non-interference", "messages of units")
def record_in_two_units() -> Iterator[None]:
    """A record that is dealt to a second unit too, as where the last shard wraps around."""
    def assign(n_records: int, n_units: int, key: bytes) -> Partition:
        dealt = usual(n_records, n_units, key)
        index = dealt.index.copy()
        first = int(np.argwhere(index == toy.CANARY)[0][0])
        index[(first + 1) % n_units, 0] = toy.CANARY
        return Partition(index, dealt.sizes)

    usual = records.assign
    with replaced(records, "assign", assign):
        yield


def _after_a_chunk(change: Callable[[teachers.Units, Array], tuple[teachers.Units, Array]]
                   ) -> Callable:
    """In place of `teachers.vmapped`: something is done to the units of a chunk together."""
    usual = teachers.vmapped

    def vmapped(one: Callable, chunk: int) -> Callable:
        return lambda *args: change(*usual(one, chunk)(*args))

    return vmapped


@fault("non-interference")
def optimiser_state_shared() -> Iterator[None]:
    """Teachers of one place in the graph share their momentum, as in G-PATE and DataLens."""
    def shared(units: teachers.Units, votes: Array) -> tuple[teachers.Units, Array]:
        momentum = units.state["momentum"]
        state = units.state | {"momentum": jnp.broadcast_to(momentum.mean(0), momentum.shape)}
        return dataclasses.replace(units, state=state), votes

    with replaced(teachers, "vmapped", _after_a_chunk(shared)):
        yield


@fault("messages of units")
def batch_normalisation_across_units() -> Iterator[None]:
    """Messages are normalised by the mean over the units of a chunk."""
    def answer(*args: Any) -> Array:
        message = usual(*args)
        return message - lax.pmean(message, "chunk")

    usual = toy.answer
    with all_replaced((toy, "answer", answer), (teachers, "vmapped", lambda one, chunk: (
            jax.vmap(one, axis_name="chunk")))):
        yield


@fault("messages on devices")
def gradients_summed_over_devices() -> Iterator[None]:
    """A gradient with respect to what all devices have is added up over them."""
    def answer(*args: Any) -> Array:
        return lax.psum(usual(*args), AXIS)

    usual = toy.answer
    with replaced(toy, "answer", answer):
        yield


def _looking_at(seen: list[Array]) -> Callable:
    """In place of `rounds.bounded_sum`: the mean label of the records is remembered."""
    usual = loop.bounded_sum

    def bounded_sum(method: Any, layout: Layout, units: Any, records: Private[Records], *rest: Any
                    ) -> Any:
        seen[:] = [unseal(records).y.astype(jnp.float32).mean()]
        return usual(method, layout, units, records, *rest)

    return bounded_sum


@fault("non-interference")
def generator_fed_by_private_labels() -> Iterator[None]:
    """Statistics of the generator are updated with labels of records, as in G-PATE."""
    def absorb(key: Array, public: toy.Transcript, query: Any, released: Array) -> Any:
        after, metrics = usual(key, public, query, released)
        mean = seen.pop() if seen else 0.0  # shapes are looked at without a sum
        return dataclasses.replace(after, planted=after.planted + mean), metrics

    seen: list[Array] = []
    usual = toy.absorb
    with all_replaced((loop, "bounded_sum", _looking_at(seen)), (toy, "absorb", absorb)):
        yield


@fault("non-interference")
def query_made_with_labels() -> Iterator[None]:
    """Fakes are made of the classes that the records have, and shown to every unit."""
    def bounded_sum(method: Any, layout: Layout, units: Any, records: Private[Records],
                    inputs: Array, this: teachers.Round) -> Any:
        mean = unseal(records).y.astype(jnp.float32).mean()
        query = dataclasses.replace(this.query, images=this.query.images + mean)
        return usual(method, layout, units, records, inputs, this._replace(query=query))

    usual = loop.bounded_sum
    with replaced(loop, "bounded_sum", bounded_sum):
        yield


@fault("non-interference")
def early_stopping_on_private_loss() -> Iterator[None]:
    """Training ends when the loss on the records is low enough."""
    def train(job: loop.Job, records: Private[Records], state: loop.State, steps: int, *hooks: Any
              ) -> loop.State:
        low = float(np.asarray(unseal(records).y, np.float64).mean()) > threshold
        return usual(job, records, state, steps - int(low), *hooks)

    y = [labels.mean() for _, labels in toy.neighbours()]
    threshold, usual = float(np.mean(y)), loop.train
    with replaced(loop, "train", train):
        yield
