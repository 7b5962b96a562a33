"""Checkpoints, which appear whole or not at all.

A checkpoint is a folder private/checkpoints/STEP/{note.json, PART, PART, ...}. The ledger is not in
it: the note names the ledger line at which the checkpoint was taken, which must still be in the
file when the run is resumed. That line was on the disk before, so no checkpoint is ahead of its
ledger, however long a thread takes to write it during the training. Private state passes through
sealed.

Parts. Each part is a tree of arrays, a safetensors file on a disk that all processes see: bytes by
the names of the arrays, and their types and shapes. Its checksum is in the note. Large state comes
in many parts, so that writing needs no second copy of it, except for the copy from which a thread
writes during the training. Each process writes the parts of its own units, and any number of
processes reads them. Earlier versions wrote with orbax, or named the arrays of a file by number.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import json
import logging
import os
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from dpgen_jax.core import hosts
from dpgen_jax.core.files import Json, require_regular
from dpgen_jax.core.run_folder import RunFolder, write_json
from dpgen_jax.core.types import Method, Private, PyTree, UserError
from dpgen_jax.private import streaming, teachers
from dpgen_jax.private.teachers import put
from dpgen_jax.run import capacity
from dpgen_jax.run.loop import Job, State
from dpgen_jax.run.progress import reason

BYTES = ".safetensors"


class Parts:
    """The parts of a checkpoint that this process writes, while every other writes its own."""

    def __init__(self, folder: Path, parts: Iterable[tuple[str, Any]], beside: bool):
        """Begins to write them, beside the training or at once; `sums` raises what fails."""
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
        fault = self._fault or (None if self._whole else OSError("writing it was interrupted"))
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
                write_part(folder / name, tree)
            self._whole = True
        except Exception as error:  # the others wait to hear of it
            self._fault = error


def write_part(path: Path, tree: PyTree) -> None:
    """Writes one part; it is on the disk when the call returns."""
    leaves = {name: np.asarray(leaf, order="C")
              for name, leaf in zip(_names(tree), jax.tree.leaves(tree), strict=True)}
    forms = {name: json.dumps([leaf.dtype.name, leaf.shape]) for name, leaf in leaves.items()}
    file = path.with_suffix(BYTES)
    save_file({name: leaf.reshape(-1).view(np.uint8) for name, leaf in leaves.items()}, file,
              metadata=forms)
    with file.open("rb+") as written:
        os.fsync(written.fileno())


def _names(tree: PyTree) -> list[str]:
    """Returns the names of the arrays of a tree: their paths."""
    return [jax.tree_util.keystr(path, simple=True, separator="/")
            for path, _ in jax.tree.leaves_with_path(tree)]


def read_part(path: Path, like: PyTree) -> Any:
    """Reads one part, in the form of `like` and the types that it was written in."""
    stored, names = path.with_suffix(BYTES), _names(like)
    if not stored.exists():
        return _read_by_orbax(path, like)
    require_regular(stored)
    with safe_open(stored, "np") as file:
        form = {name: json.loads(text) for name, text in file.metadata().items()}
        if all(name.isdigit() for name in form):  # by several processes of an earlier version
            names = sorted(form)
        if set(names) != set(form):
            raise ValueError("it has other arrays")
        leaves = [file.get_tensor(name).view(jax.numpy.dtype(form[name][0])).reshape(form[name][1])
                  for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _read_by_orbax(path: Path, like: PyTree) -> Any:
    """Reads a part that an earlier version wrote."""
    import orbax.checkpoint as ocp

    # It warns, once a leaf, of things that concern its own authors.
    logging.getLogger("absl").setLevel(logging.CRITICAL + 1)
    for file in path.rglob("*"):
        if not file.is_dir():
            require_regular(file)  # orbax would wait for a pipe without end
    as_saved = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like)
    reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(restore_concurrent_gb=1))
    return reader.restore(path, item=like, restore_args=as_saved)


def checksum(tree: PyTree) -> int:
    """CRC-32 over the bytes of all arrays: against accidents, not against people."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        total = zlib.crc32(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data, total)
    return total


FULL = os.strerror(errno.ENOSPC)


def steps(folder: Path) -> list[int]:
    """Steps of the completed checkpoints, ascending. Unfinished ones carry another name."""
    return sorted(int(p.name) for p in folder.glob("*") if p.is_dir() and p.name.isdigit())


def save(folder: Path, step: int, parts: Iterable[tuple[str, Any]], note: Json,
         keep: int) -> None:
    """Writes folder/STEP, then removes all but the newest `keep`.

    `parts` are names and pytrees of arrays, taken one at a time.

    Raises:
        UserError: When it cannot be written, the earlier checkpoints being intact.
    """
    begin(folder, step, parts, note, keep, beside=False).finish()


def begin(folder: Path, step: int, parts: Iterable[tuple[str, Any]], note: Json,
          keep: int, beside: bool) -> Saving:
    """Begins a checkpoint, as `save` does; it is one when `Saving.finish` has ended.

    `parts` are names and pytrees of arrays that nobody changes. With `beside` all are taken now,
    and written by a thread while the training goes on; else each is taken and written now.

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
        note: JSON values, of the moment at which it was begun.
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
        except Exception as error:  # safetensors has one kind of its own for all causes
            shutil.rmtree(self.unfinished, ignore_errors=True)  # the release may need the space
            why = FULL if FULL in str(error) else reason(error)[:120]
            raise UserError(f"checkpoint {self.folder / str(self.step)} cannot be written ({why}); "
                            "earlier ones are kept: free some space, then resume the run"
                            ) from error


def thin(folder: Path, keep: int) -> int:
    """Removes all but the newest `keep` checkpoints, and returns how many were removed.

    Unfinished ones go too.
    """
    old = [*(folder / str(step) for step in steps(folder)[:-keep]), *folder.glob("*.unfinished")]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return len(old)


def _owner_only(folder: Path) -> None:
    """Makes files 0600 and folders 0700, whatever the umask that they were written under.

    Until here private/ and the folder itself kept others out.
    """
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def note_checkpoint(folder: Path, step: int, *names: str) -> Json:
    """Returns the named values of a checkpoint's note.

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
        stored = read_part(path / name, like)
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
    except Exception as error:  # of many kinds for one cause: the files are damaged
        others = [s for s in steps(folder) if s < step]
        mend = (f"remove it to go on from step {others[-1]}" if others
                else "no earlier one is left, so start a new run")
        raise UserError(f"checkpoint {path} is damaged ({type(error).__name__}); {mend}. "
                        "What was spent stays spent") from error


def begin_state(files: RunFolder, state: State, job: Job, keep: int) -> Saving:
    """Begins a checkpoint that names the ledger line at which it is taken.

    It is written during the training where the memory has room for a copy of the state, and the
    state itself lies on the devices.

    The state may change once this has returned.

    Raises:
        UserError: Where it cannot be written.
    """
    if state.units is None:
        raise ValueError("the units of this state are gone")
    units, layout, ledger = state.units, job.layout, job.ledger
    size = streaming.block_size(job.method)

    def parts() -> Iterator[tuple[str, Any]]:
        # Copies: on CPU an array of the host may be the very memory that a step updates in place.
        yield "public", jax.tree.map(np.array, {
            "public": jax.device_get(state.public), "key": jax.random.key_data(state.key)})
        yield from unit_parts(units, layout, size)

    return begin(
        files.checkpoints, state.step, parts(), keep=keep,
        beside=not layout.slab and capacity.copy_fits(job.method),
        note={"ledger_head": ledger.head, "ledger_lines": ledger.n_lines, "block_size": size})


def unit_parts(units: Private[teachers.Units], layout: teachers.Layout, size: int
               ) -> Iterator[tuple[str, Private[teachers.Units]]]:
    """Yields the names and blocks that this process writes of its units, `size` units each."""
    for block in streaming.blocks(units, layout, size):
        first = streaming.first_unit(block)
        yield f"units-{first // size:05d}" + f"-{first:07d}" * bool(first % size), block


def _unit_blocks(names: Iterable[str], n_units: int, size: int) -> list[tuple[str, int, int]]:
    """Returns (name, first unit, count) of all parts that hold units, which leave none out.

    A block begins at a multiple of `size`, by which it is numbered, or where a process's units do,
    of which the first one stands behind the number; it ends where the next one begins.
    """
    firsts = {}
    for name in (name for name in names if name.startswith("units-")):
        number, *first = (int(part) for part in name.split("-")[1:])
        firsts[first[0] if first else number * size] = name
    starts = sorted(firsts | {0: firsts.get(0, "units-00000")})
    return [(firsts.get(first, "units-00000"), first, last - first)
            for first, last in zip(starts, [*starts[1:], n_units], strict=True)]


def restore_state(folder: Path, method: Method, layout: teachers.Layout, step: int) -> State:
    """Restores the state at checkpoint `step`, laid out for these devices.

    Raises:
        UserError: For a damaged checkpoint.
    """
    size = note_checkpoint(folder, step, "block_size")["block_size"]
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: {"public": method.init(key), "key": jax.random.key_data(key)})
    public = restore(folder, step, "public", jax.tree.map(
        lambda a: np.empty(a.shape, a.dtype), shapes))
    start, stop = layout.local_units

    def parts() -> Iterator[Private[teachers.Units]]:
        names = part_names(folder, step)
        for name, first, count in _unit_blocks(names, layout.n_units, size):
            if first < stop and first + count > start:
                yield restore(folder, step, name, streaming.like(method, count))

    return State(jax.tree.map(lambda a: put(np.asarray(a), layout.replicated),
                              public["public"]),
                 streaming.assemble(parts(), method, layout),
                 jax.random.wrap_key_data(public["key"]), step)
