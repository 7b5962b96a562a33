"""Digests of many records as one array of bytes, and their order.

An array has 16 bytes for each of them; as objects of Python they would take six times as much, and
to sort them would take longer than to compute them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dpgen_jax.core import picked

AT_ONCE = 2**22
"""Bytes of rows that are copied at once."""


def of(messages: Iterable[Any], size: int, *, key: bytes = b"", person: bytes = b"") -> np.ndarray:
    """Returns the BLAKE2b digests of messages.

    Args:
        messages: The messages, bytes or alike.
        size: The bytes of a digest, a multiple of 8.
        key: The secret key, if there is one.
        person: What the digests are for, where other ones are of the same messages.

    Returns:
        uint8 [n, size].
    """
    made = b"".join(hashlib.blake2b(message, digest_size=size, key=key, person=person).digest()
                    for message in messages)
    return np.frombuffer(made, np.uint8).reshape(-1, size)


def rows(*columns: np.ndarray) -> Iterator[memoryview]:
    """Yields the bytes of each row: those of all its values in their order.

    Args:
        columns: Arrays [n, ...] of any types, or rows that were picked of such.
    """
    n = len(columns[0])
    step = max(1, AT_ONCE * n // max(1, sum(column.nbytes for column in columns)))
    for start in range(0, n, step):
        parts = [np.ascontiguousarray(column[start:start + step]) for column in columns]
        whole = np.concatenate([part.view(np.uint8).reshape(len(part), -1) for part in parts], 1)
        content, width = memoryview(whole.tobytes()), whole.shape[1]
        for i in range(len(whole)):
            yield content[i * width:(i + 1) * width]
        for column in columns:
            picked.forget(column)


def order(digests: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
    """Returns the places of digests in the order of their bytes; equal ones keep theirs.

    Args:
        digests: uint8 [n, m], m a multiple of 8.
        last: bool [n], which of them lie behind all others, in the same order; None for none.

    Returns:
        int64 [n].
    """
    words = np.ascontiguousarray(digests).view(">u8").T[::-1]
    return np.lexsort(words if last is None else (*words, last))


def counted_before(digests: np.ndarray) -> np.ndarray:
    """Returns for each digest how many equal ones lie before it.

    Args:
        digests: uint8 [n, m], m a multiple of 8.

    Returns:
        int64 [n].
    """
    at = order(digests)
    new = np.ones(len(at), bool)
    new[1:] = (digests[at[1:]] != digests[at[:-1]]).any(1)
    start = np.flatnonzero(new)
    result = np.empty(len(at), np.int64)
    result[at] = np.arange(len(at)) - start[np.cumsum(new) - 1]
    return result
