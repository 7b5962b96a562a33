"""A file that grows by whole lines, all of a line or nothing, and is locked for one process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dpgen_jax.accountant import files, locking
from dpgen_jax.core.errors import UserError


class AppendOnlyFile:
    """An open file to which whole lines are appended, each on disk before the next.

    Attributes:
        path: The file.
        size: Bytes of the lines that count.
        tail: A torn line after them; the next line is written over it.
    """

    def __init__(self, path: Path, descriptor: int):
        """Takes over an open descriptor of the file.

        Args:
            path: The file, for messages.
            descriptor: Open for reading and writing.
        """
        self.path = path
        self.size = 0
        self.tail = b""
        self._fd, self._holder, self._pid = descriptor, -1, os.getpid()
        self._broken = ""  # the reason why nothing may be appended any more

    def lock(self) -> None:
        """Locks the file for this process.

        Raises:
            UserError: Another process has it, or the file system has no locks.
        """
        try:
            self._holder = locking.hold(self.path, self._fd)
        except BlockingIOError:
            raise UserError(f"another process is using {self.path}: stop it first") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be locked ({error.strerror}): "
                            "choose a folder on a local disk") from None

    def append(self, line: bytes) -> None:
        """Writes a line and flushes it to the disk, over a torn tail if there is one.

        It is all of the line or, by cutting the file back, nothing. No further line is taken until
        `accept`: an interrupt in between would leave the file and its owner's totals apart.

        Args:
            line: The bytes, with the newline.

        Raises:
            UserError: The file cannot be written.
        """
        self._broken = "an append was interrupted"
        try:
            files.write_at(self._fd, line, self.size)
            os.fsync(self._fd)
        except BaseException as error:
            self._cut_back()
            if isinstance(error, OSError):
                raise UserError(f"{self.path} cannot be written ({error.strerror}), so nothing may "
                                "be drawn: free some space, then resume the run") from error
            raise
        self.size += len(line)

    def accept(self) -> None:
        """Ends an append: the owner's totals are those of the file again."""
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
        """Refuses to append where this object and the file may no longer agree.

        Raises:
            UserError: It is closed, deleted, written by something else, inherited by a forked
                process, or an append was interrupted.
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
        """Whether `close` was not called yet."""
        return self._fd >= 0

    def close(self) -> None:
        """Closes the file and gives up the lock; a second call does nothing."""
        if self.is_open:
            locking.give_up(self._holder, self._fd)
            os.close(self._fd)
        self._fd, self._holder, self._broken = -1, -1, "it is closed"
