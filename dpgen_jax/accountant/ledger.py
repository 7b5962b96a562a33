"""The ledger: an append-only file of every privacy event of a run, and the only source of epsilon.

Charge before release: a block of rounds is reserved, on disk, before its noise is sampled; what
really happened settles it afterwards. Whatever the moment of a crash, the file counts at least what
was released. `chain.py` describes the lines.

A ledger can be copied, cut at the end of a line or replaced by an older one, and stay sound. A
`Witness`, which knows of its lines from elsewhere, is asked before a run goes on, and told before
noise is sampled.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from dpgen_jax.accountant import chain, files, gaussian
from dpgen_jax.accountant.append_file import AppendOnlyFile
from dpgen_jax.accountant.events import Events, to_json
from dpgen_jax.accountant.ledger_reading import account, begun, published, read, undeclared
from dpgen_jax.accountant.totals import Account, Record, whole
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.atomic import sync
from dpgen_jax.core.errors import BudgetExceeded, UserError

__all__ = ["NOBODY", "Ledger", "account", "begun", "published", "read", "undeclared"]

NOBODY = Witness()


class Ledger:
    """An open ledger, locked for this process. Made by `create` or `open`; a context manager."""

    def __init__(self, path: Path, descriptor: int, witness: Witness):
        """For `create` and `open` alone."""
        self.path = path
        self._file = AppendOnlyFile(path, descriptor)
        self._witness = witness
        self._account = Account()
        self._hashes: list[str] = []

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Record, witness: Witness = NOBODY
               ) -> Ledger:
        """Makes a new ledger (mode 0600), on disk when the call returns.

        Args:
            path: The file, which must not exist.
            header: epsilon (> 0, inf for a run without a budget), delta, and other plain JSON
                values.
            witness: Knows of the ledger's lines from elsewhere.

        Returns:
            The open ledger.

        Raises:
            UserError: The file exists or cannot be written, or the witness knows of lines.
            ValueError: A bad header.
        """
        path = Path(path)
        unlimited = header["epsilon"] == math.inf  # strict JSON has no infinity
        record = {**header, "kind": "header", "epsilon": "inf" if unlimited else header["epsilon"]}
        record = json.loads(chain.canonical(record))
        Account().apply(record)  # a header that means nothing must not leave a file behind
        ledger = cls(path, files.open_ledger(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), witness)
        try:
            ledger._file.lock()
            witness.accept(ledger)
            ledger._append(record)
            sync(path.parent)
        except BaseException:
            ledger.close()
            path.unlink(missing_ok=True)
            raise
        return ledger._recorded()

    @classmethod
    def open(cls, path: str | os.PathLike[str], witness: Witness = NOBODY, processes: int = 1
             ) -> Ledger:
        """Resumes: verifies the chain, charges a torn last line and starts a new incarnation.

        All of it is on disk when the call returns.

        Args:
            path: The file.
            witness: Knows of the ledger's lines from elsewhere.
            processes: How many go on with the run.

        Returns:
            The open ledger.

        Raises:
            UserError: The file is missing, in use, not writable, or broken (naming the line), or
                the witness knows of a later line; the file is then as it was.
        """
        path = Path(path)
        ledger = cls(path, files.open_ledger(path, os.O_RDWR), witness)
        try:
            ledger._file.lock()
            ledger._resume(processes)
        except BaseException:
            ledger.close()
            raise
        return ledger._recorded()

    def _resume(self, processes: int) -> None:
        data = files.read_ledger(self.path)
        _, self._hashes, tail, self._account = chain.replay(self.path, data)
        self._file.size, self._file.tail = len(data) - len(tail), tail
        self._witness.accept(self)
        if tail:
            # Longer than the bytes it replaces, as it holds them: a crash in the middle of this
            # write leaves a torn line again, never a file that looks whole and charges less.
            self._append(chain.torn(tail, self._account))
        elif not data.endswith(b"\n"):
            self._file.append(b"\n")
            self._file.accept()
        self._append({"kind": "open", "incarnation": self.incarnation + 1,
                      **chain.several(processes)})

    def _recorded(self) -> Ledger:
        """This ledger, whose last line its witness knows now."""
        try:
            self._witness.record(self)
        except BaseException:
            self.close()
            raise
        return self

    def reserve(self, events: Events, steps: int) -> int:
        """Charges the worst case of a block of rounds, before anything is sampled.

        The record is on disk when this returns. If it raises, nothing may be sampled.

        Args:
            events: The most that the block may cost. Rounds may cost nothing: in a rotation the
                first cohorts of a cycle pay for all of it.
            steps: Rounds of the block, at least 1.

        Returns:
            The id to settle the reservation with.

        Raises:
            BudgetExceeded: `target` at the header's delta would be exceeded, whatever the caller
                computed.
            UserError: The file, or the witness's, cannot be written.
        """
        self._require_budget(events, f"{steps} more steps")
        reservation = self._account.next_id
        self._append({"kind": "reserve", "id": reservation, "steps": whole(steps, 1),
                      "events": to_json(events)})
        self._witness.record(self)
        return reservation

    def settle(self, reservation: int, events: Events, steps: int) -> None:
        """Replaces a reservation of this incarnation by what really happened.

        Args:
            reservation: The id that `reserve` returned.
            events: What the block cost.
            steps: Rounds that it came to.

        Raises:
            ValueError: That is more than was reserved, or the reservation is not open.
            UserError: The file cannot be written. The reservation then stays charged in full.
        """
        self._append({"kind": "settle", "id": reservation, "steps": whole(steps, 0),
                      "events": to_json(events)})

    def charge(self, events: Events) -> None:
        """Charges one release that is not a round, such as a class histogram, for good.

        On disk when this returns; if it raises, as `reserve` does, nothing may be sampled.

        Args:
            events: What the release costs.

        Raises: as `reserve`.
        """
        self._require_budget(events, "release of " + ", ".join(e.mechanism for e, _ in events))
        self._append({"kind": "charge", "events": to_json(events)})
        self._witness.record(self)

    def declare(self, config_hash: str) -> None:
        """Says of which configuration this is, where purchases came before it was known.

        On disk when this returns. The header of such a ledger has an empty `config_hash`.

        Raises:
            ValueError: It is known already, or rounds were charged.
            UserError: The file cannot be written.
        """
        self._append({"kind": "declare", "config_hash": config_hash})
        self._witness.record(self)

    def extend(self, epsilon: float) -> None:
        """Raises the target from here on: a finished run that goes on states a new, larger claim.

        On disk when this returns.

        Args:
            epsilon: The new target.

        Raises:
            UserError: Unless target < epsilon < inf, and where the file cannot be written.
        """
        if not self.target < epsilon < math.inf:
            raise UserError(f"this run already has epsilon {self.target:g}; to extend it, give a "
                            f"larger, finite epsilon than that, not {epsilon:g}")
        self._append({"kind": "extend", "epsilon": float(epsilon)})
        self._witness.record(self)

    def _require_budget(self, events: Events, purpose: str) -> None:
        delta = self._account.header["delta"]
        needed = gaussian.epsilon((*self.spent(), *events), delta)
        if not needed <= self.target:
            raise BudgetExceeded(f"the budget, epsilon {self.target:g} at delta {delta:g}, allows "
                                 f"no {purpose}: that would need epsilon {at_most(needed)}")

    def spent(self) -> Events:
        """All that is charged: settled blocks as settled, all others in full, merged."""
        return self._account.spent()

    def epsilon(self) -> float:
        """The epsilon of `spent` at the header's delta."""
        return self._account.epsilon()

    def claim(self) -> float:
        """The epsilon to state: `target`, or `epsilon` where a torn line made that more."""
        return self._account.claim()

    @property
    def header(self) -> Record:
        """A copy of the header, with epsilon as a float: the first target."""
        return {name: value for name, value in self._account.header.items() if name != "kind"}

    @property
    def target(self) -> float:
        """The epsilon that may be spent: the header's, or that of the last extension."""
        return self._account.target

    @property
    def meaning(self) -> str:
        """The hash of the configuration; empty before it is declared."""
        return self._account.meaning

    @property
    def incarnation(self) -> int:
        """0 in the run that created the file, one more at each resume."""
        return self._account.incarnation

    @property
    def processes(self) -> int:
        """How many processes made the run, at the start that had most."""
        return self._account.processes

    @property
    def steps_charged(self) -> int:
        """Rounds of `spent`: at least as many as were ever begun."""
        return self._account.steps

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return self._hashes[-1]

    @property
    def n_lines(self) -> int:
        """Lines of the file."""
        return len(self._hashes)

    def contains(self, head: str, n_lines: int) -> bool:
        """Whether the first `n_lines` lines are those that once ended in the hash `head`."""
        return (isinstance(n_lines, int) and 0 < n_lines <= self.n_lines
                and self._hashes[n_lines - 1] == head)

    def close(self) -> None:
        """Closes the file and gives up the lock; a second call does nothing."""
        if self._file.is_open:
            self._witness.close()
            self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, record: Record) -> None:
        """One record: checked, then on disk, then in the totals."""
        self._file.require_sound()
        line, digest = chain.line(self.head if self._hashes else chain.START, record)
        account = self._account.after(record)
        self._file.append(line)
        self._hashes.append(digest)
        self._account = account
        self._file.accept()
