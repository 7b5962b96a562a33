"""The server: it asks, adds up what came back in time, and teaches the generator. It holds nothing
private, and its ledger is a bound on what a client can have spent, not a permission to spend."""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax import guarantee, resume
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import OsBits, SeededBits
from dpgen_jax.api import Run, nothing_made
from dpgen_jax.config import to_json
from dpgen_jax.federated import messages, saved
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.federated.saved import State
from dpgen_jax.loop import affordable, require_32_bits
from dpgen_jax.run import folder, metrics, statement
from dpgen_jax.run.bundle import Release
from dpgen_jax.run.finish import finish
from dpgen_jax.run.progress import Notices, clock, interruptible, public_seconds, tell
from dpgen_jax.run.statement import Protected
from dpgen_jax.types import BudgetExceeded, Method, Spec, UserError

PATIENCE = 3
"""turns in a row without a single answer, after which a run gives up"""
FEWEST = 2


class Exchange(Protocol):
    """How the server reaches its clients. sent, received: bytes so far."""

    sent: int
    received: int

    def members(self) -> set[int]:
        """The numbers of the clients that are there now."""

    def ask(self, question: Question, clients: Sequence[int]) -> Iterable[Reply]:
        """What came back in time from these clients; whatever it is, the server checks it."""


def fault(reply: Reply, question: Question, mechanism: Any) -> str | None:
    """Why a reply cannot be counted, in a few words; None for a sound one."""
    values = reply.values
    if isinstance(values, str):
        return values
    if reply.noise not in (OsBits.label, SeededBits.label):
        return "does not say where its noise comes from"
    if reply.turn != question.turn:
        return f"is for turn {reply.turn!r}"
    if not isinstance(values, np.ndarray) or values.dtype != np.int32:
        return f"holds {getattr(values, 'dtype', type(values).__name__)}, expected int32"
    if values.shape != mechanism.shape:
        return f"has shape {list(values.shape)}, expected {list(mechanism.shape)}"
    if values.size and int(np.abs(values.astype(np.int64)).max()) > mechanism.largest:
        return f"holds entries above {mechanism.largest}, which no client draws"
    return None


def sound(replies: Iterable[Reply], question: Question, asked: Sequence[int], mechanism: Any,
          say: Callable[[str], None]) -> dict[int, Reply]:
    """The replies that count, one a client; the others are dropped and named."""
    held: dict[int, Reply] = {}
    for reply in replies:
        why = fault(reply, question, mechanism)
        if why is None and reply.client not in asked:
            why = "was not asked for"
        if why is None and reply.client in held:
            why = "is its second"
        if why is None:
            held[reply.client] = reply
        else:
            say(f"turn {question.turn}: the answer of client {reply.client} {why}; dropped")
    return held


def due(mechanism: Any, turn: int, members: set[int]) -> list[int]:
    """The clients whose turn it is, among those that are there: u with u mod groups = the group."""
    schedule = mechanism.schedule
    group = int(schedule.turns(None, turn, 1)[0])
    return sorted(u for u in members if 0 <= u < mechanism.n_units and u % schedule.groups == group)


def initial_state(method: Method, seed: int | None) -> State:
    """As the run in one process starts (`loop.initial_state`), without units."""
    key = jax.random.key((secrets.randbits(32) if seed is None else seed) % 2**32)
    k_public, _, k_steps = jax.random.split(key, 3)
    return State(jax.jit(method.init)(k_public), k_steps)


@functools.lru_cache(maxsize=4)
def _compile(method: Method) -> tuple[Callable, Callable]:
    """The public half of a step: before the clients, and after them."""
    def ask(public, key, step):
        k_ask, _ = jax.random.split(jax.random.fold_in(key, step))
        return method.ask(k_ask, public)

    def absorb(public, key, step, query, released):
        _, k_absorb = jax.random.split(jax.random.fold_in(key, step))
        return method.absorb(k_absorb, public, query, released)

    return jax.jit(ask), jax.jit(absorb)


class Conversation:
    """The server's side of one step."""

    def __init__(self, terms: Terms, method: Method):
        self._terms, (self._ask, self._absorb) = terms.digest, _compile(method)
        self._decode = method.mechanism.decode

    def ask(self, state: State, turn: int) -> tuple[Any, Question]:
        query = self._ask(state.public, state.key, state.step)
        return query, Question(self._terms, turn, state.step, messages.pack(query))

    def absorb(self, state: State, query: Any, replies: dict[int, Reply]
               ) -> tuple[State, dict[str, float]]:
        """The mean over those who answered. Sums of int32 are exact in any order."""
        total = np.sum([reply.values for reply in replies.values()], 0, dtype=np.int32)
        released = self._decode(jnp.asarray(total), len(replies))
        public, values = self._absorb(state.public, state.key, state.step, query, released)
        said = state.noise | {reply.noise for reply in replies.values()}
        return State(public, state.key, state.step + 1, said), {
            name: float(value) for name, value in values.items()}


OnTurn = Callable[[State, dict[str, Any]], None]


def train(terms: Terms, method: Method, state: State, ledger: Ledger, exchange: Exchange, *,
          steps: int, on_turn: OnTurn, say: Callable[[str], None] = print,
          stop: Callable[[], bool] = lambda: False) -> State:
    """Asks until `steps` steps were made, the budget allows no further turn, or `stop()`.

    Each turn is charged before the question leaves, and stays charged whoever answers: an answer
    that is lost, late or dropped has left its client all the same.
    Errors: UserError when nobody answers PATIENCE times in a row, or the generator diverges.
    """
    mechanism, conversation = method.mechanism, Conversation(terms, method)
    silent = 0
    while state.step < steps and not stop() and affordable(method, ledger, 1):
        turn, before = ledger.steps_charged, (exchange.sent, exchange.received)
        charged = mechanism.due(ledger.spent(), turn, 1)
        ticket = ledger.reserve(charged, 1)
        query, question = conversation.ask(state, turn)
        asked = due(mechanism, turn, exchange.members())
        replies = sound(exchange.ask(question, asked), question, asked, mechanism, say)
        ledger.settle(ticket, charged, 1)
        values: dict[str, float] = {}
        if replies:
            state, values = conversation.absorb(state, query, replies)
        silent = 0 if replies else silent + 1
        if not all(map(math.isfinite, values.values())):
            raise UserError(f"the generator diverged at step {state.step}; lower "
                            "g_optimiser.learning_rate")
        on_turn(state, {"turn": turn, "asked": len(asked), "clients": sorted(replies),
                        "bytes_sent": exchange.sent - before[0],
                        "bytes_received": exchange.received - before[1], **values})
        if silent == PATIENCE:
            raise UserError(f"no client gave a sound answer in {PATIENCE} turns; look at the "
                            "clients' own output, then resume the run")
    return state


def run(asked: Run, spec: Spec, exchange: Exchange, say: Callable[[str], None] = tell,
        notices: Notices | None = None) -> Release:
    """One federated run, from terms that the clients already hold to the release folder.

    asked.config is complete (`plan.complete`); say, notices: as of `api.run`. Errors: UserError,
    BudgetExceeded; SystemExit as `api.run`.
    """
    require_32_bits()
    notices = notices or Notices()
    terms = Terms(asked.method, asked.config, spec)
    method = terms.build(asked.runtime)
    if len(exchange.members()) < FEWEST:
        raise UserError(f"{len(exchange.members())} clients have joined; at least {FEWEST} of "
                        f"{method.mechanism.n_units} must")
    root = asked.out or folder.default_root(asked.method, "federation")
    public = public_config(asked, spec)
    files = (folder.reopen if asked.resume else folder.create)(root, public)
    say(f"run folder: {root.absolute()}")
    with resume.ledger(files, method.mechanism, public, asked.resume) as ledger, \
            interruptible() as stop:
        state = saved.latest(files, initial_state(method, asked.seed), ledger)
        state = _recorded(asked, terms, method, state, files, ledger, exchange, say, notices, stop)
        if not state.step and stop():
            raise nothing_made(files, stop)
        if not state.step:
            raise BudgetExceeded("the budget allows no step, or nobody answered: there is no "
                                 "generator to release")
        if state.step < asked.config.steps:
            why = "you interrupted it" if stop() else "the budget allows no further turn"
            say(f"stopped at step {state.step} of {asked.config.steps}: {why}")
        count = method.mechanism.n_units
        privacy = statement.statement(
            method=asked.method, preset=asked.preset, ledger=ledger,
            relation=method.mechanism.relation, steps=state.step,
            noise_source="; ".join(sorted(state.noise)),
            protected=Protected(method.mechanism.unit, {"clients": count}, (
                f"{count} clients, each of which adds the noise itself and keeps its own ledger; "
                "how many records they hold is not known here",)))
        key = jax.random.fold_in(state.key, asked.config.steps)
        model = jax.device_get(jax.jit(method.refine)(key, state.public))
        release = Release(asked.method, asked.config, spec, model, privacy)
        release = finish(files, release, lambda: saved.keep(files, state, ledger, notices), notices)
        say(f"release: {files.release} ({release.privacy['steps']} steps; "
            f"{guarantee.line(release.privacy)})")
    return release


def _recorded(asked: Run, terms: Terms, method: Method, state: State, files: folder.RunFolder,
              ledger: Ledger, exchange: Exchange, say: Callable[[str], None], notices: Notices,
              stop: Callable[[], bool]) -> State:
    """`train`, with a line of metrics and a checkpoint after each turn; a failure of these costs
    no more than itself."""
    writer = metrics.MetricsWriter(files.metrics, resume_step=state.step)
    elapsed = clock()

    def on_turn(state: State, values: dict[str, Any]) -> None:
        with notices.attempt(f"writing {files.metrics}"):
            writer.write({"step": state.step, "epsilon": ledger.epsilon(),
                          "seconds": public_seconds(elapsed()), **values})
        saved.keep(files, state, ledger, notices)
        say(f"turn {values['turn']}: step {state.step} of {asked.config.steps}, "
            f"{len(values['clients'])} of {values['asked']} answered, "
            f"{values['bytes_sent']:,} bytes out, {values['bytes_received']:,} in")

    try:
        return train(terms, method, state, ledger, exchange, steps=asked.config.steps,
                     on_turn=on_turn, say=say, stop=stop)
    finally:
        with notices.attempt(f"writing {files.metrics}"):
            writer.close()


def public_config(asked: Run, spec: Spec) -> dict[str, Any]:
    return to_json({"method": asked.method, "preset": asked.preset, "dataset": "federation",
                    "records": None, "spec": spec, "config": asked.config,
                    "budget": asked.budget, "runtime": asked.runtime, "seed": asked.seed,
                    "data_notes": ()})
