"""From the folder of a run to the state with which its loop goes on; or a fresh start.

`origin` decides once whether a run begins or goes on. `folder`, `partition`, `ledger` and `state`
then take it in this order, and each makes or reads one thing of the run.

The configuration must mean what it meant at the first start. The records must be those of the first
start, dealt to the same units (a keyed fingerprint in private state). The ledger must contain the
line at which the newest checkpoint was taken, charge all steps that metrics and votes record, and
be the one that this machine's journal last saw. Steps that were charged and lost stay charged.
Noise bits are always fresh.
"""

from __future__ import annotations

import dataclasses
import datetime
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import jax
import numpy as np

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import Events
from dpgen_jax.accountant.ledger import NOBODY, Account, Ledger, Witness
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core import hosts, run_folder, storage
from dpgen_jax.core.config import Compute, Moments, Runtime, digest
from dpgen_jax.core.errors import option
from dpgen_jax.core.files import Json, sync
from dpgen_jax.core.run_folder import MEANING, RunFolder, environment, go_on, read_json, write_json
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Method, Private, Records, UserError
from dpgen_jax.data.images.files import Form
from dpgen_jax.private import kept_votes
from dpgen_jax.private.records import Partition, fingerprint
from dpgen_jax.private.teachers import Layout
from dpgen_jax.run import checkpoint, side_releases
from dpgen_jax.run.loop import State, initial_state

# What a resume may not change. The seed is one of them: noise of a seeded run has no privacy claim.
FIXED = (*MEANING, "seed", "data_notes", "judged_by", "made_by")
LATER_NOTES = Form(None, None, False).notes
"""Notes that runs of earlier versions lack. Their records are compared by fingerprint anyway."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """How a run starts, as it was decided before anything is written.

    Attributes:
        files: The run folder, which need not exist yet.
        resumed: Whether the user wants to go on with the run in it.
        bought_first: Whether there is only the purchase with which the run has begun.
        bought: The events of what the run has bought, where it is resumed.
        compute: The precision in which its units compute, where it is resumed and that is noted.
        moments: The precision of their moments, likewise.
    """

    files: RunFolder
    resumed: bool = False
    bought_first: bool = False
    bought: Events = ()
    compute: Compute | None = None
    moments: Moments | None = None

    @property
    def before(self) -> RunFolder | None:
        """The folder of what was spent before, if there is any."""
        return self.files if self.resumed or self.bought_first else None


def decide(root: Path, resume: bool) -> Origin:
    """Decides whether a run begins in a folder or goes on.

    Raises:
        UserError: A damaged config.json or ledger.
    """
    files = RunFolder(root)
    if not resume:
        return Origin(files, bought_first=files.waiting)
    written = read_json(files.config).get("runtime", {}) if files.config.is_file() else {}
    if not isinstance(written, dict):
        raise UserError(f"{files.config} is damaged: its runtime is "
                        "not an object; restore the file")
    compute, moments = (written.get(name) for name in ("compute", "moments"))
    return Origin(files, True, files.waiting, side_releases.bought_by(files),
                  compute if compute in get_args(Compute) else None,
                  moments if moments in get_args(Moments) else None)


def refuse_used(root: Path) -> None:
    """Refuses a folder for a new run that holds anything, or is not a folder of a disk.

    Raises:
        UserError: For such a folder.
    """
    storage.refuse_remote(root)
    if root.exists() and not (root.is_dir() and RunFolder(root).unused()):
        contents = "a run" if (root / "config.json").exists() else "other files"
        resumed = f"resume it with {go_on(root)}, or " * (contents == "a run")
        raise UserError(f"{root} already contains {contents}; "
                        f"{resumed}name another {option('out')}")


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
    write_json(folder.config, config | {
        "run": secrets.token_hex(16), "started_on": _today()} | environment())
    return folder


def _today() -> str:
    """The day in Greenwich, as YYYY-MM-DD."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def open_folder(origin: Origin, config: Json) -> None:
    """Makes the folder of a run, opens it, or completes the one that has begun with a purchase.

    Raises:
        UserError: As `create` and `reopen`.
    """
    files = origin.files
    if not (origin.bought_first and files.waiting):
        (reopen if origin.resumed else create)(files.root, config)
        return
    before = read_json(files.config)
    write_json(files.config, config | {
        "run": files.run_id(), "purchase": before["purchase"],
        "started_on": before.get("started_on", _today())} | environment())


def reopen(root: Path, config: Json) -> RunFolder:
    """Opens an existing run to go on with.

    Raises:
        UserError: When there is none, or when a field that decides the meaning of the run differs;
            the message lists the differences.
    """
    folder = RunFolder(root)
    if not folder.config.is_file():
        raise UserError(f"there is no run to resume in {root} (no config.json); leave out "
                        f"{option('resume', True)}")
    before = read_json(folder.config)
    if changes := _changes(before, config):
        unknown = [name for name, _, _ in changes if name.startswith("config.")
                   and name.split(".")[1] not in (before.get("config") or {})]
        if unknown and before.get("method") == config.get("method"):
            raise UserError(f"{root} was started by another version, without {', '.join(unknown)}; "
                            f"use that version, or start a new run with another {option('out')}")
        said = "; ".join(f"{name} was {then}, now {now}" for name, then, now in changes)
        # Another version may have another default, which --resume alone would take again.
        fields = {name.removeprefix("config."): then for name, then, _ in changes
                  if name.startswith("config.")}
        stated = fields if len(fields) == len(changes) and "sigma" not in fields else {}
        raise UserError(f"{root} was started with another configuration: {said}. Resume it as it "
                        f"was: {go_on(root, **stated)}; or start a new run with another "
                        f"{option('out')}")
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


def partition(origin: Origin, records: Private[Records], deal: Callable[[bytes], Partition],
              seed: int | None) -> Partition:
    """Deals the records by a key that is made at the first start and kept in private/.

    A fingerprint of the records and the dealing is stored with the key.

    Raises:
        UserError: When a resumed run brings other records or deals them to other units, or when
            the file is damaged or missing from a run that has begun: a new key would deal the
            records to other units.
    """
    files = origin.files
    run = files.run_id()
    if origin.resumed and (files.identity.exists() or _begun(files)):
        stored = read_json(files.identity)
        try:
            key, known = bytes.fromhex(stored["partition_key"]), stored["fingerprint"]
            if stored["run"] != run:
                raise ValueError("of another run")
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{files.identity} is damaged, or of another run: restore the file "
                            "that belongs to this run, or start a new run") from None
        dealt = deal(key)
        if fingerprint(records, key, dealt) != known:
            raise UserError(f"the records are not those of {files.root}, or their clients are "
                            "different; other records need a new run, whose epsilon adds to this "
                            "one's")
        return dealt
    key = (secrets.token_bytes(32) if seed is None
           else np.random.default_rng(seed % 2**64).bytes(32))
    dealt = deal(key)
    write_json(files.identity, {"run": run, "partition_key": key.hex(),
                                "fingerprint": fingerprint(records, key, dealt)}, mode=0o600)
    return dealt


def open_ledger(origin: Origin, mechanism: Mechanism, public: Json, journal: Witness = NOBODY
                ) -> Ledger:
    """Opens the run's ledger, or creates it before anything can be released.

    Raises:
        UserError: When anything that a run makes later exists and the ledger does not, when the
            ledger is that of another configuration or run, and when the folder or the journal
            knows more of it than it holds.
    """
    files = origin.files
    meaning, run = _meaning(public), files.run_id()
    witness = _Folder(files, mechanism, journal)
    if (origin.resumed and _begun(files)) or books.undeclared(files.ledger):
        if not charged(files, public).meaning:
            return _declared(files, mechanism, public, meaning, witness)
        if books.published(books.read(files.ledger)):
            # a published bound covers all votes of a run: there may be no more of them
            raise UserError(f"{files.root} has published a data-dependent bound on its votes and "
                            "is finished; start a new run, whose epsilon adds to this one's")
        return Ledger.open(files.ledger, witness, hosts.count())
    if origin.resumed:  # a header that a crash tore
        files.ledger.unlink(missing_ok=True)
    budget = public["budget"]
    return Ledger.create(files.ledger, {
        "epsilon": float(budget["epsilon"]), "delta": budget["delta"],
        "relation": mechanism.relation, **public.get("unit", {"unit": mechanism.unit}),
        "config_hash": meaning, "run": run, **books.chained_lines(hosts.count())}, witness)


def charged(files: RunFolder, public: Json) -> Account:
    """Returns what the ledger of a run charges.

    Raises:
        UserError: Where the ledger is that of another configuration or run.
    """
    records, meaning = books.read(files.ledger), _meaning(public)
    known = books.account(records)
    for what, stored, wanted in (("configuration", known.meaning or meaning, meaning),
                                 ("run", records[0].get("run"), files.run_id())):
        if stored != wanted:
            raise UserError(f"{files.ledger} does not belong to the {what} of {files.config}; "
                            "restore the file that belongs to this run")
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
            raise UserError(f"{files.ledger} was started with {name} {header.get(name)}, and this "
                            f"run has {value}; resume it as it was, or start a new run, whose "
                            "epsilon adds to this one's")
    opened = Ledger.open(files.ledger, witness, hosts.count())
    try:
        opened.declare(meaning)
    except BaseException:
        opened.close()
        raise
    return opened


def reopened(files: RunFolder, mechanism: Mechanism, journal: Witness) -> Ledger:
    """Opens the ledger of a finished run, for one release more. Raises: as `open_ledger`."""
    return Ledger.open(files.ledger, _Folder(files, mechanism, journal))


def of_torn_lines(ledger: Ledger) -> str:
    """Returns what lines that a crash tore cost a run; empty where they cost nothing."""
    torn = [record for record in books.read(ledger.path)
            if record["kind"] == "torn" and (record["steps"] or record["events"])]
    if not torn:
        return ""
    n, steps, claim = len(torn), sum(record["steps"] for record in torn), at_most(ledger.claim())
    above = "" if ledger.epsilon() <= ledger.target else (
        f": epsilon {claim} is charged, above the budget of {at_most(ledger.target)}: no step is "
        f"added, and a release of this run has epsilon {claim}")
    what = f"{steps} step{'s' * (steps != 1)}" if steps else "a purchase"
    return (f"note: in {ledger.path} {n} line{'s' * (n > 1)} that a crash cut short "
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

        Raises:
            UserError: Where it is older, and where the journal refuses it.
        """
        taken = checkpoint.steps(self._files.checkpoints)
        if taken:
            _require_line(self._files, ledger, taken[-1])
        for path, known in ((self._files.metrics, run_folder.charged(self._files.metrics)),
                            (self._files.votes, self._voted())):
            if known > ledger.steps_charged:
                raise UserError(f"{ledger.path} charges {ledger.steps_charged} steps, and {path} "
                                f"knows of {known}: it is an older state, and spent budget would "
                                "be forgotten; restore the file that belongs to this run")
        self._journal.accept(ledger)

    def _voted(self) -> int:
        mechanism = self._mechanism
        if not mechanism.keeps_votes:
            return 0
        return kept_votes.n_steps(self._files.votes, mechanism.queries, mechanism.vote_bins)


def state(origin: Origin, method: Method, layout: Layout, ledger: Ledger, seed: int | None
          ) -> State:
    """Returns a fresh state, or that of the newest checkpoint of a run that is resumed.

    Raises:
        UserError: For a damaged checkpoint, or one that the ledger does not know.
    """
    files = origin.files
    number = (secrets.randbits(32) if seed is None else seed) % 2**32
    taken = checkpoint.steps(files.checkpoints) if origin.resumed else []
    if not taken:
        hosts.tell("begin", {"key": number})
        return initial_state(method, jax.random.key(number), layout)
    _require_line(files, ledger, taken[-1])
    hosts.tell("restore", {"folder": str(files.checkpoints.absolute()), "step": taken[-1]})
    return checkpoint.restore_state(files.checkpoints, method, layout, taken[-1])


def _require_line(files: RunFolder, ledger: Ledger, step: int) -> None:
    """Refuses a ledger that lacks the line which a checkpoint names."""
    note = checkpoint.note_checkpoint(files.checkpoints, step, "ledger_head", "ledger_lines")
    if not ledger.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{ledger.path} is shorter than, or not, the ledger at checkpoint {step}: "
                        "spent budget would be forgotten; restore the "
                        "file that belongs to this run")
