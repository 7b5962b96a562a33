"""Time and memory of a DataLens step: `python -m benchmarks.steps`. It needs no data.

The published networks on MNIST's shape (preset mnist-eps1, 15 records a teacher, random records,
bfloat16 moments) through `loop.compile_block`. Each configuration runs in a process of its own;
each figure is the median of at least three steps after a warm-up. Measured are

- seconds per step against teachers, chunk and devices, and seconds per teacher (linear or not);
- the floating-point operations of the networks as published, per second, as a fraction of the
  rate of a float32 matrix product in the same process (the better one of before and after);
- the share of a step that the aggregation takes (top-k signs of all teachers, the sum, the noise,
  the decoding), timed alone on as many random messages in the same layout, and the share of the
  generator (ask and absorb), timed alone likewise;
- the largest resident memory of the process, beside the size of the teachers' state;
- the time to trace and compile (the first call, of no steps), how often the block was compiled,
  and the entries of its dispatch cache, which on one device are two without a second compilation;
- side by side, in turns in one process: a Python loop over teachers with one compiled function,
  and `pmap` beside `shard_map`.

CPU devices beyond one are simulated: they share the cores. The record is results/steps.json.

`--epochs [ROW ...]` times instead what the papers report, seconds per epoch of DataLens (Table 6)
and G-PATE (appendix G), and writes results/epochs.json. `--processes N` times what several
processes cost beside the computation, and writes results/hosts.json.
"""

import argparse
import dataclasses
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import common, engine
from dpgen_jax import presets
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.datalens import Config
from dpgen_jax.nets.image import DiscriminatorNet
from dpgen_jax.private import teachers

MODULE, METHOD = "benchmarks.steps", "datalens"


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

    A multiplication and an addition are two, however they are computed. A discriminator step goes
    forward and twice that backward through real and fake records; the answer goes forward through a
    batch of fakes and back to the images. The optimiser, the votes and the generator are not
    counted.
    """
    real = min(config.batch, records)
    passes = config.d_steps * 3 * 2 * real + 2 * config.batch
    return 2 * published_macs(config.discriminator, spec) * passes


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration; of the kind "step", or "plain" or "parallel", which compare two ways."""

    kind: str
    preset: str
    teachers: int
    chunk: int
    devices: int
    moments: str = "bfloat16"
    repeats: int = 3
    seed: int = 0
    matmul: int = 2048
    """Size of the matrices whose product sets the rate."""

    def problem(self) -> engine.Problem:
        """Return the preset with random records."""
        return engine.problem(METHOD, self.preset, self.teachers, moments=self.moments,
                              seed=self.seed)

    def layout(self) -> teachers.Layout:
        """Return the layout, if there are as many devices."""
        return engine.layout_of(self.teachers, self.chunk, self.devices)


def measure_step(case: Case) -> dict[str, Any]:
    """Measure the step, its parts, its memory, and the rate of matrix products around it."""
    layout, p, before = case.layout(), case.problem(), common.matmul_rate(case.matmul)
    base = common.resident_bytes()
    whole = p.library(layout)
    step = common.side_by_side({"step": whole.step}, case.repeats)["step"]
    peak, public = common.peak_bytes(), whole.public
    measured = {"compile_seconds": whole.compile_seconds, "init_seconds": whole.init_seconds,
                "compilations": whole.compilations,
                "dispatch_cache_entries": whole.block._cache_size()}
    del whole
    calls = {"aggregation": engine.aggregation_alone(p, layout).step,
             "generator": engine.generator_alone(p, layout, public)}
    parts = {name: common.side_by_side({name: call}, case.repeats)[name]
             for name, call in calls.items()}
    after, seconds = common.matmul_rate(case.matmul), step["median"]
    flops = published_flops(p.config, p.spec, p.records.y.shape[1])
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
    layout, p = case.layout(), case.problem()
    ways: dict[str, Any] = {"shard_map": p.library(layout)}
    if case.kind == "plain":
        ways["plain"] = engine.PlainLoop(p)
    else:
        ways["pmap"] = p.library(dataclasses.replace(layout, parallel="pmap"))
    timed = common.side_by_side({name: way.step for name, way in ways.items()}, case.repeats)
    (_, ours), (name, theirs) = timed.items()
    one, other = (jax.device_get(way.public.params) for way in ways.values())
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), one, other)
    return {"seconds_per_step": timed,
            "ratio": {f"{name} / shard_map": theirs["median"] / ours["median"]},
            "largest_difference_of_generator_weights": float(max(jax.tree.leaves(apart)))}


# The cost of several processes beside computation: `python -m benchmarks.steps --processes N`.
#
# N processes of this machine meet as those of a run do, and the leader tells the others of blocks
# of one step, with as many bits of noise as the preset's step needs. Measured are the seconds until
# all have met, the bytes of a block's order and the seconds that telling it takes, beside the
# seconds of the published step that results/steps.json has. Between machines the network decides;
# here they talk over the loopback, so the bytes are what carries over.

BLOCKS = 20
"""Blocks that are told, the first of which compiles and is not counted."""


def time_processes(args: argparse.Namespace, script: common.Script) -> int:
    """Run the processes and write their measurements; return 1 where a process failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    case = {"preset": args.preset, "processes": args.processes, "coordinator": f"127.0.0.1:{port}"}
    started = [subprocess.Popen(
        [sys.executable, "-m", MODULE, json.dumps(case | {"index": i})], cwd=common.ROOT,
        stdout=subprocess.PIPE, text=True, env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"})
        for i in range(args.processes)]
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        return 1
    measured = json.loads(outputs[0].splitlines()[-1])
    known = common.load("steps")["results"]["cases"]
    measured["published_step_seconds"] = min(
        step["seconds_per_step"]["median"] for step in known
        if step["preset"] == args.preset and step["teachers"] == 4000)
    measured["share_of_a_step"] = (measured["seconds_per_block"]["median"]
                                   / measured["published_step_seconds"])
    script.save(measured, stem="hosts")
    print(json.dumps(measured))
    return 0


def take_part(case: dict[str, Any]) -> dict[str, Any]:
    """Meet the others and tell or hear of the blocks; return what the leader measured."""
    from dpgen_jax.core import hosts

    clock = common.Stopwatch()
    hosts.start(hosts.Hosts(case["coordinator"], case["processes"], case["index"],
                            join_seconds=300))
    teachers.meet(teachers.Layout(jax.device_count(), 1, tuple(jax.devices())))
    met = clock.seconds()
    mechanism = engine.problem(METHOD, case["preset"], 1).method.mechanism
    bits = np.random.default_rng(0).integers(0, 2**32, (1, *mechanism.bits_shape), np.uint32)
    seconds = []
    with hosts.alive():
        if not hosts.leads():
            while hosts.hear()[0] != "end":
                pass
            return {}
        with hosts.leading(lambda: 0):
            for _ in range(1 + BLOCKS):
                clock = common.Stopwatch()
                hosts.tell("block", {"n": 1}, bits=bits)
                seconds.append(clock.seconds())
    return {"preset": case["preset"], "processes": case["processes"], "meeting_seconds": met,
            "bytes_per_block": bits.nbytes, "seconds_per_block": common.timing(seconds[1:])}


# Seconds per epoch beside the papers': `python -m benchmarks.steps --epochs [ROW ...]`.
#
# An epoch of DataLens and G-PATE is one pass of every teacher over its records: their codes take
# floor(records of a teacher / batch) steps, each with one step of the generator. With the published
# teachers that is a single step (15 records, batch 15), which agrees with the text: G-PATE reaches
# epsilon 1 "at epoch 232", and one query of a batch each time costs as much. With `--share` below 1
# fewer teachers are timed and the time of all is extrapolated, which the record marks: a step is
# linear in the teachers. The papers' times are quoted, and were measured on other machines. Rows
# that were measured with the same flags are kept.

TABLE_6 = "DataLens (Wang et al. 2021), Table 6: Tesla T4, epsilon 1"
RUNTIME = "DataLens (Wang et al. 2021), section 5.3, runtime analysis: RTX 2080 Ti, epsilon 1"
APPENDIX_G = "G-PATE (Long et al. 2021), appendix G: Tesla T4, epsilon 1"


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The seconds per epoch that a paper reports, and the preset, with these fields, for them."""

    method: str
    preset: str
    quoted: float
    source: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)

    def config(self) -> Any:
        """Return the configuration."""
        return dataclasses.replace(presets.get(self.method, self.preset)[1].config, **self.fields)


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
    config = row.config()
    records = presets.get(row.method, row.preset)[1].records
    return max(1, records // config.teachers // config.batch)


def time_epochs(args: argparse.Namespace, script: common.Script) -> int:
    """Time the rows that are missing; return 1 where a row could not be timed."""
    rows = script.earlier("epochs").get("rows", {})
    for name in args.epochs or EPOCHS:
        row = EPOCHS[name]
        case = {"method": row.method, "preset": row.preset, "fields": row.fields,
                "share": args.share, "chunk": args.chunk[0], "devices": args.devices[0],
                "moments": args.moments, "repeats": args.repeats, "seed": args.seed}
        if rows.get(name, {}).get("case") == case and "error" not in rows[name]:
            continue
        where = common.machine()
        rows[name] = {"case": case, "quoted_seconds": row.quoted, "source": row.source,
                      "machine": where, **epoch(row, run(case))}
        script.save({"rows": rows}, [args.seed], "epochs")
        print(name, rows[name].get("error") or rows[name]["seconds_per_epoch"], flush=True)
    return int(any("error" in row for row in rows.values()))


def epoch(row: Epoch, measured: dict[str, Any]) -> dict[str, Any]:
    if "error" in measured:
        return measured
    all_of_them, steps = row.config().teachers, steps_of_an_epoch(row)
    seconds = steps * measured["seconds_per_step"]["median"] * all_of_them / measured["teachers"]
    return {**measured, "steps_of_an_epoch": steps, "teachers_of_the_paper": all_of_them,
            "extrapolated": measured["teachers"] != all_of_them, "seconds_per_epoch": seconds}


def time_epoch(case: dict[str, Any]) -> dict[str, Any]:
    """Time a step after the first of a share of the teachers, with random records."""
    p = engine.problem(case["method"], case["preset"], share=case["share"], fields=case["fields"],
                       moments=case["moments"], seed=case["seed"])
    units, each = p.records.y.shape
    layout = engine.layout_of(units, case["chunk"], case["devices"])
    whole = p.library(layout)
    return {
        "seconds_per_step": common.side_by_side({"step": whole.step}, case["repeats"])["step"],
        "teachers": units, "records_per_teacher": each, "compile_seconds": whole.compile_seconds,
        "peak_resident_bytes": common.peak_bytes(), "device": layout.devices[0].device_kind,
        "devices": len(layout.devices)}


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, common.Script]:
    script = common.Script("steps", __doc__)
    script.add_argument("--preset", default="mnist-eps1", help="a preset of datalens")
    script.add_argument("--teachers", type=int, nargs="*", default=[250, 1000, 4000])
    script.add_argument("--chunk", type=int, nargs="+", default=[1, 4])
    script.add_argument("--devices", type=int, nargs="+", default=[1, 2])
    script.add_argument("--beside", type=int, default=250,
                        help="teachers in the side-by-side comparisons; 0: none")
    script.add_argument("--moments", default="bfloat16", choices=["bfloat16", "float32"])
    script.add_argument("--repeats", type=int, default=3, help="timed steps, at least 3")
    script.add_argument("--matmul", type=int, default=2048, help="size of the matrix product")
    script.add_argument("--epochs", nargs="*", choices=EPOCHS, metavar="ROW",
                        help="times beside the papers' instead: all, or of "
                             f"{', '.join(EPOCHS)}")
    script.add_argument("--share", type=float, default=1.0,
                        help="share of the teachers that --epochs times")
    script.add_argument("--processes", type=int, default=1,
                        help="times the talk between this many processes instead")
    script.add_argument("--seed", type=int, default=0)
    args = script.begin(arguments)
    if args.repeats < 3:
        script.error("--repeats: a median needs at least 3 steps")
    if not 0 < args.share <= 1:
        script.error("--share: above 0, at most 1")
    return args, script


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one configuration after the other; return 1 where one could not be measured."""
    args, script = parse(arguments)
    if args.epochs is not None:
        return time_epochs(args, script)
    if args.processes > 1:
        return time_processes(args, script)
    cases, pairs = ([case | run(case) for case in some] for some in plan(args))
    print(script.save({"cases": cases, "linearity": linearity(cases), "side_by_side": pairs},
                      [args.seed]))
    return int(any("error" in case for case in cases + pairs))


def plan(args: argparse.Namespace) -> tuple[list[dict], list[dict]]:
    """Return the configurations of the step, and those of the side-by-side comparisons."""
    shared = {"moments": args.moments, "repeats": args.repeats, "seed": args.seed,
              "matmul": args.matmul}
    cases = [{"kind": "step", "preset": args.preset, "teachers": n, "chunk": chunk,
              "devices": devices, **shared}
             for n, chunk, devices in itertools.product(args.teachers, args.chunk, args.devices)]
    pair = {"preset": args.preset, "teachers": args.beside, "chunk": args.chunk[0], **shared}
    pairs = [{"kind": "plain", "devices": 1, **pair},
             *({"kind": "parallel", "devices": n, **pair} for n in args.devices)]
    return cases, pairs if args.beside else []


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Measure a configuration in a process of its own; return "error" where that fails."""
    env = {"JAX_NUM_CPU_DEVICES": str(case["devices"]), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    found = common.apart(MODULE, case, env)
    print(case, found.get("error", "measured"), file=sys.stderr, flush=True)
    return found


def linearity(cases: list[dict]) -> list[dict[str, Any]]:
    """Return how far the time of a step is linear in the teachers, for each preset and layout.

    Returns:
      Seconds per teacher at each number of teachers, and the ratio of the largest number's to the
      smallest's, with and without the generator; 1 is linear.
    """
    groups: dict[tuple, list[dict]] = {}
    for case in sorted(cases, key=lambda case: case["teachers"]):
        if "error" not in case:
            groups.setdefault((case["preset"], case["chunk"], case["devices"]), []).append(case)
    entries = []
    for (preset, chunk, devices), group in groups.items():
        entry = {"preset": preset, "chunk": chunk, "devices": devices,
                 "teachers": [case["teachers"] for case in group]}
        for field in ("seconds_per_teacher", "seconds_per_teacher_without_generator"):
            entry[field] = [case[field] for case in group]
            entry[f"{field}_last_to_first"] = entry[field][-1] / entry[field][0]
        entries.append(entry)
    return entries


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Measure a case in this process: one of several processes, a step, or a row of `EPOCHS`."""
    if "index" in case:
        return take_part(case)
    if "kind" not in case:
        return time_epoch(case)
    return (measure_step if case["kind"] == "step" else measure_beside)(Case(**case))


if __name__ == "__main__":
    common.entry(main, measured)
