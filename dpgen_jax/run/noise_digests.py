"""Digests of the random bits of each round, by which bits that were used twice are found later.

A run appends a line for each round to private/noise_digests.txt: the number of the round, and 128
bits of BLAKE2b of the round's noise bits, keyed with the secret key of private/identity.json. It is
written before the round is computed, also of rounds that a crash loses.

What a digest tells. Bits are drawn uniformly, 96 of them or more for each number, and no function
of them but the digest and the noisy sum is kept. Whoever has no key cannot tell digests from random
numbers. Whoever has the key, and so all of private/, would have to try 2^96 bit strings of the
smallest release there is before one fits, so the noise cannot be taken off a sum that was released;
he has the records beside the key, and learns nothing from the noise.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
from pathlib import Path

import numpy as np

from dpgen_jax.core import reading
from dpgen_jax.core.types import UserError

LINE = re.compile(r"(\d{1,18}) ([0-9a-f]{32})\n")
DIGEST_BYTES = 16
LARGEST = 2**30
"""Bytes of a file, at most: a line is below 60."""


def noise_bits(private_inputs: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Returns the bits of the noise of each round, wherever it is added: uint32 [S, ...].

    Args:
        private_inputs: As `loop.draw` returns them, [R, S, ...]; uint32 where they are bits of the
            units' own noise.
        bits: Likewise, uint32 [S, ...].
    """
    if bits.size or private_inputs.dtype != np.uint32:
        return bits
    return np.moveaxis(private_inputs, 1, 0)


def append(path: Path, key: bytes, first_round: int, bits: np.ndarray) -> None:
    """Adds the digests of some rounds to the file.

    Args:
        path: The file.
        key: The secret key of the run, up to 64 bytes.
        first_round: The number of the first of these rounds, as the ledger counts them.
        bits: uint32 [n, ...], of the noise of each round.

    Raises:
        OSError: The file cannot be written.
    """
    lines = "".join(f"{first_round + i} {_digest(key, row)}\n" for i, row in enumerate(bits))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as out:
        out.write(lines.encode())


def _digest(key: bytes, row: np.ndarray) -> str:
    data = np.ascontiguousarray(row, "<u4").data
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key,
                           person=b"dpgen noise bits").hexdigest()


def read(path: Path) -> list[tuple[int, str]]:
    """Returns the rounds and their digests, in the order in which they were drawn.

    A last line that a crash cut off is left out.

    Args:
        path: The file.

    Raises:
        UserError: A line that is no round and digest.
    """
    text = reading.read_bytes(path, LARGEST).decode("ascii", "replace")
    whole, _, _ = text.rpartition("\n")
    rows = []
    for i, line in enumerate(whole.splitlines()):
        match = LINE.fullmatch(line + "\n")
        if match is None:
            raise UserError(f"{path} is damaged at line {i + 1}")
        rows.append((int(match[1]), match[2]))
    return rows


def repeats(rows: list[tuple[int, str]]) -> list[tuple[int, ...]]:
    """Returns the rounds that had the same bits, as tuples of their numbers.

    Args:
        rows: As `read` returns them.
    """
    by_digest: dict[str, list[int]] = collections.defaultdict(list)
    for number, digest in rows:
        by_digest[digest].append(number)
    return [tuple(numbers) for numbers in by_digest.values() if len(numbers) > 1]
