"""The processes of a run that do not lead: each carries out orders of the leader on its own units.

They have no run folder, no ledger and no source of noise, and decide nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax.core import hosts
from dpgen_jax.core.config import digest
from dpgen_jax.core.errors import option
from dpgen_jax.core.run_folder import MEANING, RunFolder
from dpgen_jax.core.types import Method, Private, PyTree, Records, UserError
from dpgen_jax.private import records as sealing
from dpgen_jax.private import streaming, teachers
from dpgen_jax.private.pretraining import Chunks
from dpgen_jax.private.records import Partition
from dpgen_jax.run import checkpoint, loop
from dpgen_jax.run.loop import Block, Draws, compile_block, run_block
from dpgen_jax.run.planning import Plan
from dpgen_jax.run.progress import Stop, interruptible
from dpgen_jax.version import __version__

SHARED_WITHIN = 10
"""Seconds in which a folder that one process made is seen by the others."""


def agree(plan: Plan) -> None:
    """Refuses processes that were not started for one and the same run; nothing is spent yet.

    Raises:
        UserError: On all processes, naming what differs and where.
    """
    if hosts.count() == 1 and jax.process_count() == 1:
        return
    if hosts.count() == 1:
        raise UserError("JAX was started with several processes, but this run was not; start it "
                        f"with `python -m dpgen_jax.train ... {option('coordinator', 'auto')}`")
    public = plan.public_config
    hosts.agree("version of dpgen_jax or JAX", f"{__version__} {jax.__version__}")
    for name in MEANING:
        hosts.agree(name, digest({name: public.get(name)}))
    hosts.agree("number of devices", str(len(plan.layout.local)))
    # By another layout two processes would both count a unit, or neither would.
    hosts.agree(f"layout of units ({option('chunk')}, {option('moments')}, kind "
                "of device)", _layout(plan))
    for name, value in dataclasses.asdict(plan.request.runtime).items():
        hosts.agree(f"--{name.replace('_', '-')}", str(value))
    hosts.agree("seed", str(plan.request.seed))
    key = hosts.gather(secrets.token_hex(32))[0]
    hosts.agree("set of records", sealing.fingerprint(plan.records, bytes.fromhex(key)))
    teachers.meet(plan.layout)


def require_shared(files: RunFolder) -> None:
    """Refuses processes that do not see the run folder, into which all write their checkpoints.

    Raises:
        UserError: On the process that leads; nothing is spent yet.
    """
    if hosts.count() == 1:
        return
    hosts.tell("look", {"folder": str(files.root.absolute()), "run": files.run_id()})
    blind = [str(i) for i, there in enumerate(hosts.gather(True)) if not there]
    if blind:
        raise UserError(f"process {', '.join(blind)} cannot see the run folder "
                        f"{files.root.absolute()}, where all processes write their checkpoints; "
                        f"put {option('out')} on a disk that all processes see at the same path")


def _holds(folder: Path, run: str) -> bool:
    """Whether a folder is that of this run."""
    try:
        return RunFolder(folder).run_id() == run
    except UserError:
        return False


def _layout(plan: Plan) -> str:
    """Returns the layout of units and what they keep, as this process has chosen."""
    layout = plan.layout
    return str((layout.n_units, layout.chunk, layout.padded, layout.n_cohorts, layout.sampled,
                layout.slab, layout.pretrained_at_once, layout.parallel, len(layout.devices),
                plan.request.runtime.moments, layout.devices[0].platform))


def local_records(plan: Plan, partition: Partition) -> Private[Records]:
    """Puts the records of the units of this process on its devices; of all where units are sampled.

    On the host no copy of them stays.
    """
    layout = plan.layout
    return teachers.place(sealing.deal(plan.records, partition, layout.dealt_units), layout)


class Follower:
    """The state of a process between two orders.

    Attributes:
        plan: The plan of the run with the records of all units, until they are dealt; another
            reference to it keeps them in memory.
        records: Sealed, on the devices of this process.
        state: Of the run, with this process's share of the units.
        phase: The method of the present rounds.
        parts: What this process writes of the last checkpoint.
    """

    records: Any = None
    state: PyTree = None
    chunks: Chunks | None = None
    phase: Method | None = None
    block: Block | None = None
    parts: checkpoint.Parts | None = None

    def __init__(self, plan: Plan):
        """Begins to follow."""
        self.plan: Plan | None = plan
        self.method, self.layout = plan.method, plan.layout

    def follow(self) -> int:
        """Carries out the leader's orders until the run has ended.

        Returns:
            The exit code of the leader.
        """
        with interruptible() as stop:
            code = self._run(stop)
            stop.signal = None  # the exit code is the leader's
        return code

    def _run(self, stop: Stop) -> int:
        """Carries out orders until the last one; returns the exit code that comes with it.

        If this process is to stop, it informs the leader, which decides.
        """
        orders: dict[str, Callable[..., None]] = {
            "look": self.look, "deal": self.deal, "begin": self.begin, "restore": self.restore,
            "warmed": self.warmed, "pretrain": self.pretrain, "block": self.run_block,
            "save": self.save, "saved": self.saved}
        while True:
            order, words, arrays = hosts.hear(stop.signal)
            if order == "end":
                return int(words["code"])
            orders[order](**words, **arrays)

    def look(self, folder: str, run: str) -> None:
        """Reports whether this process sees the run folder, which network disks may delay."""
        until = time.monotonic() + SHARED_WITHIN
        while not (there := _holds(Path(folder), run)) and time.monotonic() < until:
            time.sleep(0.2)
        hosts.gather(there)

    def deal(self, index: np.ndarray, sizes: np.ndarray) -> None:
        """Puts the records of this process's units on its devices; those of the others go."""
        if self.plan is None:
            raise ValueError("the records were dealt before")
        self.records = local_records(self.plan, Partition(index, sizes))
        self.plan = None

    def begin(self, key: int) -> None:
        """Makes the state before the first round."""
        self.state = loop.initial_state(self.method, jax.random.key(key), self.layout)

    def restore(self, folder: str, step: int) -> None:
        """Reads this process's part of a checkpoint."""
        self.state = checkpoint.restore_state(Path(folder), self.method, self.layout, step)

    def warmed(self) -> None:
        """Reports which units of this process are pretrained."""
        streaming.warmed(self._units, self.layout)

    def pretrain(self, chunk: int, first: int, n: int) -> None:
        """Pretrains a chunk for some steps."""
        self.chunks = self.chunks or Chunks(self.method, self.layout)
        units = self.chunks(self._units, self.records, chunk, first, n)
        self.state = dataclasses.replace(self.state, units=units)

    def run_block(self, n: int, private_inputs: np.ndarray, bits: np.ndarray, cohorts: np.ndarray
                  ) -> None:
        """Runs a block of rounds."""
        self.chunks = None  # pretraining is over, and their memory is free
        before, (self.phase, _) = self.phase, self.method.at(self.state.step)
        if self.block is None or self.phase is not before:
            self.block = compile_block(self.phase, self.layout)
        self.state, *_ = run_block(self.block, self.records, self.state, self.layout,
                                   Draws(private_inputs, bits, cohorts), n)

    def save(self, folder: str, beside: bool) -> None:
        """Begins to write this process's part of a checkpoint."""
        size = streaming.block_size(self.method)
        self.parts = checkpoint.Parts(Path(folder), checkpoint.unit_parts(
            self._units, self.layout, size), beside)

    def saved(self) -> None:
        """Waits until it is written; failures are reported to the leader."""
        with contextlib.suppress(Exception):
            if self.parts:
                self.parts.sums()

    @property
    def _units(self) -> Private[teachers.Units]:
        return self.state.units
