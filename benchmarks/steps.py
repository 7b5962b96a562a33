"""Time and memory of a DataLens step: `python -m benchmarks.steps`. It needs no data.

The published networks on MNIST's shape (preset mnist-eps1, 15 records a teacher, random records,
bfloat16 moments) through `loop.compile_block`. Each configuration runs in a process of its own;
each figure is the median of at least three steps after a warm-up. The first step of a run, which
trains the teachers for longer, is left out. Measured are

- seconds per step against teachers, chunk and devices, and seconds per teacher (linear or not);
- the floating-point operations of the networks as published, per second, as a fraction of the
  rate of a float32 matrix product in the same process (the better one of before and after);
- the share of a step that the aggregation takes (top-k signs of all teachers, the sum, the noise,
  the decoding), timed alone on as many random messages in the same layout, and the share of the
  generator (ask and absorb), timed alone likewise;
- the largest resident memory of the process, beside the size of the teachers' state;
- the time to trace and compile (the first call, of no steps), how often the block was compiled,
  and the entries of its dispatch cache, which on one device are two without a second compilation;
- side by side, in turns in one process: a Python loop over teachers with one compiled function.

CPU devices beyond one are simulated: they share the cores. The record is results/steps.json.

`--epochs [ROW ...]` times instead what the papers report, seconds per epoch of DataLens (Table 6)
and G-PATE (appendix G), and writes results/epochs.json: `benchmarks.steps`. `--processes N` times
what several processes cost beside the computation, and writes results/hosts.json:
`benchmarks.steps`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from dpgen_jax import methods, presets
from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import ImageSpec, Method, Private, Records
from dpgen_jax.methods.datalens import Config
from dpgen_jax.nets.image import DiscriminatorNet
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import Layout, on_devices, spread
from dpgen_jax.run import loop
from dpgen_jax.run.calibrate_config import complete

# Floating-point operations of a teacher's step, from the shapes of the networks.

def published_macs(net: DiscriminatorNet, spec: ImageSpec) -> int:
    """Count the multiplications of one image's forward pass through the published discriminator.

    It has 5x5 convolutions at half and at a quarter of the size and two linear layers, with the
    label joined to the input of each as constant maps or a one-hot vector.
    """
    c1, c2, hidden = net.resolve(spec)
    half, quarter = ((spec.height // n) * (spec.width // n) for n in (2, 4))
    return (half * 25 * (spec.channels + spec.classes) * c1
            + quarter * 25 * (c1 + spec.classes) * c2
            + (quarter * c2 + spec.classes) * hidden
            + hidden + spec.classes)


def published_flops(config: Config, spec: ImageSpec, records: int) -> int:
    """Count the floating-point operations of one teacher's step, of the networks as published.

    A multiplication and an addition are two, however they are computed.

    A discriminator step goes forward and twice that backward through real and fake records; the
    answer goes forward through a batch of fakes and back to the images. The optimiser, the votes
    and the generator are not counted.
    """
    real = min(config.batch, records)
    passes = config.d_steps * 3 * 2 * real + 2 * config.batch
    return 2 * published_macs(config.discriminator, spec) * passes


# A step as a loop in Python with one compiled call a teacher, to time the stack beside.

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


# One configuration, in a process of its own.

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
    """The kind "step" measures the step and its parts; "plain" compares it with a Python loop."""
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

    Returns:
      The medians, their ratio, and the largest difference of the generators that they lead to from
      the same keys and noise.
    """
    p, layout = problem(case), layout_of(case)
    ways = {"shard_map": Library(p.method, Private(p.records), p.key, layout, p.seed),
            "plain": PlainLoop(p)}
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


def step_case(case: Case) -> dict[str, Any]:
    """Measure one configuration."""
    check_memory(case)
    return (measure_step if case.kind == "step" else measure_beside)(case)


# The cost of several processes beside computation: `python -m benchmarks.steps --processes N`.
#
# N processes of this machine meet as those of a run do, and the leader tells the others of blocks
# of one step, with as many bits of noise as the preset's step needs. Measured are the seconds until
# all have met, the bytes of a block's order and the seconds that telling it takes, beside the
# seconds of the published step that `benchmarks.steps` recorded. Between machines the network
# decides; here they talk over the loopback, so the bytes are what carries over. The record is
# results/hosts.json.

BLOCKS = 20
"""Blocks that are told, the first of which compiles and is not counted."""


def time_processes(args: argparse.Namespace) -> int:
    """Run the processes, write their measurements, and print them as a line.

    Returns:
        The exit code: 0, or 1 where a process failed.
    """
    where = common.machine()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    case = {"preset": args.preset, "processes": args.processes, "coordinator": f"127.0.0.1:{port}"}
    started = [subprocess.Popen(
        [sys.executable, "-m", "benchmarks.steps", json.dumps(case | {"index": i})],
        cwd=common.ROOT, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"}) for i in range(args.processes)]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        return 1
    measured = json.loads(outputs[0].splitlines()[-1])
    steps = json.loads((common.RESULTS / "steps.json").read_text())["results"]["cases"]
    measured["published_step_seconds"] = min(
        step["seconds_per_step"]["median"] for step in steps
        if step["preset"] == args.preset and step["teachers"] == 4000)
    measured["share_of_a_step"] = (measured["seconds_per_block"]["median"]
                                   / measured["published_step_seconds"])
    path = common.RESULTS / "hosts.json" if args.out is None else args.out
    command = [f"--preset={args.preset}", f"--processes={args.processes}"]
    common.write(common.record("steps", command, [], measured, where), path)
    print(f"{args.processes} processes met in {measured['meeting_seconds']:.1f} s; telling a block "
          f"with {measured['bytes_per_block']:,} bytes of bits took "
          f"{1e3 * measured['seconds_per_block']['median']:.1f} ms, "
          f"{measured['share_of_a_step']:.2%} of a published step")
    return 0


def take_part(case: dict[str, Any]) -> dict[str, Any]:
    """Meet the others and tell or hear of the blocks; return what the leader measured."""
    from dpgen_jax.core import hosts

    started = time.perf_counter()
    hosts.start(hosts.Hosts(case["coordinator"], case["processes"], case["index"],
                            join_seconds=300))
    import jax
    import numpy as np

    from dpgen_jax.private import teachers
    from dpgen_jax.private.teachers import Layout

    teachers.meet(Layout(jax.device_count(), 1, tuple(jax.devices())))
    met = time.perf_counter() - started
    mechanism = problem(Case("step", case["preset"], 1, 1, 1)).method.mechanism
    bits = np.random.default_rng(0).integers(0, 2**32, (1, *mechanism.bits_shape), np.uint32)
    seconds = []
    with hosts.alive():
        if not hosts.leads():
            while hosts.hear()[0] != "end":
                pass
            return {}
        with hosts.leading(lambda: 0):
            for _ in range(1 + BLOCKS):
                begun = time.perf_counter()
                hosts.tell("block", {"n": 1}, bits=bits)
                seconds.append(time.perf_counter() - begun)
    return {"preset": case["preset"], "processes": case["processes"], "meeting_seconds": met,
            "bytes_per_block": bits.nbytes, "seconds_per_block": common.timing(seconds[1:])}


# Seconds per epoch beside the papers': `python -m benchmarks.steps --epochs [ROW ...]`.
#
# An epoch of DataLens and G-PATE is one pass of every teacher over its records: their codes take
# floor(records of a teacher / batch) steps, each with one step of the generator. With the published
# teachers that is a single step (15 records, batch 15), which agrees with the text: G-PATE reaches
# epsilon 1 "at epoch 232", and one query of a batch each time costs as much. Timed is a step of the
# library with the published networks and settings on random records, not the first one, in a
# process of its own. With `--share` below 1 fewer teachers are timed and the time of all is
# extrapolated, which the record marks: a step is linear in the teachers (`benchmarks.steps`). The
# papers' times are quoted, and were measured on other machines. Rows that were measured with the
# same flags are kept. The record is results/epochs.json.

TABLE_6 = "DataLens (Wang et al. 2021), Table 6: Tesla T4, epsilon 1"
RUNTIME = "DataLens (Wang et al. 2021), section 5.3, runtime analysis: RTX 2080 Ti, epsilon 1"
APPENDIX_G = "G-PATE (Long et al. 2021), appendix G: Tesla T4, epsilon 1"


@dataclasses.dataclass(frozen=True)
class Epoch:
    """A time that a paper reports.

    Attributes:
      method: The method.
      preset: The preset whose step is timed.
      quoted: Seconds per epoch in the paper.
      source: Where, and on what machine.
      fields: Fields of the configuration that differ from the preset.
    """

    method: str
    preset: str
    quoted: float
    source: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


_TABLE_6 = {"mnist": (338.34, 492.43, 785.34), "fashion": (340.84, 471.02, 775.35),
            "gender": (1196.60, 3683.22, 2622.40), "hair": (1120.59, 8092.50, 2620.63)}
_COMPRESSIONS = {"topk": {}, "d2p": {"aggregate": "d2p"}, "fetchsgd": {"aggregate": "fetchsgd"}}

EPOCHS = {
    **{f"datalens-{data}-{name}": Epoch("datalens", f"{data}-eps1", seconds, TABLE_6, fields)
       for data, times in _TABLE_6.items()
       for (name, fields), seconds in zip(_COMPRESSIONS.items(), times, strict=True)},
    "datalens-mnist-4000": Epoch("datalens", "mnist-eps1", 322.17, RUNTIME),
    "datalens-mnist-2000": Epoch("datalens", "mnist-eps1", 149.92, RUNTIME,
                               {"teachers": 2000, "batch": 30}),
    "gpate-mnist": Epoch("gpate", "mnist-eps1", 256.74, APPENDIX_G),
}


def steps_of_an_epoch(row: Epoch) -> int:
    """Return how many steps the published code takes in an epoch."""
    from dpgen_jax import presets

    preset = presets.get(row.method, row.preset)[1]
    config = dataclasses.replace(preset.config, **row.fields)
    return max(1, preset.records // config.teachers // config.batch)


def time_epochs(args: argparse.Namespace) -> int:
    """Time the rows that are missing, write the record after each, and print the table.

    Returns:
      The exit code: 1 where a row could not be timed.
    """
    path = Path(args.out) if args.out else common.RESULTS / "epochs.json"
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    for name in args.epochs or EPOCHS:
        row = EPOCHS[name]
        case = {"method": row.method, "preset": row.preset, "fields": row.fields,
                "share": args.share, "chunk": args.chunk[0], "devices": args.devices[0],
                "moments": args.moments, "repeats": args.repeats, "seed": args.seed}
        if rows.get(name, {}).get("case") == case and "error" not in rows[name]:
            continue
        where = common.machine()
        measured = common.apart(MODULE, case, {"JAX_NUM_CPU_DEVICES": str(args.devices[0]),
                                               "JAX_ENABLE_COMPILATION_CACHE": "false"})
        rows[name] = {"case": case, "quoted_seconds": row.quoted, "source": row.source,
                      "machine": where, **epoch(row, measured)}
        flags = ["--epochs", *rows]
        record = common.record("steps", flags, [args.seed], {"rows": rows}, where)
        common.write(record, path)
        print(epoch_line(name, rows[name]), file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=1) if args.json else "\n".join(
        epoch_line(name, row) for name, row in rows.items()))
    return int(any("error" in row for row in rows.values()))


def epoch(row: Epoch, measured: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured with the time of an epoch of all teachers."""
    if "error" in measured:
        return measured
    from dpgen_jax import presets

    config = presets.get(row.method, row.preset)[1].config
    teachers, steps = dataclasses.replace(config, **row.fields).teachers, steps_of_an_epoch(row)
    seconds = steps * measured["seconds_per_step"]["median"] * teachers / measured["teachers"]
    return {**measured, "steps_of_an_epoch": steps, "teachers_of_the_paper": teachers,
            "extrapolated": measured["teachers"] != teachers, "seconds_per_epoch": seconds}


def epoch_line(name: str, row: dict[str, Any]) -> str:
    """Return a row for people."""
    if "error" in row:
        return f"{name}: {row['error']}"
    extrapolated = f", from {row['teachers']} teachers" if row["extrapolated"] else ""
    return (f"{name}: {row['seconds_per_epoch']:.2f} s per epoch{extrapolated}; paper "
            f"{row['quoted_seconds']:.2f} s ({row['source']})")


@dataclasses.dataclass(frozen=True)
class EpochCase:
    """A timed case: a preset with some fields changed, and the share of its teachers."""

    method: str
    preset: str
    fields: dict[str, Any]
    share: float
    chunk: int
    devices: int
    moments: str
    repeats: int
    seed: int


def built(case: EpochCase) -> tuple[Method, Any, tuple[int, int]]:
    """Return the method, the preset, and how many teachers have how many records each."""
    _, preset = presets.get(case.method, case.preset)
    config = dataclasses.replace(preset.config, **case.fields)
    per_teacher = preset.records // config.teachers
    count = max(config.bins if hasattr(config, "bins") else 1,
                math.ceil(case.share * config.teachers))
    # No budget: what is timed is a step, however many of them are proven to be affordable.
    config = complete(case.method, dataclasses.replace(config, teachers=count, steps=10),
                      preset.spec, Budget(math.inf, preset.delta))
    method = methods.get(case.method).build(config, preset.spec, Runtime(moments=case.moments))
    return method, preset, (count, per_teacher)


def epoch_case(case: EpochCase) -> dict[str, Any]:
    """Time a step after the first, with random records."""
    method, preset, shape = built(case)
    needed, free = teachers.unit_bytes(method) * shape[0], common.available_bytes()
    if jax.default_backend() == "cpu" and free is not None and needed + 2**29 > free:
        raise SystemExit(f"the teachers' state takes {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB "
                         "are available; time fewer of them with --share")
    rng = np.random.default_rng(case.seed)
    records = Records(rng.integers(0, 256, (*shape, *preset.spec.shape), np.uint8),
                      rng.integers(0, preset.spec.classes, shape, np.int32))
    devices = tuple(jax.devices()[:case.devices])
    layout = teachers.Layout(shape[0], case.chunk, devices)
    whole = Library(method, Private(records), jax.random.key(case.seed), layout, case.seed)
    step = common.side_by_side({"step": whole.step}, case.repeats)["step"]
    return {
        "seconds_per_step": step, "teachers": shape[0], "records_per_teacher": shape[1],
        "compile_seconds": whole.compile_seconds, "peak_resident_bytes": common.peak_bytes(),
        "device": devices[0].device_kind, "devices": len(devices)}


MODULE = "benchmarks.steps"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and write its record."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = parse(arguments)
    if args.epochs is not None:
        return time_epochs(args)
    if args.processes > 1:
        return time_processes(args)
    where = common.machine()
    results = measure(args)
    if args.out:
        at = next(i for i, a in enumerate(arguments) if a.split("=")[0] == "--out")
        del arguments[at:at + (1 if "=" in arguments[at] else 2)]
    record = common.record("steps", arguments, [args.seed], results, where)
    path = common.write(record, args.out)
    print(json.dumps(record, indent=1) if args.json else table(record))
    print(f"written to {path}", file=sys.stderr)
    return int(any("error" in case for case in results["cases"] + results["side_by_side"]))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__,
                                     allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist-eps1", help="a preset of datalens")
    parser.add_argument("--teachers", type=int, nargs="*", default=[250, 1000, 4000])
    parser.add_argument("--chunk", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--glyphs", action="store_true",
                        help="the preset glyphs too, with its own number of teachers")
    parser.add_argument("--beside", type=int, default=250,
                        help="teachers in the side-by-side comparisons; 0: none")
    parser.add_argument("--moments", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--repeats", type=int, default=3, help="timed steps, at least 3")
    parser.add_argument("--matmul", type=int, default=2048, help="size of the matrix product")
    parser.add_argument("--epochs", nargs="*", choices=EPOCHS, metavar="ROW",
                        help="times beside the papers' instead: all, or of "
                             f"{', '.join(EPOCHS)}")
    parser.add_argument("--share", type=float, default=1.0,
                        help="share of the teachers that --epochs times")
    parser.add_argument("--processes", type=int, default=1,
                        help="times the talk between this many processes instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the record, not a table")
    parser.add_argument("--out", help="file for the record; benchmarks/results/steps.json")
    args = parser.parse_args(arguments)
    if args.repeats < 3:
        parser.error("--repeats: a median needs at least 3 steps")
    if not 0 < args.share <= 1:
        parser.error("--share: above 0, at most 1")
    return args


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run one configuration after the other, and report each on stderr."""
    cases, pairs = plan(args)
    cases = [run(case) for case in cases]
    return {"cases": cases, "linearity": linearity(cases), "side_by_side": [run(p) for p in pairs]}


def plan(args: argparse.Namespace) -> tuple[list[dict], list[dict]]:
    """Return the configurations of the step, and those of the side-by-side comparisons."""
    shared = {"moments": args.moments, "repeats": args.repeats, "seed": args.seed,
              "matmul": args.matmul}
    sizes = [(args.preset, n) for n in args.teachers]
    if args.glyphs:
        from dpgen_jax import presets
        sizes.append(("glyphs", presets.get("datalens", "glyphs")[1].config.teachers))
    cases = [{"kind": "step", "preset": preset, "teachers": n, "chunk": chunk, "devices": devices,
              **shared}
             for (preset, n), chunk, devices in itertools.product(sizes, args.chunk, args.devices)]
    pair = {"preset": args.preset, "teachers": args.beside, "chunk": args.chunk[0], **shared}
    pairs = [{"kind": "plain", "devices": 1, **pair}]
    return cases, pairs if args.beside else []


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run a configuration in a process of its own; return it with what was measured, or "error"."""
    name = "{kind}: {preset}, {teachers} teachers, chunk {chunk}, {devices} devices".format(**case)
    env = {"JAX_NUM_CPU_DEVICES": str(case["devices"]), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    measured = common.apart(MODULE, case, env)
    print(f"{name}: {measured.get('error', 'measured')}", file=sys.stderr, flush=True)
    return {**case, **measured}


def linearity(cases: list[dict]) -> list[dict[str, Any]]:
    """Return how far the time of a step is linear in the teachers, for each preset and layout.

    Returns:
      Seconds per teacher at each number of teachers, and the ratio of the largest number's to the
      smallest's, with and without the generator; 1 is linear.
    """
    groups: dict[tuple, list[dict]] = {}
    for case in cases:
        if "error" not in case:
            groups.setdefault((case["preset"], case["chunk"], case["devices"]), []).append(case)
    entries = []
    for (preset, chunk, devices), group in groups.items():
        group = sorted(group, key=lambda case: case["teachers"])
        entry = {"preset": preset, "chunk": chunk, "devices": devices,
                 "teachers": [case["teachers"] for case in group]}
        for field in ("seconds_per_teacher", "seconds_per_teacher_without_generator"):
            entry[field] = [case[field] for case in group]
            entry[f"{field}_last_to_first"] = entry[field][-1] / entry[field][0]
        entries.append(entry)
    return entries


COLUMNS = {
    "preset": lambda c: c["preset"],
    "teachers": lambda c: f"{c['teachers']}",
    "chunk": lambda c: f"{c['chunk']}",
    "devices": lambda c: f"{c['devices']}",
    "s/step": lambda c: f"{c['seconds_per_step']['median']:.3f}",
    "ms/teacher": lambda c: f"{1e3 * c['seconds_per_teacher']:.2f}",
    "GFLOP/s": lambda c: f"{c['flops_per_second'] / 1e9:.0f}",
    "of matmul": lambda c: f"{c['fraction_of_matmul_rate']:.1%}",
    "aggregation": lambda c: f"{c['aggregation_share']:.1%}",
    "generator": lambda c: f"{c['generator_share']:.1%}",
    "state GB": lambda c: f"{c['state_bytes'] / 1e9:.2f}",
    "peak GB": lambda c: f"{c['peak_resident_bytes'] / 1e9:.2f}",
    "compile s": lambda c: f"{c['compile_seconds']:.1f}",
    "compilations": lambda c: f"{c['compilations']}",
}


def table(record: dict[str, Any]) -> str:
    """Return the record as a table for people."""
    where, results = record["machine"], record["results"]
    good = [case for case in results["cases"] if "error" not in case]
    rows = [list(COLUMNS), *([show(case) for show in COLUMNS.values()] for case in good)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{where['cpu']}, {where['cores']} cores, load before {where['load_average']}; "
             f"jax {record['versions']['jax']}"]
    lines += ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines += [_linear(entry) for entry in results["linearity"] if len(entry["teachers"]) > 1]
    lines += [_pair(pair) for pair in results["side_by_side"] if "error" not in pair]
    lines += [f"failed: {case['kind']}, {case['preset']}, {case['teachers']} teachers, chunk "
              f"{case['chunk']}, {case['devices']} devices: {case['error']}"
              for case in results["cases"] + results["side_by_side"] if "error" in case]
    return "\n".join(lines)


def _linear(entry: dict[str, Any]) -> str:
    each = ", ".join(f"{1e3 * s:.2f}" for s in entry["seconds_per_teacher"])
    return (f"linearity, {entry['preset']}, chunk {entry['chunk']}, {entry['devices']} devices: "
            f"{each} ms per teacher at {entry['teachers']} teachers; last to first "
            f"{entry['seconds_per_teacher_last_to_first']:.2f}, without the generator "
            f"{entry['seconds_per_teacher_without_generator_last_to_first']:.2f}")


def _pair(pair: dict[str, Any]) -> str:
    seconds = ", ".join(f"{name} {t['median']:.3f} s"
                        for name, t in pair["seconds_per_step"].items())
    (name, ratio), = pair["ratio"].items()
    return (f"side by side, {pair['teachers']} teachers, chunk {pair['chunk']}, {pair['devices']} "
            f"devices: {seconds}; {name} = {ratio:.2f}; generators differ by at most "
            f"{pair['largest_difference_of_generator_weights']:.1e}")


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Measure a case in this process: one of several processes, a step, or a row of `EPOCHS`."""
    if "index" in case:
        return take_part(case)
    return step_case(Case(**case)) if "kind" in case else epoch_case(EpochCase(**case))


if __name__ == "__main__":
    common.entry(main, measured)
