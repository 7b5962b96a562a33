"""Steps of presets on random records, to be timed: the library's block and a plain loop.

The first step of a run, which trains units for longer, is left out. Networks are as published, and
records are random, so that no data is needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from dpgen_jax import methods, presets
from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget, Compute, Runtime
from dpgen_jax.core.types import ImageSpec, Method, Private, Records
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import Layout, on_devices, spread
from dpgen_jax.run import capacity, loop
from dpgen_jax.run.calibrate_config import complete

COMPILED: list[float] = []
"""Seconds of each compilation of this process."""


@jax.monitoring.register_event_duration_secs_listener
def _note(event: str, seconds: float, **_: Any) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(seconds)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A method with random records: x uint8 [U, m, H, W, ch] and y int32 [U, m]."""

    method: Method
    config: Any
    spec: ImageSpec
    records: Records
    seed: int = 0

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.seed)

    def library(self, layout: Layout) -> Library:
        return Library(self.method, Private(self.records), self.key, layout, self.seed)


def random_records(spec: ImageSpec, units: int, each: int, seed: int) -> Records:
    rng, shape = np.random.default_rng(seed), (units, each)
    return Records(rng.integers(0, 256, (*shape, *spec.shape), np.uint8),
                   rng.integers(0, spec.classes, shape, np.int32))


def unit_field(config: Any) -> str:
    """Return the field that says how many units a configuration has."""
    return "critics" if hasattr(config, "critics") else "teachers"


def built(name: str, preset: str, units: int | None = None, share: float = 1.0,
          fields: Mapping[str, Any] | None = None, moments: str = "bfloat16",
          compute: Compute = "float32") -> tuple[Method, Any, ImageSpec, tuple[int, int]]:
    """Return a preset with this many units, each with as many records as the preset's own have.

    Args:
      name: The method.
      preset: Its preset.
      units: The number of units; this share of the preset's if left out.
      share: A share, above 0.
      fields: Fields of the configuration that differ.
      moments: As in `Runtime`.
      compute: As in `Runtime`.

    Returns:
      The method, its configuration, the schema, and how many units have how many records each.
    """
    _, chosen = presets.get(name, preset)
    whole = dataclasses.replace(chosen.config, **(fields or {}))
    field = unit_field(whole)
    count = units or max(getattr(whole, "bins", 1), math.ceil(share * getattr(whole, field)))
    config = dataclasses.replace(whole, **{field: count})
    if config.sigma is None:
        budget = Budget(chosen.epsilon, chosen.delta)
    else:  # what is timed is a step, however many of them are proven to be affordable
        config = dataclasses.replace(config, steps=10)
        budget = Budget(math.inf, chosen.delta)
    config = complete(name, config, chosen.spec, budget)
    method = capacity.units_in_precision(methods.get(name).build(
        config, chosen.spec, Runtime(moments=moments)), compute)
    return method, config, chosen.spec, (count, chosen.records // getattr(whole, field))


def problem(name: str, preset: str, units: int | None = None, seed: int = 0, **how: Any) -> Problem:
    """Return a preset, as `built` makes it, with random records.

    Raises:
      SystemExit: The state of the units does not fit into memory.
    """
    method, config, spec, (count, each) = built(name, preset, units, **how)
    check_memory(teachers.unit_bytes(method) * count)
    return Problem(method, config, spec, random_records(spec, count, each, seed), seed)


def check_memory(needed: float) -> None:
    """End the process, before anything large is allocated, where so many bytes do not fit."""
    free = common.available_bytes()
    if jax.default_backend() == "cpu" and free is not None and needed + 2**29 > free:
        raise SystemExit(f"the units' state takes {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB are "
                         "available; time fewer of them")


def layout_of(units: int, chunk: int, devices: int) -> Layout:
    """Return a layout; end the process where there are too few devices."""
    there = jax.devices()
    if len(there) < devices:
        raise SystemExit(f"{devices} devices were asked for, {len(there)} are there")
    return Layout(units, chunk, tuple(there[:devices]))


class Library:
    """The library's step: `loop.compile_block` on state laid out by `private.teachers`."""

    def __init__(self, method: Method, records: Private[Records], key: jax.Array, layout: Layout,
                 seed: int):
        clock = common.Stopwatch()
        state = loop.initial_state(method, key, layout)
        if hasattr(state.public, "step"):  # the first step trains the teachers for longer
            later = jax.device_put(jnp.ones_like(state.public.step), layout.replicated)
            state = dataclasses.replace(state,
                                        public=dataclasses.replace(state.public, step=later))
        filled = jax.tree.map(lambda a: np.resize(a, (layout.padded, *a.shape[1:])), records)
        self.records = jax.block_until_ready(teachers.place(filled, layout))
        self.state = jax.block_until_ready(state)
        self.init_seconds = clock.seconds()
        self.block, self.compilations = loop.compile_block(method, layout), 0
        self.bits, self.step_number = SeededBits(seed), 1
        self.mechanism, self.layout = method.mechanism, layout
        clock = common.Stopwatch()
        jax.block_until_ready(self.run(0))
        self.compile_seconds = clock.seconds()

    @property
    def public(self) -> Any:
        return self.state.public

    def run(self, n: int) -> Any:
        """Run n (0 or 1) steps in one call, which draws its noise bits as a step of a run does."""
        state, before = self.state, len(COMPILED)
        public, units, metrics, *_ = self.block(*self.arguments(n))
        self.compilations += len(COMPILED) - before
        self.state = dataclasses.replace(state, public=public, units=units)
        self.step_number += n
        return public, units, metrics

    def step(self) -> Any:
        return self.run(1)

    def arguments(self, n: int) -> tuple[Any, ...]:
        """Return what the block takes for n steps."""
        private_inputs, *draws = loop.draw(self.mechanism, self.layout, self.bits,
                                           self.step_number, 1, 1)
        return (self.state.public, self.state.units, self.records,
                spread(private_inputs, self.layout), *draws, self.state.key, self.step_number, n)


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


def aggregation_alone(p: Problem, layout: Layout) -> Library:
    """Return a step of the bound, the sum, the noise and the decoding of random messages alone."""
    method = dataclasses.replace(
        p.method, init=lambda key: jnp.zeros(()), init_unit=lambda key: (),
        ask=lambda key, public: (), learn=lambda key, unit, records, query: unit,
        answer=lambda key, unit, records, query: records.x,
        absorb=lambda key, public, query, released: (public + jnp.sum(released), {}))
    shape = p.config.teachers, *p.method.mechanism.shape
    messages = np.random.default_rng(p.seed).standard_normal(shape, np.float32)
    messages *= p.config.clip if np.isfinite(p.config.clip) else 1.0
    return Library(method, Private(Records(messages, np.zeros(shape[:1], np.int32))), p.key,
                   layout, p.seed)


def generator_alone(p: Problem, layout: Layout, public: Any) -> Callable[[], Any]:
    def local(key, public, released):
        query = p.method.ask(key, public)
        return query, *p.method.absorb(key, public, query, released)

    call = on_devices(local, layout, (False,) * 3, (False,) * 3, donate=())
    released = np.random.default_rng(p.seed).integers(-1, 2, p.method.mechanism.shape)
    released = jax.device_put(released.astype(np.float32), layout.replicated)
    return lambda: call(p.key, public, released)
