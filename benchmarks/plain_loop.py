"""A step as a loop in Python with one compiled call a teacher, to time the stack beside."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import Private, Records

if TYPE_CHECKING:
    from benchmarks.step_case import Problem


class PlainLoop:
    """The plain way: states in a Python list, and one compiled function called for each teacher.

    It takes the library's verbs, keys and noise, and the first device.
    """

    def __init__(self, p: Problem):
        self.method, self.bits, self.step_number = p.method, SeededBits(p.seed), 1
        k_public, k_units, self.key = jax.random.split(p.key, 3)
        self.public = jax.jit(p.method.init)(k_public)
        self.public = dataclasses.replace(self.public, step=jnp.ones_like(self.public.step))
        init = jax.jit(lambda i: self._init(k_units, i))
        self.units = [init(i) for i in range(p.method.mechanism.n_units)]
        self.records = [Records(jnp.asarray(x), jnp.asarray(y))
                        for x, y in zip(p.records.x, p.records.y, strict=True)]
        self.begin, self.end = jax.jit(self._begin), jax.jit(self._end, donate_argnums=0)
        self.query_unit = jax.jit(self._query_unit, donate_argnums=(0, 1))
        self.bits_shape = 1, *p.method.mechanism.bits_shape
        self.bits.draw(self.bits_shape)  # the library's first call, which compiles, drew these

    def _init(self, key, i):
        first, later = jax.random.split(jax.random.fold_in(key, i))
        return self.method.init_unit(first), later

    def _begin(self, public, step):
        k_ask, k_absorb = jax.random.split(jax.random.fold_in(self.key, step))
        return self.method.ask(k_ask, public), k_absorb

    def _query_unit(self, unit, total, records, query, step):
        state, key = unit
        k_learn, k_answer, k_bound = jax.random.split(jax.random.fold_in(key, step), 3)
        state = self.method.learn(k_learn, state, records, query)
        message = self.method.answer(k_answer, state, records, query)
        return (state, key), total + self.method.mechanism.bound.project(k_bound, message)

    def _end(self, public, total, bits, key, query):
        released = release(self.method.mechanism, bits, Private(total))
        return self.method.absorb(key, public, query, released)

    def step(self) -> Any:
        """Run one step."""
        query, k_absorb = self.begin(self.public, self.step_number)
        total = jnp.zeros(self.method.mechanism.shape, jnp.int32)
        for i, records in enumerate(self.records):
            self.units[i], total = self.query_unit(self.units[i], total, records, query,
                                                   self.step_number)
        bits = self.bits.draw(self.bits_shape)[0]
        self.public, metrics = self.end(self.public, total, bits, k_absorb, query)
        self.step_number += 1
        return self.public, self.units, metrics
