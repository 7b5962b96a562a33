"""Top-k stochastic sign votes: Algorithm 2 of DataLens (Wang et al. 2021, arXiv 2103.11109)."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
from jax import lax

from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError

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
        clip: Entries are clipped to [-clip, clip] before they are scaled; inf: they are not
            clipped.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: for two
        messages of one unit, whatever they are and whatever the keys, ||project(v) -
        project(v')||^2 <= 4 top_k rows, and some pair attains it. So the sum over units has L2
        sensitivity 2 sqrt(top_k rows) when a record, and with it all that its unit answers, is
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
        for name in ("top_k", "rows"):
            value = operator.index(getattr(self, name))
            object.__setattr__(self, name, value)
            if value < 1:
                raise UserError(f"{name} is {value}; at least 1 is needed")
        if not self.clip >= float(jnp.finfo(jnp.float32).tiny):
            raise UserError(f"clip is {self.clip}; it must be a normal float32 above 0, or inf")

    def project(self, key: Array, message: Array) -> Array:
        """Turns the message of one unit into votes.

        Args:
            key: Random key for the signs; it protects nothing.
            message: float32 [B, D].

        Returns:
            Votes int32 [B, D] in {-1, 0, 1}, at most k in a row.
        """
        assert_message(message)
        votes = topk_sign(key, message, self.top_k, self.clip)
        # The proof is in integers: however floats were ordered, no row casts more votes than k.
        return enforce(votes, lambda rows: jnp.sum(rows * rows, -1, keepdims=True) <= self.top_k)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of a message with all its votes."""
        return self.top_k * self.rows

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: every vote may turn over, (1 + 1)^2.

        Two disjoint sets of votes differ by 2 k only: opposite votes are the worst case.
        """
        return 4 * self.squared_norm


def topk_sign(key: Array, message: Array, top_k: int, clip: float = math.inf) -> Array:
    """Votes with the k largest magnitudes of each row: Algorithm 2.

    With g the clipped entry over the largest clipped magnitude of its row, the vote is +1 with
    probability (1 + g) / 2, else -1, so its mean is g (to 2^-23). Ties go to the lowest index.
    Zeros abstain, so a row may cast fewer than top_k votes, never more. Subnormal numbers are
    zeros. A row with a NaN or an infinity casts no vote at all: its unit has diverged, and what the
    other entries are worth cannot be told.

    Args:
        key: Random key for the signs.
        message: float32 [..., D].
        top_k: k.
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
    """Returns the bits of the magnitudes, which are in the order of the magnitudes.

    Some backends flush subnormal numbers to zero in comparisons and divisions and some do not. On
    bits, with "subnormal is zero" as the definition, all of them select the same entries.

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
    """Selects the k largest entries of each row, ties to the lowest index.

    Zeros are never selected: of a row with fewer than k positive entries, those are. By bisection
    on the bits of the k-th largest, 31 passes that vectorise, where sorting does not.

    Args:
        order: int32 [..., D] >= 0.
        k: The number of entries.

    Returns:
        bool [..., D].
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

    # The first index up to which there are `free` ties, by bisection again: `ties` alone would
    # let all of them vote. The loop is not entered while no row has more ties than free places.
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
