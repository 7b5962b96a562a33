"""Measure a step with the teachers' state on the devices and on the disk: seconds, and memory.

    python -m benchmarks.state_places --teachers 1000 --folder .

The published networks of DataLens on MNIST's shape (random records, float32 moments), a process for
each place, in turns: device, disk, device, disk, on as many devices as a run takes. Each makes the
given number of steps after one that warms up; the first step of a run, which trains the teachers
for longer, is left out. What the disk itself has to do depends on how much of the state the system
keeps in free memory: the bytes that were available before each process are recorded.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import common, engine, steps
from dpgen_jax.core.config import Runtime
from dpgen_jax.run import capacity

MODULE = "benchmarks.state_places"
PLACES = ("device", "disk")


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Time steps with the state in one place; return the case with seconds, bytes and the peak."""
    available = common.available_bytes()
    problem = engine.problem(steps.METHOD, case["preset"], case["teachers"], moments="float32",
                             seed=case["seed"])
    with tempfile.TemporaryDirectory(dir=case["folder"]) as folder:
        layout = capacity.choose_layout(
            problem.method, Runtime(devices=case["devices"], state=case["place"]),
            files=Path(folder))
        whole = problem.library(layout)
        timed = common.side_by_side({"step": whole.step}, case["repeats"])["step"]
    state = capacity.state_bytes(problem.method)
    return case | {
        "available_bytes_before": available, "devices": len(layout.devices), "state_bytes": state,
        "slab": layout.slab, "chunk": layout.chunk, "init_seconds": whole.init_seconds,
        "seconds_per_step": timed, "seconds_per_teacher": timed["median"] / case["teachers"],
        "bytes_moved_per_second": 2 * state / timed["median"] * (layout.slab > 0),
        "peak_resident_bytes": common.peak_bytes()}


def ratio(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return time and memory of the disk by those of the devices, each by its fastest process."""
    best = {place: min((case for case in cases if case["place"] == place),
                       key=lambda case: case["seconds_per_teacher"]) for place in PLACES}
    return {name: best["disk"][name] / best["device"][name]
            for name in ("seconds_per_teacher", "peak_resident_bytes")}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all processes; return 1 where one failed."""
    script = common.Script("state_places", __doc__)
    script.add_argument("--preset", default="mnist-eps1", help="a preset of datalens")
    script.add_argument("--teachers", type=int, default=1000)
    script.add_argument("--repeats", type=int, default=2, help="timed steps of a process")
    script.add_argument("--turns", type=int, default=2, help="processes for each place")
    script.add_argument("--folder", default=".", help="a folder on the disk to measure")
    script.add_argument("--devices", type=int, default=0, help="0: as many as a run takes")
    script.add_argument("--places", nargs="+", choices=PLACES, default=PLACES,
                        help="disk alone where the memory does not hold the state")
    script.add_argument("--seed", type=int, default=0)
    args = script.begin(argv)
    cases: list[dict[str, Any]] = []
    for place in (*args.places,) * args.turns:
        case = {"preset": args.preset, "teachers": args.teachers, "place": place,
                "folder": str(Path(args.folder).absolute()), "devices": args.devices,
                "repeats": args.repeats, "seed": args.seed}
        cores = {"JAX_NUM_CPU_DEVICES": str(args.devices or script.where["cores"])}
        cases.append(common.apart(MODULE, case, cores) | {"folder": "DIR"})
        print(json.dumps(cases[-1]), flush=True)
        if "error" in cases[-1]:
            return 1
    both = {"disk_by_device": ratio(cases)} if set(args.places) == set(PLACES) else {}
    print(script.save({"cases": cases, **both}, [args.seed]))
    return 0


if __name__ == "__main__":
    common.entry(main, measured)
