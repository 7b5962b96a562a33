"""Checkpoints: all state of a run in one directory that appears whole or not at all.

private/checkpoints/STEP/{note.json, PART, PART, ...}: each part is written by orbax, and its
checksum is in the note, as orbax has none for the values of large arrays; large state comes in
many parts, so that no second copy of it is held. Of several processes each writes the parts of its
own units, as safetensors, since orbax writes arrays of the host for the first process alone; all
must see one disk, and any number of processes reads either. Private state passes through sealed.
The ledger is not in here: the note names the ledger line at which the checkpoint was taken, which
must still be in the file when the run is resumed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from safetensors import safe_open
from safetensors.numpy import save_file

from dpgen_jax.core import hosts
from dpgen_jax.core.reading import require_regular
from dpgen_jax.core.types import UserError
from dpgen_jax.run.folder import write_json
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
FULL = os.strerror(errno.ENOSPC)
BYTES = ".safetensors"


def _checkpointer() -> ocp.Checkpointer:
    # Synchronous, a gigabyte at a time: the default may hold a second copy.
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(
        save_concurrent_gb=1, restore_concurrent_gb=1))


def steps(folder: Path) -> list[int]:
    """Steps of the completed checkpoints, ascending. Unfinished ones carry another name."""
    return sorted(int(p.name) for p in folder.glob("*") if p.is_dir() and p.name.isdigit())


def save(folder: Path, step: int, parts: Iterable[tuple[str, Any]], note: dict[str, Any],
         keep: int) -> None:
    """Writes folder/STEP, then removes all but the newest `keep`.

    parts: (name, pytree of arrays), taken one at a time; note: JSON values.

    Raises:
        UserError: When it cannot be written, the earlier checkpoints being intact.
    """
    unfinished = folder / f"{step}.unfinished"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        thin(folder, keep)
        unfinished.mkdir(mode=0o700)
        hosts.tell("save", {"folder": str(unfinished.absolute())})
        sums = write_parts(unfinished, parts)
        write_json(unfinished / "note.json", note | {"crc32": sums}, mode=0o600)
        _owner_only(unfinished)
        if (folder / str(step)).exists():
            shutil.rmtree(folder / str(step))
        unfinished.rename(folder / str(step))
    except Exception as error:  # orbax raises many kinds for one cause, and for a full disk too
        shutil.rmtree(unfinished, ignore_errors=True)  # the space may be needed for the release
        why = FULL if FULL in str(error) else reason(error)[:120]  # deep in what orbax says
        raise UserError(f"checkpoint {folder / str(step)} cannot be written ({why}); earlier ones "
                        "are kept: free some space, then resume the run") from error
    thin(folder, keep)


def write_parts(folder: Path, parts: Iterable[tuple[str, Any]]) -> dict[str, int]:
    """Writes this process's parts, while every other process writes its own.

    Args:
        folder: The unfinished checkpoint, on a disk that all processes see.
        parts: Their names and pytrees of arrays, taken one at a time.

    Returns:
        The checksums of the parts of all processes.

    Raises:
        Exception: What went wrong here.
        OSError: Naming what went wrong at another process.
    """
    sums, fault = {}, None
    try:
        for name, tree in parts:
            sums[name] = _checksum(tree)
            _write(folder / name, tree)
    except Exception as error:  # the others wait to hear of it
        fault = error
    each = hosts.gather({"sums": sums, "fault": fault and reason(fault)})
    if fault:
        raise fault
    for i, other in enumerate(each):
        if other["fault"]:
            raise OSError(f"process {i}: {other['fault']}")
    return {name: total for other in each for name, total in other["sums"].items()}


def _write(path: Path, tree: Any) -> None:
    """Writes one part."""
    if hosts.count() == 1:
        _checkpointer().save(path.absolute(), tree)
        return
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(tree)]
    save_file({f"{i:05d}": leaf.reshape(-1).view(np.uint8) for i, leaf in enumerate(leaves)},
              path.with_suffix(BYTES), metadata={
                  f"{i:05d}": json.dumps([leaf.dtype.name, leaf.shape])
                  for i, leaf in enumerate(leaves)})


def _read(path: Path, like: Any) -> Any:
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


def thin(folder: Path, keep: int) -> int:
    """Removes all but the newest `keep` checkpoints.

    Unfinished ones go too, to which orbax may write a while after it failed.

    Args:
        folder: The folder of the checkpoints.
        keep: How many are kept.

    Returns:
        How many were removed.
    """
    old = [*(folder / str(step) for step in steps(folder)[:-keep]), *folder.glob("*.unfinished")]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return len(old)


def _owner_only(folder: Path) -> None:
    """Makes files 0600 and folders 0700, whatever the umask that orbax wrote them under.

    Until here private/ and the folder itself kept others out.
    """
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def note(folder: Path, step: int, *names: str) -> dict[str, Any]:
    """These values of a checkpoint's note.

    Raises:
        UserError: When it is damaged or lacks one.
    """
    with _damage_named(folder, step) as path:
        require_regular(path / "note.json")
        written = json.loads((path / "note.json").read_text())
        return {name: written[name] for name in names}


def part_names(folder: Path, step: int) -> list[str]:
    """The names of the parts of a checkpoint."""
    return [path.stem for path in (folder / str(step)).iterdir() if path.name != "note.json"]


def _checksum(tree: Any) -> int:
    """CRC-32 over the bytes of all arrays: against accidents, not against people."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        total = zlib.crc32(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data, total)
    return total


def restore(folder: Path, step: int, name: str, like: Any) -> Any:
    """One part, as numpy arrays. like: its shapes and dtypes; floats are cast to its precision.

    Raises:
        UserError: Naming the checkpoint when it is truncated, altered or of another shape.
    """
    with _damage_named(folder, step) as path:
        read = _read(path / name, like)
        known = json.loads((path / "note.json").read_text()).get("crc32", {}).get(name)
        if known is not None and _checksum(read) != known:
            raise ValueError("the checksum differs")
        return jax.tree.map(_cast, read, like)


def _cast(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    floats = all(jax.numpy.issubdtype(a.dtype, jax.numpy.floating) for a in (got, wanted))
    if got.shape != wanted.shape or not (floats or got.dtype == wanted.dtype):
        raise ValueError(f"{got.dtype}{got.shape} in place of {wanted.dtype}{wanted.shape}")
    return got.astype(wanted.dtype, copy=False)


@contextmanager
def _damage_named(folder: Path, step: int) -> Iterator[Path]:
    path = (folder / str(step)).absolute()
    try:
        yield path
    except Exception as error:  # orbax raises many kinds for one cause: the files are damaged
        others = [s for s in steps(folder) if s < step]
        mend = (f"remove it to go on from step {others[-1]}" if others
                else "no earlier one is left, so start a new run")
        raise UserError(f"checkpoint {path} is damaged ({type(error).__name__}); {mend}. "
                        "What was spent stays spent") from error
