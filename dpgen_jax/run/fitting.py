"""`fit`, `resume` and `repeat`: runs from Python, by the way of the commands."""

from __future__ import annotations

import dataclasses
import math
import typing
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax import data as data_sets
from dpgen_jax import methods, presets
from dpgen_jax.accountant.events import add_up, as_written
from dpgen_jax.core import errors, run_folder
from dpgen_jax.core.config import DataOptions, MonitorOptions, Runtime, from_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.files import Json
from dpgen_jax.core.request import PARTS, Request
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import TableSpec
from dpgen_jax.data import Dataset
from dpgen_jax.data.table import frames, raw
from dpgen_jax.data.table import schema as schemas
from dpgen_jax.release import guarantee
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import lifecycle, reading, resolve, undeclared
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.reading import Reading
from dpgen_jax.run.resolve import as_setting

ALL_GIVEN = ("all given records are used for training; hold out test records beforehand, since a "
             "second training on the same records spends a second epsilon")
"""The line of a run on arrays or a frame."""


def fit(
    data: Any = None,
    x: Any = None,
    y: np.ndarray | None = None,
    *,
    method: str | None = None,
    label: str | int | None = None,
    schema_share: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    class_epsilon: float | None = None,
    preset: str | None = None,
    classes: int | None = None,
    schema: str | Path | Mapping[str, Any] | schemas.Schema | None = None,
    types_declared: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int | None = None,
    runtime: Runtime = Runtime(),
    monitor: MonitorOptions = MonitorOptions(),
    accept_uncovered: bool = False,
    total_epsilon: float | None = None,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    made_by: str | None = None,
    verbose: bool = True,
    **fields: Any,
) -> Release:
    """Trains a generator on a table, on arrays, on a file, or on a data set.

    `fit(frame, label="y")`, `fit("people.csv", label="y")`, `fit(images, y=labels, classes=10)` and
    `fit(dataset)` are alike. `fit("datalens", images, labels)`, with the method first, is the
    earlier form of `fit(images, y=labels, method="datalens")`.

    Args:
        data: A pandas DataFrame; images uint8, or float in [0, 1], [n, H, W] or [n, H, W, ch], with
            their labels as `y`; or a data set of `load_dataset`, of which the training part is
            trained on. All records that are given so are trained on: hold out before what is to be
            tested on. Or the path of a file or folder, or SOURCE:PLACE, which is read, and of which
            a share is held out, as `python -m dpgen_jax.train` does.
        x: In the earlier form the data.
        y: Labels of the images, int [n].
        method: The name of a method; None: the one that does best on such data; a line says why.
        label: The column of the classes of a table; None: that of the schema, or rows without
            classes.
        schema_share: The part of epsilon that buys the columns that no schema declares; 0.15 if
            left out.
        epsilon: The promise; by default the preset's.
        delta: Of the same promise.
        class_epsilon: Of epsilon, for noisy class counts by which labels are sampled; by default
            the preset's; 0: classes in equal shares.
        preset: The name of a preset of the method; if left out, one for such data is chosen.
        classes: The number of classes of the images.
        schema: The path of a schema file, a dict as `draft_schema` returns it, or a schema. The
            columns that it does not declare are bought under differential privacy, and the whole
            schema is kept in the run folder as schema.yaml. A schema that declares every column of
            a file is a file, too.
        types_declared: Whether the types of a DataFrame were chosen without a look at the rows.
            Then they are public, and need no purchase: which categories a Categorical has, and
            their order; that a column is of truth values; the time zone of dates; the type in which
            each column is released. pandas itself infers types from all rows, so that without this
            word they are bought as any other entry.
        out: The run folder; by default runs/METHOD-NAME-TIME.
        resume: Whether to go on with the run in `out`, of which this call repeats the first.
        seed: Repeats a run, without a privacy claim.
        runtime: Speed and memory.
        monitor: What is shown while training.
        accept_uncovered: Where public fields, such as `classes`, are not declared, they are read
            from the records, and the privacy statement says "not covered"; without it that is
            refused.
        total_epsilon: Refuses a run with which all runs on these records, as far as this machine's
            journal knows them, would go beyond it.
        unit: With `schema`, the column that names the person or household of each row: all its rows
            are protected together.
        rows_per_unit: With `unit`, the most rows of one that are kept.
        made_by: The person or organisation that makes the release, for its statement.
        verbose: Whether lines and a progress bar are shown; failures are in any case. Details are
            added by `monitor=MonitorOptions(verbose=True)`.
        **fields: Any field of the method's `Config`, and for a file or folder any of `DataOptions`.

    Returns:
        The release.

    Raises:
        UserError: As `lifecycle.run`, and for an unknown method, preset or field, and for values of
            other types.
        BudgetExceeded: As `lifecycle.run`.
    """
    stated = {name: value for name, value in {
        "method": method, "label": label, "schema_share": schema_share, "epsilon": epsilon,
        "delta": delta, "class_epsilon": class_epsilon, "preset": preset, "classes": classes,
        "schema": schema, "out": out, "resume": resume, "seed": seed, "runtime": runtime,
        "monitor": monitor, "accept_uncovered": accept_uncovered, "total_epsilon": total_epsilon,
        "unit": unit, "rows_per_unit": rows_per_unit, "made_by": made_by,
    }.items() if value is not None}
    if isinstance(data, str) and (x is not None or data in methods.NAMES):
        if method is not None:
            raise UserError(f"a method is named twice, {data!r} and {method!r}; give it once")
        warnings.warn(f"fit({data!r}, data) is the earlier form of fit(data, method={data!r})",
                      DeprecationWarning, stacklevel=3)
        data, x, stated["method"] = x, None, data
    elif data is None:
        data, x = x, None
    if x is not None:
        raise UserError("data are one argument, as in fit(data, method=METHOD); give labels of "
                        "images as y=LABELS")
    if hasattr(data, "columns"):  # whose names may be whole numbers
        stated |= {name: str(stated[name]).strip() for name in ("label", "unit") if name in stated}
    if types_declared:
        stated["schema"] = schema = _typed(data, schema, stated.get("label"), stated.get("unit"))
    fields = _sorted(stated | fields, isinstance(data, str | Path))
    return _run(Request().changed(**fields), data, y, schema, verbose)


def resume(folder: str | Path, data: Any = None, y: np.ndarray | None = None, *,
           verbose: bool = True, **changes: Any) -> Release:
    """Goes on with a run that was stopped, by what was stated for it.

    Args:
        folder: The run folder.
        data: The data, where they were given in Python: a frame, images, or a data set. A run that
            read a file or folder reads it again.
        y: Labels of the images.
        verbose: As of `fit`.
        **changes: What is stated now, as `fit` takes it, in place of what was.

    Returns:
        The release.

    Raises:
        UserError: There is no such run, it does not know how it was started, or as `fit`.
        BudgetExceeded: As `fit`.
    """
    request = reading.stored_request(Path(folder))
    if (data is None) == (request.source is None):
        raise UserError(f"the data of {folder} were given in Python: give them again"
                        if data is None else f"{folder} was trained on {request.source}, which is "
                        "read again; leave the data out")
    fields = _sorted({"method": request.method} | changes, request.source is not None)
    request = request.changed(**fields).changed(out=Path(folder), resume=True)
    schema = changes.get("schema")
    return _run(request, request.source if data is None else data, y, schema, verbose)


def prepared(found: Reading) -> tuple[lifecycle.Resolved, Dataset]:
    """Reads the data of a request, and fills in what it leaves open.

    Raises:
        UserError: As `resolve.resolved`, and for data that cannot be read.
    """
    return resolve.resolved(found.request, found.load(), found.remarks)


def _run(request: Request, data: Any, y: np.ndarray | None, schema: Any, verbose: bool) -> Release:
    """Runs a request on data that were given."""
    if not isinstance(verbose, bool):
        raise UserError(f"verbose is {verbose!r}, expected true or false")
    log: Callable[[str], None] = tell if verbose else lambda line: None
    with errors.worded(on_command_line=False):
        found = _reading(request, data, y, schema if isinstance(schema, schemas.Schema) else None)
        with undeclared.remembered(found.request.out):
            resolved, dataset = prepared(found)
            if not verbose:
                resolved = dataclasses.replace(resolved, monitor=dataclasses.replace(
                    resolved.monitor, progress=False))
            return lifecycle.run(resolved, dataset, log, None if verbose else _Quiet())


def _reading(request: Request, data: Any, y: np.ndarray | None, schema: schemas.Schema | None
             ) -> Reading:
    """How the data that were given are read."""
    alone = y is None and request.data.get("classes") is None
    if isinstance(data, str | Path):
        if not (alone and schema is None):
            raise UserError("a file or folder is given without y, and its schema as a path")
        return reading.of_source(request.changed(source=str(data)))
    if isinstance(data, Dataset):
        if not alone or request.data:
            raise UserError("a data set has its labels, classes and schema; leave out y, classes "
                            "and schema")
        return Reading(request, lambda: data)
    if hasattr(data, "columns"):
        if not alone:
            raise UserError("a DataFrame is given without y and classes: label or the schema names "
                            "the column")
        if wrong := next(iter(request.data.keys() - OF_FRAMES), None):
            raise UserError(f"{wrong} does not apply to a DataFrame; drop it")
        found = reading.of_table(request, raw.Table(raw.FRAME, data), declared=schema)
        return dataclasses.replace(found, load=partial(_named, found.load, data),
                                   remarks=(*found.remarks, ALL_GIVEN))
    if schema is not None or request.data.keys() - {"classes"}:
        wrong = next(iter(request.data.keys() - {"classes"}), "schema")
        raise UserError(f"{wrong} is for tables, and the data are a {type(data).__name__}; give a "
                        "DataFrame or the path of a file")
    if data is None:
        raise UserError("fit needs data: a DataFrame, images with y=LABELS, the path of a file or "
                        "folder, or a data set of load_dataset")
    if y is None:
        raise UserError("labels are missing: give them as y=LABELS")
    return Reading(request, lambda: data_sets.from_arrays(data, y, request.data.get("classes")),
                   (ALL_GIVEN,))


def _typed(data: Any, schema: Any, label: Any, unit: Any) -> Any:
    """The schema, with what the types of a frame declare of the columns that it lacks."""
    if not hasattr(data, "columns"):
        raise UserError("types_declared is of a DataFrame; declare the columns of other data in a "
                        "schema")
    if isinstance(schema, schemas.Schema):
        return schema  # which has every column
    document = schemas.document(str(schema)) if isinstance(schema, str | Path) else schema
    document = raw.Table(raw.FRAME, data).written_out(schemas.texts(document or {}), (label, unit))
    return frames.typed(document, data, label)


def _named(load: Callable[[], Dataset], frame: Any) -> Dataset:
    """The data set of a frame, with its names that are whole numbers."""
    dataset = load()
    assert isinstance(dataset.spec, TableSpec)
    return dataclasses.replace(dataset, spec=dataclasses.replace(
        dataset.spec, numbered=frames.numbered_names(frame)))


class _Quiet(Notices):
    """Reports failures only."""

    def private(self, line: str) -> None:
        """Keeps the line to itself."""


OPTIONS = typing.get_type_hints(DataOptions)
OF_FRAMES = {"label", "schema", "unit", "rows_per_unit"}
"""The options of data that a DataFrame takes; the others are for files and folders."""
FIELDS = {name: kind for name, kind in typing.get_type_hints(Request).items()
          if name not in (*PARTS, "out", "source")}


def _renamed_flags(method: str | None) -> dict[str, str]:
    """The fields of a method's `Config` that are named as an option of data is, by their flags."""
    if method not in methods.NAMES:
        return {}
    return {field.metadata["flag"].replace("-", "_"): field.name
            for field in dataclasses.fields(methods.get(method).Config) if "flag" in field.metadata}


def _sorted(stated: Mapping[str, Any], of_files: bool) -> Json:
    """The arguments of a call by the fields of a request; a name of none of them is a setting."""
    fields: Json = {}
    renamed = _renamed_flags(stated.get("method"))
    for name, value in stated.items():
        if name in ("runtime", "monitor"):
            kind = Runtime if name == "runtime" else MonitorOptions
            if not isinstance(value, kind):
                raise UserError("out is a path, runtime a dpgen_jax.Runtime(...), and monitor its "
                                "options")
            fields[name] = {key: as_setting(part) for key, part in vars(value).items()
                            if part != getattr(kind(), key)}
        elif name == "out":
            if not isinstance(value, str | Path):
                raise UserError("out is a path")
            fields[name] = Path(value)
        elif name == "schema":
            if not isinstance(value, str | Path | Mapping | schemas.Schema):
                raise UserError(f"schema is a {type(value).__name__}; give the path of a schema, "
                                "or a dict")
            if not isinstance(value, schemas.Schema):
                fields.setdefault("data", {})[name] = (
                    schemas.texts(value) if isinstance(value, Mapping) else str(value))
        elif name in OPTIONS and (of_files or name not in renamed.values()):
            fields.setdefault("data", {})[name] = _checked(name, value, OPTIONS[name])
        elif name in FIELDS:
            fields[name] = _checked(name, value, FIELDS[name])
        else:
            fields.setdefault("settings", {})[renamed.get(name, name)] = as_setting(value)
    if fields.get("preset") is not None and fields.get("method") in methods.NAMES:
        fields["preset"], _ = presets.get(fields["method"], fields["preset"])  # by its name now
    return fields


def _checked(name: str, value: Any, kind: Any) -> Any:
    """A value of the type that it must have."""
    if isinstance(value, str) and float in typing.get_args(kind):  # JSON has "inf", and a call not
        raise UserError(f"{name} is {value!r}, expected a number")
    return from_json(kind, as_setting(value), name)


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Trainings of one configuration on the same records.

    Each release states only its own epsilon: for all of them together the sums are promised.

    Attributes:
        releases: One for each training.
        folders: Their run folders.
        epsilon: The sum of their epsilons; inf where one of them promises nothing.
        delta: The sum of their deltas.
    """

    releases: tuple[Release, ...]
    folders: tuple[Path, ...]
    epsilon: float
    delta: float

    def __str__(self) -> str:
        return (f"{len(self.releases)} trainings on the same records, which spent epsilon "
                f"{at_most(self.epsilon)}, delta {at_most(self.delta)} together")


def repeat(n: int, data: Any, x: Any = None, y: Any = None, *, out: str | Path | None = None,
           seed: int | None = None, log: Callable[[str], None] = tell, **options: Any) -> Repeats:
    """Trains `n` times on the same records: for a mean over trainings, and how far they differ.

    Each training spends an epsilon of its own, and they add up. The sum is shown before anything is
    spent; with `total_epsilon` it is refused where it is more.

    Args:
        n: The number of trainings, 2 or more.
        data: As `fit` takes it.
        x: Likewise.
        y: Likewise.
        out: A folder, for the run folders OUT/0, OUT/1 and so on; `dpgen compare OUT OTHER`, once
            each is evaluated, shows means and deviations over them. By default one in runs.
        seed: Repeats the trainings, with seeds from this one on, and without a privacy claim.
        log: Prints a line.
        **options: As `fit` takes them.

    Returns:
        The trainings.

    Raises:
        UserError: As `fit`, and for a number of trainings below 2.
        BudgetExceeded: As `fit`; trainings before it are done and stay.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise UserError(f"{n!r} trainings; give a whole number from 2 on, as in "
                        "dg.repeat(3, x, y=y)")
    epsilon, most = options.get("epsilon"), options.get("total_epsilon")
    if epsilon is not None and most is not None and (
            math.isinf(epsilon) or n * as_written(epsilon) > as_written(most)):
        raise UserError(f"{n} trainings of epsilon {epsilon:g} spend {n * epsilon:g} on the same "
                        f"records, more than total_epsilon={most:g}; lower one of them")
    each = "its own epsilon" if epsilon is None else f"epsilon {at_most(epsilon)}"
    total = f"{n} times that" if epsilon is None else f"epsilon {at_most(n * epsilon)}"
    if seed is not None:
        each, total = "epsilon inf", "no bound, since the noise comes from seeds"
    log(f"{n} trainings on the SAME records: each spends {each}, all together {total}; each "
        "release states its own spending")
    if isinstance(data, str) and x is not None:  # the earlier form
        options["method"], data, x = data, x, None
    name = options.get("method") or "best"
    root = run_folder.default_root(name, "repeats") if out is None else Path(out)
    releases = []
    for i in range(n):
        log(f"training {i + 1} of {n}")
        releases.append(fit(data, x, y, out=root / str(i),
                            seed=None if seed is None else seed + i, **options))
    spent = [tuple(float(release.privacy.get(name, math.inf)) for name in ("epsilon", "delta"))
             if guarantee.of(release.privacy).kind == "valid" else (math.inf, 0.0)
             for release in releases]
    repeats = Repeats(tuple(releases), tuple(root / str(i) for i in range(n)),
                      add_up((epsilon, 1) for epsilon, _ in spent),
                      add_up((delta, 1) for _, delta in spent))
    log(str(repeats))
    return repeats
