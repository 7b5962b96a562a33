"""The journal: a record of ledgers on this machine, outside of run folders.

A run folder can be copied, or restored from a backup, and is still consistent. So each run's ledger
has a witness in a folder of the user, $DPGEN_STATE (default: dpgen_jax under $XDG_STATE_HOME or
~/.local/state; mode 0700):

  key              32 random bytes in hex, by which records are recognised; it stays here
  runs/RUN.jsonl   a line that names the run, then one for each ledger line on which something was
                   released: hash and number of that line, epsilon spent, target, folder, and
                   whether it has promised something all along; a purchase without a run has no
                   ledger, and one such line
  lock             held by a run that starts, from looking at the other runs to its own first line

A line is written after the ledger's line and before noise is sampled. So a ledger that lacks the
journal's last line is an older state, or a copy whose other copy was continued. A folder that was
moved, or comes from another machine, can be resumed. The journal is not part of the proof of a
run's epsilon, and the owner of the machine can delete it: it protects against mistakes. If the
folder cannot be created or written, for example in a read-only home, a run prints one line and
continues without a journal. A total over several runs is then refused. Once a run has begun with a
journal, no noise is sampled before the journal has a line for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from dpgen_jax.accountant import ledger
from dpgen_jax.accountant.ledger import Ledger, Record, Witness
from dpgen_jax.core import files
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.files import BINARY, Json, sync

FULL = (errno.ENOSPC, errno.EDQUOT)
"""the errors of a full disk or an exhausted quota"""
END = 2**15
"""bytes that are read at the start and the end of a run's file: several lines"""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, by its entries in the journal.

    Attributes:
        run: Its id, 32 hex digits.
        records: The keyed fingerprint of its records.
        guarantee: False if the noise was seeded or the budget infinite at any of its starts.
        unit: "record", "client" or "subject".
        relation: The neighbouring relation.
        delta: The delta of its claim.
        head: The hash of the last recorded line of the ledger.
        lines: The number of that line.
        spent: The epsilon charged so far.
        target: The epsilon that it claims, and may yet spend.
        folder: Its last known place.
        in_use: Whether a process continues it now, or may have spent more than is recorded.
        subjects: If subjects are protected, the keyed fingerprint of which records belong together.
        rows_per_unit: If subjects are protected, the most rows of one that are kept.
        content: The keyed digest of the file or folder that the records were read from; empty if
            unknown.
        purchase: Whether it is a purchase of schema entries without a run. A run that charges it
            includes it in its budget.
    """

    run: str
    records: str
    guarantee: bool
    unit: str
    relation: str
    delta: float
    head: str
    lines: int
    spent: float
    target: float
    folder: str
    in_use: bool
    subjects: str = ""
    rows_per_unit: int = 0
    content: str = ""
    purchase: bool = False


class Entry(Witness):
    """The witness of one run: open and locked from `accept` to `close`."""

    def __init__(self, path: Path, about: Json, folder: Path):
        """Opens nothing yet.

        Args:
            path: The run's file in the journal.
            about: The first line of a new file.
        """
        self._path, self._about, self._folder = path, about, folder
        self._fd = self._holder = -1
        self._size, self._previous = 0, ledger.CHAIN_START
        self._end: int | None = None  # the bytes of the file; None after an append that failed
        self._records, self._guarantee = str(about["records"]), bool(about["guarantee"])

    def accept(self, ledger: Ledger) -> None:
        """Opens the run's file and compares it with the ledger.

        Args:
            ledger: The ledger, locked and verified.

        Raises:
            UserError: The ledger lacks the journal's last line, a purchase for the run was made
                from other data, another process continues the run, or the file is damaged.
        """
        known = self._opened()
        if known is None:
            return
        if not ledger.contains(known.head, known.lines):
            raise UserError(
                f"{ledger.path} has {ledger.n_lines} lines, but not line {known.lines} that this "
                f"run reached in {known.folder} (according to {self._path}): it is an older state "
                "or a copy, and spent budget would be forgotten; use the folder that is ahead, or "
                "start a new run, whose epsilon adds to this one's")
        before, now = known.content, str(self._about.get("content", ""))
        if not known.records and before and now and before != now:
            raise UserError(f"the data changed after {known.folder} bought their undeclared "
                            "entries: restore them, or start a new run, whose epsilon adds to this "
                            "one's")

    def _opened(self) -> Run | None:
        """Opens and locks the run's file, and returns the run that it describes."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | BINARY, 0o600)
            self._holder = ledger.hold_lock(self._path, self._fd)
        except BlockingIOError:
            raise UserError(f"another process is using this run, in {self._folder} or in a copy: "
                            "stop it first") from None
        except OSError as error:
            raise failed(self._path, error) from None
        known, self._size, self._previous = _ends(self._path)
        self._end = os.fstat(self._fd).st_size
        if known is not None:
            self._records = self._records or known.records
            # A run without a guarantee before, or now, has none after a resume.
            self._guarantee = self._guarantee and known.guarantee
        return known

    def record(self, ledger: Ledger) -> None:
        """Writes the hash of the ledger's last line, the epsilon spent and the target.

        Raises:
            UserError: The file cannot be written; nothing may be sampled then.
        """
        self._write(ledger.header, {"head": ledger.head, "lines": ledger.n_lines,
                                    "spent": str(ledger.epsilon()), "target": str(ledger.claim())})

    def bought(self, terms: Record, epsilon: float) -> None:
        """Writes a purchase that has no ledger, and closes the file.

        Args:
            terms: Unit, relation and delta of its promise, as in the header of a ledger.

        Raises:
            UserError: The file cannot be written; nothing may be sampled then.
        """
        try:
            self._opened()
            self._about = self._about | {"purchase": True}
            self._write(terms, {"head": ledger.CHAIN_START, "lines": 0, "spent": str(epsilon),
                                "target": str(epsilon)})
        finally:
            self.close()

    def _write(self, terms: Record, state: Record) -> None:
        """Appends the state, after a first line that names the run."""
        of_subjects = {name: terms[name] for name in ("unit_column", "rows_per_unit")
                       if name in terms}
        rows = [] if self._size else [self._about | of_subjects | {
            "unit": terms.get("unit", ""), "relation": terms.get("relation", ""),
            "delta": terms["delta"]}]
        rows.append({"kind": "head", **state, "folder": str(self._folder),
                     "records": self._records, "guarantee": self._guarantee})
        data, previous = b"", self._previous
        for row in rows:
            line, previous = ledger.chained_line(previous, row)
            data += line
        try:
            size = os.fstat(self._fd).st_size
            if size < self._size or self._end not in (None, size) or not self._in_place():
                raise UserError(f"{self._path}, the journal of this run, was deleted, replaced or "
                                "written to by something else since the run started, so nothing "
                                "may be drawn: restore it, then resume the run")
            if size > self._size:  # a torn line, or what an append that failed left
                os.ftruncate(self._fd, self._size)
            self._end = None
            ledger.write_at(self._fd, data, self._size)
            os.fsync(self._fd)
            if not self._size:
                sync(self._path.parent)
        except OSError as error:
            raise failed(self._path, error) from None
        self._size, self._previous = self._size + len(data), previous
        self._end = self._size

    def _in_place(self) -> bool:
        """Whether the open file is still the one at its path."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes the file and releases its lock; a second call does nothing."""
        if self._fd >= 0:
            ledger.give_up_lock(self._holder, self._fd)
            os.close(self._fd)
        self._fd = self._holder = -1


def failed(path: Path, error: OSError) -> UserError:
    """The error for a file of the journal that cannot be written."""
    mend = ("free some space, then resume the run" if error.errno in FULL else
            "correct that, or set DPGEN_STATE to a folder on a local disk, which starts a new "
            "journal")
    return UserError(f"the journal of this run, {path}, cannot be written ({error.strerror}), so "
                     f"nothing may be drawn: {mend}")


def read_run(path: Path) -> Run | None:
    """The run of a file in the journal.

    Returns:
        The run; None if a crash tore the file while it was created.

    Raises:
        UserError: The file is damaged.
    """
    run, whole, _ = _ends(path)
    if run is None:
        return None
    if path.stat().st_size > whole:  # the content of the torn line is unknown
        return dataclasses.replace(run, in_use=True)
    with path.open("rb") as file:
        try:
            ledger.give_up_lock(ledger.hold_lock(path, file.fileno(), create=False), file.fileno())
        except FileNotFoundError:  # no lock was ever taken
            return run
        except OSError:  # locked, or unknown: it may yet spend all of its target
            return dataclasses.replace(run, in_use=True)
    return run


def _ends(path: Path) -> tuple[Run | None, int, str]:
    """Reads the start and the end of a run's file.

    Returns the run, or None if a crash tore the file while it was created; the bytes of its whole
    lines; the hash of the last. If a torn line follows, the run continues from there: a crash tore
    the line before anything was sampled on it, and the ledger has its own lines.
    """
    size = files.require_regular(path).st_size
    with path.open("rb") as file:
        start = file.read(END)
        file.seek(max(0, size - END))
        end = file.read(END)
    first, newline, rest = start.partition(b"\n")
    whole = size - len(end) + end.rfind(b"\n") + 1
    if size < END and not (newline and b"\n" in rest):
        return None, 0, ledger.CHAIN_START
    last = end[:whole - size + len(end)].rstrip(b"\n").rpartition(b"\n")[2]
    try:
        about, _ = ledger.parse_lines(ledger.CHAIN_START, first)
        state, digest = ledger.parse_lines(json.loads(last)["prev"], last)
        numbers = {name: float(state[name]) for name in ("spent", "target")}
        fields = {**about, **state, **numbers, "in_use": False}
        return Run(**{f.name: fields[f.name] for f in dataclasses.fields(Run)
                      if f.name in fields or f.default is dataclasses.MISSING}), whole, digest
    except ledger.DAMAGE:
        raise UserError(f"{path} is damaged: restore it, or remove it and lose the record of what "
                        "that run spent") from None


class Unusable(UserError):
    """The journal's folder cannot be written."""


def place() -> Path:
    """The journal's folder, which need not exist."""
    default = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "dpgen_jax"
    return Path(os.environ.get("DPGEN_STATE") or default).expanduser()


class Journal:
    """The journal in a folder, which is created if needed.

    Attributes:
        key: 32 random bytes that key the fingerprints of records.
    """

    def __init__(self, folder: Path):
        """Opens the journal.

        Args:
            folder: Created with mode 0700 if missing.

        Raises:
            Unusable: It cannot be written.
            UserError: Its key is missing or damaged.
        """
        self.folder, self._runs = folder, folder / "runs"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._runs.mkdir(mode=0o700, exist_ok=True)
            if not os.access(self._runs, os.W_OK | os.X_OK):
                raise PermissionError(None, "Permission denied")
            self.key = self._key()
        except OSError as error:
            raise Unusable(f"the journal of spent runs, {folder}, cannot be written "
                           f"({error.strerror}); set DPGEN_STATE to a writable folder") from None

    def _key(self) -> bytes:
        path = self.folder / "key"
        if not path.exists():
            if any(self._runs.iterdir()) and not path.exists():
                raise UserError(f"{path} is missing: restore it, or remove {self.folder} and lose "
                                "the record of what was spent on which records")
            self._make_key(path)
        try:
            key = bytes.fromhex(files.read_bytes(path, 1000).decode())
        except ValueError:  # a UserError too: it is too long, or not a file
            key = b""
        if len(key) != 32:
            raise UserError(f"{path} is damaged: restore it, or remove {self.folder} and lose the "
                            "record of what was spent on which records")
        return key

    def _make_key(self, path: Path) -> None:
        temporary = self.folder / f"key.{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(secrets.token_hex(32).encode())
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):  # another run was faster
            os.link(temporary, path)
        temporary.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the journal's lock: one run at a time.

        Raises:
            UserError: The folder's file system has no locks.
        """
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise failed(self.folder / "lock", error) from None
        try:
            try:
                filelock.lock_descriptor(descriptor)
            except OSError as error:
                raise failed(self.folder / "lock", error) from None
            yield
        finally:
            os.close(descriptor)

    def witness(self, run: str, records: str, guarantee: bool, folder: Path, subjects: str = "",
                content: str = "") -> Entry:
        """The witness of one run.

        Args:
            records: The keyed fingerprint of its records; empty before they are read.
            subjects: The keyed fingerprint of which records belong together, if subjects are
                protected.
            content: The keyed digest of the file or folder that they are read from.
        """
        about = {"kind": "run", "run": run, "records": records, "guarantee": guarantee}
        if subjects:
            about["subjects"] = subjects
        if content:
            about["content"] = content
        return Entry(self._runs / f"{run}.jsonl", about, folder.absolute())

    def on(self, records: str, content: str = "") -> list[Run]:
        """The runs on records with this fingerprint, or read from the same content.

        Args:
            records: The fingerprint; empty before they are read.
            content: The keyed digest of the file or folder that they are read from, if known.

        Returns:
            The runs, ordered by id.

        Raises:
            UserError: A damaged file.
        """
        known = (read_run(path) for path in sorted(self._runs.glob("*.jsonl")))
        return [run for run in known if run is not None and (
            (records and run.records == records) or (content and run.content == content))]
