"""The training of a run in its folder: it runs the loop and listens to it.

It shows each block, writes the files of the run, saves checkpoints, and keeps what was paid for
where a stage is cut short. What fails here costs no more than itself, and is named.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from dpgen_jax.core.config import Runtime
from dpgen_jax.core.run_folder import MetricsWriter, RunFolder, read_json
from dpgen_jax.core.terms import at_most
from dpgen_jax.core.types import Private, Records, UserError
from dpgen_jax.private import kept_votes
from dpgen_jax.run import checkpoint, loop, noise_digests
from dpgen_jax.run.loop import Job, Listener, State
from dpgen_jax.run.monitor import Monitor
from dpgen_jax.run.progress import Bar, Notices, Stop, clock, public_seconds

PATIENCE = 20
"""The next checkpoint waits this many times as long as the last one stopped the training."""


@dataclasses.dataclass
class Training(Listener):
    """Runs the stages of the loop, one after the other, and listens to them.

    Attributes:
        charged: The name under which the epsilon that was charged is shown.
        elapsed: Seconds since the training began, over all of its stages.
        latest: The state after the last whole block of the stage; where an interruption cut a block
            short, the state after that one.
    """

    job: Job
    files: RunFolder
    runtime: Runtime
    monitor: Monitor
    stopping: Stop
    notices: Notices
    charged: str
    elapsed: Callable[[], float] = dataclasses.field(default_factory=clock)
    latest: State = dataclasses.field(init=False)
    _kept: State = dataclasses.field(init=False)
    _bar: Bar = dataclasses.field(init=False)
    _writer: MetricsWriter | None = None
    _saving: checkpoint.Saving | None = None
    _stopped_for: float = 0.0
    _next_save: float = 0.0

    def pretrain(self, state: State, records: Private[Records]) -> State:
        """Pretrains the units, and saves them now and then.

        Returns:
            The state with all units pretrained, or as many as were before the stop.
        """
        self.stopping.begin_stage()
        if self.stop():
            return state
        bar = Bar(self.job.method.mechanism.n_units, 0, "warm unit",
                  self.monitor.options.progress)
        self.begin(state, bar)
        with contextlib.closing(bar):
            after = loop.pretrain(self.job, records, state, self)
        if after is not self._kept:
            self.save(after)
        self.saved()
        return after

    def train(self, state: State, records: Private[Records], planned: int, limit: int
              ) -> tuple[State, Exception | None]:
        """Makes the rounds: `planned` are expected, and at most `limit` are made.

        Returns:
            The state after the last round; and why the loop could not go on, where that was neither
            the budget nor a stop: what was paid for until then is worth a release.

        Raises:
            UserError: Where nothing was paid for that could be released.
        """
        writer = MetricsWriter(self.files.metrics, state.step, self._board)
        self.stopping.begin_stage()
        total = planned if state.step < planned or limit <= planned else None
        # Beyond the plan only the budget decides whether there is a further step.
        shown = self.monitor.options.progress and (
            total is not None or loop.affordable(self.job.method, self.job.ledger, 1) > 0)
        with self._recorded(state, Bar(total, state.step, "step", shown), writer):
            try:
                return loop.train(self.job, records, state, limit, self), None
            except (UserError, OSError) as error:
                if not (self._is_whole and self.latest.step):
                    raise
                self.notices.failure(str(error))
                return self.latest, error

    def post_train(self, state: State, key: jax.Array) -> State:
        """Trains the generator on what was released, if the method does that.

        The last checkpoint is from before it: a resumed run, which finds its steps done and
        charged, begins it again, to the same end. The units are gone then, whose memory the
        generator's own work may use.

        Args:
            state: The state after the last round.
            key: The key that `Method.finalize` gets.

        Returns:
            The state after the post-training, or as far as it came before the stop.
        """
        training = self.job.method.post_training
        if training is None:
            return state
        self.keep(state)  # what was paid for: there is no generator before it is trained
        state, writer = dataclasses.replace(state, units=None), None
        with self.notices.attempt(f"writing {self.files.metrics}"):
            writer = MetricsWriter(self.files.metrics, state.step, self._board)
        self.stopping.begin_stage(first_is_typical=False)  # a block is of about a second
        bar = Bar(training.steps, 0, "generator step", self.monitor.options.progress)
        with self._recorded(state, bar, writer):
            return loop.post_train(self.job, state, key, self)

    def begin(self, state: State, bar: Bar, writer: MetricsWriter | None = None) -> None:
        """Begins to record a stage."""
        self.latest = self._kept = state
        self._bar, self._writer = bar, writer
        self._next_save = self.elapsed() + self.between_saves

    @contextlib.contextmanager
    def _recorded(self, state: State, bar: Bar, writer: MetricsWriter | None) -> Iterator[None]:
        """Records a stage; where it is cut short, a checkpoint of the last whole block is saved."""
        self.begin(state, bar, writer)
        try:
            yield
        except BaseException:
            if self._is_whole:
                self.keep(self.latest)
            raise
        finally:
            bar.close()
            self.saved()
            with self.notices.attempt(f"writing {self.files.metrics}"):
                if writer:
                    writer.close()

    @property
    def _is_whole(self) -> bool:
        """Whether `latest` can be read: an error within a block leaves donated arrays behind."""
        return not jax.tree.leaves(self.latest.public)[0].is_deleted()

    @property
    def _board(self) -> Path | None:
        return self.files.root / "tensorboard" if self.monitor.options.tensorboard else None

    def stop(self) -> bool:
        """Whether the run must stop."""
        return self.stopping()

    def on_pretrained(self, state: State, share: float) -> None:
        """Moves the bar, and saves a checkpoint now and then."""
        self.latest = state
        self._bar.reach(share)
        self._save_if_due()

    def on_bits(self, first_round: int, bits: list[np.ndarray]) -> None:
        """Writes digests of the bits."""
        with self.notices.attempt(f"writing {self.files.noise_digests}"):
            key = bytes.fromhex(read_json(self.files.identity)["partition_key"])
            noise_digests.append(self.files.noise_digests, key, first_round, bits)

    def keep_votes(self, votes: Private[jax.Array], answered: np.ndarray) -> None:
        """Appends the votes to those in private/, where the mechanism keeps any."""
        if self.job.method.mechanism.keeps_votes:
            kept_votes.append(self.files.votes, votes, answered)

    def on_state(self, state: State) -> None:
        """Takes a state in place of the latest, whose arrays it has taken over."""
        self.latest = state

    def on_block(self, state: State, metrics: dict[str, float]) -> None:
        """Writes the metrics as a line, moves the bar, and saves a checkpoint now and then."""
        steps = state.done - self.latest.done
        self.latest, ledger = state, self.job.ledger
        epsilon = ledger.epsilon()
        with self.notices.attempt("watching the run"):
            # With post-training there is no generator before it has begun.
            waits = self.job.method.post_training is not None and state.post_state is None
            if self._writer and not waits:
                metrics = metrics | self.monitor(state, self._writer)
        with self.notices.attempt(f"writing {self.files.metrics}"):
            if self._writer:
                self._writer.write(
                    {"step": state.done, self.charged: epsilon,
                     "seconds": public_seconds(self.elapsed()), **metrics,
                     "charged": ledger.steps_charged})
        self._bar.advance(steps, {self.charged: at_most(epsilon, 4)})
        self.saved(wait=False)
        if state.units is not None:
            self._save_if_due()

    def _save_if_due(self) -> None:
        if self.elapsed() > self._next_save:
            self.save(self.latest)
            self._next_save = self.elapsed() + self.between_saves

    def keep(self, state: State) -> None:
        """Saves a checkpoint of this state, unless it is there, and waits until it is."""
        self.saved()
        if state.units is not None and state.step not in checkpoint.steps(self.files.checkpoints):
            self.save(state)
            self.saved()

    def save(self, state: State) -> None:
        """Begins a checkpoint of this state, once the last one is in its place."""
        self.saved()
        begun = self.elapsed()
        with self._failure_told():
            self._saving = checkpoint.begin_state(
                self.files, state, self.job, self.runtime.keep_checkpoints)
        self._kept = state
        self.saved(wait=False)  # one that is written whole is good from here on
        self._stopped_for = self.elapsed() - begun

    def saved(self, wait: bool = True) -> None:
        """Puts the checkpoint that is being written in its place, once it is whole.

        A failure costs this checkpoint, and no more.
        """
        if self._saving and (wait or self._saving.parts.written):
            with self._failure_told():
                self._saving.finish()
            self._saving = None  # not before: whoever interrupts the wait still finds it

    @contextlib.contextmanager
    def _failure_told(self) -> Iterator[None]:
        try:
            yield
        except (UserError, OSError) as error:
            self.notices.failure(str(error))

    @property
    def between_saves(self) -> float:
        """Seconds from the end of one checkpoint to the next.

        They stop the training for at most 5 % of the time, but where the user asks for other
        minutes than the default.
        """
        minutes = self.runtime.checkpoint_minutes
        if minutes != Runtime.checkpoint_minutes:
            return 60 * minutes
        return max(60 * minutes, PATIENCE * self._stopped_for)
