"""A client's memory between two questions: one file, written whole or not at all.

It holds the client's critic after the last answer, that answer, and which question it was for. They
lie in one file because they must never be apart: a critic that has learnt from a question is one
whose answer can be given again.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dpgen_jax.core.atomic import sync
from dpgen_jax.core.types import Method, Private, UserError
from dpgen_jax.federated.messages import pack
from dpgen_jax.private.packing import like
from dpgen_jax.private.teachers import Units

NEVER = -1
"""The last round of a client that has answered nothing."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """A client's memory.

    Attributes:
        unit: The client's unit, sealed.
        round: The last round that was answered, or NEVER.
        question: The digest of its question.
        answer: int32 [B, D], as it was sent.
        ledger_head: The hash of a line that the ledger must have.
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
"""The keys of the note in the file, and the fields of `Memory` that they are."""


def write(path: Path, memory: Memory) -> None:
    """Writes a memory; it is on disk, name and all, when the call returns.

    Args:
        path: The file; its mode becomes 0600.
        memory: The memory.

    Raises:
        UserError: Where it cannot be written; the file that was there before is kept.
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


def read(path: Path, method: Method) -> Memory | None:
    """Reads a memory.

    Args:
        path: The file.
        method: The method, which decides the form of the unit.

    Returns:
        The memory; None where nothing was ever written.

    Raises:
        UserError: For a damaged file.
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
        raise UserError(f"{path} is damaged ({type(error).__name__}): bring back the file that "
                        "belongs to this folder; what was spent stays spent") from None


def _unit(method: Method, arrays: dict[str, np.ndarray]) -> Private[Units]:
    """Seals the arrays of a unit; ValueError or KeyError where they are not those of one."""
    leaves, structure = jax.tree_util.tree_flatten(like(method, 1))
    names = [f"unit/{name}" for name in pack(like(method, 1))]
    loaded = [arrays[name] for name in names]
    for array, leaf in zip(loaded, leaves, strict=True):
        if array.shape != leaf.shape[1:] or array.dtype != leaf.dtype:
            raise ValueError("an array has another shape")
    unit: Private[Units] = jax.tree.unflatten(structure, [jnp.asarray(array) for array in loaded])
    return unit
