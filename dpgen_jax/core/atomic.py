"""Several files that belong together, on disk or not: whatever the moment of a crash."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from dpgen_jax.core.platforms import WINDOWS


def write_together(root: Path, files: Mapping[str, bytes]) -> None:
    """Writes files into `root`, of which the LAST is what the others speak of.

    All are on disk under other names before any old one is touched, so a full disk leaves the old
    ones. The old last file goes before the others change, and the new one comes when they have:
    where it is there, they are its own.

    Raises:
        OSError: .
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
    """As files of a run hold it."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def sync(folder: Path) -> None:
    """Makes the names in a folder durable, where the system can (`platforms.shortfall`).

    Raises:
        OSError: .
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
