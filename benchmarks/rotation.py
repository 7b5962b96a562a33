"""Accuracy against the number of critics that answer in a step, at the same proven epsilon.

    python -m benchmarks.rotation [--method gswgan] [--preset glyphs] [--dataset glyphs]
                                  [--per-step 25 50 100 200] [--runs 1]

Every run has the same critics, steps, fakes and epsilon; with more critics a step the mean gradient
carries less noise, 2 C sqrt(T B / (2 c K m)) per coordinate, and a step takes longer. Accuracy is
gen2real on real test images, by the fast schedule, after the last epoch.
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
from dpgen_jax import api, cli, data, methods, presets
from dpgen_jax.accountant import gaussian
from dpgen_jax.config import Budget
from dpgen_jax.evaluation.scores import summary
from dpgen_jax.run import metrics


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--method", default="gswgan")
    parser.add_argument("--preset", default="glyphs")
    parser.add_argument("--dataset", default="glyphs")
    parser.add_argument("--epsilon", type=float, help="the preset's if left out")
    parser.add_argument("--per-step", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--runs", type=int, default=1, help="training runs of each")
    parser.add_argument("--samples", type=int, default=10_000)
    return parser.parse_args()


def one(given: argparse.Namespace, loaded: data.Dataset, per_step: int) -> dict[str, Any]:
    """The runs with this many critics a step."""
    name, chosen = presets.get(given.method, given.preset)
    config = dataclasses.replace(chosen.config, critics_per_step=per_step, sigma=None)
    budget = Budget(given.epsilon or chosen.epsilon, chosen.delta)
    accuracies, seconds = [], []
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch) / "run"
            release = api.run(api.Run(given.method, name, config, budget, out=root), loaded)
            rows = metrics.read(root / "metrics.jsonl")
        # From the second line on: the first waited for the compiler.
        first, last = rows[min(1, len(rows) - 1)], rows[-1]
        seconds.append((last["seconds"] - first["seconds"]) / max(1, last["step"] - first["step"]))
        found = common.usefulness(release, loaded, ("gen2real",), 3, given.samples)["gen2real"]
        accuracies.append({name: values["accuracy"]["mean"] for name, values in found.items()})
    held = methods.get(given.method).mechanism(release.config, release.spec)
    (event, count), = held.events(release.config.steps)
    c = gaussian.mu_squared(((event, count),)) / 2
    noise = 2 * config.clip * math.sqrt(config.steps * config.batch / (
        2 * c * config.critics * held.schedule.answering(config.critics)))
    return {"critics_per_step": per_step, "critics": config.critics, "steps": config.steps,
            "sigma": release.config.sigma, "visits": count, "noise_of_the_mean_gradient": noise,
            "epsilon": release.privacy["epsilon"], "seconds_per_step": seconds,
            "accuracy": {name: summary([a[name] for a in accuracies])
                         for name in accuracies[0]}}


def picture(rows: list[dict[str, Any]], path: Path) -> None:
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
    given = arguments()
    cli.use_all_cores()
    where, loaded = common.machine(), data.load(given.dataset)
    rows = [one(given, loaded, m) for m in given.per_step]
    name = f"rotation-{given.method}-{loaded.name}"
    picture(rows, common.RESULTS / f"{name}.png")
    shown = [f"--method {given.method}", f"--preset {given.preset}", f"--dataset {given.dataset}",
             "--per-step " + " ".join(map(str, given.per_step)), f"--runs {given.runs}"]
    print(common.write(common.record("rotation", shown, range(3), rows, where),
                       common.RESULTS / f"{name}.json"))


if __name__ == "__main__":
    cli.main(lambda argv: main())
