"""Oriented gradients of images: how much of an edge in each direction lies where.

Source: Dalal and Triggs, "Histograms of Oriented Gradients for Human Detection" (CVPR 2005). In
them a linear classifier tells digits and garments apart nearly as well as a network does.
Everything here is a function of the schema alone.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, ImageSpec

DIRECTIONS = 6
PLACES = 7
"""Places a side, at most."""
BRIGHTNESS = 0.25
"""The factor of brightness beside that of edges."""


def n_features(spec: ImageSpec) -> int:
    """Returns F, the features of an image.

    Args:
        spec: The schema of the images.
    """
    return _places(spec.height) * _places(spec.width) * (DIRECTIONS + spec.channels)


def oriented(images: Array) -> Array:
    """Returns for each place the strength of edges by direction, and the brightness.

    Args:
        images: float32 [N, H, W, ch].

    Returns:
        float32 [N, F], not negative.
    """
    n, height, width, _ = images.shape
    grey = jnp.pad(images.mean(-1), ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = (grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]) / 2
    down = (grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]) / 2
    angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
    along = jnp.maximum(across[..., None] * np.cos(angles) + down[..., None] * np.sin(angles), 0)
    strength = jnp.sqrt(across**2 + down**2)[..., None]
    planes = jnp.concatenate([along**2 / (strength + 1e-3), BRIGHTNESS * images], -1)
    return jnp.einsum("nhwc,gh,kw->ngkc", planes, _windows(height), _windows(width)).reshape(n, -1)


def _places(size: int) -> int:
    """The places along a side."""
    return max(1, min(PLACES, size // 2))


def _windows(size: int) -> np.ndarray:
    """Triangles around the middles of places, each as wide as two of them: [places, size]."""
    wide = size / _places(size)
    middles = (np.arange(_places(size)) + 0.5) * wide - 0.5
    return np.maximum(1 - np.abs(np.arange(size) - middles[:, None]) / wide, 0)
