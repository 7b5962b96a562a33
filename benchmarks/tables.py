"""Trains a preset on a table several times, evaluates each release, and writes what came out.

    python -m benchmarks.tables --preset adult --dataset adult:adult
    python -m benchmarks.tables --preset credit-sample --schema creditcard \\
        --dataset csv:creditcard_20pct/train.csv.gz --test-csv creditcard_20pct/test.csv.gz

Each training run draws its noise from the operating system; classifiers are trained on synthetic
rows as `evaluate` does it, and judged once on rows that no training saw. The spread is over
training runs, with one seed of each classifier a run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import api, cli, data, presets
from dpgen_jax.config import Budget, Runtime
from dpgen_jax.evaluation import tables
from dpgen_jax.evaluation.scores import summary


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--method", default="gpate")
    parser.add_argument("--preset", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--schema")
    parser.add_argument("--test-csv")
    parser.add_argument("--runs", type=int, default=3, help="trainings")
    parser.add_argument("--samples", type=int, default=10_000)
    return parser.parse_args()


def train(given: argparse.Namespace, loaded: data.Dataset) -> tuple[api.Release, float]:
    """One release, and the seconds that it took from sealed records to files."""
    name, chosen = presets.get(given.method, given.preset)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        release = api.run(api.Run(
            given.method, name, chosen.config,
            Budget(chosen.epsilon, chosen.delta, chosen.class_epsilon),
            Runtime(), Path(folder) / "run"), loaded, say=lambda line: print(line, flush=True))
    return release, time.perf_counter() - started


def evaluate(given: argparse.Namespace, loaded: data.Dataset, release: api.Release, run: int
             ) -> dict[str, Any]:
    """What `evaluate` measures, with one seed; real on real in the first run only."""
    tasks = ("gen2real", "real2real") if run == 0 else ("gen2real",)
    return tables.utility(
        lambda n, seed: release.encoded(n, seed=seed), (loaded.x_test, loaded.y_test),
        (loaded.x_train, loaded.y_train), loaded.spec, 1, tasks=tasks, n_samples=given.samples)


def over_runs(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The leaves of all runs, as one `summary` each; other entries as in the first run."""
    first = found[0]
    if "values" in first:
        floor = {"floor": first["floor"]} if "floor" in first else {}
        return summary([run["values"][0] for run in found]) | floor
    return {key: over_runs([run[key] for run in found if key in run])
            if isinstance(value, dict) else value for key, value in first.items()}


def main() -> None:
    given = arguments()
    cli.use_all_cores()
    loaded = data.load(given.dataset, schema=given.schema, test_csv=given.test_csv)
    where, seconds, found = common.machine(), [], []
    for run in range(given.runs):
        release, took = train(given, loaded)
        seconds.append(took)
        found.append(evaluate(given, loaded, release, run))
        auroc = {name: v["auroc"]["mean"] for name, v in found[-1]["gen2real"].items()}
        print(f"run {run}: {took:.0f} s, AUROC {auroc}", flush=True)
    shown = [f"--{name.replace('_', '-')}={value}" for name, value in vars(given).items() if value]
    results = {
        "dataset": loaded.name, "privacy": release.privacy, "training_seconds": seconds,
        "peak_bytes": common.peak_bytes(),
        "randomness_of_training": release.privacy["noise_source"], "evaluation": over_runs(found)}
    common.write(common.record("tables", shown, range(given.runs), results, where),
                 common.RESULTS / f"tables-{loaded.name}-{given.preset}.json")


if __name__ == "__main__":
    cli.main(lambda argv: main())
