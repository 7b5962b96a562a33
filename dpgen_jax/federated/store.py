"""What a client remembers between two questions: one file, written whole or not at all.

Its critic after the last answer, that answer, and which question it was for. They lie in one file
because they must never be apart: a critic that has learnt from a question is one whose answer can
be given again.
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

from dpgen_jax.federated.messages import pack
from dpgen_jax.private.packing import like
from dpgen_jax.private.teachers import Units
from dpgen_jax.run.atomic import sync
from dpgen_jax.types import Method, Private, UserError

NEVER = -1


@dataclasses.dataclass(frozen=True)
class Memory:
    """unit: sealed; turn: the last that was answered, or NEVER; question: its digest; answer
    int32 [B, D]; ledger_head, ledger_lines: a line that the ledger must hold."""

    unit: Private[Units]
    turn: int
    question: str
    answer: np.ndarray
    ledger_head: str
    ledger_lines: int


NOTES = ("turn", "question", "ledger_head", "ledger_lines")


def write(path: Path, memory: Memory) -> None:
    """On disk, name and all, when the call returns; mode 0600. Errors: UserError where it cannot be
    written: what was there before is kept."""
    note = json.dumps({name: getattr(memory, name) for name in NOTES}).encode()
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
    """None where nothing was ever written. Errors: UserError naming a damaged file."""
    if not path.exists():
        return None
    try:
        arrays = safetensors.numpy.load(path.read_bytes())
        note = json.loads(arrays.pop("note").tobytes())
        answer = arrays.pop("answer")
        return Memory(_unit(method, arrays), answer=answer, **{n: note[n] for n in NOTES})
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}): bring back the file that "
                        "belongs to this folder; what was spent stays spent") from None


def _unit(method: Method, arrays: dict[str, np.ndarray]) -> Private[Units]:
    """ValueError or KeyError where the arrays are not those of a unit."""
    leaves, structure = jax.tree_util.tree_flatten(like(method, 1))
    names = [f"unit/{name}" for name in pack(like(method, 1))]
    held = [arrays[name] for name in names]
    for array, leaf in zip(held, leaves, strict=True):
        if array.shape != leaf.shape[1:] or array.dtype != leaf.dtype:
            raise ValueError("an array has another shape")
    return jax.tree.unflatten(structure, [jnp.asarray(array) for array in held])
