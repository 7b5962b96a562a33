"""Shapes that a class may have in a column of numbers: its ranks follow a beta distribution.

Ranks are those of all records, so that the class as a whole lies evenly over them. A class that
keeps to one end of a column, as frauds do, piles up in the first or the last bin. Where noise hides
it in every single column, it is found by what the columns have in common: how often each shape is
met. Shapes are few, their masses in bins follow from the masses of all records, and what
they explain is compared with what a smooth ratio explains (`table_prior`).

Source: mixtures over a grid with fitted weights, Kiefer and Wolfowitz (1956) as computed by Koenker
and Mizera, "Convex optimization, shape constraints, compound decisions, and empirical Bayes rules"
(JASA 2014).
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array

POWERS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.6, 2.7, 5.0, 10.0)
"""The two parameters of the beta distributions, each with each: 1 and 1 is like all records."""
ENDS, CELLS = 12.0, 480
"""The log odds of ranks between which distributions are tabulated, and in how many cells."""


@functools.cache
def cumulative() -> np.ndarray:
    """Returns the distributions at the log odds of ranks: float32 [K, CELLS + 1], from 0 to 1."""
    odds = np.linspace(-10 * ENDS, 10 * ENDS, 10 * CELLS + 1)
    low, high = (a.reshape(-1, 1) for a in np.meshgrid(POWERS, POWERS))
    density = np.exp(-low * np.logaddexp(0, -odds) - high * np.logaddexp(0, odds))
    middle = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, 1)
    below = np.pad(middle / middle[:, -1:], ((0, 0), (1, 0)))
    inside = slice(9 * CELLS // 2, 11 * CELLS // 2 + 1)
    return below[:, inside].astype(np.float32)


def deviations(total: Array, is_number: Array) -> Array:
    """Returns what a class of each shape has in a bin beyond what it has if it is like all.

    Args:
        total: [d, B], masses of the bins of all records.
        is_number: bool [d, B], whether a bin is a part of a range. Of others a class has its share.

    Returns:
        [K, d, B], in parts of the class.
    """
    mass = total * is_number
    whole = mass.sum(1, keepdims=True)
    rank = jnp.cumsum(mass, 1) / jnp.maximum(whole, 1e-9)
    odds = jnp.log(jnp.maximum(rank, 1e-9)) - jnp.log(jnp.maximum(1 - rank, 1e-9))
    place = (jnp.clip(odds, -ENDS, ENDS) + ENDS) * (CELLS / (2 * ENDS))
    first = jnp.clip(place.astype(jnp.int32), 0, CELLS - 1)
    table = jnp.asarray(cumulative())
    below = table[:, first] + (place - first) * (table[:, first + 1] - table[:, first])
    below = jnp.where(rank <= 0, 0, jnp.where(rank >= 1 - 1e-6, 1, below))
    shaped = jnp.diff(below, axis=2, prepend=0) * whole
    return jnp.where(is_number, shaped - total, 0)
