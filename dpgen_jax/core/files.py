"""Files: bounded reading, strict JSON, atomic writing, and the limits of the platform.

Only regular files are read, and they never take more memory than is allowed. A FIFO or a device may
never end, and ten megabytes of gzip can unpack to ten gigabytes. So the kind and the size of a file
are checked before it is opened, and unpacked bytes are counted while they are read.

Only this module deals with features that some operating systems lack. Windows has no call that
makes the names in a folder durable, its files have no mode for the owner, and it opens files as
text by default.

The module imports nothing from the package except its errors, so every part may use it.
"""

from __future__ import annotations

import contextlib
import contextvars
import gzip
import hashlib
import importlib.util
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from dpgen_jax.core.errors import UserError, option

WINDOWS = os.name == "nt"
BINARY: int = getattr(os, "O_BINARY", 0)
"""for `os.open`: Windows would write a carriage return before each newline"""

GROUPS, OF_THIS_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""The control groups of processes on Linux, and the file that names those of this process."""


def shortfall() -> str:
    """Returns a line on what this system cannot guarantee for a run folder; empty if nothing."""
    if not WINDOWS:
        return ""
    return ("note: on Windows, the parent folder decides who may read a run folder, so choose one "
            "of your own; if the machine loses power, the newest files may be lost, and a run "
            "without its ledger cannot be resumed")


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_bytes() -> float:
    """Returns the memory that this process may use, in bytes: that of the machine or its container.

    Containers and batch systems such as SLURM limit groups of processes.
    """
    return min(_physical_bytes(), *_limits(), float("inf"))


def _limits() -> Iterator[float]:
    """Yields the limits of the control groups (versions 1 and 2) of this process, in bytes."""
    try:
        lines = os.fsdecode(OF_THIS_PROCESS.read_bytes()).split("\n")
    except OSError:  # another system
        return
    for line in lines:
        if line.count(":") < 2:
            continue
        _, controllers, group = line.split(":", 2)
        if not controllers:
            top, name = GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = top / group.lstrip("/")
        # In a container a group may be named as its host sees it; the container's own is the top.
        for folder in (place, *place.parents[:len(place.parts) - len(top.parts)]):
            with contextlib.suppress(OSError, ValueError):  # none here, or "max"
                if (limit := float((folder / name).read_text())) > 0:  # -1: none
                    yield limit


def _physical_bytes() -> float:
    if not WINDOWS:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    import ctypes

    class Status(ctypes.Structure):
        """MEMORYSTATUSEX of the Windows API."""

        _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32),
                    ("physical", ctypes.c_uint64), *((f"other{i}", ctypes.c_uint64)
                                                     for i in range(6))]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(  # type: ignore[attr-defined,unused-ignore]
        ctypes.byref(status))
    return float(status.physical)


Json = dict[str, Any]
"""An object of JSON: its values, by name."""
MAX_DEPTH = 50


def parse_json(data: bytes) -> Json:
    """Reads a JSON object with finite numbers and at most `MAX_DEPTH` levels.

    Raises:
        ValueError: The bytes are not such an object.
    """
    try:
        value = json.loads(data, parse_constant=_number, parse_float=_number, parse_int=_whole,
                           object_pairs_hook=_each_once)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    _check_depth(value)
    return value


def _number(text: str) -> float:
    """Parses a number, and refuses NaN and infinities, including 1e400."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20:  # more than any 64 bits
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _each_once(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a field is given twice")
    return made


def _check_depth(value: object) -> None:
    parts = [value]
    for _ in range(MAX_DEPTH):
        parts = [part for one in parts for part in (
            one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())]
    if parts:
        raise ValueError(f"more than {MAX_DEPTH} levels of nesting")


CHUNK = 2**20
JSON_BYTES = 2**28
"""The most bytes of a file of settings, statements or results: far more than any of them has."""

_allowed: contextvars.ContextVar[float | None] = contextvars.ContextVar("allowed", default=None)


def machine_bytes() -> float:
    """The memory of this machine, or of the container or job of this process, in bytes."""
    return usable_bytes()


def allowed_bytes() -> float:
    """The memory for reading one data set, in bytes: from `limited`, or the machine's."""
    limit = _allowed.get()
    return machine_bytes() if limit is None else limit


@contextmanager
def limited(max_gb: float | None) -> Iterator[None]:
    """Sets `allowed_bytes` to max_gb * 1e9 within the context; None changes nothing.

    Raises:
        UserError: max_gb is not above 0.
    """
    if max_gb is not None and not max_gb > 0:
        raise UserError(f"{option('max_gb')} is {max_gb}; it must be above 0")
    token = _allowed.set(_allowed.get() if max_gb is None else 1e9 * max_gb)
    try:
        yield
    finally:
        _allowed.reset(token)


def require_memory(what: str, needed: float) -> None:
    """Refuses an allocation that is too large, before it is made.

    Raises:
        UserError: `what` needs more bytes than are allowed.
    """
    limit = allowed_bytes()
    if needed > limit:
        raise UserError(f"{what} takes {needed / 1e9:.3g} GB of memory, and {limit / 1e9:.3g} GB "
                        "are allowed; use less data or "
                        f"smaller images, or raise {option('max_gb')}")


def exists(text: str) -> bool:
    """Returns whether a text is an existing path, and not a list of names."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # a name too long, a zero byte
        return False


def require_regular(path: Path) -> os.stat_result:
    """The status of a file.

    Raises:
        UserError: It is missing, or a FIFO, socket, device or folder, which may never end.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {path}: {why}") from error
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is not a regular file; give a file, not a folder, pipe or device")
    return status


def read_bytes(path: Path, limit: float | None = None) -> bytes:
    """Reads a regular file; a .gz file is unpacked.

    Args:
        limit: The most bytes, counted while a .gz file is unpacked; by default `allowed_bytes`.

    Raises:
        UserError: The file is missing, not a regular one, damaged or too large.
    """
    return b"".join(chunks(path, limit))


def chunks(path: Path, limit: float | None = None) -> Iterator[bytes]:
    """Yields the bytes of a regular file, `CHUNK` at a time; a .gz file is unpacked.

    Args:
        limit: As for `read_bytes`.

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

    Raises:
        UserError: The file is missing or not a regular one; or, while it is read, damaged.
    """
    require_regular(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            yield cast(BinaryIO, file)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); download it again") from error


def _too_large(path: Path, limit: float) -> UserError:
    return UserError(f"{path} is larger than the {limit / 1e9:.3g} GB that are allowed; give a "
                     f"smaller file, or raise {option('max_gb')}")


def content_of(path: Path) -> str:
    """Returns a digest of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_parquet() -> None:
    """Raises UserError if a package for Parquet files is missing."""
    if not all(importlib.util.find_spec(name) for name in ("pandas", "pyarrow")):
        raise UserError("a Parquet file needs pyarrow and pandas; pip install "
                        "'dpgen_jax[parquet]'")


def write_together(root: Path, files: Mapping[str, bytes]) -> None:
    """Writes files into `root`; the LAST one exists only while the others match it.

    All are on disk under other names before any old one is changed, so a full disk leaves the old
    ones. The old last file is removed before the others change, and the new one is renamed into
    place after they have changed.

    Raises:
        OSError: A file cannot be written.
    """
    root.mkdir(parents=True, exist_ok=True)
    *others, last = files
    try:
        for name, data in files.items():
            _write(_new(root / name), data)
    except OSError:
        for name in files:
            with contextlib.suppress(OSError):
                _new(root / name).unlink(missing_ok=True)
        raise
    (root / last).unlink(missing_ok=True)
    sync(root)
    for name in others:
        os.replace(_new(root / name), root / name)
    sync(root)
    os.replace(_new(root / last), root / last)
    sync(root)


def json_bytes(value: object) -> bytes:
    """The bytes of a value as strict JSON, in the form of the files of a run."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def sync(folder: Path) -> None:
    """Makes the names in a folder durable, if the system can (`shortfall`).

    Raises:
        OSError: The folder cannot be opened or flushed to disk.
    """
    if WINDOWS:  # which opens no folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
