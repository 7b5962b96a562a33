"""Expected deviations of a class from all records in a column, given noisy counts.

Deviations and noise are taken for Gaussian. In a number the ratio of a class's density to that of
all changes smoothly with the log odds of the rank, which leaves both tails free; each category has
a ratio of its own. How far ratios lie from 1 is a mixture over a grid of scales. All columns of a
class share its weights, which are fitted to them: where no column stands out of the noise, all are
pulled to 1, and a column that does keeps what it says.

Source: empirical Bayes by a mixture of Gaussians of fixed scales, Stephens, "False discovery rates:
a new deal" (Biostatistics 2017); here along the principal axes of a Gaussian process.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array

SCALES = np.array([0.0, *np.geomspace(0.05, 12.8, 9)], np.float32)
"""Standard deviations of ratios of densities."""
REACH = 2.0
"""Log odds of the rank over which one ratio tells of another."""
SLOPE = 0.7
"""The share of the variance of a ratio that is a slope along the log odds; the rest is rough."""
ODDS = np.pi**2 / 3
"""The variance of the log odds of a rank."""
SEEN = 1.0
"""Columns whose scales the mixture is as if told before, evenly over all of them."""
LEAST = 1e-10
"""The least variance along an axis: less than this float32 does not tell from none."""
ROUNDS = 30
"""Rounds in which the mixture is fitted."""


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
    variance = signal + noise[..., None]**2 + 1e-18
    likely = -0.5 * jnp.sum(along**2 / variance + jnp.log(variance), -1)  # [S, d, C]

    def shares_of_scales(weights: Array) -> Array:
        return jax.nn.softmax(likely + jnp.log(weights)[:, None], 0)

    def fitted(_: int, weights: Array) -> Array:
        counted = shares_of_scales(weights).sum(1) + SEEN / len(SCALES)
        return counted / counted.sum(0)

    even = jnp.full((len(SCALES), len(size)), 1 / len(SCALES))
    weights = jax.lax.fori_loop(0, ROUNDS, fitted, even)
    part = jnp.sum(shares_of_scales(weights)[..., None] * signal / variance, 0)
    return jnp.einsum("dbk,dck->dcb", axes, part * along)
