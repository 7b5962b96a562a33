r"""Train a preset on a table several times, and evaluate each release.

    python -m benchmarks.table_presets --preset adult --dataset adult:adult
    python -m benchmarks.table_presets --preset credit-sample --schema creditcard \
        --dataset csv:creditcard_20pct/train.csv.gz --test-csv creditcard_20pct/test.csv.gz
    python -m benchmarks.table_presets --preset credit --schema creditcard_kaggle --delta 1e-6 \
        --dataset csv:creditcard.csv --leave-out Time --test-fraction 0.2

Each training run draws its noise from the operating system; classifiers are trained on synthetic
rows as `evaluate` does it, and tested once on rows that no training saw; nothing is chosen on them.
The spread is over training runs, with one seed of each classifier a run. The record is
results/tables-DATA-PRESET.json, of other methods than G-PATE tables-DATA-METHOD-PRESET.json. It is
written after every run: the same command goes on where it stopped, another one begins anew.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax import data, presets
from dpgen_jax.cli import terminal
from dpgen_jax.core.config import Budget, Evaluation, Metric, Runtime, to_json
from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import schema
from dpgen_jax.evaluation import assess
from dpgen_jax.evaluation.results import Real, Synthetic, summary
from dpgen_jax.run import lifecycle


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    script = common.Script("table_presets", __doc__, record=None)
    script.add_argument("--method", default="gpate")
    script.add_argument("--preset", required=True)
    script.add_argument("--dataset", required=True)
    script.add_argument("--schema")
    script.add_argument("--leave-out", metavar="COLUMN", help="of the schema, and not learned")
    script.add_argument("--test-csv")
    script.add_argument("--test-fraction", type=float)
    script.add_argument("--delta", type=float, help="the preset's if left out")
    script.add_argument("--runs", "--repeats", type=int, default=3, help="trainings")
    script.add_argument("--samples", type=int, default=10_000)
    args = script.begin(argv)
    args.script = script
    return args


def loaded(args: argparse.Namespace) -> data.Dataset:
    """Load the table, without the column that is left out."""
    with tempfile.TemporaryDirectory() as folder:
        source = args.schema
        if args.leave_out:
            source = str(Path(folder) / "schema.yaml")
            Path(source).write_text(json.dumps(without(args.schema, args.leave_out)))
        return data.load(args.dataset, schema=source, test_csv=args.test_csv,
                         test_fraction=args.test_fraction)


def without(source: str | None, column: str) -> Any:
    """Return the document of a schema with one column as an identifier, which nothing reads."""
    path = schema.PACKAGED / f"{source}.yaml" if source in schema.NAMES else source
    document = schema.document(str(path)) if path else {"columns": {}}
    if column not in document["columns"]:
        raise UserError(f"--leave-out {column}: --schema declares no such column")
    document["columns"][column] = {"kind": "identifier", "pattern": "#" * 9}
    return document


def train(args: argparse.Namespace, dataset: data.Dataset) -> tuple[lifecycle.Release, float]:
    """Return a release, and the seconds that it took from sealed records to files."""
    name, preset = presets.get(args.method, args.preset)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        release = lifecycle.run(lifecycle.Resolved(
            args.method, name, preset.config,
            Budget(preset.epsilon, args.delta or preset.delta, preset.class_epsilon),
            Runtime(), Path(folder) / "run"), dataset, lambda line: print(line, flush=True))
    return release, time.perf_counter() - started


def evaluate(args: argparse.Namespace, dataset: data.Dataset, release: lifecycle.Release, run: int
             ) -> dict[str, Any]:
    """Measure what `evaluate` measures, with one seed; real on real in the first run only."""
    tasks: tuple[Metric, ...] = ("gen2real", "real2real") if run == 0 else ("gen2real",)
    return assess.measured(
        Real(dataset.spec, (dataset.x_test, dataset.y_test), (dataset.x_train, dataset.y_train)),
        Synthetic(lambda n, seed: release.encoded(n, seed=seed)),
        Evaluation((*tasks, "fidelity"), samples=args.samples, seeds=1)).json()


def over_runs(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the leaves of all runs into one `summary` each; other entries are of the first run."""
    first = evaluations[0]
    if "values" in first:
        floor = {"floor": first["floor"]} if "floor" in first else {}
        return summary([run["values"][0] for run in evaluations]) | floor
    return {key: over_runs([run[key] for run in evaluations if key in run])
            if isinstance(value, dict) else value for key, value in first.items()}


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    terminal.use_all_cores()
    dataset, script = loaded(args), args.script
    method = "" if args.method == "gpate" else f"{args.method}-"
    stem = f"tables-{dataset.name}-{method}{args.preset}"
    preset = to_json(presets.get(args.method, args.preset)[1])
    asked = [word for word in script.words if not word.startswith(("--runs", "--repeats"))]
    known = script.earlier(stem)
    same = (known.get("asked"), known.get("preset")) == (asked, preset)
    runs = known["runs"] if same else []
    while len(runs) < args.runs:
        release, took = train(args, dataset)
        runs.append({"privacy": to_json(release.privacy), "training_seconds": took,
                     "evaluation": evaluate(args, dataset, release, len(runs))})
        auroc = {name: v["auroc"]["mean"] for name, v in runs[-1]["evaluation"]["gen2real"].items()}
        print(f"run {len(runs)}: {took:.0f} s, AUROC {auroc}", flush=True)
        script.save({
            "dataset": dataset.name, "asked": asked, "preset": preset,
            "privacy": runs[-1]["privacy"],
            "training_seconds": [run["training_seconds"] for run in runs],
            "peak_bytes": common.peak_bytes(),
            "randomness_of_training": runs[-1]["privacy"]["noise_source"],
            "evaluation": over_runs([run["evaluation"] for run in runs]), "runs": runs},
            range(args.runs), stem)


if __name__ == "__main__":
    terminal.main(main)
