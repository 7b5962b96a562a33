"""What the command `evaluate` and a notebook share: `assess` measures a release, `write` files it.

Everything measured against real records is not covered by epsilon: it is for the data holder, and
for readers to whom the data holder shows it. metrics.json lists which numbers these are.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.config import Evaluation, to_json
from dpgen_jax.data import Dataset, tables, transform, without_empty_slots
from dpgen_jax.evaluation import attacks, fidelity, inception, judge, membership, utility
from dpgen_jax.evaluation import tables as table_scores
from dpgen_jax.evaluation.marginals import cells
from dpgen_jax.report import figures, neighbours, page
from dpgen_jax.run import contents, folder, metrics, plots
from dpgen_jax.run.bundle import Release
from dpgen_jax.types import ImageSpec, Spec, TableSpec, UserError

CLOSE = {"full": 10_000, "fast": 5_000}
"""Most synthetic records of a draw whose likeness is measured, and that attacks read."""
SHOWN = 500
"""Synthetic records whose nearest real neighbours are looked for."""
GRID_COLUMNS = 10

Say = Callable[[str], None]
Draw = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


def assess(release: Release, held: Dataset, asked: Evaluation = Evaluation(), say: Say = print
           ) -> dict[str, Any]:
    """metrics.json of a release: see README, "What evaluate writes".

    held: the data set that the release was trained on, with its held-out part, on which everything
    is tested once. Of a classifier its accuracy alone. Errors: UserError for data of another kind,
    shape or classes, or without a held-out part, and for more classes than samples.
    """
    check(release.spec, held)
    held = without_empty_slots(held)
    if release.classifies:
        return _described_as("classifier", held, release) | _classifier(release, held)
    fewest = fidelity.NEIGHBOURS + 1
    if (isinstance(held.spec, ImageSpec) and "fidelity" in asked.metrics
            and len(held.y_test) < fewest):
        raise UserError(f"{held.name} holds {len(held.y_test)} held-out records, and likeness "
                        f"needs {fewest}; hold out more, or name other --metrics")
    if asked.samples is not None and asked.samples < release.spec.classes:
        raise UserError(f"{asked.samples} samples for {release.spec.classes} classes; pass "
                        f"--samples {100 * release.spec.classes} or more")
    measure = _table if isinstance(release.spec, TableSpec) else _images
    found = measure(release, held, asked, say)
    return _described_as("table" if measure is _table else "images", held, release) | found


def _described_as(kind: str, held: Dataset, release: Release) -> dict[str, Any]:
    return {"dataset": held.name, "kind": kind,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": folder.environment()["versions"], "release": to_json(release.privacy)}


def _classifier(release: Release, held: Dataset) -> dict[str, Any]:
    right = float(np.mean(release.predict(held.x_test) == held.y_test))
    return {"accuracy": right, "n_test": len(held.y_test), "not_covered_by_epsilon": ["accuracy"]}


def check(spec: Spec, held: Dataset) -> None:
    """Errors: UserError where the release cannot be judged by this data set."""
    if held.spec != spec:
        raise UserError(f"{held.name} holds {_words(held.spec)}, the release makes "
                        f"{_words(spec)}{_difference(held.spec, spec)}; name the data set it was "
                        "trained on, with the same --image-size, --attribute or --schema")
    if held.x_test is None:
        raise UserError(f"{held.name} has no held-out part to test on; add one (csv: "
                        "--test-csv FILE; npz: x_test and y_test; folder: test/CLASS)")


def _words(spec: Spec) -> str:
    if isinstance(spec, ImageSpec):
        size = f"{spec.height} x {spec.width} x {spec.channels}"
        return f"images of {size} in {spec.classes} classes"
    return f"a table of {len(spec.columns)} columns and {spec.classes} classes"


def _difference(held: Spec, spec: Spec) -> str:
    """The first column that two schemas of tables declare differently."""
    if not (isinstance(held, TableSpec) and isinstance(spec, TableSpec)):
        return ""
    pairs = zip((*held.columns, held.label), (*spec.columns, spec.label), strict=False)
    names = [ours.name for ours, theirs in pairs if ours != theirs]
    return f" (the schemas differ from column {names[0]!r} on)" if names else ""


def _once(draw: Draw) -> Draw:
    """The draw of a seed is made once; a smaller one is its beginning."""
    made: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        if seed not in made or len(made[seed][1]) < n:
            made[seed] = draw(n, seed)
        x, y = made[seed]
        return x[:n], y[:n]

    return drawn


def _images(release: Release, held: Dataset, asked: Evaluation, say: Say) -> dict[str, Any]:
    test, real = (held.x_test, held.y_test), (held.x_train, held.y_train)
    setting = utility.SETTINGS["fast" if asked.fast else "full"]
    setting = dataclasses.replace(setting, n_samples=asked.samples or setting.n_samples)
    seeds, n_close = asked.seeds or setting.seeds, min(CLOSE[setting.name], setting.n_samples)
    draw = _once(lambda n, seed: release.sample(n, seed=seed))
    network = None
    if asked.inception_weights:  # read first: a wrong file must not cost minutes
        network = functools.partial(inception.features, inception.load(asked.inception_weights),
                                    say=say)
    tasks = [task for task in utility.TASKS if task in asked.metrics]
    parts = [utility.utility(draw, test, real, seeds, tasks=tasks, setting=setting,
                             classifiers=asked.classifiers or None,
                             classes=release.spec.classes, say=say)]
    if "fidelity" in asked.metrics:
        course = judge.COURSES["fast" if asked.fast else "full"]
        parts.append(_timed("fidelity", lambda: fidelity.fidelity(
            draw, test, real, judge.train(real, test, course, say=say), seeds,
            inception=network, n_samples=n_close, say=say)))
    if "membership" in asked.metrics:
        parts.append(_membership(release, draw, held, seeds, n_close, say))
    return _merged(parts)


def _timed(name: str, part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The part, and the seconds that it took."""
    started = time.monotonic()
    return part() | {"seconds": {name: time.monotonic() - started}}


def _table(release: Release, held: Dataset, asked: Evaluation, say: Say) -> dict[str, Any]:
    if asked.inception_weights:
        raise UserError("--inception-weights is for images; this release makes a table")
    draw = _once(lambda n, seed: release.encoded(n, seed=seed))
    tasks = [task for task in utility.TASKS if task in asked.metrics]
    parts = [table_scores.utility(
        draw, (held.x_test, held.y_test), (held.x_train, held.y_train), release.spec, asked.seeds,
        tasks=tasks, fast=asked.fast, n_samples=asked.samples, classifiers=asked.classifiers,
        with_fidelity="fidelity" in asked.metrics, say=say)]
    if "membership" in asked.metrics:
        n_close = min(CLOSE["full"], parts[0]["n_samples"])
        parts.append(_membership(release, draw, held, parts[0]["seeds"], n_close, say))
    return _merged(parts)


def _membership(release: Release, draw: Draw, held: Dataset, seeds: int, n: int, say: Say
                ) -> dict[str, Any]:
    def attacked() -> dict[str, Any]:
        found, keys = membership.membership(
            draw, (held.x_train, held.y_train), (held.x_test, held.y_test), release.privacy,
            seeds, n_synthetic=n, say=say)
        return {"membership": found, "not_covered_by_epsilon": keys}

    return _timed("membership", attacked)


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One dict; the notes, the uncovered keys and the seconds of all parts one after the other."""
    lists = {name: [line for part in parts for line in part.get(name, [])]
             for name in ("notes", "not_covered_by_epsilon")}
    seconds = {name: spent for part in parts for name, spent in part["seconds"].items()}
    return {key: value for part in parts for key, value in part.items()} | lists | {
        "seconds": seconds}


def write(found: dict[str, Any], release: Release, held: Dataset, out: Path,
          run: Path | None = None) -> Path:
    """Writes metrics.json, report.html, samples.png of images, and private/neighbours.html, which
    holds real records, into `out`. run: the run folder of the release, if it is at hand.

    Of a classifier metrics.json alone. Returns the report's path, or that of metrics.json.
    """
    held = without_empty_slots(held)
    out.mkdir(parents=True, exist_ok=True)
    folder.write_json(out / "metrics.json", found)
    if release.classifies:
        return out / "metrics.json"
    samples, drawn = _samples(release), ()
    if isinstance(release.spec, ImageSpec):
        plots.samples_grid(samples[0], out / "samples.png", release.spec.classes)
    else:
        drawn = _table_figures(release, held)
    source = run if run and (run / "config.json").is_file() else None
    report = page.Report(
        found, release.privacy,
        contents.described(source / "config.json") if source else _described(release),
        metrics.read(source / "metrics.jsonl") if source else (), samples,
        tuple(figure for figure in drawn if figure))
    (out / "report.html").write_text(page.page(report), encoding="utf-8")
    _write_private(out / "private", release, held)
    return out / "report.html"


def _described(release: Release) -> dict[str, Any]:
    return {"method": release.method, "config": to_json(release.config),
            "spec": to_json(release.spec)}


def _samples(release: Release) -> Any:
    """Images, a row of `GRID_COLUMNS` a class; or header and rows of text."""
    if isinstance(release.spec, TableSpec):
        return tables.cells(release.spec, *release.sample(page.MAX_ROWS, seed=0))
    classes = release.spec.classes
    return release.sample(classes * GRID_COLUMNS, np.repeat(np.arange(classes), GRID_COLUMNS),
                          seed=0)


def _table_figures(release: Release, held: Dataset) -> tuple[figures.Figure | None, ...]:
    n = min(len(held.y_test), len(held.y_train))
    picked = np.random.default_rng(0).permutation(len(held.y_train))[:n]
    synthetic, train, test = (cells(release.spec, rows) for rows in (
        release.encoded(n, seed=0), (held.x_train[picked], held.y_train[picked]),
        (held.x_test, held.y_test)))
    return (figures.marginals(release.spec, synthetic, test),
            figures.correlations(release.spec, synthetic, test),
            figures.distances(release.spec, synthetic, train, test))


def _write_private(root: Path, release: Release, held: Dataset) -> None:
    """The data holder's page, in a folder that nobody else may read."""
    root.mkdir(mode=0o700, exist_ok=True)
    root.chmod(0o700)
    x, y = release.encoded(SHOWN, seed=0)
    places, distances = (found[:, 0] for found in attacks.nearest(x, held.x_train))
    some = np.random.default_rng(0).permutation(len(held.y_test))[:SHOWN]  # may be sorted by class
    summary = attacks.closeness(x, held.x_train, held.x_test[some])
    header = None
    if isinstance(release.spec, TableSpec):
        header, ours = tables.cells(release.spec, transform.decode(release.spec, x), y)
        _, theirs = tables.cells(release.spec, transform.decode(release.spec, held.x_train[places]),
                                 held.y_train[places])
    else:
        ours, theirs = np.round(x * 255).astype(np.uint8), held.x_train[places]
    text = neighbours.private_page(held.name, ours, theirs, distances, summary, header)
    with os.fdopen(os.open(root / "neighbours.html", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                   "w", encoding="utf-8") as file:
        file.write(text)
