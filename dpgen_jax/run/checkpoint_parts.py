"""The parts of a checkpoint: a tree of arrays each, on the disk of all processes.

Each part is written by orbax, and its checksum is in the checkpoint's note, as orbax has none for
the values of large arrays; large state comes in many parts, so that writing needs no second copy of
it, but for the one from which a thread writes beside the training. Of several processes each writes
the parts of its own units, as safetensors, since orbax writes arrays of the host for the first
process alone; all must see one disk, and any number of processes reads either.
"""

from __future__ import annotations

import collections
import json
import logging
import sys
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from safetensors import safe_open
from safetensors.numpy import save_file

from dpgen_jax.core import hosts
from dpgen_jax.core.reading import require_regular
from dpgen_jax.core.types import PyTree
from dpgen_jax.run.progress import reason

# Orbax warns, once a leaf, of things that concern its own authors, and prints tracebacks of errors
# that it also raises, before and after.
logging.getLogger("absl").setLevel(logging.CRITICAL + 1)


def _without_late_writes(report: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A hook of `sys` that leaves out the writes that end after the one that failed was raised."""
    def hook(about: Any) -> None:
        if str(about.exc_value) != "Event loop is closed":
            report(about)

    return hook


sys.unraisablehook = _without_late_writes(sys.unraisablehook)


def _no_late_write(record: logging.LogRecord) -> bool:
    """Returns False for the report of a write that failed after another, whose error was raised."""
    text = record.getMessage()
    return not ("exception was never retrieved" in text and "orbax-checkpoint-tmp" in text)


logging.getLogger("asyncio").addFilter(_no_late_write)
BYTES = ".safetensors"


def _checkpointer() -> ocp.Checkpointer:
    # Synchronous, a gigabyte at a time: the default may hold a second copy.
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(
        save_concurrent_gb=1, restore_concurrent_gb=1))


class Parts:
    """The parts of a checkpoint that this process writes, while every other writes its own."""

    def __init__(self, folder: Path, parts: Iterable[tuple[str, Any]], beside: bool):
        """Begins to write them; what fails is told by `sums`.

        Args:
            folder: The unfinished checkpoint, on a disk that all processes see.
            parts: Their names and pytrees of arrays that nobody changes, taken one at a time.
            beside: As in `begin`.
        """
        self._sums: dict[str, int] = {}
        self._fault: Exception | None = None
        self._whole = False
        self._thread: threading.Thread | None = None
        if not beside:
            self._write(folder, parts)
            return
        try:
            taken = collections.deque(parts)
        except Exception as error:  # of memory, or of a device
            self._fault = error
            return
        each = (taken.popleft() for _ in range(len(taken)))  # written, its memory is free
        self._thread = threading.Thread(target=self._write, args=(folder, each), daemon=True,
                                        name="checkpoint")
        self._thread.start()

    @property
    def written(self) -> bool:
        """Whether `sums` need not wait for this process."""
        return self._thread is None or not self._thread.is_alive()

    def sums(self) -> dict[str, int]:
        """Waits until all processes have written; returns the checksums of the parts of all.

        Raises:
            Exception: What went wrong here.
            OSError: Naming what went wrong at another process.
        """
        if self._thread:
            self._thread.join()
        fault = self._fault or (None if self._whole else OSError("writing it was broken off"))
        each = hosts.gather({"sums": self._sums, "fault": fault and reason(fault)})
        if fault:
            raise fault
        for i, other in enumerate(each):
            if other["fault"]:
                raise OSError(f"process {i}: {other['fault']}")
        return {name: total for other in each for name, total in other["sums"].items()}

    def _write(self, folder: Path, parts: Iterable[tuple[str, Any]]) -> None:
        try:
            for name, tree in parts:
                self._sums[name] = checksum(tree)
                write(folder / name, tree)
            self._whole = True
        except Exception as error:  # the others wait to hear of it
            self._fault = error


def write(path: Path, tree: PyTree) -> None:
    """Writes one part."""
    if hosts.count() == 1:
        _checkpointer().save(path.absolute(), tree)
        return
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(tree)]
    save_file({f"{i:05d}": leaf.reshape(-1).view(np.uint8) for i, leaf in enumerate(leaves)},
              path.with_suffix(BYTES), metadata={
                  f"{i:05d}": json.dumps([leaf.dtype.name, leaf.shape])
                  for i, leaf in enumerate(leaves)})


def read(path: Path, like: PyTree) -> Any:
    """Reads one part, in the form of `like` and the types that it was written in."""
    stored = path.with_suffix(BYTES)
    if stored.exists():
        require_regular(stored)
        with safe_open(stored, "np") as file:
            form = {name: json.loads(text) for name, text in file.metadata().items()}
            leaves = [file.get_tensor(name).view(jax.numpy.dtype(form[name][0])).reshape(
                form[name][1]) for name in sorted(file.keys())]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)
    for file in path.rglob("*"):
        if not file.is_dir():
            require_regular(file)  # orbax would wait for a pipe without end
    as_saved = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like)
    return _checkpointer().restore(path, item=like, restore_args=as_saved)


def checksum(tree: PyTree) -> int:
    """CRC-32 over the bytes of all arrays: against accidents, not against people."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        total = zlib.crc32(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data, total)
    return total
