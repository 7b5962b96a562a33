"""The journal of spent runs: this machine's memory of a run's ledger, outside of its folder.

A run folder can be copied, or put back from a backup, and everything in it agrees with itself. So
each run's ledger has a witness in a folder of its user's own, $DPGEN_STATE (default: dpgen_jax
under $XDG_STATE_HOME or ~/.local/state; mode 0700):

  key              32 random bytes in hex, by which records are recognised; it stays here
  runs/RUN.jsonl   a line that names the run, then one for each ledger line on which something was
                   released: hash and number of that line, epsilon spent, target, folder, and
                   whether it has promised something all along; a purchase without a run has no
                   ledger, and one such line
  lock             held by a run that starts, from looking at the other runs to its own first line

A line is written after the ledger's own and before noise is sampled, so a ledger that lacks the
journal's last line is an older state, or a copy whose other copy went on. A folder that was moved,
or one from another machine, goes on. The journal is not part of the proof of a run's epsilon, and
whoever owns the machine can delete it: it is there against mistakes. So where the folder cannot be
made or written, as in a home that is read-only, a run says so in one line and goes on without; but
a total over several runs is refused then, and once a run has begun with a journal, no noise is
sampled that the journal does not know of.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from dpgen_jax.accountant.journal_entry import Entry, Run, failed, read_run
from dpgen_jax.core import reading
from dpgen_jax.core.errors import UserError


class Unusable(UserError):
    """The journal's folder cannot be written."""


def place() -> Path:
    """The journal's folder, which need not exist."""
    default = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "dpgen_jax"
    return Path(os.environ.get("DPGEN_STATE") or default).expanduser()


class Journal:
    """The journal in a folder, which is made if need be.

    Attributes:
        folder: The folder.
        key: 32 random bytes by which records are recognised.
    """

    def __init__(self, folder: Path):
        """Opens the journal.

        Args:
            folder: The folder, made with mode 0700 where it is missing.

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
        """Holds the journal's lock: one run at a time.

        Yields:
            Nothing.

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
            run: The run's id.
            records: The keyed fingerprint of its records; nothing while they are not read yet.
            guarantee: Whether the run has any guarantee.
            folder: The run folder.
            subjects: The keyed fingerprint of which records belong together, where subjects are
                protected.
            content: The keyed digest of the file or folder that they are read from.

        Returns:
            The witness, to be given to the run's ledger.
        """
        about = {"kind": "run", "run": run, "records": records, "guarantee": guarantee}
        if subjects:
            about["subjects"] = subjects
        if content:
            about["content"] = content
        return Entry(self._runs / f"{run}.jsonl", about, folder.absolute())

    def on(self, records: str, content: str = "") -> list[Run]:
        """The runs on records of one fingerprint, or that were read from the same content.

        Args:
            records: The fingerprint; nothing while they are not read yet.
            content: The keyed digest of the file or folder that they are read from, if known.

        Returns:
            The runs, in the order of their ids.

        Raises:
            UserError: A damaged file.
        """
        known = (read_run(path) for path in sorted(self._runs.glob("*.jsonl")))
        return [run for run in known if run is not None and (
            (records and run.records == records) or (content and run.content == content))]
