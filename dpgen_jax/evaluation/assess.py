"""Evaluation of a release: `evaluate` measures it, and `write` writes the results to files.

Nothing that is measured against real records is covered by epsilon: it is for the data holder, and
for readers to whom the data holder shows it. metrics.json lists which numbers these are.

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
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Evaluation, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import EMPTY, ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset, parts, without_empty_slots
from dpgen_jax.data.table import constraints, frames, transform
from dpgen_jax.data.table.schema import Schema
from dpgen_jax.evaluation import (
    fidelity,
    figures,
    losses,
    marginals,
    membership,
    prediction,
    pretrained,
    report,
    two_tables,
    utility,
)
from dpgen_jax.evaluation.assessment import Assessment
from dpgen_jax.evaluation.results import (
    Draw,
    Log,
    Measure,
    Part,
    Real,
    Records,
    Setting,
    Synthetic,
    once,
    silent,
)
from dpgen_jax.release import bundle, contents, plots
from dpgen_jax.release.bundle import Release, together

if TYPE_CHECKING:
    import pandas as pd

    from dpgen_jax.evaluation.two_tables import Source

LARGEST = 64
"""The most pixels a side at which images are measured, where the shorter side allows it."""
LEAST = 8
"""The fewest pixels a side that the networks of the evaluation take."""
REAL_FACTS = ("n_test", "n_real", "notes")
"""Facts of several measures that follow from real records: how many there are, which classes they
lack."""


def evaluate(release: Release | Source, real: Dataset | Source, *, label: str | None = None,
             settings: Evaluation = Evaluation(), log: Log = print) -> Assessment:
    """Measure a release, or any synthetic table: its utility, its fidelity, and what attacks reach.

    Of a classifier only the accuracy is measured. Of two tables there is no schema: types are read
    from the real rows, one half of which stands for the training rows and the other half is held
    out. No attack is tried then.

    Args:
      release: The release, or the path of a release or a run; or synthetic rows: a pandas frame, or
        the path of a CSV or Parquet file.
      real: The data set that it was trained on, with the held-out part, on which everything is
        tested once; or held-out rows of a table as a frame, without what needs training rows; or
        real rows, as the synthetic ones.
      label: The column of the classes of two tables.
      settings: What is measured, and how thoroughly.
      log: A function that takes lines of progress.

    Returns:
      The findings; `Assessment.json` is the content of metrics.json.

    Raises:
      UserError: The data set has other records or classes than the release, or no held-out part;
        or there are more classes than samples.
    """
    if two_tables.is_table(release) and not isinstance(real, Dataset):
        return of_tables(two_tables.read(cast("Source", release), real, label), settings, log)
    if isinstance(release, str | Path):
        release = bundle.load(release)
    if isinstance(release, Release) and hasattr(real, "isna"):
        real = _held_out(release.spec, real)
    if not isinstance(release, Release) or not isinstance(real, Dataset):
        raise UserError("evaluate takes a release and the data set that it was trained on, with a "
                        "held-out part, as load_dataset returns it, or held-out rows as a "
                        "DataFrame")
    check(release.spec, real)
    if len(real.y_train):
        parts.check_same_held_out(release.privacy.get("data_notes", ()), real)
    elif "membership" in settings.metrics:
        settings = dataclasses.replace(settings, metrics=tuple(
            name for name in settings.metrics if name != "membership"))
        log("membership attacks need the training rows, and are left out")
    data = without_empty_slots(real)
    if release.classifies:
        return Assessment.of([_accuracy(release, data)], _header("classifier", data.name, release))
    needed, n_test = fidelity.NEIGHBOURS + 1, len(_test(data)[1])
    if isinstance(data.spec, ImageSpec) and "fidelity" in settings.metrics and n_test < needed:
        raise UserError(f"{data.name} has {n_test} held-out records, and fidelity needs "
                        f"{needed}; hold out more, or name other {option('metrics')}")
    if settings.samples is not None and settings.samples < release.spec.classes:
        raise UserError(f"{settings.samples} samples for {release.spec.classes} classes; pass "
                        f"{option('samples', 100 * release.spec.classes)} or more")
    train = (data.x_train, data.y_train) if len(data.y_train) else None
    found = measured(Real(release.spec, _test(data), train, data.subjects),
                     Synthetic(functools.partial(delivered, release), release), settings, log)
    kind = "table" if isinstance(release.spec, TableSpec) else "images"
    return dataclasses.replace(found, facts=_header(kind, data.name, release) | found.facts)


def of_tables(compared: two_tables.Compared, settings: Evaluation = Evaluation(),
              log: Log = print) -> Assessment:
    """Measure synthetic rows that came as a table, as `evaluate` does."""
    spec = cast(TableSpec, compared.real.spec)
    metrics = tuple(name for name in settings.metrics
                    if name != "membership" or not compared.is_halved)
    n = min(prediction.setting_for(settings, spec).n_samples, compared.n)
    found = measured(compared.real, Synthetic(compared.draw),
                     dataclasses.replace(settings, metrics=metrics, samples=n), log)
    notes = {"notes": [*compared.notes, *found.facts["notes"]]}
    return dataclasses.replace(found, facts=_header("table", compared.name) | found.facts | notes)


OTHER = "other"
"""The category of a bought schema that takes all texts that were not found."""


def _held_out(spec: Spec, frame: pd.DataFrame) -> Dataset:
    """Return a data set of held-out rows only, read as a bought schema reads cells.

    Cells that have no value of their column are null where it is nullable; rows of unknown classes
    are left out.
    """
    if not isinstance(spec, TableSpec):
        raise UserError("a DataFrame has rows of a table, and this release makes images; give the "
                        "data set, as load_dataset returns it")
    columns = [column for column in spec.columns if column.nullable]
    read = frames.from_frame(frame, Schema(
        spec, {column.name: OTHER for column in spec.columns if OTHER in column.categories},
        {column.name: "null" for column in [*columns, *([spec.label] * spec.labelled)]}))
    for note in read.private_notes:
        tell(f"private: {note}", sys.stderr)
    known = read.y_train != EMPTY
    return dataclasses.replace(
        read, x_test=read.x_train[known], y_test=read.y_train[known], x_train=read.x_train[:0],
        y_train=read.y_train[:0])


def assess(release: Release, dataset: Dataset, options: Evaluation = Evaluation(),
           log: Log = print) -> Json:
    """Return the content of metrics.json of `evaluate`, as earlier versions did."""
    return evaluate(release, dataset, settings=options, log=log).json()


def measured(real: Real, synthetic: Synthetic, options: Evaluation = Evaluation(),
             log: Log = silent) -> Assessment:
    """Return what the measures of a kind of records find, without a header.

    A UserError refuses malformed records, and options that name what there is not.
    """
    spec, found = real.spec, []
    setting: Setting
    if isinstance(spec, TableSpec):
        measures, setting = _of_tables(spec, options), prediction.setting_for(options, spec, log)
        real, synthetic, part = prediction.prepared(real, synthetic, setting)
    else:
        measures, setting = _of_images(options, log), utility.setting_for(options, log)
        real, synthetic, part = _reduced(real, synthetic)
    found.append(part)
    for name, measure in measures.items():
        started = time.monotonic()
        part = measure(real, synthetic, setting)
        found.append(part if part.seconds is not None else dataclasses.replace(
            part, seconds={name: time.monotonic() - started}))
    seconds = {name: spent for part in found for name, spent in (part.seconds or {}).items()}
    known = {name for part in found for name in part.facts} | {"notes"}
    found.append(Part(real_facts=tuple(name for name in REAL_FACTS if name in known)))
    return Assessment.of(found, {"seconds": seconds})


def _of_images(options: Evaluation, log: Log) -> Mapping[str, Measure]:
    """Return the measures of images that are asked for, by name."""
    features = None
    if options.inception_weights:  # read first: a wrong file must not cost minutes
        network = pretrained.INCEPTION
        features = functools.partial(network.features, network.load(options.inception_weights),
                                     log=log)
    measures: dict[str, Measure] = {"utility": utility.utility}
    if "fidelity" in options.metrics:
        measures["fidelity"] = functools.partial(fidelity.likeness, features=features)
    if "membership" in options.metrics:
        measures["membership"] = membership.membership
    return measures


def _of_tables(spec: TableSpec, options: Evaluation) -> Mapping[str, Measure]:
    """Return the measures of a table that are asked for, by name."""
    if options.inception_weights:
        raise UserError(f"{option('inception_weights')} is for images; this release makes a table")
    targets = prediction.named_targets(spec, options.targets or spec.targets)
    groupings = prediction.named_groups(spec, options.by)
    measures: dict[str, Measure] = {"utility": prediction.utility}
    if targets:
        measures["targets"] = functools.partial(prediction.predicted, targets=targets)
    if "fidelity" in options.metrics:
        measures |= {"fidelity": marginals.likeness, "losses": losses.losses}
    if groupings:
        measures["subgroups"] = functools.partial(prediction.subgroups, groupings=groupings,
                                                  targets=targets)
    measures |= {"validity": marginals.validity, "count_tables": count_tables}
    if spec.constraints:
        measures["constraints"] = mended
    if "membership" in options.metrics:
        measures["membership"] = membership.membership
    return measures


def count_tables(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Return the fact `asked`: the tables of counts that the method learnt, which are public."""
    release = synthetic.release
    listed = () if release is None else bundle.tables(
        release.method, release.config, release.spec, release.model, release.privacy)
    return Part(facts={"asked": [one._asdict() for one in listed]} if listed else {}, seconds={})


def mended(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Return the fact `constraints`: how many synthetic rows had to be changed to keep them."""
    if synthetic.release is None:
        return Part(seconds={})
    sampler = synthetic.release.stream(setting.n_samples, seed=0)
    for _ in sampler:
        pass
    return Part(facts={"constraints": sampler.report()})


def _header(kind: str, dataset: str, release: Release | None = None) -> Json:
    """Return the part of metrics.json that says what was measured, when, and with what software."""
    statement = {} if release is None else {"release": to_json(release.privacy)}
    return {"dataset": dataset, "kind": kind,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": run_folder.environment()["versions"]} | statement


def _accuracy(release: Release, data: Dataset) -> Part:
    x, y = _test(data)
    accuracy = float(np.mean(release.predict(x) == y))
    return Part(facts={"accuracy": accuracy, "n_test": len(y)}, real_facts=("accuracy", "n_test"))


def _test(data: Dataset) -> Records:
    """Return the held-out records and labels of a data set that has some."""
    if data.x_test is None or data.y_test is None:
        raise UserError(f"{data.name} has no held-out part to test on; add one (csv: "
                        f"{option('test_csv', 'FILE')}; npz: x_test and y_test; folder: "
                        f"test/CLASS), or train and evaluate with {option('test_fraction', 0.2)}")
    return data.x_test, data.y_test


def delivered(release: Release, n: int, seed: int) -> Records:
    """Return records of a release as a user gets them: rows encoded, whole numbers whole."""
    if isinstance(release.spec, TableSpec):
        codes, y = release.arrays(n, seed=seed)
        # As real rows are kept: a classifier tells doubles of the same values apart from these.
        return transform.encode(release.spec, codes).astype(np.float32), y
    by = smaller_factor(release.spec)
    return together((reduced(x, by), y) for x, y in release.stream(n, seed=seed))


def smaller_factor(spec: ImageSpec) -> int:
    """Return how many pixels a side become one: 1 for images that are measured as they are."""
    shorter, longer = sorted((spec.height, spec.width))
    return min(-(-longer // LARGEST), max(1, shorter // LEAST))


def reduced(x: np.ndarray, by: int) -> np.ndarray:
    """Return images uint8 [n, H, W, ch] as means of squares of `by` x `by` pixels.

    A border that is no multiple of it is continued by its edge.
    """
    if by == 1:
        return x
    n, height, width, channels = x.shape
    x = np.pad(x, ((0, 0), (0, -height % by), (0, -width % by), (0, 0)), mode="edge")
    squares = x.reshape(n, x.shape[1] // by, by, x.shape[2] // by, by, channels)
    return np.rint(squares.mean((2, 4), dtype=np.float32)).astype(np.uint8)


def _reduced(real: Real, synthetic: Synthetic) -> tuple[Real, Synthetic, Part]:
    """Return images that are measured, the real ones `reduced`, and a note on their size.

    The synthetic ones are reduced as they are drawn, block by block.
    """
    spec = real.spec
    assert isinstance(spec, ImageSpec)
    by = smaller_factor(spec)
    test, train = ((reduced(np.asarray(one[0]), by), one[1]) if one else None
                   for one in (real.test, real.train))
    assert test is not None
    notes = () if by == 1 else (
        f"images of {spec.height} x {spec.width} pixels are measured at {-(-spec.height // by)} x "
        f"{-(-spec.width // by)}, each pixel the mean of {by} x {by}; finer detail is neither "
        "judged nor attacked",)
    return (dataclasses.replace(real, test=test, train=train),
            dataclasses.replace(synthetic, draw=once(synthetic.draw)),
            Part(notes=notes, seconds={}))


def check(spec: Spec, data: Dataset) -> None:
    """Check that a release which makes `spec` can be evaluated on a data set.

    Raises:
      UserError: The data set has other records or classes, or no held-out part.
    """
    known = data.spec
    if isinstance(known, TableSpec) and isinstance(spec, TableSpec):
        known = dataclasses.replace(known, gaps=spec.gaps)  # earlier releases learned none
    if known != spec:
        raise UserError(f"{data.name} holds {_text(data.spec)}, the release makes "
                        f"{_text(spec)}{_difference(data.spec, spec)}; name the data set it was "
                        f"trained on, with the same {option('image_size')}, {option('attribute')} "
                        f"or {option('schema')}")
    _test(data)


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


N_NEIGHBOURS = 500
"""Synthetic records whose nearest real neighbours are shown on the private page."""
GRID_COLUMNS = 10


def write(found: Assessment, release: Release, dataset: Dataset, out: Path,
          run: Path | None = None) -> Path:
    """Write metrics.json, report.html, samples.png of images, and private/neighbours.html.

    The last holds real records. For a classifier only metrics.json is written.

    Args:
      found: The result of `evaluate`.
      release: The release.
      dataset: The data set, as for `evaluate`.
      out: The folder that is written to.
      run: The run folder of the release, if it is at hand.

    Returns:
      The path of the report, or of metrics.json.
    """
    dataset = without_empty_slots(dataset)
    out.mkdir(parents=True, exist_ok=True)
    run_folder.write_json(out / "metrics.json", found.json())
    if release.classifies:
        return out / "metrics.json"
    samples = _samples(release)
    drawings: tuple[figures.Figure, ...] = ()
    if isinstance(release.spec, TableSpec):
        drawings = _table_figures(functools.partial(delivered, release), Real(
            release.spec, _test(dataset), (dataset.x_train, dataset.y_train)))
    else:
        plots.samples_grid(samples[0], out / "samples.png", release.spec.classes,
                           release.spec.class_names or None)
    source = run if run and (run / "config.json").is_file() else None
    config = contents.described(source / "config.json") if source else {
        "method": release.method, "config": to_json(release.config), "spec": to_json(release.spec)}
    content = report.Report(
        found, release.privacy, config,
        run_folder.read(source / "metrics.jsonl") if source else (), samples,
        drawings,
        report.read_audit(source) if source else {},
        contents.described(source / "release/config.json").get("generator_sha256")
        if source else None)
    (out / "report.html").write_text(report.page(content), encoding="utf-8")
    _write_private(out / "private", release, dataset)
    return out / "report.html"


def _samples(release: Release) -> Any:
    """Return images, a row of `GRID_COLUMNS` a class; or header and rows of text."""
    if isinstance(release.spec, TableSpec):
        return constraints.written_cells(release.spec, *release.arrays(report.MAX_ROWS, seed=0))
    classes = release.spec.classes
    return release.arrays(classes * GRID_COLUMNS, np.repeat(np.arange(classes), GRID_COLUMNS),
                          seed=0)


def write_tables(found: Assessment, compared: two_tables.Compared, out: Path) -> Path:
    """Write metrics.json and report.html of two tables, and return the path of the report."""
    spec = cast(TableSpec, compared.real.spec)
    out.mkdir(parents=True, exist_ok=True)
    run_folder.write_json(out / "metrics.json", found.json())
    x, y = compared.draw(report.MAX_ROWS, 0)
    content = report.Report(
        found, None, {"spec": to_json(spec)},
        samples=constraints.written_cells(spec, transform.decode(spec, x), y),
        figures=_table_figures(compared.draw, compared.real))
    (out / "report.html").write_text(report.page(content), encoding="utf-8")
    return out / "report.html"


def _table_figures(draw: Draw, real: Real) -> tuple[figures.Figure, ...]:
    """Return the figures of a table: single columns first, then pairs."""
    spec, train = cast(TableSpec, real.spec), real.alike(len(real.test[1])).train
    assert train is not None
    synthetic, ours, test = (marginals.cells(spec, rows) for rows in (
        draw(len(train[1]), 0), train, real.test))
    drawn = (figures.marginals(spec, synthetic, test),
             figures.distances(spec, synthetic, ours, test),
             figures.correlations(spec, synthetic, test))
    return tuple(figure for figure in drawn if figure)


def _write_private(root: Path, release: Release, dataset: Dataset) -> None:
    """Write the data holder's page, into a folder that nobody else may read."""
    root.mkdir(mode=0o700, exist_ok=True)
    root.chmod(0o700)
    spec = release.spec
    x, y = (delivered(release, N_NEIGHBOURS, 0) if isinstance(spec, TableSpec)
            else release.encoded(N_NEIGHBOURS, seed=0))
    rows, distances = (part[:, 0] for part in membership.nearest(x, dataset.x_train))
    x_test = _test(dataset)[0]
    picked = np.random.default_rng(0).permutation(len(x_test))[:N_NEIGHBOURS]  # may be sorted
    summary = membership.closeness(x, dataset.x_train, x_test[picked])
    ours: Any = np.round(x * 255).astype(np.uint8)
    theirs: Any = dataset.x_train[rows]
    header = None
    if isinstance(spec, TableSpec):
        header, ours = constraints.written_cells(spec, transform.decode(spec, x), y)
        _, theirs = constraints.written_cells(spec, transform.decode(spec, theirs),
                                              dataset.y_train[rows])
    text = report.private_page(dataset.name, ours, theirs, distances, summary, header)
    with os.fdopen(os.open(root / "neighbours.html", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                   "w", encoding="utf-8") as file:
        file.write(text)
