"""Checkpoints of the server's public state after each round, so that a stopped run goes on."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.types import PyTree, UserError
from dpgen_jax.run import checkpoint
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.progress import Notices

KEEP = 2


@dataclasses.dataclass(frozen=True)
class State:
    """The server's state; all of it is public.

    Attributes:
        public: The public state of the method: the generator's side.
        key: A random key, [].
        step: The number of questions that the generator learnt from.
        noise: The sources of the clients' noise, as they declare them.
    """

    public: PyTree
    key: jax.Array
    step: int = 0
    noise: frozenset[str] = frozenset()


def save(files: RunFolder, state: State, ledger: Ledger) -> None:
    """Writes a checkpoint that names the ledger line at which it was taken.

    Args:
        files: The run folder.
        state: The server's state.
        ledger: The run's open ledger.

    Raises:
        UserError: Where it cannot be written.
    """
    checkpoint.save(files.checkpoints, ledger.steps_charged, [("public", _arrays(state))],
                    keep=KEEP, note={
        "step": state.step, "noise": sorted(state.noise),
        "ledger_head": ledger.head, "ledger_lines": ledger.n_lines})


def keep(files: RunFolder, state: State, ledger: Ledger, notices: Notices) -> None:
    """Saves a state unless its round has a checkpoint; a failure costs no more than the checkpoint.

    Args:
        files: The run folder.
        state: The server's state.
        ledger: The run's open ledger.
        notices: Tells the user of a failure.
    """
    try:
        if ledger.steps_charged not in checkpoint.steps(files.checkpoints):
            save(files, state, ledger)
    except (UserError, OSError) as error:
        notices.failure(str(error))


def latest(files: RunFolder, fresh: State, ledger: Ledger) -> State:
    """Reads the newest checkpoint.

    Args:
        files: The run folder.
        fresh: The initial state.
        ledger: The run's open ledger.

    Returns:
        The state of the checkpoint; the fresh one where there is none.

    Raises:
        UserError: For a damaged checkpoint, or one that the ledger does not cover.
    """
    rounds = checkpoint.steps(files.checkpoints)
    if not rounds:
        return fresh
    note = checkpoint.note(files.checkpoints, rounds[-1], "step", "noise", "ledger_head",
                           "ledger_lines")
    if not ledger.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{files.ledger} is shorter than, or not, the ledger of checkpoint "
                        f"{rounds[-1]}: bring back the file that belongs to this run")
    arrays = checkpoint.restore(files.checkpoints, rounds[-1], "public", jax.tree.map(
        lambda a: np.empty(a.shape, a.dtype), _arrays(fresh)))
    return State(jax.device_put(arrays["public"]), jax.random.wrap_key_data(arrays["key"]),
                 note["step"], frozenset(note["noise"]))


def _arrays(state: State) -> dict[str, PyTree]:
    """Returns the arrays of a state, by the names that they have in a checkpoint."""
    return {"public": state.public, "key": jax.random.key_data(state.key)}
