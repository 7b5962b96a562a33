"""What a release shows of itself: synthetic records and public metrics, nothing real."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpgen_jax.run import export, metrics, plots
from dpgen_jax.run.bundle import Release
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.progress import Notices
from dpgen_jax.types import TableSpec

COLUMNS = 12
ROWS = 1000

Drawings = dict[str, Callable[[Path], object]]
"""What draws each file, by its name."""


def write(files: RunFolder, release: Release, notices: Notices) -> None:
    """release/samples.png, a row per class, or release/samples.csv and marginals.png of a table;
    nothing of a classifier; curves.png of the public metrics. Written anew by a resumed run. One
    that cannot be drawn is missing, and `notices` say why."""
    made: Drawings = {}
    if not release.classifies:
        made = (_table if isinstance(release.spec, TableSpec) else _images)(release)
    drawings = {files.release / name: draw for name, draw in made.items()}
    drawings[files.root / "curves.png"] = lambda path: plots.curves(
        metrics.read(files.metrics), path)
    for path, draw in drawings.items():
        with notices.attempt(f"writing {path}"):
            _replace(path, draw)


def _replace(path: Path, draw: Callable[[Path], object]) -> None:
    """Whole or not at all; the picture of an earlier release goes in any case."""
    path.unlink(missing_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    try:
        draw(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _images(release: Release) -> Drawings:
    def samples(path: Path) -> None:
        classes = release.spec.classes
        x, _ = release.sample(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS))
        plots.samples_grid(x, path, rows=classes)

    return {"samples.png": samples}


def _table(release: Release) -> Drawings:
    drawn = functools.cache(lambda: release.sample(ROWS))
    return {"samples.csv": lambda path: export.write_csv(path, *drawn(), release.spec),
            "marginals.png": lambda path: plots.marginals(release.spec, *drawn(), path)}
