"""The files of an audit: audit.json, and a picture where there are trade-off curves."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpgen_jax.audit.findings import Report
from dpgen_jax.core.atomic import json_bytes, write_together
from dpgen_jax.core.config import to_json
from dpgen_jax.core.types import UserError
from dpgen_jax.release import contents

LAST = "audit.json"
PICTURE = "audit.png"


def require_folder(out: Path) -> Path:
    """Returns a folder that an audit may be written into, before minutes are spent on it.

    Args:
        out: The folder, which need not exist.

    Raises:
        UserError: The folder lies in a release, which is shared, or is a file.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder")
    contents.refuse_shared(out, "an audit is for the data holder")
    return out


def write(report: Report, out: Path) -> Path:
    """Writes the files of a report into a folder.

    Args:
        report: The report.
        out: The folder, which need not exist; files of an earlier audit in it are replaced.

    Returns:
        The path of audit.json.

    Raises:
        OSError: It cannot be written.
    """
    picture = {PICTURE: curves_picture(report)} if report.curves else {}
    write_together(out, {**picture, LAST: json_bytes(to_json(report.record()))})
    return out / LAST


def curves_picture(report: Report) -> bytes:
    """Returns the trade-off curves of a report as a PNG file."""
    figure = Figure(figsize=(5.2, 5.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, 1], [1, 0], ":", color="0.6", label="nothing can be told")
    for name, curve in report.curves.items():
        style = "o" if len(curve["false_positives"]) < 10 else "-"
        axes.plot(curve["false_positives"], curve["false_negatives"], style, label=name)
    axes.set(xlabel="false positives", ylabel="false negatives", xlim=(0, 1), ylim=(0, 1),
             title=report.subject)
    axes.legend(frameon=False)
    box = io.BytesIO()
    figure.savefig(box, format="png")
    return box.getvalue()
