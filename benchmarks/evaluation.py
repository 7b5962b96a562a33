"""How long an evaluation takes, and how good its judge is: runs the command and keeps its output.

    python -m benchmarks.evaluation RUN --dataset idx:mnist            # full
    python -m benchmarks.evaluation RUN --dataset idx:mnist --fast
    python -m benchmarks.evaluation RUN --dataset idx:fashion_mnist --metrics fidelity

The seconds are those of the whole command, from its start to the written report.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import common
from dpgen_jax.run.folder import read_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="Further flags go to the evaluation.")
    parser.add_argument("run", type=Path, help="a run or release folder")
    parser.add_argument("--dataset", default="glyphs")
    given, more = parser.parse_known_args()
    where = common.machine()
    with tempfile.TemporaryDirectory() as scratch:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dpgen_jax.evaluate", str(given.run), "--dataset",
                        given.dataset, "--out", scratch, *more], check=True)
        seconds = time.perf_counter() - started
        found = read_json(Path(scratch) / "metrics.json")
        report_bytes = (Path(scratch) / "report.html").stat().st_size
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = {"seconds_of_the_command": seconds, "cpu_seconds": spent.ru_utime + spent.ru_stime,
               "peak_bytes": 1024 * spent.ru_maxrss, "report_bytes": report_bytes,
               "metrics": found}
    parts = "" if "gen2real" in found else "-" + "-".join(
        name for name in ("fidelity", "membership") if name in found)
    name = f"evaluation-{found['dataset']}-{found.get('setting', {}).get('name', 'full')}{parts}"
    print(common.write(common.record(
        "evaluation", ["RUN", "--dataset", given.dataset, *more], range(found.get("seeds", 3)),
        results, where), common.RESULTS / f"{name}.json"))


if __name__ == "__main__":
    main()
