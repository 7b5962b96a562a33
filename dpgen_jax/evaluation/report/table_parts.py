"""The tables of the report that only tables of records have."""

from __future__ import annotations

from collections.abc import Sequence

from dpgen_jax.core.strict_json import Json
from dpgen_jax.evaluation.report.tables import TASKS, cell, floor_cell, from_real, kinds
from dpgen_jax.evaluation.scores import percent
from dpgen_jax.release.render import NOTHING, Cell, Table, label, number, score, table

SHOWN = 2
"""Kinds of scores of a target that are shown."""


def targets(metrics: Json) -> list[Table]:
    """Return a table for each target, with a row a model and a column a score and task."""
    tables, real = [], from_real(metrics)
    for name, part in metrics.get("targets", {}).items():
        tasks = [task for task in TASKS if part.get(task)]
        columns = [(kind, task) for kind in kinds(part, tasks)[:SHOWN] for task in tasks]
        models = dict.fromkeys(model for task in tasks for model in part[task])
        rows = [(label(model), [cell(f"targets.{name}.{task}.{model}", part[task].get(model, {}),
                                     kind, real) for kind, task in columns]) for model in models]
        heads = [f"{label(kind)}, {TASKS[task]}" for kind, task in columns]
        if rows:
            tables.append(table(f"{name}, predicted from the other columns", ["model", *heads],
                                rows))
    return tables


def subgroups(metrics: Json) -> list[Table]:
    """Return a table for each grouping, with a row a subgroup."""
    groups = metrics.get("subgroups", ())
    return [_grouped(by, [group for group in groups if group["by"] == by])
            for by in dict.fromkeys(group["by"] for group in groups)]


def _grouped(by: str, groups: Sequence[Json]) -> Table:
    """Return the table of one grouping."""
    metric = next((group["metric"] for group in groups if "metric" in group), "")
    tasks = ("gen2real", "real2real") if metric else ()
    heads = ["held-out rows", *["of the rarest class"] * (metric == "auroc"), "share of real rows",
             "share of synthetic rows", "columns, TVD", "real", "pairs, TVD", "real",
             "queries, error", "real",
             *(f"{label(metric)}, {TASKS[task]}" for task in tasks)]
    rows = []
    for group in groups:
        cells = [Cell(number(group["n_test"]), True)]
        cells += [Cell(number(group.get("n_rarest")), True)] * (metric == "auroc")
        cells += [_share(group.get("real_share"), True),
                  _share(group.get("synthetic_share", {}).get("mean"), False)]
        for name in ("one_way_tvd", "two_way_tvd", "query_error"):
            leaf = group.get(name)
            cells += [Cell(score(leaf), True), floor_cell(leaf)] if leaf else [NOTHING] * 2
        cells += [Cell(score(group[task]), True) if task in group else NOTHING for task in tasks]
        rows.append((group["group"], [*cells, Cell(group.get("note", ""))]))
    return table(f"Subgroups by {by}", ["group", *heads, "remark"], rows)


def label_shares(metrics: Json) -> Table | None:
    """Return the table of the shares of the classes; None without a label."""
    shares = metrics.get("label_shares")
    if not shares:
        return None
    return table("Shares of the classes", ["class", "synthetic", "real", "remark"], [
        (share["class"], [_share(share["synthetic"], False), _share(share["real"], True),
                          Cell("wrong", True) if share["wrong"] else NOTHING])
        for share in shares])


def count_tables(metrics: Json, records: int | None) -> Table | None:
    """Return the list of the noisy tables that were asked for; None where there is none.

    Args:
      metrics: The content of metrics.json.
      records: The public number of records, beside which a noise is large or small.
    """
    tables = metrics.get("asked")
    if not tables:
        return None
    rows = [(one["name"], [
        Cell(number(one["cells"])), Cell(number(one["rounds"])), Cell(number(one["noise"])),
        Cell(percent(one["noise"] / records)) if records else NOTHING]) for one in tables]
    return table("Tables that were asked for", [
        "columns", "counts, at most", "releases", "noise of a count", "of all records"], rows)


def _share(share: float | None, real: bool) -> Cell:
    return NOTHING if share is None else Cell(percent(share), real)
