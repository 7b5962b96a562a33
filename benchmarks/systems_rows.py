"""The results files of `benchmarks.systems`: one for each row, in results/systems.

METHOD-DATA-epsEPSILON.json is of the fast evaluation and replaced records; `-full` and `-zero-out`
behind it are of the full evaluation and of the weaker promise. A file has one row and the command,
the machine, the versions, the commit and the seeds of that row alone, so that a run that stops
loses no other row. Rows of before there were such files (until 2026-11-26) have the command and
the commit of the call that last collected them with others; their `trained_with` is their own.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax.core.run_folder import read_json

REPLACE_ONE = "replace-one"


def name(method: str, data: str, epsilon: float, full: bool = False, relation: str = REPLACE_ONE
         ) -> str:
    """Return the name of a row's file, without its ending."""
    return (f"{method}-{data}-eps{epsilon:g}{'-full' * full}"
            f"{f'-{relation}' * (relation != REPLACE_ONE)}")


def words(args: argparse.Namespace, row: Mapping[str, Any]) -> list[str]:
    """Return the flags of `benchmarks.systems` that make one row."""
    method, data, epsilon = row["method"], row["dataset"], float(row["epsilon"])
    named = [] if math.isinf(epsilon) else ["--epsilon", f"{epsilon:g}"]
    return ["--methods", method, "--dataset", data, *named, *["--full"] * args.full,
            "--metrics", *args.metrics, "--classifiers", *args.classifiers,
            "--seeds", str(args.seeds), *["--more"] * args.more,
            *["--short"] * row.get("short", False),
            *["--inception-weights", "WEIGHTS"] * bool(args.inception_weights),
            *[f"--repeats={args.repeats}"] * bool(args.repeats),
            *[f"--relation={args.relation}"] * (args.relation != REPLACE_ONE)]


def folder() -> Path:
    """Return the folder of all rows."""
    return common.RESULTS / "systems"


def write(named: str, record: dict[str, Any]) -> Path:
    """Write the record of a row.

    A row that failed, or has fewer trainings or metrics than the one that is there, is printed,
    and what was measured stays.
    """
    path = folder() / f"{named}.json"
    if path.exists() and _poorer(record["results"]["row"], read_json(path)["results"]["row"]):
        print(f"{path.name} stays: it has more trainings or metrics; delete it to replace it")
        return path
    return common.write(record, path)


def counted(args: argparse.Namespace, method: str, data: str, epsilon: float
            ) -> dict[str, Any] | None:
    """Return the row that a file has, where it is of one training with the metrics that are asked.

    Its run folder need not be there. None for a row of several trainings, which has no scores of
    each, for one that failed and where there is none.
    """
    path = folder() / f"{name(method, data, epsilon, args.full, args.relation)}.json"
    row = read_json(path)["results"]["row"] if path.exists() else {}
    single = "error" not in row and row.get("repeats", 1) == 1
    return row if single and set(args.metrics) <= row.keys() else None


def _poorer(row: dict[str, Any], there: dict[str, Any]) -> bool:
    """Whether a row has less than one that is there."""
    metrics = [{name for name in ("gen2real", "fidelity") if one.get(name)} for one in (row, there)]
    return "error" not in there and (
        "error" in row or metrics[0] < metrics[1]
        or row.get("repeats", 1) < there.get("repeats", 1))


def recorded(data: Collection[str], full: bool = False, relation: str = REPLACE_ONE
             ) -> list[dict[str, Any]]:
    """Return the rows of these data sets that have a file, by method, data set and epsilon.

    Args:
      data: Names of data sets.
      full: Whether those of the full evaluation, or those of the fast one.
      relation: Of neighbours.
    """
    rows = []
    for path in folder().glob("*.json"):
        row = read_json(path)["results"]["row"]
        if row["dataset"] in data and path.stem == name(
                row["method"], row["dataset"], float(row["epsilon"]), full, relation):
            rows.append(row | {"file": f"systems/{path.name}"})
    return sorted(rows, key=lambda row: (row["method"], row["dataset"], float(row["epsilon"])))
