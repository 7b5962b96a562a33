"""Images as a few low frequencies, and back: an orthonormal cosine transform.

Source: Ahmed, Natarajan and Rao, "Discrete Cosine Transform", IEEE Trans. Computers 1974. Colours
are turned into brightness and two opponent colours first, which take fewer frequencies, as in JPEG:
eyes and classifiers alike need less of them. Everything here is a function of the schema alone.
"""

from __future__ import annotations

import numpy as np

from dpgen_jax.core.types import ImageSpec

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


def low_frequencies(spec: ImageSpec, count: int) -> np.ndarray:
    """Returns an orthonormal basis of the low frequencies of images.

    Args:
        spec: The schema of the images.
        count: Frequencies a side, at most; of opponent colours a third of them.

    Returns:
        float32 [P, M], P = H W ch.
    """
    if spec.channels == 1:
        return _planes(spec, count).reshape(spec.height * spec.width, -1).astype(np.float32)
    colour = _planes(spec, max(1, count // COLOUR_SHARE))
    planes = [_planes(spec, count), colour, colour]
    parts = [np.einsum("hwm,c->hwcm", plane, COLOURS[i]) for i, plane in enumerate(planes)]
    flat = np.concatenate(parts, -1)
    return flat.reshape(spec.height * spec.width * spec.channels, -1).astype(np.float32)


def n_frequencies(spec: ImageSpec, count: int) -> int:
    """Returns M of `low_frequencies`.

    Args:
        spec: The schema of the images.
        count: Frequencies a side, at most.
    """
    def plane(most: int) -> int:
        return min(most, spec.height) * min(most, spec.width)

    colour = 2 * plane(max(1, count // COLOUR_SHARE)) if spec.channels == 3 else 0
    return plane(count) + colour


def _planes(spec: ImageSpec, count: int) -> np.ndarray:
    """The basis of one channel: [H, W, m]."""
    rows = cosines(spec.height, min(count, spec.height))
    columns = cosines(spec.width, min(count, spec.width))
    return np.einsum("ih,jw->hwij", rows, columns).reshape(spec.height, spec.width, -1)
