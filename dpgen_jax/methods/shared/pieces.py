"""Noisy histograms of numbers as steps: neighbouring cells are alike where noise hides more.

Of a range with generous bounds most cells are empty, and the positive noise of hundreds of them
adds up, far from where any record is. So the cells are cut into dyadic pieces of
one height each, as many as pay: the cut is the one of least squares with a price for each piece,
found exactly from the smallest pieces up.

Source: dyadic CART, Donoho, "CART and best-ortho-basis: a connection" (Annals of Statistics 1997).
"""

from __future__ import annotations

import jax.numpy as jnp

from dpgen_jax.core.types import Array

PRICE = 4.0
"""The price of a piece, in variances of the noise of a cell: what a cut must explain to be made."""


def of_steps(noisy: Array, is_range: Array, noise: float) -> Array:
    """Returns noisy masses with the cells of a range in pieces of one height; others as they are.

    Args:
        noisy: float32 [d, W], noisy masses of cells.
        is_range: bool [d, W], the cells of ranges, which stand first in their column.
        noise: standard deviation of the noise of a cell.
    """
    width = noisy.shape[1]
    behind = ((0, 0), (0, (1 << (width - 1).bit_length()) - width))
    cells = jnp.pad(is_range.astype(jnp.float32), behind)
    total = jnp.pad(jnp.where(is_range, noisy, 0), behind)
    price = PRICE * noise**2

    def explained(total: Array, cells: Array) -> Array:
        return jnp.where(cells > 0, total**2 / jnp.maximum(cells, 1) - price, 0)

    best, height = explained(total, cells), total[..., None]
    while total.shape[1] > 1:
        total, cells, apart = (a.reshape(len(a), -1, 2).sum(2) for a in (total, cells, best))
        whole = explained(total, cells)
        mean = (total / jnp.maximum(cells, 1))[..., None]
        height = jnp.where((whole >= apart)[..., None], mean, height.reshape(*total.shape, -1))
        best = jnp.maximum(whole, apart)
    return jnp.where(is_range, height[:, 0, :width], noisy)
