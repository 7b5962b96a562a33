"""Many releases of two sums through the one door that a run has, and what tells them apart.

Each release is made by `aggregation.mechanism.release`, in a compiled loop as that of a run, of
fresh bits of the operating system. Only a few numbers of each are kept, so a sum may have millions
of entries.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.aggregation.bits import OsBits
from dpgen_jax.aggregation.confident_gnmax import Answers, ConfidentGNMax
from dpgen_jax.aggregation.label_votes import Majority, Share
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism, release
from dpgen_jax.aggregation.threshold import Threshold, votes_needed
from dpgen_jax.audit import statistics
from dpgen_jax.core.types import Array, Private

BLOCK_BYTES = 2**25
"""Bytes of the bits of one block of releases."""
LONGEST = 256
"""Releases of one block, at most."""

Features = Callable[[Any], Array]
"""From the outcome of a release to a few numbers, float32 [F]."""


@functools.singledispatch
def near(decode: object, n_units: int, apart: np.ndarray) -> np.ndarray:
    """Returns what all other units add, so that the change of one shows best: int32 [B, D].

    Args:
        decode: The decoder of the noisy sum.
        n_units: U.
        apart: bool [B, D], where the two sums differ.
    """
    return np.zeros(apart.shape, np.int32)


@near.register
def _(decode: Threshold, n_units: int, apart: np.ndarray) -> np.ndarray:
    return np.where(apart, votes_needed(n_units, decode.beta), 0).astype(np.int32)


@near.register(Majority)
@near.register(Share)
def _(decode: Majority | Share, n_units: int, apart: np.ndarray) -> np.ndarray:
    return np.full(apart.shape, n_units // 2, np.int32)


def linear_features(mechanism: Mechanism, totals: np.ndarray) -> Features:
    """Returns two likelihood ratios, up to a factor: of Gaussian and of Laplace noise.

    Args:
        mechanism: The mechanism.
        totals: int32 [2, B, D].
    """
    silent = jnp.zeros(mechanism.bits_shape, jnp.uint32)
    quiet = [np.asarray(jax.jit(lambda total: mechanism.value(mechanism.decide(total, silent)))(
        total)) for total in totals]
    one, other = (jnp.asarray(value) for value in quiet)

    def features(outcome: Any) -> Array:
        value = mechanism.value(outcome)
        projection = jnp.sum((value - (one + other) / 2) * (other - one))
        return jnp.stack([projection, jnp.sum(jnp.abs(value - one) - jnp.abs(value - other))])

    return features


def answer_features(mechanism: ConfidentGNMax) -> Features:
    """Returns how many queries were not answered, and how many each bin won."""
    midpoints = mechanism.bound.midpoints

    def features(outcome: Answers) -> Array:
        winner = jnp.argmin(jnp.abs(outcome.value[..., None] - midpoints), -1)
        place = jnp.where(outcome.answered == 1, 1 + winner, 0)
        return jnp.sum(place[..., None] == jnp.arange(len(midpoints) + 1), (0, 1)).astype(
            jnp.float32)

    return features


def features_of(mechanism: Mechanism, totals: np.ndarray) -> Features:
    """Returns the features that tell the releases of two sums int32 [2, B, D] apart."""
    if isinstance(mechanism, ConfidentGNMax):
        return answer_features(mechanism)
    return linear_features(mechanism, totals)


def compiled(mechanism: Mechanism, features: Features) -> Callable[[Array, Array], Array]:
    """Compiles a block of releases of one sum: from int32 [B, D] and bits to float32 [S, F].

    Noise of clients is drawn by `contribution`: there the sum is the message of one client.
    """
    local = isinstance(mechanism, LocalMechanism)

    def once(total: Array, bits: Array) -> Any:
        if local:
            noised = mechanism.contribution(jax.random.key(0), total, bits)
            return release(mechanism, jnp.zeros(mechanism.bits_shape, jnp.uint32),
                           Private(mechanism.added(jnp.zeros(mechanism.shape, jnp.int32),
                                                   noised[None])))
        return release(mechanism, bits, Private(total))

    @jax.jit
    def block(total: Array, bits: Array) -> Array:
        shape = jax.eval_shape(lambda: features(once(total, bits[0]))).shape
        return lax.fori_loop(0, len(bits), lambda i, out: out.at[i].set(
            features(once(total, bits[i]))), jnp.zeros((len(bits), *shape)))

    return block


def draw(mechanism: Mechanism, totals: np.ndarray, seconds: float, most: int,
         features: Features | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Makes releases of two sums, until there are enough or the time is over.

    Args:
        mechanism: The mechanism.
        totals: int32 [2, B, D]; of clients with noise of their own float32 [2, B, M], messages.
        seconds: How long.
        most: Releases of each sum, at most; 16 are made at least.
        features: What is kept of a release; by default `features_of`.

    Returns:
        float32 [n, F] of each sum.
    """
    shape = (mechanism.client_bits_shape if isinstance(mechanism, LocalMechanism)
             else mechanism.bits_shape)
    size = max(1, min(LONGEST, most, BLOCK_BYTES // max(1, 4 * math.prod(shape))))
    block = compiled(mechanism, features or features_of(mechanism, totals))
    devices, source = jax.devices(), OsBits()

    def side(i: int) -> np.ndarray:
        device = devices[i % len(devices)]
        made: list[np.ndarray] = []
        total, until = jax.device_put(totals[i], device), math.inf
        while not made or (size * len(made) < most
                           and (size * len(made) < 16 or time.monotonic() < until)):
            bits = jax.device_put(source.draw((size, *shape)), device)
            made.append(np.asarray(block(total, bits)))
            until = min(until, time.monotonic() + seconds)  # compilation is not drawing
        return np.concatenate(made)

    with ThreadPoolExecutor(2) as pool:
        zeros, ones = pool.map(side, (0, 1))
    n = min(len(zeros), len(ones), most)
    return zeros[:n], ones[:n]


def scores(zeros: np.ndarray, ones: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns one number for each release: the linear discriminant of the part that trains it.

    Args:
        zeros: float32 [n, F], features of releases of the first sum.
        ones: Of the second one.

    Returns:
        float [n] each, higher for the second sum.
    """
    first = statistics.training_part(len(zeros))
    a, b = zeros[:first].astype(float), ones[:first].astype(float)
    spread = np.concatenate([a - a.mean(0), b - b.mean(0)])
    scale = np.maximum(spread.std(0), 1e-12)
    covariance = (spread / scale).T @ (spread / scale) / len(spread)
    weights = np.linalg.solve(covariance + 1e-6 * np.eye(len(covariance)),
                              (b.mean(0) - a.mean(0)) / scale) / scale
    return zeros @ weights, ones @ weights
