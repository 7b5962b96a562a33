"""NormTopK: the largest entries of a gradient, up to a share of its squared norm, or of its length.

Source: Algorithm 4 and Appendix A.2 of DataLens (Wang et al. 2021, arXiv 2103.11109).
"""

from __future__ import annotations

import chex
import jax.numpy as jnp
from jax import lax

from dpgen_jax.aggregation.topk_sign import INFINITY, magnitude_bits, select_top_k
from dpgen_jax.core.types import Array

LARGEST_EXPONENT = 0x7E800000
"""The exponent bits of the numbers from 2^126 on."""


def norm_topk(message: Array, kappa: float) -> Array:
    """Keeps the largest entries of each row while their squares add up to at most kappa of all.

    The others become 0. Ties go to the lowest index. Entries are taken in the order of their
    magnitudes up to the first that does not fit, so that nothing is kept of a row whose largest
    entry alone has more than that share; kappa = 1 keeps all. A row with a NaN or an infinity stays
    as it is: whoever bounds it drops it.

    No guarantee lies here: squares are added in float32, good to about 1e-6. The bound that a
    message goes through next enforces sqrt(kappa) of the clip in integers.

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
    size = jnp.where(size < jnp.finfo(jnp.float32).tiny, 0, size)  # on all backends alike

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

    Ties go to the lowest index. The norm of what is kept may be that of the whole row. A row with a
    NaN or an infinity stays as it is.

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

    Entries times this are exact, and their squares neither overflow nor vanish.
    """
    exponent = lax.bitcast_convert_type(largest, jnp.int32) & INFINITY
    # The exponents of a power of two and of its inverse have a constant sum.
    return _float(LARGEST_EXPONENT + 0x00800000 - jnp.minimum(exponent, LARGEST_EXPONENT))


def _lowest(ties: Array, free: Array) -> Array:
    """Returns bool [..., D]: the first `free` [..., 1] of `ties`.

    By bisection on the index up to which they lie; the loop is not entered where all fit or none.
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
