"""The server of a federation: a run whose records stay with its clients.

In each round the server sends a question to a cohort of clients, sums the answers that come back in
time, and trains the generator. It has no private data. Its ledger is a bound on what a client can
have spent, not a permission to spend.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import LocalMechanism, Mechanism
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.core import run_folder
from dpgen_jax.core.config import Runtime, to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.files import Json
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.terms import ProtectedUnit
from dpgen_jax.core.types import BudgetExceeded, Method, PyTree, Spec, UserError
from dpgen_jax.federated import messages
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.private.teachers import check_public, check_query
from dpgen_jax.release import bundle, guarantee
from dpgen_jax.release.bundle import Release
from dpgen_jax.release.guarantee import Protected
from dpgen_jax.run import checkpoint, loop, resume, stages
from dpgen_jax.run.loop import affordable, require_32_bits
from dpgen_jax.run.planning import Log, Resolved
from dpgen_jax.run.progress import Notices, clock, interruptible, public_seconds
from dpgen_jax.run.stages import keeping, nothing_released

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


def save_state(files: RunFolder, state: State, ledger: Ledger) -> None:
    """Writes a checkpoint that names the ledger line at which it was taken.

    Raises:
        UserError: It cannot be written.
    """
    checkpoint.save(files.checkpoints, ledger.steps_charged, [("public", _arrays(state))],
                    keep=KEEP, note={
        "step": state.step, "noise": sorted(state.noise),
        "ledger_head": ledger.head, "ledger_lines": ledger.n_lines})


def keep_state(files: RunFolder, state: State, ledger: Ledger, notices: Notices) -> None:
    """Saves a state unless its round has a checkpoint; a failure is only reported."""
    try:
        if ledger.steps_charged not in checkpoint.steps(files.checkpoints):
            save_state(files, state, ledger)
    except (UserError, OSError) as error:
        notices.failure(str(error))


def latest_state(files: RunFolder, fresh: State, ledger: Ledger) -> State:
    """Reads the newest checkpoint, or returns the initial state if there is none.

    Raises:
        UserError: The checkpoint is damaged, or the ledger does not cover it.
    """
    rounds = checkpoint.steps(files.checkpoints)
    if not rounds:
        return fresh
    note = checkpoint.note_checkpoint(files.checkpoints, rounds[-1], "step", "noise", "ledger_head",
                                      "ledger_lines")
    if not ledger.contains(note["ledger_head"], note["ledger_lines"]):
        raise UserError(f"{files.ledger} is shorter than, or not, the ledger of checkpoint "
                        f"{rounds[-1]}: restore the file that belongs to this run")
    arrays = checkpoint.restore(files.checkpoints, rounds[-1], "public", jax.tree.map(
        lambda a: np.empty(a.shape, a.dtype), _arrays(fresh)))
    return State(jax.device_put(arrays["public"]), jax.random.wrap_key_data(arrays["key"]),
                 note["step"], frozenset(note["noise"]))


def _arrays(state: State) -> dict[str, PyTree]:
    """Returns the arrays of a state by their names in a checkpoint."""
    return {"public": state.public, "key": jax.random.key_data(state.key)}


PATIENCE = 3
"""The number of consecutive rounds without any answer after which a run ends."""


class Exchange(Protocol):
    """The connection of the server to its clients.

    Attributes:
        sent: Bytes so far.
        received: Likewise.
    """

    sent: int
    received: int

    def members(self) -> set[int]:
        """Returns the numbers of the clients that are present."""

    def ask(self, question: Question, clients: Sequence[int]) -> Iterable[Reply]:
        """Sends a question to clients, and returns the replies that arrive in time, unchecked."""


def fault_of_reply(reply: Reply, question: Question, mechanism: LocalMechanism) -> str | None:
    """Returns why a reply cannot be counted, in a few words; None if it is valid."""
    values = reply.values
    if isinstance(values, str):
        return values
    if reply.noise not in (OsBits.label, SeededBits.label):
        return "does not say where its noise comes from"
    if reply.round != question.round:
        return f"is for round {reply.round!r}"
    if not isinstance(values, np.ndarray) or values.dtype != np.int32:
        return f"holds {getattr(values, 'dtype', type(values).__name__)}, expected int32"
    if values.shape != mechanism.shape:
        return f"has shape {list(values.shape)}, expected {list(mechanism.shape)}"
    if values.size and int(np.abs(values.astype(np.int64)).max()) > mechanism.largest:
        return f"holds entries above {mechanism.largest}, which no client draws"
    return None


def sound_replies(replies: Iterable[Reply], question: Question, cohort: Sequence[int],
                  mechanism: LocalMechanism, log: Log) -> dict[int, Reply]:
    """Selects the replies that count, by client; the others are dropped and logged.

    A reply counts if it is valid, from a client of the cohort, and its first.
    """
    counted: dict[int, Reply] = {}
    for reply in replies:
        why = fault_of_reply(reply, question, mechanism)
        if why is None and reply.client not in cohort:
            why = "was not expected"
        if why is None and reply.client in counted:
            why = "is its second"
        if why is None:
            counted[reply.client] = reply
        else:
            log(f"round {question.round}: the answer of client {reply.client} {why}; dropped")
    return counted


def queried_clients(mechanism: LocalMechanism, round_number: int, members: set[int]) -> list[int]:
    """Returns the clients to query in a round, among those that are present.

    Client u belongs to cohort u mod `n_cohorts`.
    """
    schedule = mechanism.schedule
    cohort = int(schedule.cohorts(OsBits(), round_number, 1)[0])  # public: it draws no bits
    return sorted(u for u in members
                  if 0 <= u < mechanism.n_units and u % schedule.n_cohorts == cohort)


def initial_state(method: Method, seed: int | None) -> State:
    """Returns the initial state of a run in one process, without units.

    The keys are split as in `loop.initial_state`, and are random without a seed.
    """
    key = jax.random.key((secrets.randbits(32) if seed is None else seed) % 2**32)
    k_public, _, k_steps = jax.random.split(key, 3)
    return State(jax.jit(method.init)(k_public), k_steps)


@functools.lru_cache(maxsize=4)
def _compile(method: Method) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    """Compiles the public half of a step: before the clients answer, and after."""
    def ask(public: PyTree, key: jax.Array, step: int) -> PyTree:
        k_ask, _ = jax.random.split(jax.random.fold_in(key, step))
        query = method.ask(k_ask, public)
        check_query(query)
        return query

    def absorb(public: PyTree, key: jax.Array, step: int, query: PyTree, released: jax.Array
               ) -> PyTree:
        _, k_absorb = jax.random.split(jax.random.fold_in(key, step))
        after, metrics = method.absorb(k_absorb, public, query, released)
        check_public(public, after, metrics)
        return after, metrics

    return jax.jit(ask), jax.jit(absorb)


class Conversation:
    """The server's side of one step."""

    def __init__(self, terms: Terms, method: Method):
        self.method, self._terms = method, terms.digest
        self._ask, self._absorb = _compile(method)
        self._decode = messages.local_mechanism(method).decode

    def ask(self, state: State, round_number: int) -> tuple[PyTree, Question]:
        """Returns the query of a step, and the question with it in a round."""
        query = self._ask(state.public, state.key, state.step)
        return query, Question(self._terms, round_number, state.step, messages.pack(query))

    def absorb(self, state: State, query: PyTree, replies: dict[int, Reply]
               ) -> tuple[State, dict[str, float]]:
        """Trains the generator on the mean over the clients that answered.

        The sum is in int32, which is exact in any order. Returns the next state, and public metrics
        by name.
        """
        total = np.sum([np.asarray(reply.values) for reply in replies.values()], 0, dtype=np.int32)
        released = self._decode(jnp.asarray(total), len(replies))
        public, values = self._absorb(state.public, state.key, state.step, query, released)
        noise = state.noise | {reply.noise for reply in replies.values()}
        return State(public, state.key, state.step + 1, noise), {
            name: float(value) for name, value in values.items()}


Metrics = dict[str, Any]
"""The metrics of a round, as JSON values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundHooks:
    """The functions that are called during rounds.

    Attributes:
        on_round: Called after each round with the state and its metrics.
        log: Prints a line of the run.
        stop: Returns True once the run should stop.
    """

    on_round: Callable[[State, Metrics], None]
    log: Log = print
    stop: Callable[[], bool] = lambda: False


def train_rounds(conversation: Conversation, state: State, ledger: Ledger, exchange: Exchange,
                 steps: int, hooks: RoundHooks) -> State:
    """Queries clients until all steps are made, the budget is used up, or `stop()`.

    Each round is charged before the question leaves, and stays charged even if no client answers:
    an answer that is lost, late or dropped has left its client all the same.

    Raises:
        UserError: When no client answers `PATIENCE` times in a row, or the generator diverges.
    """
    silent = 0
    while (state.step < steps and not hooks.stop()
           and affordable(conversation.method, ledger, 1)):
        before = (exchange.sent, exchange.received)
        state, values = _round(conversation, state, ledger, exchange, hooks.log)
        silent = 0 if values["clients"] else silent + 1
        hooks.on_round(state, values | {"bytes_sent": exchange.sent - before[0],
                                       "bytes_received": exchange.received - before[1]})
        if silent == PATIENCE:
            raise UserError(f"no client gave a valid answer in {PATIENCE} rounds; check the output "
                            "of the clients, then resume the run")
    return state


def _round(conversation: Conversation, state: State, ledger: Ledger, exchange: Exchange, log: Log
           ) -> tuple[State, Metrics]:
    """Sends one question to the clients of a cohort; it is charged even if no client answers."""
    mechanism = messages.local_mechanism(conversation.method)
    round_number = ledger.steps_charged
    charged = mechanism.pending_charge(ledger.spent(), round_number, 1)
    ticket = ledger.reserve(charged, 1)
    query, question = conversation.ask(state, round_number)
    cohort = queried_clients(mechanism, round_number, exchange.members())
    replies = sound_replies(exchange.ask(question, cohort), question, cohort, mechanism, log)
    ledger.settle(ticket, charged, 1)
    values: dict[str, float] = {}
    if replies:
        state, values = conversation.absorb(state, query, replies)
    if not all(map(math.isfinite, values.values())):
        raise UserError(f"the generator diverged at step {state.step}; lower "
                        "g_optimiser.learning_rate")
    return state, {"turn": round_number, "asked": len(cohort), "clients": sorted(replies),
                   **values}


MIN_CLIENTS = 2
"""The fewest clients with which a run starts."""


def run(request: Resolved, spec: Spec, exchange: Exchange, log: Log = tell,
        notices: Notices | None = None) -> Release:
    """One federated run, from the terms to the release folder.

    It shares folder, ledger, signals and release with a run in one process (`run.stages`), but has
    no records.

    The configuration of the request is complete, and `spec` is the public schema of the clients'
    records. The returned release is also in the run folder.

    Raises:
        UserError: The folder is of another run, there are too few clients, a precision is for runs
            of one process only; and as `train_rounds`.
        BudgetExceeded: The budget allows no step.
        SystemExit: With its exit code, after a signal that ended the run early.
    """
    require_32_bits()
    if request.runtime.compute != Runtime.compute:
        raise UserError(f"compute is {request.runtime.compute}, and the clients of a federation "
                        f"compute in {Runtime.compute}: leave it out")
    notices = notices or Notices()
    terms = Terms(request.method, request.config, spec)
    method = terms.build(request.runtime)
    loop.check(method)
    bundle.check(method, spec)
    if len(exchange.members()) < MIN_CLIENTS:
        raise UserError(f"{len(exchange.members())} clients have joined; at least {MIN_CLIENTS} of "
                        f"{method.mechanism.n_units} must")
    root = request.out or run_folder.default_root(request.method, "federation")
    public: Json = to_json({
        "method": request.method, "preset": request.preset, "dataset": run_folder.FEDERATION,
        "records": None, "spec": spec, "config": request.config, "budget": request.budget,
        "runtime": request.runtime, "seed": request.seed, "data_notes": ()})
    origin = resume.Origin(RunFolder(root), request.resume)
    files = origin.files
    resume.open_folder(origin, public)
    log(f"run folder: {root.absolute()}")
    with resume.open_ledger(origin, method.mechanism, public) as ledger, \
            interruptible() as stop:
        if line := resume.of_torn_lines(ledger):
            log(line)
        session = Session(request, terms, method, files, ledger, notices, log)
        state = session.train(exchange, stop)
        if not state.step and stop.reason:
            raise nothing_released(files, stop)
        if not state.step:
            raise BudgetExceeded("the budget allows no step, or no client answered: there is no "
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
        terms: What server and clients agreed on.
        method: The method of the terms, built.
        files: The run folder.
        ledger: The run's open ledger.
        notices: Failures outside of the release, for the user.
        log: Prints a line of the run.
    """

    request: Resolved
    terms: Terms
    method: Method
    files: RunFolder
    ledger: Ledger
    notices: Notices
    log: Log

    def train(self, exchange: Exchange, stop: Callable[[], bool]) -> State:
        """Trains from the newest checkpoint on, until `stop()`.

        Each round ends with a line of metrics and a checkpoint; if these fail, the round still
        counts.
        """
        state = latest_state(self.files, initial_state(self.method, self.request.seed), self.ledger)
        writer = run_folder.MetricsWriter(self.files.metrics, resume_step=state.step)
        elapsed, steps = clock(), self.request.config.planned_steps

        def on_round(state: State, values: Metrics) -> None:
            # A single client without noise is enough: the run then states no epsilon.
            # Until a client has answered, there is no noise to judge.
            promised = not guarantee.faults(
                self.ledger.target, guarantee.sources(state.noise) or guarantee.SOUND_NOISE,
                self.request.config.accounting)
            name = run_folder.EPSILON if promised else run_folder.BUDGET_EPSILON
            with self.notices.attempt(f"writing {self.files.metrics}"):
                writer.write({"step": state.step, name: self.ledger.epsilon(),
                              "seconds": public_seconds(elapsed()), **values})
            keep_state(self.files, state, self.ledger, self.notices)
            self.log(f"round {values['turn']}: step {state.step} of {steps}, "
                     f"{len(values['clients'])} of {values['asked']} answered, "
                     f"{values['bytes_sent']:,} bytes out, {values['bytes_received']:,} in")

        try:
            return train_rounds(Conversation(self.terms, self.method), state, self.ledger,
                                exchange, steps,
                                RoundHooks(on_round=on_round, log=self.log, stop=stop))
        finally:
            with self.notices.attempt(f"writing {self.files.metrics}"):
                writer.close()

    def release(self, state: State) -> Release:
        """Writes the release with its privacy statement, then the last checkpoint."""
        def keep() -> None:
            keep_state(self.files, state, self.ledger, self.notices)

        with keeping(keep):
            return stages.publish(self.files, self.made(state), keep, self.notices, self.log)

    def made(self, state: State) -> Release:
        """Returns the release of a state, without writing it."""
        mechanism, request = self.method.mechanism, self.request
        facts = guarantee.Facts(method=request.method, preset=request.preset, steps=state.step,
                                noise_source=guarantee.sources(state.noise),
                                accounting=request.config.accounting,
                                started_on=stages.started_on(self.files))
        privacy = guarantee.statement(facts, self.ledger, mechanism.relation,
                                      protected(mechanism))
        key = stages.last_key(state, request.config)
        arrays = jax.device_get(jax.jit(self.method.finalize)(key, state.public))
        return Release(request.method, request.config, self.terms.spec, arrays, privacy)


def protected(mechanism: Mechanism) -> Protected:
    """Returns who is protected by a federation: its clients."""
    return Protected(ProtectedUnit(mechanism.unit), {"clients": mechanism.n_units}, (
        f"{mechanism.n_units} clients, each of which adds the noise itself and keeps its own "
        "ledger; how many records they hold is not known here",))
