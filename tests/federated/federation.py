"""A federation in one process: clients of a toy method, and an exchange that can be made to fail.

The terms are those of a real method, which takes long to compile; where only the protocol matters,
clients and server are handed the method of `adversary` in its place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from planted import toy as adversary

from dpgen_jax.accountant.ledger import Account, Ledger, account, read
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation, RoundRobin
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.core.types import ImageSpec, Method, Spec, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.federated import server
from dpgen_jax.federated.client import Client, Seat, open_client
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.methods import gswgan
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.run.planning import Resolved

SPEC = ImageSpec(8, 8, 1, 3)
CLIENTS, STEPS, SEED = 3, 4, 7
BUDGET, OPEN = Budget(8.0, 1e-5), Budget(float("inf"), 1e-5)


def config(**fields) -> gswgan.Config:
    """The smallest of the real method, on images of SPEC."""
    return gswgan.Config(**{
        "critics": CLIENTS, "federated": True, "batch": 4, "steps": STEPS, "sigma": 4.0,
        "critic_steps": 2, "critic_steps_first": 2, "records_per_step": 4, "pool": 4,
        "client_records": 16, "warm_steps": 0, "penalty": 0.0, "generator": ResNetNet(2, 2),
        "critic": CriticNet(2), "warm_generator": ResNetNet(2, 2)} | fields)


def request(out: Path, **fields) -> Resolved:
    return Resolved("gswgan", "glyphs", config(**fields), BUDGET, Runtime(devices=1, chunk=1), out,
                   False, SEED)


def records(number: int, spec: Spec = SPEC, n: int = 12) -> Dataset:
    rng = np.random.default_rng([SEED, number])
    return Dataset("arrays", spec, rng.integers(0, 256, (n, *spec.shape), dtype=np.uint8),
                   rng.integers(0, spec.classes, n).astype(np.int32))


# --- the toy

TERMS = Terms("gswgan", config(), adversary.SPEC)
SIGMA = 32.0


@functools.cache
def method(clients: int = CLIENTS, n_cohorts: int = 1, sigma: float = SIGMA) -> Method:
    local = LocalMechanism(
        bound=TopKSign(adversary.TOP_K, adversary.ROWS),
        noise=RoundedGaussian(sigma),
        n_units=clients,
        schedule=RoundRobin(n_cohorts) if n_cohorts > 1 else FullParticipation(),
        shape=adversary.SHAPE,
        decode=lambda total, answers: total.astype(jnp.float32) / answers,
    )
    return Method(
        mechanism=local,
        init=adversary.init,
        init_unit=adversary.init_unit,
        ask=adversary.ask,
        learn=adversary.learn,
        answer=adversary.answer,
        absorb=adversary.absorb,
        finalize=lambda key, public: public.seen,
        sample=lambda model, key, labels: model,
    )


def join(root: Path, number: int = 0, *, budget: Budget = BUDGET, seed: int | None = SEED,
         data: Dataset | None = None, terms: Terms = TERMS, built: Method | None = None) -> Client:
    return open_client(root / f"client-{number}", terms, data or records(number, adversary.SPEC),
                       budget, seat=Seat(number, seed), method=built or method())


@functools.cache
def _first() -> Question:
    conversation = server.Conversation(TERMS, method())
    return conversation.ask(server.initial_state(method(), SEED), 0)[1]


def question(turn: int, step: int = 0, **arrays) -> Question:
    """The server's first question, under any turn, with other arrays."""
    first = _first()
    return Question(first.terms, turn, step, {**first.arrays, **arrays})


class Together:
    """An exchange with clients of this process. spoil(client, turn, values) -> what arrives in
    place of the answer, or a whole Reply; None: nothing in time."""

    def __init__(self, clients: Sequence[Client], spoil: Callable = lambda client, turn, v: v):
        self.clients, self.spoil = {c.number: c for c in clients}, spoil
        self.sent = self.received = 0
        self.questions: list[tuple[int, list[int]]] = []

    def members(self) -> set[int]:
        return set(self.clients)

    def ask(self, question: Question, clients: Sequence[int]) -> list[Reply]:
        self.questions.append((question.round, list(clients)))
        replies = []
        for number in clients:
            client = self.clients[number]
            self.sent += sum(array.nbytes for array in question.arrays.values())
            try:
                values = client.answer(question)
            except UserError as error:
                values = f"refuses: {error}"
            values = self.spoil(number, question.round, values)
            if isinstance(values, Reply):
                replies.append(values)
            elif values is not None:
                self.received += getattr(values, "nbytes", 0)
                replies.append(Reply(number, question.round, values, client.noise))
        return replies


def train(path: Path, exchange: Together, *, steps: int = STEPS, budget: Budget = OPEN,
          built: Method | None = None, said: list | None = None, **options):
    """`rounds.train` with a ledger of its own: (state, rows of metrics, ledger, closed)."""
    rows: list[dict] = []
    built = built or method()
    with new_ledger(path, budget) as ledger:
        hooks = server.RoundHooks(on_round=lambda state, row: rows.append(row),
                                  log=(said if said is not None else []).append, **options)
        state = server.train_rounds(server.Conversation(TERMS, built),
                                    server.initial_state(built, SEED),
                                    ledger, exchange, steps, hooks)
    return state, rows, ledger


def new_ledger(path: Path, budget: Budget = OPEN) -> Ledger:
    return Ledger.create(path, {"epsilon": budget.epsilon, "delta": budget.delta})


def books(path: Path) -> Account:
    """The totals of a ledger's file."""
    return account(read(path))


def same(a, b) -> bool:
    """Bit for bit."""
    return jax.tree.all(jax.tree.map(
        lambda p, q: np.asarray(p).tobytes() == np.asarray(q).tobytes(), a, b))
