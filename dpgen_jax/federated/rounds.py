"""The rounds of a federation: a question to a cohort, and the answers that count.

Nothing here is private. The server's ledger is a bound on what a client can have spent, not a
permission to spend.
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
from dpgen_jax.aggregation.bits import OsBits, SeededBits
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.core.types import Method, PyTree, UserError
from dpgen_jax.federated import messages
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.federated.saved import State
from dpgen_jax.private.checks import check_public, check_query
from dpgen_jax.run.loop import affordable
from dpgen_jax.run.planning import Log

PATIENCE = 3
"""The rounds in a row without a single answer, after which a run gives up."""


class Exchange(Protocol):
    """The connection of the server to its clients.

    Attributes:
        sent: Bytes so far.
        received: Likewise.
    """

    sent: int
    received: int

    def members(self) -> set[int]:
        """Returns the numbers of the clients that are there now."""

    def ask(self, question: Question, clients: Sequence[int]) -> Iterable[Reply]:
        """Sends a question, and returns the replies that come back in time, unchecked.

        Args:
            question: The question.
            clients: The numbers of the clients that are queried.
        """


def fault(reply: Reply, question: Question, mechanism: LocalMechanism) -> str | None:
    """Returns why a reply cannot be counted, in a few words; None for a sound one.

    Args:
        reply: The reply, as it came.
        question: The question that it answers.
        mechanism: The mechanism of the federation, which bounds an answer.
    """
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


def sound(replies: Iterable[Reply], question: Question, cohort: Sequence[int],
          mechanism: LocalMechanism, log: Log) -> dict[int, Reply]:
    """Selects the replies that count, one a client; the others are dropped with a line of log.

    Args:
        replies: The replies, as they came.
        question: The question that was asked.
        cohort: The clients that were asked.
        mechanism: The mechanism of the federation, which bounds an answer.
        log: Prints a line of the run.

    Returns:
        The replies by client.
    """
    counted: dict[int, Reply] = {}
    for reply in replies:
        why = fault(reply, question, mechanism)
        if why is None and reply.client not in cohort:
            why = "was not asked for"
        if why is None and reply.client in counted:
            why = "is its second"
        if why is None:
            counted[reply.client] = reply
        else:
            log(f"round {question.round}: the answer of client {reply.client} {why}; dropped")
    return counted


def queried_clients(mechanism: LocalMechanism, round_number: int, members: set[int]) -> list[int]:
    """Returns the clients that are queried in a round, among those that are there.

    Client u belongs to cohort u mod `n_cohorts`.

    Args:
        mechanism: The mechanism of the federation.
        round_number: The round, from 0.
        members: The numbers of the clients that are there.
    """
    schedule = mechanism.schedule
    cohort = int(schedule.cohorts(OsBits(), round_number, 1)[0])  # public: it draws no bits
    return sorted(u for u in members
                  if 0 <= u < mechanism.n_units and u % schedule.n_cohorts == cohort)


def initial_state(method: Method, seed: int | None) -> State:
    """Returns the state that the run in one process starts from, without units.

    The keys are split as `loop.initial_state` splits them.

    Args:
        method: The method of the federation.
        seed: Draws the keys; None for fresh ones.
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
        """Makes the query of a step.

        Args:
            state: The server's state.
            round_number: The round, from 0.

        Returns:
            The query, and the question that carries it.
        """
        query = self._ask(state.public, state.key, state.step)
        return query, Question(self._terms, round_number, state.step, messages.pack(query))

    def absorb(self, state: State, query: PyTree, replies: dict[int, Reply]
               ) -> tuple[State, dict[str, float]]:
        """Trains the generator on the mean over the clients that answered.

        The sum is of int32, which is exact in any order.

        Args:
            state: The server's state.
            query: The query that they answered.
            replies: The answers that count, int32 [B, D] each, by client.

        Returns:
            The next state, and public metrics by name.
        """
        total = np.sum([np.asarray(reply.values) for reply in replies.values()], 0, dtype=np.int32)
        released = self._decode(jnp.asarray(total), len(replies))
        public, values = self._absorb(state.public, state.key, state.step, query, released)
        noise = state.noise | {reply.noise for reply in replies.values()}
        return State(public, state.key, state.step + 1, noise), {
            name: float(value) for name, value in values.items()}


Metrics = dict[str, Any]
"""The metrics of a round, as JSON can hold them."""
OnRound = Callable[[State, Metrics], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundHooks:
    """The functions that are called while rounds go on.

    Attributes:
        on_round: Called after each round with the state and its metrics.
        log: Prints a line of the run.
        stop: Returns True once the run is to stop.
    """

    on_round: OnRound
    log: Log = print
    stop: Callable[[], bool] = lambda: False


def train(conversation: Conversation, state: State, ledger: Ledger, exchange: Exchange, steps: int,
          hooks: RoundHooks) -> State:
    """Queries clients until all steps are made, the budget allows no more rounds, or `stop()`.

    Each round is charged before the question leaves, and stays charged whoever answers: an answer
    that is lost, late or dropped has left its client all the same.

    Args:
        conversation: The server's side of each step.
        state: The state to go on from.
        ledger: The run's open ledger.
        exchange: The connection to the clients.
        steps: How many steps are to be made.
        hooks: What is called meanwhile.

    Returns:
        The last state.

    Raises:
        UserError: When nobody answers `PATIENCE` times in a row, or the generator diverges.
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
            raise UserError(f"no client gave a sound answer in {PATIENCE} rounds; look at the "
                            "clients' own output, then resume the run")
    return state


def _round(conversation: Conversation, state: State, ledger: Ledger, exchange: Exchange, log: Log
           ) -> tuple[State, Metrics]:
    """Sends one question to the clients of a cohort; it is charged whoever answers."""
    mechanism = messages.local_mechanism(conversation.method)
    round_number = ledger.steps_charged
    charged = mechanism.pending_charge(ledger.spent(), round_number, 1)
    ticket = ledger.reserve(charged, 1)
    query, question = conversation.ask(state, round_number)
    cohort = queried_clients(mechanism, round_number, exchange.members())
    replies = sound(exchange.ask(question, cohort), question, cohort, mechanism, log)
    ledger.settle(ticket, charged, 1)
    values: dict[str, float] = {}
    if replies:
        state, values = conversation.absorb(state, query, replies)
    if not all(map(math.isfinite, values.values())):
        raise UserError(f"the generator diverged at step {state.step}; lower "
                        "g_optimiser.learning_rate")
    return state, {"turn": round_number, "asked": len(cohort), "clients": sorted(replies),
                   **values}
