"""The journal of spent runs: what this machine remembers of a run's ledger outside of its folder.

A run folder can be copied, or put back from a backup, and everything in it agrees with itself. So
each run's ledger has a witness in a folder of its user's own, $DPGEN_STATE (default: dpgen_jax
under $XDG_STATE_HOME or ~/.local/state; mode 0700):

  key              32 random bytes in hex, by which records are recognised; it stays here
  runs/RUN.jsonl   a line that says what run it is, then one for each ledger line that something was
                   drawn on: hash and number of that line, epsilon spent, target, folder
  lock             held by a run that starts, from looking at the other runs to its own first line

A line is written after the ledger's own and before the draw, so a ledger that lacks the journal's
last line is an older state, or a copy whose other copy went on. A folder that was moved, or one
from another machine, goes on. The journal is not part of the proof of a run's epsilon, and whoever
owns the machine can delete it: it is there against mistakes. So where the folder cannot be made or
written, as in a home that is read-only, a run says so in one line and goes on without; but a total
over several runs is refused then, and once a run has begun with a journal, no noise is drawn that
the journal does not know of.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpgen_jax import reading
from dpgen_jax.accountant import chain, files
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.errors import UserError

END = 2**15
"""bytes at the start and the end of a run's file that are looked at: several of its lines"""


class Unusable(UserError):
    """The journal's folder cannot be written."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What the journal says of a run. guarantee: none where the noise was seeded or the budget
    infinite; spent: charged so far; target: what it claims, and may yet spend; folder: where it
    was last seen; in_use: whether a process goes on with it now."""

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


def place() -> Path:
    """The journal's folder, which need not exist."""
    default = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "dpgen_jax"
    return Path(os.environ.get("DPGEN_STATE") or default).expanduser()


class Journal:
    """The journal in a folder, which is made if need be."""

    def __init__(self, folder: Path):
        """Raises Unusable where it cannot be written."""
        self.folder, self._runs = folder, folder / "runs"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._runs.mkdir(mode=0o700, exist_ok=True)
            if not os.access(self._runs, os.W_OK | os.X_OK):
                raise PermissionError(None, "Permission denied")
            self.key = self._key()
        except OSError as error:
            raise Unusable(f"the journal of spent runs, {folder}, cannot be written ("
                           f"{error.strerror}); set DPGEN_STATE to a folder that can") from None

    def _key(self) -> bytes:
        path = self.folder / "key"
        if not path.exists():
            if any(self._runs.iterdir()) and not path.exists():
                raise UserError(f"{path} is missing: bring it back, or remove {self.folder}, and "
                                "what was spent on which records is forgotten")
            self._make_key(path)
        try:
            key = bytes.fromhex(reading.read_bytes(path, 1000).decode())
        except ValueError:  # a UserError too: it is too long, or no file
            key = b""
        if len(key) != 32:
            raise UserError(f"{path} is damaged: bring it back, or remove {self.folder}, and what "
                            "was spent on which records is forgotten")
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
        """One run at a time. Errors: UserError where the folder's file system has no locks."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _failed(self.folder / "lock", error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def witness(self, run: str, records: str, guarantee: bool, folder: Path) -> Entry:
        """The witness of a run, by its id, on records of this fingerprint."""
        about = {"kind": "run", "run": run, "records": records, "guarantee": guarantee}
        return Entry(self._runs / f"{run}.jsonl", about, folder.absolute())

    def on(self, records: str) -> list[Run]:
        """The runs on records of this fingerprint. Errors: UserError for a damaged file."""
        known = (_read(path) for path in sorted(self._runs.glob("*.jsonl")))
        return [run for run in known if run is not None and run.records == records]


class Entry(Witness):
    """The witness of one run: open and locked from `accept` to `close`."""

    def __init__(self, path: Path, about: dict[str, Any], folder: Path):
        self._path, self._about, self._folder = path, about, folder
        self._fd = -1
        self._size, self._previous = 0, chain.START

    def accept(self, ledger: Ledger) -> None:
        """Errors: UserError where the ledger lacks the journal's last line, where another process
        goes on with the run, and for a damaged file."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is using this run, in {self._folder} or in a copy: "
                            "stop it first") from None
        except OSError as error:
            raise _failed(self._path, error) from None
        known, self._size, self._previous = _ends(self._path)
        if known is None or ledger.contains(known.head, known.lines):
            return
        raise UserError(
            f"{ledger.path} has {ledger.n_lines} lines and not the one, number {known.lines}, that "
            f"this run came to in {known.folder} (so says {self._path}): it is an older state or a "
            "copy, and spent budget would be forgotten; go on with the folder that is ahead, or "
            "start a new run, whose epsilon adds to this one's")

    def record(self, ledger: Ledger) -> None:
        rows = [] if self._size else [self._about | {
            "unit": ledger.header.get("unit", ""), "relation": ledger.header.get("relation", ""),
            "delta": ledger.header["delta"]}]
        rows.append({"kind": "head", "head": ledger.head, "lines": ledger.n_lines,
                     "spent": str(ledger.epsilon()), "target": str(ledger.claim()),
                     "folder": str(self._folder)})
        data, previous = b"", self._previous
        for row in rows:
            line, previous = chain.line(previous, row)
            data += line
        try:
            if os.fstat(self._fd).st_size > self._size:  # what an append that failed left
                os.ftruncate(self._fd, self._size)
            files.write_at(self._fd, data, self._size)
            os.fsync(self._fd)
            if not self._size:
                files.sync_directory(self._path.parent)
        except OSError as error:
            raise _failed(self._path, error) from None
        self._size, self._previous = self._size + len(data), previous

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _failed(path: Path, error: OSError) -> UserError:
    return UserError(f"the journal of this run, {path}, cannot be written ({error.strerror}), so "
                     "nothing may be drawn: free some space, then resume the run")


def _read(path: Path) -> Run | None:
    run = _ends(path)[0]
    if run is None:
        return None
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return dataclasses.replace(run, in_use=True)
    return run


def _ends(path: Path) -> tuple[Run | None, int, str]:
    """What the file says, or None where a crash tore it as it was made; the bytes of its whole
    lines; the hash of the last. A torn last line is not counted: nothing was drawn on it."""
    size = reading.require_regular(path).st_size
    with path.open("rb") as file:
        start = file.read(END)
        file.seek(max(0, size - END))
        end = file.read(END)
    first, newline, rest = start.partition(b"\n")
    whole = size - len(end) + end.rfind(b"\n") + 1
    if size < END and not (newline and b"\n" in rest):
        return None, 0, chain.START
    last = end[:whole - size + len(end)].rstrip(b"\n").rpartition(b"\n")[2]
    try:
        about, _ = chain.parse(chain.START, first)
        state, digest = chain.parse(json.loads(last)["prev"], last)
        numbers = {name: float(state[name]) for name in ("spent", "target")}
        fields = {**about, **state, **numbers, "in_use": False}
        return Run(**{f.name: fields[f.name] for f in dataclasses.fields(Run)}), whole, digest
    except chain.DAMAGE:
        raise UserError(f"{path} is damaged: bring it back, or remove it, and what that run spent "
                        "is forgotten") from None
