"""Evaluation of a release: `assess` measures it, and `write` writes the results to files.

The command `evaluate` and notebooks share this module. Nothing that is measured against real
records is covered by epsilon: it is for the data holder, and for readers to whom the data holder
shows it. metrics.json lists which numbers these are.

Large images are made smaller before they are measured. At 512 x 512 pixels, one step of a
classifier takes more memory than a laptop has, and so do ten thousand images; at 128 x 128 a linear
discriminant still takes minutes. So images above `LARGEST` pixels a side, the largest size in the
papers, are measured at a whole fraction of their size, synthetic and real ones alike.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax.core import run_folder as run_metrics
from dpgen_jax.core.config import Evaluation, to_json
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset, parts, without_empty_slots
from dpgen_jax.data.table import constraints, transform
from dpgen_jax.evaluation import fidelity, inception, membership, utility
from dpgen_jax.evaluation import tables as table_scores
from dpgen_jax.evaluation.marginals import cells
from dpgen_jax.evaluation.report import figures, page
from dpgen_jax.evaluation.scores import Images, Log
from dpgen_jax.evaluation.utility import setting_for
from dpgen_jax.release import bundle, contents, plots
from dpgen_jax.release.bundle import Release, together

LARGEST = 64
"""The most pixels a side at which images are measured, where the shorter side allows it."""
LEAST = 8
"""The fewest pixels a side that the networks of the evaluation take."""


def smaller_factor(spec: ImageSpec) -> int:
    """Return how many pixels a side become one: 1 for images that are measured as they are."""
    shorter, longer = sorted((spec.height, spec.width))
    return min(-(-longer // LARGEST), max(1, shorter // LEAST))


def reduced(x: np.ndarray, by: int) -> np.ndarray:
    """Return images of the means of squares of pixels.

    Args:
      x: Images uint8 [n, H, W, ch].
      by: Pixels a side of a square; a border that is no multiple of it is continued by its edge.

    Returns:
      Images uint8 [n, ceil(H / by), ceil(W / by), ch].
    """
    if by == 1:
        return x
    n, height, width, channels = x.shape
    x = np.pad(x, ((0, 0), (0, -height % by), (0, -width % by), (0, 0)), mode="edge")
    squares = x.reshape(n, x.shape[1] // by, by, x.shape[2] // by, by, channels)
    return np.rint(squares.mean((2, 4), dtype=np.float32)).astype(np.uint8)


def smaller_dataset(whole: Dataset, by: int) -> Dataset:
    """Return a data set with held-out images, all of them `reduced`."""
    return dataclasses.replace(whole, x_train=reduced(whole.x_train, by),
                               x_test=reduced(np.asarray(whole.x_test), by))


def smaller_samples(release: Release, n: int, seed: int, by: int) -> Images:
    """Return n images of a release, `reduced` block by block, and their labels int32 [n]."""
    return together((reduced(x, by), y) for x, y in release.stream(n, seed=seed))


def smaller_note(spec: ImageSpec) -> list[str]:
    """Return a line on what size images are measured in; none where it is their own."""
    by = smaller_factor(spec)
    return [] if by == 1 else [
        f"images of {spec.height} x {spec.width} pixels are measured at {-(-spec.height // by)} x "
        f"{-(-spec.width // by)}, each pixel the mean of {by} x {by}; finer detail is "
        "neither judged nor attacked"]


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

    The last holds real records. For a classifier only metrics.json is written.

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
    run_metrics.write_json(out / "metrics.json", metrics)
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
        page.read_audit(source) if source else {},
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
        return constraints.written_cells(release.spec, *release.sample(page.MAX_ROWS, seed=0))
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
    return (figures.marginals(spec, synthetic, test),
            figures.correlations(spec, synthetic, test),
            figures.distances(spec, synthetic, train, test))


def _write_private(root: Path, release: Release, dataset: Dataset) -> None:
    """Write the data holder's page, into a folder that nobody else may read."""
    root.mkdir(mode=0o700, exist_ok=True)
    root.chmod(0o700)
    if isinstance(release.spec, TableSpec):
        x, y = delivered(release, release.spec, N_NEIGHBOURS, 0)
    else:
        x, y = release.encoded(N_NEIGHBOURS, seed=0)
    rows, distances = (part[:, 0] for part in membership.nearest(x, dataset.x_train))
    x_test = _held_out(dataset)[0]
    picked = np.random.default_rng(0).permutation(len(x_test))[:N_NEIGHBOURS]  # may be sorted
    summary = membership.closeness(x, dataset.x_train, x_test[picked])
    ours: Any = np.round(x * 255).astype(np.uint8)
    theirs: Any = dataset.x_train[rows]
    header = None
    if isinstance(release.spec, TableSpec):
        spec = release.spec
        header, ours = constraints.written_cells(spec, transform.decode(spec, x), y)
        _, theirs = constraints.written_cells(spec, transform.decode(spec, theirs),
                                              dataset.y_train[rows])
    text = page.private_page(dataset.name, ours, theirs, distances, summary, header)
    with os.fdopen(os.open(root / "neighbours.html", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                   "w", encoding="utf-8") as file:
        file.write(text)


def _held_out(dataset: Dataset) -> Images:
    """Return the held-out part, which there is: the metrics were computed from it."""
    assert dataset.x_test is not None and dataset.y_test is not None
    return dataset.x_test, dataset.y_test


MAX_COMPARED = {"full": 10_000, "fast": 5_000}
"""The most synthetic records that attacks read and fidelity measures, or as many as tested on."""

Draw = Callable[[int, int], Images]
"""A function of (n, seed) that returns synthetic records and labels."""


def assess(release: Release, dataset: Dataset, options: Evaluation = Evaluation(),
           log: Log = print) -> Json:
    """Measure a release: its utility, its fidelity, and what membership attacks reach.

    For a classifier only its accuracy is measured.

    Args:
      release: The release.
      dataset: The data set that it was trained on, with the held-out part, on which everything is
        tested once.
      options: What is measured, and how thoroughly.
      log: A function that takes lines of progress.

    Returns:
      The content of metrics.json; the modules `utility`, `tables`, `fidelity` and `membership` of
      this package document their parts.

    Raises:
      UserError: The data set has other records or classes than the release, or no held-out part;
        or there are more classes than samples.
    """
    if not isinstance(release, Release) or not isinstance(dataset, Dataset):
        raise UserError("assess takes a release and the data set that it was trained on, with a "
                        "held-out part, as load_dataset returns it")
    check(release.spec, dataset)
    parts.check_same_held_out(release.privacy.get("data_notes", ()), dataset)
    dataset = without_empty_slots(dataset)
    if release.classifies:
        return _header("classifier", dataset, release) | _classifier(release, dataset)
    needed, n_test = fidelity.NEIGHBOURS + 1, len(_test(dataset)[1])
    if (isinstance(dataset.spec, ImageSpec) and "fidelity" in options.metrics
            and n_test < needed):
        raise UserError(f"{dataset.name} has {n_test} held-out records, and fidelity needs "
                        f"{needed}; hold out more, or name other {option('metrics')}")
    if options.samples is not None and options.samples < release.spec.classes:
        raise UserError(f"{options.samples} samples for {release.spec.classes} classes; pass "
                        f"{option('samples', 100 * release.spec.classes)} or more")
    if isinstance(release.spec, TableSpec):
        return _header("table", dataset, release) | _table(
            release, release.spec, dataset, options, log)
    return _header("images", dataset, release) | _images(release, release.spec, dataset, options,
                                                         log)


def _header(kind: str, dataset: Dataset, release: Release) -> Json:
    """Return the part of metrics.json that says what was measured, when, and with what software."""
    return {"dataset": dataset.name, "kind": kind,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": run_metrics.environment()["versions"], "release": to_json(release.privacy)}


def _classifier(release: Release, dataset: Dataset) -> Json:
    x, y = _test(dataset)
    accuracy = float(np.mean(release.predict(x) == y))
    return {"accuracy": accuracy, "n_test": len(y),
            "not_covered_by_epsilon": ["accuracy", "n_test"]}


def _test(dataset: Dataset) -> Images:
    """Return the held-out records and labels of a data set that has some."""
    if dataset.x_test is None or dataset.y_test is None:
        raise UserError(f"{dataset.name} has no held-out part to test on; add one (csv: "
                        f"{option('test_csv', 'FILE')}; npz: x_test and y_test; folder: "
                        f"test/CLASS), or train and evaluate with {option('test_fraction', 0.2)}")
    return dataset.x_test, dataset.y_test


def _train(dataset: Dataset) -> Images:
    return dataset.x_train, dataset.y_train


def check(spec: Spec, dataset: Dataset) -> None:
    """Check that a release can be evaluated on a data set.

    Args:
      spec: The kind of records that the release makes.
      dataset: The data set.

    Raises:
      UserError: The data set has other records or classes, or no held-out part.
    """
    known = dataset.spec
    if isinstance(known, TableSpec) and isinstance(spec, TableSpec):
        known = dataclasses.replace(known, gaps=spec.gaps)  # earlier releases learned none
    if known != spec:
        raise UserError(f"{dataset.name} holds {_text(dataset.spec)}, the release makes "
                        f"{_text(spec)}{_difference(dataset.spec, spec)}; name the data set it was "
                        f"trained on, with the same {option('image_size')}, {option('attribute')} "
                        f"or {option('schema')}")
    _test(dataset)


def _text(spec: Spec) -> str:
    """Return a description of the records, for error messages."""
    if isinstance(spec, ImageSpec):
        size = f"{spec.height} x {spec.width} x {spec.channels}"
        return f"images of {size} in {spec.classes} classes"
    return f"a table of {len(spec.columns)} columns and {spec.classes} classes"


def _difference(ours: Spec, theirs: Spec) -> str:
    """Return the first column that two schemas of tables declare differently, for a message."""
    if not (isinstance(ours, TableSpec) and isinstance(theirs, TableSpec)):
        return ""
    pairs = zip((*ours.columns, ours.label), (*theirs.columns, theirs.label), strict=False)
    names = [a.name for a, b in pairs if a != b]
    return f" (the schemas differ from column {names[0]!r} on)" if names else ""


def _once(draw: Draw) -> Draw:
    """Return a function that draws once for a seed; a smaller draw is the beginning of it."""
    cache: dict[int, Images] = {}

    def cached(n: int, seed: int) -> Images:
        if seed not in cache or len(cache[seed][1]) < n:
            cache[seed] = draw(n, seed)
        x, y = cache[seed]
        return x[:n], y[:n]

    return cached


def _images(release: Release, spec: ImageSpec, dataset: Dataset, options: Evaluation, log: Log
            ) -> Json:
    by = smaller_factor(spec)
    dataset = smaller_dataset(dataset, by)
    test, real = _test(dataset), _train(dataset)
    setting = setting_for(options)
    full, n_most = setting.name == "full", MAX_COMPARED[setting.name]
    draw = _once(lambda n, seed: smaller_samples(release, n, seed, by))
    network = None
    if options.inception_weights:  # read first: a wrong file must not cost minutes
        network = fidelity.Inception(
            functools.partial(inception.features, inception.load(options.inception_weights),
                              log=log), None if full else fidelity.INCEPTION_IMAGES)
    parts = [utility.utility(draw, test, real, setting, classes=release.spec.classes, log=log)]
    parts.append({"notes": smaller_note(spec), "seconds": {}})

    def draws(most: int) -> list[Images]:
        return [draw(min(most, setting.n_samples), seed) for seed in range(setting.seeds)]

    if "fidelity" in options.metrics:
        course = fidelity.COURSES[setting.name]
        compared = draws(max(n_most, len(test[1])) if full else n_most)
        parts.append(_timed("fidelity", lambda: fidelity.fidelity(
            compared, test, real, fidelity.train_judge(real, test, course, log=log), network, log)))
    if "membership" in options.metrics:
        parts.append(_timed("membership", lambda: _membership(release, draws(n_most), dataset,
                                                              log)))
    return _merged(parts)


def _timed(name: str, part: Callable[[], Json]) -> Json:
    """Return a part of metrics.json, with the seconds that it took."""
    started = time.monotonic()
    return part() | {"seconds": {name: time.monotonic() - started}}


def _table(release: Release, spec: TableSpec, dataset: Dataset, options: Evaluation, log: Log
           ) -> Json:
    if options.inception_weights:
        raise UserError(f"{option('inception_weights')} is for images; this release makes a table")
    draw = _once(lambda n, seed: delivered(release, spec, n, seed))
    parts = [table_scores.utility(draw, _test(dataset), _train(dataset), spec, options, log)]
    tables = bundle.tables(release.method, release.config, spec, release.model, release.privacy)
    if tables:
        parts.append({"asked": [table._asdict() for table in tables], "seconds": {}})
    if spec.constraints:
        parts.append(_timed("constraints", lambda: {
            "constraints": _mended(release, parts[0]["n_samples"])}))
    if "membership" in options.metrics:
        n_compared = min(MAX_COMPARED["full"], parts[0]["n_samples"])
        parts.append(_timed("membership", lambda: _membership(
            release, [draw(n_compared, seed) for seed in range(parts[0]["seeds"])], dataset, log)))
    return _merged(parts)


def _mended(release: Release, n: int) -> list[str]:
    """Return lines on how many synthetic rows had to be changed to keep the constraints."""
    sampler = release.stream(n, seed=0)
    for _ in sampler:
        pass
    return sampler.report()


def _membership(release: Release, draws: Sequence[Images], dataset: Dataset, log: Log) -> Json:
    part, keys = membership.membership(draws, _train(dataset), _test(dataset), release.privacy, log,
                                       dataset.subjects)
    return {"membership": part, "not_covered_by_epsilon": keys}


BESIDE_SCORES = ("n_test", "n_real", "notes")
OF_MEMBERSHIP = ("strongest", "sentence", "exceeds_guarantee", "n_members", "n_non_members",
                 "n_reference")
"""Names of parts that are no scores and follow from real records as they do: how many there are,
which classes they lack."""


def _merged(parts: list[Json]) -> Json:
    """Merge the parts; their notes, their uncovered keys and their seconds are concatenated."""
    notes, uncovered = ([line for part in parts for line in part.get(name, [])]
                        for name in ("notes", "not_covered_by_epsilon"))
    seconds = {name: spent for part in parts for name, spent in part["seconds"].items()}
    merged = {key: value for part in parts for key, value in part.items()} | {
        "notes": notes, "seconds": seconds}
    uncovered += [name for name in BESIDE_SCORES if name in merged]
    uncovered += [f"membership.{name}" for name in OF_MEMBERSHIP
                  if name in merged.get("membership", {})]
    return merged | {"not_covered_by_epsilon": uncovered}
