"""The ledger: an append-only file of every privacy event of a run, and the only source of epsilon.

A charge comes before its release. A block of rounds is reserved, on disk, before its noise is
sampled; afterwards the actual cost settles the reservation. Whenever a crash happens, the file
counts at least what was released.

The lines are canonical JSON in a hash chain. A line contains its record; `prev`, the hash of the
line before (64 zeros for the first); and `hash`, SHA-256 over prev and the canonical JSON of the
record (sorted keys, no spaces, ASCII). The kinds of records:

  header   epsilon ("inf" for none), delta and whatever else fixes the meaning of the run
  open     incarnation: the run was resumed; reservations left open before stay charged in full;
           processes: by how many, as in the header, if by several
  reserve  id, steps, events: the worst case of a block
  settle   id, steps, events: what it came to, never more than was reserved
  charge   events: one release that is not a step (a class histogram, bounds of a column)
  extend   epsilon: from here on the target is this, larger than the one before
  torn     raw (base64), steps, events: a crash cut the last line; its bytes, and its charge

The file grows by whole lines and can be read without a lock. One process writes it under an
exclusive lock, which is released however that process ends. A lock belongs to one opening of the
file: a second opening is refused, in the same process, another thread or another process. A forked
child shares its parent's lock.

The chain detects accidents and careless edits. It cannot detect a rollback: a ledger that was
copied, cut at the end of a line or replaced by an older copy is still a valid chain. A `Witness`,
an outside record of the ledger's lines, detects that. It checks the ledger before a run continues,
and records the last line before noise is sampled.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import io
import json
import math
import operator
import os
from pathlib import Path
from typing import Any

import filelock

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import Event, Events, RenyiEvent, from_json, merge, to_json
from dpgen_jax.core import files
from dpgen_jax.core.errors import BudgetExceeded, UserError
from dpgen_jax.core.files import BINARY, WINDOWS, sync
from dpgen_jax.core.terms import at_most

LARGEST_COUNT = 2**53  # the most that a float counts without rounding
Record = dict[str, Any]


class Account:
    """Running totals over the records of a ledger; `apply` takes constant time.

    Attributes:
        header: The header, with epsilon as a float.
        target: The epsilon that may be spent.
        incarnation: How often the run was resumed.
        processes: The largest number of processes at any start of the run.
        steps: Charged rounds.
        next_id: The id of the next reservation.
        counts: Charged events and their counts.
        pending: Open reservations: id to (rounds, events).
        longest: Rounds of the longest reservation so far.
        largest: For each event, its largest count in any reservation so far.
        recovering: Whether the last record is a torn line.
        meaning: The hash of the configuration: from the header, or declared after purchases; empty
            until then.
    """

    def __init__(self) -> None:
        self.header: Record = {}
        self.target = 0.0
        self.incarnation, self.processes = 0, 1
        self.steps = 0
        self.next_id = 0
        self.counts: dict[Event, int] = {}
        self.pending: dict[int, tuple[int, Events]] = {}
        self.longest = 1  # steps of a reservation
        self.largest: Events = ()
        self.recovering = False  # the last record is a torn line
        self.meaning = ""

    def after(self, record: Record) -> Account:
        """Returns a copy with one more record; raises as `apply` does."""
        account = copy.copy(self)
        account.counts, account.pending = dict(self.counts), dict(self.pending)
        account.apply(record)
        return account

    def spent(self) -> Events:
        """Charged events, merged: settled blocks as settled, all others in full."""
        return merge(tuple(self.counts.items()))

    def epsilon(self) -> float:
        """Epsilon of `spent` at the header's delta; inf after a release without noise."""
        return composition.epsilon_of(self.spent(), self.header["delta"])

    def claim(self) -> float:
        """The epsilon to state: the target, or what is charged if that is more.

        It can be more if a torn line was charged.
        """
        return max(self.target, self.epsilon())

    def apply(self, record: Record) -> None:
        """Adds one record to the totals.

        Raises:
            ValueError: The record cannot come next; also KeyError and TypeError if it is malformed.
        """
        kind = record["kind"]
        if (kind == "header") == bool(self.header):
            raise ValueError("a header must come first, and once")
        kinds = {"header": self._header, "open": self._open, "reserve": self._reserve,
                 "settle": self._settle, "charge": self._release, "extend": self._extend,
                 "torn": self._torn, "declare": self._declare}
        kinds[kind](record)
        self.recovering = kind == "torn"

    def _header(self, record: Record) -> None:
        if not float(record["epsilon"]) > 0 or not 0 < record["delta"] < 1:
            raise ValueError("a header needs epsilon > 0 and 0 < delta < 1")
        self.target = float(record["epsilon"])
        self.header = {**record, "epsilon": self.target}
        self.meaning = str(record.get("config_hash", ""))
        self._start(record)

    def _start(self, record: Record) -> None:
        self.processes = max(self.processes, whole(record.get("processes", 1), 1))

    def _open(self, record: Record) -> None:
        if record["incarnation"] != self.incarnation + 1:
            raise ValueError(f"incarnation {record['incarnation']} after {self.incarnation}")
        self.incarnation += 1
        self._start(record)
        self.pending = {}  # lost steps stay charged, since they can no longer be settled

    def _reserve(self, record: Record) -> None:
        steps, events = whole(record["steps"], 1), from_json(record["events"])
        if record["id"] != self.next_id:  # events may be none: a rotation's first turns pay for all
            raise ValueError("a reservation needs the next id")
        self._charge(steps, events)
        self.pending[self.next_id] = (steps, events)
        self.next_id += 1
        self.longest, self.largest = max(self.longest, steps), larger_counts(self.largest, events)

    def _settle(self, record: Record) -> None:
        steps, events = whole(record["steps"], 0), from_json(record["events"])
        if record["id"] not in self.pending:
            raise ValueError(f"reservation {record['id']} is not open")
        largest, reserved = self.pending[record["id"]]
        allowed = dict(reserved)
        if steps > largest or any(count > allowed.get(event, 0) for event, count in events):
            raise ValueError(f"reservation {record['id']} settled for more than was reserved")
        del self.pending[record["id"]]
        self._charge(-largest, reserved, sign=-1)
        self._charge(steps, events)

    def _release(self, record: Record) -> None:
        events = from_json(record["events"])
        if not events:
            raise ValueError("a charge needs at least one event")
        self._charge(0, events)

    def _extend(self, record: Record) -> None:
        if not self.target < float(record["epsilon"]) < math.inf:
            raise ValueError(f"epsilon {record['epsilon']} does not extend {self.target:g}")
        self.target = float(record["epsilon"])

    def _declare(self, record: Record) -> None:
        if self.meaning or self.next_id or not record["config_hash"]:
            raise ValueError("a configuration is declared once, before the first round")
        self.meaning = str(record["config_hash"])

    def _torn(self, record: Record) -> None:
        self._charge(whole(record["steps"], 0), from_json(record["events"]))

    def _charge(self, steps: int, events: Events, sign: int = 1) -> None:
        self.steps += steps
        for event, count in events:
            self.counts[event] = self.counts.get(event, 0) + sign * count
        if max(self.steps, *self.counts.values(), 0) > LARGEST_COUNT:
            raise ValueError(f"more than {LARGEST_COUNT} steps or events")


def whole(value: Any, least: int) -> int:
    """Checks a number of rounds.

    Raises:
        ValueError: It is below the minimum, or a bool.
        TypeError: It is not a whole number.
    """
    if isinstance(value, bool) or operator.index(value) < least:
        raise ValueError(f"steps must be a whole number, at least {least}, got {value!r}")
    return operator.index(value)


def larger_counts(one: Events, other: Events) -> Events:
    """Takes the larger count of each event; this costs at least as much as either argument.

    Returns:
        One pair for each event in either argument.
    """
    counts = dict(one)
    for event, count in other:
        counts[event] = max(count, counts.get(event, 0))
    return tuple(counts.items())


CHAIN_START = "0" * 64

# The errors that a damaged line can raise while it is read
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_EVENTS_FIRST = b'{"events":'


def canonical_json(value: object) -> str:
    """The canonical spelling of a value in strict JSON.

    Returns:
        The text: sorted keys, no spaces, ASCII.

    Raises:
        ValueError: NaN or an infinite number.
        TypeError: A value that is not JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def chained_line(previous: str, record: Record) -> tuple[bytes, str]:
    """The line of a record after the line with hash `prev`.

    Args:
        record: Plain JSON values, without the names `prev` and `hash`.

    Raises:
        ValueError: A record that uses those names, or contains NaN.
    """
    if {"prev", "hash"} & record.keys():
        raise ValueError("the names prev and hash are the chain's own")
    digest = hashlib.sha256((previous + canonical_json(record)).encode()).hexdigest()
    return canonical_json({**record, "prev": previous, "hash": digest}).encode() + b"\n", digest


def chained_lines(processes: int) -> Record:
    """Returns the entry `processes` of a start by several processes; empty for one."""
    return {"processes": processes} if processes > 1 else {}


def parse_lines(previous: str, text: bytes) -> tuple[Record, str]:
    """The inverse of `chained_line`.

    Raises:
        ValueError: The line differs from what `chained_line` writes; also another error of DAMAGE.
    """
    record = json.loads(text)
    record.pop("hash")
    record.pop("prev")
    expected, digest = chained_line(previous, record)
    if expected != text + b"\n":
        raise ValueError("the line does not continue the chain")
    return record, digest


def no_resume(path: Path, why: str) -> UserError:
    """The error for a ledger that cannot be trusted."""
    return UserError(f"{path}: {why}; the run cannot be resumed, since its spending is not known")


def replay_lines(path: Path, data: bytes) -> tuple[list[Record], list[str], bytes, Account]:
    """Reads all lines of a ledger.

    A last line that lacks only its newline is complete, as its hash proves.

    Returns:
        Records, their hashes, the torn last line (empty if there is none), and the totals.

    Raises:
        UserError: A line other than the last is broken (the message names it), or the header is
            missing.
    """
    records: list[Record] = []
    hashes: list[str] = []
    account, previous = Account(), CHAIN_START
    for number, text in enumerate(io.BytesIO(data), 1):
        try:
            record, digest = parse_lines(previous, text.removesuffix(b"\n"))
            account.apply(record)
        except DAMAGE as error:
            if not text.endswith(b"\n") and account.header:
                return records, hashes, text, account
            raise no_resume(path, f"line {number} is broken ({_brief(error)})") from None
        previous = digest
        records.append(record)
        hashes.append(digest)
    if not records:
        raise no_resume(path, "line 1, the header, is missing")
    return records, hashes, b"", account


def torn_line(tail: bytes, account: Account) -> Record:
    """The record that charges a torn line.

    A crash requires no charge, whatever line it tore. The writer waits until a line is on disk, so
    nothing was sampled on a torn reserve or charge; a torn settle leaves its reservation charged in
    full; a torn extend leaves the target; a torn open leaves the earlier state of the run; a torn
    `torn` is longer than the bytes it replaces, and is read as a torn line again.

    The charge is for a last line that was complete and acted on, and was cut later by a disk or by
    hand. Only a reserve or a charge allows a release, so the line is charged only if one of them
    may come next. The charge is the largest count of each event in any reservation so far, or the
    line's events if they can still be read (sorted keys put them first). A run settles a
    reservation before it reserves or charges again, so while one is open the torn line is its
    settlement; and after a `torn` comes an open. A charge in these cases would count one release
    twice.
    """
    steps, events = account.longest, account.largest
    if account.pending or account.recovering:
        steps, events = 0, ()
    elif tail.startswith(_EVENTS_FIRST):
        try:
            rows, _ = json.JSONDecoder().raw_decode(tail.decode("latin-1"), len(_EVENTS_FIRST))
            events = larger_counts(events, from_json(rows))
        except DAMAGE:
            pass  # not enough of it is left: the largest so far stands
    if account.header.get("config_hash") == "" and not account.meaning:
        steps = 0  # the configuration comes before the first round
    return {"kind": "torn", "raw": base64.b64encode(tail).decode(), "steps": steps,
            "events": to_json(events)}


def _brief(error: BaseException) -> str:
    return str(error).splitlines()[0][:80] if str(error) else type(error).__name__


BESIDE = WINDOWS
"""On Windows other processes cannot read a locked file, so NAME.lock is locked instead."""


def hold_lock(path: Path, descriptor: int, create: bool = True) -> int:
    """Locks a file, or fails at once.

    Args:
        descriptor: An open descriptor of the file, which the caller keeps.
        create: Whether a separate lock file may be created, on systems that need one.

    Returns:
        The descriptor that holds the lock until it is closed: the argument, or another one.

    Raises:
        BlockingIOError: It is locked.
        OSError: Its file system has no locks; or there is no lock file, and none may be created.
    """
    holder = descriptor
    if BESIDE:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        holder = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        if not filelock.lock_descriptor(holder, blocking=False):
            raise BlockingIOError(None, "it is in use")
    except BaseException:
        give_up_lock(holder, descriptor)
        raise
    return holder


def give_up_lock(holder: int, descriptor: int) -> None:
    """Closes what `hold_lock` opened; closing the file releases a lock on the file itself.

    Args:
        holder: The descriptor that `hold_lock` returned.
    """
    if holder not in (-1, descriptor):
        os.close(holder)


MOST_BYTES = files.JSON_BYTES


def open_ledger(path: Path, flags: int) -> int:
    """Opens the file of a ledger, with access for its owner only.

    Args:
        flags: Flags of `os.open`; O_CREAT creates the file with mode 0600.

    Raises:
        UserError: The file cannot be created or opened, or `require_ledger` refuses it.
    """
    if not flags & os.O_CREAT:
        require_ledger(path)
    try:
        return os.open(path, flags | BINARY, 0o600)
    except FileExistsError:
        raise UserError(f"{path} exists: resume that run, or choose another folder") from None
    except OSError as error:
        if flags & os.O_CREAT:
            raise UserError(f"{path} cannot be created: {error.strerror}") from None
        raise no_resume(path, error.strerror or str(error)) from None


def require_ledger(path: Path) -> None:
    """Refuses a path that cannot be a ledger, without reading it.

    A pipe or a device might never end.

    Raises:
        UserError: It is missing, not a regular file, or larger than any ledger.
    """
    try:
        size = files.require_regular(path).st_size
    except UserError as error:
        raise UserError(f"{error}; the run cannot be resumed, since its spending is not known"
                        ) from None
    if size > MOST_BYTES:
        raise no_resume(path, f"{size:,} bytes are more than any ledger needs")


def read_ledger(path: Path) -> bytes:
    """Reads a whole ledger.

    Raises:
        UserError: As `require_ledger`.
    """
    require_ledger(path)
    return files.read_bytes(path, MOST_BYTES)


def write_at(descriptor: int, data: bytes, place: int) -> None:
    """Writes all data at a position of a file.

    Args:
        place: The position of the first byte.

    Raises:
        OSError: It failed; some of the data may have been written.
    """
    written = 0
    while written < len(data):
        if hasattr(os, "pwrite"):
            written += os.pwrite(descriptor, data[written:], place + written)
        else:  # Windows: nothing else moves the position, as each file has one writer
            os.lseek(descriptor, place + written, os.SEEK_SET)
            written += os.write(descriptor, data[written:])


class AppendOnlyFile:
    """An open file to which whole lines are appended, each on disk before the next.

    Attributes:
        size: Bytes of the valid lines.
        tail: A torn line after them, which the next line overwrites.
    """

    def __init__(self, path: Path, descriptor: int):
        """Takes over an open descriptor of the file."""
        self.path = path
        self.size = 0
        self.tail = b""
        self._fd, self._holder, self._pid = descriptor, -1, os.getpid()
        self._broken = ""  # the reason why nothing more may be appended

    def lock(self) -> None:
        """Locks the file for this process.

        Raises:
            UserError: Another process has locked it, or the file system has no locks.
        """
        try:
            self._holder = hold_lock(self.path, self._fd)
        except BlockingIOError:
            raise UserError(f"another process is using {self.path}: stop it first") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be locked ({error.strerror}): "
                            "choose a folder on a local disk") from None

    def append(self, line: bytes) -> None:
        """Writes a line and flushes it to the disk, over a torn tail if there is one.

        Either the whole line is written, or the file is truncated back. No further line is accepted
        before `accept`, since an interrupt in between would leave the file and the owner's totals
        inconsistent.

        Raises:
            UserError: The file cannot be written.
        """
        self._broken = "an append was interrupted"
        try:
            write_at(self._fd, line, self.size)
            os.fsync(self._fd)
        except BaseException as error:
            self._cut_back()
            if isinstance(error, OSError):
                raise UserError(f"{self.path} cannot be written ({error.strerror}), so nothing may "
                                "be drawn: free some space, then resume the run") from error
            raise
        self.size += len(line)

    def accept(self) -> None:
        """Ends an append: the owner's totals match the file again."""
        self.tail, self._broken = b"", ""

    def _cut_back(self) -> None:
        if self.tail:  # cutting would lose it: the next resume finds a torn line again
            self._broken = "a torn line could not be put on record"
            return
        self._broken = "an append failed half-way"
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self.size)
            os.fsync(self._fd)
            self._broken = ""

    def require_sound(self) -> None:
        """Refuses to append if this object and the file may differ.

        Raises:
            UserError: The file is closed, deleted, changed by something else or inherited by a
                forked process, or an append was interrupted.
        """
        broken = self._broken
        if not broken:
            status = os.fstat(self._fd)
            if os.getpid() != self._pid:
                broken = "a forked process must not write to it"
            elif status.st_nlink == 0:
                broken = "it was deleted"
            elif status.st_size != self.size + len(self.tail):
                broken = "something else wrote to it"
        if broken:
            raise UserError(f"{self.path} takes no more records: {broken}; nothing may be drawn")

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called."""
        return self._fd >= 0

    def close(self) -> None:
        """Closes the file and releases the lock; a second call does nothing."""
        if self.is_open:
            give_up_lock(self._holder, self._fd)
            os.close(self._fd)
        self._fd, self._holder, self._broken = -1, -1, "it is closed"


class Witness:
    """An outside record of a ledger, which detects a rollback; this one records nothing."""

    def accept(self, ledger: Ledger) -> None:
        """Checks a ledger before a line is appended to it.

        Args:
            ledger: Locked and verified.

        Raises:
            UserError: The ledger lacks lines that the witness recorded.
        """

    def record(self, ledger: Ledger) -> None:
        """Records the ledger's last line before anything is sampled on it.

        The record is on disk when this returns.

        Args:
            ledger: A ledger whose last line allows a release.

        Raises:
            UserError: It cannot be recorded; nothing may be sampled then.
        """

    def bought(self, terms: Record, epsilon: float) -> None:
        """Records a purchase without a ledger, before anything is sampled for it.

        Args:
            terms: Unit, relation and delta of its promise, as in the header of a ledger.

        Raises:
            UserError: It cannot be recorded; nothing may be sampled then.
        """

    def close(self) -> None:
        """Called once, when the ledger is closed, even if `accept` was never called."""


def read(path: str | os.PathLike[str]) -> list[Record]:
    """Reads the records of a ledger without locking or changing it.

    Returns:
        The records. If the last line is torn, the last record is the one that `Ledger.open` would
        write for it.

    Raises:
        UserError: The file is missing or broken.
    """
    path = Path(path)
    records, _, tail, account = replay_lines(path, read_ledger(path))
    return [*records, torn_line(tail, account)] if tail else records


def begun(path: str | os.PathLike[str]) -> bool:
    """Whether there is a ledger with a complete header.

    A file that a crash tore while it was created never allowed a release.

    Args:
        path: The file, which need not exist.

    Raises:
        UserError: The path is not a regular file.
    """
    path = Path(path)
    if not path.exists():
        return False
    data = read_ledger(path)
    try:
        return b"\n" in data or bool(replay_lines(path, data))
    except UserError:
        return False


def undeclared(path: str | os.PathLike[str]) -> bool:
    """Whether there is a ledger with purchases but without a configuration so far.

    Args:
        path: The file, which need not exist.

    Raises:
        UserError: As `read`.
    """
    return begun(path) and not account(read(path)).meaning


def published(records: list[Record]) -> RenyiEvent | None:
    """Returns the data-dependent bound that a run published on its votes, if any.

    Args:
        records: Records from `read`. A bound charged before the first round belongs to an earlier
            run, whose release is the judge.
    """
    made = False
    for record in records:
        made = made or record["kind"] == "reserve"
        if made and record["kind"] in ("charge", "torn"):  # a torn line may have been acted on
            for event, _ in from_json(record["events"]):
                if isinstance(event, RenyiEvent):
                    return event
    return None


def claimed(path: str | os.PathLike[str], budget: float) -> float:
    """Returns the epsilon that a run states if it continues.

    Args:
        path: The ledger, which need not exist.

    Returns:
        The budget, or the claim of the ledger with a torn last line charged, if that is more.

    Raises:
        UserError: As `read`.
    """
    return max(budget, account(read(path)).claim()) if begun(path) else budget


def account(records: list[Record]) -> Account:
    """Adds up records from `read`.

    Returns:
        Their totals: `spent()`, `epsilon()`, `claim()`, `steps`, `header`, `target`.
    """
    totals = Account()
    for record in records:
        totals.apply(record)
    return totals


NOBODY = Witness()


class Ledger:
    """An open ledger, locked for this process; a context manager, made by `create` or `open`."""

    def __init__(self, path: Path, descriptor: int, witness: Witness):
        """For `create` and `open` only."""
        self.path = path
        self._file = AppendOnlyFile(path, descriptor)
        self._witness = witness
        self._account = Account()
        self._hashes: list[str] = []

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Record, witness: Witness = NOBODY
               ) -> Ledger:
        """Creates a ledger (mode 0600), which is on disk when the call returns.

        Args:
            path: The file, which must not exist.
            header: epsilon (> 0, inf for a run without a budget), delta, and other plain JSON
                values.

        Raises:
            UserError: The file exists or cannot be written, or the witness has recorded lines.
            ValueError: A bad header.
        """
        path = Path(path)
        unlimited = header["epsilon"] == math.inf  # strict JSON has no infinity
        record = {**header, "kind": "header", "epsilon": "inf" if unlimited else header["epsilon"]}
        record = json.loads(canonical_json(record))
        Account().apply(record)  # an invalid header must not leave a file behind
        ledger = cls(path, open_ledger(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), witness)
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

        Everything is on disk when the call returns.

        Raises:
            UserError: The file is missing, in use, not writable, or broken (the message names the
                line), or the witness recorded a later line. The file is then unchanged.
        """
        path = Path(path)
        ledger = cls(path, open_ledger(path, os.O_RDWR), witness)
        try:
            ledger._file.lock()
            ledger._resume(processes)
        except BaseException:
            ledger.close()
            raise
        return ledger._recorded()

    def _resume(self, processes: int) -> None:
        data = read_ledger(self.path)
        _, self._hashes, tail, self._account = replay_lines(self.path, data)
        self._file.size, self._file.tail = len(data) - len(tail), tail
        self._witness.accept(self)
        if tail:
            # Longer than the bytes it replaces, since it contains them: a crash in the middle of
            # this write leaves a torn line again, never a file that looks complete and charges
            # less.
            self._append(torn_line(tail, self._account))
        elif not data.endswith(b"\n"):
            self._file.append(b"\n")
            self._file.accept()
        self._append({"kind": "open", "incarnation": self.incarnation + 1,
                      **chained_lines(processes)})

    def _recorded(self) -> Ledger:
        """Returns this ledger after its witness has recorded the last line."""
        try:
            self._witness.record(self)
        except BaseException:
            self.close()
            raise
        return self

    def reserve(self, events: Events, steps: int) -> int:
        """Charges the largest possible cost of a block of rounds, before anything is sampled.

        The record is on disk when this returns. If it raises, nothing may be sampled.

        Args:
            events: The largest cost of the block. It may be nothing: in a rotation the first
                cohorts of a cycle pay for the whole cycle.

        Returns:
            The id for `settle`.

        Raises:
            BudgetExceeded: `target` at the header's delta would be exceeded.
            UserError: The file, or the witness's, cannot be written.
        """
        self._require_budget(events, f"{steps} more steps")
        reservation = self._account.next_id
        self._append({"kind": "reserve", "id": reservation, "steps": whole(steps, 1),
                      "events": to_json(events)})
        self._witness.record(self)
        return reservation

    def settle(self, reservation: int, events: Events, steps: int) -> None:
        """Replaces a reservation of this incarnation by its actual cost.

        Raises:
            ValueError: The cost is more than was reserved, or the reservation is not open.
            UserError: The file cannot be written. The reservation then stays charged in full.
        """
        self._append({"kind": "settle", "id": reservation, "steps": whole(steps, 0),
                      "events": to_json(events)})

    def charge(self, events: Events) -> None:
        """Charges one release that is not a round, such as a class histogram.

        On disk when this returns; if it raises, as `reserve` does, nothing may be sampled.

        Raises: as `reserve`.
        """
        self._require_budget(events, "release of " + ", ".join(e.mechanism for e, _ in events))
        self._append({"kind": "charge", "events": to_json(events)})
        self._witness.record(self)

    def declare(self, config_hash: str) -> None:
        """Records the hash of the configuration, if purchases came before it was known.

        On disk when this returns. The header of such a ledger has an empty `config_hash`.

        Raises:
            ValueError: It is already known, or rounds were charged.
            UserError: The file cannot be written.
        """
        self._append({"kind": "declare", "config_hash": config_hash})
        self._witness.record(self)

    def extend(self, epsilon: float) -> None:
        """Raises the target: a finished run that continues states a new, larger claim.

        On disk when this returns.

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
        needed = composition.epsilon_of((*self.spent(), *events), delta)
        if not needed <= self.target:
            raise BudgetExceeded(f"the budget, epsilon {self.target:g} at delta {delta:g}, allows "
                                 f"no {purpose}: that would need epsilon {at_most(needed)}")

    def spent(self) -> Events:
        """All charged events, merged: settled blocks as settled, all others in full."""
        return self._account.spent()

    def epsilon(self) -> float:
        """The epsilon of `spent` at the header's delta."""
        return self._account.epsilon()

    def claim(self) -> float:
        """The epsilon to state: `target`, or `epsilon` if a torn line made it larger."""
        return self._account.claim()

    @property
    def header(self) -> Record:
        """A copy of the header, with epsilon (the first target) as a float."""
        return {name: value for name, value in self._account.header.items() if name != "kind"}

    @property
    def target(self) -> float:
        """The epsilon that may be spent, from the header or the last extension."""
        return self._account.target

    @property
    def meaning(self) -> str:
        """The hash of the configuration; empty before it is declared."""
        return self._account.meaning

    @property
    def incarnation(self) -> int:
        """0 in the run that created the file, plus one at each resume."""
        return self._account.incarnation

    @property
    def processes(self) -> int:
        """The largest number of processes at any start of the run."""
        return self._account.processes

    @property
    def steps_charged(self) -> int:
        """Rounds in `spent`; at least as many as were ever begun."""
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
        """Whether line `n_lines` has the hash `head`."""
        return (isinstance(n_lines, int) and 0 < n_lines <= self.n_lines
                and self._hashes[n_lines - 1] == head)

    def close(self) -> None:
        """Closes the file and releases the lock; a second call does nothing."""
        if self._file.is_open:
            self._witness.close()
            self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, record: Record) -> None:
        """Checks a record, writes it to the disk, then adds it to the totals."""
        self._file.require_sound()
        line, digest = chained_line(self.head if self._hashes else CHAIN_START, record)
        account = self._account.after(record)
        self._file.append(line)
        self._hashes.append(digest)
        self._account = account
        self._file.accept()
