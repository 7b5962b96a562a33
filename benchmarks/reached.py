"""The scores of methods on public data, by the results files, for `train --dry-run` to quote.

python -m benchmarks.results_page     # writes it, with the pages of figures
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

from benchmarks.results_systems import system_rows
from benchmarks.results_tables import ROOT
from benchmarks.tables.measures import CLASSIFIERS
from dpgen_jax import methods

IMAGES = {"mnist": 60_000, "fashion": 60_000}
"""Training records of data sets of images, all of 28 x 28 x 1."""
PATH = ROOT / "dpgen_jax" / "presets" / "reached.json"


def text() -> str:
    """Returns the file, a line for each row: what a method reached, on what, in what time."""
    return "[\n" + ",\n".join(f" {json.dumps(row)}" for row in (*_images(), *_tables())) + "\n]\n"


def _images() -> list[dict[str, Any]]:
    return [{"method": row["method"].removesuffix("-gradients"), "kind": "images",
             "data": f"{row['dataset']} ({IMAGES[row['dataset']]:,} images of 28 x 28 x 1)",
             "records": IMAGES[row["dataset"]], "flags": _fewer(row),
             "epsilon": float(row["epsilon"]), "measure": "accuracy of a CNN",
             "score": round(row["gen2real"]["cnn"]["accuracy"]["mean"], 3),
             "seconds": math.ceil(row["training_seconds"]), "file": row["file"]}
            for row in system_rows() if math.isfinite(float(row["epsilon"]))
            and row["method"].removesuffix("-gradients") in methods.NAMES]


def _fewer(row: dict[str, Any]) -> str:
    """The flag of a row that took fewer steps than its preset."""
    return f"--steps {row['steps']}" * (row["steps"] < (row["preset_steps"] or 0))


def _tables() -> list[dict[str, Any]]:
    """Rows of this library's methods; a measure that a table does not have is left out."""
    rows = []
    for path in sorted((ROOT / "benchmarks/results/tables").glob("*-eps*.json")):
        cell = json.loads(path.read_text())["results"]
        scores = [cell.get("scores", {}).get(name, {}).get("mean") for name in CLASSIFIERS]
        if cell.get("method") in methods.NAMES and None not in scores:
            seconds = statistics.median(run["wall_seconds"] for run in cell["runs"])
            rows.append({"method": cell["method"], "kind": "table",
                         "data": f"{cell['table']} ({cell['rows']:,} rows)",
                         "records": cell["rows"], "flags": " ".join(cell["flags"]),
                         "epsilon": float(cell["epsilon"]), "measure": "mean AUROC of classifiers",
                         "score": round(math.fsum(scores) / len(scores), 3),
                         "seconds": math.ceil(seconds), "file": f"tables/{path.name}"})
    return rows
