"""Sums over the runs on the same records, by basic composition: epsilons and deltas are added.

Only runs count whose promise implies that of the run which starts: the same relation, and the same
unit or clients, whose records it covers one by one. The others are named, and so are those without
a guarantee; beside them no total can be promised. A run that goes on counts with what it claims:
its budget, or what its ledger charges where that is more, as after a line that a crash tore; the
others with what the journal last knew of them.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.journal_entry import Run
from dpgen_jax.accountant.ledger_reading import account, claimed, read
from dpgen_jax.accountant.rounding import add_up, as_written, round_up
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import BudgetExceeded
from dpgen_jax.run.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Promise:
    """The promise of a run, as far as sums over runs must agree in it.

    Attributes:
        relation: The neighbouring relation.
        unit: "record", "client" or "subject".
        subjects: Of clients and subjects, a keyed digest of which records belong together.
    """

    relation: str
    unit: str
    subjects: str


@dataclasses.dataclass(frozen=True)
class Start:
    """The run that starts.

    Attributes:
        budget: The run's budget.
        guarantee: Whether the run has a guarantee without an exception.
        total: The value of `--total-epsilon`, or None.
        folder: The folder of the run that is resumed, or None.
        paid: Events of purchases that are part of this run's own budget.
    """

    budget: Budget
    guarantee: bool
    total: float | None = None
    folder: RunFolder | None = None
    paid: Events = ()

    @property
    def run_id(self) -> str:
        """The id of the run that is resumed, or nothing."""
        return self.folder.run_id() if self.folder else ""

    def claiming(self) -> Start:
        """Returns this start with the epsilon that the run will state in the place of its budget.

        Raises:
            UserError: The ledger of the run that is resumed is damaged.
        """
        if self.folder is None:
            return self
        epsilon = claimed(self.folder.ledger, self.budget.epsilon)
        return dataclasses.replace(
            self, budget=dataclasses.replace(self.budget, epsilon=epsilon),
            guarantee=self.guarantee and epsilon < math.inf)

    def remedy(self, claim: float) -> str:
        """Returns what can be done where the total is exceeded.

        Args:
            claim: The epsilon that the run would state.
        """
        if not self.folder:
            return "give this one less"
        mend = "leave this run as it is" + ", or pass a larger --total-epsilon" * (claim < math.inf)
        if claim <= self.budget.epsilon:
            return mend
        charged = account(read(self.folder.ledger))
        why = ("a line that a crash tore counts as spent: bring back the whole file, "
               if charged.epsilon() > charged.target else "the run has published a bound since: ")
        return (f"{self.folder.ledger} claims epsilon {at_most(claim)}, more than the budget of "
                f"{at_most(self.budget.epsilon)}, as {why}{mend}")


def _counts(run: Run, promise: Promise) -> bool:
    """Whether a run's promise implies this one.

    What holds for all records of a client holds for each of them. Subjects are told apart by a
    column of the records: one record that changes may change two of them, or their number. What
    holds for one client or subject holds for no other grouping, and for none where clients were
    simulated; how many rows were kept of one is no part of the promise.
    """
    covers = {"record": ("record", "client"), "client": ("client",), "subject": ("subject",)}
    same = not promise.subjects or run.subjects == promise.subjects
    return (run.guarantee and run.target < math.inf and run.relation == promise.relation and same
            and run.unit in covers.get(promise.unit, ()))


def _sum(earlier: list[Run], promise: Promise, budget: Budget) -> tuple[Fraction, Fraction]:
    """Epsilon and delta of the runs that count and of this one, without rounding."""
    counted = [run for run in earlier if _counts(run, promise)]
    return (sum((as_written(run.target) for run in counted), as_written(budget.epsilon)),
            sum((as_written(run.delta) for run in counted), as_written(budget.delta)))


def summary(earlier: list[Run], promise: Promise, start: Start) -> str:
    """Returns the line about earlier runs.

    Args:
        earlier: The other runs.
        promise: That of the run that starts.
        start: That run, which is added only if it promises something.
    """
    counted = [run for run in earlier if _counts(run, promise)]
    others = [run for run in earlier if not _counts(run, promise)]
    parts = []
    if counted:
        spent, targets = (at_most(add_up((getattr(run, part), 1) for run in counted), 4)
                          for part in ("spent", "target"))
        total = "this run gives no guarantee, so no sum with it bounds anything"
        if start.guarantee:
            epsilon, delta = map(round_up, _sum(earlier, promise, start.budget))
            total = (f"with this run's {at_most(start.budget.epsilon)} that is epsilon "
                     f"{at_most(epsilon, 4)} at delta {at_most(delta, 4)} by basic composition")
        parts.append(f"{_number(counted)} spent epsilon {spent} of budgets of {targets}; {total}")
    if others:
        parts.append(f"{_number(others)} gave them no guarantee that could be added "
                     f"({_folders(others)})")
    return f"on these records, before: {'; '.join(parts)}"


def require(earlier: list[Run], promise: Promise, budget: Budget, total: float, remedy: str
            ) -> None:
    """Refuses a run with which all runs on these records would exceed the total.

    Args:
        earlier: The other runs.
        promise: That of the run that starts.
        budget: Its budget, or its claim where that is more.
        total: The value of `--total-epsilon`.
        remedy: What can be done about it.

    Raises:
        BudgetExceeded: The total would be exceeded, or cannot be promised.
    """
    others = [run for run in earlier if not _counts(run, promise)]
    if others:
        raise BudgetExceeded(
            f"--total-epsilon {total:g} cannot be promised: {_number(others)} on these records "
            f"gave no guarantee that could be added ({_folders(others)})")
    if budget.epsilon == math.inf:
        raise BudgetExceeded(f"--total-epsilon {total:g} cannot be promised: {remedy}")
    epsilon, delta = _sum(earlier, promise, budget)
    if epsilon > as_written(total):
        before = at_most(round_up(epsilon - as_written(budget.epsilon)))
        of_others = (f": {_number(earlier)} before this one, of budgets of {before} in all "
                     f"({_folders(earlier)})" if earlier else "")
        raise BudgetExceeded(
            f"the sum over all runs on these records would be epsilon {at_most(round_up(epsilon))} "
            f"at delta {at_most(round_up(delta), 4)}, beyond --total-epsilon {total:g}"
            f"{of_others}; {remedy}")


def _number(runs: list[Run]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) > 1)}"


def _folders(runs: list[Run]) -> str:
    shown = [run.folder for run in runs[:3]]
    return ", ".join(shown + ["..."] * (len(runs) > 3))
