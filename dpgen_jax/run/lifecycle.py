"""A run, from a request of which nothing is left open to a release."""

from __future__ import annotations

from collections.abc import Callable

from dpgen_jax.core import hosts
from dpgen_jax.core.console import tell
from dpgen_jax.data import Dataset
from dpgen_jax.release.bundle import Release, load
from dpgen_jax.run import follower, stages
from dpgen_jax.run.planning import Log, Resolved, check, declare, plan
from dpgen_jax.run.progress import Notices
from dpgen_jax.run.stages import begin, deal, release, train

__all__ = ["Release", "Resolved", "join", "load", "run"]


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
    """Prints nothing: the process that leads does."""
