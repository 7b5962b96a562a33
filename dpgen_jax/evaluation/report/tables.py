"""The tables of the report, from metrics.json, privacy.json and config.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpgen_jax.core.files import Json
from dpgen_jax.evaluation.scores import percent
from dpgen_jax.release.render import (
    NOTHING,
    Cell,
    Table,
    is_leaf,
    label,
    leaves,
    number,
    score,
    table,
    title,
)

TASKS = {"gen2real": "synthetic \u2192 real", "real2real": "real \u2192 real",
         "real2gen": "real \u2192 synthetic"}
"""Labels of the tasks: trained on the first, tested on the second."""
BASES = ("auroc", "auprc", "balanced_accuracy", "accuracy", "f1", "r2")
"""Kinds of scores; names of metrics end with one of them."""


def from_real(metrics: Json) -> Callable[[str], bool]:
    """Return a function that tells which numbers are computed from real records.

    Args:
      metrics: The content of metrics.json, which lists their keys.

    Returns:
      A function of a dotted key; it is true of all keys where metrics.json has no list.
    """
    keys = metrics.get("not_covered_by_epsilon")

    def real(path: str) -> bool:
        return keys is None or any(f"{path}.".startswith(f"{key}.") for key in keys)

    return real


def utility(metrics: Json) -> list[Table]:
    """Return a table for each kind of score, with a row a classifier and a column a task."""
    tasks = [task for task in TASKS if metrics.get(task)]
    return [_scores(metrics, kind, tasks) for kind in kinds(metrics, tasks)]


def kinds(scores: Json, tasks: Sequence[str]) -> list[str]:
    """Return the kinds of scores, without accuracy where there is a balanced one.

    Accuracy misleads where classes are rare or weighed.

    Args:
      scores: {task: {model: {metric: leaf}}}.
      tasks: The tasks to look at.
    """
    names = list(dict.fromkeys(_base(metric) for task in tasks
                               for of_model in scores[task].values() for metric in of_model))
    return [kind for kind in names if kind != "accuracy" or "balanced_accuracy" not in names]


def _base(metric: str) -> str:
    return next((base for base in BASES if metric.endswith(base)), metric)


def _scores(metrics: Json, kind: str, tasks: Sequence[str]) -> Table:
    """Return the table of one kind of score."""
    columns = list(dict.fromkeys(
        (metric, task) for task in tasks for scores in metrics[task].values()
        for metric in sorted(scores, key=lambda m: (m != kind, m)) if _base(metric) == kind))
    columns.sort(key=lambda column: column[0] != kind)
    names = list(dict.fromkeys(name for task in tasks for name in metrics[task]))
    real = from_real(metrics)

    rows = [(label(name), [cell(f"{task}.{name}", metrics[task].get(name, {}), metric, real)
                           for metric, task in columns]) for name in names]
    average = metrics.get("average", {})
    if any(metric in average.get(task, {}) for metric, task in columns):
        rows.append(("mean of all", [cell(f"average.{task}", average.get(task, {}), metric, real)
                                     for metric, task in columns]))
    heads = [TASKS[task] if metric == kind else f"{label(metric)}, {_way(metric, task)}"
             for metric, task in columns]
    return table(f"{title(kind)}: trained \u2192 tested", ["classifier", *heads], rows)


def _way(metric: str, task: str) -> str:
    """Return the label of a task; a validation score is tested on the kind it is trained on."""
    way = TASKS[task]
    return " \u2192 ".join([way.split(" ")[0]] * 2) if metric.startswith("validation") else way


def cell(path: str, scores: Json, metric: str, real: Callable[[str], bool]) -> Cell:
    """Return the cell of a metric among the scores of a model.

    Args:
      path: The dotted key of the scores.
      scores: {metric: leaf}.
      metric: The metric.
      real: The result of `from_real`.
    """
    if metric not in scores:
        return NOTHING
    return Cell(score(scores[metric]), real(f"{path}.{metric}"))


def fidelity(metrics: Json) -> list[Table]:
    """Return the table of distances and those of real records, and one for each column."""
    real, part = from_real(metrics), metrics.get("fidelity", {})
    rows = [(label(name), [Cell(score(leaf), real(f"fidelity.{name}")), floor_cell(leaf)])
            for name, leaf in part.items() if is_leaf(leaf)]
    if is_leaf(metrics.get("schema_violations")):
        rows.append(("cells that break the schema", [
            Cell(score(metrics["schema_violations"]), real("schema_violations")), NOTHING]))
    tables = [table("Synthetic, and real training records, beside held-out real ones",
                    ["measure", "synthetic", "real training records"], rows)] if rows else []
    for name, leaf in part.items():
        columns = leaf.get("columns") if isinstance(leaf, dict) else None
        if isinstance(columns, dict):
            tables.append(table(f"{title(name)} of each column",
                                ["column", "synthetic", "real training records"],
                                [(str(column), [Cell(score(one), True), floor_cell(one)])
                                 for column, one in columns.items()]))
    return tables


def floor_cell(leaf: Json) -> Cell:
    """Return the cell of the floor of a leaf."""
    floor = leaf.get("floor")
    return NOTHING if floor is None else Cell(score({"mean": floor}), True)


def membership(part: Json, real: Callable[[str], bool]) -> Table | None:
    """Return the table of attacks, of the bounds that the guarantee sets, and of chance.

    Args:
      part: The part `membership` of metrics.json.
      real: The result of `from_real`.

    Returns:
      The table; None where there was no attack.
    """
    attacks = part.get("attacks", {})
    if not attacks:
        return None
    measures = list(dict.fromkeys(name for scores in attacks.values() for name in scores))
    rows = [(label(name), [cell(f"membership.attacks.{name}", scores, measure, real)
                           for measure in measures]) for name, scores in attacks.items()]
    for text, key in (("allowed at most", "allowed"), ("chance", "chance")):
        if isinstance(part.get(key), dict):
            rows.append((text, [Cell(score(part[key].get(m))) for m in measures]))
    return table("Membership attacks", ["attack", *map(label, measures)], rows)


def everything(metrics: Json) -> list[Table]:
    """Return tables of all of metrics.json under its dotted keys: the scores, and the rest."""
    real = from_real(metrics)
    entries = list(leaves(metrics))
    scores = [(path, [
        Cell(score(leaf), real(path)),
        Cell("; ".join(map(number, leaf.get("values") or ())) or NOTHING.text, real(path)),
        floor_cell(leaf)]) for path, leaf in entries if is_leaf(leaf)]
    others = [(path, [plain(path, value, real)]) for path, value in entries if not is_leaf(value)]
    tables = [table("Scores", ["key", "mean \u00b1 standard deviation", "each seed",
                               "real against real"], scores)] if scores else []
    return [*tables, table("What else metrics.json says", ["key", "value"], others, numeric=False)]


def judge(metrics: Json) -> list[tuple[str, Cell]]:
    """Return the description of the classifier whose features the distances use."""
    description = metrics.get("fidelity", {}).get("judge") or {}
    real = from_real(metrics)
    return [(label(name), plain(f"fidelity.judge.{name}", value, real))
            for name, value in leaves(description)]


def plain(path: str, value: object, real: Callable[[str], bool]) -> Cell:
    """Return the cell of a value that is no score; values from real records are marked."""
    return Cell(number(value), real(path))


def settings(config: Json, first: str = "run") -> list[Table]:
    """Return a table for each part of a configuration.

    Args:
      config: The content of config.json.
      first: The caption of the table of fields that are not nested.

    Returns:
      The tables; the schema of a table of records comes last.
    """
    config = dict(config)
    columns = _columns(config.pop("spec", None))
    parts = {name: config.pop(name) for name in list(config) if isinstance(config[name], dict)}
    tables = [_pairs(first, config)] if config else []
    return tables + [_pairs(name, part) for name, part in parts.items()] + columns


def _pairs(caption: str, values: Json) -> Table:
    return table(title(caption), ["field", "value"], [
        (path, [Cell(number(value))]) for path, value in leaves(values)], numeric=False)


def _columns(spec: Any) -> list[Table]:
    """Return the schema of the records, a row for each column of a table."""
    if not isinstance(spec, dict):
        return []
    if "columns" not in spec:
        return [_pairs("records", spec)]
    declared = [*spec["columns"], spec.get("label", {})]
    rows = [(str(column.get("name")), [
        Cell(str(column.get("kind"))),
        Cell(number(", ".join(map(str, column["categories"]))) if column.get("categories") else
             f"{number(column.get('low'))} to {number(column.get('high'))}"),
        Cell(number(column.get("nullable")))]) for column in declared]
    return [table("Schema of the table, the label last",
                  ["column", "kind", "range or categories", "nullable"], rows, numeric=False)]


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
    """Return the list of the noisy tables that were queried; None where there is none.

    Args:
      metrics: The content of metrics.json.
      records: The public number of records, by which a noise counts as large or small.
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
