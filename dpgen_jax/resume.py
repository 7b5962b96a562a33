"""How a run starts, and starts again: its identity, its ledger, its state.

Rules: the records must be those of the first start (a keyed fingerprint in private state); the
ledger must contain the line at which the checkpoint was taken; steps that were charged and lost
stay charged; noise bits are always fresh.
"""

from __future__ import annotations

import secrets
from typing import Any

import jax
import numpy as np

from dpgen_jax.accountant.events import RenyiEvent
from dpgen_jax.accountant.ledger import Ledger, account, read
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.config import digest
from dpgen_jax.loop import State, initial_state
from dpgen_jax.private import packing, teachers
from dpgen_jax.private.records import fingerprint
from dpgen_jax.run import checkpoint
from dpgen_jax.run.folder import MEANING, RunFolder, read_json, write_json
from dpgen_jax.types import Method, Private, Records, UserError


def identity(files: RunFolder, records: Private[Records], resumed: bool, seed: int | None) -> bytes:
    """The partition key, made at the first start and kept in private/ with the fingerprint.

    Errors: UserError when a resume brings other records, or when the file is damaged or missing
    from a run that has begun: new keys would deal the records to other teachers.
    """
    if resumed and (files.identity.exists() or _begun(files)):
        held = read_json(files.identity)
        try:
            key, known = bytes.fromhex(held["partition_key"]), held["fingerprint"]
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{files.identity} is damaged: bring back the file that belongs to "
                            "this run, or start a new run") from None
        if fingerprint(records, key) != known:
            raise UserError(f"the records are not those that {files.root} was started with; other "
                            "records need a new run, and its epsilon adds to this one's")
        return key
    key = (secrets.token_bytes(32) if seed is None
           else np.random.default_rng(seed % 2**64).bytes(32))
    write_json(files.identity, {"partition_key": key.hex(),
                                "fingerprint": fingerprint(records, key)}, mode=0o600)
    return key


def ledger(files: RunFolder, mechanism: Mechanism, public: dict[str, Any], resumed: bool) -> Ledger:
    """Opens the run's ledger, or creates it before anything can be released.

    Errors: UserError when a checkpoint exists and the ledger does not, or when the ledger is that
    of another configuration.
    """
    meaning = digest({name: public[name] for name in MEANING})
    if resumed and _begun(files):
        if read(files.ledger)[0].get("config_hash") != meaning:
            raise UserError(f"{files.ledger} is the ledger of another configuration than "
                            f"{files.config}; bring back the file that belongs to this run")
        _refuse_published(files)
        return Ledger.open(files.ledger)
    budget = public["budget"]
    return Ledger.create(files.ledger, {
        "epsilon": float(budget["epsilon"]), "delta": budget["delta"],
        "relation": mechanism.relation, "unit": mechanism.unit,
        "config_hash": meaning})


def _refuse_published(files: RunFolder) -> None:
    """A published bound speaks of all votes of a run: there may be no more of them."""
    if any(isinstance(event, RenyiEvent) for event, _ in account(read(files.ledger)).spent()):
        raise UserError(f"{files.root} has published a data-dependent bound on its votes and is "
                        "finished; start a new run, whose epsilon adds to this one's")


def _begun(files: RunFolder) -> bool:
    """Whether anything may have been drawn: the ledger is made before the first draw."""
    return files.ledger.exists() or bool(checkpoint.steps(files.checkpoints))


def start(files: RunFolder, method: Method, layout: teachers.Layout, held: Ledger, resumed: bool,
          seed: int | None) -> State:
    """A fresh state, or that of the newest checkpoint.

    Errors: UserError for a damaged checkpoint, or one that the ledger does not know.
    """
    key = jax.random.key((secrets.randbits(32) if seed is None else seed) % 2**32)
    taken = checkpoint.steps(files.checkpoints) if resumed else []
    return restore(files, method, layout, held, taken[-1]) if taken else \
        initial_state(method, key, layout)


def save(files: RunFolder, state: State, method: Method, layout: teachers.Layout, held: Ledger,
         keep: int) -> None:
    """Writes a checkpoint that names the ledger line at which it was taken."""
    size = packing.block_size(method)

    def parts():
        yield "public", {"public": state.public, "key": jax.random.key_data(state.key)}
        for i, block in enumerate(packing.blocks(state.units, layout, size)):
            yield f"units-{i:05d}", block

    checkpoint.save(files.checkpoints, state.step, parts(), keep=keep, note={
        "ledger_head": held.head, "ledger_lines": held.n_lines, "block_size": size})


def restore(files: RunFolder, method: Method, layout: teachers.Layout, held: Ledger,
            step: int) -> State:
    """The state at checkpoint `step`, laid out for these devices."""
    note = checkpoint.note(files.checkpoints, step, "ledger_head", "ledger_lines", "block_size")
    if not held.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{files.ledger} is shorter than, or not, the ledger at checkpoint "
                        f"{step}: spent budget would be forgotten; bring back the file that "
                        "belongs to this run")
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: {"public": method.init(key), "key": jax.random.key_data(key)})
    public = checkpoint.restore(files.checkpoints, step, "public", jax.tree.map(
        lambda a: np.empty(a.shape, a.dtype), shapes))

    def parts():
        for i, first in enumerate(range(0, layout.n_units, note["block_size"])):
            count = min(note["block_size"], layout.n_units - first)
            yield checkpoint.restore(files.checkpoints, step, f"units-{i:05d}",
                                     packing.like(method, count))

    return State(jax.device_put(public["public"], layout.replicated),
                 packing.assemble(parts(), method, layout),
                 jax.random.wrap_key_data(public["key"]), step)
