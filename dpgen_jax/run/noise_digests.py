"""Digests of the random bits of each round, which reveal later whether bits were used twice.

A run appends a line for each round to private/noise_digests.txt. The line has the number of the
round; 128 bits of BLAKE2b of the bits of its noise, and of the bits that sampled its units, if any
did, keyed with the secret key of private/identity.json; and how many random numbers of the round
were the same as another one of it. It is written while the round is computed, before the ledger
counts the round as made and before anybody learns what it released. The line of a round that a
crash loses may be missing. A client in a process of its own keeps such a file of its answers.

What a digest reveals. Bits are drawn uniformly, 96 of them or more for each number, and no function
of them but the digest and the noisy sum is kept. Without the key, nobody can distinguish digests
from random numbers. Whoever has the key, and so all of private/, would have to try 2^96 bit strings
of the smallest release there is before one fits, so the noise cannot be removed from a released
sum. Such a person also has the records, and learns nothing from the noise.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpgen_jax.aggregation.noise import BitSource
from dpgen_jax.core import files
from dpgen_jax.core.files import BINARY
from dpgen_jax.core.types import UserError

LINE = re.compile(r"(\d{1,18})((?: [0-9a-f]{32})+)(?: (\d{1,18}))?\n")
DIGEST_BYTES = 16
LONGEST_LINE = 2**12
"""Bytes of a line, at most, and more than there are."""
LARGEST = 2**30
"""Bytes of a file, at most: a line is below 100."""
WORDS = 3
"""uint32 of one random number"""
BY_VALUE, BY_PLACE = 2**16, 2**12
"""random numbers of a round that are compared with each other, about"""


class Line(NamedTuple):
    """The line of a round.

    Attributes:
        number: The round, as the ledger counts them.
        twice: How many of its random numbers were the same as another one; None in files of earlier
            versions, which did not look for them.
    """

    number: int
    digests: tuple[str, ...]
    twice: int | None


@dataclasses.dataclass
class Remembered:
    """A source of bits that remembers what was drawn from it, for a block of rounds.

    Attributes:
        drawn: uint32 [n, ...] of each draw, by round.
    """

    source: BitSource
    drawn: list[np.ndarray] = dataclasses.field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of the source."""
        return self.source.label

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits: uint32 of the shape."""
        bits = self.source.draw(shape)
        self.drawn.append(bits)
        return bits

    def draw_for(self, units: np.ndarray, first_round: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits for each unit in each round: uint32 [R, n, *shape]."""
        bits = self.source.draw_for(units, first_round, shape)
        self.drawn.append(np.moveaxis(bits, 1, 0))
        return bits


def append(path: Path, key: bytes, first_round: int, blocks: Sequence[np.ndarray]) -> None:
    """Adds the digests of some rounds to the file; of no bits there are none.

    Args:
        path: The file.
        key: The secret key of the run, up to 64 bytes.
        first_round: The number of the first of these rounds, as the ledger counts them.
        blocks: Each uint32 [n, ...], bits of each round.

    Raises:
        OSError: The file cannot be written.
    """
    filled = [block for block in blocks if block.size]
    lines = [f"{first_round + i} {' '.join(_digest(key, row) for row in rows)} "
             f"{sum(map(twice, rows))}\n" for i, rows in enumerate(zip(*filled, strict=True))]
    if not lines:
        return
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o600), "r+b") as out:
        size = out.seek(0, os.SEEK_END)
        out.seek(max(0, size - LONGEST_LINE))
        end = out.read()
        out.seek(size - len(end) + end.rfind(b"\n") + 1)
        out.truncate()  # of a line that a full disk or a crash cut off
        out.write("".join(lines).encode())


def _digest(key: bytes, row: np.ndarray) -> str:
    data = np.ascontiguousarray(row, "<u4").data
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key,
                           person=b"dpgen noise bits").hexdigest()


def twice(bits: np.ndarray) -> int:
    """Returns how many 96-bit numbers are the same as another one, of those that are compared.

    If there are n > 2^16 numbers, a share f = 2^16 / n of them is compared: those below a
    threshold, which selects both or neither of two equal numbers, and 2^12 more at even distances.
    So if k numbers occur twice, none of them is seen with a chance of (1 - f)^k; and if fewer than
    2^12 different numbers fill all places, some repetition is always seen. Among n fresh numbers
    any two are the same with a chance below n^2 / 2^97.

    Args:
        bits: uint32 [..., 3]; of bits in another form nothing is compared.
    """
    if bits.shape[-1] != WORDS:
        return 0
    words = bits.reshape(-1, WORDS)
    if len(words) > BY_VALUE:
        chosen = words[:, 0] < 2**32 * BY_VALUE // len(words)
        chosen[::len(words) // BY_PLACE] = True
        words = words[chosen]
    first = words[:, 0].astype(np.uint64) << np.uint64(32) | words[:, 1]
    ordered = np.sort(first)
    if not (ordered[1:] == ordered[:-1]).any():  # nearly always; what follows takes longer
        return 0
    order = np.argsort(first, kind="stable")
    same = (np.diff(first[order]) == 0) & (np.diff(words[order, 2].astype(np.int64)) == 0)
    return int(same.sum())


def read(path: Path) -> list[Line]:
    """Returns the lines of all rounds, in the order in which they were drawn.

    A last line that a crash cut off is left out.

    Raises:
        UserError: A line that is not a round with its digest.
    """
    text = files.read_bytes(path, LARGEST).decode("ascii", "replace")
    whole, _, _ = text.rpartition("\n")
    lines = []
    for i, line in enumerate(whole.splitlines()):
        match = LINE.fullmatch(line + "\n")
        if match is None:
            raise UserError(f"{path} is damaged at line {i + 1}")
        lines.append(Line(int(match[1]), tuple(match[2].split()),
                          None if match[3] is None else int(match[3])))
    return lines


def repeated(lines: Sequence[Line]) -> list[tuple[int, ...]]:
    """Returns the rounds that had the same bits, as tuples of their numbers."""
    by_digest: dict[str, list[int]] = collections.defaultdict(list)
    for line in lines:
        for digest in line.digests:
            by_digest[digest].append(line.number)
    return [tuple(numbers) for numbers in by_digest.values() if len(numbers) > 1]
