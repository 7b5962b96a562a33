"""A run from a request to a release: `fit` on arrays, and `run` on a loaded data set."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax import methods, presets
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Budget, MonitorOptions, Runtime
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.data import Dataset, frames, from_arrays, subjects
from dpgen_jax.data import schema as schemas
from dpgen_jax.presets import choice
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.run import follower, preset_data, protection, typed
from dpgen_jax.run.planning import Log, check, declare, plan, summary
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.request import Request
from dpgen_jax.run.stages import begin, deal, release, train

__all__ = ["Release", "Request", "fit", "load", "run"]


def run(request: Request, dataset: Dataset, log: Log = tell, notices: Notices | None = None
        ) -> Release:
    """One training run, from sealed records to the release folder.

    Each stage takes the values of earlier ones and gives the next, and none is changed.

    Args:
        request: What the user asked for.
        dataset: The records and their public schema.
        log: Prints a line of the run.
        notices: Tells the data holder what concerns nobody else, and what failed beside the
            release.

    Returns:
        The release, which is also in the run folder.

    Raises:
        UserError: For a request, records or a folder that do not fit, before anything is spent.
        BudgetExceeded: Where the budget does not allow what was asked for, or no step.
        SystemExit: With its exit code, after a signal that ended the run early.
    """
    notices = notices or Notices()
    declared = declare(request, dataset, log)
    checked = check(declared, log, notices)
    planned = plan(checked)
    follower.agree(planned)
    with hosts.leading(), begin(planned, log, notices) as begun:
        dealt = deal(planned, begun, log)
        trained = train(planned, begun, dealt, log)
        made = release(planned, begun, trained, log)
        for line in typed.next_steps(planned.files, request.typed, dataset.x_test is not None):
            log(line)
        return made


def follow(request: Request, dataset: Dataset) -> int:
    """Takes part in a run that another process leads, with the units of this one.

    Args:
        request: What the user asked for, of all processes alike.
        dataset: The records, of all processes alike.

    Returns:
        The exit code of the process that leads.

    Raises:
        UserError: As `run`, and where the processes were not started for the same run.
    """
    planned = plan(check(declare(request, dataset, _silent), _silent, Notices(_silent)))
    follower.agree(planned)
    return follower.follow(planned)


def _silent(line: str) -> None:
    """Says nothing: the process that leads says it."""


def rehearse(request: Request, dataset: Dataset, log: Log = tell, notices: Notices | None = None
             ) -> list[str]:
    """Returns what a run would do, in lines; nothing is written, charged or drawn.

    Args:
        request: What the user asks for.
        dataset: The records and their public schema.
        log: Prints a line of the run.
        notices: Tells the data holder what concerns nobody else.

    Raises:
        UserError: As `run`, where that is found before anything is spent.
        BudgetExceeded: Likewise.
    """
    declared = declare(request, dataset, log)
    planned = plan(check(declared, log, notices or Notices()))
    bought = [f"class counts for epsilon {planned.request.budget.class_epsilon:g}"
              ] * bool(planned.request.budget.class_epsilon)
    bought += [f"{len(dataset.bought)} entries of the schema"] * bool(dataset.bought)
    return [summary(planned), f"bought beside the training: {' and '.join(bought) or 'nothing'}",
            "nothing was written or spent; leave out --dry-run to train"]


def fit(
    method: str,
    x: Any,
    y: np.ndarray | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    preset: str | None = None,
    classes: int | None = None,
    schema: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int | None = None,
    runtime: Runtime = Runtime(),
    monitor: MonitorOptions = MonitorOptions(),
    accept_uncovered: bool = False,
    total_epsilon: float | None = None,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    **fields: Any,
) -> Release:
    """Trains `method` on arrays or on a table.

    Args:
        method: The name of a method.
        x: Images uint8, or float in [0, 1], [n, H, W] or [n, H, W, ch]; or with `schema` a pandas
            DataFrame of its columns.
        y: Labels of the images, int [n].
        epsilon: The promise; by default the preset's.
        delta: Of the same promise.
        preset: The name of a preset of the method; if left out, one for such data is chosen.
        classes: The number of classes of the images.
        schema: The path of a schema file.
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
        **fields: Any field of the method's `Config`.

    Returns:
        The release.

    Raises:
        UserError: As `run`, and for an unknown method, preset or field.
        BudgetExceeded: As `run`.
    """
    known = [field.name for field in dataclasses.fields(methods.get(method).Config)]
    for field in fields.keys() - set(known):
        raise UserError(f"unknown field {field!r} of {method}{nearest(field, known)}")
    dataset = _dataset(x, y, classes, schema, unit, rows_per_unit)
    name, chosen, why = _preset(method, preset, dataset, epsilon, bool(fields))
    budget = Budget(chosen.epsilon if epsilon is None else epsilon,
                    chosen.delta if delta is None else delta, chosen.class_epsilon)
    config = dataclasses.replace(chosen.config, **fields)
    if preset is not None:
        dataset = preset_data.noted(name, chosen, dataset)
    dataset, config = protection.federated(dataset, config)
    return run(Request(method, name, config, budget, runtime, Path(out) if out else None, resume,
                       seed, monitor, accept_uncovered, total_epsilon, why), dataset)


def _preset(method: str, name: str | None, dataset: Dataset, epsilon: float | None, tuned: bool
            ) -> tuple[str, presets.Preset, str]:
    """The preset that is named, or the one that serves the data, and why."""
    if name is not None:
        return *presets.get(method, name), ""
    facts = choice.Facts("", dataset.spec, dataset.count, dataset.clients is not None)
    chosen = choice.preset_for(method, facts, epsilon, tuned)
    return chosen.name, chosen.preset, chosen.why


def _dataset(x: Any, y: np.ndarray | None, classes: int | None, schema: str | Path | None,
             unit: str | None, rows_per_unit: int | None) -> Dataset:
    """The data set of what `fit` was given."""
    if schema is None and (unit is not None or rows_per_unit is not None):
        raise UserError("a unit is a column of a table; give a DataFrame and schema=FILE")
    if schema is None:
        if y is None:
            raise UserError("labels are missing: give y, or, with a DataFrame, schema=FILE")
        return from_arrays(x, y, classes)
    if y is None and classes is None:
        if unit is not None or rows_per_unit is not None:
            column, rows = subjects.required(unit, rows_per_unit)
            return subjects.from_frame(x, str(schema), column, rows)
        return frames.from_frame(x, schemas.read(str(schema)))
    raise UserError("with a schema, give the DataFrame alone: the schema names the label and its "
                    "classes")
