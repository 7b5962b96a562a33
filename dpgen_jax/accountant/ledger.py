"""The ledger: an append-only file of every privacy event of a run, and the only source of epsilon.

Charge before release: a block of steps is reserved, on disk, before its noise is drawn; what really
happened settles it afterwards. Whatever the moment of a crash, the file counts at least what was
drawn. `chain.py` describes the lines.

A ledger can be copied, cut at the end of a line or replaced by an older one, and stay sound. What
else knows of its lines (a `Witness`) is asked before a run goes on, and told before noise is drawn.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from pathlib import Path

from dpgen_jax.accountant import chain, files, gaussian
from dpgen_jax.accountant.chain import Account, Record, whole
from dpgen_jax.accountant.events import Events, to_json
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.errors import BudgetExceeded, UserError

NOBODY = Witness()


class Ledger:
    """An open ledger, locked for this process. Made by `create` or `open`; a context manager."""

    def __init__(self, path: Path, descriptor: int, witness: Witness):
        self.path, self._fd, self._pid = path, descriptor, os.getpid()
        self._witness = witness
        self._account = Account()
        self._hashes: list[str] = []
        self._size = 0  # bytes of the lines that count
        self._tail = b""  # a torn line after them
        self._broken = ""  # why nothing may be appended any more

    @classmethod
    def create(cls, path: str | os.PathLike, header: Record, witness: Witness = NOBODY
               ) -> Ledger:
        """A new ledger (mode 0600) with this header, on disk when the call returns.

        header: epsilon (> 0, inf for a run without a budget), delta, and other plain JSON values.
        Raises UserError if the file exists or cannot be written, or if the witness knows of lines,
        ValueError for a bad header.
        """
        path = Path(path)
        unlimited = header["epsilon"] == math.inf  # strict JSON has no infinity
        record = {**header, "kind": "header", "epsilon": "inf" if unlimited else header["epsilon"]}
        record = json.loads(chain.canonical(record))
        Account().apply(record)  # a header that means nothing must not leave a file behind
        ledger = cls(path, files.open_ledger(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), witness)
        try:
            ledger._lock()
            witness.accept(ledger)
            ledger._append(record)
            files.sync_directory(path.parent)
        except BaseException:
            ledger.close()
            path.unlink(missing_ok=True)
            raise
        return ledger._recorded()

    @classmethod
    def open(cls, path: str | os.PathLike, witness: Witness = NOBODY) -> Ledger:
        """Resumes: verifies the chain, charges a torn last line and starts a new incarnation, all
        on disk when the call returns.

        Raises UserError if the file is missing, in use, not writable, or broken (naming the line),
        or if the witness knows better; the file is then as it was.
        """
        path = Path(path)
        ledger = cls(path, files.open_ledger(path, os.O_RDWR), witness)
        try:
            ledger._lock()
            ledger._resume()
        except BaseException:
            ledger.close()
            raise
        return ledger._recorded()

    def _resume(self) -> None:
        data = files.read_ledger(self.path)
        _, self._hashes, self._tail, self._account = chain.replay(self.path, data)
        self._size = len(data) - len(self._tail)
        self._witness.accept(self)
        if self._tail:
            # Longer than the bytes it replaces, as it holds them: a crash in the middle of this
            # write leaves a torn line again, never a file that looks whole and charges less.
            self._append(chain.torn(self._tail, self._account))
        elif not data.endswith(b"\n"):
            self._durably(b"\n")
        self._append({"kind": "open", "incarnation": self.incarnation + 1})

    def _recorded(self) -> Ledger:
        """This ledger, whose last line its witness knows now."""
        try:
            self._witness.record(self)
        except BaseException:
            self.close()
            raise
        return self

    def reserve(self, events: Events, steps: int) -> int:
        """Charges the worst case of a block of `steps` steps; returns the id to settle it with.

        The record is on disk when this returns. If it raises, nothing may be drawn: BudgetExceeded
        if `target` at the header's delta would be exceeded, whatever the caller computed; UserError
        if the file, or the witness's, cannot be written. Steps may cost nothing: in a rotation the
        first turns of a round pay for all of it.
        """
        self._require_budget(events, f"{steps} more steps")
        reservation = self._account.next_id
        self._append({"kind": "reserve", "id": reservation, "steps": whole(steps, 1),
                      "events": to_json(events)})
        self._witness.record(self)
        return reservation

    def settle(self, reservation: int, events: Events, steps: int) -> None:
        """Replaces a reservation of this incarnation by what really happened.

        Raises ValueError if that is more than was reserved, or if the reservation is not open;
        UserError if the file cannot be written. The reservation then stays charged in full.
        """
        self._append({"kind": "settle", "id": reservation, "steps": whole(steps, 0),
                      "events": to_json(events)})

    def charge(self, events: Events) -> None:
        """Charges one release that is not a step, such as a class histogram, for good.

        On disk when this returns; if it raises, as `reserve` does, nothing may be drawn.
        """
        self._require_budget(events, "release of " + ", ".join(e.mechanism for e, _ in events))
        self._append({"kind": "charge", "events": to_json(events)})
        self._witness.record(self)

    def extend(self, epsilon: float) -> None:
        """Raises the target from here on: a finished run that goes on states a new, larger claim.

        On disk when this returns. Raises UserError unless target < epsilon < inf.
        """
        if not self.target < epsilon < math.inf:
            raise UserError(f"this run already has epsilon {self.target:g}; to extend it, give a "
                            f"larger, finite epsilon than that, not {epsilon:g}")
        self._append({"kind": "extend", "epsilon": float(epsilon)})
        self._witness.record(self)

    def _require_budget(self, events: Events, what: str) -> None:
        delta = self._account.header["delta"]
        needed = gaussian.epsilon((*self.spent(), *events), delta)
        if not needed <= self.target:
            raise BudgetExceeded(f"the budget, epsilon {self.target:g} at delta {delta:g}, allows "
                                 f"no {what}: that would need epsilon {needed:.6g}")

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
    def incarnation(self) -> int:
        """0 in the run that created the file, one more at each resume."""
        return self._account.incarnation

    @property
    def steps_charged(self) -> int:
        """Steps of `spent`: at least as many as were ever begun."""
        return self._account.steps

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return self._hashes[-1]

    @property
    def n_lines(self) -> int:
        return len(self._hashes)

    def contains(self, head: str, n_lines: int) -> bool:
        """Whether the first `n_lines` lines are those that once ended in `head`."""
        return (isinstance(n_lines, int) and 0 < n_lines <= self.n_lines
                and self._hashes[n_lines - 1] == head)

    def close(self) -> None:
        """Closes the file and gives up the lock; a second call does nothing."""
        if self._fd >= 0:
            self._witness.close()
            os.close(self._fd)
        self._fd, self._broken = -1, "it is closed"

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is using {self.path}: stop it first") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be locked ({error.strerror}): "
                            "choose a folder on a local disk") from None

    def _append(self, record: Record) -> None:
        """One record: checked, then on disk, then in the totals."""
        self._require_sound()
        line, digest = chain.line(self.head if self._hashes else chain.START, record)
        totals = self._account.after(record)
        # An interrupt before the last line would leave file and totals apart: no append after that.
        self._broken = "an append was interrupted"
        self._durably(line)
        self._hashes.append(digest)
        self._account, self._tail, self._broken = totals, b"", ""

    def _durably(self, line: bytes) -> None:
        """Writes and flushes to the disk, over a torn tail if there is one; all of it or, by
        cutting the file back, nothing."""
        try:
            files.write_at(self._fd, line, self._size)
            os.fsync(self._fd)
        except BaseException as error:
            self._cut_back()
            if isinstance(error, OSError):
                raise UserError(f"{self.path} cannot be written ({error.strerror}), so nothing may "
                                "be drawn: free some space, then resume the run") from error
            raise
        self._size += len(line)

    def _cut_back(self) -> None:
        if self._tail:  # cutting would lose it: the next resume finds a torn line again
            self._broken = "a torn line could not be put on record"
            return
        self._broken = "an append failed half-way"
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._size)
            os.fsync(self._fd)
            self._broken = ""

    def _require_sound(self) -> None:
        """Refuses to append where this object and the file may no longer agree."""
        broken = self._broken
        if not broken:
            status = os.fstat(self._fd)
            if os.getpid() != self._pid:
                broken = "a forked process must not write to it"
            elif status.st_nlink == 0:
                broken = "it was deleted"
            elif status.st_size != self._size + len(self._tail):
                broken = "something else wrote to it"
        if broken:
            raise UserError(f"{self.path} takes no more records: {broken}; nothing may be drawn")


def read(path: str | os.PathLike) -> list[Record]:
    """The records of a ledger, without lock or change. If the last line is torn, the last record
    is the one that `Ledger.open` would write for it. Raises UserError if the file is missing or
    broken.
    """
    path = Path(path)
    records, _, tail, account = chain.replay(path, files.read_ledger(path))
    return [*records, chain.torn(tail, account)] if tail else records


def begun(path: str | os.PathLike) -> bool:
    """Whether there is a file with a whole header. One that a crash tore while it was made never
    allowed anything. Raises UserError for what is no regular file."""
    path = Path(path)
    if not path.exists():
        return False
    data = files.read_ledger(path)
    try:
        return b"\n" in data or bool(chain.replay(path, data))
    except UserError:
        return False


def account(records: list[Record]) -> Account:
    """The totals of records that `read` returned: `spent()`, `epsilon()`, `claim()`, `steps`,
    `header`, `target`."""
    totals = Account()
    for record in records:
        totals.apply(record)
    return totals
