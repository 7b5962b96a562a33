"""The stages of a run: warm start, steps, and the generator's training on what they released. Each
is shown and can be stopped, and what must not be lost is saved."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

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
from dpgen_jax.run import checkpoint
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.metrics import MetricsWriter
from dpgen_jax.run.progress import Bar, Notices, clock, public_seconds
from dpgen_jax.types import Method, Private, Records, UserError
from dpgen_jax.watch import Watcher


@dataclasses.dataclass(frozen=True)
class Stages:
    """What all stages share. stop: whether the run was asked to stop; notices: of what failed and
    did not stop it; elapsed: seconds since they began, over all of them."""

    method: Method
    files: RunFolder
    layout: teachers.Layout
    ledger: Ledger
    runtime: Runtime
    watcher: Watcher
    stop: Callable[[], bool]
    notices: Notices
    elapsed: Callable[[], float] = dataclasses.field(default_factory=clock)

    def warm(self, state: State, records: Private[Records]) -> State:
        """The state with its units warm, or as far as they came before `stop`; saved now and then.
        """
        if self.stop():
            return state
        elapsed, saved = self.elapsed, state
        next_save = elapsed() + self.between_saves
        bar = Bar(self.method.mechanism.n_units, 0, "warm unit")
        for units, share in warm_up(self.method, state.units, records, self.layout):
            state = dataclasses.replace(state, units=units)
            bar.reach(share)
            if elapsed() > next_save:
                self._save(state)
                next_save, saved = elapsed() + self.between_saves, state
            if self.stop():
                break
        bar.close()
        if state is not saved:
            self._save(state)
        return state

    def train(self, state: State, records: Private[Records], bits: BitSource, planned: int,
              most: int) -> tuple[State, Exception | None]:
        """The loop, up to `most` steps, of which `planned` are expected; and why it could not go
        on, where that was neither the budget nor `stop`: what was paid for until then is worth a
        release."""
        def keep(votes: Private[jax.Array], answered: np.ndarray) -> None:
            if self.method.mechanism.keeps_votes:
                vote_log.append(self.files.votes, votes, answered)

        writer = MetricsWriter(self.files.metrics, state.step, self._board)
        with self._recorded(state, Bar(planned, state.step), writer) as record:
            try:
                return loop.train(self.method, records, state, self.layout, self.ledger, bits,
                                  steps=most, steps_per_call=self.runtime.steps_per_call,
                                  on_block=record, keep=keep, stop=self.stop), None
            except (UserError, OSError) as error:
                if not (record.whole and record.latest.step):
                    raise
                self.notices.failure(str(error))
                return record.latest, error

    def polish(self, state: State, key: jax.Array) -> State:
        """`loop.polish`, if the method has it. The last checkpoint is from before it: a resumed
        run, which finds its steps done and charged, begins it again, to the same end. The units
        are gone then, whose memory the generator's own work may use."""
        if self.method.polish is None:
            return state
        self.keep(state)  # what was paid for: there is no generator before it is trained
        state, writer = dataclasses.replace(state, units=None), None
        with self.notices.attempt(f"writing {self.files.metrics}"):
            writer = MetricsWriter(self.files.metrics, state.step, self._board)
        bar = Bar(self.method.polish.steps, 0, "generator step")
        with self._recorded(state, bar, writer) as record:
            return loop.polish(self.method, state, key, self.runtime.steps_per_call,
                               on_block=record, stop=self.stop)

    def keep(self, state: State) -> None:
        """A checkpoint of this state, unless it is there."""
        if state.units is not None and state.step not in checkpoint.steps(self.files.checkpoints):
            self._save(state)

    @contextlib.contextmanager
    def _recorded(self, state: State, bar: Bar, writer: MetricsWriter | None
                  ) -> Iterator[Recorder]:
        """Records each block; where the stage is cut short, a checkpoint of the last whole one."""
        record = Recorder(self, bar, writer, state)
        try:
            yield record
        except BaseException:
            if record.whole:
                self.keep(record.latest)
            raise
        finally:
            bar.close()
            with self.notices.attempt(f"writing {self.files.metrics}"):
                if writer:
                    writer.close()

    def _save(self, state: State) -> None:
        """A failure costs this checkpoint, and no more."""
        try:
            resume.save(self.files, state, self.method, self.layout, self.ledger,
                        self.runtime.keep_checkpoints)
        except UserError as error:
            self.notices.failure(str(error))

    @property
    def _board(self) -> object:
        return self.files.root / "tensorboard" if self.watcher.asked.tensorboard else None

    @property
    def between_saves(self) -> float:
        """Seconds."""
        return 60 * self.runtime.checkpoint_minutes


class Recorder:
    """Called after each block with the state and public metrics: a line in their file, the progress
    bar, and now and then a checkpoint. latest: the state after the last whole block."""

    def __init__(self, stages: Stages, bar: Bar, writer: MetricsWriter | None, state: State):
        self.latest, self._stages, self._bar, self._writer = state, stages, bar, writer
        self._next_save = stages.elapsed() + stages.between_saves

    @property
    def whole(self) -> bool:
        """Whether `latest` is there: what ends a block within leaves arrays that were given away
        to it."""
        return not jax.tree.leaves(self.latest.public)[0].is_deleted()

    def __call__(self, now: State, values: dict[str, float]) -> None:
        stages, steps = self._stages, now.done - self.latest.done
        self.latest = now
        epsilon = stages.ledger.epsilon()
        with stages.notices.attempt("watching the run"):
            if self._writer and (stages.method.polish is None or now.polished is not None):
                values = values | stages.watcher(now, self._writer)  # there is a generator
        with stages.notices.attempt(f"writing {stages.files.metrics}"):
            if self._writer:
                seconds = public_seconds(stages.elapsed())
                self._writer.write(
                    {"step": now.done, "epsilon": epsilon, "seconds": seconds, **values,
                     "charged": stages.ledger.steps_charged})
        self._bar.advance(steps, {"epsilon": f"{epsilon:.3f}"})
        if stages.elapsed() > self._next_save:
            stages.keep(now)
            self._next_save = stages.elapsed() + stages.between_saves
