"""Checkpoints, which appear whole or not at all, and the start of a run or its resumption.

A checkpoint is a folder private/checkpoints/STEP/{note.json, PART, PART, ...}. The ledger is not in
it: the note names the ledger line at which the checkpoint was taken, which must still be in the
file when the run is resumed. That line was on the disk before, so no checkpoint is ahead of its
ledger, however long a thread takes to write it during the training. Private state passes through
sealed.

Parts. Each part is a tree of arrays, on a disk that all processes see. Orbax writes it, and its
checksum is in the note, as orbax has none for the values of large arrays. Large state comes in many
parts, so that writing needs no second copy of it, except for the copy from which a thread writes
during the training. Of several processes each writes the parts of its own units, as safetensors,
since orbax writes arrays of the host for the first process only. Any number of processes reads
either form.

Start and resumption. The records must be those of the first start, dealt to the same units (a keyed
fingerprint in private state). The ledger must contain the line at which the checkpoint was taken,
charge all steps that metrics and votes record, and be the one that this machine's journal last saw.
Steps that were charged and lost stay charged. Noise bits are always fresh.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import json
import logging
import os
import secrets
import shutil
import sys
import threading
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

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.ledger import NOBODY, Account, Ledger, Witness
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core import hosts, run_folder, storage
from dpgen_jax.core.config import Runtime, digest
from dpgen_jax.core.files import Json, require_regular, sync
from dpgen_jax.core.run_folder import MEANING, RunFolder, environment, go_on, read_json, write_json
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Method, Private, PyTree, Records, UserError
from dpgen_jax.data.images.files import Form
from dpgen_jax.private import kept_votes, streaming, teachers
from dpgen_jax.private.records import Partition, fingerprint
from dpgen_jax.private.teachers import put
from dpgen_jax.run import capacity
from dpgen_jax.run.loop import Job, State, initial_state
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
        """Begins to write them; `sums` raises what fails.

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
                write_part(folder / name, tree)
            self._whole = True
        except Exception as error:  # the others wait to hear of it
            self._fault = error


def write_part(path: Path, tree: PyTree) -> None:
    """Writes one part."""
    if hosts.count() == 1:
        _checkpointer().save(path.absolute(), tree)
        return
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(tree)]
    save_file({f"{i:05d}": leaf.reshape(-1).view(np.uint8) for i, leaf in enumerate(leaves)},
              path.with_suffix(BYTES), metadata={
                  f"{i:05d}": json.dumps([leaf.dtype.name, leaf.shape])
                  for i, leaf in enumerate(leaves)})


def read_part(path: Path, like: PyTree) -> Any:
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
            why = FULL if FULL in str(error) else reason(error)[:120] # deep in the message of orbax
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
    except Exception as error:  # orbax raises many kinds for one cause: the files are damaged
        others = [s for s in steps(folder) if s < step]
        mend = (f"remove it to go on from step {others[-1]}" if others
                else "no earlier one is left, so start a new run")
        raise UserError(f"checkpoint {path} is damaged ({type(error).__name__}); {mend}. "
                        "What was spent stays spent") from error


def begin_state(files: RunFolder, state: State, job: Job, keep: int) -> Saving:
    """Begins a checkpoint that names the ledger line at which it is taken.

    It is written during the training where the memory has room for a copy of the state, and the
    state itself lies on the devices.

    Args:
        files: The run folder.
        state: A state whose units are there; it may change once this has returned.
        job: The method, its layout and the run's open ledger.
        keep: How many checkpoints are kept.

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
    """Yields the parts of a checkpoint that this process writes of its units.

    Args:
        units: Sealed units on their devices.
        layout: How they lie there.
        size: Units of one block.

    Yields:
        The name of a part, and the block.
    """
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

    Args:
        folder: The folder of the checkpoints.
        method: The method, built.
        layout: How the units lie on the devices.
        step: The checkpoint.

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


# What a resume may not change. The seed is one of them: noise of a seeded run has no privacy claim.
FIXED = (*MEANING, "seed", "data_notes", "judged_by")
LATER_NOTES = Form(None, None, False).notes
"""Notes that runs of earlier versions lack. Their records are compared by fingerprint anyway."""


def refuse_used(root: Path) -> None:
    """Refuses a folder for a new run that holds anything, or is not a folder of a disk.

    Raises:
        UserError: For such a folder.
    """
    storage.refuse_remote(root)
    if root.exists() and not (root.is_dir() and RunFolder(root).unused()):
        contents = "a run" if (root / "config.json").exists() else "other files"
        resumed = f"go on with it: {go_on(root)}, or " * (contents == "a run")
        raise UserError(f"{root} holds {contents}; {resumed}name another --out")


def create(root: Path, config: Json) -> RunFolder:
    """Makes the folder of a new run.

    Raises:
        UserError: When the folder holds anything, which is left untouched; the remains of a start
            that was killed before it wrote config.json do not count.
    """
    folder = RunFolder(root)
    refuse_used(root)
    folder.root.mkdir(parents=True, exist_ok=True)
    sync(folder.root.absolute().parent)
    folder.private.mkdir(mode=0o700, exist_ok=True)
    write_json(folder.config, config | {"run": secrets.token_hex(16)} | environment())
    return folder


def opened(root: Path, config: Json, resume: bool) -> RunFolder:
    """A new run, one to go on with, or one that has begun with a purchase. Raises: as both."""
    folder = RunFolder(root)
    if not folder.waiting:
        return (reopen if resume else create)(root, config)
    before = read_json(folder.config)
    write_json(folder.config, config | {"run": folder.run_id(), "purchase": before["purchase"]}
               | environment())
    return folder


def reopen(root: Path, config: Json) -> RunFolder:
    """Opens an existing run to go on with.

    Raises:
        UserError: When there is none, or when a field that decides the meaning of the run differs;
            the message lists the differences.
    """
    folder = RunFolder(root)
    if not folder.config.is_file():
        raise UserError(f"{root} holds no run to resume (no config.json); leave out --resume")
    before = read_json(folder.config)
    if changes := _changes(before, config):
        unknown = [name for name, _, _ in changes if name.startswith("config.")
                   and name.split(".")[1] not in (before.get("config") or {})]
        if unknown:
            raise UserError(f"{root} was begun by another version, without {', '.join(unknown)}; "
                            "go on with that version, or start a new run with another --out")
        said = "; ".join(f"{name} was {then}, now {now}" for name, then, now in changes)
        # Another version may have another default, which --resume alone would take again.
        fields = [(name.removeprefix("config.").replace("_", "-"), then)
                  for name, then, _ in changes if name.startswith("config.")]
        words = [word for name, then in fields for word in (f"--{name}", f"{then}")
                 if len(fields) == len(changes) and "sigma" not in dict(fields)]
        raise UserError(f"{root} was started with another configuration: {said}. Go on with it as "
                        f"it was: {go_on(root, *words)}; or start a new run with another --out")
    folder.private.mkdir(mode=0o700, exist_ok=True)
    folder.private.chmod(0o700)  # a copy may be open to others
    return folder


Change = tuple[str, object, object]
"""the name of a field, its value when the run began, and its value now"""


def _changes(before: Json, now: Json) -> list[Change]:
    if notes := now.get("data_notes"):
        earlier = before.get("data_notes") or ()
        now = now | {"data_notes": [note for note in notes
                                    if note in earlier or note not in LATER_NOTES]}
    changes = [change for name in FIXED
               for change in _differences(name, before.get(name), now.get(name))]
    # Speed may change, but not the form in which the checkpoints hold the moments, nor the
    # precision in which units answer. Runs of versions without a choice had the default.
    for name in ("moments", "compute"):
        changes += _differences(f"runtime.{name}", *(
            (config.get("runtime") or {}).get(name, getattr(Runtime, name))
            for config in (before, now)))
    # A choice that was made by private records stays made.
    changes += _differences("not_covered", list(before.get("not_covered") or ()),
                            list(now.get("not_covered") or ()))
    if before.get("class_names"):  # older versions wrote none, or not those of public data
        changes += _differences("class_names", before["class_names"], now.get("class_names"))
    return changes


def _differences(name: str, before: object, now: object) -> list[Change]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [change for key in sorted(before.keys() | now.keys())
                for change in _differences(f"{name}.{key}", before.get(key), now.get(key))]
    return [] if before == now else [(name, before, now)]


def run_identity(files: RunFolder, records: Private[Records], deal: Callable[[bytes], Partition],
                 resumed: bool, seed: int | None) -> Partition:
    """Deals the records by a key that is made at the first start and kept in private/.

    A fingerprint of the records and the dealing is stored with the key.

    Args:
        files: The run folder.
        records: The training records, sealed.
        deal: From a key to a partition.
        resumed: Whether the run is resumed.
        seed: Of a seeded run; None: the operating system's randomness.

    Returns:
        Which unit has which record.

    Raises:
        UserError: When a resumed run brings other records or deals them to other units, or when
            the file is damaged or missing from a run that has begun: a new key would deal the
            records to other units.
    """
    run = files.run_id()
    if resumed and (files.identity.exists() or _begun(files)):
        stored = read_json(files.identity)
        try:
            key, known = bytes.fromhex(stored["partition_key"]), stored["fingerprint"]
            if stored["run"] != run:
                raise ValueError("of another run")
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{files.identity} is damaged, or of another run: bring back the file "
                            "that belongs to this run, or start a new run") from None
        dealt = deal(key)
        if fingerprint(records, key, dealt) != known:
            raise UserError(f"the records are not those that {files.root} was started with, or "
                            "other clients hold them; that needs a new run, and its epsilon adds "
                            "to this one's")
        return dealt
    key = (secrets.token_bytes(32) if seed is None
           else np.random.default_rng(seed % 2**64).bytes(32))
    dealt = deal(key)
    write_json(files.identity, {"run": run, "partition_key": key.hex(),
                                "fingerprint": fingerprint(records, key, dealt)}, mode=0o600)
    return dealt


def open_run_ledger(files: RunFolder, mechanism: Mechanism, public: Json, resumed: bool,
                    journal: Witness = NOBODY) -> Ledger:
    """Opens the run's ledger, or creates it before anything can be released.

    Args:
        files: The run folder.
        mechanism: The mechanism of the run.
        public: The content of config.json.
        resumed: Whether the run is resumed.
        journal: The witness outside of the folder.

    Returns:
        The open ledger.

    Raises:
        UserError: When anything that a run makes later exists and the ledger does not, when the
            ledger is that of another configuration or run, and when the folder or the journal
            knows more of it than it holds.
    """
    meaning, run = _meaning(public), files.run_id()
    witness = _Folder(files, mechanism, journal)
    if (resumed and _begun(files)) or books.undeclared(files.ledger):
        if not charged(files, public).meaning:
            return _declared(files, mechanism, public, meaning, witness)
        if books.published(books.read(files.ledger)):
            # a published bound covers all votes of a run: there may be no more of them
            raise UserError(f"{files.root} has published a data-dependent bound on its votes and "
                            "is finished; start a new run, whose epsilon adds to this one's")
        return Ledger.open(files.ledger, witness, hosts.count())
    if resumed:  # a header that a crash tore
        files.ledger.unlink(missing_ok=True)
    budget = public["budget"]
    return Ledger.create(files.ledger, {
        "epsilon": float(budget["epsilon"]), "delta": budget["delta"],
        "relation": mechanism.relation, **public.get("unit", {"unit": mechanism.unit}),
        "config_hash": meaning, "run": run, **books.chained_lines(hosts.count())}, witness)


def charged(files: RunFolder, public: Json) -> Account:
    """Returns what the ledger of a run charges.

    Args:
        files: The run folder.
        public: The content of config.json.

    Raises:
        UserError: Where the ledger is that of another configuration or run.
    """
    records, meaning = books.read(files.ledger), _meaning(public)
    known = books.account(records)
    for what, stored, wanted in (("configuration", known.meaning or meaning, meaning),
                                 ("run", records[0].get("run"), files.run_id())):
        if stored != wanted:
            raise UserError(f"{files.ledger} is the ledger of another {what} than that of "
                            f"{files.config}; bring back the file that belongs to this run")
    return known


def _meaning(public: Json) -> str:
    """Returns the hash of what decides what is computed and what it costs."""
    return digest({name: public[name] for name in MEANING if name in public})


def _declared(files: RunFolder, mechanism: Mechanism, public: Json, meaning: str,
              witness: Witness) -> Ledger:
    """Opens a ledger that has only purchases, and declares its configuration in it."""
    header, budget = books.read(files.ledger)[0], public["budget"]
    promised = {"epsilon": float(budget["epsilon"]), "delta": budget["delta"],
                "relation": mechanism.relation, **public.get("unit", {"unit": mechanism.unit})}
    for name, value in promised.items():
        if header.get(name) != value:
            raise UserError(f"{files.ledger} was begun with {name} {header.get(name)}, and this "
                            f"run has {value}; go on as it was begun, or start a new run, whose "
                            "epsilon adds to this one's")
    opened = Ledger.open(files.ledger, witness, hosts.count())
    try:
        opened.declare(meaning)
    except BaseException:
        opened.close()
        raise
    return opened


def reopened(files: RunFolder, mechanism: Mechanism, journal: Witness) -> Ledger:
    """Opens the ledger of a finished run, for one release more. Raises: as `open_run_ledger`."""
    return Ledger.open(files.ledger, _Folder(files, mechanism, journal))


def of_torn_lines(ledger: Ledger) -> str:
    """Returns what lines that a crash tore cost a run; empty where they cost nothing.

    Args:
        ledger: The run's open ledger.
    """
    torn = [record for record in books.read(ledger.path)
            if record["kind"] == "torn" and (record["steps"] or record["events"])]
    if not torn:
        return ""
    n, steps, claim = len(torn), sum(record["steps"] for record in torn), at_most(ledger.claim())
    above = "" if ledger.epsilon() <= ledger.target else (
        f": epsilon {claim} is charged, above the budget of {at_most(ledger.target)}: no step is "
        f"added, and a release of this run is one of epsilon {claim}")
    what = f"{steps} step{'s' * (steps != 1)}" if steps else "a purchase"
    return (f"note: in {ledger.path} {n} line{'s' * (n > 1)} that a crash tore "
            f"count{'s' * (n == 1)} as spent ({what}){above}")


def _begun(files: RunFolder) -> bool:
    """Whether anything may have been drawn: the ledger is made before all that proves it."""
    return (books.begun(files.ledger) and not books.undeclared(files.ledger)) or bool(
        files.traces())


class _Folder(Witness):
    """The witness of a run's ledger: the other files of its folder, and the journal."""

    def __init__(self, files: RunFolder, mechanism: Mechanism, journal: Witness):
        self._files, self._mechanism, self._journal = files, mechanism, journal

    def record(self, ledger: Ledger) -> None:
        """Passes on to the journal what the ledger charges."""
        self._journal.record(ledger)

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()

    def accept(self, ledger: Ledger) -> None:
        """Refuses a ledger that a checkpoint, metrics or votes prove to be an older one.

        Args:
            ledger: The ledger that was opened.

        Raises:
            UserError: Where it is older, and where the journal refuses it.
        """
        taken = steps(self._files.checkpoints)
        if taken:
            _require_line(self._files, ledger, taken[-1])
        for path, known in ((self._files.metrics, run_folder.charged(self._files.metrics)),
                            (self._files.votes, self._voted())):
            if known > ledger.steps_charged:
                raise UserError(f"{ledger.path} charges {ledger.steps_charged} steps, and {path} "
                                f"knows of {known}: it is an older state, and spent budget would "
                                "be forgotten; bring back the file that belongs to this run")
        self._journal.accept(ledger)

    def _voted(self) -> int:
        mechanism = self._mechanism
        if not mechanism.keeps_votes:
            return 0
        return kept_votes.n_steps(self._files.votes, mechanism.queries, mechanism.vote_bins)


def start_run(files: RunFolder, method: Method, layout: teachers.Layout, ledger: Ledger,
              resumed: bool,
              seed: int | None) -> State:
    """Makes a fresh state, or restores that of the newest checkpoint.

    Args:
        files: The run folder.
        method: The method, built.
        layout: How the units lie on the devices.
        ledger: The run's open ledger.
        resumed: Whether the run is resumed.
        seed: Of a seeded run; None: the operating system's randomness.

    Returns:
        The state to go on from.

    Raises:
        UserError: For a damaged checkpoint, or one that the ledger does not know.
    """
    number = (secrets.randbits(32) if seed is None else seed) % 2**32
    taken = steps(files.checkpoints) if resumed else []
    if not taken:
        hosts.tell("begin", {"key": number})
        return initial_state(method, jax.random.key(number), layout)
    _require_line(files, ledger, taken[-1])
    hosts.tell("restore", {"folder": str(files.checkpoints.absolute()), "step": taken[-1]})
    return restore_state(files.checkpoints, method, layout, taken[-1])


def _require_line(files: RunFolder, ledger: Ledger, step: int) -> None:
    """Refuses a ledger that lacks the line which a checkpoint names."""
    note = note_checkpoint(files.checkpoints, step, "ledger_head", "ledger_lines")
    if not ledger.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{ledger.path} is shorter than, or not, the ledger at checkpoint "
                        f"{step}: spent budget would be forgotten; bring back the file that "
                        "belongs to this run")
