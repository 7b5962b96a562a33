"""What earlier runs on the same records spent, as this machine's journal knows them.

The sum is by basic composition: epsilons and deltas of the budgets are added. A run counts with its
whole budget once it has spent anything, or is under way, since it may be resumed. Only runs count
whose promise implies this one's: the same relation, and the same unit or clients, whose records it
covers one by one. The others are named, and so are those without a guarantee; beside them no total
can be promised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpgen_jax.accountant import journal
from dpgen_jax.accountant.journal import Journal, Run, Unusable
from dpgen_jax.accountant.ledger import NOBODY
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.config import Budget
from dpgen_jax.private.records import fingerprint
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.types import BudgetExceeded, Private, Records, UserError

Witnesses = Callable[[RunFolder], Witness]
"""The witness of the run in a folder."""


@contextmanager
def before(records: Private[Records], mechanism: Mechanism, budget: Budget, guarantee: bool,
           total: float | None, own: str, say: Callable[[str], None]) -> Iterator[Witnesses]:
    """Says what was spent on these records before, and gives the witnesses of the run that starts
    meanwhile; no other run starts until its ledger is there.

    say: tells the data holder alone, since it depends on the records; guarantee: whether this run
    has any; total: `--total-epsilon`; own: the id of the run that is
    resumed, or nothing. Errors: UserError or BudgetExceeded where the total would be exceeded or
    cannot be promised, and for a damaged journal.
    """
    if total is not None and not (guarantee and 0 < total < math.inf):
        raise UserError(f"--total-epsilon {total:g} needs a number above 0, and a run with a "
                        "guarantee: a finite epsilon, and no seed")
    kept = opened(say, needed=total is not None)
    if kept is None:
        yield lambda files: NOBODY
        return
    print_of = fingerprint(records, kept.key)
    with kept.locked():
        earlier = [run for run in kept.on(print_of)
                   if run.run != own and (run.spent > 0 or run.in_use)]
        if earlier:
            say(_told(earlier, mechanism, budget))
        if total is not None:
            _require(earlier, mechanism, budget, total)
        yield lambda files: kept.witness(files.run_id(), print_of, guarantee, files.root)


def witness(files: RunFolder, say: Callable[[str], None]) -> Witness:
    """That of a run which is known already."""
    kept = opened(say)
    return NOBODY if kept is None else kept.witness(files.run_id(), "", True, files.root)


def opened(say: Callable[[str], None], needed: bool = False) -> Journal | None:
    """The journal, or None with a line where it cannot be written. Errors: Unusable where `needed`;
    UserError for a damaged one."""
    try:
        return Journal(journal.place())
    except Unusable as error:
        if needed:
            raise
        say(f"{error}; until then nobody notices a copy or an older state of a run folder")
        return None


def _counts(run: Run, mechanism: Mechanism) -> bool:
    return (run.guarantee and run.relation == mechanism.relation
            and run.unit in (mechanism.unit, "client"))


def _sum(earlier: list[Run], mechanism: Mechanism, budget: Budget) -> tuple[float, float]:
    """Epsilon and delta of the runs that count and of this one."""
    counted = [run for run in earlier if _counts(run, mechanism)]
    return (budget.epsilon + math.fsum(run.target for run in counted),
            budget.delta + math.fsum(run.delta for run in counted))


def _told(earlier: list[Run], mechanism: Mechanism, budget: Budget) -> str:
    """One line."""
    counted = [run for run in earlier if _counts(run, mechanism)]
    others = [run for run in earlier if not _counts(run, mechanism)]
    parts = []
    if counted:
        epsilon, delta = _sum(earlier, mechanism, budget)
        parts.append(f"{_number(counted)} spent epsilon {math.fsum(r.spent for r in counted):.4g} "
                     f"of budgets of {math.fsum(r.target for r in counted):.4g}; with this run's "
                     f"{budget.epsilon:g} that is epsilon {epsilon:.4g} at delta {delta:.4g} by "
                     "basic composition")
    if others:
        parts.append(f"{_number(others)} gave them no guarantee that could be added "
                     f"({_folders(others)})")
    return f"on these records, before: {'; '.join(parts)}"


def _require(earlier: list[Run], mechanism: Mechanism, budget: Budget, total: float) -> None:
    others = [run for run in earlier if not _counts(run, mechanism)]
    if others:
        raise BudgetExceeded(
            f"--total-epsilon {total:g} cannot be promised: {_number(others)} on these records "
            f"gave no guarantee that could be added ({_folders(others)})")
    epsilon, delta = _sum(earlier, mechanism, budget)
    if epsilon > total:
        raise BudgetExceeded(
            f"the sum over all runs on these records would be epsilon {epsilon:.6g} at delta "
            f"{delta:.4g}, beyond --total-epsilon {total:g}: {_number(earlier)} before this one, "
            f"of budgets of {epsilon - budget.epsilon:.6g} in all ({_folders(earlier)}); give this "
            "one less")


def _number(runs: list[Run]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) > 1)}"


def _folders(runs: list[Run]) -> str:
    shown = [run.folder for run in runs[:3]]
    return ", ".join(shown + ["..."] * (len(runs) > 3))
