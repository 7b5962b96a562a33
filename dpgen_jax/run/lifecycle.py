"""A run, from a request of which nothing is left open to a release, and its rehearsal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpgen_jax import methods
from dpgen_jax.accountant.events import Events, to_json
from dpgen_jax.core import hosts
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, option
from dpgen_jax.core.request import Request
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Column, Spec, TableSpec
from dpgen_jax.data import Dataset
from dpgen_jax.presets import choice
from dpgen_jax.presets.choice import Facts
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.run import follower, forecast, planning, resolve, stages
from dpgen_jax.run.calibrate_config import complete, with_records
from dpgen_jax.run.planning import Log, Plan, Resolved, check, declare, plan, summary_lines
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.resolve import Chosen
from dpgen_jax.run.stages import begin, deal, release, train

__all__ = ["Release", "Resolved", "join", "load", "rehearse", "run"]


def run(request: Resolved, dataset: Dataset, log: Log = tell, notices: Notices | None = None
        ) -> Release:
    """One training run, from sealed records to the release folder.

    Each stage takes the values of earlier ones and gives the next, and none is changed.

    Args:
        request: The user's request.
        dataset: The records and their public schema.
        log: Prints a line of the run.
        notices: Tells the data holder what concerns nobody else, and what failed apart from the
            release.

    Returns:
        The release, which is also in the run folder.

    Raises:
        UserError: For a request, records or a folder that do not fit, before anything is spent.
        BudgetExceeded: Where the budget does not allow the request, or no step.
        SystemExit: With its exit code, after a signal that ended the run early.
    """
    notices = notices or Notices()
    declared = declare(request, dataset, log)
    forecast.announce(_forecast(declared), log)
    checked = check(declared, log, notices)
    planned = plan(checked)
    follower.agree(planned)
    with hosts.leading(lambda: notices.exit_code), begin(planned, log, notices) as begun:
        dealt = deal(planned, begun, log)
        trained = train(planned, begun, dealt, log)
        made = release(planned, begun, trained, log)
        stages.copied(planned.files, request.release_to, notices, log)
        return made


def join(request: Resolved, dataset: Dataset) -> Callable[[], int]:
    """Joins a run that another process leads, with the units of this one.

    Args:
        request: The user's request, of all processes alike.
        dataset: The records, of all processes alike.

    Returns:
        A function that takes part in the run and returns the exit code of the process that leads.
        Once the records are dealt, it keeps only those of this process's units, if nobody else
        keeps the others.

    Raises:
        UserError: As `run`, and where the processes were not started for the same run.
    """
    planned = plan(check(declare(request, dataset, _silent), _silent, Notices(_silent)))
    follower.agree(planned)
    return follower.Follower(planned).follow


def _silent(line: str) -> None:
    """Prints nothing: the run itself does, or the process that leads."""


SHOWN = 2
"""The most results on like data that are named."""
WIDTH = 20
"""The categories of a column that is supposed to be wide."""


def last_line() -> str:
    """Returns the last line of a rehearsal."""
    return f"nothing was written or spent; to train, leave out {option('dry_run')}"


@dataclasses.dataclass(frozen=True)
class Supposed:
    """A rehearsal that ends before the data are typed, and data as they could be.

    Attributes:
        kind: `table` or `images`.
        what: What is supposed of them, in words.
        spec: Their schema, if it is so.
        records: The public number of training records.
        budget: The budget of the run, without class counts.
        events: What the purchase costs, with what was bought before it.
        prices: Lines on what would be bought.
    """

    kind: str
    what: str
    spec: Spec
    records: int
    budget: Budget
    events: Events
    prices: tuple[str, ...]


def rehearsal_lines(plan: Plan, entries: int) -> list[str]:
    """Returns the lines of a rehearsal."""
    class_epsilon = plan.request.budget.class_epsilon
    bought = [f"class counts for epsilon {at_most(class_epsilon)}"] * bool(class_epsilon)
    bought += [f"{entries} entries of the schema"] * bool(entries)
    kind = "table" if isinstance(plan.spec, TableSpec) else "images"
    return [summary_lines(plan),
            f"spent on other things than the training: {' and '.join(bought) or 'nothing'}",
            planning.memory_line(plan),
            *like_data(plan.request.method, kind, plan.request.budget.epsilon,
                                     next(iter(plan.protected.counts.values()))), last_line()]


def purchase_lines(request: Request, remarks: tuple[str, ...], supposed: Supposed) -> list[str]:
    """Returns the lines of a rehearsal that ends where the run would buy what is not declared.

    Args:
        request: The request.
        remarks: Lines on how the data are read.
        supposed: What would be bought, and data as they could be.

    Raises:
        UserError: A run on the supposed data would be refused.
        BudgetExceeded: Likewise.
    """
    made = resolve.chosen(request, Facts("", supposed.spec, supposed.records))
    budget, count = supposed.budget, supposed.records
    return [f"{made.method} on {count:,} records: epsilon {at_most(budget.epsilon)} at delta "
            f"{at_most(budget.delta)}",
            *remarks, *supposed.prices, _supposed(made, supposed),
            *like_data(made.method, supposed.kind, budget.epsilon, count),
            "the rest depends on the columns or classes that are not declared yet", last_line()]


def datasets(supposed: Supposed) -> Iterator[Dataset]:
    """Yields data sets as the data could be, of records that are all alike and take no memory.

    Those of a table have the columns of numbers, or wider ones of categories; those of images two
    classes, or ten.
    """
    spec, bought = supposed.spec, tuple(to_json(supposed.events))
    if isinstance(spec, TableSpec):
        other: Spec = dataclasses.replace(spec, columns=tuple(
            Column(column.name, "categorical", categories=tuple(map(str, range(WIDTH))))
            for column in spec.columns))
    else:
        other = dataclasses.replace(spec, classes=10)
    for one in (spec, other):
        x = np.broadcast_to(np.zeros((), one.dtype), (supposed.records, *one.shape))
        yield Dataset("data", one, x, np.zeros(supposed.records, np.int32), bought=bought)


def refuse(supposed: Supposed, request_for: Callable[[Dataset], tuple[Resolved, Dataset]]
           ) -> tuple[str, ...]:
    """Refuses, before anything is bought, what would be refused whatever the answer is.

    Args:
        supposed: The purchase, and data as they could be.
        request_for: Returns the request of a run on such data, and the data as it takes them.

    Returns:
        The forecast, as far as it is known before the purchase.

    Raises:
        UserError: As `planning.declare`, `planning.check` and `planning.plan`, where these refuse
            each of the data sets as the data could be.
    """
    first: UserError | None = None
    for dataset in datasets(supposed):
        try:
            request, dataset = request_for(dataset)
            request = dataclasses.replace(request, resume=False)
            declared = declare(request, dataset, _silent)
            plan(check(declared, _silent, Notices(_silent)))
            return _forecast(declared)
        except UserError as error:
            first = first or error
    assert first is not None
    first.args = (f"{first} (nothing was spent)",)
    raise first


def _forecast(declared: planning.Declared) -> tuple[str, ...]:
    """The forecast of a run of which everything that decides its noise is known."""
    return forecast.lines(declared.request.method, declared.config, declared.dataset.spec,
                          declared.dataset.count, declared.request.budget)


def _supposed(made: Chosen, data: Supposed) -> str:
    """The line on steps, noise and memory of a run on supposed data."""
    labelled = not isinstance(data.spec, TableSpec) or data.spec.labelled
    budget = dataclasses.replace(
        data.budget, class_epsilon=made.budget.class_epsilon * labelled)
    config = with_records(made.config, data.records)
    config = complete(made.method, config, data.spec, budget, data.events)
    built = methods.get(made.method).build(config, data.spec, Runtime())
    return (f"{data.what}: {config.planned_steps:,} steps, sigma {config.sigma:g}, and "
            f"{planning.supposed_memory(built, data.spec, data.records)} of memory, including all "
            "records")


def like_data(method: str, kind: str, epsilon: float, count: int) -> list[str]:
    """Returns a line for each result of the method of the nearest epsilon and size.

    Each says whether it is on similar data, or on other data.
    """
    rows = [row for row in choice.reached() if (row["method"], row["kind"]) == (method, kind)]
    if not rows or not 0 < epsilon < math.inf:
        return [f"on similar data: no measured result or time of {method} is known"]
    nearest = min((abs(math.log(row["epsilon"] / epsilon)), row["epsilon"]) for row in rows)[1]
    near = sorted((row for row in rows if row["epsilon"] == nearest),
                  key=lambda row: abs(math.log(row["records"] / count)))
    return [_line(row, _kinship(row, epsilon, count)) for row in near[:SHOWN]]


def _line(row: dict[str, Any], kinship: str) -> str:
    """The line of one result."""
    source = " ".join(filter(None, (row.get("flags"), row["file"])))
    return (f"on {kinship} data: {row['data']} at epsilon {row['epsilon']:g} reached "
            f"{row['score']:.3f} ({row['measure']}) in {row['seconds']:,} s on two CPU cores "
            f"({source})")


def _kinship(row: dict[str, Any], epsilon: float, count: int) -> str:
    """`similar`, or `other` where budget or number of records differ by ten times or more."""
    ratios = row["epsilon"] / epsilon, row["records"] / count
    return "similar" if all(0.1 < ratio < 10 for ratio in ratios) else "other"


def rehearse(request: Resolved, dataset: Dataset, log: Log = tell, notices: Notices | None = None
             ) -> list[str]:
    """Returns what a run would do, in lines; nothing is written, charged or drawn.

    Raises:
        UserError: As `run`, where that is found before anything is spent.
        BudgetExceeded: Likewise.
    """
    declared = declare(request, dataset, log)
    forecast.announce(_forecast(declared), log)
    planned = plan(check(declared, log, notices or Notices()))
    return rehearsal_lines(planned, len(dataset.bought))
