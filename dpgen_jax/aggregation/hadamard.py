"""The randomised Hadamard transform, by which D2P-Fed (Wang, Jia and Song 2020, arXiv 2006.13039)
rotates gradients before they are rounded to few levels.

x -> H S x, with S random signs and H the orthonormal Hadamard matrix: whatever x is, its length is
spread over all coordinates like that of a normal vector (Suresh et al., ICML 2017), so no entry
needs a wide range. The signs come from a public key and depend on nothing private: rotating costs
no privacy, and what is released may be rotated back by anyone (post-processing). Rows are padded
with zeros to a power of two, which is public.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpgen_jax.types import Array


def width(columns: int) -> int:
    """The coordinates of a rotated row: the next power of two."""
    return 1 << (columns - 1).bit_length()


def signs(key: Array, rows: int, columns: int) -> Array:
    """S float32 [rows, width(columns)] of -1 and 1, for each row its own."""
    return jax.random.rademacher(key, (rows, width(columns)), jnp.float32)


def rotate(signs: Array, x: Array) -> Array:
    """H S x: rows float32 [..., B, D] to [..., B, width(D)]."""
    padding = [(0, 0)] * (x.ndim - 1) + [(0, signs.shape[-1] - x.shape[-1])]
    return transform(signs * jnp.pad(x, padding))


def unrotate(signs: Array, rotated: Array, columns: int) -> Array:
    """The inverse, S H: [..., B, width(D)] to [..., B, D]."""
    return (signs * transform(rotated))[..., :columns]


def transform(x: Array) -> Array:
    """H x for rows float32 [..., n], n a power of two: orthonormal, symmetric, its own inverse."""
    n = x.shape[-1]
    spread = x
    for _ in range(n.bit_length() - 1):  # each pass turns the bits of the index round by one
        first, second = spread[..., ::2], spread[..., 1::2]
        spread = jnp.concatenate([first + second, first - second], -1)
    return spread / jnp.sqrt(jnp.float32(n))
