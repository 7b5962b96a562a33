"""Features that some operating systems have and others lack, looked up in one place.

Windows has no call that makes the names in a folder durable, its files have no owner's mode, and it
opens files as text unless told otherwise. Imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

WINDOWS = os.name == "nt"
BINARY: int = getattr(os, "O_BINARY", 0)
"""for `os.open`: Windows would write a carriage return before each newline"""

GROUPS, OF_THIS_PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""where Linux has its groups of processes, and which of them this process is in"""


def shortfall() -> str:
    """Returns what this system cannot promise of a run folder, a line to show; empty elsewhere."""
    if not WINDOWS:
        return ""
    return ("note: on Windows, who may read a run folder is decided by the folder in which it "
            "lies, so choose one of your own; and where the machine loses power, the newest files "
            "may be lost: a run that lost its ledger so is not gone on with")


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_bytes() -> float:
    """Returns the memory that this process may use, bytes: of the machine, or of its container.

    Containers and batch systems such as SLURM limit groups of processes.
    """
    return min(_physical_bytes(), *_limits(), float("inf"))


def _limits() -> Iterator[float]:
    """Yields the limits of the groups that this process is in, bytes; of both versions of them."""
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
    """Returns the physical memory of this machine, bytes."""
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
