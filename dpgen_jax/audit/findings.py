"""The findings of an audit, one for each check, the report of all of them, and its files."""

from __future__ import annotations

import dataclasses
import enum
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpgen_jax.core.config import to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json, json_bytes, write_together
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import UserError
from dpgen_jax.release import contents
from dpgen_jax.version import __version__

FAILED, UNDECIDED = 5, 6
"""exit codes: a check fails; or none fails but at least one could not be made"""
ALARM = 1e-6
"""The largest probability of a false alarm of a check that reports "fails"."""

Log = Callable[[str], None]
"""Prints a line of an audit."""


def quiet(line: str) -> None:
    """Prints nothing."""


class Verdict(enum.StrEnum):
    """The outcome of a check."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "cannot be checked"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of one check.

    Attributes:
        check: What was checked, in a few words.
        verdict: Its outcome.
        detail: What was observed, or why the check cannot be made; one line.
        advice: What the reader can do, or empty.
        measure: The quantity of `claimed` and `certified`, such as "mu" or "epsilon at delta
            1e-05".
        claimed: The upper bound that the code claims.
        certified: The lower bound that the attack certifies.
        confidence: The confidence of `certified`.
        seconds: The duration of the check.
    """

    check: str
    verdict: Verdict
    detail: str = ""
    advice: str = ""
    measure: str = ""
    claimed: float | None = None
    certified: float | None = None
    confidence: float | None = None
    seconds: float = 0.0

    @property
    def share(self) -> float | None:
        """The certified share of the claim; None without a claim above 0."""
        if not self.claimed or self.certified is None:
            return None
        return self.certified / self.claimed

    def line(self) -> str:
        """Returns the finding as a line."""
        words = [self.detail, self.advice]
        if self.claimed is not None and self.certified is not None:
            share = f" ({self.share:.0%})" if self.share is not None else ""
            words = [f"{self.measure} claimed {at_most(self.claimed, 4)}, certified "
                     f"{self.certified:.4g}{share} at confidence {self.confidence:g}", *words]
        said = "; ".join(filter(None, words))
        return (f"{self.verdict:17} {self.check}{f': {said}' * bool(said)} "
                f"[{self.seconds:.1f} s]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All findings of one audit.

    Attributes:
        subject: What was audited, in a few words.
        findings: One for each check, in their order.
        limits: What no check of this audit covers, a line each.
        facts: The settings of the audit, by name, for the file.
        curves: Trade-off curves for the picture, by name: lists "false_positives" and
            "false_negatives" of equal length; none for no picture.
        closing: The last line; by default the counts of verdicts.
    """

    subject: str
    findings: tuple[Finding, ...]
    limits: tuple[str, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Mapping[str, list[float]]] = dataclasses.field(default_factory=dict)
    closing: str = ""

    def count(self, verdict: Verdict) -> int:
        """Returns how many checks have this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0 only if there are checks and all hold."""
        if self.count(Verdict.FAILS):
            return FAILED
        return 0 if self.findings and not self.count(Verdict.UNCHECKED) else UNDECIDED

    @property
    def last_line(self) -> str:
        """The closing line."""
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in Verdict)
        return self.closing or f"{self.subject}: {counts}"

    def lines(self) -> list[str]:
        """Returns the report as lines, without the findings, which are printed immediately."""
        return [*(f"not seen by this audit: {limit}" for limit in self.limits), self.last_line]

    def record(self) -> Json:
        """Returns the report as plain values, for its file."""
        return {"subject": self.subject, "version": __version__, "exit_code": self.exit_code,
                "findings": [{**dataclasses.asdict(finding), "verdict": str(finding.verdict)}
                             for finding in self.findings],
                "limits": list(self.limits), "facts": dict(self.facts),
                "curves": {name: dict(curve) for name, curve in self.curves.items()}}

    def save(self, out: Path) -> Path:
        """Writes audit.json and, if there are curves, audit.png into a folder.

        Args:
            out: The folder, which need not exist; files of an earlier audit in it are replaced.

        Returns:
            The path of audit.json.

        Raises:
            UserError: The folder lies in a release, which is shared, or is a file.
            OSError: It cannot be written.
        """
        require_folder(out)
        picture = {"audit.png": _picture(self)} if self.curves else {}
        write_together(out, {**picture, "audit.json": json_bytes(to_json(self.record()))})
        return out / "audit.json"


class Findings:
    """Collects findings, and prints each immediately.

    Attributes:
        made: The findings so far.
    """

    def __init__(self, log: Log = quiet):
        self._log, self._since = log, time.monotonic()
        self.made: list[Finding] = []

    def add(self, check: str, verdict: Verdict, detail: str = "", **others: Any) -> Finding:
        """Adds a finding with these fields; its duration is the time since the previous one."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        finding = Finding(check=check, verdict=verdict, detail=detail,
                          **{"seconds": seconds, **others})
        self.made.append(finding)
        self._log(finding.line())
        return finding

    def found(self, check: str, holds: bool, detail: str = "", **others: Any) -> Finding:
        """Adds a finding that holds or fails."""
        return self.add(check, Verdict.HOLDS if holds else Verdict.FAILS, detail, **others)

    def unchecked(self, check: str, detail: str, advice: str = "") -> Finding:
        """Adds a check that cannot be made."""
        return self.add(check, Verdict.UNCHECKED, detail, advice=advice)


def require_folder(out: Path) -> None:
    """Refuses a folder into which no audit may be written, before an audit spends minutes.

    Raises:
        UserError: The folder lies in a release, which is shared, or is a file.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{option('out', out)} is a file; name a folder")
    contents.refuse_shared(out, "an audit is for the data holder only")


def _picture(report: Report) -> bytes:
    figure = Figure(figsize=(5.2, 5.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, 1], [1, 0], ":", color="0.6", label="guessing")
    for name, curve in report.curves.items():
        style = "o" if len(curve["false_positives"]) < 10 else "-"
        axes.plot(curve["false_positives"], curve["false_negatives"], style, label=name)
    axes.set(xlabel="false positives", ylabel="false negatives", xlim=(0, 1), ylim=(0, 1),
             title=report.subject)
    axes.legend(frameon=False)
    box = io.BytesIO()
    figure.savefig(box, format="png")
    return box.getvalue()
