"""The private answers of a record to the queries of a mixture of Gaussians."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec, Records
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.methods.shared.gaussians import ENERGY, Sizes
from dpgen_jax.nets.frequencies import frequencies
from dpgen_jax.nets.noisy_moments import nearest_centre


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The query of the rounds of cells: all of it was released before.

    Attributes:
        centre: float32 [M].
        basis: float32 [M, k], whose columns are principal directions, or zeros.
        centres: float32 [C, K, k], of the cells.
        scale: float32 [C, k], by which a record's distance to its cell's centre is stretched, and
            divided by the longest that counts in full.
    """

    centre: Array
    basis: Array
    centres: Array
    scale: Array


def described(s: Sizes, spec: ImageSpec, records: Records) -> Array:
    """Returns the low frequencies [M] of an image about the grey level, over `s.norm`."""
    return frequencies(values(records, spec)[0].reshape(spec.shape) - s.grey,
                       s.frequencies) / s.norm


def of_class(s: Sizes, spec: ImageSpec, key: Array, unit: Array, records: Records, query: Array
             ) -> Array:
    """Answers with the class, the image and the shares of its shades: [1, 1 + M + T]."""
    del key, unit, query
    shade = jnp.minimum(values(records, spec)[0].reshape(-1) * s.shades, s.shades - 1)
    shares = jnp.mean(shade.astype(jnp.int32)[:, None] == jnp.arange(s.shades), 0)
    return jnp.concatenate([records.y[:1].astype(jnp.float32), described(s, spec, records),
                            shares])[None]


def about_mean(s: Sizes, spec: ImageSpec, key: Array, unit: Array, records: Records, query: Array
               ) -> Array:
    """Answers with the class, the way from its mean, and the square of that: [1, 1 + M + 1]."""
    del key, unit
    label = records.y[:1]
    way = (described(s, spec, records) - query[label[0]]) * (s.norm / s.spread)
    square = ENERGY * jnp.minimum(jnp.sum(way**2), 1.0)
    return jnp.concatenate([label.astype(jnp.float32), way, square[None]])[None]


def in_cell(s: Sizes, spec: ImageSpec, key: Array, unit: Array, records: Records, query: Query
            ) -> Array:
    """Answers with the nearest cell of the class, and the way from its centre: [1, 1 + k]."""
    del key, unit
    label, z = records.y[0], (described(s, spec, records) - query.centre) @ query.basis
    centres = query.centres[label]
    cell = nearest_centre(z[None], centres)[0]
    block = (label * s.cells + cell).astype(jnp.float32)
    return jnp.concatenate([block[None], (z - centres[cell]) * query.scale[label]])[None]
