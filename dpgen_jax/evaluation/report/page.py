"""The pages: report.html for a reviewer, the comparison of runs, and the holder's private page.

Each page is one file, without scripts.

The report includes the audit of the run, if there is one: what was certified, and what is promised.
`python -m dpgen_jax.audit RUN` writes the audit next to the release, for the data holder. The
details of its checks may quote names and paths, and are left out of the report.

The private page shows synthetic records together with their nearest real records. It contains real
records, so it belongs into the private part of a run, and every printed sheet says so.
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from dpgen_jax.core.files import Json, parse_json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.report import figures, tables, verdict
from dpgen_jax.evaluation.report.figures import LIMIT, REAL, SYNTHETIC, Drawing, axes_in, svg
from dpgen_jax.evaluation.scores import over_runs
from dpgen_jax.release import documents, guarantee, plots, render
from dpgen_jax.release.render import (
    Cell,
    Figure,
    Table,
    bound,
    is_leaf,
    leaves,
    number,
    score,
    table,
)

SIDES = ("false_positives", "false_negatives")
VERDICTS = ("holds", "fails", "cannot be checked")
PROMISED = "promised"
"""The last word of the names of curves that are promised; others were certified."""
MAX_PANELS = 2


def read_audit(run: Path) -> Json:
    """Returns the audit of a run folder, or {} where there is none that can be read.

    Args:
        run: The run folder.
    """
    try:
        document = parse_json((run / "audit" / "audit.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def audit_sentences(audit: Json, digest: str | None) -> tuple[str, ...]:
    """Summarises an audit in sentences, the most important one first.

    Args:
        audit: The content of audit.json.
        digest: SHA-256 of the generator that the report is of, or None.
    """
    findings = _findings(audit)
    if not findings:
        return ()
    counts = {verdict: [f for f in findings if f["verdict"] == verdict] for verdict in VERDICTS}
    said = [f"{len(findings)} checks were made by version {audit.get('version')}: " + ", ".join(
        f"{len(of)} {verdict}" for verdict, of in counts.items()) + "."]
    said += [f"{words}: {', '.join(str(f['check']) for f in counts[verdict])}."
             for verdict, words in (("fails", "FAILS"), ("cannot be checked", "Not checked"))
             if counts[verdict]]
    facts = audit.get("facts")
    facts = facts if isinstance(facts, dict) else {}
    if "canaries" in facts:
        said.insert(0, "This audit is of trainings that were made for it, with canaries among "
                       "their records, and not of the generator of this report.")
    elif facts.get("generator_sha256") != digest:
        said.insert(0, "This audit was made of another generator than that of this report: "
                       "audit the run again.")
    return tuple(said)


def audit_numbers(audit: Json) -> Table | None:
    """Returns the table of what is claimed and what was certified; None if nothing was certified.

    Args:
        audit: The content of audit.json.
    """
    rows = [(f"{f['check']}: {f.get('measure')}", [Cell(number(f["claimed"])),
                                                    Cell(number(f["certified"]))])
            for f in _findings(audit) if _is_number(f.get("claimed"))
            and _is_number(f.get("certified"))]
    return table("Claimed, and certified by an attack with 95 % confidence",
                 ["attack", "claimed at most", "certified at least"], rows) if rows else None


def audit_figure(audit: Json) -> Figure | None:
    """Draws the trade-off curves, a panel for each promise.

    Args:
        audit: The content of audit.json.

    Returns:
        The figure; None where the audit has no curves.
    """
    panels: dict[str, list[tuple[str, dict[str, list[float]]]]] = {}
    curves = audit.get("curves")
    for name, curve in (curves if isinstance(curves, dict) else {}).items():
        what, _, kind = str(name).rpartition(": ")
        if _is_curve(curve):
            panels.setdefault(what, []).append((kind, curve))
    shown = list(panels.items())[:MAX_PANELS]
    if not shown:
        return None

    def draw(drawing: Drawing) -> None:
        for axes, (what, lines) in zip(axes_in(drawing, len(shown), len(shown)), shown,
                                       strict=True):
            axes.plot([0, 1], [1, 0], ":", color=REAL, linewidth=1, label="guessing")
            for kind, curve in lines:
                limit = kind.startswith(PROMISED)
                axes.plot(*(curve[side] for side in SIDES), "--" if limit else "-",
                          color=LIMIT if limit else SYNTHETIC, linewidth=1.2,
                          label=plots.plain_text(kind))
            axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false positives",
                     ylabel="false negatives")
            axes.set_title(plots.plain_text(plots.short(what, 40)), loc="left")
            axes.legend(frameon=False, loc="upper right", fontsize=7)

    return Figure("Errors that an attack must make", "An attacker who wants to know whether one "
                  "record was used makes two kinds of errors. No attack gets below a promised "
                  "curve; a certified one was reached by an attack, with 95 % confidence, on one "
                  "release whose noise was lowered until it tells something.", svg(3.2, draw))


def _findings(audit: Json) -> list[Json]:
    found = audit.get("findings")
    return [f for f in (found if isinstance(found, list) else []) if isinstance(f, dict)
            and f.get("verdict") in VERDICTS and "check" in f]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_curve(curve: object) -> bool:
    if not isinstance(curve, dict) or not all(isinstance(curve.get(side), list) for side in SIDES):
        return False
    positives, negatives = (curve[side] for side in SIDES)
    return len(positives) == len(negatives) > 1 and all(map(_is_number, positives + negatives))


MAX_PAIRS, MAX_PAIR_COLUMNS = 60, 100
BANNER = "PRIVATE: holds real records. Never share this file."


@dataclasses.dataclass(frozen=True)
class Pair:
    """A synthetic record and the nearest real one, as pictures or as texts."""

    distance: float
    pictures: tuple[Figure, Figure] | None = None
    """The synthetic image and the real one."""
    texts: tuple[tuple[str, str, bool], ...] = ()
    """For each column both texts, and whether they differ."""


def private_page(dataset: str, synthetic: Any, nearest: Any, distances: np.ndarray,
                 summary: Json, header: Sequence[str] | None = None) -> str:
    """Render the page, which is PRIVATE: it shows real training records.

    No guarantee covers it. The `MAX_PAIRS` nearest pairs are shown.

    Args:
      dataset: The name of the data set.
      synthetic: Images uint8 [n, H, W, ch], or n rows of text.
      nearest: Real records of the same form; the i-th is the nearest to the i-th synthetic one.
      distances: Their distances float [n].
      summary: Numbers, or leaves of metrics.json, by name.
      header: The names of the columns; None for images.

    Returns:
      The HTML.

    Raises:
      UserError: The parts differ in length.
    """
    if not len(synthetic) == len(nearest) == len(distances):
        raise UserError(f"{len(synthetic)} synthetic records, {len(nearest)} real ones and "
                        f"{len(distances)} distances; give as many of each")
    order = np.argsort(distances, kind="stable")[:MAX_PAIRS]
    pairs = [_pair(synthetic[i], nearest[i], float(distances[i]), header) for i in order]
    return render.page(__package__, "neighbours.html", banner=BANNER, dataset=dataset,
                       pairs=pairs,
                       total=len(distances), header=list(header or ())[:MAX_PAIR_COLUMNS],
                       columns=len(header or ()),
                       summary=[(render.label(name).replace(".", ": "), score(leaf))
                                for name, leaf in leaves(summary)])


def _pair(ours: Any, theirs: Any, distance: float, header: Sequence[str] | None) -> Pair:
    if header is None:
        return Pair(distance, (_picture("synthetic image", ours, False),
                               _picture("nearest real training image", theirs, True)))
    return Pair(distance, texts=tuple(
        (render.shorten(a, 60), render.shorten(b, 60), a != b)
        for a, b in zip(ours[:MAX_PAIR_COLUMNS], theirs[:MAX_PAIR_COLUMNS], strict=True)))


def _picture(title: str, image: np.ndarray, real: bool) -> Figure:
    """Return an image uint8 [H, W, ch] or [H, W] as PNG; the browser enlarges its pixels."""
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1:] == (1,) else image).save(file, "PNG")
    return Figure(title, "", file.getvalue(), real)


MAX_ROWS, MAX_COLUMNS = 20, 100
"""The most rows and columns of a table of samples."""

MARKED = ("the numbers and figures on this page that are marked \u2020: they are computed from "
          "real records",)
Images = tuple[np.ndarray, np.ndarray]
"""uint8 [n, H, W, ch] and labels int [n]."""
Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows of text."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The content of a report."""

    metrics: Json
    """The content of metrics.json; {} without an evaluation."""
    privacy: Json
    """The content of privacy.json."""
    config: Json
    """The content of config.json of the run, or the configuration of the release."""
    rows: Sequence[Json] = ()
    """The rows of metrics.jsonl of the run; none without its folder."""
    samples: Images | Rows | None = None
    """Synthetic records."""
    figures: tuple[Figure, ...] = ()
    """Figures of the fidelity, drawn where the held-out records are."""
    audit: Json = dataclasses.field(default_factory=dict)
    """The content of audit.json of the run; {} without one."""
    generator: str | None = None
    """SHA-256 of the generator that the report is of."""


def page(report: Report) -> str:
    """Render the page; nothing is computed from records here.

    Args:
      report: The content; every number is taken from it.

    Returns:
      The HTML.

    Raises:
      UserError: The privacy statement is damaged.
    """
    privacy, metrics = documents.checked_statement(report.privacy), report.metrics
    membership = metrics.get("membership") or {}
    return render.page(
        __package__, "report.html", privacy=privacy, metrics=metrics,
        dataset=metrics.get("dataset") or report.config.get("dataset") or "unnamed data",
        method=privacy.get("method") or report.config.get("method") or "unnamed method",
        statement=statement(privacy, metrics, report.config),
        verdict=verdict.sentence(metrics), numbers=verdict.numbers(metrics),
        samples=_samples(report.samples, class_names(report.config)),
        real=tables.from_real(metrics),
        curves=figures.learning_curves(report.rows, bool(documents.gaps(privacy))),
        spent=figures.epsilon_curve(report.rows, privacy),
        utility=tables.utility(metrics), bars=figures.utility_bars(metrics),
        targets=tables.targets(metrics),
        fidelity=tables.fidelity(metrics), figures=report.figures,
        shares=tables.label_shares(metrics), groups=tables.subgroups(metrics),
        count_tables=tables.count_tables(metrics, privacy.get("records")),
        constraints=metrics.get("constraints") or (),
        far_off=(metrics.get("fidelity") or {}).get("far_off") or (),
        judge=tables.judge(metrics),
        attacks=tables.membership(membership, tables.from_real(metrics)),
        attacks_figure=figures.attacks(membership), membership=membership,
        audit=audit_sentences(report.audit, report.generator),
        audit_numbers=audit_numbers(report.audit), audit_figure=audit_figure(report.audit),
        settings=tables.settings({k: v for k, v in report.config.items()
                                  if k not in (*SOFTWARE, *HIDDEN)}),
        versions=tables.settings({k: report.config[k] for k in SOFTWARE if k in report.config},
                                 "code"),
        ledger=documents.ledger(privacy), everything=tables.everything(metrics) if metrics else ())


SOFTWARE = ("versions", "git", "package_version", "generator_sha256")
"""Fields of config.json on the software that ran, not on the user's request."""
HIDDEN = ("typed", "request")
"""Fields of config.json that the report leaves out: paths of this machine."""


def statement(privacy: Json, metrics: Json, config: Json) -> Json:
    """Explain a privacy statement, for the template.

    Args:
      privacy: A statement that `documents.checked_statement` returned.
      metrics: The content of metrics.json, or {}.
      config: The content of config.json, or {}.

    Returns:
      Its parts as sentences, by the names that the template uses.
    """
    return {"guarantee": guarantee.of(privacy).text, "alarms": documents.alarms(privacy),
            "gaps": documents.gaps(privacy), "exceeded": exceeded(metrics),
            "cautions": documents.cautions(privacy) + mismatches(privacy, metrics),
            "promise": documents.promise(privacy), "assumptions": documents.assumptions(privacy),
            "not_covered": documents.not_covered(privacy) + MARKED * bool(metrics),
            "notes": documents.other_notes(privacy) + documents.by_hand(config)}


def mismatches(privacy: Json, metrics: Json) -> tuple[str, ...]:
    """Return a sentence for each field in which the evaluation has another statement than this."""
    evaluated = metrics.get("release") or {}
    return tuple(f"The evaluation was made of a release with {name.replace('_', ' ')} "
                 f"{number(evaluated[name])}, and this statement says {number(privacy.get(name))}."
                 for name in (*documents.NEEDED, "method", "preset")
                 if name in evaluated and _plain(evaluated[name]) != _plain(privacy.get(name)))


def exceeded(metrics: Json) -> tuple[str, ...]:
    """Return what an attack reached beyond the guarantee, which then cannot hold."""
    membership = metrics.get("membership") or {}
    if not membership.get("exceeds_guarantee"):
        return ()
    return (str(membership.get("sentence") or "An attack reached more than the guarantee allows."),)


def _plain(value: Any) -> str:
    """Return a text that is the same for "inf", infinity and so on."""
    try:
        return str(float(value))
    except (TypeError, ValueError):
        return str(value)


def class_names(config: Json) -> Sequence[str] | None:
    """Return the names of the classes of images, as a run's config.json or a release has them.

    Args:
      config: The content of config.json.
    """
    names = config.get("class_names") or (config.get("spec") or {}).get("class_names")
    return names if isinstance(names, list | tuple) and names else None


def _samples(samples: Images | Rows | None, names: Sequence[str] | None) -> Figure | Table | None:
    """Return samples as a figure of images or as a table, or None where there are none."""
    if samples is None or not len(samples[1]):
        return None
    if isinstance(samples[0], np.ndarray):
        most = int(samples[1].max()) if names else 0
        return figures.sample_grid(*samples, names if names and most < len(names) else None)
    header, rows = samples
    shown = rows[:MAX_ROWS]
    cut = "" if len(header) <= MAX_COLUMNS else f", {MAX_COLUMNS} of {len(header)} columns"
    return render.table(
        f"The first {len(shown)} synthetic rows{cut}",
        ["row", *(render.shorten(name, 60) for name in header[:MAX_COLUMNS])],
        [(str(i), [Cell(render.shorten(text, 60)) for text in row[:MAX_COLUMNS]])
         for i, row in enumerate(shown, 1)], numeric=False)


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
    """Render the page; best values are marked among the runs of `comparable` only.

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
    entries = [entry._replace(privacy=documents.checked_statement(entry.privacy))
               for entry in entries]
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
    gaps = documents.gaps(entry.privacy)
    uncovered = (guarantee.of(entry.privacy).text,) if gaps else ()
    return documents.alarms(entry.privacy) + uncovered + exceeded(entry.metrics)


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

    It is 0 also of scores that are not the generator's: of real records only, or of an attack,
    which proves nothing by failing.
    """
    name = path.split(".")[-1]
    if path.startswith("membership") or "real2real" in path.split("."):
        return 0
    return -1 if name in LOWER else int(name.endswith(HIGHER))
