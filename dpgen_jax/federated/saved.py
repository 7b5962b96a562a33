"""The server's public state after each turn, so that a run that was stopped goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.run import checkpoint
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.progress import Notices
from dpgen_jax.types import UserError

KEEP = 2


@dataclasses.dataclass(frozen=True)
class State:
    """public: the generator's side of the method; key: public randomness; step: questions that it
    learnt from; noise: what the clients said of theirs."""

    public: Any
    key: jax.Array
    step: int = 0
    noise: frozenset[str] = frozenset()


def save(files: RunFolder, state: State, ledger: Ledger) -> None:
    """Writes a checkpoint that names the ledger line at which it was taken."""
    held = {"public": state.public, "key": jax.random.key_data(state.key)}
    checkpoint.save(files.checkpoints, ledger.steps_charged, [("public", held)], keep=KEEP, note={
        "step": state.step, "noise": sorted(state.noise),
        "ledger_head": ledger.head, "ledger_lines": ledger.n_lines})


def keep(files: RunFolder, state: State, ledger: Ledger, notices: Notices) -> None:
    """`save`, unless this turn's is there; a failure costs this checkpoint, and no more."""
    if ledger.steps_charged not in checkpoint.steps(files.checkpoints):
        try:
            save(files, state, ledger)
        except UserError as error:
            notices.failure(str(error))


def latest(files: RunFolder, fresh: State, ledger: Ledger) -> State:
    """The state of the newest checkpoint, or a fresh one where there is none.

    Errors: UserError for a damaged checkpoint, or one that the ledger does not know.
    """
    turns = checkpoint.steps(files.checkpoints)
    if not turns:
        return fresh
    note = checkpoint.note(files.checkpoints, turns[-1], "step", "noise", "ledger_head",
                           "ledger_lines")
    if not ledger.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{files.ledger} is shorter than, or not, the ledger of checkpoint "
                        f"{turns[-1]}: bring back the file that belongs to this run")
    held = {"public": fresh.public, "key": jax.random.key_data(fresh.key)}
    held = checkpoint.restore(files.checkpoints, turns[-1], "public", jax.tree.map(
        lambda a: np.empty(a.shape, a.dtype), held))
    return State(jax.device_put(held["public"]), jax.random.wrap_key_data(held["key"]),
                 note["step"], frozenset(note["noise"]))
