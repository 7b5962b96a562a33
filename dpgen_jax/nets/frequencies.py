"""Linear features of images: low frequencies of a cosine transform, and oriented gradients.

The features are functions of the schema only, and not of any record.

Low frequencies. Source: Ahmed, Natarajan and Rao, "Discrete Cosine Transform", IEEE Trans.
Computers 1974. Colours are first converted to brightness and two opponent colours, which have fewer
frequencies, as in JPEG: eyes and classifiers need less of them.

Oriented gradients: the strength of edges by direction and place. Source: Dalal and Triggs,
"Histograms of Oriented Gradients for Human Detection" (CVPR 2005). On these features a linear
classifier distinguishes digits and garments nearly as well as a network does.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, ImageSpec

COLOURS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
"""Brightness and two opponent colours: an orthonormal basis of RGB."""
COLOUR_SHARE = 3
"""Opponent colours have a third of the frequencies of the brightness in each direction."""


def cosines(size: int, count: int) -> np.ndarray:
    """Returns the first vectors of the orthonormal cosine basis, DCT-II: float64 [count, size].

    Args:
        size: Pixels of a side.
        count: The number of vectors, at most `size`.
    """
    angles = np.arange(count)[:, None] * (np.arange(size) + 0.5) * np.pi / size
    basis = np.sqrt(2 / size) * np.cos(angles)
    basis[0] = np.sqrt(1 / size)
    return basis


def frequencies(images: Array, count: int) -> Array:
    """Returns the low frequencies of images: their coordinates in an orthonormal basis.

    Args:
        images: float32 [..., H, W, ch].
        count: The most frequencies in each direction; a third of them for opponent colours.

    Returns:
        float32 [..., M], with those of brightness first.
    """
    parts = []
    for i, plane in enumerate(_mixed(jnp.unstack(images, axis=-1), _mixing(images.shape[-1]))):
        rows, columns = _sides(images.shape[-3], images.shape[-2], _count(i, count))
        low = jnp.einsum("ih,...hw,jw->...ij", rows, plane, columns)
        parts.append(low.reshape(*low.shape[:-2], -1))
    return jnp.concatenate(parts, -1)


def restored(low: Array, spec: ImageSpec, count: int) -> Array:
    """Returns the images with these frequencies and no others: float32 [..., H, W, ch].

    Args:
        low: float32 [..., M], from `frequencies`.
        count: As for `frequencies`.
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
    """Returns M, the number of values that `frequencies` returns.

    Args:
        count: The most frequencies in each direction.
    """
    return sum(min(most, spec.height) * min(most, spec.width)
               for most in (_count(i, count) for i in range(spec.channels)))


def _count(plane: int, count: int) -> int:
    """The number of frequencies in each direction of a plane; brightness is the first plane."""
    return count if plane == 0 else max(1, count // COLOUR_SHARE)


def _mixing(channels: int) -> np.ndarray:
    """From channels to planes: float32 [ch, ch], orthonormal."""
    return (COLOURS if channels == 3 else np.eye(channels)).astype(np.float32)


def _mixed(planes: Sequence[Array], weights: np.ndarray) -> list[Array]:
    """Sums of planes, weighted by each row; a matrix product with so few columns is slow."""
    return [sum(weight * plane for weight, plane in zip(row, planes, strict=True))
            for row in weights]


def _sides(height: int, width: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    return (cosines(height, min(count, height)).astype(np.float32),
            cosines(width, min(count, width)).astype(np.float32))


DIRECTIONS = 6
PLACES = 7
"""The most places in each direction."""
BRIGHTNESS = 0.25
"""The factor of brightness relative to that of edges."""


def n_features(spec: ImageSpec) -> int:
    """Returns F, the features of an image."""
    return _places(spec.height) * _places(spec.width) * (DIRECTIONS + spec.channels)


def oriented(images: Array) -> Array:
    """Returns the strength of edges by direction, and the brightness, at each place.

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
    return max(1, min(PLACES, size // 2))


def _windows(size: int) -> np.ndarray:
    """Triangular windows around the centres of places, each two places wide: [places, size]."""
    wide = size / _places(size)
    middles = (np.arange(_places(size)) + 0.5) * wide - 0.5
    return np.maximum(1 - np.abs(np.arange(size) - middles[:, None]) / wide, 0)


def oriented_for_numpy(spec: ImageSpec) -> dict[str, np.ndarray]:
    """Returns the constants of `oriented` for `release.numpy_samplers`."""
    angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
    return {"angles": np.array([np.cos(angles), np.sin(angles)]),
            "brightness": np.array(BRIGHTNESS), "window_rows": _windows(spec.height),
            "window_columns": _windows(spec.width)}
