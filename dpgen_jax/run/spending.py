"""The spending of earlier runs on the same records, as this machine's journal knows them.

A run counts with its whole budget once it has spent anything, or is under way, since it may be
resumed. `sums` adds them up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from dpgen_jax.accountant import journal
from dpgen_jax.accountant.journal import Journal, Unusable
from dpgen_jax.accountant.journal_entry import Run
from dpgen_jax.accountant.ledger import NOBODY
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.types import Private, Records, UserError
from dpgen_jax.private.records import fingerprint, keyed
from dpgen_jax.run import side_releases
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.sums import Promise, Start, require, summary

__all__ = ["Identity", "Promise", "Purchase", "Start", "before", "opened", "witness"]


NOTHING = Private("")
"""The sealed digest of what is not known."""


class Spender(Protocol):
    """A thing that the journal remembers: the folder of a run, or a purchase without one."""

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
    """By what the same records are known again.

    Attributes:
        records: The sealed records; None before they are read, where a schema is bought first.
        content: A digest of the file or folder that the records are read from, sealed; of an empty
            text, where it is not known. A schema that is bought is another one each time, and so
            are the records that are read by it.
        grouping: From the journal's key to a digest of which records belong to one client or
            subject; nothing where each is its own.
    """

    records: Private[Records] | None
    content: Private[str] = NOTHING
    grouping: Callable[[bytes], str] = lambda key: ""


@contextmanager
def before(identity: Identity, mechanism: Mechanism | Promise, start: Start,
           log: Callable[[str], None]) -> Iterator[Witnesses]:
    """Logs what was spent on these records before, while no other run starts.

    Args:
        identity: Of the records.
        mechanism: The mechanism, or what is promised by it.
        start: The run.
        log: Tells the data holder alone, since the line depends on the records.

    Yields:
        The witnesses of the run that starts meanwhile.

    Raises:
        UserError: A total that means nothing, or a damaged journal.
        BudgetExceeded: The total would be exceeded, or cannot be promised.
    """
    total = start.total
    if total is not None and not (start.guarantee and 0 < total < math.inf):
        raise UserError(f"--total-epsilon {total:g} needs a number above 0, and a run with a "
                        "guarantee: a finite epsilon, no seed, and nothing that is not covered")
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
            log(summary(earlier, promise, claiming))
        if total is not None:
            require(earlier, promise, claiming.budget, total,
                    start.remedy(claiming.budget.epsilon))
        yield lambda files: known_runs.witness(files.run_id(), records_print, start.guarantee,
                                               files.root, subjects, content_print)


def witness(files: RunFolder, log: Callable[[str], None]) -> Witness:
    """The witness of a run which is known already.

    Args:
        files: The run folder.
        log: Takes a line where there is no journal.

    Returns:
        The witness.
    """
    known_runs = opened(log)
    if known_runs is None:
        return NOBODY
    return known_runs.witness(files.run_id(), "", True, files.root)


def opened(log: Callable[[str], None], needed: bool = False) -> Journal | None:
    """Opens the journal.

    Args:
        log: Takes a line where the journal cannot be written.
        needed: Whether that is an error.

    Returns:
        The journal, or None where it cannot be written.

    Raises:
        Unusable: It cannot be written and is needed.
        UserError: It is damaged.
    """
    try:
        return Journal(journal.place())
    except Unusable as error:
        if needed:
            raise
        log(f"{error}; until then nobody notices a copy or an older state of a run folder")
        return None


def _is_paid(run: Run, start: Start) -> bool:
    """Whether a run is a purchase that the run which starts charges whole; a part is not enough."""
    if not run.purchase:
        return False
    charged = side_releases.cost(start.paid, side_releases.shorter(run.run))
    return charged.epsilon >= run.target and charged.delta >= run.delta
