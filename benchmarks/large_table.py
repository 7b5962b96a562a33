r"""Measure the memory in which a large table is read and trained on: peak resident bytes a row.

    python -m benchmarks.large_table --rows 250000 1000000
    python -m benchmarks.large_table --rows 1000 --columns 10000 --out \
        benchmarks/results/wide_table.json

A table is written (of 20 columns 12 are numbers, 7 of categories, and one is the label), and `train
marginals` runs on it in a process of its own, as a user types it: a fifth of the rows is held out,
and all else stays at its default. The table is drawn by a public seed; the noise is of the system.
The record holds what the run announced of its memory, beside the peak.
"""

import contextlib
import io
import json
import resource
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common

MODULE = "benchmarks.large_table"
NUMBERS = 12 / 19
"""The share of numbers among the columns that are not the label."""
BLOCK = 20_000
"""Rows that are written at a time."""


def names(columns: int) -> tuple[list[str], list[str]]:
    """Return the names of the numbers and of the categories of so many columns, the label's apart.
    """
    numbers = round(NUMBERS * (columns - 1))
    return ([f"n{i}" for i in range(numbers)], [f"c{i}" for i in range(columns - 1 - numbers)])


def schema(columns: int) -> str:
    numbers, categories = names(columns)
    lines = ["label: y", "columns:"]
    lines += [f"  {name}: {{kind: continuous, min: 0, max: 1000}}" for name in numbers]
    lines += [f"  {name}: {{kind: categorical, categories: [a, b, c, d]}}" for name in categories]
    return "\n".join([*lines, '  y: {kind: categorical, categories: ["no", "yes"]}', ""])


def write_table(path: Path, rows: int, columns: int, seed: int) -> None:
    """Write a table whose columns depend on the label."""
    rng = np.random.default_rng(seed)
    of_numbers, of_categories = names(columns)
    with path.open("w") as file:
        file.write(",".join([*of_numbers, *of_categories, "y"]) + "\n")
        for first in range(0, rows, BLOCK):
            n = min(BLOCK, rows - first)
            y = rng.integers(0, 2, n)
            numbers = np.clip(rng.normal(400 + 200 * y[:, None], 150, (n, len(of_numbers))), 0,
                              1000)
            texts = np.array(list("abcd"))[
                rng.integers(0, 3, (n, len(of_categories))) + y[:, None]]
            file.writelines(
                ",".join([*(f"{v:.2f}" for v in row), *cells, ("no", "yes")[label]]) + "\n"
                for row, cells, label in zip(numbers.tolist(), texts.tolist(), y.tolist(),
                                             strict=True))


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """Train as the command line does, and return the peak of this process."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(folder / "table.csv", case["rows"], case["columns"], case["seed"])
        (folder / "schema.yaml").write_text(schema(case["columns"]))
        size = (folder / "table.csv").stat().st_size
        return case | {"file_bytes": size} | trained([
            case["method"], "--dataset", f"csv:{folder / 'table.csv'}", "--schema",
            str(folder / "schema.yaml"), "--epsilon", "1", "--out", str(folder / "run")])


def trained(words: Sequence[str]) -> dict[str, Any]:
    """Train in this process, and return what it took and what was announced.

    Returns:
      "peak_resident_bytes" with the pages of mapped files, which the system may drop, and
      "peak_anonymous_bytes" without them, sampled; and the rest.
    """
    from dpgen_jax import train

    before, clock = resource.getrusage(resource.RUSAGE_SELF), common.Stopwatch()
    sampled, over = [0], threading.Event()

    def sample() -> None:
        while not over.wait(0.2):
            sampled.append(common.kilobytes("/proc/self/status", "RssAnon"))

    threading.Thread(target=sample, daemon=True).start()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        train.command([*words, "--no-progress"])
    over.set()
    after = resource.getrusage(resource.RUSAGE_SELF)
    announced = next(line for line in said.getvalue().splitlines() if line.startswith("memory: "))
    return {"seconds": clock.seconds(), "announced": announced,
            "cpu_seconds": after.ru_utime - before.ru_utime,
            "peak_resident_bytes_before": 1024 * before.ru_maxrss,
            "peak_resident_bytes": 1024 * after.ru_maxrss, "peak_anonymous_bytes": max(sampled)}


def slope(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the peak resident bytes of a row, and of none, by the smallest and largest case."""
    low, high = (limit(cases, key=lambda case: case["rows"]) for limit in (min, max))
    each = (high["peak_resident_bytes"] - low["peak_resident_bytes"]) / (high["rows"] - low["rows"])
    return {"bytes_a_row": each, "bytes_of_no_row": low["peak_resident_bytes"] - each * low["rows"]}


def main(argv: Sequence[str] | None = None) -> int:
    script = common.Script("large_table", __doc__)
    script.add_argument("--rows", type=int, nargs="+", default=[250_000, 1_000_000])
    script.add_argument("--columns", type=int, default=20, help="the label among them")
    script.add_argument("--method", default="marginals")
    script.add_argument("--seed", type=int, default=0)
    args, cases = script.begin(argv), list[dict[str, Any]]()
    for rows in args.rows:
        case = {"method": args.method, "rows": rows, "columns": args.columns, "seed": args.seed}
        cases.append(common.apart(MODULE, case, {}))
        print(json.dumps(cases[-1]), flush=True)
        if "error" in cases[-1]:
            return 1
    results = {"cases": cases, **({"slope": slope(cases)} if len(cases) > 1 else {})}
    print(script.save(results, [args.seed]))
    return 0


if __name__ == "__main__":
    common.entry(main, measured)
