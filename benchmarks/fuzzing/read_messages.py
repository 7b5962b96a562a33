"""Readers of a federation: what a client makes of a message, a server of an answer, both of terms.

The client is a real one but for its visit, which takes long to compile: it answers with zeros.
"""

import functools
import logging
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.federated import client as clients
from dpgen_jax.federated import messages, server, wire
from dpgen_jax.federated.client import NEVER, Memory
from dpgen_jax.federated.messages import Question, Reply, Terms
from dpgen_jax.methods import gswgan
from dpgen_jax.nets.resnet import CriticNet, ResNetNet

CONFIG = gswgan.Config(
    critics=3, federated=True, batch=4, steps=4, sigma=4.0, critic_steps=2, critic_steps_first=2,
    records_per_step=4, pool=4, client_records=16, warm_steps=0, penalty=0.0,
    generator=ResNetNet(2, 2), critic=CriticNet(2), warm_generator=ResNetNet(2, 2))
TERMS = Terms("gswgan", CONFIG, ImageSpec(8, 8, 1, 3))
method = functools.cache(TERMS.build)


class Faults(logging.Handler):
    """Collects what a client logs with a traceback: an error that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(record.exc_info[1])


FAULTS = Faults()


@functools.cache
def prepare() -> None:
    """A client keeps nothing on the disk, and what it logs is heard."""
    messages.form = functools.cache(messages.form)
    clients.write_memory = lambda path, memory: None
    clients.log.addHandler(FAULTS)


def message(root: Path, name: str = "m") -> dict[str, Any]:
    """A request as it comes through a client's socket, and a second time. Its replies must be
    messages themselves; an answer must have been charged.
    """
    try:
        about, arrays = wire.decode((root / name).read_bytes())
    except ValueError as error:
        raise UserError(str(error)) from error
    with Ledger.create(root / "ledger.jsonl", {"epsilon": float("inf"), "delta": 1e-5}) as ledger:
        client = _client(root, ledger)
        replies = [wire.decode(wire.encode(*client.reply(about, arrays))) for _ in range(2)]
        if FAULTS.found:
            error, FAULTS.found = FAULTS.found[0], []
            raise RuntimeError("not a UserError") from error
        answers = sum("values" in answer for _, answer in replies)
        return {"charged": ledger.steps_charged, "answers": answers,
                "refused": [said.get("refused") for said, _ in replies]}


def _client(root: Path, ledger: Ledger) -> clients.Client:
    nothing = np.zeros(method().mechanism.shape, np.int32)
    memory = Memory(None, NEVER, "", nothing, ledger.head, ledger.n_lines)
    client = clients.Client(
        TERMS, method(), None, clients.OnDisk(RunFolder(root), ledger, memory), clients.Seat())
    client._answer = lambda *_: types.SimpleNamespace(unit=None, answer=nothing)
    return client


def question() -> bytes:
    """The first question of a server, as a relay sends it."""
    nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), messages.form(method()))
    return wire.encode({"turn": 0, "step": 0, "terms": TERMS.digest}, messages.pack(nothing))


def answer() -> bytes:
    values = np.zeros(method().mechanism.shape, np.int32)
    return wire.encode({"turn": 0, "client": 0, "noise": "os-entropy", "terms": TERMS.digest},
                       {"values": values})


def reply(root: Path, name: str = "m") -> dict[str, Any]:
    """An answer as the server takes it: whether it counts, or why not."""
    try:
        about, arrays = wire.decode((root / name).read_bytes())
    except ValueError as error:
        raise UserError(str(error)) from error
    lines: list[str] = []
    got = Reply(about.get("client"), about.get("turn"), arrays.get("values"), about.get("noise"))
    replies = server.sound_replies([got], Question(TERMS.digest, 0, 0, {}), [0, 1],
                                   method().mechanism,
                                   lines.append)
    return {"counts": list(replies), "shape": [list(r.values.shape) for r in replies.values()],
            "lines": lines}


def terms(root: Path, name: str = "terms.json") -> dict[str, Any]:
    """The terms that a client is sent, built."""
    try:
        text = (root / name).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(str(error)) from error
    found = Terms.from_text(text)
    found.build()
    return {"digest": found.digest}
