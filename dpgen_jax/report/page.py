"""report.html: what a data holder can show to a lawyer or a reviewer. One file, no scripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgen_jax import guarantee
from dpgen_jax.report import figures, render, tables, words
from dpgen_jax.report.render import Cell, Figure, Table

MAX_ROWS, MAX_COLUMNS = 20, 100
"""Of a table of samples."""

Images = tuple[np.ndarray, np.ndarray]
"""uint8 [n, H, W, ch] and labels int [n]."""
Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows of text."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What the report is made of.

    metrics: metrics.json, {} without an evaluation; privacy: the statement of privacy.json; config:
    config.json of the run or of the release; rows: those of metrics.jsonl, none for a bare release;
    samples: synthetic records, or None; figures: those of the fidelity, drawn where the held-out
    records are.
    """

    metrics: dict[str, Any]
    privacy: dict[str, Any]
    config: dict[str, Any]
    rows: Sequence[dict[str, Any]] = ()
    samples: Images | Rows | None = None
    figures: tuple[Figure, ...] = ()


def page(report: Report) -> str:
    """The HTML. Every number is taken from the report's parts; nothing is computed from records
    here. Errors: UserError for a damaged privacy statement."""
    privacy, metrics = words.checked(report.privacy), report.metrics
    membership = metrics.get("membership") or {}
    return render.page(
        "report.html", privacy=privacy, metrics=metrics,
        dataset=metrics.get("dataset") or report.config.get("dataset") or "unnamed data",
        method=privacy.get("method") or report.config.get("method") or "unnamed method",
        statement=statement(privacy, metrics),
        samples=_samples(report.samples),
        curves=figures.learning_curves(report.rows),
        spent=figures.epsilon_curve(report.rows, privacy),
        utility=tables.utility(metrics), bars=figures.utility_bars(metrics),
        fidelity=tables.fidelity(metrics), figures=report.figures,
        judge=tables.judge(metrics),
        attacks=tables.membership(membership, tables.from_real(metrics)),
        attacks_figure=figures.attacks(membership), membership=membership,
        settings=tables.settings({k: v for k, v in report.config.items() if k not in KEPT}),
        versions=tables.settings({k: report.config[k] for k in KEPT if k in report.config}, "code"),
        ledger=tables.ledger(privacy), everything=tables.everything(metrics) if metrics else ())


KEPT = ("versions", "git", "package_version", "generator_sha256")
"""Fields of config.json that say what ran, not what was asked for."""


def statement(privacy: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """The parts of the privacy statement in words."""
    return {"guarantee": guarantee.of(privacy).text, "alarms": words.alarms(privacy),
            "gaps": words.gaps(privacy), "exceeded": words.exceeded(metrics),
            "cautions": words.cautions(privacy) + words.mismatches(privacy, metrics),
            "promise": words.promise(privacy), "assumptions": words.assumptions(privacy),
            "not_covered": words.not_covered(privacy, bool(metrics)),
            "notes": words.other_notes(privacy)}


def _samples(samples: Images | Rows | None) -> Figure | Table | None:
    if samples is None or not len(samples[1]):
        return None
    if isinstance(samples[0], np.ndarray):
        return figures.sample_grid(*samples)
    header, rows = samples
    shown = rows[:MAX_ROWS]
    cut = "" if len(header) <= MAX_COLUMNS else f", {MAX_COLUMNS} of {len(header)} columns"
    return render.table(
        f"The first {len(shown)} synthetic rows{cut}",
        ["row", *(render.shorten(name, 60) for name in header[:MAX_COLUMNS])],
        [(str(i), [Cell(render.shorten(text, 60)) for text in row[:MAX_COLUMNS]])
         for i, row in enumerate(shown, 1)], numeric=False)
