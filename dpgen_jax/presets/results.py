"""The scores of methods on public data, as the results files of the benchmarks say."""

from __future__ import annotations

import functools
import json
import textwrap
from importlib import resources

from dpgen_jax.core.strict_json import Json

BEST_ON_TABLES = "marginals"
"""The method for tables that the others are compared with."""


@functools.cache
def reached() -> list[Json]:
    """Returns a row for each method, data set and epsilon that was measured."""
    rows: list[Json] = json.loads(
        resources.files("dpgen_jax.presets").joinpath("reached.json").read_text("utf-8"))
    return rows


def on_tables(method: str) -> list[str]:
    """Returns lines that compare a method on tables with the one that is chosen for them.

    Args:
        method: Its name.
    """
    rows = {(row["method"], row["epsilon"], row["data"].split(" (")[0]): row["score"]
            for row in reached() if row["kind"] == "table"}
    shown = []
    for epsilon in sorted({epsilon for name, epsilon, _ in rows if name == method}):
        scores = [f"{table} {score:.3f}" + _beside(rows, method, epsilon, table)
                  for (name, at, table), score in rows.items() if (name, at) == (method, epsilon)]
        shown += textwrap.wrap(f"  epsilon {epsilon:g}: {', '.join(scores)}", 99,
                               subsequent_indent="    ")
    if not shown:
        return [f"on tables {method} has no result here; for them there is {BEST_ON_TABLES}"]
    beside = f"; in brackets {BEST_ON_TABLES}" * (method != BEST_ON_TABLES)
    head = f"on tables, mean AUROC of classifiers (runs, settings: docs/tables.md){beside}:"
    return [head, *shown]


def _beside(rows: dict[tuple[str, float, str], float], method: str, epsilon: float, table: str
            ) -> str:
    """Returns what the method for tables reached on the same table, in brackets, if it was run."""
    best = rows.get((BEST_ON_TABLES, epsilon, table))
    return "" if best is None or method == BEST_ON_TABLES else f" ({best:.3f})"
