"""Writes the pictures of a release: synthetic records and public metrics, nothing real."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpgen_jax.core.types import TableSpec
from dpgen_jax.release import export, plots
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import metrics
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.planning import Log
from dpgen_jax.run.progress import Notices

COLUMNS = 12
ROWS = 1000

BARELY = 12
"""The shades, out of 255, within which images look all alike."""

Drawings = dict[str, Callable[[Path], object]]
"""The function that draws each file, by the name of the file."""


def write(files: RunFolder, release: Release, notices: Notices, log: Log) -> None:
    """Draws a first look at a release, anew in a resumed run.

    It is release/samples.png, a row for each class, or of a table release/samples.csv and
    marginals.png; nothing of a classifier; and curves.png of the public metrics. One that cannot be
    drawn is missing, and `notices` say why.

    Args:
        files: The run folder.
        release: The release.
        notices: Tells what failed.
        log: Prints a line of the run: where images show nothing.
    """
    made: Drawings = {}
    if not release.classifies:
        spec = release.spec
        made = _table(release, spec) if isinstance(spec, TableSpec) else _images(release, log)
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


def _images(release: Release, log: Log) -> Drawings:
    def samples(path: Path) -> None:
        spec = release.spec
        x, _ = release.sample(spec.classes * COLUMNS, np.repeat(np.arange(spec.classes), COLUMNS))
        plots.samples_grid(x, path, spec.classes, spec.class_names or None)
        if shade := nothing_shown(x):
            log(f"note: samples.png shows nothing: every image is {shade}; with more budget, more "
                "records or another method there may be more to see")

    return {"samples.png": samples}


def nothing_shown(x: np.ndarray) -> str:
    """Returns the shade of which all images are; empty where there is something to see.

    Args:
        x: Images uint8 [n, H, W, ch].
    """
    least, most = int(x.min()), int(x.max())
    if most - least > BARELY:
        return ""
    return ("all black" if most <= BARELY else "all white" if least >= 255 - BARELY else
            f"of one shade ({(least + most) // 2} of 255)")


def _table(release: Release, spec: TableSpec) -> Drawings:
    sample = functools.cache(lambda: release.sample(ROWS))
    return {"samples.csv": lambda path: export.write_csv(path, *sample(), spec),
            "marginals.png": lambda path: plots.marginals(spec, *sample(), path)}
