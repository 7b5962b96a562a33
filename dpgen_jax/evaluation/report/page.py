"""The page report.html, which a data holder can show to a lawyer or a reviewer.

It is one file, without scripts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.strict_json import Json
from dpgen_jax.evaluation.report import audited, figures, table_parts, tables, verdict
from dpgen_jax.release import documents, explain, guarantee, render
from dpgen_jax.release.render import Cell, Figure, Table, number

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
    privacy, metrics = explain.checked(report.privacy), report.metrics
    membership = metrics.get("membership") or {}
    return render.page(
        __package__, "report.html", privacy=privacy, metrics=metrics,
        dataset=metrics.get("dataset") or report.config.get("dataset") or "unnamed data",
        method=privacy.get("method") or report.config.get("method") or "unnamed method",
        statement=statement(privacy, metrics, report.config),
        verdict=verdict.sentence(metrics), numbers=verdict.numbers(metrics),
        samples=_samples(report.samples, class_names(report.config)),
        real=tables.from_real(metrics),
        curves=figures.learning_curves(report.rows, bool(explain.gaps(privacy))),
        spent=figures.epsilon_curve(report.rows, privacy),
        utility=tables.utility(metrics), bars=figures.utility_bars(metrics),
        targets=table_parts.targets(metrics),
        fidelity=tables.fidelity(metrics), figures=report.figures,
        shares=table_parts.label_shares(metrics), groups=table_parts.subgroups(metrics),
        count_tables=table_parts.count_tables(metrics, privacy.get("records")),
        constraints=metrics.get("constraints") or (),
        far_off=(metrics.get("fidelity") or {}).get("far_off") or (),
        judge=tables.judge(metrics),
        attacks=tables.membership(membership, tables.from_real(metrics)),
        attacks_figure=figures.attacks(membership), membership=membership,
        audit=audited.sentences(report.audit, report.generator),
        audit_numbers=audited.numbers(report.audit), audit_figure=audited.figure(report.audit),
        settings=tables.settings({k: v for k, v in report.config.items()
                                  if k not in (*SOFTWARE, *HIDDEN)}),
        versions=tables.settings({k: report.config[k] for k in SOFTWARE if k in report.config},
                                 "code"),
        ledger=documents.ledger(privacy), everything=tables.everything(metrics) if metrics else ())


SOFTWARE = ("versions", "git", "package_version", "generator_sha256")
"""Fields of config.json on the software that ran, not on what the user asked for."""
HIDDEN = ("typed",)
"""Fields of config.json that the report leaves out: paths of this machine."""


def statement(privacy: Json, metrics: Json, config: Json) -> Json:
    """Explain a privacy statement, for the template.

    Args:
      privacy: A statement that `explain.checked` returned.
      metrics: The content of metrics.json, or {}.
      config: The content of config.json, or {}.

    Returns:
      Its parts as sentences, by the names that the template uses.
    """
    return {"guarantee": guarantee.of(privacy).text, "alarms": explain.alarms(privacy),
            "gaps": explain.gaps(privacy), "exceeded": exceeded(metrics),
            "cautions": explain.cautions(privacy) + mismatches(privacy, metrics),
            "promise": explain.promise(privacy), "assumptions": explain.assumptions(privacy),
            "not_covered": explain.not_covered(privacy) + MARKED * bool(metrics),
            "notes": explain.other_notes(privacy) + explain.by_hand(config)}


def mismatches(privacy: Json, metrics: Json) -> tuple[str, ...]:
    """Return a sentence for each field in which the evaluation has another statement than this."""
    evaluated = metrics.get("release") or {}
    return tuple(f"The evaluation was made of a release with {name.replace('_', ' ')} "
                 f"{number(evaluated[name])}, and this statement says {number(privacy.get(name))}."
                 for name in (*explain.NEEDED, "method", "preset")
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
