"""From a direction for pixels to one for their logits, where pixels are sigmoids of logits.

By the chain rule a direction is multiplied by the sigmoid's slope x (1 - x). Noise drives pixels to
black and white, where that slope is next to nothing, so what is released there teaches nothing, and
a generator whose images have become black stays so. Straight-through estimation takes a slope of 1
instead (Bengio, Léonard and Courville, arXiv 1308.3432, section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp

from dpgen_jax.core.types import Array

LogitSlope = Literal["sigmoid", "straight-through"]
EDGE = 0.02  # One value was tried.


def sigmoid(pixels: Array, direction: Array) -> Array:
    """Returns the direction for logits by the chain rule.

    Args:
        pixels: in (0, 1), any shape.
        direction: in which the pixels are to move, likewise.
    """
    return direction * pixels * (1 - pixels)


def straight_through(pixels: Array, direction: Array) -> Array:
    """Returns the direction itself, less what moves a pixel within EDGE of 0 or 1 further out.

    Without that, noise would drive logits ever further, from where few steps bring them back.

    Args:
        pixels: in (0, 1), any shape.
        direction: in which the pixels are to move, likewise.
    """
    outward = ((pixels < EDGE) & (direction < 0)) | ((pixels > 1 - EDGE) & (direction > 0))
    return jnp.where(outward, 0, direction)


BY_NAME: dict[LogitSlope, Callable[[Array, Array], Array]] = {
    "sigmoid": sigmoid, "straight-through": straight_through}
