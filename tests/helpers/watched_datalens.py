"""The toy DataLens with its noisy sum on view, compiled once for each layout of a test session.

A compiled block costs seconds and a step milliseconds, so what the tests vary is data: `told` is
1 for the method itself, and 0 for one whose generator hears zeros, whatever was voted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import loops
import numpy as np
import small_datalens
from planted import toy as adversary

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import Array, Method, Private, unseal
from dpgen_jax.methods import datalens
from dpgen_jax.private.teachers import Layout, Units
from dpgen_jax.run import loop


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Observed:
    """inner: the method's public state; seen int32 [B, D]: the last noisy sum."""

    inner: Any
    seen: Array
    shares: Array


def observe(method: Method) -> Method:
    """The same method, with `Observed` as its public state."""
    built = method.mechanism

    def absorb(key, public, query, released):
        seen = released.astype(jnp.int32)
        inner, metrics = method.absorb(key, public.inner, query,
                                       public.shares * built.decode(seen, built.n_units))
        return Observed(inner, seen, public.shares), metrics

    return dataclasses.replace(
        method, absorb=absorb,
        mechanism=dataclasses.replace(built, decode=lambda noised, n: noised.astype(jnp.float32)),
        init=lambda key: Observed(method.init(key), jnp.zeros(built.shape, jnp.int32),
                                  jnp.float32(1)),
        ask=lambda key, public: method.ask(key, public.inner),
        finalize=lambda key, public: method.finalize(key, public.inner))


METHOD = observe(datalens.build(small_datalens.CONFIG, small_datalens.SPEC))
BITS = METHOD.mechanism.noise.bits_shape(METHOD.mechanism.shape)
block = functools.cache(loop.compile_block)


@functools.cache
def fresh() -> tuple[Observed, Units, Array]:
    """The state before the first step, on the host: donated buffers are used up by a run."""
    where = small_datalens.layout()
    state = loop.initial_state(METHOD, jax.random.key(0), where)
    return (*small_datalens.opened(state, where), state.key)


def start(where: Layout, shares: float = 1.0, units: Units | None = None) -> loop.State:
    """The same state before the first step for every layout."""
    public, own, key = fresh()
    public = dataclasses.replace(public, shares=np.float32(shares))
    return loop.State(jax.device_put(public, where.replicated),
                      adversary.lay(own if units is None else units, where), key)


def train(monkeypatch, path, data, where: Layout, shares: float = 1.0, steps: int = 4,
          **options) -> loop.State:
    """The real loop with the real ledger, on a block that may have been compiled before."""
    monkeypatch.setattr(loop, "compile_block", block)
    options = {"on_block": lambda state, metrics: None} | options
    with Ledger.create(path, {"epsilon": float("inf"), "delta": 1e-5}) as ledger:
        return loops.train(
            METHOD,
            small_datalens.placed(*data, where),
            start(where, shares),
            where,
            ledger,
            SeededBits(0),
            steps=steps,
            **options,
        )


def messages(where: Layout, data, compiled: Callable | None = None) -> np.ndarray:
    """int32 [U, B, D]: the votes of each unit in the first step, read off the sum over that unit
    alone: the others get ids beyond the last, as padding has. Bits of 0 are noise of 0."""
    compiled = compiled or block(METHOD, where)
    records = small_datalens.placed(*data, where)
    bits = np.zeros((loop.LONGEST_BLOCK, *BITS), np.uint32)

    def sum_of(only):
        state = start(where)
        unit_states = unseal(state.units)
        ids = np.asarray(unit_states.id)
        ids = jax.device_put(np.where(ids == only, ids, where.n_units), where.by_unit)
        alone = Private(dataclasses.replace(unit_states, id=ids))
        state = dataclasses.replace(state, units=alone)
        return np.asarray(adversary.call(compiled, state, records, where, bits, 1)[0].seen)

    return np.stack([sum_of(unit) for unit in range(where.n_units)])
