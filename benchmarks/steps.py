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
- side by side, in turns in one process: a Python loop over teachers with one compiled function,
  and `pmap` beside `shard_map`.

CPU devices beyond one are simulated: they share the cores. The record is results/steps.json.

`--epochs [ROW ...]` times instead what the papers report, seconds per epoch of DataLens (Table 6)
and G-PATE (appendix G), and writes results/epochs.json: `benchmarks.epochs`. `--processes N` times
what several processes cost beside the computation, and writes results/hosts.json:
`benchmarks.host_steps`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import common, epochs, host_steps

MODULE = "benchmarks.step_case"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and write its record."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    args = parse(arguments)
    if args.epochs is not None:
        return epochs.main(args)
    if args.processes > 1:
        return host_steps.main(args)
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
    parser.add_argument("--epochs", nargs="*", choices=epochs.ROWS, metavar="ROW",
                        help="times beside the papers' instead: all, or of "
                             f"{', '.join(epochs.ROWS)}")
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
    pairs = [{"kind": "plain", "devices": 1, **pair},
             *({"kind": "parallel", "devices": n, **pair} for n in args.devices)]
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

    Args:
      cases: The configurations, with what was measured.

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


if __name__ == "__main__":
    raise SystemExit(main())
