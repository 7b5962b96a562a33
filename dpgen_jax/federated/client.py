"""A client: it keeps its records and its critic, is sent fakes, and returns a noised gradient.

Nothing here trusts the server. The noise is added here, and the client's own ledger, with a budget
that the client chose, decides whether a question is answered at all: what an answer costs follows
from the terms through the client's own code, however often and whatever it is asked.
"""

from __future__ import annotations

import hmac
import logging
import math
import os
import secrets
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax import spending
from dpgen_jax.accountant import calibrate
from dpgen_jax.accountant.ledger import Ledger, begun, read
from dpgen_jax.accountant.witness import Witness
from dpgen_jax.aggregation.bits import OsBits, SeededBits
from dpgen_jax.config import Budget, to_json
from dpgen_jax.data import Dataset
from dpgen_jax.federated import messages, store, visit
from dpgen_jax.federated.messages import MOST_TURNS, Question, Terms
from dpgen_jax.federated.store import NEVER, Memory
from dpgen_jax.loop import require_32_bits
from dpgen_jax.private import records as sealing
from dpgen_jax.run import folder
from dpgen_jax.run.folder import RunFolder, read_json, write_json
from dpgen_jax.types import BudgetExceeded, Method, Private, Records, UserError

log = logging.getLogger(__name__)


class Client:
    """An open client; a context manager. Made by `open_client`.

    Its folder (mode 0700) is a `RunFolder` without a release: config.json, ledger.jsonl, and in
    private/ identity.json and memory.safetensors.
    """

    def __init__(self, files: RunFolder, terms: Terms, method: Method, own: Private[Records],
                 ledger: Ledger, memory: Memory, number: int, seed: int | None):
        self.terms, self.number, self.ledger = terms, number, ledger
        self._method, self._own, self._memory = method, own, memory
        self._path = memory_path(files)
        self._bits = OsBits() if seed is None else SeededBits(seed)
        self._form, self._visit = messages.form(method), visit.compile_visit(method)

    @property
    def noise(self) -> str:
        """What may be said of the noise of the answers."""
        return self._bits.label

    @property
    def last_turn(self) -> int:
        """The last turn that was answered, or NEVER."""
        return self._memory.turn

    def prepare(self) -> None:
        """Compiles, so that no turn waits for it: a visit whose outcome is thrown away."""
        query = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self._form)
        secret = np.zeros(self._method.mechanism.client_bits_shape, np.uint32)
        self._visit(self._memory.unit, self._own, query, 0, secret)

    def answer(self, question: Question) -> np.ndarray:
        """The answer to a question, int32 [B, D]: private as it stands.

        In this order, each on disk before the next: the visit is charged, at its full cost; its
        noise is drawn; critic and answer are kept; the visit is settled; the answer leaves. A crash
        can only leave too much charged. The last question, asked again, is answered from memory,
        byte for byte: it costs nothing and teaches nothing.
        Errors: UserError, before anything is charged, for other terms, a turn that is over or too
        far ahead, another question under the turn that was answered, or arrays of another form;
        BudgetExceeded.
        """
        query = self._checked(question)
        if question.turn == self._memory.turn:
            return self._memory.answer
        mechanism = self._method.mechanism
        cost = mechanism.events(1)
        ticket = self.ledger.reserve(cost, 1)
        unit = np.array([[self.number]])
        secret = self._bits.draw_for(unit, question.turn, mechanism.client_bits_shape)[0, 0]
        after = self._visit(self._memory.unit, self._own, query, question.step, secret)
        memory = Memory(after.unit, question.turn, question.digest, np.asarray(after.answer),
                        self.ledger.head, self.ledger.n_lines)
        store.write(self._path, memory)
        self._memory = memory
        self.ledger.settle(ticket, cost, 1)
        return memory.answer

    def _checked(self, question: Question) -> Any:
        if question.terms != self.terms.digest:
            raise UserError("the question is asked under other terms than this folder's; join "
                            "another federation with another folder")
        for name in ("turn", "step"):
            value = getattr(question, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_TURNS:
                raise UserError(f"{name} {value!r} of the question is no number of a turn")
        # Answered, it makes all turns before it a thing of the past: no question may lock the
        # client out for longer than the terms can last, which is twice their steps if as many
        # turns were lost.
        furthest = self._memory.turn + 2 * self.terms.config.steps
        if question.turn > furthest:
            raise UserError(f"turn {question.turn} is further ahead than {self.terms.config.steps} "
                            f"steps allow: turn {furthest} is the last that may come next")
        if question.turn < self._memory.turn:
            raise UserError(f"turn {question.turn} is over: turn {self._memory.turn} was answered")
        if question.turn == self._memory.turn and question.digest != self._memory.question:
            raise UserError(f"turn {question.turn} was answered, to another question")
        return messages.unpack(self._form, question.arrays)

    def reply(self, about: dict[str, Any], arrays: dict[str, np.ndarray]
              ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is sent back to a message of any kind. Only questions hold a step. A refusal is one
        fixed word: its reason goes to the client's own output, as it may tell of the records."""
        said = {"turn": about.get("turn"), "client": self.number, "terms": self.terms.digest,
                "noise": self.noise}
        if "step" not in about:
            return said, {}
        try:
            asked = Question(about.get("terms"), about.get("turn"), about["step"], arrays)
            return said, {"values": self.answer(asked)}
        except Exception as error:
            log.error("turn %s: %s", about.get("turn"), error,
                      exc_info=not isinstance(error, UserError))
            word = "no budget" if isinstance(error, BudgetExceeded) else "refused"
            return said | {"refused": word}, {}

    def close(self) -> None:
        self.ledger.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def memory_path(files: RunFolder) -> Path:
    return files.private / "memory.safetensors"


def open_client(root: Path, terms: Terms, data: Dataset, budget: Budget, *, number: int = 0,
                seed: int | None = None, method: Method | None = None) -> Client:
    """Joins a federation in a new folder, or goes on in one.

    budget: the client's own promise to its records. number: which client it is, 0..n-1. seed: draws
    everything from a seed, as the run in one process does; then there is NO privacy claim. method:
    that of the terms, if it is at hand.
    Errors: UserError for records that do not fit the terms, none at all, or a folder that was
    started with other records, terms or budget; BudgetExceeded never: answers are refused, one by
    one.
    """
    require_32_bits()
    _check(terms, data, budget)
    method = messages.require_local(method or terms.build())
    if not 0 <= number < method.mechanism.n_units:
        raise UserError(f"client {number} of a federation of {method.mechanism.n_units}: give each "
                        f"client its own number from 0 to {method.mechanism.n_units - 1}")
    records = sealing.seal(data.x_train, data.y_train, data.spec)
    own = visit.own_row(records, terms.config.client_records)
    guarantee, before = seed is None and math.isfinite(budget.epsilon), RunFolder(root).run_id()
    with spending.before(records, method.mechanism, budget, guarantee, None, before, log.warning
                         ) as witness:
        files = _files(root, {
            "method": terms.method, "dataset": data.name, "spec": to_json(terms.spec),
            "config": to_json(terms.config), "budget": to_json(budget), "seed": seed,
            "client": number})
        _recognise(files, records)
        ledger = _ledger(files, method, budget, terms, witness(files))
    try:
        memory = store.read(memory_path(files), method)
        if memory is None:
            memory = _begin(files, method, own, ledger, number, seed)
        if not ledger.contains(memory.ledger_head, memory.ledger_lines):
            raise UserError(f"{files.ledger} is shorter than, or not, the ledger of the last answer"
                            ": spent budget would be forgotten; bring back the file that belongs "
                            "to this folder")
        return Client(files, terms, method, own, ledger, memory, number, seed)
    except BaseException:
        ledger.close()
        raise


def _check(terms: Terms, data: Dataset, budget: Budget) -> None:
    if data.spec != terms.spec:
        raise UserError(f"the records are {data.spec}, the federation's are {terms.spec}")
    if data.bought:
        raise UserError("the schema was bought at the level of single records, which does not cover"
                        " a client; declare the bounds of the columns instead")
    if not len(data.y_train):
        raise UserError("this client holds no records: leave it out of the federation")
    if not budget.epsilon > 0:
        raise UserError(f"epsilon must be above 0, got {budget.epsilon}; for example epsilon=8.0")
    if math.isfinite(budget.epsilon):
        calibrate.check_budget(budget.epsilon, budget.delta)


def _files(root: Path, public: dict[str, Any]) -> RunFolder:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(root, 0o700)
    if not (root / "config.json").is_file():
        return folder.create(root, public)
    held = read_json(root / "config.json")
    if held.get("client") != public["client"]:
        raise UserError(f"{root} is the folder of client {held.get('client')}, not of client "
                        f"{public['client']}; give each client a folder of its own")
    return folder.reopen(root, public)


def _recognise(files: RunFolder, records: Private[Records]) -> None:
    """Keeps a keyed fingerprint of the records, or compares with it: other records are another
    client, whose critic has learnt nothing and whose budget is whole."""
    if not files.identity.exists():
        key = secrets.token_bytes(32)
        write_json(files.identity, {"key": key.hex(), "fingerprint": sealing.fingerprint(
            records, key)}, mode=0o600)
    held = read_json(files.identity)
    try:
        same = hmac.compare_digest(sealing.fingerprint(records, bytes.fromhex(held["key"])),
                                   held["fingerprint"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{files.identity} is damaged: bring back the file that belongs to this "
                        "folder") from None
    if not same:
        raise UserError(f"the records are not those that {files.root} was started with; other "
                        "records need another folder, and one whose owners are the same adds its "
                        "epsilon to this one's")


def _ledger(files: RunFolder, method: Method, budget: Budget, terms: Terms, witness: Witness
            ) -> Ledger:
    """Opens the client's ledger, or creates it before anything was answered."""
    run = files.run_id()
    if begun(files.ledger) or memory_path(files).exists():
        if read(files.ledger)[0].get("run") != run:
            raise UserError(f"{files.ledger} is the ledger of another folder than {files.root}; "
                            "bring back the file that belongs to it")
        return Ledger.open(files.ledger, witness)
    files.ledger.unlink(missing_ok=True)  # a header that a crash tore
    return Ledger.create(files.ledger, {
        "epsilon": float(budget.epsilon), "delta": budget.delta, "config_hash": terms.digest,
        "relation": method.mechanism.relation, "unit": method.mechanism.unit, "run": run}, witness)


def _begin(files: RunFolder, method: Method, own: Private[Records], ledger: Ledger, number: int,
           seed: int | None) -> Memory:
    """The client before the first question. The keys of a seeded client are those of the same unit
    in one process (`loop.initial_state`)."""
    key = jax.random.key((secrets.randbits(32) if seed is None else seed) % 2**32)
    _, k_units, _ = jax.random.split(key, 3)
    unit = visit.newcomer(method, k_units, number, own)
    nothing = np.zeros(method.mechanism.shape, np.int32)
    memory = Memory(unit, NEVER, "", nothing, ledger.head, ledger.n_lines)
    store.write(memory_path(files), memory)
    return memory
