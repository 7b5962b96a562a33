"""Time and memory of an evaluation, and the accuracy of its judge: runs the command `evaluate`.

    python -m benchmarks.evaluation RUN --dataset idx:mnist            # full
    python -m benchmarks.evaluation RUN --dataset idx:mnist --fast
    python -m benchmarks.evaluation RUN --dataset idx:fashion_mnist --metrics fidelity

The seconds are those of the whole command, from its start to the written report. The record, with
the metrics of the evaluation, is results/evaluation-DATA-SETTING.json.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import common
from dpgen_jax.cli import terminal
from dpgen_jax.core.run_folder import read_json


def main(argv: list[str]) -> None:
    script = common.Script("evaluation", __doc__ + "\nFurther flags go to the evaluation.", None)
    script.add_argument("run", type=Path, help="a run or release folder")
    script.add_argument("--dataset", default="glyphs")
    args, more = script.begin_with_more(argv)
    with tempfile.TemporaryDirectory() as scratch:
        clock = common.Stopwatch()
        common.command("dpgen_jax.evaluate", args.run, "--dataset", args.dataset, "--out", scratch,
                       *more)
        seconds = clock.seconds()
        metrics = read_json(Path(scratch) / "metrics.json")
        report_bytes = (Path(scratch) / "report.html").stat().st_size
    import resource  # which POSIX alone has

    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    parts = "" if "gen2real" in metrics else "-" + "-".join(
        name for name in ("fidelity", "membership") if name in metrics)
    setting = metrics.get("setting", {}).get("name", "full")
    script.words = ["RUN", "--dataset", args.dataset, *more]
    print(script.save({
        "seconds_of_the_command": seconds, "cpu_seconds": spent.ru_utime + spent.ru_stime,
        "peak_bytes": 1024 * spent.ru_maxrss, "report_bytes": report_bytes, "metrics": metrics},
        range(metrics.get("seeds", 3)), f"evaluation-{metrics['dataset']}-{setting}{parts}"))


if __name__ == "__main__":
    terminal.main(main)
