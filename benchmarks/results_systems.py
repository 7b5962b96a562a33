"""The rows of `benchmarks.systems` for `benchmarks.results_page`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from benchmarks import scenes, systems, systems_rows


@functools.cache
def system_rows(data: tuple[str, ...] = tuple(systems.DATA), full: bool = False,
                relation: str = systems_rows.REPLACE_ONE) -> list[dict[str, Any]]:
    """Returns the rows of `benchmarks.systems`, of data sets, an evaluation and a relation.

    A row that failed, and one without a CNN, is left out.
    """
    return [row for row in systems_rows.recorded(data, full, relation)
            if "cnn" in row.get("gen2real", {})]


def system_row(method: str, dataset: str, epsilon: float | str) -> dict[str, Any]:
    """Returns the row of one system in the fast evaluation."""
    return next(row for row in system_rows() if (
        row["method"], row["dataset"], row["epsilon"]) == (method, dataset, epsilon))


def systems_table(methods: Sequence[str] = (), **which: Any) -> str:
    """Returns all private systems, or those named, by the mean of their CNN accuracies.

    Args:
        methods: those that are shown; all, if none is named.
        which: the rows, as for `system_rows`.
    """
    rows = [row for row in system_rows(**which) if row["epsilon"] in systems.EPSILONS
            and (not methods or row["method"] in methods)]
    sums: dict[str, list[float]] = {}
    for row in rows:
        sums.setdefault(row["method"], []).append(row["gen2real"]["cnn"]["accuracy"]["mean"])
    order = sorted(sums, key=lambda name: -math.fsum(sums[name]))
    rows.sort(key=lambda row: order.index(row["method"]))
    head, rule, *lines = systems.table(rows).strip().split("\n")
    for short, name in (("mnist,", "MNIST,"), ("fashion,", "Fashion-MNIST,"),
                        ("cifar,", "CIFAR-10,"),
                        *((f"{name},", f"{classes} classes, {images:,} images,")
                          for name, (classes, images) in scenes.SETS.items())):
        head = head.replace(f"| {short}", f"| {name}")
    return "\n".join([head, rule, *(line.replace("*", "\\*") for line in lines)])
