"""The audit of a run in its report: what was certified beside what is promised.

`python -m dpgen_jax.audit RUN` writes it beside the release, for the data holder. Details of its
checks may quote names and paths, and are left out here.
"""

from __future__ import annotations

import math
from pathlib import Path

from dpgen_jax.core.strict_json import Json, parse_json
from dpgen_jax.evaluation.report.drawing import LIMIT, REAL, SYNTHETIC, Drawing, axes_in, svg
from dpgen_jax.release import plots
from dpgen_jax.release.render import Cell, Figure, Table, number, table

SIDES = ("false_positives", "false_negatives")
VERDICTS = ("holds", "fails", "cannot be checked")
PROMISED = "promised"
"""The last word of the names of curves that are promised; others were certified."""
MAX_PANELS = 2


def read(run: Path) -> Json:
    """Returns the audit of a run folder, or {} where there is none that can be read.

    Args:
        run: The run folder.
    """
    try:
        document = parse_json((run / "audit" / "audit.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def sentences(audit: Json, digest: str | None) -> tuple[str, ...]:
    """Returns what came of an audit, in sentences, the first of them what to mind.

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


def numbers(audit: Json) -> Table | None:
    """Returns the table of what is claimed and what was certified; None where nothing was.

    Args:
        audit: The content of audit.json.
    """
    rows = [(f"{f['check']}: {f.get('measure')}", [Cell(number(f["claimed"])),
                                                    Cell(number(f["certified"]))])
            for f in _findings(audit) if _is_number(f.get("claimed"))
            and _is_number(f.get("certified"))]
    return table("Claimed, and certified by an attack with 95 % confidence",
                 ["attack", "claimed at most", "certified at least"], rows) if rows else None


def figure(audit: Json) -> Figure | None:
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
