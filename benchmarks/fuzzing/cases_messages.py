"""Damaged messages of a federation, in either direction, and damaged terms."""

from __future__ import annotations

import functools
import json
import struct
from random import Random
from typing import Any

import numpy as np

from benchmarks.fuzzing import read_messages
from benchmarks.fuzzing.case import Case
from benchmarks.fuzzing.damage import DEEP, LONG, WORDS, changed, damaged, dumped, odd
from dpgen_jax.federated import wire

DTYPES = ("f4", "f2", "f8", "i4", "u4", "i8", "u1", "?")
question = functools.cache(read_messages.question)
answer = functools.cache(read_messages.answer)


def message(draw: Random) -> Case:
    return Case({"m": _spoiled(draw, question())})


def reply(draw: Random) -> Case:
    return Case({"m": _spoiled(draw, answer())})


def _spoiled(draw: Random, data: bytes) -> bytes:
    """Makes what is said, an array, the header of the file, or its bytes odd."""
    kind = draw.randrange(8)
    if kind < 2:
        return damaged(draw, data)
    if kind == 2:
        size = struct.unpack("<Q", data[:8])[0]
        head = dumped(changed(draw, json.loads(data[8:8 + size])))
        size = draw.choice((len(head), len(head), *WORDS))
        return struct.pack("<Q", size) + head + data[8 + size:]
    about, decoded = wire.decode(data)
    arrays = dict(sorted(decoded.items()))  # safetensors gives them in any order
    if kind < 5:
        note = dumped(_about(draw, about))
        arrays = {wire.ABOUT: np.frombuffer(note, np.uint8)} | {
            f"array/{name}": array for name, array in arrays.items()}
        return wire.safetensors.numpy.save(arrays)
    name = draw.choice((*arrays, "", "x", "about"))
    arrays[name] = _array(draw, arrays.get(name, np.zeros(3, np.float32)))
    if draw.randrange(6) == 0:
        del arrays[name]
    return wire.encode(about, arrays)


def _about(draw: Random, about: dict[str, Any]) -> Any:
    if draw.randrange(2):
        return changed(draw, about)
    value = draw.choice((-1, 2**31 - 1, 2**31, 2**64, 0.5, True, "0", None, [], {}, DEEP, LONG,
                         odd(draw)))
    return about | {draw.choice(("turn", "step", "client", "noise", "terms")): value}


def _array(draw: Random, array: np.ndarray) -> np.ndarray:
    """Another dtype or shape, or values that no one may send."""
    kind = draw.randrange(4)
    if kind == 0:
        return array.astype(draw.choice(DTYPES))
    if kind == 1:
        return array.reshape(-1)[:draw.randrange(array.size + 1)]
    if kind == 2:
        return np.broadcast_to(array, (draw.choice((0, 2)), *array.shape)).copy()
    array = array.copy()
    most = np.iinfo(array.dtype).min if array.dtype.kind == "i" else draw.choice(
        (np.nan, np.inf, -np.inf, 3e38))
    array.reshape(-1)[:1] = most if array.dtype.kind in "if" else 1
    return array


def terms(draw: Random) -> Case:
    text = read_messages.TERMS.to_text()
    data = damaged(draw, text.encode()) if draw.randrange(3) == 0 else \
        dumped(changed(draw, json.loads(text)))
    return Case({"terms.json": data})


def check_message(case: Case, value: dict[str, Any]) -> str | None:
    """A question asked twice is answered twice at one price, or not at all."""
    if value["answers"] and value["charged"] < 1:
        return f"answered and not charged: {value}"
    return None


def check_reply(case: Case, value: dict[str, Any]) -> str | None:
    """Checks that what counts has the form of an answer, and what is dropped a printable line."""
    form = list(read_messages.method().mechanism.shape)
    if any(shape != form for shape in value["shape"]):
        return f"an answer of another form counts: {value}"
    if bad := [line for line in value["lines"] if len(line.splitlines()) != 1]:
        return f"not one line: {bad[0][:300]!r}"
    return None
