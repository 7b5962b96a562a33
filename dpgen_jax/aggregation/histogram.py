"""Votes for bins: the gradient discretisation of G-PATE (Long et al. 2021), Algorithm 2."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import chex
import jax.numpy as jnp

from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class OneHot:
    """The bound of G-PATE: each coordinate of a message becomes one vote for one of the bins.

    Attributes:
        bins: Bins of equal width between -clip and clip; entries outside fall into the outer two.
        columns: k, the coordinates of a row (after the projection).
        rows: B.
        clip: The end of the range of the bins, in units of the message.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: a unit
        casts at most one vote on each of the rows x columns histograms. When a record is replaced,
        and with it all that its unit answers, each histogram loses one vote and gains one:
        ||project(v) - project(v')||^2 <= 2 rows columns, and some pair attains it. The largest
        count of a histogram moves by at most 1.

    Source:
        G-PATE (Long et al. 2021, arXiv 1906.09338), Algorithm 2 and Lemma 2.

    Raises:
        UserError: A field is outside its range.
    """

    bins: int
    columns: int
    rows: int
    clip: float

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        for name, least in (("bins", 2), ("columns", 1), ("rows", 1)):
            value = operator.index(getattr(self, name))
            object.__setattr__(self, name, value)
            if value < least:
                raise UserError(f"{name} is {value}; at least {least} needed")
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0, the range "
                            "that the bins divide")

    def project(self, key: Array, message: Array) -> Array:
        """Turns the message of one unit into votes.

        Args:
            key: Random key, not used.
            message: float32 [B, k].

        Returns:
            Votes int32 [B, k bins] in {0, 1}.
        """
        del key
        assert_message(message, self.columns)
        # Bins first: loops run along the many histograms, and not along the few bins of each.
        votes = bin_votes(message.ravel(), self.clip, self.bins).T
        # The proof is in integers: of a histogram that got more than one vote, none is counted.
        votes = enforce(votes, lambda bins: jnp.sum(bins * bins, 0, keepdims=True) <= 1)
        return votes.T.reshape(message.shape[0], -1)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of a message: one vote on each histogram."""
        return self.rows * self.columns

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity: one vote less and one more in every histogram."""
        return 2 * self.squared_norm

    @property
    def midpoints(self) -> Array:
        """float32 [bins]: the value that a bin stands for, in units of the message."""
        return self.clip * ((2 * jnp.arange(self.bins) + 1) / self.bins - 1)


def bin_votes(message: Array, clip: float, bins: int) -> Array:
    """Votes for the bins of real numbers.

    The bin of u is floor((u / clip + 1) bins / 2), at least 0 and at most bins - 1; with an even
    number of bins, zero falls into bin bins / 2. NaN casts no vote; infinities are clipped.

    Args:
        message: float32 [...].
        clip: The end of the range of the bins.
        bins: The number of bins.

    Returns:
        One-hot votes int32 [..., bins].
    """
    chex.assert_type(message, jnp.float32)
    place = jnp.floor((jnp.clip(message / clip, -1, 1) + 1) * (bins / 2))
    # NaN compares unequal to every bin: its row of the one-hot stays empty.
    place = jnp.minimum(place, bins - 1)
    return (place[..., None] == jnp.arange(bins)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class HistogramMean:
    """A decoder: the mean of each noisy histogram.

    The whole histogram is released at the price of its arg max under data-independent accounting
    (the same Gaussian release, less of it thrown away). It is divided by the public number of
    units, not by the noisy total, which could be anywhere near 0.

    Attributes:
        bound: The votes that the counts are of.
    """

    bound: OneHot

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy counts.

        Args:
            noised: Noisy counts int32 [B, k bins].
            n_units: The public number of units.

        Returns:
            float32 [B, k], in units of the message.
        """
        chex.assert_shape(noised, (None, self.bound.columns * self.bound.bins))
        chex.assert_type(noised, jnp.int32)
        counts = noised.reshape(noised.shape[0], self.bound.columns, self.bound.bins)
        return counts.astype(jnp.float32) @ self.bound.midpoints / n_units
