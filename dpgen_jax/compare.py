"""Writes one page that compares runs which `evaluate` has measured.

    python -m dpgen_jax.compare RUN1 RUN2 ... [--out PAGE.html]

The page is one file. A folder of runs 0, 1, ..., as `dpgen_jax.repeat` makes it, is one entry: the
mean over them, and their deviation.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dpgen_jax.cli import parser, terminal
from dpgen_jax.core.console import program
from dpgen_jax.core.errors import UserError

if TYPE_CHECKING:
    from dpgen_jax.evaluation.report import Entry

UNKNOWN = {"epsilon": "inf", "delta": 1.0, "relation": "unknown", "unit": "unknown",
           "noise_source": "unknown",
           "guarantee": "none: the rows came as a table, and their statement is not known"}
"""The statement of synthetic rows that came as a table."""
DESCRIPTION = "Writes one page that compares runs which `evaluate` has measured."


@dataclasses.dataclass(frozen=True)
class Compare:
    """The flags."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """run folders that were evaluated, or folders that `evaluate --out` wrote; a folder of runs 0,
    1, ... counts as their mean"""
    out: Path = Path("comparison.html")
    """the page"""


def command(argv: list[str]) -> None:
    """Runs the command. Raises: UserError."""
    args = parser.parse(Compare, argv, "python -m dpgen_jax.compare", DESCRIPTION)
    from dpgen_jax.evaluation import report
    from dpgen_jax.release import contents

    out = args.out if args.out.suffix == ".html" else args.out / "comparison.html"
    contents.refuse_shared(out, "a comparison contains numbers from real records")
    page = report.compare([_entry(path) for path in args.runs])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    print(out)


def _entry(path: Path) -> Entry:
    """The results of an evaluation, or of several. Raises: UserError where there are none."""
    from dpgen_jax.evaluation import report

    repeats = sorted((part for part in path.glob("*") if part.is_dir() and part.name.isdecimal()),
                     key=lambda part: int(part.name))
    if len(repeats) > 1 and not (path / "config.json").exists():
        return report.pooled(path.resolve().name, [_one(part) for part in repeats])
    return _one(path)


def _one(path: Path) -> Entry:
    """The results of one evaluation. Raises: UserError where there are none."""
    from dpgen_jax.core import files
    from dpgen_jax.evaluation import assessment
    from dpgen_jax.evaluation.report import Entry
    from dpgen_jax.release.render import Figure

    folder = next((f for f in (path / "evaluation", path) if (f / "metrics.json").is_file()), None)
    if folder is None:
        raise UserError(f"{path} has no evaluation/metrics.json; if it is a run, first run "
                        f"{program('evaluate', path)} first")
    found = assessment.load(folder / "metrics.json")
    if found.fact("kind") == "classifier":
        raise UserError(f"{path} is a classifier: it makes no records to compare; its accuracy is "
                        f"in {folder / 'metrics.json'}")
    picture = folder / "samples.png"
    grid = Figure("Synthetic images", "One row a class.", files.read_bytes(picture)
                  ) if picture.is_file() else None
    return Entry(path.resolve().name, found, found.fact("release") or UNKNOWN, grid)


if __name__ == "__main__":
    terminal.main(command)
