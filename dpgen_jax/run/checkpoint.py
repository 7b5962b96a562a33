"""Checkpoints: all state of a run in one atomic directory, through orbax. Never part of a release.

Private state passes through sealed. The ledger is not in here: a checkpoint only names the ledger
line at which it was taken, which must still be in the file when it is resumed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from dpgen_jax.types import UserError


def _checkpointer() -> ocp.Checkpointer:
    # Synchronous, a gigabyte at a time: the default holds a second copy of the teachers.
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(
        save_concurrent_gb=1, restore_concurrent_gb=1))


def steps(folder: Path) -> list[int]:
    """Steps of the completed checkpoints, ascending. Unfinished ones carry another name."""
    return sorted(int(p.name) for p in folder.glob("*") if p.is_dir() and p.name.isdigit())


def save(folder: Path, step: int, state: Any, note: dict[str, Any], keep: int) -> None:
    """Writes folder/STEP whole or not at all, then removes all but the newest `keep`.

    note: JSON values that belong to the state. Errors: OSError or ValueError, the earlier
    checkpoints being intact.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    text = np.frombuffer(json.dumps(note).encode(), np.uint8)
    _checkpointer().save((folder / str(step)).absolute(), {"state": state, "note": text},
                         force=True)
    for old in steps(folder)[:-keep]:
        shutil.rmtree(folder / str(old))


def note(folder: Path, step: int) -> dict[str, Any]:
    """The note that was saved with a checkpoint. Errors: as `restore`."""
    with _damage_named(folder, step) as path:
        read = _checkpointer().restore(path, item={"note": np.zeros(0, np.uint8)}, transforms={},
                                       restore_args={"note": ocp.RestoreArgs(np.ndarray)})
        return json.loads(np.asarray(read["note"]).tobytes())


def restore(folder: Path, step: int, like: Any) -> Any:
    """The state of a checkpoint. like: its shapes, dtypes and shardings.

    Errors: UserError naming the checkpoint when it is truncated, altered or of another shape.
    """
    with _damage_named(folder, step) as path:
        target = {"state": like}
        return _checkpointer().restore(
            path, item=target, transforms={},
            restore_args=ocp.checkpoint_utils.construct_restore_args(target))["state"]


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


def like(tree: Any, sharding: Any) -> Any:
    """Shapes and dtypes of `tree`, all leaves with one sharding, for `restore`."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree)
