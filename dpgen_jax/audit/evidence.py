"""Log likelihood ratios of coins, of a noisy sum to which canaries added one of two messages each.

A ratio is that of the noise that is charged, the other canaries taken at their mean. It decides how
well coins are guessed, and nothing of what guesses certify, which holds for guesses of any kind.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.aggregation.noise import Noise
from dpgen_jax.audit.lowered import gaussian
from dpgen_jax.core.types import Array

Ratio = Callable[[Array, Array, Array], Array]
"""From what is left of a sum float32 [B, D] without the others, and what a canary adds for tails
and for heads, float32 [B, D], to the ratio [] of heads."""


def of_spikes(numbers: Array, added: Array, sigma: float, rate: float) -> Array:
    """Returns the ratios [N] of canaries that have a coordinate of their own.

    Args:
        numbers: float32 [N], the sum of each one's coordinate over the B rows.
        added: float32 [2, B, D], what a canary adds for tails and for heads.
        sigma: Of the Gaussian noise.
        rate: The chance that a canary is counted.
    """
    tails, heads = added
    rows = len(tails)
    z = numbers / np.sqrt(rows) / sigma
    length = np.sqrt(rows) * jnp.sum(heads) / rows / sigma
    return _gaussian(z, length, jnp.where(jnp.any(tails != 0), -length, 0), rate)


def of_codes(noised: Array, queried: Array, added: Callable[[Array], Array], noise: Noise,
             rate: float) -> Array:
    """Returns the ratios [N] of canaries whose messages share coordinates.

    Args:
        noised: float32 [B, D], the noisy sum.
        queried: bool [N], which canaries the round queries.
        added: From the number of a canary to what it adds for tails and for heads, float32
            [2, B, D].
        noise: On the sum.
        rate: The chance that a canary is counted; 1 where the noise is Laplace.
    """
    everyone = jnp.arange(len(queried))
    ratio: Ratio = (laplace_ratio(noise) if isinstance(noise, DiscreteLaplace)
                    else gaussian_ratio(gaussian(noise).sigma, rate))

    def middle(total: Array, i: Array) -> tuple[Array, None]:
        return total + rate * queried[i] * added(i).mean(0), None

    others = lax.scan(middle, jnp.zeros_like(noised), everyone)[0]

    def one(i: Array) -> Array:
        tails, heads = added(i)
        return ratio(noised - (others - rate * queried[i] * (tails + heads) / 2), tails, heads)

    return lax.map(one, everyone)


def laplace_ratio(noise: DiscreteLaplace) -> Ratio:
    """Returns the ratio under Laplace noise: of each entry the one of its two laws."""
    return lambda left, tails, heads: jnp.sum(
        jnp.abs(left - tails) - jnp.abs(left - heads)) / noise.scale


def gaussian_ratio(sigma: float, rate: float) -> Ratio:
    """Returns the ratio under Gaussian noise, of a canary that is counted with a chance."""
    def ratio(left: Array, tails: Array, heads: Array) -> Array:
        apart = heads - tails
        direction = apart / jnp.sqrt(jnp.sum(apart * apart))
        z, a, b = (jnp.sum(x * direction) / sigma for x in (left, heads, tails))
        return _gaussian(z, a, b, rate)

    return ratio


def _gaussian(z: Array, heads: Array, tails: Array, rate: float) -> Array:
    """The ratio of a number whose mean is one of two, in standard deviations, or 0 if not drawn."""
    one, other = (jnp.log1p(rate * jnp.expm1(jnp.clip(z * s - s * s / 2, -60, 60)))
                  for s in (heads, tails))
    return one - other
