"""A run without a network: files and order of `api.run`, through the functions that it uses.

What is drawn is counted outside of the folder, so that a test can compare it with what is charged.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import small_datalens

from dpgen_jax.accountant import ledger as books
from dpgen_jax.accountant.events import GaussianEvent
from dpgen_jax.aggregation import single_releases
from dpgen_jax.aggregation.noise import OsBits
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Budget
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import Private
from dpgen_jax.private import kept_votes, records
from dpgen_jax.run import checkpoint, resume, side_releases, spending

STEP = GaussianEvent(100.0, 400)
MECHANISM = SimpleNamespace(relation="replace-one", unit="record", keeps_votes=True, queries=3,
                            vote_bins=0)
COUNTS_EPSILON = 0.5
COUNTS = single_releases.class_counts_event(COUNTS_EPSILON)
BUDGET = Budget(10.0, 1e-3, COUNTS_EPSILON)
PUBLIC = {"method": "toy", "dataset": "toy", "spec": {}, "config": {}, "records": 12,
          "budget": dataclasses.asdict(BUDGET)}
RECORDS = records.seal(*small_datalens.images(12), small_datalens.SPEC)


class Killed(BaseException):
    """An exception that ends a run at a moment, as nothing catches it."""


class CountedBits(OsBits):
    """Counts the purchases of class counts."""

    def __init__(self):
        self.purchases = 0

    def draw(self, shape):
        self.purchases += 1
        return super().draw(shape)


@dataclasses.dataclass
class World:
    """The draws of all runs, in whatever folder: steps, and purchases of class counts."""

    steps: int = 0
    bits: CountedBits = dataclasses.field(default_factory=CountedBits)

    def live(self, root: Path, *, blocks: int = 0, resume_it: bool = True, killed: str = "",
             size: int = 1, save_every: int = 2, dealt=None, sealed=RECORDS, total=None,
             say=lambda line: None) -> books.Record:
        """One start: `blocks` blocks of `size` steps, then killed at a moment of the next: before
        the ledger, in a purchase, when reserved, drawn, kept or settled, and "" for a calm end.
        Returns (steps, purchases) that the ledger charges as it was opened."""
        die = _executioner(killed)
        files = RunFolder(root)
        start = spending.Start(BUDGET, True, total, files if resume_it else None)
        with spending.before(spending.Identity(sealed), MECHANISM, start, say) as witness:
            origin = resume.Origin(files, resume_it)
            resume.open_folder(origin, PUBLIC)
            die("folder")
            resume.partition(origin, sealed, dealt or (lambda key: records.assign(12, 3, key)),
                             None)
            die("identity")
            ledger = resume.open_ledger(origin, MECHANISM, PUBLIC, witness(files))
        with ledger:
            opened = ledger.steps_charged, dict(ledger.spent()).get(COUNTS, 0)
            die("ledger")
            counted = side_releases.Counted(sealed, small_datalens.SPEC)
            side_releases.class_counts(files, ledger, counted, COUNTS_EPSILON, self.bits,
                                       lambda line: None)
            taken = checkpoint.steps(files.checkpoints)
            self._steps(files, ledger, taken[-1] if taken else 0, blocks, size, save_every, die)
        return opened

    def _steps(self, files, ledger, step, blocks, size, save_every, die):
        with run_folder.MetricsWriter(files.metrics, step) as writer:
            for block in range(blocks + 1):
                last = die if block == blocks else _executioner("")
                last("block")
                if block == blocks and not last.moment:
                    return
                ticket = ledger.reserve(((STEP, size),), size)
                last("reserved")
                self.steps += size
                last("drawn")
                kept_votes.append(files.votes, Private(jnp.zeros((size, 1, 3), jnp.int32)),
                                  np.zeros((size, 0), np.int32))
                last("kept")
                ledger.settle(ticket, ((STEP, size),), size)
                last("settled")
                step += size
                writer.write({"step": step, "charged": ledger.steps_charged})
                if (block + 1) % save_every == 0:
                    save(files, ledger, step)


def save(files, ledger, step):
    checkpoint.save(files.checkpoints, step, iter(()), keep=2, note={
        "ledger_head": ledger.head, "ledger_lines": ledger.n_lines, "block_size": 1})


def _executioner(moment):
    def die(where):
        if where == moment:
            raise Killed(where)

    die.moment = moment
    return die


def charged(root: Path) -> tuple[int, int]:
    """Steps and purchases that the ledger of a folder charges."""
    account = books.account(books.read(root / "ledger.jsonl"))
    return account.steps, dict(account.spent()).get(COUNTS, 0)


def killed(world: World, root: Path, moment: str, **options) -> None:
    try:
        world.live(root, killed=moment, **options)
    except Killed:
        return
    raise AssertionError(f"it was not killed when {moment}")
