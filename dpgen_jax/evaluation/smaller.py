"""Large images made smaller before they are measured.

A step of a classifier on images of 512 x 512 pixels takes more memory than a laptop has, and ten
thousand of them more than its memory; at 128 x 128 a linear discriminant still takes minutes. So
images above `LARGEST` pixels a side, the largest of the papers, are measured at a whole fraction of
their size, synthetic and real ones alike.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.data import Dataset
from dpgen_jax.evaluation.scores import Images
from dpgen_jax.release.bundle import Release, together

LARGEST = 64
"""The most pixels a side at which images are measured, where the shorter side allows it."""
LEAST = 8
"""The fewest pixels a side that the networks of the evaluation take."""


def factor(spec: ImageSpec) -> int:
    """Return how many pixels a side become one: 1 for images that are measured as they are."""
    shorter, longer = sorted((spec.height, spec.width))
    return min(-(-longer // LARGEST), max(1, shorter // LEAST))


def reduced(x: np.ndarray, by: int) -> np.ndarray:
    """Return images of the means of squares of pixels.

    Args:
      x: Images uint8 [n, H, W, ch].
      by: Pixels a side of a square; a border that is no multiple of it is continued by its edge.

    Returns:
      Images uint8 [n, ceil(H / by), ceil(W / by), ch].
    """
    if by == 1:
        return x
    n, height, width, channels = x.shape
    x = np.pad(x, ((0, 0), (0, -height % by), (0, -width % by), (0, 0)), mode="edge")
    squares = x.reshape(n, x.shape[1] // by, by, x.shape[2] // by, by, channels)
    return np.rint(squares.mean((2, 4), dtype=np.float32)).astype(np.uint8)


def dataset(whole: Dataset, by: int) -> Dataset:
    """Return a data set with held-out images, all of them `reduced`."""
    return dataclasses.replace(whole, x_train=reduced(whole.x_train, by),
                               x_test=reduced(np.asarray(whole.x_test), by))


def sampled(release: Release, n: int, seed: int, by: int) -> Images:
    """Return n images of a release, `reduced` block by block, and their labels int32 [n]."""
    return together((reduced(x, by), y) for x, y in release.stream(n, seed=seed))


def note(spec: ImageSpec) -> list[str]:
    """Return a line on what size images are measured in; none where it is their own."""
    by = factor(spec)
    return [] if by == 1 else [
        f"images of {spec.height} x {spec.width} pixels are measured at {-(-spec.height // by)} x "
        f"{-(-spec.width // by)}, each pixel the mean of {by} x {by}; finer detail is "
        "neither judged nor attacked"]
