"""The tables of the report, from metrics.json, privacy.json and config.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpgen_jax.report.render import Cell, Table, is_leaf, leaves, number, score, table, title, words

TASKS = {"gen2real": "synthetic \u2192 real", "real2real": "real \u2192 real",
         "real2gen": "real \u2192 synthetic"}
"""Trained on the first, tested on the second."""
BASES = ("auroc", "auprc", "accuracy")
NOTHING = Cell("\u2013")


def from_real(metrics: dict[str, Any]) -> Callable[[str], bool]:
    """Whether the number of a dotted key is computed from real records, as metrics.json says; all
    are where it does not say."""
    said = metrics.get("not_covered_by_epsilon")

    def real(path: str) -> bool:
        return said is None or any(f"{path}.".startswith(f"{key}.") for key in said)

    return real


def utility(metrics: dict[str, Any]) -> list[Table]:
    """A table for each kind of score: classifiers down, tasks across."""
    tasks = [task for task in TASKS if metrics.get(task)]
    kinds = list(dict.fromkeys(_base(metric) for task in tasks
                               for scores in metrics[task].values() for metric in scores))
    return [_scores(metrics, kind, tasks) for kind in kinds]


def _base(metric: str) -> str:
    return next((base for base in BASES if metric.endswith(base)), metric)


def _scores(metrics: dict[str, Any], kind: str, tasks: Sequence[str]) -> Table:
    columns = list(dict.fromkeys(
        (metric, task) for task in tasks for scores in metrics[task].values()
        for metric in sorted(scores, key=lambda m: (m != kind, m)) if _base(metric) == kind))
    columns.sort(key=lambda column: column[0] != kind)
    names = list(dict.fromkeys(name for task in tasks for name in metrics[task]))
    real = from_real(metrics)

    def row(branch: Callable[[str], tuple[str, Any]]) -> list[Cell]:
        return [_at(branch(task), metric, real) for metric, task in columns]

    rows = [(words(name), row(lambda task, name=name: (
        f"{task}.{name}", metrics[task].get(name, {})))) for name in names]
    average = metrics.get("average", {})
    if any(metric in average.get(task, {}) for metric, task in columns):
        rows.append(("mean of all", row(lambda task: (f"average.{task}", average.get(task, {})))))
    heads = [TASKS[task] if metric == kind else f"{words(metric)}, {_way(metric, task)}"
             for metric, task in columns]
    return table(f"{title(kind)}: trained \u2192 tested", ["classifier", *heads], rows)


def _way(metric: str, task: str) -> str:
    """From what to what: a validation score is tested on held-out records of the training's own."""
    way = TASKS[task]
    return " \u2192 ".join([way.split(" ")[0]] * 2) if metric.startswith("validation") else way


def _at(branch: tuple[str, Any], metric: str, real: Callable[[str], bool]) -> Cell:
    path, scores = branch
    if metric not in scores:
        return NOTHING
    return Cell(score(scores[metric]), real(f"{path}.{metric}"))


def fidelity(metrics: dict[str, Any]) -> list[Table]:
    """The distances beside those of real records from real records; and of each column."""
    real, found = from_real(metrics), metrics.get("fidelity", {})
    rows = [(words(name), [Cell(score(leaf), real(f"fidelity.{name}")),
                           _floor(leaf)])
            for name, leaf in found.items() if is_leaf(leaf)]
    if is_leaf(metrics.get("schema_violations")):
        rows.append(("cells that break the schema", [
            Cell(score(metrics["schema_violations"]), real("schema_violations")), NOTHING]))
    tables = [table("Synthetic, and real training records, beside held-out real ones",
                    ["measure", "synthetic", "real training records"], rows)] if rows else []
    for name, leaf in found.items():
        for column in (leaf.get("columns"),) if isinstance(leaf, dict) else ():
            if isinstance(column, dict):
                tables.append(table(f"{title(name)} of each column",
                                    ["column", "synthetic", "real training records"],
                                    [(str(name_), [Cell(score(one), True),
                                                   _floor(one)])
                                     for name_, one in column.items()]))
    return tables


def _floor(leaf: dict[str, Any]) -> Cell:
    floor = leaf.get("floor")
    return NOTHING if floor is None else Cell(score({"mean": floor}), True)


def membership(found: dict[str, Any], real: Callable[[str], bool]) -> Table | None:
    """What each attack reached, what the guarantee allows at most, and chance."""
    attacks = found.get("attacks", {})
    if not attacks:
        return None
    measures = list(dict.fromkeys(name for scores in attacks.values() for name in scores))
    rows = [(words(name), [_at((f"membership.attacks.{name}", scores), measure, real)
                           for measure in measures]) for name, scores in attacks.items()]
    for text, key in (("allowed at most", "allowed"), ("chance", "chance")):
        if isinstance(found.get(key), dict):
            rows.append((text, [Cell(score(found[key].get(m))) for m in measures]))
    return table("Membership attacks", ["attack", *map(words, measures)], rows)


def everything(metrics: dict[str, Any]) -> list[Table]:
    """All of metrics.json under its dotted keys: the scores, and what else it says."""
    real = from_real(metrics)
    found = list(leaves(metrics))
    scores = [(path, [
        Cell(score(leaf), real(path)),
        Cell("; ".join(map(number, leaf.get("values") or ())) or NOTHING.text, real(path)),
        _floor(leaf)]) for path, leaf in found if is_leaf(leaf)]
    others = [(path, [plain(path, value, real)]) for path, value in found if not is_leaf(value)]
    tables = [table("Scores", ["key", "mean \u00b1 standard deviation", "each seed",
                               "real against real"], scores)] if scores else []
    return [*tables, table("What else metrics.json says", ["key", "value"], others, numeric=False)]


def judge(metrics: dict[str, Any]) -> list[tuple[str, Cell]]:
    """What is said of the classifier whose features the distances use."""
    held = metrics.get("fidelity", {}).get("judge") or {}
    real = from_real(metrics)
    return [(words(name), plain(f"fidelity.judge.{name}", value, real))
            for name, value in leaves(held)]


def plain(path: str, value: Any, real: Callable[[str], bool]) -> Cell:
    """What is no score: marked where it is a measurement, and no count or text."""
    return Cell(number(value), isinstance(value, float) and real(path))


def ledger(privacy: dict[str, Any]) -> Table | None:
    """The events of the privacy statement, as they were charged."""
    events = privacy.get("events") or ()
    if not events:
        return None
    fields = [name for name in dict.fromkeys(key for event in events for key in event)
              if name not in ("mechanism", "count")]
    rows = [(str(event.get("mechanism")), [
        Cell(number(event.get("count"))), *(Cell(number(event[f])) if f in event else NOTHING
                                            for f in fields), _ratio(event)])
            for event in events]
    return table("Events", ["mechanism", "count", *map(words, fields), "sigma / sensitivity"], rows)


def _ratio(event: dict[str, Any]) -> Cell:
    sigma, sensitivity = event.get("sigma"), event.get("sensitivity")
    return Cell(number(float(sigma) / float(sensitivity))) if sigma and sensitivity else NOTHING


def settings(config: dict[str, Any], first: str = "run") -> list[Table]:
    """The configuration, a table for each of its parts; what is not nested comes `first`."""
    config = dict(config)
    columns = _columns(config.pop("spec", None))
    parts = {name: config.pop(name) for name in list(config) if isinstance(config[name], dict)}
    tables = [_pairs(first, config)] if config else []
    return tables + [_pairs(name, part) for name, part in parts.items()] + columns


def _pairs(caption: str, values: dict[str, Any]) -> Table:
    return table(title(caption), ["field", "value"], [
        (path, [Cell(number(value))]) for path, value in leaves(values)], numeric=False)


def _columns(spec: Any) -> list[Table]:
    """The schema of the records: a row for each column of a table."""
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
