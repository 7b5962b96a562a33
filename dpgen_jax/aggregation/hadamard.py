"""The randomised Hadamard transform: rotates gradients before they are rounded to few levels.

x -> H S x, with S random signs and H the orthonormal Hadamard matrix: whatever x is, its length is
spread over all coordinates like that of a normal vector (Suresh et al., ICML 2017), so no entry
needs a wide range. D2P-Fed (Wang, Jia and Song 2020, arXiv 2006.13039) does so. The signs come from
a public key and depend on nothing private: rotating costs no privacy, and what is released may be
rotated back by anyone (post-processing). Rows are padded with zeros to a power of two, which is
public.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array


def width(columns: int) -> int:
    """Returns the number of coordinates of a rotated row: the next power of two.

    Args:
        columns: D.
    """
    return 1 << (columns - 1).bit_length()


def signs(key: Array, rows: int, columns: int) -> Array:
    """Draws the signs S, for each row its own.

    Args:
        key: Public random key.
        rows: B.
        columns: D.

    Returns:
        float32 [B, width(D)] of -1 and 1.
    """
    return jax.random.rademacher(key, (rows, width(columns)), jnp.float32)


def rotate(signs: Array, x: Array) -> Array:
    """Returns H S x.

    Args:
        signs: float32 [B, width(D)].
        x: float32 [..., B, D].

    Returns:
        float32 [..., B, width(D)].
    """
    chex.assert_rank(signs, 2)
    chex.assert_axis_dimension(signs, -1, width(x.shape[-1]))
    # Zeros keep the length of a row, on which the clip and the sensitivity depend.
    padding = [(0, 0)] * (x.ndim - 1) + [(0, signs.shape[-1] - x.shape[-1])]
    return transform(signs * jnp.pad(x, padding))


def unrotate(signs: Array, rotated: Array, columns: int) -> Array:
    """Returns the inverse of `rotate`, S H.

    Args:
        signs: float32 [B, width(D)].
        rotated: float32 [..., B, width(D)].
        columns: D.

    Returns:
        float32 [..., B, D].
    """
    chex.assert_axis_dimension(rotated, -1, width(columns))
    return (signs * transform(rotated))[..., :columns]


def transform(x: Array) -> Array:
    """Returns H x: orthonormal, symmetric, its own inverse.

    Args:
        x: float32 [..., n], n a power of two.

    Returns:
        float32 [..., n].
    """
    chex.assert_type(x, jnp.float32)
    n = x.shape[-1]
    spread = x
    # Sums and differences of neighbours; writing them in two halves rotates the bits of the index
    # by one, so that after log2(n) passes every bit has had its turn and is back in place.
    for _ in range(n.bit_length() - 1):
        first, second = spread[..., ::2], spread[..., 1::2]
        spread = jnp.concatenate([first + second, first - second], -1)
    return spread / jnp.sqrt(jnp.float32(n))
