"""Images of a mixture of Gaussians: its map of shades, and samples. All is public."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, ImageSpec, PyTree
from dpgen_jax.methods.shared.gaussians import Public, Sizes
from dpgen_jax.nets.frequencies import restored
from dpgen_jax.nets.noisy_moments import quantiles
from dpgen_jax.nets.warp import ENTRIES, affine

KNOTS = 512
"""Quantiles by which shades are set."""


def toned(s: Sizes, key: Array, public: Public, parts: tuple[Array, Array, Array],
          spec: ImageSpec, shade_noise: float) -> PyTree:
    """Returns the model: the mixture of frequencies, and the map of shades.

    Intensities of sampled images get the released histogram: `raw` are quantiles of what is sampled
    and `shade` of what was released. A histogram that is mostly noise is left out.

    Args:
        s: The sizes.
        key: Random key of the draw that `raw` is read off.
        public: After the last round.
        parts: As `mixture` returns them.
        spec: The schema of the images.
        shade_noise: Standard deviation of the noise of a sum of shares.
    """
    means, roots, weight = parts
    model = {"centre": s.norm * public.centre, "basis": s.norm * public.basis, "mean": means,
             "root": roots, "weight": weight, "share": public.size}
    k_labels, k_draw = jax.random.split(key)
    n = int(np.clip(10**6 // math.prod(spec.shape), 100, 1500))
    labels = jax.random.choice(k_labels, s.classes, (n,), p=public.size)
    ranked = jnp.sort(unshaded(s, model, k_draw, labels, spec).reshape(-1))
    at = ((np.arange(KNOTS) + 0.5) / KNOTS * ranked.shape[0]).astype(np.int32)
    raw = ranked[at]
    known = shade_noise * math.sqrt(s.shades) < 0.15 * s.records
    shade = quantiles(public.shades, KNOTS) if known else jnp.clip(raw, 0, 1)
    return model | {"raw": raw, "shade": shade}


def unshaded(s: Sizes, model: PyTree, key: Array, labels: Array, spec: ImageSpec) -> Array:
    """Draws images [N, H, W, ch] of the mixture, before their shades are set."""
    return s.grey + restored(low(model, key, labels), spec, s.frequencies)


def low(model: PyTree, key: Array, labels: Array) -> Array:
    """Draws the frequencies [N, M] of images."""
    k_cell, k_place = jax.random.split(key)
    cell = jax.random.categorical(k_cell, jnp.log(model["weight"][labels]))
    normal = jax.random.normal(k_place, (len(labels), model["basis"].shape[1]))
    place = model["mean"][labels, cell] + jnp.einsum("nij,nj->ni", model["root"][labels, cell],
                                                     normal)
    return model["centre"] + place @ model["basis"].T


def sample(s: Sizes, model: PyTree, key: Array, labels: Array, spec: ImageSpec, warp: float
           ) -> Array:
    """Draws images.

    Args:
        s: The sizes.
        model: As `toned` returns it.
        key: Random key.
        labels: int32 [N].
        spec: The schema of the images.
        warp: As in `mixture.Config`.

    Returns:
        float32 [N, H, W, ch] in [0, 1].
    """
    k_draw, k_warp = jax.random.split(key)
    images = jnp.interp(unshaded(s, model, k_draw, labels, spec), model["raw"], model["shade"])
    if warp:
        entries = jax.random.uniform(k_warp, (len(labels), ENTRIES), minval=-warp, maxval=warp)
        images = affine(images, entries, "nearest" if s.grey else "constant")
    return jnp.clip(images, 0, 1)
