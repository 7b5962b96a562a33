"""`fit` and `repeat`: runs from Python, on arrays, a pandas frame or a loaded data set."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax import data, methods, presets
from dpgen_jax.accountant.events import add_up, as_written
from dpgen_jax.core import errors, run_folder
from dpgen_jax.core.config import Budget, DataOptions, MonitorOptions, Runtime, from_json, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, nearest, option
from dpgen_jax.core.terms import Relation, at_most
from dpgen_jax.core.types import ImageSpec, Private
from dpgen_jax.data import Dataset, from_arrays
from dpgen_jax.data.table import frames, subjects
from dpgen_jax.data.table import schema as schemas
from dpgen_jax.data.table.parsing import Cells
from dpgen_jax.presets import Preset, choice
from dpgen_jax.release import guarantee
from dpgen_jax.release.bundle import Release
from dpgen_jax.run import lifecycle, planning, resume, undeclared
from dpgen_jax.run.planning import Request
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.purchase import SHARE, Wanted


def preset_options(preset: Preset, dataset: str) -> DataOptions:
    """Returns the options with which a data set is read for a preset, where the user states none.

    Args:
        preset: A preset that the user named.
        dataset: KIND or KIND:PLACE.

    Returns:
        The preset's own options for its kind of data set. For another kind it is only the size,
        where the images have none of their own.
    """
    kind = dataset.partition(":")[0]
    source = data.SOURCES.get(kind)
    if source is None or source.sized or not isinstance(preset.spec, ImageSpec):
        return DataOptions()
    own = preset.options if kind == preset.kind else {}
    return DataOptions(image_size=preset.spec.height, **own)


def require_size(name: str, preset: Preset, dataset: data.Dataset, image_size: int | None) -> None:
    """Refuses images of another size than the preset's, unless the user stated their size.

    Args:
        name: The name of a preset that the user named.
        preset: The preset.
        dataset: The data set.
        image_size: The size that was stated, by the user or for the preset.

    Raises:
        UserError: The sizes differ; it names the option.
    """
    spec, wanted = dataset.spec, preset.spec
    if not (isinstance(spec, ImageSpec) and isinstance(wanted, ImageSpec)) or image_size:
        return
    if (spec.height, spec.width) != (wanted.height, wanted.width):
        keep = (f", or {option('image_size', spec.height)} to "
                "keep theirs") * (spec.height == spec.width)
        raise UserError(
            f"preset {name} is for images of {wanted.height} x {wanted.width} pixels, and those of "
            f"{dataset.name} have {spec.height} x {spec.width}; pass "
            f"{option('image_size', wanted.height)} to resize them{keep}")


def noted_preset_data(name: str, preset: Preset, dataset: data.Dataset) -> data.Dataset:
    """Returns the data set with a private note on how it differs from the preset's, if it does.

    Args:
        name: The name of a preset that the user named.
        preset: The preset.
        dataset: The data set.
    """
    spec, wanted = dataset.spec, preset.spec
    if not (isinstance(spec, ImageSpec) and isinstance(wanted, ImageSpec)):
        return dataset
    ours, chosen = (f"{n:,} images of {s.height} x {s.width} x {s.channels} in {s.classes} classes"
                    for s, n in ((spec, len(dataset.y_train)), (wanted, preset.records)))
    if ours == chosen:
        return dataset
    note = f"preset {name} was chosen for {chosen}; these are {ours}"
    return dataclasses.replace(dataset, private_notes=(*dataset.private_notes, note))


def load_preset_data(name: str, preset: Preset, dataset: str, stated: DataOptions | None = None
                     ) -> data.Dataset:
    """Loads a data set for a preset that the user named.

    Args:
        name: The name of the preset.
        preset: The preset.
        dataset: KIND or KIND:PLACE.
        stated: The options, of which those that the user left out are as `preset_options` returns
            them; None where the user stated none.

    Returns:
        The data set.

    Raises:
        UserError: As `data.load` and `require_size`.
    """
    stated = stated or preset_options(preset, dataset)
    loaded = data.load(dataset, **vars(stated))
    require_size(name, preset, loaded, stated.image_size)
    return noted_preset_data(name, preset, loaded)


ALL_GIVEN = ("all records that were given are trained on; hold out before what is to be tested on, "
             "since a second training on them spends a second epsilon")
"""The line of a run on arrays or a frame."""


def fit(
    data: Any = None,
    x: Any = None,
    y: np.ndarray | None = None,
    *,
    method: str | None = None,
    label: str | None = None,
    schema_share: float = SHARE,
    epsilon: float | None = None,
    delta: float | None = None,
    class_epsilon: float | None = None,
    preset: str | None = None,
    classes: int | None = None,
    schema: str | Path | Mapping[str, Any] | schemas.Schema | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int | None = None,
    runtime: Runtime = Runtime(),
    monitor: MonitorOptions = MonitorOptions(),
    accept_uncovered: bool = False,
    total_epsilon: float | None = None,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    verbose: bool = True,
    **fields: Any,
) -> Release:
    """Trains a generator on a table, on arrays, or on a data set.

    `fit(frame, label="y")`, `fit(images, y=labels, classes=10)` and `fit(dataset)` are alike;
    `fit("datalens", images, labels)`, with the method first, is the earlier form of the same.

    Args:
        data: A pandas DataFrame; images uint8, or float in [0, 1], [n, H, W] or [n, H, W, ch], with
            their labels as `y`; or a data set of `load_dataset`, of which the training part is
            trained on. All other records that are given are trained on: hold out before what is to
            be tested on. In the earlier form the name of a method, or None.
        x: In the earlier form the data.
        y: Labels of the images, int [n].
        method: The name of a method; None: the one that does best on such data, of which the first
            line says why.
        label: Without `schema`, the column of the classes of a frame; None: rows without classes.
        schema_share: Without `schema`, the part of epsilon that buys a frame's.
        epsilon: The promise; by default the preset's.
        delta: Of the same promise.
        class_epsilon: Of epsilon, for noisy class counts by which labels are sampled; by default
            the preset's; 0: classes in equal shares.
        preset: The name of a preset of the method; if left out, one for such data is chosen.
        classes: The number of classes of the images.
        schema: The path of a schema file, a dict as `draft_schema` returns it, or a schema. The
            schema of a frame without one is bought under differential privacy, and kept in the run
            folder as schema.yaml.
        out: The run folder; by default runs/METHOD-NAME-TIME.
        resume: Whether to go on with the run in `out`.
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
        verbose: Whether lines and a progress bar are shown; failures are in any case.
        **fields: Any field of the method's `Config`.

    Returns:
        The release.

    Raises:
        UserError: As `lifecycle.run`, and for an unknown method, preset or field, and for values of
            other types.
        BudgetExceeded: As `lifecycle.run`.
    """
    if data is None or isinstance(data, str):
        if method is not None:
            raise UserError(f"a method is named twice, {data!r} and {method!r}; give it once")
        method = data
    else:
        x = _alone(data, x)
    _check({"epsilon": (epsilon, float), "delta": (delta, float),
            "class_epsilon": (class_epsilon, float), "preset": (preset, str),
            "classes": (classes, int), "resume": (resume, bool), "seed": (seed, int),
            "accept_uncovered": (accept_uncovered, bool), "verbose": (verbose, bool),
            "total_epsilon": (total_epsilon, float), "unit": (unit, str),
            "rows_per_unit": (rows_per_unit, int), "method": (method, str),
            "label": (label, str), "schema_share": (schema_share, float)})
    if not isinstance(out, str | Path | None) or not isinstance(runtime, Runtime) or not isinstance(
            monitor, MonitorOptions):
        raise UserError("out is a path, runtime a dpgen_jax.Runtime(...), and monitor its options")
    def request_for(dataset: Dataset, remarks: tuple[str, ...] = ()) -> tuple[Request, Dataset]:
        """The request of a training on this data set, or on one that is supposed."""
        kind = choice.Facts("", dataset.spec, dataset.count).kind
        served_by, why = (method, "") if method else choice.method_for(kind)
        stated = _fields(served_by, fields)
        name, chosen, reason = _preset(served_by, preset, dataset, epsilon, bool(stated))
        budget = Budget(*(preset_value if value is None else value for value, preset_value in (
            (epsilon, chosen.epsilon), (delta, chosen.delta),
            (class_epsilon, chosen.class_epsilon))))
        if preset is not None:
            dataset = noted_preset_data(name, chosen, dataset)
        dataset, config = planning.federated(
            dataset, dataclasses.replace(chosen.config, **stated))
        return Request(
            served_by, name, config, budget, runtime, Path(out) if out else None, resume, seed,
            monitor if verbose else dataclasses.replace(monitor, progress=False),
            accept_uncovered, total_epsilon, "; ".join(filter(None, (why, reason))),
            remarks=remarks), dataset

    log, notices = _teller(verbose), _Quiet() if not verbose else None
    remarks = () if isinstance(x, Dataset) else (ALL_GIVEN,)
    with errors.worded(on_command_line=False):
        if schema is not None or not hasattr(x, "columns"):
            if label is not None:
                raise UserError(
                    "label names a column of a frame without a schema, which names its label "
                    "itself; drop it" if schema is not None else
                    f"label names a column of a DataFrame, and the data are a {type(x).__name__}; "
                    "read a file by pandas first")
            dataset = _dataset(x, y, classes, schema, unit, rows_per_unit)
            return lifecycle.run(*request_for(dataset, remarks), log, notices)
        if not (y is classes is unit is rows_per_unit is None):
            raise UserError("a frame without a schema comes with label alone; for y, classes or a "
                            "unit give schema=FILE, which draft_schema(frame) drafts")
        cells = frames.cells_of_frame("frame", x, None)
        bought = _Bought(x, cells, Wanted(tuple(cells.columns), label, {}, schema_share))
        root = bought.root(request_for)
        with undeclared.remembered(root):
            dataset, line = bought.dataset(request_for, root)
            request, dataset = request_for(dataset, (*filter(None, (line,)), *remarks))
            return lifecycle.run(dataclasses.replace(request, out=root), dataset, log, notices)


RequestFor = Callable[..., tuple[Request, Dataset]]
"""From a data set to the request of `fit` on it, and the data set as the run takes it."""


@dataclasses.dataclass(frozen=True)
class _Bought:
    """A frame whose schema nobody declared.

    Attributes:
        frame: The frame.
        cells: Its cells, as texts.
        wanted: All its columns, and the label.
    """

    frame: Any
    cells: Cells
    wanted: Wanted

    def _supposed(self) -> Dataset:
        """A data set as the frame could be, by its public columns and number of rows."""
        columns = len(self.cells.columns) - (self.wanted.label is not None)
        return next(lifecycle.datasets(undeclared.Supposed(
            "table", "", presets.numbers(max(1, columns)), max(1, len(self.cells.rows)),
            Budget(1.0, 0.5), (), ())))

    def root(self, request_for: RequestFor) -> Path:
        """The run folder."""
        request, _ = request_for(self._supposed())
        root = request.out or run_folder.default_root(request.method, "frame")
        if request.out and not (request.resume and run_folder.RunFolder(root).config.is_file()):
            resume.refuse_used(root)
        return root

    def dataset(self, request_for: RequestFor, root: Path) -> tuple[Dataset, str]:
        """The data set by its bought schema, and a line on what that cost."""
        request, _ = request_for(self._supposed())
        budget = Budget(request.budget.epsilon, request.budget.delta)
        promised = (math.isfinite(budget.epsilon) and request.seed is None
                    and not request.accept_uncovered)
        if promised and request.config.protects_clients:
            raise UserError("no schema is declared, and it is bought at the level of single rows, "
                            "which does not cover all rows of a client; give schema=FILE (nothing "
                            "was spent)")
        purchase = undeclared.Purchase(
            root, request.method, "frame",
            str(getattr(request.config, "relation", Relation.REPLACE_ONE)), budget, (),
            Private(frames.content_of_frame(self.frame)), request.total_epsilon, ())
        declared, line = undeclared.undeclared_frame(
            purchase, self.cells, self.wanted, request.resume,
            functools.partial(lifecycle.refuse, request_for=request_for) if promised else None)
        return frames.from_texts(self.frame, self.cells, declared), line


class _Quiet(Notices):
    """Reports failures only."""

    def private(self, line: str) -> None:
        """Keeps the line to itself."""


def _teller(verbose: bool) -> Any:
    """The function that prints a line of a run in the words of Python."""
    return tell if verbose else lambda line: None


def _alone(data: Any, x: object) -> Any:
    if x is not None:
        raise UserError("data come alone, as fit(data, method=METHOD), or behind the method, as "
                        "fit(METHOD, data); give labels of images as y=LABELS")
    return data


def _check(stated: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuses values of another type than is expected; by name a value and its type."""
    for name, (value, kind) in stated.items():
        if value is None or (kind is float and _is_infinite(value)):
            continue
        if kind is float and isinstance(value, str):  # JSON has "inf", and a call has not
            raise UserError(f"{name} is {value!r}, expected a number")
        from_json(kind, _plain(value), name)


def _is_infinite(value: object) -> bool:
    """Whether it is the number infinity, which means that there is no bound."""
    return isinstance(value, float | np.floating) and math.isinf(value)


def _plain(value: object) -> Any:
    """A value as JSON has it, for its type to be checked."""
    value = value.item() if isinstance(value, np.generic) else value
    return to_json(value) if not isinstance(value, float) else value


def _fields(method: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration, of the types that they must have."""
    config = methods.get(method).Config
    known = [field.name for field in dataclasses.fields(config)]
    for field in fields.keys() - set(known):
        raise UserError(f"unknown field {field!r} of {method}{nearest(field, known)}")
    kinds = typing.get_type_hints(config)
    return {name: from_json(kinds[name], to_json(_plain(value)), name)
            for name, value in fields.items()}


def _preset(method: str, name: str | None, dataset: Dataset, epsilon: float | None, tuned: bool
            ) -> tuple[str, presets.Preset, str]:
    """The preset that is named, or the one that serves the data, and why."""
    if name is not None:
        return *presets.get(method, name), ""
    kind = dataset.options.get("kind", "")
    place = kind if kind in choice.NAMED_KINDS else f"{kind}:{dataset.name}"
    public = choice.public_name(place, dataset.options.get("attribute"))
    facts = choice.Facts(public, dataset.spec, dataset.count, dataset.clients is not None)
    chosen = choice.preset_for(method, facts, epsilon, tuned)
    return chosen.name, chosen.preset, chosen.why


def _dataset(x: Any, y: np.ndarray | None, classes: int | None, schema: Any, unit: str | None,
             rows_per_unit: int | None) -> Dataset:
    """The data set of what `fit` was given."""
    if isinstance(x, Dataset):
        if not (y is classes is schema is unit is rows_per_unit is None):
            raise UserError("a data set has its labels, classes and schema; give it alone")
        return x
    if schema is None and (unit is not None or rows_per_unit is not None):
        raise UserError("a unit is a column of a table; give a DataFrame and schema=FILE")
    if schema is None:
        if x is None:
            raise UserError("fit needs data: a DataFrame, images with y=LABELS, or a data set of "
                            "load_dataset")
        if y is None:
            raise UserError("labels are missing: give them as y=LABELS")
        return from_arrays(x, y, classes)
    if y is None and classes is None:
        if unit is not None or rows_per_unit is not None:
            column, rows = subjects.required(unit, rows_per_unit)
            return subjects.from_frame(x, schema, column, rows)
        return frames.from_frame(x, schemas.of(schema))
    raise UserError("with a schema, give the DataFrame alone: the schema names the label and its "
                    "classes")


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


def repeat(n: int, method: Any, x: Any = None, y: Any = None, *, out: str | Path | None = None,
           seed: int | None = None, log: Callable[[str], None] = tell, **options: Any) -> Repeats:
    """Trains `n` times on the same records: for a mean over trainings, and how far they differ.

    Each training spends an epsilon of its own, and they add up. The sum is shown before anything is
    spent; with `total_epsilon` it is refused where it is more.

    Args:
        n: The number of trainings, 2 or more.
        method: The name of a method, or what else `fit` takes in its place.
        x: As `fit` takes it.
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
                        "dg.repeat(3, 'mixture', x, y)")
    epsilon, most = options.get("epsilon"), options.get("total_epsilon")
    if epsilon is not None and most is not None and (
            math.isinf(epsilon) or n * as_written(epsilon) > as_written(most)):
        raise UserError(f"{n} trainings of epsilon {epsilon:g} spend {n * epsilon:g} on the same "
                        f"records, more than total_epsilon={most:g}; lower one of them")
    each = "its own epsilon" if epsilon is None else f"epsilon {at_most(epsilon)}"
    total = f"{n} times that" if epsilon is None else f"epsilon {at_most(n * epsilon)}"
    if seed is not None:
        each, total = "epsilon inf", "nothing that bounds, as the noise is made from seeds"
    log(f"{n} trainings on the SAME records: each spends {each}, all together {total}; a release "
        "states what it spent itself")
    name = method if isinstance(method, str) else "best"
    root = run_folder.default_root(name, "repeats") if out is None else Path(out)
    releases = []
    for i in range(n):
        log(f"training {i + 1} of {n}")
        releases.append(fit(method, x, y, out=root / str(i),
                                      seed=None if seed is None else seed + i, **options))
    spent = [tuple(float(release.privacy.get(name, math.inf)) for name in ("epsilon", "delta"))
             if guarantee.of(release.privacy).kind == "valid" else (math.inf, 0.0)
             for release in releases]
    repeats = Repeats(tuple(releases), tuple(root / str(i) for i in range(n)),
                      add_up((epsilon, 1) for epsilon, _ in spent),
                      add_up((delta, 1) for _, delta in spent))
    log(str(repeats))
    return repeats
