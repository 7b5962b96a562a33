"""What a release shows of itself: synthetic records and public metrics, nothing real."""

from __future__ import annotations

import numpy as np

from dpgen_jax.run import export, metrics, plots
from dpgen_jax.run.bundle import Release
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.types import TableSpec

COLUMNS = 12
ROWS = 1000


def write(files: RunFolder, release: Release) -> None:
    """release/samples.png, a row per class, or release/samples.csv and marginals.png of a table;
    nothing of a classifier; curves.png of the public metrics. Written anew by a resumed run."""
    if not release.classifies:
        (_table if isinstance(release.spec, TableSpec) else _images)(files, release)
    plots.curves(metrics.read(files.metrics), files.root / "curves.png")


def _images(files: RunFolder, release: Release) -> None:
    classes = release.spec.classes
    x, _ = release.sample(classes * COLUMNS, np.repeat(np.arange(classes), COLUMNS))
    plots.samples_grid(x, files.release / "samples.png", rows=classes)


def _table(files: RunFolder, release: Release) -> None:
    x, y = release.sample(ROWS)
    export.write_csv(files.release / "samples.csv", x, y, release.spec)
    plots.marginals(release.spec, x, y, files.release / "marginals.png")
