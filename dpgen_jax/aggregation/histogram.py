"""Votes for bins: the gradient discretisation of G-PATE (Long et al. 2021), Algorithm 2."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import jax.numpy as jnp

from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class OneHot:
    """The bound of G-PATE: each coordinate of a message becomes one vote for one of the bins.

    bins: of equal width between -clip and clip, entries outside fall into the outer two;
    columns: coordinates of a row (k after the projection); rows: B.

    Guarantee: a unit casts at most one vote on each of the rows x columns histograms. When a record
    is replaced, and with it all that its unit answers, each histogram loses one vote and gains one:
    ||project(v) - project(v')||^2 <= 2 rows columns, and some pair attains it. The largest count of
    a histogram moves by at most 1. Unit: a record, through the message of its unit; replace-one.
    Source: Algorithm 2 and Lemma 2. Raises UserError for values outside their range.
    """

    bins: int
    columns: int
    rows: int
    clip: float

    unit: ClassVar[str] = "record"
    relation: ClassVar[str] = "replace-one"
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self):
        for name, least in (("bins", 2), ("columns", 1), ("rows", 1)):
            value = operator.index(getattr(self, name))
            object.__setattr__(self, name, value)
            if value < least:
                raise UserError(f"{name} is {value}; at least {least} needed")
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0, the range "
                            "that the bins divide")

    def project(self, key: Array, message: Array) -> Array:
        """Votes int32 [B, k bins] of a message float32 [B, k]; no randomness."""
        del key
        votes = bin_votes(message, self.clip, self.bins)
        # The proof is in integers: of a histogram that got more than one vote, none is counted.
        votes = enforce(votes, lambda bins: jnp.sum(bins * bins, -1, keepdims=True) <= 1)
        return votes.reshape(message.shape[0], -1)

    def squared_sensitivity(self) -> int:
        """Of the whole message, replace-one: one vote less and one more in every histogram."""
        return 2 * self.rows * self.columns

    @property
    def midpoints(self) -> Array:
        """float32 [bins]: the value that a bin stands for."""
        return self.clip * ((2 * jnp.arange(self.bins) + 1) / self.bins - 1)


def bin_votes(message: Array, clip: float, bins: int) -> Array:
    """One-hot votes int32 [..., bins] of message float32 [...].

    The bin of u is floor((u / clip + 1) bins / 2), at least 0 and at most bins - 1; with an even
    number of bins, zero falls into bin bins / 2. NaN casts no vote; infinities are clipped.
    """
    place = jnp.floor((jnp.clip(message / clip, -1, 1) + 1) * (bins / 2))
    # NaN compares unequal to every bin: its row of the one-hot stays empty.
    place = jnp.minimum(place, bins - 1)
    return (place[..., None] == jnp.arange(bins)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class HistogramMean:
    """Decoder: the mean of each noisy histogram, float32 [B, k] from its counts int32 [B, k bins].

    The whole histogram is released at the price of its arg max under data-independent accounting
    (the same Gaussian release, less of it thrown away). Divided by the public number of units, not
    by the noisy total, which could be anywhere near 0.
    """

    bound: OneHot

    def __call__(self, noised: Array, n_units: int) -> Array:
        counts = noised.reshape(noised.shape[0], self.bound.columns, self.bound.bins)
        return counts.astype(jnp.float32) @ self.bound.midpoints / n_units
