"""Decoders: from the noisy integer sum to what a method learns.

They are post-processing, so they cost no privacy. A decoder is called with the noisy sum
int32 [B, D] and the public number of units that answer.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import chex
import jax.numpy as jnp

from dpgen_jax.core.types import Array, UserError


def votes_needed(n_units: float, beta: float) -> int:
    """Returns the least votes that are a share beta of the units, beta as the decimal it prints as.

    Args:
        n_units: The public number of units that answer.
        beta: Share of the units, 0 < beta <= 1.
    """
    return math.ceil(Fraction(repr(float(beta))) * n_units)


def threshold_decode(noised: Array, n_units: float, beta: float) -> Array:
    """Turns noisy votes into signs where many units agree.

    Compared in integers, with beta as the decimal that it prints as: 0.07 of 100 is 7, not the next
    float above it.

    Args:
        noised: Noisy votes int32 [B, D].
        n_units: The public number of units that answer.
        beta: Share of the units, 0 < beta <= 1.

    Returns:
        float32 [B, D]: 1 where the votes are at least beta n_units, -1 where they are at most
        -beta n_units, else 0.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 3, phase III.
    """
    chex.assert_type(noised, jnp.int32)
    votes = votes_needed(n_units, beta)
    return (noised >= votes).astype(jnp.float32) - (noised <= -votes)


def mean_decode(noised: Array, n_units: float) -> Array:
    """Returns the noisy mean vote.

    The mean vote lies in [-1, 1], with the noise it may not: nothing is clipped, so the mean of the
    result is that of the votes.

    Args:
        noised: Noisy votes int32 [B, D].
        n_units: The public number of units that answer.

    Returns:
        float32 [B, D].
    """
    chex.assert_type(noised, jnp.int32)
    return noised.astype(jnp.float32) / n_units


@dataclasses.dataclass(frozen=True)
class Threshold:
    """The decoder `threshold_decode`.

    Attributes:
        beta: Share of the units, 0 < beta <= 1.

    Raises:
        UserError: Beta is outside its range.
    """

    beta: float

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise UserError(f"threshold is {self.beta}; it must be above 0 and at most 1")

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy votes.

        Args:
            noised: int32 [B, D].
            n_units: The public number of units that answer.

        Returns:
            float32 [B, D] in {-1, 0, 1}.
        """
        return threshold_decode(noised, n_units, self.beta)


@dataclasses.dataclass(frozen=True)
class Mean:
    """The decoder `mean_decode`."""

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy votes.

        Args:
            noised: int32 [B, D].
            n_units: The public number of units that answer.

        Returns:
            float32 [B, D].
        """
        return mean_decode(noised, n_units)
