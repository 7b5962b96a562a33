"""An exclusive lock on a file: it ends with the process that holds it, however that ends.

A lock belongs to one opening of the file, so that a second one is refused in the same process, in
another thread and in another process alike. A forked child shares its parent's.
"""

from __future__ import annotations

import os
from pathlib import Path

import filelock

from dpgen_jax.core.platforms import WINDOWS

BESIDE = WINDOWS
"""Nobody else can read a file that is locked on Windows: there NAME.lock stands for it."""


def hold(path: Path, descriptor: int, create: bool = True) -> int:
    """Locks a file, or fails at once.

    Args:
        path: The file.
        descriptor: Open on it; the caller's, before and after.
        create: Whether a file beside it may be made, where one stands for it.

    Returns:
        The descriptor that holds the lock until it is closed: the one that was given, or another.

    Raises:
        BlockingIOError: It is locked.
        OSError: Its file system has no locks; or no file is beside it, and none may be made.
    """
    holder = descriptor
    if BESIDE:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        holder = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        if not filelock.lock_descriptor(holder, blocking=False):
            raise BlockingIOError(None, "it is in use")
    except BaseException:
        give_up(holder, descriptor)
        raise
    return holder


def give_up(holder: int, descriptor: int) -> None:
    """Closes what `hold` opened; a lock of the file itself ends where its owner closes it.

    Args:
        holder: What `hold` returned.
        descriptor: What it was given.
    """
    if holder not in (-1, descriptor):
        os.close(holder)
