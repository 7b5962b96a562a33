"""Strided convolutions and deconvolutions of small images as matrix products.

All convolutions here are 5x5, stride 2, SAME on an even size: output i reads inputs 2i-1 .. 2i+3.
Compilers for CPUs have no fast form of a convolution with weights per unit, nor of the gradients
of a deconvolution: hence this file. Two convolutions in a row turn each 4x4 block of pixels into
one position, so an image is h x w blocks (h = H/4, w = W/4) and the map between the two is h x w
blocks of 2x2 positions, stored as one vector (row, column, channel) of a block. Label maps are
constant, so what they add depends on a position only through which of its 25 taps fall inside:
it lies at the first place, the last or between them along each axis.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.types import Array


def leaky_relu(x: Array) -> Array:
    """x where positive, else 0.2 x."""
    # where, not max: the gradient of max shares ties between its arguments, which costs more.
    return jnp.where(x > 0, x, 0.2 * x)


def batch_norm(x: Array, scale: Array, offset: Array) -> Array:
    """x [G, n, c] -> the same, normalised over n with the group's own statistics."""
    centred = x - jnp.mean(x, 1, keepdims=True)
    variance = jnp.mean(centred * centred, 1, keepdims=True)
    return centred * (scale * jax.lax.rsqrt(variance + 1e-5)) + offset


def windows(x: Array) -> Array:
    """x [..., H, W, ch] -> [..., h * w, 64 ch]: the 8x8 window, from -1 to 6, of each 4x4 block."""
    *lead, height, width, ch = x.shape
    h, w = height // 4, width // 4
    x = jnp.pad(x.reshape(-1, height, width, ch), ((0, 0), (1, 3), (1, 3), (0, 0)))
    x = x.reshape(-1, h + 1, 4, w + 1, 4, ch)
    x = jnp.concatenate([x[:, :-1], x[:, 1:]], 2)
    x = jnp.concatenate([x[:, :, :, :-1], x[:, :, :, 1:]], 4)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(*lead, h * w, 64 * ch)


def first_kernel(kernel: Array) -> Array:
    """[5, 5, ch, c] -> [64 ch, 4 c]: from a window to the 2x2 outputs of its block."""
    ch, c = kernel.shape[2:]
    outputs = [jnp.pad(kernel, ((2 * a, 3 - 2 * a), (2 * b, 3 - 2 * b), (0, 0), (0, 0)))
               for a in (0, 1) for b in (0, 1)]
    return jnp.stack(outputs, 3).reshape(64 * ch, 4 * c)


@jax.custom_vjp
def convolve(x: Array, kernel: Array) -> Array:
    """Blocks x [n, h, w, 4 c], kernel [5, 5, c, out] -> [n, h, w, out].

    Its backward pass is written out: with respect to x it is again a gather and a matrix product,
    where the derivative of a gather would be a scatter of nine overlapping arrays.
    """
    return _convolve(x, kernel)[0]


def _convolve(x, kernel):
    n, h, w, _ = x.shape
    read = _taps(x)
    rows = [kernel[i, j].reshape(-1, kernel.shape[-1]) for i in _NEIGHBOUR for j in _NEIGHBOUR]
    return (read @ jnp.concatenate(rows)).reshape(n, h, w, -1), (read, kernel)


def _convolve_back(saved, g):
    read, kernel = saved
    grads = _join_taps(read.T @ g.reshape(-1, g.shape[-1]), kernel.shape[2])
    return _adjoint(g, kernel), grads


convolve.defvjp(_convolve, _convolve_back)


@jax.custom_vjp
def _adjoint(g: Array, kernel: Array) -> Array:
    """`convolve` backwards: [n, h, w, out] -> blocks [n, h, w, 4 c]. Its own backward pass, for a
    penalty on gradients, reads 25 taps of a block again and not all 36 pixels around it."""
    return convolve3(g, _mirrored(kernel))


def _adjoint_back(saved, blocks):
    g, kernel = saved
    out, (read, _) = _convolve(blocks, kernel)
    return out, _join_taps(read.T @ g.reshape(-1, g.shape[-1]), kernel.shape[2])


_adjoint.defvjp(lambda g, kernel: (_adjoint(g, kernel), (g, kernel)), _adjoint_back)


def deconvolve(x: Array, kernel: Array) -> Array:
    """x [n, h, w, c], kernel [5, 5, out, c] -> [n, 2 h, 2 w, out]: the adjoint of a convolution
    by that kernel, which is the published deconvolution (5x5, stride 2, SAME)."""
    n, h, w, _ = x.shape
    y = convolve3(x, _mirrored(kernel)).reshape(n, h, w, 2, 2, -1)
    return y.transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, -1)


@jax.custom_vjp
def convolve3(x: Array, kernel: Array) -> Array:
    """The plain 3x3 convolution: x [n, h, w, c], kernel [9 c, out] -> [n, h, w, out]."""
    return _convolve3(x, kernel)[0]


def _convolve3(x, kernel):
    read = _neighbours(x)
    return (read @ kernel).reshape(*x.shape[:3], -1), (read, kernel)


def _convolve3_back(saved, g):
    read, kernel = saved
    out = g.shape[-1]
    flipped = kernel.reshape(9, -1, out)[::-1].transpose(0, 2, 1).reshape(9 * out, -1)
    return convolve3(g, flipped), read.T @ g.reshape(-1, out)


convolve3.defvjp(_convolve3, _convolve3_back)


def _mirrored(kernel: Array) -> Array:
    """[5, 5, c, out] -> [9 out, 4 c]: how a block is read by its neighbours (tap 0 of 6: none)."""
    c, out = kernel.shape[2:]
    kernel = jnp.pad(kernel, ((1, 0), (1, 0), (0, 0), (0, 0))).reshape(3, 2, 3, 2, c, out)
    return kernel[::-1, :, ::-1].transpose(0, 2, 5, 1, 3, 4).reshape(9 * out, 4 * c)


# The taps of the 5x5 kernel that lie in the block before, in the block itself and after it.
_NEIGHBOUR = (slice(0, 1), slice(1, 3), slice(3, 5))


def _taps(x: Array) -> Array:
    """x [n, h, w, 4 c] -> [n * h * w, 25 c]: what one output reads of a block's neighbourhood."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).reshape(n, h + 2, w + 2, 2, 2, c // 4)
    # Of the block before, only the second row (column) is read.
    parts = [x[:, i:i + h, j:j + w, int(i == 0):, int(j == 0):].reshape(n, h, w, -1)
             for i in range(3) for j in range(3)]
    return jnp.concatenate(parts, -1).reshape(n * h * w, -1)


def _join_taps(rows: Array, c: int) -> Array:
    """Rows [25 c, out] in the order of `_taps` -> kernel [5, 5, c, out]."""
    sizes = (1, 2, 2)
    ends = np.cumsum([a * b * c for a in sizes for b in sizes])
    parts = [part.reshape(sizes[i // 3], sizes[i % 3], c, -1)
             for i, part in enumerate(jnp.split(rows, ends[:-1]))]
    return jnp.concatenate([jnp.concatenate(parts[i:i + 3], 1) for i in (0, 3, 6)])


def _neighbours(x: Array) -> Array:
    """x [n, h, w, c] -> [n * h * w, 9 c]: each position with its eight neighbours."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [x[:, i:i + h, j:j + w] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, -1).reshape(n * h * w, 9 * c)


def label_maps(kernel: Array, bias: Array, height: int, width: int) -> Array:
    """[5, 5, classes, c], bias [c] -> [classes, height, width, c]: all that a class's constant
    label map adds to a convolution's output, and the bias (added here, it costs nothing)."""
    classes, c = kernel.shape[2:]
    taps, place = _borders(height, width)
    maps = (taps @ kernel.reshape(25, classes * c)).reshape(-1, classes, c) + bias
    maps = (place @ maps.reshape(-1, classes * c)).reshape(height, width, classes, c)
    return maps.transpose(2, 0, 1, 3)


def blocks(maps: Array, h: int, w: int) -> Array:
    """maps [n, 2 h, 2 w, c] -> [n, h * w * 4 c], in the order of the blocks."""
    n, _, _, c = maps.shape
    return maps.reshape(n, h, 2, w, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * w * 4 * c)


@functools.cache
def _borders(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """For an output of this size: taps inside [types, 25], and the type of each position, one-hot
    [height * width, types]."""
    rows, row_type = _borders_of_axis(height)
    cols, col_type = _borders_of_axis(width)
    taps = np.einsum("ai,bj->abij", rows, cols).reshape(len(rows) * len(cols), 25)
    types = (row_type[:, None] * len(cols) + col_type).reshape(-1)
    return taps, np.eye(len(taps), dtype=np.float32)[types]


def _borders_of_axis(outputs: int) -> tuple[np.ndarray, np.ndarray]:
    read = 2 * np.arange(outputs)[:, None] - 1 + np.arange(5)
    inside = ((read >= 0) & (read < 2 * outputs)).astype(np.float32)
    types, place = np.unique(inside, axis=0, return_inverse=True)
    return types, place.reshape(-1)
