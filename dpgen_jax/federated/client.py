"""A client, which keeps its records and its critic, receives fakes, and returns a noisy gradient.

Nothing here trusts the server. The noise is added here, and the client's ledger, with a budget that
the client chose, decides whether a question is answered. The client's code computes the cost of an
answer from the terms, whatever the question is and however often it comes.

The client's memory between two questions is one file, written completely or not at all. It contains
the client's critic after the last answer, that answer, and the question that it answers. They are
in one file because, once the critic has learnt from a question, its answer must be available to be
sent again.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import logging
import math
import os
import secrets
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.ledger import Ledger, Witness, begun, read
from dpgen_jax.aggregation.mechanism import LocalMechanism
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.core.config import Budget, to_json
from dpgen_jax.core.files import Json, sync
from dpgen_jax.core.run_folder import RunFolder, read_json, write_json
from dpgen_jax.core.types import BudgetExceeded, Method, Private, PyTree, Records, UserError
from dpgen_jax.data import Dataset
from dpgen_jax.federated import answer, messages
from dpgen_jax.federated.messages import MAX_ROUNDS, Question, Terms, pack
from dpgen_jax.private import records as sealing
from dpgen_jax.private.streaming import like
from dpgen_jax.private.teachers import Units
from dpgen_jax.run import noise_digests, resume, spending
from dpgen_jax.run.loop import require_32_bits

log = logging.getLogger(__name__)


def memory_path(files: RunFolder) -> Path:
    """Returns the path of the client's memory."""
    return files.private / "memory.safetensors"


def check_federation(terms: Terms, data: Dataset, budget: Budget) -> None:
    """Checks that a client can join with its records and its own budget.

    Raises:
        UserError: The records have another schema or there are none, the schema was bought, or the
            budget cannot be promised.
    """
    if data.spec != terms.spec:
        raise UserError(f"the records are {data.spec}, the federation's are {terms.spec}")
    if data.bought:
        raise UserError("the schema was bought for single records, which does not cover a client; "
                        "declare the bounds of the columns instead")
    if not len(data.y_train):
        raise UserError("this client has no records: leave it out of the federation")
    if not budget.epsilon > 0:
        raise UserError(f"epsilon must be above 0, got {budget.epsilon}; for example epsilon=8.0")
    if math.isfinite(budget.epsilon):
        composition.check_budget(budget.epsilon, budget.delta)


def open_folder(root: Path, public: Json) -> RunFolder:
    """Creates the client's folder with this config.json, or opens the one that it began.

    Raises:
        UserError: The folder belongs to another client or another federation.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(root, 0o700)  # mkdir leaves a folder that was there as open as it was
    if not (root / "config.json").is_file():
        return resume.create(root, public)
    client = read_json(root / "config.json").get("client")
    if client != public["client"]:
        raise UserError(f"{root} is the folder of client {client}, not of client "
                        f"{public['client']}; give each client its own folder")
    return resume.reopen(root, public)


def recognise(files: RunFolder, records: Private[Records]) -> None:
    """Stores a keyed fingerprint of the records, or compares them with it.

    Other records would be another client, with an untrained critic and an unspent budget.

    Raises:
        UserError: The folder was started with other records.
    """
    if not files.identity.exists():
        key = secrets.token_bytes(32)
        write_json(files.identity, {"key": key.hex(), "fingerprint": sealing.fingerprint(
            records, key)}, mode=0o600)
    identity = read_json(files.identity)
    try:
        same = hmac.compare_digest(sealing.fingerprint(records, bytes.fromhex(identity["key"])),
                                   identity["fingerprint"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{files.identity} is damaged: restore the file "
                        "that belongs to this folder") from None
    if not same:
        raise UserError(f"the records are not those that {files.root} was started with; other "
                        "records need another folder, and if their owners are the same, its "
                        "epsilon adds to this one's")


def keep_digests(files: RunFolder, answered: int, bits: np.ndarray) -> None:
    """Stores a digest of the bits of an answer's noise, by which an audit finds bits used twice.

    `answered` participations were charged before this one. A failure is logged only: privacy does
    not depend on the digest.
    """
    try:
        key = bytes.fromhex(read_json(files.identity)["key"])
        noise_digests.append(files.noise_digests, key, answered, [bits[None]])
    except OSError as error:
        log.warning("writing %s: %s", files.noise_digests, error)


def open_ledger(files: RunFolder, mechanism: LocalMechanism, budget: Budget, terms: Terms,
                witness: Witness) -> Ledger:
    """Opens the client's ledger, or creates it before anything was answered.

    The witness records the ledger outside of the folder.

    Raises:
        UserError: The ledger is that of another folder.
    """
    run = files.run_id()
    if begun(files.ledger) or memory_path(files).exists():
        if read(files.ledger)[0].get("run") != run:
            raise UserError(f"{files.ledger} is not the ledger of {files.root}; restore the file "
                            "that belongs there")
        return Ledger.open(files.ledger, witness)
    files.ledger.unlink(missing_ok=True)  # a header that a crash tore
    return Ledger.create(files.ledger, {
        "epsilon": float(budget.epsilon), "delta": budget.delta, "config_hash": terms.digest,
        "relation": mechanism.relation, "unit": mechanism.unit, "run": run}, witness)


NEVER = -1
"""The last round of a client without answers."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """A client's memory.

    Attributes:
        unit: The client's unit, sealed.
        round: The last answered round, or NEVER.
        question: The digest of its question.
        answer: int32 [B, D], as it was sent.
        ledger_head: The hash of a line that the ledger must contain.
        ledger_lines: The number of that line.
    """

    unit: Private[Units]
    round: int
    question: str
    answer: np.ndarray
    ledger_head: str
    ledger_lines: int


NOTE = {"turn": "round", "question": "question", "ledger_head": "ledger_head",
        "ledger_lines": "ledger_lines"}
"""The keys of the note in the file, and the corresponding fields of `Memory`."""


def write_memory(path: Path, memory: Memory) -> None:
    """Writes a memory; the file (mode 0600) and its name are on disk when the call returns.

    Raises:
        UserError: It cannot be written; the previous file is kept.
    """
    note = json.dumps({key: getattr(memory, field) for key, field in NOTE.items()}).encode()
    data = safetensors.numpy.save(
        {f"unit/{name}": leaf for name, leaf in pack(memory.unit).items()}
        | {"answer": memory.answer, "note": np.frombuffer(note, np.uint8)})
    temporary = path.with_name(path.name + ".tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}); nothing was answered: free "
                        "some space") from error


def read_memory(path: Path, method: Method) -> Memory | None:
    """Reads a memory, whose unit has the method's form; None if nothing was ever written.

    Raises:
        UserError: The file is damaged.
    """
    if not path.exists():
        return None
    try:
        arrays = safetensors.numpy.load(path.read_bytes())
        note = json.loads(arrays.pop("note").tobytes())
        answer = arrays.pop("answer")
        return Memory(_unit(method, arrays), answer=answer,
                      **{field: note[key] for key, field in NOTE.items()})
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}): restore the file that "
                        "belongs to this folder; what was spent stays spent") from None


def _unit(method: Method, arrays: dict[str, np.ndarray]) -> Private[Units]:
    """Seals the arrays of a unit; raises ValueError or KeyError if they do not form one."""
    leaves, structure = jax.tree_util.tree_flatten(like(method, 1))
    names = [f"unit/{name}" for name in pack(like(method, 1))]
    loaded = [arrays[name] for name in names]
    for array, leaf in zip(loaded, leaves, strict=True):
        if array.shape != leaf.shape[1:] or array.dtype != leaf.dtype:
            raise ValueError("an array has another shape")
    unit: Private[Units] = jax.tree.unflatten(structure, [jnp.asarray(array) for array in loaded])
    return unit


@dataclasses.dataclass(frozen=True)
class Seat:
    """The place of a client among the others.

    Attributes:
        number: The number of the client, 0..n-1.
        seed: Draws everything from a seed, as a run in one process does; then there is NO privacy
            claim.
    """

    number: int = 0
    seed: int | None = None


SEAT = Seat()


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """The files of an open client.

    Attributes:
        files: Its folder.
        ledger: Its open ledger.
        memory: The unit and the last answer.
    """

    files: RunFolder
    ledger: Ledger
    memory: Memory


class Client:
    """An open client, made by `open_client`; a context manager.

    Its folder (mode 0700) is a `RunFolder` without a release: config.json, ledger.jsonl, and in
    private/ identity.json and memory.safetensors.
    """

    def __init__(self, terms: Terms, method: Method, records: Private[Records], on_disk: OnDisk,
                 seat: Seat):
        self.terms, self.number, self.ledger = terms, seat.number, on_disk.ledger
        self._mechanism = messages.local_mechanism(method)
        self._records, self._memory = records, on_disk.memory
        self._files, self._path = on_disk.files, memory_path(on_disk.files)
        self._bits = OsBits() if seat.seed is None else SeededBits(seat.seed)
        self._form, self._answer = messages.form(method), answer.compile_answer(method)

    @property
    def noise(self) -> str:
        """The name of the noise source, which the server may publish."""
        return self._bits.label

    @property
    def last_round(self) -> int:
        """The last answered round, or NEVER."""
        return self._memory.round

    def prepare(self) -> None:
        """Compiles the answer by a discarded one to zeros, so that no round waits for it."""
        query = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self._form)
        private_input = np.zeros(self._mechanism.client_bits_shape, np.uint32)
        self._answer(self._memory.unit, self._records, query, 0, private_input)

    def answer(self, question: Question) -> np.ndarray:
        """Answers a question.

        The steps are, each on disk before the next: charge the participation at its full cost; draw
        its noise, and store a keyed digest of its bits; store critic and answer; settle the charge;
        send the answer. A crash can only leave too much charged. If the last question is repeated,
        it is answered from memory, byte for byte, at no cost and without learning.

        Returns:
            int32 [B, D], already private.

        Raises:
            UserError: Before anything is charged: other terms, a round that is over or too far
                ahead, another question for the answered round, or arrays of another form.
            BudgetExceeded: The client's budget does not allow another answer.
        """
        query = self._checked(question)
        if question.round == self._memory.round:
            return self._memory.answer
        cost, answered = self._mechanism.events(1), self.ledger.steps_charged
        ticket = self.ledger.reserve(cost, 1)
        unit = np.array([[self.number]])
        private_input = self._bits.draw_for(
            unit, question.round, self._mechanism.client_bits_shape)[0, 0]
        keep_digests(self._files, answered, private_input)
        after = self._answer(self._memory.unit, self._records, query, question.step, private_input)
        memory = Memory(after.unit, question.round, question.digest, np.asarray(after.answer),
                        self.ledger.head, self.ledger.n_lines)
        write_memory(self._path, memory)
        self._memory = memory
        self.ledger.settle(ticket, cost, 1)
        return memory.answer

    def _checked(self, question: Question) -> PyTree:
        """Returns the query of a question that may be answered; else raises a UserError."""
        if question.terms != self.terms.digest:
            raise UserError("the question has other terms than this folder; join "
                            "another federation with another folder")
        for name in ("round", "step"):
            value = getattr(question, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_ROUNDS:
                raise UserError(f"{name} {value!r} of the query is not the number of a round")
        # Once answered, it makes all earlier rounds a thing of the past. So that no question can
        # lock the client out for longer than the terms can last, a round may be at most twice their
        # steps ahead: as far as the server comes if as many rounds are lost as succeed.
        last = self._memory.round
        furthest = last + 2 * self.terms.config.steps
        if question.round > furthest:
            raise UserError(f"round {question.round} is further ahead than "
                            f"{self.terms.config.steps} steps allow: the next round may be at most "
                            f"{furthest}")
        if question.round < last:
            raise UserError(f"round {question.round} is over: round {last} was answered")
        if question.round == last and question.digest != self._memory.question:
            raise UserError(f"round {question.round} was answered for another query")
        return messages.unpack(self._form, question.arrays)

    def reply(self, about: Json, arrays: dict[str, np.ndarray]
              ) -> tuple[Json, dict[str, np.ndarray]]:
        """Makes the reply to a message of any kind; only questions have a step.

        A refusal is one fixed word. Its reason goes to the client's own output, since it may depend
        on the records.
        """
        header = {"turn": about.get("turn"), "client": self.number, "terms": self.terms.digest,
                  "noise": self.noise}
        if "step" not in about:
            return header, {}
        try:
            question = Question.received(about, arrays)
            return header, {"values": self.answer(question)}
        except Exception as error:
            log.error("round %s: %s", about.get("turn"), error,
                      exc_info=not isinstance(error, UserError))
            word = "no budget" if isinstance(error, BudgetExceeded) else "refused"
            return header | {"refused": word}, {}

    def close(self) -> None:
        """Closes the ledger."""
        self.ledger.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_client(root: Path, terms: Terms, data: Dataset, budget: Budget, *, seat: Seat = SEAT,
                method: Method | None = None) -> Client:
    """Joins a federation in a new folder, or continues in one; the caller closes the client.

    The budget is the client's own promise to its records. `method` may be the method of the terms
    if it is already built.

    Raises:
        UserError: For records that do not fit the terms, none at all, or a folder that was started
            with other records, terms or budget. A spent budget is not an error here: answers
            are refused, one by one.
    """
    require_32_bits()
    check_federation(terms, data, budget)
    method = method or terms.build()
    mechanism = messages.local_mechanism(method)
    if not 0 <= seat.number < mechanism.n_units:
        raise UserError(f"client {seat.number} of a federation of {mechanism.n_units}: give each "
                        f"client its own number from 0 to {mechanism.n_units - 1}")
    records = sealing.seal(data.x_train, data.y_train, data.spec)
    row = answer.client_row(records, terms.config.client_records)
    guarantee = seat.seed is None and math.isfinite(budget.epsilon)
    # The journal is locked until the ledger exists: of two runs on the same records that start at
    # once, the second one learns of the first.
    start = spending.Start(budget, guarantee, None, RunFolder(root))
    of_one = np.zeros(sealing.count(records), np.int32)  # all belong to this client
    identity = spending.Identity(records, Private(data.content),
                                 lambda key: sealing.grouping(of_one, key))
    with spending.before(identity, mechanism, start, log.warning) as witness:
        files = open_folder(root, {
            "method": terms.method, "dataset": data.name, "spec": to_json(terms.spec),
            "config": to_json(terms.config), "budget": to_json(budget), "seed": seat.seed,
            "client": seat.number})
        recognise(files, records)
        ledger = open_ledger(files, mechanism, budget, terms, witness(files))
    try:
        if line := resume.of_torn_lines(ledger):
            log.warning(line)
        memory = _memory(files, method, row, ledger, seat)
        return Client(terms, method, row, OnDisk(files, ledger, memory), seat)
    except BaseException:
        ledger.close()
        raise


def _memory(files: RunFolder, method: Method, records: Private[Records], ledger: Ledger, seat: Seat
            ) -> Memory:
    """Reads the client's memory, which its ledger must cover, or creates it."""
    memory = read_memory(memory_path(files), method)
    if memory is None:
        return _begin(files, method, records, ledger, seat)
    if not ledger.contains(memory.ledger_head, memory.ledger_lines):
        raise UserError(f"{files.ledger} is shorter than, or not, the ledger of the last answer: "
                        "spent budget would be forgotten; restore the file that belongs to this "
                        "folder")
    return memory


def _begin(files: RunFolder, method: Method, records: Private[Records], ledger: Ledger, seat: Seat
           ) -> Memory:
    """Makes the client's memory before the first question."""
    # A seeded client has the keys of the same unit in one process (`loop.initial_state`).
    key = jax.random.key((secrets.randbits(32) if seat.seed is None else seat.seed) % 2**32)
    _, k_units, _ = jax.random.split(key, 3)
    unit = answer.initial_unit(method, k_units, seat.number, records)
    nothing = np.zeros(method.mechanism.shape, np.int32)
    memory = Memory(unit, NEVER, "", nothing, ledger.head, ledger.n_lines)
    write_memory(memory_path(files), memory)
    return memory
