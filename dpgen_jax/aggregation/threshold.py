"""Decoders: what is made of the noisy integer sum. Post-processing, so they cost no privacy.

A decoder is called with the noisy sum int32 [B, D] and the public number of units.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import jax.numpy as jnp

from dpgen_jax.types import Array, UserError


def threshold_decode(noised: Array, n_units: int, beta: float) -> Array:
    """Phase III of Algorithm 3 of DataLens (arXiv 2103.11109): float32 [B, D] in {-1, 0, 1}.

    1 where the noisy votes int32 [B, D] are at least beta n_units, -1 where they are at most
    -beta n_units, else 0. Compared in integers, with beta as the decimal that it prints as:
    0.07 of 100 is 7, not the next float above it.
    """
    votes = math.ceil(Fraction(repr(float(beta))) * n_units)
    return (noised >= votes).astype(jnp.float32) - (noised <= -votes)


def mean_decode(noised: Array, n_units: int) -> Array:
    """The noisy votes as they are, over the number of units: float32 [B, D].

    The mean vote lies in [-1, 1], with the noise it may not: nothing is clipped, so the mean of the
    result is that of the votes.
    """
    return noised.astype(jnp.float32) / n_units


@dataclasses.dataclass(frozen=True)
class Threshold:
    """`threshold_decode` at a share beta of the units, 0 < beta <= 1. Raises UserError outside."""

    beta: float

    def __post_init__(self):
        if not 0 < self.beta <= 1:
            raise UserError(f"threshold is {self.beta}; it must be above 0 and at most 1")

    def __call__(self, noised: Array, n_units: int) -> Array:
        return threshold_decode(noised, n_units, self.beta)


@dataclasses.dataclass(frozen=True)
class Mean:
    """`mean_decode`."""

    def __call__(self, noised: Array, n_units: int) -> Array:
        return mean_decode(noised, n_units)
