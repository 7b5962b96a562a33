"""Checkpoints: all state of a run in one directory that appears whole or not at all.

private/checkpoints/STEP/{note.json, PART, PART, ...}: `checkpoint_parts` writes and reads the
parts. Private state passes through sealed. The ledger is not in here: the note names the ledger
line at which the checkpoint was taken, which must still be in the file when the run is resumed.
That line was on the disk before: however long a thread writes beside the training, no checkpoint is
ahead of its ledger.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax.core import hosts
from dpgen_jax.core.reading import require_regular
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import PyTree, UserError
from dpgen_jax.run.checkpoint_parts import Parts, checksum, read
from dpgen_jax.run.folder import write_json
from dpgen_jax.run.progress import reason

FULL = os.strerror(errno.ENOSPC)


def steps(folder: Path) -> list[int]:
    """Steps of the completed checkpoints, ascending. Unfinished ones carry another name."""
    return sorted(int(p.name) for p in folder.glob("*") if p.is_dir() and p.name.isdigit())


def save(folder: Path, step: int, parts: Iterable[tuple[str, Any]], note: Json,
         keep: int) -> None:
    """Writes folder/STEP, then removes all but the newest `keep`.

    Args:
        folder: The folder of the checkpoints.
        step: The step.
        parts: Names and pytrees of arrays, taken one at a time.
        note: JSON values.
        keep: How many checkpoints are kept.

    Raises:
        UserError: When it cannot be written, the earlier checkpoints being intact.
    """
    begin(folder, step, parts, note, keep, beside=False).finish()


def begin(folder: Path, step: int, parts: Iterable[tuple[str, Any]], note: Json,
          keep: int, beside: bool) -> Saving:
    """Begins a checkpoint, as `save` does; it is one when `Saving.finish` has ended.

    Args:
        folder: The folder of the checkpoints.
        step: The step.
        parts: Names and pytrees of arrays that nobody changes, taken one at a time.
        note: JSON values.
        keep: How many checkpoints are kept.
        beside: Whether all parts are taken now, and written by a thread while the training goes
            on; else each is taken and written now.

    Raises:
        UserError: As `save`.
    """
    saving = Saving(folder, step, note, keep)
    with saving.failure_named():
        folder.mkdir(mode=0o700, exist_ok=True)
        thin(folder, keep)
        saving.unfinished.mkdir(mode=0o700)
        hosts.tell("save", {"folder": str(saving.unfinished.absolute()), "beside": beside})
        saving.parts = Parts(saving.unfinished, parts, beside)
    return saving


@dataclasses.dataclass
class Saving:
    """A checkpoint that was begun.

    Attributes:
        folder: The folder of the checkpoints.
        step: The step.
        note: JSON values, of the moment at which it was begun.
        keep: How many checkpoints are kept.
        parts: Those of this process.
    """

    folder: Path
    step: int
    note: Json
    keep: int
    parts: Parts = dataclasses.field(init=False)

    @property
    def unfinished(self) -> Path:
        """Its folder, until it is in its place."""
        return self.folder / f"{self.step}.unfinished"

    def finish(self) -> None:
        """Waits until it is written, puts it in its place, and removes the oldest.

        Raises:
            UserError: As `save`.
        """
        place = self.folder / str(self.step)
        with self.failure_named():
            hosts.tell("saved")
            sums = self.parts.sums()
            write_json(self.unfinished / "note.json", self.note | {"crc32": sums}, mode=0o600)
            _owner_only(self.unfinished)
            old = self.folder / f"{self.step}.old.unfinished"
            if place.exists():  # before the first step there is one after the other
                place.rename(old)
            self.unfinished.rename(place)
            shutil.rmtree(old, ignore_errors=True)
        thin(self.folder, self.keep)

    @contextmanager
    def failure_named(self) -> Iterator[None]:
        """Makes one clear line of what fails within, and removes what was begun."""
        try:
            yield
        except Exception as error:  # orbax raises many kinds for one cause, and for a full disk too
            shutil.rmtree(self.unfinished, ignore_errors=True)  # the release may need the space
            why = FULL if FULL in str(error) else reason(error)[:120]  # deep in what orbax says
            raise UserError(f"checkpoint {self.folder / str(self.step)} cannot be written ({why}); "
                            "earlier ones are kept: free some space, then resume the run"
                            ) from error


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


def note(folder: Path, step: int, *names: str) -> Json:
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


def restore(folder: Path, step: int, name: str, like: PyTree) -> Any:
    """One part, as numpy arrays. like: its shapes and dtypes; floats are cast to its precision.

    Raises:
        UserError: Naming the checkpoint when it is truncated, altered or of another shape.
    """
    with _damage_named(folder, step) as path:
        stored = read(path / name, like)
        known = json.loads((path / "note.json").read_text()).get("crc32", {}).get(name)
        if known is not None and checksum(stored) != known:
            raise ValueError("the checksum differs")
        return jax.tree.map(_cast, stored, like)


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
