"""Random projection of gradients: Algorithm 2 of G-PATE (Long et al. 2021, arXiv 1906.09338).

The matrices come from a public key and depend on nothing private: projecting costs no privacy, and
what is released in the projected space may be taken back by anyone (post-processing).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpgen_jax.types import Array


def matrices(key: Array, rows: int, dimension: int, projected: int) -> Array:
    """R float32 [rows, dimension, projected], entries N(0, 1 / projected): line 3 of Algorithm 2,
    drawn anew for every fake (the published code does so too)."""
    return jax.random.normal(key, (rows, dimension, projected)) / jnp.sqrt(projected)


def project(matrices: Array, gradients: Array) -> Array:
    """u = x R (line 4): gradients [B, D] to [B, projected]."""
    return jnp.einsum("bd,bdk->bk", gradients, matrices)


def reconstruct(matrices: Array, released: Array) -> Array:
    """x = u R^T (line 11): [B, projected] to [B, D]; the transpose, not the inverse."""
    return jnp.einsum("bk,bdk->bd", released, matrices)
