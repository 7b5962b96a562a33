"""Evaluation of a release: `assess` measures it; `writing.write` writes the results to files.

The command `evaluate` and notebooks share this module. Everything measured against real records is
not covered by epsilon: it is for the data holder, and for readers to whom the data holder shows it.
metrics.json lists which numbers these are.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import time
from collections.abc import Callable, Sequence

import numpy as np

from dpgen_jax.core.config import Evaluation, to_json
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.data import Dataset, held_out, without_empty_slots
from dpgen_jax.evaluation import fidelity, inception, judge, membership, smaller, utility
from dpgen_jax.evaluation import tables as table_scores
from dpgen_jax.evaluation.scores import Images, Log
from dpgen_jax.evaluation.settings import setting_for
from dpgen_jax.evaluation.writing import delivered
from dpgen_jax.release import model
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import folder

MAX_COMPARED = {"full": 10_000, "fast": 5_000}
"""The most synthetic records that attacks read and fidelity measures, or as many as tested on."""

Draw = Callable[[int, int], Images]
"""A function of (n, seed) that returns synthetic records and labels."""


def assess(release: Release, dataset: Dataset, options: Evaluation = Evaluation(),
           log: Log = print) -> Json:
    """Measure a release: its utility, its fidelity, and what membership attacks reach.

    Of a classifier its accuracy alone is measured.

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
    held_out.check_same(release.privacy.get("data_notes", ()), dataset)
    dataset = without_empty_slots(dataset)
    if release.classifies:
        return _header("classifier", dataset, release) | _classifier(release, dataset)
    needed, n_test = fidelity.NEIGHBOURS + 1, len(_test(dataset)[1])
    if (isinstance(dataset.spec, ImageSpec) and "fidelity" in options.metrics
            and n_test < needed):
        raise UserError(f"{dataset.name} has {n_test} held-out records, and fidelity needs "
                        f"{needed}; hold out more, or name other --metrics")
    if options.samples is not None and options.samples < release.spec.classes:
        raise UserError(f"{options.samples} samples for {release.spec.classes} classes; pass "
                        f"--samples {100 * release.spec.classes} or more")
    if isinstance(release.spec, TableSpec):
        return _header("table", dataset, release) | _table(
            release, release.spec, dataset, options, log)
    return _header("images", dataset, release) | _images(release, release.spec, dataset, options,
                                                         log)


def _header(kind: str, dataset: Dataset, release: Release) -> Json:
    """Return the part of metrics.json that says what was measured, when, and with what software."""
    return {"dataset": dataset.name, "kind": kind,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": folder.environment()["versions"], "release": to_json(release.privacy)}


def _classifier(release: Release, dataset: Dataset) -> Json:
    x, y = _test(dataset)
    accuracy = float(np.mean(release.predict(x) == y))
    return {"accuracy": accuracy, "n_test": len(y),
            "not_covered_by_epsilon": ["accuracy", "n_test"]}


def _test(dataset: Dataset) -> Images:
    """Return the held-out records and labels of a data set that has some."""
    if dataset.x_test is None or dataset.y_test is None:
        raise UserError(f"{dataset.name} has no held-out part to test on; add one (csv: "
                        "--test-csv FILE; npz: x_test and y_test; folder: test/CLASS), or train "
                        "and evaluate with --test-fraction 0.2")
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
                        "trained on, with the same --image-size, --attribute or --schema")
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
    by = smaller.factor(spec)
    dataset = smaller.dataset(dataset, by)
    test, real = _test(dataset), _train(dataset)
    setting = setting_for(options)
    full, n_most = setting.name == "full", MAX_COMPARED[setting.name]
    draw = _once(lambda n, seed: smaller.sampled(release, n, seed, by))
    network = None
    if options.inception_weights:  # read first: a wrong file must not cost minutes
        network = fidelity.Inception(
            functools.partial(inception.features, inception.load(options.inception_weights),
                              log=log), None if full else fidelity.INCEPTION_IMAGES)
    parts = [utility.utility(draw, test, real, setting, classes=release.spec.classes, log=log)]
    parts.append({"notes": smaller.note(spec), "seconds": {}})

    def draws(most: int) -> list[Images]:
        return [draw(min(most, setting.n_samples), seed) for seed in range(setting.seeds)]

    if "fidelity" in options.metrics:
        course = judge.COURSES[setting.name]
        compared = draws(max(n_most, len(test[1])) if full else n_most)
        parts.append(_timed("fidelity", lambda: fidelity.fidelity(
            compared, test, real, judge.train(real, test, course, log=log), network, log)))
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
        raise UserError("--inception-weights is for images; this release makes a table")
    draw = _once(lambda n, seed: delivered(release, spec, n, seed))
    parts = [table_scores.utility(draw, _test(dataset), _train(dataset), spec, options, log)]
    tables = model.tables(release.method, release.config, spec, release.model, release.privacy)
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
