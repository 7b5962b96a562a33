"""Measure the memory in which a large table is read and trained on: peak resident bytes a row.

    python -m benchmarks.large_table --rows 250000 1000000

A table of 20 columns is written (12 numbers, 7 of categories, and the label), and `train marginals`
runs on it in a process of its own, as a user types it: a fifth of the rows is held out, and
all else stays at its default. The table is drawn by a public seed; the noise is of the system.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common

MODULE = "benchmarks.large_table"
NUMBERS, CATEGORIES = 12, 7
BLOCK = 20_000
"""Rows that are written at a time."""


def schema() -> str:
    """Return the schema of the table."""
    lines = ["label: y", "columns:"]
    lines += [f"  n{i}: {{kind: continuous, min: 0, max: 1000}}" for i in range(NUMBERS)]
    lines += [f"  c{i}: {{kind: categorical, categories: [a, b, c, d]}}" for i in range(CATEGORIES)]
    return "\n".join([*lines, '  y: {kind: categorical, categories: ["no", "yes"]}', ""])


def write_table(path: Path, rows: int, seed: int) -> None:
    """Write a table whose columns depend on the label.

    Args:
      path: The CSV file.
      rows: The number of rows.
      seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    names = [*(f"n{i}" for i in range(NUMBERS)), *(f"c{i}" for i in range(CATEGORIES)), "y"]
    with path.open("w") as file:
        file.write(",".join(names) + "\n")
        for first in range(0, rows, BLOCK):
            n = min(BLOCK, rows - first)
            y = rng.integers(0, 2, n)
            numbers = np.clip(rng.normal(400 + 200 * y[:, None], 150, (n, NUMBERS)), 0, 1000)
            texts = np.array(list("abcd"))[rng.integers(0, 3, (n, CATEGORIES)) + y[:, None]]
            file.writelines(
                ",".join([*(f"{v:.2f}" for v in row), *cells, ("no", "yes")[label]]) + "\n"
                for row, cells, label in zip(numbers.tolist(), texts.tolist(), y.tolist(),
                                             strict=True))


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Train as the command line does, and return the peak of this process.

    Args:
      case: `rows` and `seed` of the table, and `method`.
    """
    from dpgen_jax import train

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(folder / "table.csv", case["rows"], case["seed"])
        (folder / "schema.yaml").write_text(schema())
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.perf_counter()
        train.command([case["method"], "--dataset", f"csv:{folder / 'table.csv'}", "--schema",
                       str(folder / "schema.yaml"), "--epsilon", "1", "--out",
                       str(folder / "run"), "--no-progress"])
        seconds = time.perf_counter() - started
        size = (folder / "table.csv").stat().st_size
    after = resource.getrusage(resource.RUSAGE_SELF)
    return case | {"file_bytes": size, "seconds": seconds,
                   "cpu_seconds": after.ru_utime - before.ru_utime,
                   "peak_resident_bytes_before": 1024 * before.ru_maxrss,
                   "peak_resident_bytes": 1024 * after.ru_maxrss}


def slope(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the peak resident bytes of a row, and of no row, by the smallest and the largest case.

    Args:
      cases: What was measured, of two numbers of rows at least.
    """
    low, high = (limit(cases, key=lambda case: case["rows"]) for limit in (min, max))
    a_row = (high["peak_resident_bytes"] - low["peak_resident_bytes"]) / (
        high["rows"] - low["rows"])
    return {"bytes_a_row": a_row,
            "bytes_of_no_row": low["peak_resident_bytes"] - a_row * low["rows"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line says, print it and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 1_000_000])
    parser.add_argument("--method", default="marginals")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    args = parser.parse_args(argv)
    where, cases = common.machine(), []
    for rows in args.rows:
        case = {"method": args.method, "rows": rows, "columns": NUMBERS + CATEGORIES + 1,
                "seed": args.seed}
        cases.append(common.apart(MODULE, case, {}))
        print(json.dumps(cases[-1]), flush=True)
        if "error" in cases[-1]:
            return 1
    results = {"cases": cases, **({"slope": slope(cases)} if len(cases) > 1 else {})}
    words = ["--rows", *map(str, args.rows)]
    print(common.write(common.record("large_table", words, [args.seed], results, where), args.out))
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        found = measured(json.loads(sys.argv[1]))
        print(json.dumps(found))
    else:
        sys.exit(main())
