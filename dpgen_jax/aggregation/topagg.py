"""TopAgg of DataLens (Wang et al. 2021, arXiv 2103.11109): top-k sign votes and thresholds.

Each row of a unit's message becomes at most k votes of +1 or -1, at its largest magnitudes
(Algorithm 2). `norm_topk` and `dimension_topk` first keep the largest entries of a gradient up to a
share of its squared norm, or of its length (Algorithm 4 and Appendix A.2).

A decoder converts the noisy integer sum, int32 [B, D], and the public number of answering units to
the value that a method learns from. It is post-processing, so it costs no privacy.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
from jax import lax

from dpgen_jax.aggregation.bound import assert_message, enforce, require_whole
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


def votes_needed(n_units: float, beta: float) -> int:
    """Returns the smallest number of votes that is a share beta of the units.

    Args:
        beta: Share of the units, 0 < beta <= 1, taken as its printed decimal.
    """
    return math.ceil(Fraction(repr(float(beta))) * n_units)


@dataclasses.dataclass(frozen=True)
class Threshold:
    """A decoder: signs where many units agree, else 0.

    Votes are compared as integers: 0.07 of 100 is 7, not the next float above it.

    Attributes:
        beta: Share of the units, 0 < beta <= 1, taken as its printed decimal.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 3, phase III.

    Raises:
        UserError: Beta is outside its range.
    """

    beta: float

    def __post_init__(self) -> None:
        if not 0 < self.beta <= 1:
            raise UserError(f"threshold is {self.beta}; it must be above 0 and at most 1")

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy votes int32 [B, D].

        Returns:
            float32 [B, D]: 1 where the votes are at least beta n_units, -1 where they are at most
            -beta n_units, else 0.
        """
        chex.assert_type(noised, jnp.int32)
        votes = votes_needed(n_units, self.beta)
        return (noised >= votes).astype(jnp.float32) - (noised <= -votes)


@dataclasses.dataclass(frozen=True)
class Mean:
    """A decoder: the noisy mean vote.

    Without noise the mean vote is in [-1, 1]. The noisy one is not clipped, so its expectation is
    the mean vote.
    """

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy votes int32 [B, D]: float32 [B, D]."""
        chex.assert_type(noised, jnp.int32)
        return noised.astype(jnp.float32) / n_units


INFINITY = 0x7F800000
"""The bits of |inf| as float32; those of NaN are larger."""
SMALLEST_NORMAL = 0x00800000
"""The bits of the smallest normal float32, 2^-126."""
RESOLUTION = 1 << 23
"""The number of random levels of a vote."""


@dataclasses.dataclass(frozen=True)
class TopKSign:
    """The bound of DataLens: each row of a message becomes at most k votes of +1 or -1.

    Attributes:
        top_k: k, the votes of a unit on one row (all entries if the row is shorter).
        rows: B.
        clip: Entries are clipped to [-clip, clip] before they are scaled; inf for no clipping.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: for two
        messages of one unit, whatever they are and whatever the keys, ||project(v) -
        project(v')||^2 <= 4 top_k rows, and some pair attains it. So the sum over units has L2
        sensitivity 2 sqrt(top_k rows) when a record, and with it its unit's whole answer, is
        replaced.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 2 and Lemma 1.

    Raises:
        UserError: A field is outside its range.
    """

    top_k: int
    rows: int
    clip: float = math.inf

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require_whole(self, top_k=1, rows=1)
        if not self.clip >= float(jnp.finfo(jnp.float32).tiny):
            raise UserError(f"clip is {self.clip}; it must be a normal float32 above 0, or inf")

    def project(self, key: Array, message: Array) -> Array:
        """Converts the message of one unit to votes.

        Args:
            key: Random key for the signs; privacy does not depend on it.
            message: float32 [B, D].

        Returns:
            Votes int32 [B, D] in {-1, 0, 1}, at most k in a row.
        """
        assert_message(message)
        votes = topk_sign(key, message, self.top_k, self.clip)
        # The proof is in integers: whatever the order of the floats, no row casts more than k
        # votes.
        return enforce(votes, lambda rows: jnp.sum(rows * rows, -1, keepdims=True) <= self.top_k)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of a message with all its votes."""
        return self.top_k * self.rows

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: every vote may change sign, (1 + 1)^2.

        Two disjoint sets of votes differ by 2 k only: opposite votes are the worst case.
        """
        return 4 * self.squared_norm


def topk_sign(key: Array, message: Array, top_k: int, clip: float = math.inf) -> Array:
    """Votes with the k largest magnitudes of each row: Algorithm 2.

    With g the clipped entry over the largest clipped magnitude of its row, the vote is +1 with
    probability (1 + g) / 2, else -1, so its mean is g (to 2^-23). Ties go to the lowest index.
    Zeros abstain, so a row may cast fewer than top_k votes, never more. Subnormal numbers are
    zeros. A row with a NaN or an infinity casts no vote: its unit has diverged, so its other
    entries are not used either.

    Args:
        key: Random key for the signs.
        message: float32 [..., D].
        clip: Bound on the magnitude of an entry, in units of the message.

    Returns:
        Votes int32 [..., D] in {-1, 0, 1}.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Squared L2
        sensitivity: 4 top_k for each row.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 2 and Lemma 1.
    """
    chex.assert_type(message, jnp.float32)
    order = magnitude_bits(message)
    largest = jnp.max(order, -1, keepdims=True)
    voting = select_top_k(order, top_k) & (largest < INFINITY)
    scale = jnp.minimum(lax.bitcast_convert_type(largest, jnp.float32), clip)
    # XLA may multiply by a reciprocal instead, and that of a number above 2^126 is flushed to 0.
    shrink = jnp.where(scale > 1, 2.0**-64, 1.0)
    divisor = jnp.where(scale > 0, scale * shrink, 1)
    ratio = jnp.minimum(jnp.abs(message), clip) * shrink / divisor
    # The vote agrees with the entry's sign with probability (1 + ratio) / 2, in 24 random bits:
    # both sides are integers below 2^24 + 1, exact in float32, and a ratio of 1 always agrees.
    uniform = (jax.random.bits(key, message.shape) >> 8).astype(jnp.float32)
    agrees = uniform < RESOLUTION * (1 + ratio)
    return jnp.where(voting, jnp.where(agrees == (message > 0), 1, -1), 0).astype(jnp.int32)


def magnitude_bits(message: Array) -> Array:
    """Returns the bits of the magnitudes, which have the same order as the magnitudes.

    Some backends flush subnormal numbers to zero in comparisons and divisions and some do not. On
    bits, with subnormal numbers defined as zero, all backends select the same entries.

    Args:
        message: float32 [..., D].

    Returns:
        int32 [..., D] >= 0; 0 for subnormal numbers.
    """
    chex.assert_type(message, jnp.float32)
    # Without its sign bit, a float32 is ordered as the integer of the same bits.
    bits = lax.bitcast_convert_type(message, jnp.int32) & 0x7FFFFFFF
    return jnp.where(bits < SMALLEST_NORMAL, 0, bits)


def select_top_k(order: Array, k: int) -> Array:
    """Selects the k largest entries of each row, ties to the lowest index: bool [..., D].

    Zeros are never selected: in a row with fewer than k positive entries, all of these are. It
    bisects on the bits of the k-th largest: 31 passes that vectorise, which sorting does not.

    Args:
        order: int32 [..., D] >= 0.
    """
    chex.assert_type(order, jnp.int32)
    columns = order.shape[-1]
    index = jnp.arange(columns, dtype=jnp.int32)

    def count(selected: Array) -> Array:
        return jnp.sum(selected, -1, dtype=jnp.int32)

    # The highest bit first: a bit stays if k entries are at least as large with it.
    def next_bit(i: Array, kth: Array) -> Array:
        candidate = kth | (1 << (30 - i))
        return jnp.where(count(order >= candidate[..., None]) >= k, candidate, kth)

    kth = lax.fori_loop(0, 31, next_bit, jnp.zeros(order.shape[:-1], jnp.int32))
    kth = jnp.maximum(kth, 1)[..., None]
    above, ties = order > kth, order == kth
    free = k - count(above)

    # The first index up to which there are `free` ties, by bisection again: only `ties` would let
    # all of them vote. The loop is not entered while no row has more ties than free places.
    def unresolved(bracket: tuple[Array, Array]) -> Array:
        return jnp.any(bracket[0] < bracket[1])

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) // 2
        enough = count(ties & (index <= middle[..., None])) >= free
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    high = jnp.full_like(free, columns)
    low = jnp.where(count(ties) > free, 0, high)
    last, _ = lax.while_loop(unresolved, halve, (low, high))
    return above | (ties & (index <= last[..., None]))


LARGEST_EXPONENT = 0x7E800000
"""The exponent bits of the numbers from 2^126 on."""


def norm_topk(message: Array, kappa: float) -> Array:
    """Keeps the largest entries of each row while their squares are at most kappa of the total.

    The others become 0. Ties go to the lowest index. Entries are taken in the order of their
    magnitudes up to the first that does not fit, so nothing is kept of a row whose largest entry
    exceeds that share; kappa = 1 keeps all. A row with a NaN or an infinity is unchanged: the bound
    drops it.

    This gives no guarantee: squares are added in float32, accurate to about 1e-6. The next bound
    enforces sqrt(kappa) of the clip in integers.

    Args:
        message: float32 [..., D].
        kappa: Share of the squared norm, in (0, 1].

    Returns:
        float32 [..., D].

    Source:
        DataLens (arXiv 2103.11109), Algorithm 4 and Appendix A.2.
    """
    chex.assert_type(message, jnp.float32)
    largest = jnp.max(jnp.abs(message), -1, keepdims=True)
    size = jnp.abs(message * _shrink(largest))
    size = jnp.where(size < jnp.finfo(jnp.float32).tiny, 0, size)  # the same on all backends

    def squares(kept: Array | bool) -> Array:
        return jnp.sum(jnp.where(kept, size * size, 0), -1, keepdims=True)

    target = kappa * squares(True)

    def next_bit(i: Array, bits: Array) -> Array:
        candidate = bits | (1 << (30 - i))
        return jnp.where(squares(size >= _float(candidate)) > target, candidate, bits)

    # The first size that does not fit, by bisection on its bits: a sort costs ten times as much.
    # Adding more entries never lowers a sum, in float32 either. 0: all fit.
    first = _float(lax.fori_loop(0, 31, next_bit, jnp.zeros_like(largest, jnp.int32)))
    above, ties = size > first, size == first
    free = (target - squares(above)) / jnp.where(first > 0, first * first, 1)
    kept = above | _lowest(ties, free.astype(jnp.int32))
    return jnp.where(kept | ~jnp.isfinite(largest), message, 0)


def dimension_topk(message: Array, kappa: float) -> Array:
    """Keeps the floor(kappa D) largest entries of each row, at least one; the others become 0.

    Ties go to the lowest index. The kept entries may have the norm of the whole row. A row with a
    NaN or an infinity is unchanged.

    Args:
        message: float32 [..., D].
        kappa: Share of the entries, in (0, 1].

    Returns:
        float32 [..., D].
    """
    chex.assert_type(message, jnp.float32)
    k = max(1, int(kappa * message.shape[-1] + 1e-9))
    kept = select_top_k(magnitude_bits(message), k)
    return jnp.where(kept | ~jnp.all(jnp.isfinite(message), -1, keepdims=True), message, 0)


def _float(bits: Array) -> Array:
    """Returns the float32 numbers of these bits."""
    return lax.bitcast_convert_type(bits, jnp.float32)


def _shrink(largest: Array) -> Array:
    """Returns 2^-e, with 2^e the power of two below `largest` >= 0.

    Products of entries with it are exact, and their squares neither overflow nor vanish.
    """
    exponent = lax.bitcast_convert_type(largest, jnp.int32) & INFINITY
    # The exponents of a power of two and of its inverse have a constant sum.
    return _float(LARGEST_EXPONENT + 0x00800000 - jnp.minimum(exponent, LARGEST_EXPONENT))


def _lowest(ties: Array, free: Array) -> Array:
    """Returns bool [..., D]: the first `free` [..., 1] of `ties`.

    It bisects on the last index; the loop is not entered if all fit or none.
    """
    index = jnp.arange(ties.shape[-1], dtype=jnp.int32)

    def count(kept: Array) -> Array:
        return jnp.sum(kept, -1, keepdims=True, dtype=jnp.int32)

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) // 2
        enough = count(ties & (index < middle)) >= free
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    some = (free > 0) & (free < count(ties))
    high = jnp.where(free > 0, ties.shape[-1], 0)
    last, _ = lax.while_loop(lambda bracket: jnp.any(bracket[0] < bracket[1]), halve,
                             (jnp.where(some, 0, high), high))
    return ties & (index < last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopAggMechanism(SumMechanism):
    """A `SumMechanism` of `TopKSign` votes that releases the signs of the sums and nothing else.

    Guarantee:
        That of `SumMechanism`, by the noisy sums. The data-dependent cost of the votes
        (`accountant.pate`) requires that only the signs are released, and is for the data holder
        only.

    Source:
        DataLens (arXiv 2103.11109), Algorithm 3.
    """

    bound: TopKSign
    noise: RoundedGaussian | NoNoise
    decode: Threshold

    @property
    def keeps_votes(self) -> bool:
        """True: only the signs are released, as data-dependent accounting requires."""
        return True

    @property
    def queries(self) -> int:
        """The number of sums of one round."""
        rows, columns = self.shape
        return rows * columns

    @property
    def votes_needed(self) -> int:
        """The smallest sum that becomes 1; its negative is the largest that becomes -1."""
        return votes_needed(self.n_units, self.decode.beta)
