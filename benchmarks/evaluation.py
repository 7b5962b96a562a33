"""Time and memory of an evaluation, and the accuracy of its judge: runs the command `evaluate`.

    python -m benchmarks.evaluation RUN --dataset idx:mnist            # full
    python -m benchmarks.evaluation RUN --dataset idx:mnist --fast
    python -m benchmarks.evaluation RUN --dataset idx:fashion_mnist --metrics fidelity

The seconds are those of the whole command, from its start to the written report. The record, with
the metrics of the evaluation, is results/evaluation-DATA-SETTING.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import common
from dpgen_jax.core.run_folder import read_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="Further flags go to the evaluation.")
    parser.add_argument("run", type=Path, help="a run or release folder")
    parser.add_argument("--dataset", default="glyphs")
    args, more = parser.parse_known_args()
    where = common.machine()
    with tempfile.TemporaryDirectory() as scratch:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dpgen_jax.evaluate", str(args.run), "--dataset",
                        args.dataset, "--out", scratch, *more], check=True)
        seconds = time.perf_counter() - started
        metrics = read_json(Path(scratch) / "metrics.json")
        report_bytes = (Path(scratch) / "report.html").stat().st_size
    import resource  # which POSIX alone has

    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = {"seconds_of_the_command": seconds, "cpu_seconds": spent.ru_utime + spent.ru_stime,
               "peak_bytes": 1024 * spent.ru_maxrss, "report_bytes": report_bytes,
               "metrics": metrics}
    parts = "" if "gen2real" in metrics else "-" + "-".join(
        name for name in ("fidelity", "membership") if name in metrics)
    setting = metrics.get("setting", {}).get("name", "full")
    name = f"evaluation-{metrics['dataset']}-{setting}{parts}"
    print(common.write(common.record(
        "evaluation", ["RUN", "--dataset", args.dataset, *more], range(metrics.get("seeds", 3)),
        results, where), common.RESULTS / f"{name}.json"))


if __name__ == "__main__":
    main()
