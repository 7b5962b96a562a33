"""Cells of a sweep: configurations that are compared."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.systems import CLASSIFIERS as RELEASED_CLASSIFIERS
from dpgen_jax import methods, presets
from dpgen_jax.cli import train_flags
from dpgen_jax.cli.train_flags import Train
from dpgen_jax.core.config import METRICS, Budget, DataOptions, digest
from dpgen_jax.core.errors import BudgetExceeded, UserError, nearest
from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import prediction, utility
from dpgen_jax.evaluation.results import TASKS, summary
from dpgen_jax.run.calibrate_config import complete, with_records

# Cells of a sweep as the commands of a user understand them.

DATA_FIELDS = ("dataset", *(field.name for field in dataclasses.fields(DataOptions)))
SPEED = ("runtime", "monitor", "out", "resume")
"""Parts of the training's flags that do not decide what a run means."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A cell as the training understands it."""

    cell: Cell
    method: str
    words: tuple[str, ...]
    data_words: tuple[str, ...]
    args: Train[Any]

    @property
    def folder(self) -> str:
        means = {field.name: getattr(self.args, field.name)
                 for field in dataclasses.fields(self.args) if field.name not in SPEED}
        return f"{self.method}-{self.args.preset}-{digest({'method': self.method, **means})[:12]}"

    def planned(self) -> Any:
        """Return the configuration with noise and steps, for the data that the preset is for."""
        preset, args = presets.get(self.method, self.args.preset)[1], self.args
        return complete(self.method, with_records(args.config, preset.records), preset.spec,
                        Budget(args.epsilon, args.delta, args.class_epsilon))


def job(sweep: Sweep, cell: Cell) -> Job:
    """Parse a cell as the training does, without fields that its method does not have."""
    settings = {**sweep.settings, **cell.settings}
    method = settings.pop("method", sweep.method)
    foreign = _fields(sweep.method) - _fields(method)
    settings = {field: text for field, text in settings.items()
                if field.partition(".")[0] not in foreign}
    words = flags(settings)
    shared = flags({field: settings[field] for field in settings if field in DATA_FIELDS})
    try:
        return Job(cell, method, tuple(words), tuple(shared), train_flags.parse(method, words)[0])
    except UserError as error:
        raise UserError(f"cell {cell.label or method!r}: {error}") from error


def _fields(method: str) -> set[str]:
    return {field.name for field in dataclasses.fields(methods.get(method).Config)}


def flags(settings: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for field, text in settings.items():
        path, _, last = field.replace("_", "-").rpartition(".")
        start = f"--{path}." if path else "--"
        parts = text.split()
        if text.lower() in ("true", "false"):
            words.append(f"{start}{'no-' if text.lower() == 'false' else ''}{last}")
        elif len(parts) > 1:
            words += [start + last, *parts]
        else:
            words.append(f"{start}{last}={text}")
    return words


def refusal(one: Job) -> str:
    """Return why the budget does not allow a cell; empty where the preset's data would."""
    try:
        one.planned()
    except BudgetExceeded as error:
        return str(error)
    return ""


# Metrics that `benchmarks.sweep` compares: names in metrics.json of an evaluation.

FID = "fidelity.fid"
SCORES = {"gen2real": ("accuracy", "validation_accuracy", "calibrated_accuracy"),
          "real2gen": ("accuracy",), "real2real": ("accuracy",)}
IMAGES = (*(f"{task}.{name}.{score}" for task, scores in SCORES.items()
            for name in utility.ALL_CLASSIFIERS for score in scores),
          *(f"average.{task}.{score}" for task, scores in SCORES.items() for score in scores
            if score != "validation_accuracy"),
          *(f"fidelity.{score}" for score in ("inception_score", "fid_features", "precision",
                                              "recall", "density", "coverage", "fid")))
TABLES = tuple(f"{task}.{name}.{score}" for task in TASKS
               for name in prediction.CLASSIFIERS for score in ("auroc", "auprc", "accuracy"))
OPEN = ("membership", "fidelity", "average")
"""Parts whose names depend on the data: of tables, and of attacks."""


def names(args: argparse.Namespace, sweep: Sweep, method: str, preset: str) -> list[str]:
    """Return the metrics of a sweep: those of the command line, of the sweep, or the usual one.

    Returns:
      The names; without Inception's weights a published sweep is measured without its FID.
    """
    if method in RELEASED_CLASSIFIERS:
        known: tuple[str, ...] = ("accuracy",)
        usual, is_open = "accuracy", ()
    elif isinstance(presets.get(method, preset)[1].spec, TableSpec):
        known, usual, is_open = TABLES, "gen2real.lr.auroc", OPEN
    else:
        known, usual, is_open = IMAGES, "gen2real.cnn.accuracy", OPEN[:1]
    for name in args.metric:
        if name not in known and name.partition(".")[0] not in is_open:
            raise UserError(f"unknown metric {name!r}{nearest(name, known)}; such are: "
                            f"{', '.join(known[:4])}")
    if FID in args.metric and args.inception_weights is None:
        raise UserError(f"{FID} needs --inception-weights FILE (see "
                        "dpgen_jax/evaluation/pretrained.py); fidelity.fid_features needs none")
    if args.metric:
        return list(dict.fromkeys(args.metric))
    chosen = [name for name in sweep.metrics if name != FID or args.inception_weights]
    return chosen or [usual]


def words(args: argparse.Namespace, method: str, chosen: Sequence[str], first: bool) -> list[str]:
    """Return the flags of the evaluation that measures these metrics."""
    if method in RELEASED_CLASSIFIERS:
        return []
    paths = [name.split(".") for name in chosen]
    parts = {path[1] if path[0] == "average" else path[0] for path in paths}
    if any(path[-1] == "calibrated_accuracy" for path in paths) or (
            first and parts & {"gen2real"}):
        parts.add("real2real")
    classifiers = dict.fromkeys(path[1] for path in paths if path[0] in utility.TASKS)
    result = ["--metrics", *(part for part in METRICS if part in parts)]
    if classifiers and not any(path[0] == "average" for path in paths):
        result += ["--classifiers", *classifiers]
    result += ["--seeds", str(args.seeds), *([] if args.full else ["--fast"])]
    if args.samples is not None:
        result += ["--samples", str(args.samples)]
    if FID in chosen:
        result += ["--inception-weights", str(args.inception_weights)]
    return result


def leaf(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a metric of one run over the seeds of its evaluation."""
    try:
        value = functools.reduce(lambda part, key: part[key], name.split("."), document)
    except (KeyError, TypeError):
        raise UserError(f"the evaluation has no metric {name!r}; its parts are: "
                        f"{', '.join(document)}") from None
    if isinstance(value, dict) and "mean" in value:
        return {key: value[key] for key in ("mean", "std", "values") if key in value}
    if isinstance(value, int | float):
        return summary([float(value)])
    raise UserError(f"the metric {name!r} is no number but has parts: {', '.join(value)}")


def over_runs(leaves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a metric over the training runs; of a single run, over its evaluation's seeds."""
    return leaves[0] if len(leaves) == 1 else summary([each["mean"] for each in leaves])


def real(document: dict[str, Any], chosen: Sequence[str]) -> dict[str, float]:
    """Return what real records get in place of synthetic ones, for those metrics that have it."""
    result = {}
    for name in chosen:
        head, *rest = name.split(".")
        if head == "fidelity" and document["fidelity"][rest[0]].get("floor") is not None:
            result[name] = document["fidelity"][rest[0]]["floor"]
        if head == "gen2real" and rest[0] in document.get("real2real", {}):
            scores = document["real2real"][rest[0]]
            if rest[-1] in scores:
                result[name] = scores[rest[-1]]["mean"]
    return result


VARIANT = "variant"


def label(point: Mapping[str, str]) -> str:
    """Return the words by which a point is shown, such as "kappa 0.8, epsilon 1"."""
    return ", ".join(value if field == VARIANT else f"{field} {value}"
                     for field, value in point.items())


@dataclasses.dataclass(frozen=True)
class Cell:
    """One configuration of a sweep.

    Attributes:
      point: The values by which it differs from other cells, by field; a name under `VARIANT`.
      settings: All of its flags of the training, by field, and its "method" where that differs.
      printed: What the paper prints for it, by metric.
    """

    point: Mapping[str, str]
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    printed: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The words by which it is shown."""
        return label(self.point)

    def at(self, field: str, value: str, is_named: bool) -> Cell:
        """Return the cell with another value of a field, without what is printed for its own."""
        point = {name: part for name, part in self.point.items() if name != field}
        if is_named:
            point[field] = value
        printed = self.printed if self.point.get(field, value) == value else {}
        return Cell(point, {**self.settings, field: value}, printed)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Configurations of a method that are compared, with flags that all of them share."""

    method: str
    source: str
    settings: Mapping[str, str]
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...] = ()

    def along(self, field: str, values: Sequence[str]) -> Sweep:
        """Return the sweep with a field set to each of these values.

        Cells that alone set the field, such as a variant without a part, keep theirs.

        Args:
          values: Its values; a single one is the same in all cells, and no part of their names.
        """
        is_special = not all(field in cell.settings for cell in self.cells)
        cells: dict[tuple[tuple[str, str], ...], Cell] = {}
        for cell, value in itertools.product(self.cells, values):
            if not (is_special and field in cell.settings):
                cell = cell.at(field, value, is_named=len(values) > 1)
            cells.setdefault(tuple(cell.point.items()), cell)
        settings = {name: part for name, part in self.settings.items() if name != field}
        return dataclasses.replace(self, cells=tuple(cells.values()), settings=settings)


def variants(rows: Mapping[str, Mapping[str, str]]) -> tuple[Cell, ...]:
    return tuple(Cell({VARIANT: name}, settings) for name, settings in rows.items())
