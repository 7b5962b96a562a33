"""The start of a run, and its resumption: identity, ledger and state.

Rules: the records must be those of the first start, dealt to the same units (a keyed fingerprint in
private state); the ledger must contain the line at which the checkpoint was taken, charge all steps
that metrics and votes know of, and be what this machine's journal last saw; steps that were charged
and lost stay charged; noise bits are always fresh.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import jax
import numpy as np

from dpgen_jax.accountant import chain
from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.ledger import NOBODY, Ledger
from dpgen_jax.accountant.totals import Account
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core import hosts
from dpgen_jax.core.at_most import at_most
from dpgen_jax.core.config import digest
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Method, Private, Records, UserError
from dpgen_jax.private import teachers, votes
from dpgen_jax.private.partition import Partition
from dpgen_jax.private.records import fingerprint
from dpgen_jax.run import checkpoint, metrics, saved_state
from dpgen_jax.run.folder import MEANING, RunFolder, read_json, write_json
from dpgen_jax.run.loop import State, initial_state


def identity(files: RunFolder, records: Private[Records], deal: Callable[[bytes], Partition],
             resumed: bool, seed: int | None) -> Partition:
    """Deals the records by a key that is made at the first start and kept in private/.

    A fingerprint of the records and the dealing lies beside the key.

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


def ledger(files: RunFolder, mechanism: Mechanism, public: Json, resumed: bool,
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
            # a published bound speaks of all votes of a run: there may be no more of them
            raise UserError(f"{files.root} has published a data-dependent bound on its votes and "
                            "is finished; start a new run, whose epsilon adds to this one's")
        return Ledger.open(files.ledger, witness, hosts.count())
    if resumed:  # a header that a crash tore
        files.ledger.unlink(missing_ok=True)
    budget = public["budget"]
    return Ledger.create(files.ledger, {
        "epsilon": float(budget["epsilon"]), "delta": budget["delta"],
        "relation": mechanism.relation, **public.get("unit", {"unit": mechanism.unit}),
        "config_hash": meaning, "run": run, **chain.several(hosts.count())}, witness)


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
    """Opens a ledger that knows of purchases alone, and says of which configuration it is."""
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
    """Opens the ledger of a finished run, for one release more. Raises: as `ledger`."""
    return Ledger.open(files.ledger, _Folder(files, mechanism, journal))


def of_torn_lines(ledger: Ledger) -> str:
    """Says what lines that a crash tore cost a run; nothing where they cost nothing.

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
        taken = checkpoint.steps(self._files.checkpoints)
        if taken:
            _require_line(self._files, ledger, taken[-1])
        for path, known in ((self._files.metrics, metrics.charged(self._files.metrics)),
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
        return votes.n_steps(self._files.votes, mechanism.queries, mechanism.vote_bins)


def start(files: RunFolder, method: Method, layout: teachers.Layout, ledger: Ledger, resumed: bool,
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
    taken = checkpoint.steps(files.checkpoints) if resumed else []
    if not taken:
        hosts.tell("begin", {"key": number})
        return initial_state(method, jax.random.key(number), layout)
    _require_line(files, ledger, taken[-1])
    hosts.tell("restore", {"folder": str(files.checkpoints.absolute()), "step": taken[-1]})
    return saved_state.restore(files.checkpoints, method, layout, taken[-1])


def _require_line(files: RunFolder, ledger: Ledger, step: int) -> None:
    """Refuses a ledger that lacks the line which a checkpoint names."""
    note = checkpoint.note(files.checkpoints, step, "ledger_head", "ledger_lines")
    if not ledger.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{ledger.path} is shorter than, or not, the ledger at checkpoint "
                        f"{step}: spent budget would be forgotten; bring back the file that "
                        "belongs to this run")
