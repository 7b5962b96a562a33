"""The random bits of JAX, in NumPy: a key and a counter give 64 of them.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Keys
are uint32 [..., 2].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Array = np.ndarray


@np.errstate(over="ignore")  # sums are modulo 2**32
def bits(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Returns 64 random bits for each counter, in two halves: 20 rounds of Threefry-2x32."""
    a, b = (np.asarray(half, np.uint32) for half in (high, low))
    parts = [key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ np.uint32(0x1BD11BDA)]
    a, b = a + parts[0], b + parts[1]
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            a = a + b
            b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        a = a + parts[(block + 1) % 3]
        b = b + parts[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


def key_of(seed: int) -> Array:
    """Returns the key of a seed below 2**32: uint32 [2]."""
    return np.array([0, seed], np.uint32)


def fold_in(key: Array, number: int) -> Array:
    """Returns another key, of a key and a number below 2**32."""
    return np.stack(bits(key, np.array(0), np.array(number)), -1)


def _counters(shape: Sequence[int]) -> tuple[Array, Array]:
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)


def split(key: Array, shape: Sequence[int]) -> Array:
    """Returns further keys of a key: uint32 [*shape, 2]."""
    return np.stack(bits(key, *_counters(shape)), -1)


def words(key: Array, shape: Sequence[int]) -> Array:
    """Returns random words: uint32 [*shape]."""
    high, low = bits(key, *_counters(shape))
    return high ^ low
