"""Estimates of means and covariances through noise: for public use, on released values.

The eigenvalues of a symmetric [k, k] matrix of noise, of standard deviation s off its diagonal, lie
within 2 sqrt(k) s by the semicircle law (Wigner 1958). What of a noisy covariance is below that
edge could be noise alone; what is above is shortened by what the noise adds to it (Benaych-Georges
and Nadakuditi, Advances in Mathematics 2011).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array


def edge(size: Array | int, noise: Array | float) -> Array:
    """Returns the largest eigenvalue of a symmetric matrix of noise.

    Args:
        size: k, rows of the matrix.
        noise: Standard deviation of an entry off the diagonal.
    """
    return 2 * jnp.sqrt(jnp.asarray(size, jnp.float32)) * noise


def shrink(matrix: Array, below: Array) -> Array:
    """Returns a noisy symmetric matrix without the eigenvalues that noise alone could make.

    Args:
        matrix: float32 [k, k].
        below: The edge of the noise; eigenvalues w become sign(w) sqrt(w^2 - edge^2), or 0.
    """
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    kept = jnp.sign(values) * jnp.sqrt(jnp.maximum(values**2 - below**2, 0))
    return (vectors * kept) @ vectors.T


def positive(matrix: Array) -> Array:
    """Returns the nearest positive semi-definite matrix.

    Args:
        matrix: float32 [k, k].
    """
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.maximum(values, 0)) @ vectors.T


def root(matrix: Array) -> Array:
    """Returns R with R R^T the nearest positive semi-definite matrix.

    Args:
        matrix: float32 [k, k].
    """
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))


def towards_zero(vectors: Array, noise: Array, size: Array | int) -> Array:
    """Returns noisy vectors, each shortened by the length that noise alone has.

    Source: James and Stein, "Estimation with Quadratic Loss" (1961), with the positive part.

    Args:
        vectors: float32 [..., k].
        noise: float32 [...], standard deviation of an entry.
        size: Entries that are no padding.
    """
    squares = jnp.sum(vectors**2, -1)
    share = 1 - jnp.maximum(size - 2.0, 1.0) * noise**2 / jnp.maximum(squares, 1e-30)
    return vectors * jnp.maximum(share, 0)[..., None]


def quantiles(shares: Array, levels: int) -> Array:
    """Returns where a noisy histogram of [0, 1] has its quantiles.

    The cumulative sum of noisy shares is made to rise, which costs less than to cut each share at
    0. The mass of the first bin lies at 0 and that of the last at 1: background and full ink.

    Args:
        shares: float32 [T], noisy.
        levels: Q quantiles, at (i + 1/2) / Q.

    Returns:
        float32 [Q], rising.
    """
    bins = len(shares)
    total = jnp.clip(jax.lax.cummax(jnp.cumsum(shares)), 0, 1)
    total = jnp.concatenate([jnp.zeros(1), total.at[-1].set(1.0)])
    at = jnp.arange(bins + 1) / bins
    levels_at = (jnp.arange(levels) + 0.5) / levels
    inner = jnp.interp(levels_at, total + 1e-6 * jnp.arange(bins + 1), at)
    inner = jnp.where(levels_at <= total[1], 0.0, inner)
    return jnp.where(levels_at > total[-2], 1.0, inner)


def kmeans(key: Array, points: Array, count: int, rounds: int = 20) -> Array:
    """Returns the centres of k-means with Lloyd's iterations, started by k-means++.

    Source: Arthur and Vassilvitskii, "k-means++" (SODA 2007).

    Args:
        key: Random key.
        points: float32 [n, k], public.
        count: Centres.
        rounds: Iterations.

    Returns:
        float32 [count, k].
    """
    def seed(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        centres, nearest = carry
        chosen = jax.random.categorical(jax.random.fold_in(key, i), jnp.log(nearest + 1e-30))
        centres = centres.at[i].set(points[chosen])
        return centres, jnp.minimum(nearest, jnp.sum((points - points[chosen])**2, 1))

    def lloyd(_: Array, centres: Array) -> Array:
        of_cell = jax.nn.one_hot(nearest_centre(points, centres), count)
        sums, sizes = of_cell.T @ points, of_cell.sum(0)[:, None]
        return jnp.where(sizes > 0, sums / jnp.maximum(sizes, 1), centres)

    start = jnp.zeros((count, points.shape[1])), jnp.ones(len(points))
    centres = jax.lax.fori_loop(0, count, seed, start)[0]
    return jax.lax.fori_loop(0, rounds, lloyd, centres)


def nearest_centre(points: Array, centres: Array) -> Array:
    """Returns int [n], the centre [count, k] that is nearest to each point [n, k]."""
    return jnp.argmin(jnp.sum(centres**2, 1) - 2 * points @ centres.T, 1)
