"""The files of ledgers and journals: opened by their owner alone, read whole, named durably."""

from __future__ import annotations

import os
from pathlib import Path

from dpgen_jax.accountant.chain import no_resume
from dpgen_jax.core import reading
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.platforms import BINARY

MOST_BYTES = reading.JSON_BYTES


def open_ledger(path: Path, flags: int) -> int:
    """Opens the file of a ledger for its owner alone.

    Args:
        path: The file.
        flags: Of `os.open`; with O_CREAT the file is made, with mode 0600.

    Returns:
        A descriptor.

    Raises:
        UserError: The file cannot be made or opened, or `require_ledger` refuses it.
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
    """Refuses a file that is no ledger, without reading it.

    A pipe or a device may never end.

    Args:
        path: The file.

    Raises:
        UserError: It is missing, no regular file, or larger than any ledger.
    """
    try:
        size = reading.require_regular(path).st_size
    except UserError as error:
        raise UserError(f"{error}; the run cannot be resumed, as what it spent is not known"
                        ) from None
    if size > MOST_BYTES:
        raise no_resume(path, f"{size:,} bytes are more than any ledger takes")


def read_ledger(path: Path) -> bytes:
    """Reads a whole ledger.

    Args:
        path: The file.

    Returns:
        All of its bytes.

    Raises:
        UserError: As `require_ledger`.
    """
    require_ledger(path)
    return reading.read_bytes(path, MOST_BYTES)


def write_at(descriptor: int, data: bytes, place: int) -> None:
    """Writes all of the data at one position of a file.

    Args:
        descriptor: An open file.
        data: The bytes.
        place: The first byte that is written.

    Raises:
        OSError: It failed; some of the data may then be there.
    """
    written = 0
    while written < len(data):
        if hasattr(os, "pwrite"):
            written += os.pwrite(descriptor, data[written:], place + written)
        else:  # Windows: nothing else moves the position, as each file has one writer
            os.lseek(descriptor, place + written, os.SEEK_SET)
            written += os.write(descriptor, data[written:])
