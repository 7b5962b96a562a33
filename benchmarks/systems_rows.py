"""The results files of `benchmarks.systems`: one for each row, in results/systems.

METHOD-DATA-epsEPSILON.json is of the fast evaluation and replaced records; `-full` and `-zero-out`
behind it are of the full evaluation and of the weaker promise. A file has one row and the command,
the machine, the versions, the commit and the seeds of that row alone, so that a run that stops
loses no other row.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks import common
from dpgen_jax.run.folder import read_json

REPLACE_ONE = "replace-one"


def name(method: str, data: str, epsilon: float, full: bool = False, relation: str = REPLACE_ONE
         ) -> str:
    """Return the name of a row's file, without its ending."""
    return (f"{method}-{data}-eps{epsilon:g}{'-full' * full}"
            f"{f'-{relation}' * (relation != REPLACE_ONE)}")


def folder() -> Path:
    """Return the folder of all rows."""
    return common.RESULTS / "systems"


def write(named: str, record: dict[str, Any]) -> Path:
    """Write the record of a row.

    A row that failed has no file where one is already: it is printed, and what was measured stays.
    """
    path = folder() / f"{named}.json"
    if "error" in record["results"]["row"] and path.exists():
        return path
    return common.write(record, path)


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
