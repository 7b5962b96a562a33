"""Expected deviations of a class from all records in a column, given noisy counts.

Deviations and noise are taken for Gaussian. In a number the ratio of a class's density to that of
all changes smoothly with the log odds of the rank, which leaves both tails free; each category has
a ratio of its own. How far ratios lie from 1 is a mixture over a grid of scales. Beside these a
number may have one of the shapes of `table_shapes`: a rare class that keeps to the ends of columns
is found by them where no smooth ratio stands out. All columns of a class share the weights of
scales and shapes, which are fitted to them: where no column stands out of the noise, all are pulled
to 1, and a column that does keeps what it says.

Source: empirical Bayes by a mixture of Gaussians of fixed scales, Stephens, "False discovery rates:
a new deal" (Biostatistics 2017); here along the principal axes of a Gaussian process, and beside
shapes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array
from dpgen_jax.methods.shared import table_shapes

SCALES = np.array([0.0, *np.geomspace(0.05, 12.8, 9)], np.float32)
"""Standard deviations of ratios of densities."""
REACH = 2.0
"""Log odds of the rank over which one ratio tells of another."""
SLOPE = 0.7
"""The share of the variance of a ratio that is a slope along the log odds; the rest is rough."""
ODDS = np.pi**2 / 3
"""The variance of the log odds of a rank."""
SEEN = 1.0
"""How many columns of a class the prior weights of scales and shapes count for."""
LEAST = 1e-10
"""The least variance along an axis: less than this float32 does not tell from none."""
ROUNDS = 30
"""Rounds in which the mixture is fitted."""
SHAPED = 0.5
"""The prior weight of all shapes together; scales have the rest."""
NEVER = -1e30
"""The log likelihood of what cannot be."""


def alike(total: Array, is_number: Array) -> Array:
    """Returns the covariance of the ratios of two bins, at scale 1.

    Args:
        total: [d, B], masses of the bins of all records.
        is_number: bool [d, B], whether a bin is a part of a range.

    Returns:
        [d, B, B], positive semidefinite.
    """
    mass = total * is_number
    rank = (jnp.cumsum(mass, 1) - mass / 2) / jnp.maximum(mass.sum(1, keepdims=True), 1e-9)
    rank = jnp.clip(rank, 1e-3, 1 - 1e-3)
    odds = jnp.log(rank) - jnp.log1p(-rank)
    near = jnp.exp(-jnp.abs(odds[:, :, None] - odds[:, None]) / REACH)
    line = odds[:, :, None] * odds[:, None] / ODDS
    both = is_number[:, :, None] & is_number[:, None]
    return jnp.where(both, (1 - SLOPE) * near + SLOPE * line, jnp.eye(total.shape[1]))


def expected(deviation: Array, noise: Array, size: Array, total: Array, is_number: Array) -> Array:
    """Returns the expected deviations, given noisy ones.

    Args:
        deviation: [d, C, B], noisy masses of a class, less those of all times its share.
        noise: [d, C], their standard deviations.
        size: [C], shares of the classes.
        total: [d, B], masses of the bins of all records.
        is_number: bool [d, B], whether a bin is a part of a range.

    Returns:
        [d, C, B].
    """
    power, axes = jnp.linalg.eigh(total[:, :, None] * alike(total, is_number) * total[:, None])
    along = jnp.einsum("dbk,dcb->dck", axes, deviation)
    scales = SCALES.reshape(-1, 1, 1, 1)
    signal = (scales * size[:, None])**2 * jnp.maximum(power, LEAST)[:, None]  # [S, d, C, B]
    variance = noise**2 + 1e-18
    spread = signal + variance[..., None]
    likely = -0.5 * jnp.sum(along**2 / spread + jnp.log(spread), -1)  # [S, d, C]
    shaped = table_shapes.deviations(total, is_number)
    likely_shaped = _likely(deviation, variance, size, shaped)
    likely_shaped = jnp.where(is_number.any(1)[:, None], likely_shaped, NEVER)
    shares = _shares(jnp.concatenate([likely, likely_shaped]))
    smooth, of_shape = jnp.split(shares, [len(SCALES)])
    part = jnp.sum(smooth[..., None] * signal / spread, 0)
    return (jnp.einsum("dbk,dck->dcb", axes, part * along)
            + jnp.einsum("kdc,kdb->dcb", of_shape, shaped) * size[:, None])


def _likely(deviation: Array, variance: Array, size: Array, shaped: Array) -> Array:
    """Returns the log likelihoods of noisy deviations of classes that have a shape: [K, d, C].

    Args:
        deviation: [d, C, B].
        variance: [d, C], of their noise.
        size: [C].
        shaped: [K, d, B], the deviations of the shapes, in parts of a class.
    """
    explained = size * jnp.einsum("kdb,dcb->kdc", shaped, deviation)
    squares = size**2 * jnp.sum(shaped**2, -1, keepdims=True)
    distance = jnp.sum(deviation**2, -1) - 2 * explained + squares
    return -0.5 * (distance / variance + deviation.shape[-1] * jnp.log(variance))


def _shares(likely: Array) -> Array:
    """Returns how likely each component is: [M, d, C], of sum 1 over the first axis.

    How often each is met in a class is fitted to all of its columns.

    Args:
        likely: [M, d, C], log likelihoods given each: of scales, and then of shapes.
    """
    scales, shapes = len(SCALES), len(likely) - len(SCALES)
    even = jnp.asarray(np.repeat([(1 - SHAPED) / scales, SHAPED / shapes], [scales, shapes]),
                       jnp.float32)

    def given(weights: Array) -> Array:
        return jax.nn.softmax(likely + jnp.log(weights)[:, None], 0)

    def fitted(_: int, weights: Array) -> Array:
        counted = given(weights).sum(1) + SEEN * even[:, None]
        return counted / counted.sum(0)

    weights = jnp.repeat(even[:, None], likely.shape[2], 1)
    return given(jax.lax.fori_loop(0, ROUNDS, fitted, weights))
