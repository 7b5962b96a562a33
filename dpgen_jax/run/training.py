"""The training of a run: pretraining, steps, and post-training on what they released.

Each part is shown and can be stopped, and what must not be lost is saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import BitSource
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.run_folder import MetricsWriter, RunFolder, read_json
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Method, Private, Records, UserError
from dpgen_jax.private import kept_votes as vote_log
from dpgen_jax.private import teachers
from dpgen_jax.private.pretraining import pretrain
from dpgen_jax.run import checkpoint, loop, progress
from dpgen_jax.run.loop import State
from dpgen_jax.run.monitor import Monitor
from dpgen_jax.run.progress import Bar, Notices, Stop, clock, public_seconds

PATIENCE = 20
"""The next checkpoint waits this many times as long as the last one stopped the training."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The values that the parts of a training share.

    Attributes:
        method: The method, built.
        files: The run folder.
        layout: How the units lie on the devices.
        ledger: The run's open ledger.
        runtime: Speed and memory.
        monitor: Shows the generator as it stands.
        stop: Whether the run was asked to stop.
        notices: Tells what failed and did not stop the run.
        charged: The name under which the epsilon that was charged is shown.
        elapsed: Seconds since the training began, over all of its parts.
        saving: The checkpoint that is being written during the training, if any.
        stopped: Seconds for which the last checkpoint stopped the training, if there was one.
    """

    method: Method
    files: RunFolder
    layout: teachers.Layout
    ledger: Ledger
    runtime: Runtime
    monitor: Monitor
    stop: Stop
    notices: Notices
    charged: str
    elapsed: Callable[[], float] = dataclasses.field(default_factory=clock)
    saving: list[checkpoint.Saving] = dataclasses.field(default_factory=list)
    stopped: list[float] = dataclasses.field(default_factory=list)

    def pretrain(self, state: State, records: Private[Records]) -> State:
        """Pretrains the units, and saves them now and then.

        Args:
            state: The state before the first step.
            records: Those of each unit, sealed, on their devices.

        Returns:
            The state with all units pretrained, or as many as were before `stop`.
        """
        self.stop.begin_stage()
        if self.stop() or state.units is None:
            return state
        elapsed, saved = self.elapsed, state
        next_save = elapsed() + self.between_saves
        with contextlib.closing(Bar(self.method.mechanism.n_units, 0, "warm unit",
                                    self.monitor.options.progress)) as bar:
            for units, share in pretrain(self.method, state.units, records, self.layout):
                state = dataclasses.replace(state, units=units)
                bar.reach(share)
                if elapsed() > next_save:
                    self.save(state)
                    next_save, saved = elapsed() + self.between_saves, state
                if self.stop():
                    break
        if state is not saved:
            self.save(state)
        self.saved()
        return state

    def train(self, state: State, records: Private[Records], bits: BitSource, planned: int,
              limit: int) -> tuple[State, Exception | None]:
        """Runs the loop.

        Args:
            state: The state to go on from.
            records: Those of each unit, sealed, on their devices.
            bits: The source of the noise.
            planned: How many steps are expected.
            limit: How many steps are made at most.

        Returns:
            The state after the last step; and why the loop could not go on, where that was neither
            the budget nor `stop`: what was paid for until then is worth a release.

        Raises:
            UserError: Where nothing was paid for that could be released.
        """
        def keep(votes: Private[jax.Array], answered: np.ndarray) -> None:
            if self.method.mechanism.keeps_votes:
                vote_log.append(self.files.votes, votes, answered)

        def digest(first_round: int, secret: list[np.ndarray]) -> None:
            with self.notices.attempt(f"writing {self.files.noise_digests}"):
                key = bytes.fromhex(read_json(self.files.identity)["partition_key"])
                loop.append_digests(self.files.noise_digests, key, first_round, secret)

        writer = MetricsWriter(self.files.metrics, state.step, self._board)
        program = progress.program(state, self.layout.chunk, self.layout.padded,
                                   self.layout.slab, self.runtime.steps_per_call)
        self.stop.begin_stage()
        total = planned if state.step < planned or limit <= planned else None
        # Beyond the plan only the budget decides whether there is a further step.
        shown = self.monitor.options.progress and (
            total is not None or loop.affordable(self.method, self.ledger, 1) > 0)
        bar = Bar(total, state.step, "step", shown, program)
        with self._recorded(state, bar, writer) as record:
            try:
                job = loop.Job(self.method, self.layout, self.ledger, bits,
                               self.runtime.steps_per_call)
                hooks = loop.Hooks(on_block=record, keep_votes=keep, stop=self.stop,
                                   on_bits=digest, on_state=record.replaced)
                return loop.train(job, records, state, limit, hooks), None
            except (UserError, OSError) as error:
                if not (record.whole and record.latest.step):
                    raise
                self.notices.failure(str(error))
                return record.latest, error

    def post_train(self, state: State, key: jax.Array) -> State:
        """Runs `loop.post_train`, if the method has it.

        The last checkpoint is from before it: a resumed run, which finds its steps done and
        charged, begins it again, to the same end. The units are gone then, whose memory the
        generator's own work may use.

        Args:
            state: The state after the last step.
            key: The key that `Method.finalize` gets.

        Returns:
            The state after the post-training, or as far as it came before `stop`.
        """
        if self.method.post_training is None:
            return state
        self.keep(state)  # what was paid for: there is no generator before it is trained
        state, writer = dataclasses.replace(state, units=None), None
        with self.notices.attempt(f"writing {self.files.metrics}"):
            writer = MetricsWriter(self.files.metrics, state.step, self._board)
        self.stop.begin_stage(first_is_typical=False)  # a block is of about a second
        bar = Bar(self.method.post_training.steps, 0, "generator step",
                  self.monitor.options.progress)
        with self._recorded(state, bar, writer) as record:
            hooks = loop.Hooks(on_block=record, stop=self.stop)
            return loop.post_train(self.method, state, key, self.runtime.steps_per_call, hooks)

    def keep(self, state: State) -> None:
        """Saves a checkpoint of this state, unless it is there, and waits until it is."""
        self.saved()
        if state.units is not None and state.step not in checkpoint.steps(self.files.checkpoints):
            self.save(state)
            self.saved()

    def saved(self, wait: bool = True) -> None:
        """Puts the checkpoint that is being written in its place.

        A failure costs this checkpoint, and no more.

        Args:
            wait: Whether to wait until it is written.
        """
        if self.saving and (wait or self.saving[0].parts.written):
            with self._failure_told():
                self.saving[0].finish()
            self.saving.clear()  # not before: whoever interrupts the wait still finds it

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
            self.saved()
            with self.notices.attempt(f"writing {self.files.metrics}"):
                if writer:
                    writer.close()

    def save(self, state: State) -> None:
        """Begins a checkpoint of this state, once the last one is in its place."""
        self.saved()
        begun = self.elapsed()
        with self._failure_told():
            self.saving.append(checkpoint.begin_state(
                self.files, state, self.method, self.layout, self.ledger,
                self.runtime.keep_checkpoints))
        self.saved(wait=False)  # one that is written whole is good from here on
        self.stopped[:] = [self.elapsed() - begun]

    @contextlib.contextmanager
    def _failure_told(self) -> Iterator[None]:
        try:
            yield
        except (UserError, OSError) as error:
            self.notices.failure(str(error))

    @property
    def _board(self) -> Path | None:
        return self.files.root / "tensorboard" if self.monitor.options.tensorboard else None

    @property
    def between_saves(self) -> float:
        """Seconds from the end of one checkpoint to the next.

        They stop the training for at most 5 % of the time, but where the user asks for other
        minutes than the default.
        """
        minutes = self.runtime.checkpoint_minutes
        if minutes != Runtime.checkpoint_minutes:
            return 60 * minutes
        return max(60 * minutes, PATIENCE * sum(self.stopped))


class Recorder:
    """Called after each block with the state and its public metrics.

    It writes them as a line, moves the progress bar, and saves a checkpoint now and then.

    Attributes:
        latest: The state after the last whole block; after an interruption of the next one, that of
            the next one.
    """

    def __init__(self, training: Training, bar: Bar, writer: MetricsWriter | None, state: State):
        self.latest, self._training, self._bar, self._writer = state, training, bar, writer
        self._done = state.done
        self._next_save = training.elapsed() + training.between_saves

    @property
    def whole(self) -> bool:
        """Whether `latest` can be read.

        An error within a block leaves arrays behind that were donated to it.
        """
        return not jax.tree.leaves(self.latest.public)[0].is_deleted()

    def replaced(self, state: State) -> None:
        """Takes a state in place of the latest, whose arrays it has taken over."""
        self.latest = state

    def __call__(self, now: State, values: dict[str, float]) -> None:
        """Records a block.

        Args:
            now: The state after it.
            values: Its public metrics by name.
        """
        training, steps = self._training, now.done - self._done
        self.latest, self._done = now, now.done
        epsilon = training.ledger.epsilon()
        with training.notices.attempt("watching the run"):
            # With post-training there is no generator before it has begun.
            waits = training.method.post_training is not None and now.post_state is None
            if self._writer and not waits:
                values = values | training.monitor(now, self._writer)
        with training.notices.attempt(f"writing {training.files.metrics}"):
            if self._writer:
                seconds = public_seconds(training.elapsed())
                self._writer.write(
                    {"step": now.done, training.charged: epsilon, "seconds": seconds, **values,
                     "charged": training.ledger.steps_charged})
        self._bar.advance(steps, {training.charged: at_most(epsilon, 4)})
        training.saved(wait=False)
        if now.units is not None and training.elapsed() > self._next_save:
            training.save(now)
            self._next_save = training.elapsed() + training.between_saves
