r"""A tree, a graphical model or a network: which model of the same released counts is nearer?

    python -m benchmarks.table_models                          # what is missing of all tables
    python -m benchmarks.table_models --tables dense --epsilon 10 --runs 4

Each run is a simulation (`benchmarks.tables.simulation`): the method's own steps, on exact counts
and NumPy's noise. All models of a run read the same releases. Run i trains on three quarters of the
training rows and is tested on the others, which are other ones for each of four runs: no test row
is read. Where a class is below 1 %, classifiers learn from all synthetic rows of it.

The record is results/table_models.json, written after every run; the script goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax

from benchmarks import common
from benchmarks.tables import cells, data
from benchmarks.tables.simulation import Simulation, rows_of
from dpgen_jax.cli import terminal
from dpgen_jax.core.console import tell
from dpgen_jax.methods import marginals

TABLES = ("loans", "adult", "dense", "rare", "diabetes", "wine", "credit")
MODELS = get_args(get_type_hints(marginals.Config)["model"])
Scores = dict[str, dict[str, dict[str, list[dict[str, float]]]]]


def run(table: str, epsilon: float, index: int, models: Sequence[str]
        ) -> dict[str, dict[str, float]]:
    """Return the scores of models on the same releases, and their CPU seconds.

    These are of the fit and the drawing, compilation included.
    """
    jax.clear_caches()  # each run compiles programs of its own, which stay in memory
    dataset = data.validation(table, index % data.VALIDATION_PARTS)
    simulation = Simulation(dataset, index, epsilon)
    public = simulation.step(simulation.first_four())
    test, found = (dataset.x_test, dataset.y_test), {}
    for model in models:
        before = time.process_time()
        rows = rows_of(simulation, public, cells.wanted(dataset), model)
        seconds = time.process_time() - before
        found[model] = cells.measured(rows, test, dataset.spec, index) | {"cpu_seconds": seconds}
    return found


def written(path: Path) -> Scores:
    """Return the scores that are there: by epsilon, table and model, of each run."""
    return json.loads(path.read_text())["results"]["scores"] if path.exists() else {}


def main(argv: list[str]) -> None:
    """Make the runs that are missing, the first of all tables before the second of any."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=data.COMPARED)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=common.RESULTS / "table_models.json")
    args = parser.parse_args(argv)
    where, found = common.machine(), written(args.out)
    flags = ["--tables", *args.tables, "--epsilon", *map(str, args.epsilon),
             "--runs", str(args.runs)]
    todo = [(index, epsilon, table) for index in range(args.runs) for epsilon in args.epsilon
            for table in args.tables]
    for index, epsilon, table in todo:
        of_table = found.setdefault(f"{epsilon:g}", {}).setdefault(table, {})
        missing = [model for model in MODELS if len(of_table.get(model, ())) <= index]
        if not missing:
            continue
        for model, scores in run(table, epsilon, index, missing).items():
            of_table.setdefault(model, []).append(scores)
            tell(f"epsilon {epsilon:g}, {table}, run {index + 1}, {model}: "
                 + ", ".join(f"{name} {value:.3f}" for name, value in scores.items()))
        results: dict[str, Any] = {
            "part": "validation", "delta": cells.DELTA, "simulated": True, "scores": found,
            "measures": f"{cells.ABOUT}; {cells.FURTHER}"}
        common.write(common.record("table_models", flags, range(args.runs), results, where),
                     args.out)


if __name__ == "__main__":
    terminal.main(main)
