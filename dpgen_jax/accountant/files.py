"""The files of ledgers and journals: opened by their owner alone, read whole, named durably."""

from __future__ import annotations

import os
from pathlib import Path

from dpgen_jax import reading
from dpgen_jax.accountant.chain import no_resume
from dpgen_jax.errors import UserError

MOST_BYTES = reading.JSON_BYTES


def open_ledger(path: Path, flags: int) -> int:
    """A descriptor, mode 0600 if O_CREAT makes the file. Raises UserError."""
    if not flags & os.O_CREAT:
        require_ledger(path)
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        raise UserError(f"{path} exists: resume that run, or choose another folder") from None
    except OSError as error:
        if flags & os.O_CREAT:
            raise UserError(f"{path} cannot be created: {error.strerror}") from None
        raise no_resume(path, error.strerror) from None


def require_ledger(path: Path) -> None:
    """Raises UserError for a pipe or a device, which may never end, and where the file is missing
    or larger than any ledger."""
    try:
        size = reading.require_regular(path).st_size
    except UserError as error:
        raise UserError(f"{error}; the run cannot be resumed, as what it spent is not known"
                        ) from None
    if size > MOST_BYTES:
        raise no_resume(path, f"{size:,} bytes are more than any ledger takes")


def read_ledger(path: Path) -> bytes:
    """All bytes. Raises UserError, as `require_ledger`."""
    require_ledger(path)
    return reading.read_bytes(path, MOST_BYTES)


def sync_directory(path: Path) -> None:
    """Makes a new file's name durable too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, data: bytes, place: int) -> None:
    """All of it, at this byte. Raises OSError; some of it may then be there."""
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], place + written)
