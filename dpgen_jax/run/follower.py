"""The processes of a run that do not lead: each does with its own units what the leader tells.

They have no run folder, no ledger and no source of noise, and decide nothing.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax.core import hosts
from dpgen_jax.core.config import digest
from dpgen_jax.core.types import Method, Private, Records, UserError
from dpgen_jax.private import packing, teachers
from dpgen_jax.private import records as sealing
from dpgen_jax.private.partition import Partition
from dpgen_jax.private.pretraining import Chunks
from dpgen_jax.run import checkpoint, loop, saved_state
from dpgen_jax.run.folder import MEANING
from dpgen_jax.run.planning import Plan
from dpgen_jax.run.progress import Stop, interruptible
from dpgen_jax.run.rounds import Block, Draws, compile_block, run_block
from dpgen_jax.version import __version__


def agree(plan: Plan) -> None:
    """Refuses processes that were not started for one and the same run; nothing is spent yet.

    Args:
        plan: This process's own plan.

    Raises:
        UserError: On all processes, naming what differs and where.
    """
    if hosts.count() == 1 and jax.process_count() == 1:
        return
    if hosts.count() == 1:
        raise UserError("JAX was started with several processes, of which this run does not know; "
                        "start it by `python -m dpgen_jax.train ... --coordinator auto`")
    public = plan.public_config
    hosts.agree("version of dpgen_jax or JAX", f"{__version__} {jax.__version__}")
    for name in MEANING:
        hosts.agree(name, digest({name: public.get(name)}))
    hosts.agree("number of devices", str(len(plan.layout.local)))
    hosts.agree("seed", str(plan.request.seed))
    key = hosts.gather(secrets.token_hex(32))[0]
    hosts.agree("set of records", sealing.fingerprint(plan.records, bytes.fromhex(key)))
    teachers.meet(plan.layout)


def local_records(plan: Plan, partition: Partition) -> Private[Records]:
    """Puts the records of the units of this process on its devices; of all where units are sampled.

    On the host no copy of them stays.

    Args:
        plan: The plan of the run.
        partition: Which record is whose.
    """
    layout = plan.layout
    dealt = sealing.deal(plan.records, partition, None if layout.sampled else layout.local_units)
    return teachers.place(dealt, layout)


def follow(plan: Plan) -> int:
    """Does what the leader tells, until it tells that the run has ended.

    Args:
        plan: The plan of the run, which all processes have agreed on.

    Returns:
        The exit code of the leader.
    """
    with interruptible() as stop:
        code = _Follower(plan, stop).run()
        stop.signal = None  # the exit code is the leader's
    return code


@dataclasses.dataclass
class _Follower:
    """The state of a process between two orders.

    Attributes:
        plan: The plan of the run.
        stop: Whether this process was asked to stop; the leader is told, and decides.
        records: Sealed, on the devices of this process.
        state: Of the run, with this process's share of the units.
        chunks: Pretrains them.
        phase: The method of the present rounds.
        block: Its compiled block.
    """

    plan: Plan
    stop: Stop
    records: Any = None
    state: Any = None
    chunks: Chunks | None = None
    phase: Method | None = None
    block: Block | None = None

    def run(self) -> int:
        """Carries out orders until the last one; returns the exit code that comes with it."""
        orders: dict[str, Callable[..., None]] = {
            "deal": self.deal, "begin": self.begin, "restore": self.restore,
            "warmed": self.warmed, "pretrain": self.pretrain, "block": self.run_block,
            "save": self.save}
        while True:
            order, words, arrays = hosts.hear(self.stop.signal)
            if order == "end":
                return int(words["code"])
            orders[order](**words, **arrays)

    def deal(self, index: np.ndarray, sizes: np.ndarray) -> None:
        """Puts the records of this process's units on its devices."""
        self.records = local_records(self.plan, Partition(index, sizes))

    def begin(self, key: int) -> None:
        """Makes the state before the first round."""
        self.state = loop.initial_state(self.plan.method, jax.random.key(key), self.plan.layout)

    def restore(self, folder: str, step: int) -> None:
        """Reads this process's part of a checkpoint."""
        self.state = saved_state.restore(Path(folder), self.plan.method, self.plan.layout, step)

    def warmed(self) -> None:
        """Says which units of this process are pretrained."""
        packing.warmed(self._units, self.plan.layout)

    def pretrain(self, chunk: int, first: int, n: int) -> None:
        """Pretrains a chunk for some steps."""
        self.chunks = self.chunks or Chunks(self.plan.method, self.plan.layout)
        units = self.chunks(self._units, self.records, chunk, first, n)
        self.state = dataclasses.replace(self.state, units=units)

    def run_block(self, n: int, private_inputs: np.ndarray, bits: np.ndarray, cohorts: np.ndarray
                  ) -> None:
        """Runs a block of rounds."""
        before, (self.phase, _) = self.phase, self.plan.method.at(self.state.step)
        if self.block is None or self.phase is not before:
            self.block = compile_block(self.phase, self.plan.layout)
        self.state, *_ = run_block(self.block, self.records, self.state, self.plan.layout,
                                   Draws(private_inputs, bits, cohorts), n)

    def save(self, folder: str) -> None:
        """Writes this process's part of a checkpoint; the leader hears of what fails."""
        size = packing.block_size(self.plan.method)
        try:
            checkpoint.write_parts(Path(folder), saved_state.unit_parts(
                self._units, self.plan.layout, size))
        except Exception:
            return

    @property
    def _units(self) -> Private[teachers.Units]:
        return self.state.units
