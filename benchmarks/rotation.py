"""Accuracy against the number of critics that answer in a round, at the same proven epsilon.

    python -m benchmarks.rotation [--method gswgan] [--preset glyphs] [--dataset glyphs]
                                  [--per-step 25 50 100 200] [--runs 1]

Every run has the same critics, steps, fakes and epsilon; with more critics a round the mean
gradient carries less noise, 2 C sqrt(T B / (2 c K m)) per coordinate, and a round takes longer.
Accuracy is gen2real on real test images, by the fast schedule, after the last epoch. The record and
a picture are results/rotation-METHOD-DATA.json and .png.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks import common
from dpgen_jax import data, methods, presets
from dpgen_jax.accountant import composition
from dpgen_jax.core import cli, run_folder
from dpgen_jax.core.config import Budget
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.run import fitting, lifecycle


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--method", default="gswgan")
    parser.add_argument("--preset", default="glyphs")
    parser.add_argument("--dataset", default="glyphs")
    parser.add_argument("--epsilon", type=float, help="the preset's if left out")
    parser.add_argument("--per-step", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--runs", "--repeats", type=int, default=1, help="training runs of each")
    parser.add_argument("--samples", type=int, default=10_000)
    return parser.parse_args()


def one(args: argparse.Namespace, dataset: data.Dataset, per_step: int) -> dict[str, Any]:
    """Train and evaluate with this many critics a round; return the row."""
    name, preset = presets.get(args.method, args.preset)
    config = dataclasses.replace(preset.config, critics_per_step=per_step, sigma=None)
    budget = Budget(args.epsilon or preset.epsilon, preset.delta)
    accuracies, seconds = [], []
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch) / "run"
            release = lifecycle.run(
                lifecycle.Request(args.method, name, config, budget, out=root), dataset
            )
            rows = run_folder.read(root / "metrics.jsonl")
        # From the second line on: the first waited for the compiler.
        first, last = rows[min(1, len(rows) - 1)], rows[-1]
        seconds.append((last["seconds"] - first["seconds"]) / max(1, last["step"] - first["step"]))
        scores = common.utility_of(release, dataset, ("gen2real",), 3, args.samples)["gen2real"]
        accuracies.append({name: values["accuracy"]["mean"] for name, values in scores.items()})
    mechanism = methods.get(args.method).mechanism(release.config, release.spec)
    (event, count), = mechanism.events(release.config.steps)
    c = composition.mu_squared(((event, count),)) / 2
    noise = 2 * config.clip * math.sqrt(config.steps * config.batch / (
        2 * c * config.critics * mechanism.schedule.expected_answers(config.critics)))
    return {"critics_per_step": per_step, "critics": config.critics, "steps": config.steps,
            "sigma": release.config.sigma, "visits": count, "noise_of_the_mean_gradient": noise,
            "epsilon": release.privacy["epsilon"], "seconds_per_step": seconds,
            "accuracy": {name: summary([a[name] for a in accuracies])
                         for name in accuracies[0]}}


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw accuracy against the critics of a round."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name in rows[0]["accuracy"]:
        axes.errorbar([row["critics_per_step"] for row in rows],
                      [row["accuracy"][name]["mean"] for row in rows],
                      [row["accuracy"][name]["std"] for row in rows], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xticks([row["critics_per_step"] for row in rows],
                    [str(row["critics_per_step"]) for row in rows])
    axes.set_xlabel(f"critics that answer in a step, of {rows[0]['critics']:,}")
    axes.set_ylabel(f"gen2real accuracy at epsilon {rows[0]['epsilon']:g}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run the benchmark and write its record."""
    args = arguments()
    cli.use_all_cores()
    where = common.machine()
    dataset = fitting.load_preset_data(*presets.get(args.method, args.preset), args.dataset)
    rows = [one(args, dataset, m) for m in args.per_step]
    name = f"rotation-{args.method}-{dataset.name}"
    picture(rows, common.RESULTS / f"{name}.png")
    flags = [f"--method {args.method}", f"--preset {args.preset}", f"--dataset {args.dataset}",
             "--per-step " + " ".join(map(str, args.per_step)), f"--runs {args.runs}"]
    print(common.write(common.record("rotation", flags, range(3), rows, where),
                       common.RESULTS / f"{name}.json"))


if __name__ == "__main__":
    cli.main(lambda argv: main())
