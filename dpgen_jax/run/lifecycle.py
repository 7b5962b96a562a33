"""A run from a request to a release."""

from __future__ import annotations

from collections.abc import Callable

from dpgen_jax.core import parting
from dpgen_jax.core.console import tell
from dpgen_jax.data import Dataset
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.run import finish, follower, rehearsal, typed
from dpgen_jax.run.planning import Log, check, declare, plan
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.request import Request
from dpgen_jax.run.stages import begin, deal, release, train

__all__ = ["Release", "Request", "load", "rehearse", "run"]


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
    with parting.leading(lambda: notices.exit_code), begin(planned, log, notices) as begun:
        dealt = deal(planned, begun, log)
        trained = train(planned, begun, dealt, log)
        made = release(planned, begun, trained, log)
        finish.copied(planned.files, request.release_to, notices, log)
        for line in typed.next_steps(planned.files, request.typed, dataset.x_test is not None):
            log(line)
        return made


def join(request: Request, dataset: Dataset) -> Callable[[], int]:
    """Joins a run that another process leads, with the units of this one.

    Args:
        request: What the user asked for, of all processes alike.
        dataset: The records, of all processes alike.

    Returns:
        A function that takes part in the run and returns the exit code of the process that leads.
        It keeps the records of this process's units alone, once they are dealt, if nobody else
        keeps the others.

    Raises:
        UserError: As `run`, and where the processes were not started for the same run.
    """
    planned = plan(check(declare(request, dataset, _silent), _silent, Notices(_silent)))
    follower.agree(planned)
    return follower.Follower(planned).follow


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
    return rehearsal.lines(planned, len(dataset.bought))
