"""Measure a step with the teachers' state on the devices and on the disk: seconds, and memory.

    python -m benchmarks.state_places --teachers 1000 --folder .

The published networks of DataLens on MNIST's shape (random records, float32 moments), a process for
each place, in turns: device, disk, device, disk, on as many devices as a run takes. Each makes the
given number of steps after one that warms up; the first step of a run, which trains the teachers
for longer, is left out. What the disk itself has to do depends on how much of the state the system
keeps in free memory: the bytes that were available before each process are recorded.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import common, steps

MODULE = "benchmarks.state_places"
PLACES = ("device", "disk")


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Time steps with the state in one place.

    Args:
      case: `preset`, `teachers`, `place`, `folder`, `devices`, `repeats` and `seed`.

    Returns:
      The case, with seconds a step, bytes, and the peak of this process.
    """
    import jax

    from dpgen_jax.core.config import Runtime
    from dpgen_jax.core.types import Private
    from dpgen_jax.run import capacity

    available = common.available_bytes()
    problem = steps.problem(steps.Case(
        "step", case["preset"], case["teachers"], 1, 1, "float32", seed=case["seed"]))
    with tempfile.TemporaryDirectory(dir=case["folder"]) as folder:
        layout = capacity.choose_layout(
            problem.method, Runtime(devices=case["devices"], state=case["place"]),
            files=Path(folder))
        whole = steps.Library(problem.method, Private(problem.records), problem.key, layout,
                                  case["seed"])
        seconds = []
        for _ in range(case["repeats"] + 1):
            started = time.perf_counter()
            jax.block_until_ready(whole.step())
            seconds.append(time.perf_counter() - started)
    state = capacity.state_bytes(problem.method)
    median = common.timing(seconds[1:])
    return case | {
        "available_bytes_before": available, "devices": len(layout.devices), "state_bytes": state,
        "slab": layout.slab, "chunk": layout.chunk, "init_seconds": whole.init_seconds,
        "seconds_per_step": median, "seconds_per_teacher": median["median"] / case["teachers"],
        "bytes_moved_per_second": 2 * state / median["median"] * (layout.slab > 0),
        "peak_resident_bytes": common.peak_bytes()}


def ratio(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return time and memory of the disk by those of the devices, each by its fastest process."""
    best = {place: min((case for case in cases if case["place"] == place),
                       key=lambda case: case["seconds_per_teacher"]) for place in PLACES}
    return {name: best["disk"][name] / best["device"][name]
            for name in ("seconds_per_teacher", "peak_resident_bytes")}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line says, print it and write the record."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mnist-eps1", help="a preset of datalens")
    parser.add_argument("--teachers", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=2, help="timed steps of a process")
    parser.add_argument("--turns", type=int, default=2, help="processes for each place")
    parser.add_argument("--folder", default=".", help="a folder on the disk to measure")
    parser.add_argument("--devices", type=int, default=0, help="0: as many as a run takes")
    parser.add_argument("--places", nargs="+", choices=PLACES, default=PLACES,
                        help="disk alone where the memory does not hold the state")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="file for the record; benchmarks/results/state_places.json")
    args = parser.parse_args(argv)
    where, cases = common.machine(), []
    for place in (*args.places,) * args.turns:
        case = {"preset": args.preset, "teachers": args.teachers, "place": place,
                "folder": str(Path(args.folder).absolute()), "devices": args.devices,
                "repeats": args.repeats, "seed": args.seed}
        cores = {"JAX_NUM_CPU_DEVICES": str(args.devices or where["cores"])}
        cases.append(common.apart(MODULE, case, cores) | {"folder": "DIR"})
        print(json.dumps(cases[-1]), flush=True)
        if "error" in cases[-1]:
            return 1
    words = ["--preset", args.preset, "--teachers", str(args.teachers), "--repeats",
             str(args.repeats), "--turns", str(args.turns), "--devices", str(args.devices),
             "--folder", "DIR", "--places", *args.places]
    results: dict[str, Any] = {"cases": cases}
    if set(args.places) == set(PLACES):
        results["disk_by_device"] = ratio(cases)
    print(common.write(common.record("state_places", words, [args.seed], results, where), args.out))
    return 0


if __name__ == "__main__":
    common.entry(main, measured)
