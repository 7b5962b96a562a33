"""The stages of a run: warm start, steps, and the generator's training on what they released. Each
is shown and can be stopped, and what must not be lost is saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import numpy as np

from dpgen_jax import loop, resume
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.config import Runtime
from dpgen_jax.loop import State
from dpgen_jax.private import teachers
from dpgen_jax.private import votes as vote_log
from dpgen_jax.private.warm_up import warm_up
from dpgen_jax.run import metrics
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.progress import Bar, clock
from dpgen_jax.types import Method, Private, Records
from dpgen_jax.watch import Watcher

OnBlock = Callable[[State, dict[str, float]], None]


@dataclasses.dataclass(frozen=True)
class Stages:
    """What all stages share. stop: whether Ctrl-C was pressed; elapsed: seconds since they began,
    over all of them."""

    method: Method
    files: RunFolder
    layout: teachers.Layout
    ledger: Ledger
    runtime: Runtime
    watcher: Watcher
    stop: Callable[[], bool]
    elapsed: Callable[[], float] = dataclasses.field(default_factory=clock)

    def warm(self, state: State, records: Private[Records]) -> State:
        """The state with its units warm, or as far as they came before `stop`; saved now and then.
        """
        elapsed, saved = self.elapsed, state
        next_save = elapsed() + self._between_saves
        bar = Bar(self.method.mechanism.n_units, 0, "warm unit")
        for units, share in warm_up(self.method, state.units, records, self.layout):
            state = dataclasses.replace(state, units=units)
            bar.reach(share)
            if elapsed() > next_save:
                self._save(state)
                next_save, saved = elapsed() + self._between_saves, state
            if self.stop():
                break
        bar.close()
        if state is not saved:
            self._save(state)
        return state

    def train(self, state: State, records: Private[Records], bits: BitSource, planned: int,
              most: int) -> State:
        """The loop, up to `most` steps, of which `planned` are expected. The state comes back
        without its units, whose memory the generator's own work may then use."""
        def keep(votes: Private[jax.Array], answered: np.ndarray) -> None:
            if self.method.mechanism.keeps_votes:
                vote_log.append(self.files.votes, votes, answered)

        with self._recorded(state, Bar(planned, state.step)) as record:
            state = loop.train(self.method, records, state, self.layout, self.ledger, bits,
                               steps=most, steps_per_call=self.runtime.steps_per_call,
                               on_block=record, keep=keep, stop=self.stop)
        return dataclasses.replace(state, units=None)

    def polish(self, state: State, key: jax.Array) -> State:
        """`loop.polish`, if the method has it. The last checkpoint is from before it: a resumed
        run, which finds its steps done and charged, begins it again, to the same end."""
        if self.method.polish is None:
            return state
        with self._recorded(state, Bar(self.method.polish.steps, 0, "generator step")) as record:
            return loop.polish(self.method, state, key, self.runtime.steps_per_call,
                               on_block=record, stop=self.stop)

    @contextmanager
    def _recorded(self, state: State, bar: Bar) -> Iterator[OnBlock]:
        """After each block: a line of public metrics, the progress bar, and now and then a
        checkpoint; at the end, however it comes, a checkpoint of the last whole block."""
        latest = saved = state
        elapsed = self.elapsed
        next_save = elapsed() + self._between_saves

        def save():
            nonlocal saved, next_save
            # An interrupt inside a block leaves a state whose arrays were given away to that block.
            lost = jax.tree.leaves(latest.public)[0].is_deleted()
            due = latest.step > saved.step and not lost
            saved = latest  # also where it fails: a full disk is not tried again at the end
            if due:
                self._save(latest)
            next_save = elapsed() + self._between_saves

        board = self.files.root / "tensorboard" if self.watcher.asked.tensorboard else None
        with metrics.MetricsWriter(self.files.metrics, state.step, board) as writer:

            def record(now: State, values: dict[str, float]) -> None:
                nonlocal latest
                epsilon = self.ledger.epsilon()
                if self.method.polish is None or now.polished is not None:  # there is a generator
                    values = values | self.watcher(now, writer)
                values = values | {"charged": self.ledger.steps_charged}
                writer.write({"step": now.done, "epsilon": epsilon, "seconds": elapsed(), **values})
                bar.advance(now.done - latest.done, {"epsilon": f"{epsilon:.3f}"})
                latest = now
                if elapsed() > next_save:
                    save()

            try:
                yield record
            finally:
                bar.close()
                save()

    def _save(self, state: State) -> None:
        resume.save(self.files, state, self.method, self.layout, self.ledger,
                    self.runtime.keep_checkpoints)

    @property
    def _between_saves(self) -> float:
        """Seconds."""
        return 60 * self.runtime.checkpoint_minutes
