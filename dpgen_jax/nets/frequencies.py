"""Images as a few low frequencies, and back: an orthonormal cosine transform.

Source: Ahmed, Natarajan and Rao, "Discrete Cosine Transform", IEEE Trans. Computers 1974. Colours
are turned into brightness and two opponent colours first, which take fewer frequencies, as in JPEG:
eyes and classifiers alike need less of them. Everything here is a function of the schema alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, ImageSpec

COLOURS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
"""Brightness and two opponent colours: an orthonormal basis of RGB."""
COLOUR_SHARE = 3
"""Opponent colours have a third of the frequencies of the brightness, a side."""


def cosines(size: int, count: int) -> np.ndarray:
    """Returns the first vectors of the orthonormal cosine basis, DCT-II.

    Args:
        size: Pixels of a side.
        count: How many, at most `size`.

    Returns:
        float64 [count, size].
    """
    angles = np.arange(count)[:, None] * (np.arange(size) + 0.5) * np.pi / size
    basis = np.sqrt(2 / size) * np.cos(angles)
    basis[0] = np.sqrt(1 / size)
    return basis


def frequencies(images: Array, count: int) -> Array:
    """Returns the low frequencies of images: what an orthonormal basis of them has as coordinates.

    Args:
        images: float32 [..., H, W, ch].
        count: Frequencies a side, at most; of opponent colours a third of them.

    Returns:
        float32 [..., M], of brightness first.
    """
    parts = []
    for i, plane in enumerate(_mixed(jnp.unstack(images, axis=-1), _mixing(images.shape[-1]))):
        rows, columns = _sides(images.shape[-3], images.shape[-2], _count(i, count))
        low = jnp.einsum("ih,...hw,jw->...ij", rows, plane, columns)
        parts.append(low.reshape(*low.shape[:-2], -1))
    return jnp.concatenate(parts, -1)


def restored(low: Array, spec: ImageSpec, count: int) -> Array:
    """Returns the images that have these frequencies and no others.

    Args:
        low: float32 [..., M], as `frequencies` returns them.
        spec: The schema of the images.
        count: As for `frequencies`.

    Returns:
        float32 [..., H, W, ch].
    """
    planes, start = [], 0
    for i in range(spec.channels):
        rows, columns = _sides(spec.height, spec.width, _count(i, count))
        size = len(rows) * len(columns)
        plane = low[..., start:start + size].reshape(*low.shape[:-1], len(rows), len(columns))
        planes.append(jnp.einsum("ih,...ij,jw->...hw", rows, plane, columns))
        start += size
    return jnp.stack(_mixed(planes, _mixing(spec.channels).T), -1)


def n_frequencies(spec: ImageSpec, count: int) -> int:
    """Returns M of `low_frequencies`.

    Args:
        spec: The schema of the images.
        count: Frequencies a side, at most.
    """
    return sum(min(most, spec.height) * min(most, spec.width)
               for most in (_count(i, count) for i in range(spec.channels)))


def _count(plane: int, count: int) -> int:
    """Frequencies a side of a plane: brightness is the first."""
    return count if plane == 0 else max(1, count // COLOUR_SHARE)


def _mixing(channels: int) -> np.ndarray:
    """From channels to planes: float32 [ch, ch], orthonormal."""
    return (COLOURS if channels == 3 else np.eye(channels)).astype(np.float32)


def _mixed(planes: Sequence[Array], weights: np.ndarray) -> list[Array]:
    """Sums of planes, weighted by each row: a matrix product with so few columns is slow."""
    return [sum(weight * plane for weight, plane in zip(row, planes, strict=True))
            for row in weights]


def _sides(height: int, width: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The cosines of rows and of columns."""
    return (cosines(height, min(count, height)).astype(np.float32),
            cosines(width, min(count, width)).astype(np.float32))
