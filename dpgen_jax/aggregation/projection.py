"""Random projection of gradients: Algorithm 2 of G-PATE (Long et al. 2021, arXiv 1906.09338).

The matrices come from a public key and depend on nothing private: projecting costs no privacy, and
what is released in the projected space may be taken back by anyone (post-processing).
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array


def matrices(key: Array, rows: int, dimension: int, projected: int) -> Array:
    """Draws R^T with entries N(0, 1 / k), anew for every fake as the published code does.

    Transposed, a column of R lies in one piece: on a CPU, where teachers answer one by one, the
    products of a row with the columns are the faster for it.

    Args:
        key: Public random key.
        rows: B.
        dimension: D.
        projected: k.

    Returns:
        float32 [B, k, D].

    Source:
        G-PATE (arXiv 1906.09338), Algorithm 2, line 3.
    """
    drawn = jax.random.normal(key, (rows, dimension, projected)) / jnp.sqrt(projected)
    return jnp.swapaxes(drawn, 1, 2)


def project(matrices: Array, gradients: Array) -> Array:
    """Returns u = x R.

    Args:
        matrices: R^T float32 [B, k, D].
        gradients: float32 [B, D].

    Returns:
        float32 [B, k].

    Source:
        G-PATE (arXiv 1906.09338), Algorithm 2, line 4.
    """
    chex.assert_rank([matrices, gradients], [3, 2])
    return jnp.einsum("bkd,bd->bk", matrices, gradients)


def reconstruct(matrices: Array, released: Array) -> Array:
    """Returns x = u R^T; the transpose, not the inverse.

    Args:
        matrices: R^T float32 [B, k, D].
        released: float32 [B, k].

    Returns:
        float32 [B, D].

    Source:
        G-PATE (arXiv 1906.09338), Algorithm 2, line 11.
    """
    chex.assert_rank([matrices, released], [3, 2])
    return jnp.einsum("bk,bkd->bd", released, matrices)
