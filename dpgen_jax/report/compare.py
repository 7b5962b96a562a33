"""The page that compares runs side by side, and says where they cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dpgen_jax import guarantee
from dpgen_jax.report import figures, render, tables, words
from dpgen_jax.report.render import Cell, Figure, Table, is_leaf, leaves, number, score
from dpgen_jax.types import UserError

HIGHER = ("auroc", "auprc", "accuracy", "inception_score", "precision", "recall", "coverage")
LOWER = ("fid", "fid_features", "one_way_tvd", "two_way_tvd", "correlation_difference", "pmse",
         "detection_auroc", "schema_violations")
"""Which end of a metric is better, by its last name; others have no best."""
SAME = {"dataset": "data set", "kind": "the kind of records",
        "setting": "the setting of the evaluation", "schedule": "the schedule of the evaluation",
        "classifiers": "the classifiers", "n_samples": "the number of synthetic records evaluated",
        "n_test": "the number of held-out records", "seeds": "the number of seeds"}
"""What must be equal for a score to be compared at all, and what it is called."""


class Entry(NamedTuple):
    """name of the run; its metrics.json; its privacy statement; its grid of samples, if any."""

    name: str
    metrics: dict[str, Any]
    privacy: dict[str, Any]
    grid: Figure | None = None


def compare(entries: Sequence[Entry | tuple]) -> str:
    """The HTML of `Entry`s. Best values are marked among the runs of `comparable` alone.

    Errors: UserError for fewer than two runs, or a damaged privacy statement."""
    held = [Entry(*entry) for entry in entries]
    if len(held) < 2:
        raise UserError(f"{len(held)} run to compare; name at least two")
    held = [entry._replace(privacy=words.checked(entry.privacy)) for entry in held]
    fair = comparable(held)
    return render.page(
        "compare.html", entries=held, fair=[held[i].name for i in fair], warnings=warnings(held),
        terms=_terms(held), scores=_scores(held, fair), scatter=figures.scatter(
            [(e.name, e.privacy["epsilon"], *main_score(e.metrics), not doubts(e))
             for e in held]))


def conditions(metrics: dict[str, Any]) -> dict[str, Any]:
    """Under what a run was evaluated: the keys of `SAME`."""
    setting = metrics.get("setting") or {}
    schedule = ", ".join(f"{name} {number(value)}"
                         for name, value in leaves(setting.get("schedule") or {}))
    return {name: metrics.get(name) for name in SAME} | {
        "setting": setting.get("name"), "schedule": schedule or None,
        "classifiers": ", ".join(metrics.get("gen2real") or ()) or None}


def comparable(entries: Sequence[Entry]) -> list[int]:
    """The places of the largest group of runs that have a valid guarantee and were evaluated under
    the same conditions; the first of equally large ones, and none for a group of one."""
    groups: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        if entry.metrics and not doubts(entry):
            groups.setdefault(str(conditions(entry.metrics)), []).append(i)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def warnings(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Why runs may not be compared, one sentence each; none where all may."""
    found = [f"{entry.name}: {why}" for entry in entries for why in doubts(entry)]
    promises = [name for name in ("unit", "relation", "delta")
                if len({str(entry.privacy[name]) for entry in entries}) > 1]
    if promises:
        found.append(f"Runs differ in {', '.join(promises)}, so their epsilons are not the same "
                     "promise and cannot be set beside each other.")
    held = [conditions(entry.metrics) for entry in entries]
    differing = [called for name, called in SAME.items() if len({str(h[name]) for h in held}) > 1]
    if differing:
        found.append(f"Runs differ in {', '.join(differing)}, so scores across them do not "
                     "compare; the table below says how.")
    return tuple(found)


def doubts(entry: Entry) -> tuple[str, ...]:
    """Why there is no guarantee, why it leaves something out, or why it cannot hold."""
    gaps = words.gaps(entry.privacy)
    uncovered = (guarantee.of(entry.privacy).text,) if gaps else ()
    return words.alarms(entry.privacy) + uncovered + words.exceeded(entry.metrics)


def main_score(metrics: dict[str, Any]) -> tuple[str, float]:
    """(name, mean) of the one score a run is drawn by: accuracy or AUROC of classifiers trained on
    synthetic records, meaned over classifiers; NaN without one."""
    average = metrics.get("average", {}).get("gen2real", {}).get("accuracy")
    if is_leaf(average):
        return "accuracy, mean of all classifiers", float(average["mean"])
    scores = list(metrics.get("gen2real", {}).values())
    for name in ("auroc", "accuracy"):
        means = [s[name]["mean"] for s in scores if is_leaf(s.get(name))]
        if means:
            return f"{render.words(name)}, mean of all classifiers", math.fsum(means) / len(means)
    return "", math.nan


def _terms(entries: Sequence[Entry]) -> Table:
    """What each run promises, and under what it was evaluated."""
    rows = [("guarantee", [Cell(guarantee.of(e.privacy).text) for e in entries])]
    rows += [(name.replace("_", " "), [Cell(number(e.privacy.get(name))) for e in entries])
             for name in ("epsilon", "delta", "unit", "relation", "noise_source", "method",
                          "preset", "steps")]
    rows += [(called, [Cell(number(conditions(e.metrics)[name])) for e in entries])
             for name, called in SAME.items()]
    return render.table("What is promised, and how it was evaluated",
                        ["", *(entry.name for entry in entries)], rows)


def _scores(entries: Sequence[Entry], fair: Sequence[int]) -> Table:
    """Every score, a row each, with the best of the comparable runs marked."""
    held = [{path: leaf for path, leaf in leaves(entry.metrics) if is_leaf(leaf)}
            for entry in entries]
    marks = [tables.from_real(entry.metrics) for entry in entries]
    rows = []
    paths = dict.fromkeys(path for scores in held for path in scores)
    for path in sorted(paths, key=lambda path: not path.startswith("average")):
        best = _best(path, [scores.get(path) for scores in held], fair)
        rows.append((" ".join(map(render.words, path.split("."))), [
            Cell(score(scores[path]), real(path), i in best) if path in scores else tables.NOTHING
            for i, (scores, real) in enumerate(zip(held, marks, strict=True))]))
    return render.table("Scores", ["score", *(entry.name for entry in entries)], rows)


def _best(path: str, found: Sequence[dict[str, Any] | None], fair: Sequence[int]) -> list[int]:
    """The places of the best mean among the `fair` runs; empty where no end is better, where only
    one of them has the score, or where all are equal."""
    sign = _sign(path)
    means = {i: sign * found[i]["mean"] for i in fair if found[i] is not None}
    if not sign or len(set(means.values())) < 2:
        return []
    return [i for i, mean in means.items() if mean == max(means.values())]


def _sign(path: str) -> int:
    """1 where more is better, -1 where less is, 0 where neither or where a score is not the
    generator's: of real records alone, or of an attack, which proves nothing by failing."""
    name = path.split(".")[-1]
    if path.startswith(("real2real", "average.real2real", "membership")):
        return 0
    return -1 if name in LOWER else int(name.endswith(HIGHER))
