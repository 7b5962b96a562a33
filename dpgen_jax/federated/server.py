"""The server of a federation: a run whose records lie with its clients.

It queries the clients, sums the answers that come back in time, and trains the generator; it has
nothing private.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import BudgetExceeded, Method, Spec, UserError
from dpgen_jax.federated import saved
from dpgen_jax.federated.messages import Terms
from dpgen_jax.federated.rounds import (
    Conversation,
    Exchange,
    Metrics,
    RoundHooks,
    initial_state,
    train,
)
from dpgen_jax.federated.saved import State
from dpgen_jax.release import guarantee, model, statement
from dpgen_jax.release.bundle import Release
from dpgen_jax.release.statement import Protected
from dpgen_jax.run import folder, metrics, opening, resume, rounds, stages
from dpgen_jax.run.finish import keeping, nothing_released
from dpgen_jax.run.folder import RunFolder
from dpgen_jax.run.loop import require_32_bits
from dpgen_jax.run.planning import Log
from dpgen_jax.run.progress import Notices, clock, interruptible, public_seconds
from dpgen_jax.run.request import Request

MIN_CLIENTS = 2
"""The fewest clients with which a run starts."""


def run(request: Request, spec: Spec, exchange: Exchange, log: Log = tell,
        notices: Notices | None = None) -> Release:
    """One federated run, from the terms to the release folder.

    It shares folder, ledger, signals and release with a run in one process (`run.stages`); it
    has no records.

    Args:
        request: The request of the user; its configuration is complete.
        spec: The public schema of the clients' records.
        exchange: The connection to the clients.
        log: Prints a line of the run.
        notices: Tells the user what failed beside the release.

    Returns:
        The release, which is also in the run folder.

    Raises:
        UserError: For a folder of another run, too few clients, a precision that is for runs of
            one process, and as `train`.
        BudgetExceeded: Where the budget allows no step.
        SystemExit: With its exit code, after a signal that ended the run early.
    """
    require_32_bits()
    if request.runtime.compute != Runtime.compute:
        raise UserError(f"compute is {request.runtime.compute}, and the clients of a federation "
                        f"compute in {Runtime.compute}: leave it out")
    notices = notices or Notices()
    terms = Terms(request.method, request.config, spec)
    method = terms.build(request.runtime)
    rounds.check(method)
    model.check(method, spec)
    if len(exchange.members()) < MIN_CLIENTS:
        raise UserError(f"{len(exchange.members())} clients have joined; at least {MIN_CLIENTS} of "
                        f"{method.mechanism.n_units} must")
    root = request.out or folder.default_root(request.method, "federation")
    public = public_config(request, spec)
    files = (opening.reopen if request.resume else opening.create)(root, public)
    log(f"run folder: {root.absolute()}")
    with resume.ledger(files, method.mechanism, public, request.resume) as ledger, \
            interruptible() as stop:
        if line := resume.of_torn_lines(ledger):
            log(line)
        session = Session(request, terms, method, files, ledger, notices, log)
        state = session.train(exchange, stop)
        if not state.step and stop.reason:
            raise nothing_released(files, stop)
        if not state.step:
            raise BudgetExceeded("the budget allows no step, or nobody answered: there is no "
                                 "generator to release")
        if state.step < request.config.planned_steps:
            why = stop.reason or "the budget allows no further round"
            log(f"stopped at step {state.step} of {request.config.steps}: {why}")
        return session.release(state)


@dataclasses.dataclass(frozen=True)
class Session:
    """A federated run whose folder and ledger are open.

    Attributes:
        request: The request of the user.
        terms: All that server and clients agreed on.
        method: The method of the terms, built.
        files: The run folder.
        ledger: The run's open ledger.
        notices: Tells the user what failed beside the release.
        log: Prints a line of the run.
    """

    request: Request
    terms: Terms
    method: Method
    files: RunFolder
    ledger: Ledger
    notices: Notices
    log: Log

    def train(self, exchange: Exchange, stop: Callable[[], bool]) -> State:
        """Trains from the newest checkpoint on.

        Each round ends with a line of metrics and a checkpoint; a failure of these costs no more
        than itself.

        Args:
            exchange: The connection to the clients.
            stop: Returns True once the run is to stop.

        Returns:
            The last state.
        """
        state = saved.latest(self.files, initial_state(self.method, self.request.seed), self.ledger)
        writer = metrics.MetricsWriter(self.files.metrics, resume_step=state.step)
        elapsed, steps = clock(), self.request.config.planned_steps

        def on_round(state: State, values: Metrics) -> None:
            # One client whose noise is no noise is enough: the run then states no epsilon.
            # While nobody has answered there is no noise that could be at fault.
            promised = not guarantee.faults(
                self.ledger.target, guarantee.sources(state.noise) or guarantee.SOUND_NOISE,
                self.request.config.accounting)
            name = metrics.EPSILON if promised else metrics.BUDGET_EPSILON
            with self.notices.attempt(f"writing {self.files.metrics}"):
                writer.write({"step": state.step, name: self.ledger.epsilon(),
                              "seconds": public_seconds(elapsed()), **values})
            saved.keep(self.files, state, self.ledger, self.notices)
            self.log(f"round {values['turn']}: step {state.step} of {steps}, "
                     f"{len(values['clients'])} of {values['asked']} answered, "
                     f"{values['bytes_sent']:,} bytes out, {values['bytes_received']:,} in")

        try:
            return train(Conversation(self.terms, self.method), state, self.ledger, exchange, steps,
                         RoundHooks(on_round=on_round, log=self.log, stop=stop))
        finally:
            with self.notices.attempt(f"writing {self.files.metrics}"):
                writer.close()

    def release(self, state: State) -> Release:
        """Writes the release with its privacy statement, then the last checkpoint.

        Args:
            state: The last state.

        Returns:
            The release.
        """
        def keep() -> None:
            saved.keep(self.files, state, self.ledger, self.notices)

        with keeping(keep):
            return stages.publish(self.files, self.made(state), keep, self.notices, self.log)

    def made(self, state: State) -> Release:
        """Returns the release of a state, which is written nowhere yet."""
        mechanism, request = self.method.mechanism, self.request
        facts = statement.Facts(method=request.method, preset=request.preset, steps=state.step,
                                noise_source=guarantee.sources(state.noise),
                                accounting=request.config.accounting)
        privacy = statement.statement(facts, self.ledger, mechanism.relation,
                                      protected(mechanism))
        key = stages.last_key(state, request.config)
        arrays = jax.device_get(jax.jit(self.method.finalize)(key, state.public))
        return Release(request.method, request.config, self.terms.spec, arrays, privacy)


def protected(mechanism: Mechanism) -> Protected:
    """Returns who is protected by a federation: its clients.

    Args:
        mechanism: The mechanism of the federation.
    """
    return Protected(mechanism.unit, {"clients": mechanism.n_units}, (
        f"{mechanism.n_units} clients, each of which adds the noise itself and keeps its own "
        "ledger; how many records they hold is not known here",))


def public_config(request: Request, spec: Spec) -> Json:
    """Returns the content of the run's config.json.

    Args:
        request: The request of the user.
        spec: The public schema of the clients' records.
    """
    described: Json = to_json({
        "method": request.method, "preset": request.preset, "dataset": folder.FEDERATION,
        "records": None, "spec": spec, "config": request.config, "budget": request.budget,
        "runtime": request.runtime, "seed": request.seed, "data_notes": ()})
    return described
