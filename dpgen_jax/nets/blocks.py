"""Strided convolutions of small images in blocks: the layout, the gathers and the label's part.

The strided convolutions of this package are 5x5, stride 2, SAME on an even size: output i reads the
inputs 2i - 1 .. 2i + 3. Two of them in a row turn each 4x4 block of pixels into one position. So an
image is h x w blocks (h = H / 4, w = W / 4), and the map between the two is h x w blocks of 2x2
positions, each stored as one vector (row, column, channel). Label maps are constant, so what they
add depends on a position only through which of its 25 taps fall inside: whether it lies at the
first place, the last or between them along each axis.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array


def leaky_relu(x: Array) -> Array:
    """Returns x where it is positive, else 0.2 x."""
    # where, not max: the gradient of max shares ties between its arguments, which costs more.
    return jnp.where(x > 0, x, 0.2 * x)


def batch_norm(x: Array, scale: Array, offset: Array) -> Array:
    """Normalises x [G, n, c] over n with the statistics of each group g of the call."""
    centred = x - jnp.mean(x, 1, keepdims=True)
    variance = jnp.mean(centred * centred, 1, keepdims=True)
    return centred * (scale * jax.lax.rsqrt(variance + 1e-5)) + offset


def to_blocks(x: Array) -> Array:
    """Lays maps [n, 2 h, 2 w, c] out in blocks [n, h, w, 4 c]."""
    n, height, width, c = x.shape
    x = x.reshape(n, height // 2, 2, width // 2, 2, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, height // 2, width // 2, 4 * c)


def from_blocks(x: Array) -> Array:
    """Lays blocks [n, h, w, 4 c] out as maps [n, 2 h, 2 w, c]."""
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, 2 * h, 2 * w, c // 4)


def windows(x: Array) -> Array:
    """Gathers what the first strided convolution reads of an image.

    Args:
        x: [..., H, W, ch].

    Returns:
        [..., h * w, 64 ch]: the 8x8 window, from -1 to 6, of each 4x4 block.
    """
    *lead, height, width, ch = x.shape
    h, w = height // 4, width // 4
    x = jnp.pad(x.reshape(-1, height, width, ch), ((0, 0), (1, 3), (1, 3), (0, 0)))
    x = x.reshape(-1, h + 1, 4, w + 1, 4, ch)
    x = jnp.concatenate([x[:, :-1], x[:, 1:]], 2)
    x = jnp.concatenate([x[:, :, :, :-1], x[:, :, :, 1:]], 4)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(*lead, h * w, 64 * ch)


def first_kernel(kernel: Array) -> Array:
    """Rewrites [5, 5, ch, c] as [64 ch, 4 c]: from a window to the 2x2 outputs of its block."""
    ch, c = kernel.shape[2:]
    outputs = [jnp.pad(kernel, ((2 * a, 3 - 2 * a), (2 * b, 3 - 2 * b), (0, 0), (0, 0)))
               for a in (0, 1) for b in (0, 1)]
    return jnp.stack(outputs, 3).reshape(64 * ch, 4 * c)


def mirrored(kernel: Array) -> Array:
    """Rewrites [5, 5, c, out] as [9 out, 4 c]: how a block is read by its neighbours.

    The kernel is padded to 6 taps along each axis; tap 0 is none.
    """
    c, out = kernel.shape[2:]
    kernel = jnp.pad(kernel, ((1, 0), (1, 0), (0, 0), (0, 0))).reshape(3, 2, 3, 2, c, out)
    return kernel[::-1, :, ::-1].transpose(0, 2, 5, 1, 3, 4).reshape(9 * out, 4 * c)


# The taps of the 5x5 kernel that lie in the block before, in the block itself and after it.
NEIGHBOUR = (slice(0, 1), slice(1, 3), slice(3, 5))


def taps(x: Array) -> Array:
    """Gathers from blocks [n, h, w, 4 c] the [n * h * w, 25 c] that each output reads."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).reshape(n, h + 2, w + 2, 2, 2, c // 4)
    # Of the block before, only the second row (column) is read.
    parts = [x[:, i:i + h, j:j + w, int(i == 0):, int(j == 0):].reshape(n, h, w, -1)
             for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, -1).reshape(n * h * w, -1)


def join_taps(rows: Array, c: int) -> Array:
    """Rewrites rows [25 c, out], in the order of `taps`, as a kernel [5, 5, c, out]."""
    sizes = (1, 2, 2)
    ends = np.cumsum([a * b * c for a in sizes for b in sizes])
    parts = [part.reshape(sizes[i // 3], sizes[i % 3], c, -1)
             for i, part in enumerate(jnp.split(rows, ends[:-1]))]
    return jnp.concatenate([jnp.concatenate(parts[i:i + 3], 1) for i in (0, 3, 6)])


def neighbours(x: Array) -> Array:
    """Gathers from x [n, h, w, c] each position with its eight neighbours: [n * h * w, 9 c]."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [x[:, i:i + h, j:j + w] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, -1).reshape(n * h * w, 9 * c)


def label_maps(kernel: Array, bias: Array, height: int, width: int) -> Array:
    """Computes all that a class's constant label map adds to a strided convolution's output.

    Args:
        kernel: [5, 5, classes, c], the part of the kernel that reads the label.
        bias: [c], which is added as well: here it costs nothing.
        height: of the output.
        width: of the output.

    Returns:
        [classes, height, width, c].
    """
    classes, c = kernel.shape[2:]
    inside, place = _borders(height, width)
    maps = (inside @ kernel.reshape(25, classes * c)).reshape(-1, classes, c) + bias
    maps = (place @ maps.reshape(-1, classes * c)).reshape(height, width, classes, c)
    return maps.transpose(2, 0, 1, 3)


@functools.cache
def _borders(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Taps inside [types, 25], and the type of each position, one-hot [height * width, types]."""
    rows, row_type = _borders_of_axis(height)
    cols, col_type = _borders_of_axis(width)
    inside = np.einsum("ai,bj->abij", rows, cols).reshape(len(rows) * len(cols), 25)
    types = (row_type[:, None] * len(cols) + col_type).reshape(-1)
    return inside, np.eye(len(inside), dtype=np.float32)[types]


def _borders_of_axis(outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Taps inside [types, 5] along one axis, and the type of each output."""
    read = 2 * np.arange(outputs)[:, None] - 1 + np.arange(5)
    inside = ((read >= 0) & (read < 2 * outputs)).astype(np.float32)
    types, place = np.unique(inside, axis=0, return_inverse=True)
    return types, place.reshape(-1)
