"""Files that others wrote: regular files only, and never more bytes in memory than are allowed.

A FIFO or a device never ends, and ten megabytes of gzip can unpack to ten gigabytes. So the kind
and the size of a file are looked at before it is opened, and what is unpacked is counted while it
is read. Imports nothing but errors and platforms, so that every part may use it.
"""

from __future__ import annotations

import contextvars
import gzip
import hashlib
import importlib.util
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from dpgen_jax.core.errors import UserError
from dpgen_jax.core.platforms import usable_bytes

CHUNK = 2**20
JSON_BYTES = 2**28
"""of a file of settings, statements or results: far more than any of them takes"""

_allowed: contextvars.ContextVar[float | None] = contextvars.ContextVar("allowed", default=None)


def machine_bytes() -> float:
    """The memory of this machine, or of the container or job that this process is in, bytes."""
    return usable_bytes()


def allowed_bytes() -> float:
    """The bytes that reading one data set may take: of `limited`, or what the machine has."""
    limit = _allowed.get()
    return machine_bytes() if limit is None else limit


@contextmanager
def limited(max_gb: float | None) -> Iterator[None]:
    """Within it `allowed_bytes` is max_gb * 1e9; None: as outside.

    Raises:
        UserError: .
    """
    if max_gb is not None and not max_gb > 0:
        raise UserError(f"--max-gb is {max_gb}; it must be above 0")
    token = _allowed.set(_allowed.get() if max_gb is None else 1e9 * max_gb)
    try:
        yield
    finally:
        _allowed.reset(token)


def require_memory(what: str, needed: float) -> None:
    """Before an allocation.

    Raises:
        UserError: Where `what` needs more bytes than are allowed.
    """
    limit = allowed_bytes()
    if needed > limit:
        raise UserError(f"{what} takes {needed / 1e9:.3g} GB of memory, and {limit / 1e9:.3g} GB "
                        "are allowed; give less data or smaller images, or raise --max-gb")


def exists(text: str) -> bool:
    """Returns whether a text is the path of what exists; a list of names is no path."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # a name too long, a zero byte
        return False


def require_regular(path: Path) -> os.stat_result:
    """The status of a file.

    Raises:
        UserError: Where it is missing, or a FIFO, socket, device or folder, which may never end.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {path}: {why}") from error
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is no regular file; give a file, not a folder, pipe or device")
    return status


def read_bytes(path: Path, limit: float | None = None) -> bytes:
    """Reads a regular file; a .gz file is unpacked.

    Args:
        path: The file.
        limit: The most bytes that are held, counted while a .gz file is unpacked; by default
            `allowed_bytes`.

    Raises:
        UserError: For a file that is missing, no regular one, damaged or too large.
    """
    return b"".join(chunks(path, limit))


def chunks(path: Path, limit: float | None = None) -> Iterator[bytes]:
    """Yields the bytes of a regular file, `CHUNK` at a time; a .gz file is unpacked.

    Args:
        path: The file.
        limit: The most bytes that are read, as of `read_bytes`.

    Raises:
        UserError: As `read_bytes`.
    """
    limit, total = allowed_bytes() if limit is None else limit, 0
    if require_regular(path).st_size > limit:
        raise _too_large(path, limit)
    with opened(path) as file:
        while chunk := file.read(CHUNK):
            total += len(chunk)
            if total > limit:
                raise _too_large(path, limit)
            yield chunk


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a regular file; a .gz file is unpacked as it is read.

    Args:
        path: The file.

    Raises:
        UserError: For a file that is missing, no regular one, or damaged where it is read.
    """
    require_regular(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            yield cast(BinaryIO, file)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch it again") from error


def _too_large(path: Path, limit: float) -> UserError:
    return UserError(f"{path} holds more than the {limit / 1e9:.3g} GB that are allowed; give a "
                     "smaller file, or raise --max-gb")


def content_of(path: Path) -> str:
    """Returns a digest of a file, in hex.

    Args:
        path: The file.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_parquet() -> None:
    """Raises UserError where a package is missing that Parquet files need."""
    if not all(importlib.util.find_spec(name) for name in ("pandas", "pyarrow")):
        raise UserError("a Parquet file needs pyarrow and pandas; pip install "
                        "'dpgen_jax[parquet]'")
