"""Checkpoints: all state of a run in one directory that appears whole or not at all.

private/checkpoints/STEP/{note.json, PART, PART, ...}: each part is written by orbax, with its
checksums; large state comes in many parts, so that no second copy of it is held. Private state
passes through sealed. The ledger is not in here: the note names the ledger line at which the
checkpoint was taken, which must still be in the file when the run is resumed.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from dpgen_jax.run.folder import write_json
from dpgen_jax.types import UserError

# Orbax warns, once a leaf, of things that concern its own authors.
logging.getLogger("absl").setLevel(logging.ERROR)


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

    parts: (name, pytree of arrays), taken one at a time; note: JSON values. Errors: UserError
    when it cannot be written, the earlier checkpoints being intact.
    """
    unfinished = folder / f"{step}.unfinished"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for old in folder.glob("*.unfinished"):
            shutil.rmtree(old)
        unfinished.mkdir(mode=0o700)
        for name, tree in parts:
            _checkpointer().save((unfinished / name).absolute(), tree)
        write_json(unfinished / "note.json", note, mode=0o600)
    except (OSError, ValueError) as error:  # orbax turns a full disk into a ValueError
        why = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise UserError(f"checkpoint {folder / str(step)} cannot be written ({why}); earlier ones "
                        "are kept: free some space, then resume the run") from error
    if (folder / str(step)).exists():
        shutil.rmtree(folder / str(step))
    unfinished.rename(folder / str(step))
    for old in steps(folder)[:-keep]:
        shutil.rmtree(folder / str(old))


def note(folder: Path, step: int, *names: str) -> dict[str, Any]:
    """These values of a checkpoint's note. Errors: UserError when it is damaged or lacks one."""
    with _damage_named(folder, step) as path:
        held = json.loads((path / "note.json").read_text())
        return {name: held[name] for name in names}


def restore(folder: Path, step: int, name: str, like: Any) -> Any:
    """One part. like: its shapes and dtypes, numpy arrays for numpy arrays.

    Errors: UserError naming the checkpoint when it is truncated, altered or of another shape.
    """
    with _damage_named(folder, step) as path:
        read = _checkpointer().restore(
            path / name, item=like,
            restore_args=ocp.checkpoint_utils.construct_restore_args(like))
        for got, wanted in zip(jax.tree.leaves(read), jax.tree.leaves(like), strict=True):
            if got.shape != wanted.shape or got.dtype != wanted.dtype:
                raise ValueError(f"{got.dtype}{got.shape} in place of {wanted.dtype}{wanted.shape}")
        return read


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
