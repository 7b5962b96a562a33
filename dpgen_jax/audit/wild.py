"""Messages that nobody would send: where a search for a bound's worst case begins and goes on."""

from __future__ import annotations

import numpy as np

EDGES = np.array([0.0, -0.0, 1e-45, 1e-38, 0.5, 1.0, 1e19, 3e38, np.inf, np.nan], np.float32)
"""numbers at which arithmetic of float32 changes its ways"""


def wild(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns pairs of messages of many kinds, float32 [n, 2, B, M].

    Args:
        rng: Of the search.
        shape: (n, 2, B, M).
    """
    return np.stack([_pair(rng, shape[1:]) for _ in range(shape[0])])


def _pair(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    first = _one(rng, shape[1:])
    other = (lambda: -first, lambda: _one(rng, shape[1:]), lambda: np.roll(first, 1, -1),
             lambda: rng.permuted(first, axis=-1))[rng.integers(4)]()
    return np.stack([first, other]).astype(np.float32)


def _one(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """One message: dense, sparse, of ties, of counting numbers, or with edges in it."""
    with np.errstate(over="ignore"):
        size = np.float32(10.0 ** rng.uniform(-6, 6))
        kinds = (lambda: rng.standard_normal(shape), lambda: rng.choice([-1.0, 1.0], shape),
                 lambda: rng.standard_normal(shape) * (rng.random(shape) < 4 / shape[-1]),
                 lambda: np.ones(shape), lambda: np.round(rng.uniform(0, 50, shape)),
                 lambda: np.where(rng.random(shape) < 0.02, rng.choice(EDGES, shape),
                                  rng.standard_normal(shape)))
        message = kinds[rng.integers(len(kinds))]()
        return (message * (size if rng.random() < 0.8 else 1.0)).astype(np.float32)


def mutated(rng: np.random.Generator, pair: np.ndarray, n: int) -> np.ndarray:
    """Returns n pairs float32 [n, 2, B, M] that differ from one in some entries.

    Args:
        rng: Of the search.
        pair: float32 [2, B, M].
        n: How many.
    """
    return np.stack([_mutated(rng, pair) for _ in range(n)])


def _mutated(rng: np.random.Generator, pair: np.ndarray) -> np.ndarray:
    chosen = rng.random(pair.shape) < 10.0 ** rng.uniform(-4, 0)
    chosen.reshape(-1)[rng.integers(pair.size)] = True
    step = np.float32(1 + rng.choice([-1, 1]) * 2.0 ** -rng.integers(0, 24))
    with np.errstate(all="ignore"):
        values = (lambda: -pair, lambda: pair[::-1], lambda: 0 * pair, lambda: pair * step,
                  lambda: pair + rng.choice([-1.0, 1.0, 0.5]), lambda: rng.permuted(pair, axis=-1),
                  lambda: np.full_like(pair, rng.choice(EDGES)),
                  lambda: rng.standard_normal(pair.shape))[rng.integers(8)]()
        return np.where(chosen, values, pair).astype(np.float32)
