"""The page that compares runs side by side, and warns where they cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.report import figures, page, tables, verdict
from dpgen_jax.evaluation.scores import over_runs
from dpgen_jax.release import explain, guarantee, render
from dpgen_jax.release.render import Cell, Figure, Table, bound, is_leaf, leaves, number, score

HIGHER = ("auroc", "auprc", "accuracy", "f1", "r2", "inception_score", "precision", "recall",
          "coverage")
LOWER = ("fid", "fid_features", "one_way_tvd", "two_way_tvd", "query_error",
         "correlation_difference", "pmse", "detection_auroc", "schema_violations")
"""Metrics of which a higher or a lower value is better; others have no best."""
SAME = {"dataset": "data set", "kind": "the kind of records",
        "setting": "the setting of the evaluation", "schedule": "the schedule of the evaluation",
        "classifiers": "the classifiers", "n_samples": "the number of synthetic records evaluated",
        "n_test": "the number of held-out records", "seeds": "the number of seeds"}
"""Conditions that must be equal for scores to be compared, and their names in the page."""


class Entry(NamedTuple):
    """A run to compare."""

    name: str
    metrics: Json
    """The content of metrics.json."""
    privacy: Json
    """The content of privacy.json."""
    grid: Figure | None = None
    """A grid of samples, if there is one."""
    runs: tuple[Entry, ...] = ()
    """The trainings that it is the mean of, where it is one."""


def pooled(name: str, runs: Sequence[Entry]) -> Entry:
    """Return several trainings of one configuration as one entry, of means and deviations.

    Args:
      name: The name of the entry.
      runs: The trainings, two or more.

    Returns:
      The entry.

    Raises:
      UserError: They differ in method, preset or what they promise, or were not measured alike.
    """
    for field in ("method", "preset", "epsilon", "delta", "unit", "relation", "guarantee"):
        if len({str(run.privacy.get(field)) for run in runs}) > 1:
            raise UserError(f"the runs in {name} differ in {field}: they are no repeats; compare "
                            "them one by one")
    if len({str(conditions(run.metrics)) for run in runs}) > 1:
        raise UserError(f"the runs in {name} were not evaluated alike; give evaluate the same "
                        "flags")
    return Entry(f"{name}: mean of {len(runs)} trainings",
                 over_runs([run.metrics for run in runs]), runs[0].privacy, runs[0].grid,
                 tuple(runs))


def compare(runs: Sequence[Entry | tuple]) -> str:
    """Render the page; best values are marked among the runs of `comparable` alone.

    Args:
      runs: Two or more `Entry`s.

    Returns:
      The HTML.

    Raises:
      UserError: There are fewer than two runs, or a privacy statement is damaged.
    """
    entries = [Entry(*run) for run in runs]
    if len(entries) < 2:
        raise UserError("a comparison needs at least two evaluated runs; name their folders")
    entries = [entry._replace(privacy=explain.checked(entry.privacy)) for entry in entries]
    fair = comparable(entries)
    return render.page(
        __package__, "compare.html", entries=entries, fair=[entries[i].name for i in fair],
        warnings=warnings(entries), terms=_terms(entries), scores=_scores(entries, fair),
        scatter=figures.scatter([
            figures.Point(e.name, e.privacy["epsilon"], *main_score(e.metrics), not doubts(e))
            for e in entries]))


def conditions(metrics: Json) -> Json:
    """Return the conditions of an evaluation, with the keys of `SAME`."""
    setting = metrics.get("setting") or {}
    schedule = ", ".join(f"{name} {number(value)}"
                         for name, value in leaves(setting.get("schedule") or {}))
    return {name: metrics.get(name) for name in SAME} | {
        "setting": setting.get("name"), "schedule": schedule or None,
        "classifiers": ", ".join(metrics.get("gen2real") or ()) or None}


def comparable(entries: Sequence[Entry]) -> list[int]:
    """Find the largest group of runs with valid guarantees and the same conditions.

    Args:
      entries: The runs.

    Returns:
      Their indices; the first of equally large groups, and none for a group of one.
    """
    groups: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        if entry.metrics and not doubts(entry):
            groups.setdefault(str(conditions(entry.metrics)), []).append(i)
    largest = max(groups.values(), key=len, default=[])
    return largest if len(largest) > 1 else []


def warnings(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the reasons why runs may not be compared, one sentence each; none where all may."""
    lines = [f"{entry.name}: {why}" for entry in entries for why in doubts(entry)]
    lines += [f"{entry.name}, each of epsilon {bound(entry.privacy.get('epsilon'))}: on their "
              f"records {len(entry.runs)} times that was spent." for entry in entries if entry.runs]
    promises = [name for name in ("unit", "unit_column", "relation", "delta")
                if len({str(entry.privacy.get(name)) for entry in entries}) > 1]
    if promises:
        lines.append(f"Runs differ in {', '.join(promises)}, so their epsilons are not the same "
                     "promise and cannot be set beside each other.")
    of_runs = [conditions(entry.metrics) for entry in entries]
    differing = [text for name, text in SAME.items()
                 if len({str(run[name]) for run in of_runs}) > 1]
    if differing:
        lines.append(f"Runs differ in {', '.join(differing)}, so scores across them do not "
                     "compare; the table below says how.")
    return tuple(lines)


def doubts(entry: Entry) -> tuple[str, ...]:
    """Return why there is no guarantee, why it leaves something out, or why it cannot hold."""
    if entry.runs:
        return tuple(dict.fromkeys(why for run in entry.runs for why in doubts(run)))
    gaps = explain.gaps(entry.privacy)
    uncovered = (guarantee.of(entry.privacy).text,) if gaps else ()
    return explain.alarms(entry.privacy) + uncovered + page.exceeded(entry.metrics)


def main_score(metrics: Json) -> tuple[str, float]:
    """Return the one score by which a run is drawn.

    Args:
      metrics: The content of metrics.json.

    Returns:
      The name and the value of `verdict.use`; "" and NaN without one.
    """
    found = verdict.use(metrics)
    if found is None:
        return "", math.nan
    return f"{render.label(found.metric)}, {found.what}", float(found.synthetic)


def _terms(entries: Sequence[Entry]) -> Table:
    """Return the table of the guarantees and of the conditions of the evaluations."""
    rows = [("guarantee", [Cell(guarantee.of(e.privacy).text) for e in entries])]
    rows += [(name, [Cell(bound(e.privacy.get(name))) for e in entries])
             for name in ("epsilon", "delta")]
    rows += [(name.replace("_", " "), [Cell(number(e.privacy.get(name))) for e in entries])
             for name in ("unit", "relation", "noise_source", "method", "preset", "steps")]
    rows += [(text, [Cell(number(conditions(e.metrics)[name])) for e in entries])
             for name, text in SAME.items()]
    return render.table("What is promised, and how it was evaluated",
                        ["", *(entry.name for entry in entries)], rows)


def _scores(entries: Sequence[Entry], fair: Sequence[int]) -> Table:
    """Return the table of all scores, with the best of the comparable runs marked."""
    by_run = [{path: leaf for path, leaf in leaves(entry.metrics) if is_leaf(leaf)}
              for entry in entries]
    marks = [tables.from_real(entry.metrics) for entry in entries]
    rows = []
    paths = dict.fromkeys(path for scores in by_run for path in scores)
    for path in sorted(paths, key=lambda path: not path.startswith("average")):
        best = _best(path, [scores.get(path) for scores in by_run], fair)
        rows.append((" ".join(map(render.label, path.split("."))), [
            Cell(score(scores[path]), real(path), i in best) if path in scores else render.NOTHING
            for i, (scores, real) in enumerate(zip(by_run, marks, strict=True))]))
    return render.table("Scores", ["score", *(entry.name for entry in entries)], rows)


def _best(path: str, scores: Sequence[Json | None], fair: Sequence[int]) -> list[int]:
    """Return the indices of the best mean among the `fair` runs.

    There are none where neither higher nor lower is better, where only one of the runs has the
    score, and where all are equal.
    """
    sign = _sign(path)
    means = {i: sign * leaf["mean"] for i in fair if (leaf := scores[i]) is not None}
    if not sign or len(set(means.values())) < 2:
        return []
    return [i for i, mean in means.items() if mean == max(means.values())]


def _sign(path: str) -> int:
    """Return 1 where more is better, -1 where less is, 0 where neither.

    It is 0 also of scores that are not the generator's: of real records alone, or of an attack,
    which proves nothing by failing.
    """
    name = path.split(".")[-1]
    if path.startswith("membership") or "real2real" in path.split("."):
        return 0
    return -1 if name in LOWER else int(name.endswith(HIGHER))
