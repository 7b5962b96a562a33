"""Messages that nobody would send, and how far the furthest of some messages are apart."""

import math

import numpy as np


def rows(rng, d, unit=1.0):
    """float32 [n, D]: zeros (first), one entry (2), flat, tiny, huge, subnormal, tied, sparse,
    random and broken rows, about messages of size `unit`."""
    one, sparse = np.zeros(d), np.zeros(d)
    one[d // 2] = 5 * unit
    sparse[rng.integers(d, size=3)] = unit * rng.normal(size=3)
    found = [np.zeros(d), one, -one, -np.zeros(d), sparse, np.full(d, (0.5 + 1e-6) * unit)]
    tiny = np.finfo(np.float32).tiny
    found += [np.full(d, value) for value in (
        tiny, unit, -unit, unit / math.sqrt(d), -1e18, -1e30, 1e25, 1e38, 3.4e38, 1e-37, 1e-40,
        -1e-45)]
    found += [rng.choice(pair, d) for pair in (
        (3e38, 1e-38), (1e38, -1e38), (-unit, unit), (unit, 0.0), (1e-40, tiny))]
    found += [rng.integers(-2, 3, size=d) * 0.5 * unit]
    found += [scale * rng.normal(size=d) for scale in (
        1e-30, unit / 99, unit / math.sqrt(d), unit, 99 * unit, 1e25) for _ in range(20)]
    for bad in (math.nan, math.inf, -math.inf):
        row = unit * rng.normal(size=d)
        row[rng.integers(d)] = bad
        found += [row, np.full(d, bad)]
    with np.errstate(over="ignore"):
        return np.array(found).astype(np.float32)


def furthest(messages) -> int:
    """The largest squared distance of two of these messages, each flattened: whole numbers."""
    flat = np.unique(np.reshape(messages, (len(messages), -1)), axis=0).astype(float)
    norms = (flat**2).sum(1)
    return int((norms[:, None] + norms - 2 * flat @ flat.T).max())
