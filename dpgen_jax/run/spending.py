"""The spending of earlier runs on the same records, from this machine's journal, and its sum.

The sum is by basic composition: epsilons and deltas are added. It includes only runs whose promise
implies the promise of the run that starts: the same relation, and the same unit, or clients whose
records it covers one by one. The other runs are named, and so are those without a guarantee; with
such runs no total can be promised.

A run counts with its whole budget once it has spent anything, or is under way, since it may be
resumed. A run that is resumed counts with what it claims: its budget, or what its ledger charges
where that is more, as after a line that a crash tore. The others count with what the journal last
recorded of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from dpgen_jax.accountant import composition, journal
from dpgen_jax.accountant.events import Event, Events, add_up, as_written, round_up
from dpgen_jax.accountant.journal import Journal, Run, Unusable
from dpgen_jax.accountant.ledger import NOBODY, Ledger, Witness, account, claimed, read
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.single_releases import class_counts_event
from dpgen_jax.core.config import Budget
from dpgen_jax.core.errors import option
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import BudgetExceeded, Private, Records, UserError
from dpgen_jax.private.records import fingerprint, keyed
from dpgen_jax.run import side_releases
from dpgen_jax.run.monitor import NAMED_JUDGES


@dataclasses.dataclass(frozen=True)
class Promise:
    """The promise of a run, as far as sums over runs must agree in it.

    Attributes:
        subjects: Of clients and subjects, a keyed digest of which records belong together.
    """

    relation: str
    unit: str
    subjects: str


@dataclasses.dataclass(frozen=True)
class Start:
    """The run that starts.

    Attributes:
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
        """Returns what can be done where the total is exceeded."""
        if not self.folder:
            return "give this run a smaller epsilon"
        mend = "leave this run as it is" + (
            f", or pass a larger {option('total_epsilon')}" * (claim < math.inf))
        if claim <= self.budget.epsilon:
            return mend
        charged = account(read(self.folder.ledger))
        why = ("a line that a crash cut short counts as spent: restore the whole file, "
               if charged.epsilon() > charged.target else "the run has published a bound since: ")
        return (f"{self.folder.ledger} claims epsilon {at_most(claim)}, more than the budget of "
                f"{at_most(self.budget.epsilon)}, since {why}{mend}")


def _counts(run: Run, promise: Promise) -> bool:
    """Whether a run's promise implies this one.

    What holds for all records of a client holds for each of them. Subjects are distinguished by a
    column of the records: one record that changes may change two of them, or their number. What
    holds for one client or subject holds for no other grouping, and for none where clients were
    simulated; how many rows were kept of one is not part of the promise.
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


def sums_summary(earlier: list[Run], promise: Promise, start: Start) -> str:
    """Returns the line about earlier runs.

    The run that starts is added only if it promises something.
    """
    counted = [run for run in earlier if _counts(run, promise)]
    others = [run for run in earlier if not _counts(run, promise)]
    parts = []
    if counted:
        spent, targets = (at_most(add_up((getattr(run, part), 1) for run in counted), 4)
                          for part in ("spent", "target"))
        total = "this run has no guarantee, so nothing bounds the sum with it"
        if start.guarantee:
            epsilon, delta = map(round_up, _sum(earlier, promise, start.budget))
            total = (f"with this run's {at_most(start.budget.epsilon)} the sum is epsilon "
                     f"{at_most(epsilon, 4)} at delta {at_most(delta, 4)} by basic composition")
        parts.append(f"{_number(counted)} spent epsilon {spent} of budgets of {targets}; {total}")
    if others:
        parts.append(f"{_number(others)} without a guarantee that could be added "
                     f"({_folders(others)})")
    return f"earlier on these records: {'; '.join(parts)}"


def require_sums(earlier: list[Run], promise: Promise, budget: Budget, total: float, remedy: str
                 ) -> None:
    """Refuses a run with which all runs on these records would exceed the total.

    Raises:
        BudgetExceeded: The total would be exceeded, or cannot be promised.
    """
    others = [run for run in earlier if not _counts(run, promise)]
    if others:
        raise BudgetExceeded(
            f"{option('total_epsilon', f'{total:g}')} cannot be promised: {_number(others)} on "
            f"these records have no guarantee that could be added ({_folders(others)})")
    if budget.epsilon == math.inf:
        raise BudgetExceeded(f"{option('total_epsilon', f'{total:g}')} cannot be "
                             f"promised: {remedy}")
    epsilon, delta = _sum(earlier, promise, budget)
    if epsilon > as_written(total):
        before = at_most(round_up(epsilon - as_written(budget.epsilon)))
        of_others = (f": {_number(earlier)} before this one had budgets of {before} in all "
                     f"({_folders(earlier)})" if earlier else "")
        raise BudgetExceeded(
            f"the sum over all runs on these records would be epsilon {at_most(round_up(epsilon))} "
            f"at delta {at_most(round_up(delta), 4)}, more than "
            f"{option('total_epsilon', f'{total:g}')}{of_others}; {remedy}")


def spent_line(ledger: Ledger, purchases: Events, steps: int) -> str:
    """Returns the line on what a run has spent, in all and on what.

    The parts are what each would cost without the others. The accountant composes them, so that
    the total may be less than their sum.

    Args:
        ledger: The ledger at the end of the run.
        purchases: The events of what was bought on the records, and of a release that judges.
        steps: The steps that the generator learnt from.
    """
    named = {event: "the description of the data" for event, _ in purchases}
    judged = {event for event in named if event.mechanism.startswith(NAMED_JUDGES)}
    counts = class_counts_event(1.0).mechanism
    parts: dict[str, list[tuple[Event, int]]] = {}
    for event, count in ledger.spent():
        what = ("the release that judged" if event in judged else named.get(event) or (
            "class counts" if event.mechanism == counts else
            f"{steps:,} training step{'s' * (steps > 1)}"))
        parts.setdefault(what, []).append((event, count))
    delta = ledger.header["delta"]
    total = (f"spent: epsilon {at_most(ledger.epsilon(), 4)} of {at_most(ledger.target)} at delta "
             f"{at_most(delta)}")
    if len(parts) == 1:
        return f"{total}, all of it on {next(iter(parts))}"
    costs = {what: composition.epsilon_of(tuple(events), delta) for what, events in parts.items()}
    listed = ", ".join(f"{what} {at_most(cost, 3)}" for what, cost in costs.items())
    less = sum(costs.values()) > 1.001 * ledger.epsilon()
    return (f"{total}; each part by itself: {listed}"
            f"{' (composed, they cost less than their sum)' * less}")


def _number(runs: list[Run]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) > 1)}"


def _folders(runs: list[Run]) -> str:
    shown = [run.folder for run in runs[:3]]
    return ", ".join(shown + ["..."] * (len(runs) > 3))


NOTHING = Private("")
"""The sealed digest of what is not known."""


class Spender(Protocol):
    """An entry of the journal: the folder of a run, or a purchase without one."""

    @property
    def root(self) -> Path:
        """The folder or file that it lies in."""

    def run_id(self) -> str:
        """Returns its random id."""


@dataclasses.dataclass(frozen=True)
class Purchase:
    """A purchase without a run.

    Attributes:
        name: Its random id, 32 hex digits.
        root: The file that is to hold what is bought.
    """

    name: str
    root: Path

    def run_id(self) -> str:
        """Returns its random id."""
        return self.name


Witnesses = Callable[[Spender], Witness]
"""The witness of the run in a folder, or of a purchase."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """The facts by which the same records are recognised.

    Attributes:
        records: The sealed records; None before they are read, where a schema is bought first.
        content: A digest of the file or folder that the records are read from, sealed; of an empty
            text where it is not known. A schema that is bought is another one each time, and so are
            the records that are read by it.
        grouping: From the journal's key to a digest of which records belong to one client or
            subject; nothing where each is its own.
    """

    records: Private[Records] | None
    content: Private[str] = NOTHING
    grouping: Callable[[bytes], str] = lambda key: ""


@contextmanager
def before(identity: Identity, mechanism: Mechanism | Promise, start: Start,
           log: Callable[[str], None]) -> Iterator[Witnesses]:
    """Logs what was spent on these records before, and yields witnesses while no other run starts.

    `log` tells only the data holder, since the line depends on the records.

    Raises:
        UserError: A total that means nothing, or a damaged journal.
        BudgetExceeded: The total would be exceeded, or cannot be promised.
    """
    total = start.total
    if total is not None and not (start.guarantee and 0 < total < math.inf):
        raise UserError(f"{option('total_epsilon', f'{total:g}')} needs a number above 0, and a "
                        "run with a guarantee: a finite epsilon, no seed, and nothing that is not "
                        "covered")
    known_runs = opened(log, needed=total is not None)
    if known_runs is None:
        yield lambda files: NOBODY
        return
    key = known_runs.key
    records_print = "" if identity.records is None else fingerprint(identity.records, key)
    content_print, subjects = keyed(identity.content, key), identity.grouping(key)
    promise = Promise(mechanism.relation, mechanism.unit, subjects)
    with known_runs.locked():
        earlier = [run for run in known_runs.on(records_print, content_print)
                   if run.run != start.run_id and (run.spent > 0 or run.in_use)
                   and not _is_paid(run, start)]
        claiming = start.claiming()
        if earlier:
            log(sums_summary(earlier, promise, claiming))
        if total is not None:
            require_sums(earlier, promise, claiming.budget, total,
                         start.remedy(claiming.budget.epsilon))
        yield lambda files: known_runs.witness(files.run_id(), records_print, start.guarantee,
                                               files.root, subjects, content_print)


def witness(files: RunFolder, log: Callable[[str], None]) -> Witness:
    """Returns the witness of a run that is known already."""
    known_runs = opened(log)
    if known_runs is None:
        return NOBODY
    return known_runs.witness(files.run_id(), "", True, files.root)


def opened(log: Callable[[str], None], needed: bool = False) -> Journal | None:
    """Opens the journal; None where it cannot be written, which `log` says.

    Raises:
        Unusable: It cannot be written and is needed.
        UserError: It is damaged.
    """
    try:
        return Journal(journal.place())
    except Unusable as error:
        if needed:
            raise
        log(f"{error}; until then, copies and older states of a run folder go unnoticed")
        return None


def _is_paid(run: Run, start: Start) -> bool:
    """Whether a run is a purchase that the run which starts charges whole; a part is not enough."""
    if not run.purchase:
        return False
    charged = side_releases.cost(start.paid, side_releases.shorter(run.run))
    return charged.epsilon >= run.target and charged.delta >= run.delta
