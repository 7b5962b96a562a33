"""One configuration of the benchmark `steps` in a process: `python -m benchmarks.step_case JSON`.

The last line of its output has the measurements as JSON; `benchmarks.steps` describes them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from benchmarks.flops import published_flops
from benchmarks.plain_loop import PlainLoop
from dpgen_jax import methods, presets
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import ImageSpec, Method, Private, Records
from dpgen_jax.methods.datalens import Config
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import Layout, on_devices, spread
from dpgen_jax.run import loop
from dpgen_jax.run.calibrate_config import complete

METHOD = "datalens"
COMPILED: list[float] = []
"""Seconds of each compilation of this process."""


@jax.monitoring.register_event_duration_secs_listener
def _note(event: str, seconds: float, **_: Any) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(seconds)


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration."""

    kind: str
    """The kind "step" measures the step and its parts; "plain" and "parallel" compare two ways."""
    preset: str
    teachers: int
    chunk: int
    devices: int
    moments: str = "bfloat16"
    repeats: int = 3
    seed: int = 0
    matmul: int = 2048
    """Size of the matrices whose product sets the rate."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A method with random records."""

    method: Method
    config: Config
    spec: ImageSpec
    records: Records
    """x uint8 [U, m, H, W, ch] and y int32 [U, m]."""
    seed: int

    @property
    def key(self) -> jax.Array:
        """The key of the seed."""
        return jax.random.key(self.seed)


def problem(case: Case) -> Problem:
    """Return the preset with this many teachers, each with as many random records as there."""
    _, preset = presets.get(METHOD, case.preset)
    config = dataclasses.replace(preset.config, teachers=case.teachers)
    config = complete(METHOD, config, preset.spec, Budget(preset.epsilon, preset.delta))
    built = methods.get(METHOD).build(config, preset.spec, Runtime(moments=case.moments))
    shape = case.teachers, preset.records // preset.config.teachers
    rng = np.random.default_rng(case.seed)
    records = Records(rng.integers(0, 256, (*shape, *preset.spec.shape), np.uint8),
                      rng.integers(0, preset.spec.classes, shape, np.int32))
    return Problem(built, config, preset.spec, records, case.seed)


class Library:
    """The library's step: `loop.compile_block` on state laid out by `private.teachers`."""

    def __init__(self, method: Method, records: Private[Records], key: jax.Array, layout: Layout,
                 seed: int):
        start = time.perf_counter()
        state = loop.initial_state(method, key, layout)
        if hasattr(state.public, "step"):  # the first step trains the teachers for longer
            later = jax.device_put(jnp.ones_like(state.public.step), layout.replicated)
            state = dataclasses.replace(state,
                                        public=dataclasses.replace(state.public, step=later))
        filled = jax.tree.map(lambda a: np.resize(a, (layout.padded, *a.shape[1:])), records)
        self.records = jax.block_until_ready(teachers.place(filled, layout))
        self.state = jax.block_until_ready(state)
        self.init_seconds = time.perf_counter() - start
        self.block, self.compilations = loop.compile_block(method, layout), 0
        self.bits, self.step_number = SeededBits(seed), 1
        self.mechanism, self.layout = method.mechanism, layout
        start = time.perf_counter()
        jax.block_until_ready(self.run(0))
        self.compile_seconds = time.perf_counter() - start

    @property
    def public(self) -> Any:
        """The public state."""
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
        """Run one step."""
        return self.run(1)

    def arguments(self, n: int) -> tuple[Any, ...]:
        """Return what the block takes for n steps."""
        private_inputs, *draws = loop.draw(self.mechanism, self.layout, self.bits,
                                           self.step_number, 1, 1)
        return (self.state.public, self.state.units, self.records,
                spread(private_inputs, self.layout), *draws, self.state.key, self.step_number, n)


def aggregation_alone(p: Problem, layout: Layout) -> Library:
    """Return a step of the bound, the sum, the noise and the decoding of random messages alone."""
    method = dataclasses.replace(
        p.method, init=lambda key: jnp.zeros(()), init_unit=lambda key: (),
        ask=lambda key, public: (), learn=lambda key, unit, records, query: unit,
        answer=lambda key, unit, records, query: records.x,
        absorb=lambda key, public, query, released: (public + jnp.sum(released), {}))
    rng = np.random.default_rng(p.seed)
    shape = p.config.teachers, *p.method.mechanism.shape
    messages = rng.standard_normal(shape, np.float32)
    messages *= p.config.clip if np.isfinite(p.config.clip) else 1.0
    return Library(method, Private(Records(messages, np.zeros(shape[:1], np.int32))), p.key,
                   layout, p.seed)


def generator_alone(p: Problem, layout: Layout, public: Any):
    """Return a call that asks and absorbs a random release, on every device as in the step."""
    def local(key, public, released):
        query = p.method.ask(key, public)
        return query, *p.method.absorb(key, public, query, released)

    call = on_devices(local, layout, (False,) * 3, (False,) * 3, donate=())
    released = np.random.default_rng(p.seed).integers(-1, 2, p.method.mechanism.shape)
    released = jax.device_put(released.astype(np.float32), layout.replicated)
    return lambda: call(p.key, public, released)


def measure_step(case: Case) -> dict[str, Any]:
    """Measure the step, its parts, its memory, and the rate of matrix products around it."""
    p, layout, before = problem(case), layout_of(case), common.matmul_rate(case.matmul)
    base = common.resident_bytes()
    whole = Library(p.method, Private(p.records), p.key, layout, p.seed)
    step = common.side_by_side({"step": whole.step}, case.repeats)["step"]
    peak, public = common.peak_bytes(), whole.public
    measured = {"compile_seconds": whole.compile_seconds, "init_seconds": whole.init_seconds,
                "compilations": whole.compilations,
                "dispatch_cache_entries": whole.block._cache_size()}
    del whole
    parts = {"aggregation": aggregation_alone(p, layout).step,
             "generator": generator_alone(p, layout, public)}
    parts = {name: common.side_by_side({name: call}, case.repeats)[name]
             for name, call in parts.items()}
    after = common.matmul_rate(case.matmul)
    flops = published_flops(p.config, p.spec, p.records.y.shape[1])
    seconds = step["median"]
    return {
        "seconds_per_step": step, "seconds_per_teacher": seconds / case.teachers,
        "seconds_per_teacher_without_generator":
            (seconds - parts["generator"]["median"]) / case.teachers,
        "published_flops_per_teacher": flops, "published_flops_per_step": flops * case.teachers,
        "flops_per_second": flops * case.teachers / seconds,
        "matmul_flops_per_second": {"before": before, "after": after},
        "fraction_of_matmul_rate": flops * case.teachers / seconds / max(before, after),
        "parts": parts,
        **{f"{name}_share": part["median"] / seconds for name, part in parts.items()}, **measured,
        "state_bytes": teachers.unit_bytes(p.method) * layout.padded,
        "records_bytes": p.records.x.nbytes + p.records.y.nbytes,
        "resident_before_state_bytes": base, "peak_resident_bytes": peak,
        "records_per_teacher": p.records.y.shape[1], "batch": p.config.batch,
        "d_steps": p.config.d_steps, "device": jax.devices()[0].device_kind}


def measure_beside(case: Case) -> dict[str, Any]:
    """Time two ways of the same step in turns.

    Args:
      case: The configuration.

    Returns:
      The medians, their ratio, and the largest difference of the generators that they lead to from
      the same keys and noise.
    """
    p, layout = problem(case), layout_of(case)
    ways = {"shard_map": Library(p.method, Private(p.records), p.key, layout, p.seed)}
    if case.kind == "plain":
        ways["plain"] = PlainLoop(p)
    else:
        other = dataclasses.replace(layout, parallel="pmap")
        ways["pmap"] = Library(p.method, Private(p.records), p.key, other, p.seed)
    timed = common.side_by_side({name: way.step for name, way in ways.items()}, case.repeats)
    (_, ours), (name, theirs) = timed.items()
    one, other = (jax.device_get(way.public.params) for way in ways.values())
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), one, other)
    return {"seconds_per_step": timed,
            "ratio": {f"{name} / shard_map": theirs["median"] / ours["median"]},
            "largest_difference_of_generator_weights": float(max(jax.tree.leaves(apart)))}


def layout_of(case: Case) -> Layout:
    """Return the layout of a case; end the process where there are too few devices."""
    devices = tuple(jax.devices()[:case.devices])
    if len(devices) < case.devices:
        raise SystemExit(f"{case.devices} devices were asked for, {len(devices)} are there")
    return Layout(case.teachers, case.chunk, devices)


def check_memory(case: Case) -> None:
    """End the process, before anything large is allocated, where the state cannot fit."""
    copies = 1 if case.kind == "step" else 2
    one = problem(dataclasses.replace(case, teachers=1))
    needed = copies * case.teachers * teachers.unit_bytes(one.method)
    free = common.available_bytes()
    if jax.default_backend() == "cpu" and free is not None and needed + 2**29 > free:
        raise SystemExit(f"the teachers' state takes {needed / 1e9:.1f} GB; "
                         f"{free / 1e9:.1f} GB are available")


def main() -> None:
    """Run the benchmark and write its record."""
    case = Case(**json.loads(sys.argv[1]))
    check_memory(case)
    print(json.dumps((measure_step if case.kind == "step" else measure_beside)(case)))


if __name__ == "__main__":
    main()
