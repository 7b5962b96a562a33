r"""Constants of `marginals` on validation parts of training rows: no test row is read.

    python -m benchmarks.table_settings                          # what is missing of all tables
    python -m benchmarks.table_settings --tables credit --runs 4

Each run is a simulation (`benchmarks.tables.simulation`): the method's own steps at epsilon 1, on
exact counts and NumPy's noise. Run i trains on three quarters of the training rows and is tested on
the others, which are other ones for each of four runs; the same run of all settings has one noise.
Where a class is below 1 %, classifiers learn from all synthetic rows of it.

The record is results/table_settings.json, written after every run; the script goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from benchmarks import common
from benchmarks.tables import cells, data
from benchmarks.tables.simulation import EPSILON, Simulation, rows_of
from dpgen_jax.cli import terminal
from dpgen_jax.core.console import tell
from dpgen_jax.methods.shared import table_rounds, table_tree

TABLES = ("credit", "loans", "diabetes", "wine", "rare", "breast_cancer", "adult", "dense",
          "digits")
Constants = Mapping[tuple[ModuleType, str], float]
ALIKE = {"rare_share": 0.0}
"""Records of all classes vote for the same tables, as they did when the constants were chosen."""
SETTINGS: dict[str, tuple[Mapping[str, float], Constants]] = {
    "as it is": ({}, {}),
    "weight_label 0": ({"weight_label": 0.0}, {}),
    "weight_label 0.3": ({"weight_label": 0.3}, {}),
    "weight_label 3": ({"weight_label": 3.0}, {}),
    "rare_share 0.1": ({"rare_share": 0.1}, {}),
    "rare_share 0": (ALIKE, {}),
    "rare_share 0, no shapes of classes": (ALIKE, {(table_tree, "SHAPED"): 0.0}),
    "rare_share 0, EVEN 0": (ALIKE, {(table_rounds, "EVEN"): 0.0}),
    "rare_share 0, EVEN 0.3": (ALIKE, {(table_rounds, "EVEN"): 0.3}),
    "rare_share 0, PRICE 0": (ALIKE, {(table_rounds, "PRICE"): 0.0}),
    "rare_share 0, PRICE 16": (ALIKE, {(table_rounds, "PRICE"): 16.0}),
}
"""Name -> what the configuration has otherwise, and the constants that are set otherwise."""


@contextlib.contextmanager
def constants(changed: Constants) -> Iterator[None]:
    """Set constants of modules for a while."""
    before = {place: getattr(*place) for place in changed}
    try:
        for (module, name), value in changed.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def run(table: str, setting: str, index: int) -> dict[str, float]:
    """Return the scores of one run on a validation part."""
    jax.clear_caches()  # each run compiles programs of its own, which stay in memory
    dataset = data.validation(table, index % data.VALIDATION_PARTS)
    config, changed = SETTINGS[setting]
    with constants(changed):
        simulation = Simulation(dataset, index, **config)
        public = simulation.step(simulation.first_four())
        rows = rows_of(simulation, public, cells.wanted(dataset))
    return cells.measured(rows, (dataset.x_test, dataset.y_test), dataset.spec, index)


def written(path: Path) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Return the scores that are there: of tables, of settings, of runs."""
    return json.loads(path.read_text())["results"]["scores"] if path.exists() else {}


def main(argv: list[str]) -> None:
    """Make the runs that are missing, the first of all settings before the second of any."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=data.COMPARED)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the results file")
    args = parser.parse_args(argv)
    path = args.out or common.RESULTS / "table_settings.json"
    where, found = common.machine(), written(path)
    flags = ["--tables", *args.tables, "--runs", str(args.runs)]
    for table in args.tables:
        for index in range(args.runs):
            for setting in args.settings:
                made = found.setdefault(table, {}).setdefault(setting, [])
                if len(made) > index:
                    continue
                made.append(run(table, setting, index))
                tell(f"{table}, {setting}, run {index + 1}: "
                     + ", ".join(f"{name} {value:.3f}" for name, value in made[-1].items()))
                results: dict[str, Any] = {"epsilon": EPSILON, "part": "validation",
                                           "delta": cells.DELTA, "measures": cells.ABOUT,
                                           "simulated": True, "scores": found}
                common.write(common.record("table_settings", flags, range(args.runs), results,
                                           where), path)


if __name__ == "__main__":
    terminal.main(main)
