"""The pages: report.html for a reviewer, the comparison of runs, and the holder's private page.

Each page is one file, without scripts. Nothing is computed from records here: the report and the
comparison are views of an `Assessment`, a privacy statement and a configuration.

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
from dpgen_jax.evaluation import assessment, figures
from dpgen_jax.evaluation.assessment import Assessment, over_runs
from dpgen_jax.evaluation.figures import LIMIT, REAL, SYNTHETIC, Drawing, axes_in, svg
from dpgen_jax.evaluation.results import Finding, Score, percent
from dpgen_jax.release import documents, guarantee, plots, render
from dpgen_jax.release.render import (
    NOTHING,
    Cell,
    Figure,
    Table,
    bound,
    label,
    leaves,
    number,
    score,
    table,
    title,
)

MAX_ROWS, MAX_COLUMNS = 20, 100
"""The most rows and columns of a table of samples."""
MARKED = ("the numbers and figures on this page that are marked \u2020: they are computed from "
          "real records",)
SOFTWARE = ("versions", "git", "package_version", "generator_sha256")
"""Fields of config.json on the software that ran, not on the user's request."""
HIDDEN = ("typed", "request")
"""Fields of config.json that the report leaves out: paths of this machine."""
Images = tuple[np.ndarray, np.ndarray]
"""uint8 [n, H, W, ch] and labels int [n]."""
Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows of text."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The content of a report."""

    found: Assessment | None
    """The evaluation; None without one."""
    privacy: Json | None
    """The content of privacy.json; None for records that came as a table."""
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
    """Return the HTML of a report.

    Raises:
      UserError: The privacy statement is damaged.
    """
    found, measured, config = report.found or Assessment(), report.found is not None, report.config
    privacy = {} if report.privacy is None else documents.checked_statement(report.privacy)
    stated = _stated(privacy, found, measured, config) if privacy else None
    return render.page(
        __package__, "report.html", privacy=privacy, found=found, measured=measured,
        facts=found.facts, real=found.is_from_real,
        dataset=found.fact("dataset") or config.get("dataset") or "unnamed data",
        method=privacy.get("method") or config.get("method") or "unnamed method",
        stated=stated, exceeded=exceeded(found), verdict=assessment.sentences(found),
        advice=assessment.advice(found), numbers=assessment.numbers(found),
        samples=_samples(report.samples, class_names(config)),
        curves=figures.learning_curves(report.rows, bool(stated and stated.gaps)),
        spent=figures.epsilon_curve(report.rows, privacy) if privacy else None,
        utility=utility(found), bars=figures.utility_bars(found), targets=targets(found),
        losses=lost(found), fidelity=fidelity(found), figures=report.figures,
        shares=label_shares(found), groups=subgroups(found),
        count_tables=count_tables(found, privacy.get("records")),
        far_off=found.fact("fidelity", "far_off") or (), judge=judge(found),
        attacks=membership(found), attacks_figure=figures.attacks(found),
        tried=found.attacks, bounded=bool(found.fact("membership", "allowed")),
        audit=audit_sentences(report.audit, report.generator),
        audit_numbers=audit_numbers(report.audit), audit_figure=audit_figure(report.audit),
        settings=settings({k: v for k, v in config.items() if k not in (*SOFTWARE, *HIDDEN)}),
        versions=settings({k: config[k] for k in SOFTWARE if k in config}, "code"),
        everything=everything(found) if measured else ())


def _stated(privacy: Json, found: Assessment, measured: bool, config: Json
            ) -> documents.Explained:
    """Return the statement in sentences, with what the evaluation adds to it."""
    stated = documents.explained(privacy)
    return stated._replace(cautions=stated.cautions + mismatches(privacy, found),
                           not_covered=stated.not_covered + MARKED * measured,
                           notes=stated.notes + documents.by_hand(config))


def mismatches(privacy: Json, found: Assessment) -> tuple[str, ...]:
    """Return a sentence for each field in which the evaluation has another statement than this."""
    evaluated = found.fact("release") or {}
    return tuple(f"The evaluation was made of a release with {name.replace('_', ' ')} "
                 f"{number(evaluated[name])}, and this statement says {number(privacy.get(name))}."
                 for name in (*documents.NEEDED, "method", "preset")
                 if name in evaluated and _plain(evaluated[name]) != _plain(privacy.get(name)))


def _plain(value: Any) -> str:
    """Return a text that is the same for "inf", infinity and so on."""
    try:
        return str(float(value))
    except (TypeError, ValueError):
        return str(value)


def exceeded(found: Assessment) -> tuple[str, ...]:
    """Return what an attack reached beyond the guarantee, which then cannot hold."""
    return (str(found.attacks.sentence or "An attack reached more than the guarantee allows."),
            ) if found.attacks.exceeds_guarantee else ()


def class_names(config: Json) -> Sequence[str] | None:
    """Return the names of the classes of images, of a run's config.json or of a release."""
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
    return table(
        f"The first {len(shown)} synthetic rows{cut}",
        ["row", *(render.shorten(name, 60) for name in header[:MAX_COLUMNS])],
        [(str(i), [Cell(render.shorten(text, 60)) for text in row[:MAX_COLUMNS]])
         for i, row in enumerate(shown, 1)], numeric=False)


TASKS = {"gen2real": "synthetic \u2192 real", "real2real": "real \u2192 real",
         "real2gen": "real \u2192 synthetic"}
"""Labels of the tasks: trained on the first, tested on the second."""
BASES = ("auroc", "auprc", "balanced_accuracy", "accuracy", "f1", "r2")
"""Kinds of scores; names of metrics end with one of them."""
SHOWN = 2
"""Kinds of scores of a target that are shown."""


def cell(finding: Finding | None) -> Cell:
    """Return the cell of a score."""
    return NOTHING if finding is None else Cell(_text(finding.value), finding.from_real)


def floor_cell(finding: Finding) -> Cell:
    """Return the cell of the same score of real records."""
    return NOTHING if finding.real is None else Cell(_text(finding.real), True)


def _text(value: Score) -> str:
    return score(value.mean, value.std)


def utility(found: Assessment) -> list[Table]:
    """Return a table for each kind of score, with a row a classifier and a column a task."""
    scores = [one for task in TASKS for one in found.under(task)]
    return [_scores_of(found, kind, [one for one in scores if _base(one.name) == kind])
            for kind in _kinds(scores)]


def _kinds(scores: Sequence[Finding]) -> list[str]:
    """Return the kinds of scores, without accuracy where there is a balanced one.

    Accuracy misleads where classes are rare or weighed.
    """
    names = list(dict.fromkeys(_base(one.name) for one in scores))
    return [kind for kind in names if kind != "accuracy" or "balanced_accuracy" not in names]


def _base(metric: str) -> str:
    return next((base for base in BASES if metric.endswith(base)), metric)


def _scores_of(found: Assessment, kind: str, scores: Sequence[Finding]) -> Table:
    """Return the table of one kind of score."""
    tasks = list(dict.fromkeys(str(one.key[0]) for one in scores))
    columns = list(dict.fromkeys((one.name, str(one.key[0])) for one in scores))
    columns.sort(key=lambda column: (column[0] != kind, tasks.index(column[1]), column[0]))
    names = list(dict.fromkeys(name for task in TASKS for name in found.names(task)))
    rows = [(label(name), [cell(found.at(task, name, metric)) for metric, task in columns])
            for name in names]
    average = [found.at("average", task, metric) for metric, task in columns]
    if any(average):
        rows.append(("mean of all", [cell(one) for one in average]))
    heads = [TASKS[task] if metric == kind else f"{label(metric)}, {_way(metric, task)}"
             for metric, task in columns]
    return table(f"{title(kind)}: trained \u2192 tested", ["classifier", *heads], rows)


def _way(metric: str, task: str) -> str:
    """Return the label of a task; a validation score is tested on the kind it is trained on."""
    way = TASKS[task]
    return " \u2192 ".join([way.split(" ")[0]] * 2) if metric.startswith("validation") else way


def targets(found: Assessment) -> list[Table]:
    """Return a table for each target, with a row a model and a column a score and task."""
    tables = []
    for name in found.names("targets"):
        tasks, scores = found.names("targets", name), found.under("targets", name)
        columns = [(kind, task) for kind in _kinds(scores)[:SHOWN] for task in tasks]
        models = dict.fromkeys(one.key[3] for one in scores)
        tables.append(table(
            f"{name}, predicted from the other columns",
            ["model", *(f"{label(kind)}, {TASKS[task]}" for kind, task in columns)],
            [(label(str(model)), [cell(found.at("targets", name, task, model, kind))
                                  for kind, task in columns]) for model in models]))
    return tables


def fidelity(found: Assessment) -> list[Table]:
    """Return the table of distances and those of real records, and one for each column."""
    measures = [one for one in found.under("fidelity") if len(one.key) == 2]
    baselines = {one.name: one for one in found.under("baselines", "independent")}
    what = "columns" if found.fact("kind") == "table" else "pixels of a class"
    heads = [f"independent {what}"] * bool(baselines)
    rows = [(label(one.name), [cell(one), *[cell(baselines.get(one.name))] * bool(baselines),
                               floor_cell(one)]) for one in measures]
    if broken := found.at("schema_violations"):
        rows.append(("cells that break the schema", [cell(broken), *[NOTHING] * (
            1 + bool(baselines))]))
    tables = [table("Synthetic records against held-out real ones, and two baselines: "
                    f"synthetic {what}, each shuffled, and real training records",
                    ["measure", "synthetic", *heads, "real training records"], rows)
              ] if rows else []
    for one in measures:
        if columns := found.under(*one.key, "columns"):
            tables.append(table(
                f"{title(one.name)} of each column",
                ["column", "synthetic", "real training records"],
                [(column.name, [Cell(_text(column.value), True), floor_cell(column)])
                 for column in columns]))
    return tables


def lost(found: Assessment) -> Table | None:
    """Return the table of the losses, the worst first; None where none was found."""
    rows = [(f"{entry['kind']}: {', '.join(entry['columns']) or 'all columns'}", [
        Cell(number(entry[name]), True) for name in ("synthetic", "real", "noise", "size")])
        for entry in found.fact("losses") or ()]
    return table("What is lost, the worst first", [
        "kind and columns", "synthetic", "real", "halves of real rows", "size"], rows
                 ) if rows else None


def judge(found: Assessment) -> list[tuple[str, Cell]]:
    """Return the description of the classifier whose features the distances use."""
    return [(label(name), Cell(number(value), found.is_from_real(f"fidelity.judge.{name}")))
            for name, value in leaves(found.fact("fidelity", "judge") or {})]


def label_shares(found: Assessment) -> Table | None:
    """Return the table of the shares of the classes; None without a label."""
    return table("Shares of the classes", ["class", "synthetic", "real", "remark"], [
        (one.name, [_share(one.value, False), _share(one.real, True),
                    Cell("wrong", True) if one.severity else NOTHING])
        for one in found.shares]) if found.shares else None


def subgroups(found: Assessment) -> list[Table]:
    """Return a table for each grouping, with a row a subgroup."""
    groups = found.groups
    return [_grouped(by, [group for group in groups if group.by == by])
            for by in dict.fromkeys(group.by for group in groups)]


def _grouped(by: str, groups: Sequence[assessment.Group]) -> Table:
    """Return the table of one grouping."""
    metric = next((group.metric for group in groups if group.metric), "")
    tasks = ("gen2real", "real2real") if metric else ()
    heads = ["held-out rows", *["of the rarest class"] * (metric == "auroc"), "share of real rows",
             "share of synthetic rows", "columns, TVD", "real", "pairs, TVD", "real",
             "queries, error", "real",
             *(f"{label(metric)}, {TASKS[task]}" for task in tasks)]
    rows = []
    for group in groups:
        cells = [Cell(number(group.n_test), True)]
        cells += [Cell(number(group.n_rarest), True)] * (metric == "auroc")
        share = group.findings.get("synthetic_share")
        cells += [_share(group.real_share, True), _share(share.value if share else None, False)]
        for name in ("one_way_tvd", "two_way_tvd", "query_error"):
            one = group.findings.get(name)
            cells += [Cell(_text(one.value), True), floor_cell(one)] if one else [NOTHING] * 2
        cells += [Cell(_text(one.value), True) if (one := group.findings.get(task)) else NOTHING
                  for task in tasks]
        rows.append((group.name, [*cells, Cell(group.note)]))
    return table(f"Subgroups by {by}", ["group", *heads, "remark"], rows)


def _share(share: Score | None, real: bool) -> Cell:
    return NOTHING if share is None else Cell(percent(share.mean), real)


def count_tables(found: Assessment, records: int | None) -> Table | None:
    """Return the list of the noisy tables that were queried; None where there is none.

    Args:
      found: The evaluation.
      records: The public number of records, by which a noise counts as large or small.
    """
    listed = found.fact("asked")
    if not listed:
        return None
    rows = [(one["name"], [
        Cell(number(one["cells"])), Cell(number(one["rounds"])), Cell(number(one["noise"])),
        Cell(percent(one["noise"] / records)) if records else NOTHING]) for one in listed]
    return table("Requested tables", [
        "columns", "counts, at most", "releases", "noise of a count", "of all records"], rows)


def membership(found: Assessment) -> Table | None:
    """Return the table of attacks, of the bounds of the guarantee, and of chance, if any."""
    scores = found.under("membership", "attacks")
    if not scores:
        return None
    first = {one.name: one for one in scores}
    rows = [(label(name), [cell(found.at("membership", "attacks", name, measure))
                           for measure in first])
            for name in found.names("membership", "attacks")]
    limits = {"allowed at most": [one.allowed for one in first.values()],
              "chance": [one.chance for one in first.values()]}
    rows += [(text, [Cell(number(limit)) for limit in known]) for text, known in limits.items()
             if any(limit is not None for limit in known)]
    return table("Membership attacks", ["attack", *map(label, first)], rows)


def everything(found: Assessment) -> list[Table]:
    """Return tables of all of metrics.json under its dotted keys: the scores, and the rest."""
    scores = [(one.path, [
        cell(one),
        Cell("; ".join(map(number, one.value.values)) or NOTHING.text, one.from_real),
        floor_cell(one)]) for one in found.findings]
    others = [(path, [Cell(number(value), found.is_from_real(path))])
              for path, value in leaves(found.facts)]
    tables = [table("Scores", ["key", "mean \u00b1 standard deviation", "each seed",
                               "real against real"], scores)] if scores else []
    return [*tables, table("What else metrics.json says", ["key", "value"], others, numeric=False)]


def settings(config: Json, first: str = "run") -> list[Table]:
    """Return a table for each part of a configuration, the schema of a table of records last.

    Args:
      config: The content of config.json.
      first: The caption of the table of fields that are not nested.
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


SIDES = ("false_positives", "false_negatives")
VERDICTS = ("holds", "fails", "cannot be checked")
PROMISED = "promised"
"""The last word of the names of curves that are promised; others were certified."""
MAX_PANELS = 2


def read_audit(run: Path) -> Json:
    """Return the audit of a run folder, or {} where there is none that can be read."""
    try:
        document = parse_json((run / "audit" / "audit.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def audit_sentences(audit: Json, digest: str | None) -> tuple[str, ...]:
    """Summarise an audit in sentences, the most important one first.

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
    """Return the table of what is claimed and what was certified, if anything was."""
    rows = [(f"{f['check']}: {f.get('measure')}", [Cell(number(f["claimed"])),
                                                    Cell(number(f["certified"]))])
            for f in _findings(audit) if _is_number(f.get("claimed"))
            and _is_number(f.get("certified"))]
    return table("Claimed, and certified by an attack with 95 % confidence",
                 ["attack", "claimed at most", "certified at least"], rows) if rows else None


def audit_figure(audit: Json) -> Figure | None:
    """Draw the trade-off curves of an audit, a panel for each promise; None without curves."""
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
                  "record was used makes two kinds of errors. "
                  "No attack gets below a promised curve; a "
                  "certified one was reached by an attack, with "
                  "95 % confidence, on one release whose noise "
                  "was lowered until "
                  "it reveals something.", svg(3.2, draw))


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
      summary: Numbers by name.
      header: The names of the columns; None for images.

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
                       summary=[(label(name).replace(".", ": "), number(value))
                                for name, value in leaves(summary)])


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
    found: Assessment
    """Its evaluation."""
    privacy: Json
    """The content of privacy.json."""
    grid: Figure | None = None
    """A grid of samples, if there is one."""
    runs: tuple[Entry, ...] = ()
    """The trainings that it is the mean of, where it is one."""


def pooled(name: str, runs: Sequence[Entry]) -> Entry:
    """Return two or more trainings of one configuration as one entry, of means and deviations.

    Raises:
      UserError: They differ in method, preset or what they promise, or were not measured alike.
    """
    for field in ("method", "preset", "epsilon", "delta", "unit", "relation", "guarantee"):
        if len({str(run.privacy.get(field)) for run in runs}) > 1:
            raise UserError(f"the runs in {name} differ in {field}: they are not repeats; compare "
                            "them one by one")
    if len({str(conditions(run.found)) for run in runs}) > 1:
        raise UserError(f"the runs in {name} were not evaluated alike; give evaluate the same "
                        "flags")
    return Entry(f"{name}: mean of {len(runs)} trainings",
                 over_runs([run.found for run in runs]), runs[0].privacy, runs[0].grid,
                 tuple(runs))


def compare(runs: Sequence[Entry]) -> str:
    """Return the HTML; best values are marked among the runs of `comparable` only.

    Raises:
      UserError: There are fewer than two runs, or a privacy statement is damaged.
    """
    if len(runs) < 2:
        raise UserError("a comparison needs at least two evaluated runs; name their folders")
    entries = [entry._replace(privacy=documents.checked_statement(entry.privacy)) for entry in runs]
    fair = comparable(entries)
    return render.page(
        __package__, "compare.html", entries=entries, fair=[entries[i].name for i in fair],
        warnings=warnings(entries), terms=_terms(entries), scores=_scores(entries, fair),
        scatter=figures.scatter([
            figures.Point(e.name, e.privacy["epsilon"], *main_score(e.found), not doubts(e))
            for e in entries]))


def conditions(found: Assessment) -> Json:
    """Return the conditions of an evaluation, with the keys of `SAME`."""
    schedule = ", ".join(f"{name} {number(value)}" for name, value in leaves(
        found.fact("setting", "schedule") or {}))
    return {name: found.fact(name) for name in SAME} | {
        "setting": found.fact("setting", "name"), "schedule": schedule or None,
        "classifiers": ", ".join(found.names("gen2real")) or None}


def comparable(entries: Sequence[Entry]) -> list[int]:
    """Return the indices of the largest group of runs with valid guarantees and equal conditions.

    It is the first of equally large groups, and none for a group of one.
    """
    groups: dict[str, list[int]] = {}
    for i, entry in enumerate(entries):
        if entry.found.findings and not doubts(entry):
            groups.setdefault(str(conditions(entry.found)), []).append(i)
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
                     "promise and cannot be compared.")
    of_runs = [conditions(entry.found) for entry in entries]
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
    return documents.alarms(entry.privacy) + uncovered + exceeded(entry.found)


def main_score(found: Assessment) -> tuple[str, float]:
    """Return the name and the value of the score by which a run is drawn; "" and NaN for none."""
    one = assessment.use(found)
    return ("", math.nan) if one is None else (
        f"{label(str(one.key[1]))}, {one.key[2]}", float(one.value.mean))


def _terms(entries: Sequence[Entry]) -> Table:
    """Return the table of the guarantees and of the conditions of the evaluations."""
    of_runs = [conditions(entry.found) for entry in entries]
    rows = [("guarantee", [Cell(guarantee.of(e.privacy).text) for e in entries])]
    rows += [(name, [Cell(bound(e.privacy.get(name))) for e in entries])
             for name in ("epsilon", "delta")]
    rows += [(name.replace("_", " "), [Cell(number(e.privacy.get(name))) for e in entries])
             for name in ("unit", "relation", "noise_source", "method", "preset", "steps")]
    rows += [(text, [Cell(number(run[name])) for run in of_runs]) for name, text in SAME.items()]
    return table("What is promised, and how it was evaluated",
                 ["", *(entry.name for entry in entries)], rows)


def _scores(entries: Sequence[Entry], fair: Sequence[int]) -> Table:
    """Return the table of all scores, with the best of the comparable runs marked."""
    by_run = [{one.path: one for one in entry.found.findings} for entry in entries]
    paths = dict.fromkeys(path for scores in by_run for path in scores)
    rows = []
    for path in sorted(paths, key=lambda path: not path.startswith("average")):
        scores = [of_run.get(path) for of_run in by_run]
        best = _best(path, scores, fair)
        rows.append((" ".join(map(label, path.split("."))), [
            dataclasses.replace(cell(one), best=i in best) for i, one in enumerate(scores)]))
    return table("Scores", ["score", *(entry.name for entry in entries)], rows)


def _best(path: str, scores: Sequence[Finding | None], fair: Sequence[int]) -> list[int]:
    """Return the indices of the best mean among the `fair` runs.

    There are none where neither higher nor lower is better, where only one of the runs has the
    score, and where all are equal.
    """
    sign = _sign(path)
    means = {i: sign * one.value.mean for i in fair if (one := scores[i]) is not None}
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
