"""The files that an evaluation writes: metrics.json, report.html, and the data holder's page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core.config import to_json
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import TableSpec
from dpgen_jax.data import Dataset, transform, without_empty_slots, writing
from dpgen_jax.evaluation import attacks
from dpgen_jax.evaluation.marginals import cells
from dpgen_jax.evaluation.report import audited, figures, neighbours, page, table_figures
from dpgen_jax.evaluation.scores import Images
from dpgen_jax.release import contents, plots
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import folder
from dpgen_jax.run import metrics as run_metrics

N_NEIGHBOURS = 500
"""Synthetic records whose nearest real neighbours are shown on the private page."""
GRID_COLUMNS = 10


def delivered(release: Release, spec: TableSpec, n: int, seed: int) -> Images:
    """Return rows of a table as a user gets them, encoded: whole numbers are whole.

    Args:
      release: The release of a table.
      spec: Its schema.
      n: How many rows.
      seed: The seed of the draw.

    Returns:
      Encoded rows float64 [n, F] and labels int [n].
    """
    codes, y = release.sample(n, seed=seed)
    return transform.encode(spec, codes), y


def write(metrics: Json, release: Release, dataset: Dataset, out: Path,
          run: Path | None = None) -> Path:
    """Write metrics.json, report.html, samples.png of images, and private/neighbours.html.

    The last holds real records. Of a classifier metrics.json alone is written.

    Args:
      metrics: The result of `assess`.
      release: The release.
      dataset: The data set, as for `assess`.
      out: The folder that is written to.
      run: The run folder of the release, if it is at hand.

    Returns:
      The path of the report, or of metrics.json.
    """
    dataset = without_empty_slots(dataset)
    out.mkdir(parents=True, exist_ok=True)
    folder.write_json(out / "metrics.json", metrics)
    if release.classifies:
        return out / "metrics.json"
    samples = _samples(release)
    drawings: tuple[figures.Figure | None, ...] = ()
    if isinstance(release.spec, TableSpec):
        drawings = _table_figures(release, release.spec, dataset)
    else:
        plots.samples_grid(samples[0], out / "samples.png", release.spec.classes,
                           release.spec.class_names or None)
    source = run if run and (run / "config.json").is_file() else None
    report = page.Report(
        metrics, release.privacy,
        contents.described(source / "config.json") if source else _configuration(release),
        run_metrics.read(source / "metrics.jsonl") if source else (), samples,
        tuple(figure for figure in drawings if figure),
        audited.read(source) if source else {},
        contents.described(source / "release/config.json").get("generator_sha256")
        if source else None)
    (out / "report.html").write_text(page.page(report), encoding="utf-8")
    _write_private(out / "private", release, dataset)
    return out / "report.html"


def _configuration(release: Release) -> Json:
    return {"method": release.method, "config": to_json(release.config),
            "spec": to_json(release.spec)}


def _samples(release: Release) -> Any:
    """Return images, a row of `GRID_COLUMNS` a class; or header and rows of text."""
    if isinstance(release.spec, TableSpec):
        return writing.cells(release.spec, *release.sample(page.MAX_ROWS, seed=0))
    classes = release.spec.classes
    return release.sample(classes * GRID_COLUMNS, np.repeat(np.arange(classes), GRID_COLUMNS),
                          seed=0)


def _table_figures(release: Release, spec: TableSpec, dataset: Dataset
                   ) -> tuple[figures.Figure | None, ...]:
    x, y = dataset.x_train, dataset.y_train
    held_out = _held_out(dataset)
    n = min(len(held_out[1]), len(y))
    picked = np.random.default_rng(0).permutation(len(y))[:n]
    synthetic, train, test = (cells(spec, rows) for rows in (
        delivered(release, spec, n, 0), (x[picked], y[picked]), held_out))
    return (table_figures.marginals(spec, synthetic, test),
            table_figures.correlations(spec, synthetic, test),
            table_figures.distances(spec, synthetic, train, test))


def _write_private(root: Path, release: Release, dataset: Dataset) -> None:
    """Write the data holder's page, into a folder that nobody else may read."""
    root.mkdir(mode=0o700, exist_ok=True)
    root.chmod(0o700)
    if isinstance(release.spec, TableSpec):
        x, y = delivered(release, release.spec, N_NEIGHBOURS, 0)
    else:
        x, y = release.encoded(N_NEIGHBOURS, seed=0)
    rows, distances = (part[:, 0] for part in attacks.nearest(x, dataset.x_train))
    x_test = _held_out(dataset)[0]
    picked = np.random.default_rng(0).permutation(len(x_test))[:N_NEIGHBOURS]  # may be sorted
    summary = attacks.closeness(x, dataset.x_train, x_test[picked])
    ours: Any = np.round(x * 255).astype(np.uint8)
    theirs: Any = dataset.x_train[rows]
    header = None
    if isinstance(release.spec, TableSpec):
        spec = release.spec
        header, ours = writing.cells(spec, transform.decode(spec, x), y)
        _, theirs = writing.cells(spec, transform.decode(spec, theirs), dataset.y_train[rows])
    text = neighbours.private_page(dataset.name, ours, theirs, distances, summary, header)
    with os.fdopen(os.open(root / "neighbours.html", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                   "w", encoding="utf-8") as file:
        file.write(text)


def _held_out(dataset: Dataset) -> Images:
    """Return the held-out part, which there is: the metrics were computed from it."""
    assert dataset.x_test is not None and dataset.y_test is not None
    return dataset.x_test, dataset.y_test
