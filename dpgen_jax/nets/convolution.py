"""Convolutions, as matrix products or by the backend, and blocks of small images.

On CPUs, XLA has no fast form of a convolution with per-unit weights (under `vmap`), nor of the
gradients of a transposed convolution, and in compiled loops even plain ones are slow. A gather of
the pixels that an output reads, followed by one matrix product, is fast there. Each `Convolution`
has both forms, which compute the same function up to rounding, and uses the one that was measured
to be faster on the backend (`benchmarks/results/convolutions.json`).

The strided convolutions of this package are 5x5, stride 2, SAME on an even size: output i reads the
inputs 2i - 1 .. 2i + 3. Two of them in a row turn each 4x4 block of pixels into one position. So an
image is laid out as h x w blocks (h = H / 4, w = W / 4), and the map between the two convolutions
as h x w blocks of 2x2 positions, each stored as one vector (row, column, channel). Label maps are
constant, so their contribution depends on a position only through which of its 25 taps are inside:
whether it is the first, the last or an inner position along each axis.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array


def leaky_relu(x: Array) -> Array:
    """Returns x if it is positive, else 0.2 x."""
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
    """Gathers the inputs of the first strided convolution of an image.

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
    """Rewrites [5, 5, c, out] as [9 out, 4 c]: the weights by which a block's neighbours read it.

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
    """Computes the contribution of a class's constant label map to a strided convolution.

    Args:
        kernel: [5, 5, classes, c], the part of the kernel that reads the label.
        bias: [c], which is added as well, at no cost.

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


FASTER_ON: frozenset[str] = frozenset()
"""Backends ("cpu", "gpu", "tpu") whose convolution was measured to be faster than the matrix
product (`benchmarks/results/convolutions.json`). On a CPU it was slower in every measured shape,
and on an H100 published steps of DataLens and GS-WGAN took longer with it; TPUs have not been
measured.
"""


@dataclasses.dataclass(frozen=True)
class Convolution:
    """One convolution in two forms: (x, kernel) -> maps.

    Attributes:
        product: a gather and a matrix product.
        backend: `jax.lax.conv_general_dilated`.
    """

    product: Callable[[Array, Array], Array]
    backend: Callable[[Array, Array], Array]

    def __call__(self, x: Array, kernel: Array) -> Array:
        """Applies the form that is faster on the default backend."""
        form = self.backend if jax.default_backend() in FASTER_ON else self.product
        return form(x, kernel)


def _lax(x: Array, kernel: Array, stride: int = 1,
         padding: str | Sequence[tuple[int, int]] = "SAME", dilation: int = 1) -> Array:
    """The backend's convolution of x [n, H, W, c], dilated, by kernel [k, k, c, out]."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, lhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"))


_STRIDED = ((1, 2), (1, 2))
"""padding of a strided 5x5 convolution"""


# The first strided convolution: from an image to blocks.

def _first(x: Array, kernel: Array) -> Array:
    n, h, w = len(x), x.shape[1] // 4, x.shape[2] // 4
    return (windows(x).reshape(n * h * w, -1) @ first_kernel(kernel)).reshape(n, h, w, -1)


convolve_image = Convolution(
    product=_first, backend=lambda x, kernel: to_blocks(_lax(x, kernel, 2, _STRIDED)))
"""Strided: images [n, H, W, ch], kernel [5, 5, ch, c] -> blocks [n, h, w, 4 c]."""


# The second strided convolution, and the transposed one.

@jax.custom_vjp
def _convolve(x: Array, kernel: Array) -> Array:
    """The matrix product of `convolve`.

    Its backward pass is written out: with respect to x it is again a gather and a matrix product,
    where the derivative of a gather would be a scatter of nine overlapping arrays.
    """
    return _convolve_forward(x, kernel)[0]


def _convolve_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    n, h, w, _ = x.shape
    read = taps(x)
    rows = [kernel[i, j].reshape(-1, kernel.shape[-1]) for i in NEIGHBOUR for j in NEIGHBOUR]
    return (read @ jnp.concatenate(rows)).reshape(n, h, w, -1), (read, kernel)


def _convolve_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    read, kernel = saved
    grads = join_taps(read.T @ g.reshape(-1, g.shape[-1]), kernel.shape[2])
    return _adjoint(g, kernel), grads


_convolve.defvjp(_convolve_forward, _convolve_backward)


@jax.custom_vjp
def _adjoint(g: Array, kernel: Array) -> Array:
    """The backward pass of `_convolve`: [n, h, w, out] -> blocks [n, h, w, 4 c].

    Its own backward pass, which a gradient penalty needs, again reads 25 taps of a block and not
    all 36 pixels around it.
    """
    return _convolve3(g, mirrored(kernel))


def _adjoint_forward(g: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _adjoint(g, kernel), (g, kernel)


def _adjoint_backward(saved: tuple[Array, Array], blocks: Array) -> tuple[Array, Array]:
    g, kernel = saved
    out, (read, _) = _convolve_forward(blocks, kernel)
    return out, join_taps(read.T @ g.reshape(-1, g.shape[-1]), kernel.shape[2])


_adjoint.defvjp(_adjoint_forward, _adjoint_backward)

convolve = Convolution(
    product=_convolve, backend=lambda x, kernel: _lax(from_blocks(x), kernel, 2, _STRIDED))
"""Strided: blocks [n, h, w, 4 c], kernel [5, 5, c, out] -> maps [n, h, w, out]."""


def _deconvolve(x: Array, kernel: Array) -> Array:
    return from_blocks(_convolve3(x, mirrored(kernel)))


def _deconvolve_backend(x: Array, kernel: Array) -> Array:
    return _lax(x, kernel[::-1, ::-1].transpose(0, 1, 3, 2), 1, ((3, 2), (3, 2)), dilation=2)


deconvolve = Convolution(product=_deconvolve, backend=_deconvolve_backend)
"""Transposed: maps [n, h, w, c], kernel [5, 5, out, c] -> maps [n, 2 h, 2 w, out]: the adjoint of a
strided convolution by that kernel, which is the published deconvolution (5x5, stride 2, SAME)."""


# Convolutions of 3x3.

@jax.custom_vjp
def _convolve3(x: Array, kernel: Array) -> Array:
    """The matrix product of `convolve3`, with a backward pass of the same form."""
    return _convolve3_forward(x, kernel)[0]


def _convolve3_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    read = neighbours(x)
    return (read @ kernel).reshape(*x.shape[:3], -1), (read, kernel)


def _convolve3_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    read, kernel = saved
    out = g.shape[-1]
    flipped = kernel.reshape(9, -1, out)[::-1].transpose(0, 2, 1).reshape(9 * out, -1)
    return _convolve3(g, flipped), read.T @ g.reshape(-1, out)


_convolve3.defvjp(_convolve3_forward, _convolve3_backward)

convolve3 = Convolution(
    product=_convolve3,
    backend=lambda x, kernel: _lax(x, kernel.reshape(3, 3, x.shape[-1], -1)))
"""SAME: maps [n, h, w, c], kernel [9 c, out] -> maps [n, h, w, out]."""


def _convolve3_few(x: Array, kernel: Array) -> Array:
    """The product comes before the shifts, because there are fewer outputs than c."""
    n, h, w, c = x.shape
    y = (x @ kernel.transpose(2, 0, 1, 3).reshape(c, -1)).reshape(n, h, w, 9, -1)
    y = jnp.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0), (0, 0)))
    return sum((y[:, i:i + h, j:j + w, 3 * i + j] for i in range(3) for j in range(3)),
               start=jnp.zeros(()))


convolve3_few = Convolution(product=_convolve3_few, backend=_lax)
"""SAME, to few channels: maps [n, h, w, c], kernel [3, 3, c, out] -> maps [n, h, w, out]."""


def double(x: Array) -> Array:
    """Maps [n, h, w, c] -> [n, 2 h, 2 w, c], each pixel four times."""
    n, h, w, c = x.shape
    return jnp.broadcast_to(x[:, :, None, :, None], (n, h, 2, w, 2, c)).reshape(n, 2 * h, 2 * w, c)


# How three taps read a doubled row: [parity of the output, which of the two rows it reads, tap].
_FOLD = np.array([[[1, 0, 0], [0, 1, 1]], [[1, 1, 0], [0, 0, 1]]], np.float32)


def _convolve3_doubled(x: Array, kernel: Array) -> Array:
    """A 3x3 convolution of a doubled map reads 2x2 pixels of the map itself, with taps added up."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = jnp.concatenate([x[:, r:r + h + 1, s:s + w + 1] for r in (0, 1) for s in (0, 1)], -1)
    folded = jnp.einsum("art,bsu,tuco->rscabo", _FOLD, _FOLD, kernel).reshape(4 * c, -1)
    y = (corners @ folded).reshape(n, h + 1, w + 1, 2, 2, -1)
    # Outputs of parity (a, b) around pixel (i, j) read the four pixels at corner (i + a, j + b).
    rows = [jnp.stack([y[:, a:a + h, b:b + w, a, b] for b in (0, 1)], 3) for a in (0, 1)]
    return jnp.stack(rows, 2).reshape(n, 2 * h, 2 * w, -1)


convolve3_doubled = Convolution(
    product=_convolve3_doubled, backend=lambda x, kernel: _lax(double(x), kernel))
"""SAME, of `double(x)`: maps [n, h, w, c], kernel [3, 3, c, out] -> maps [n, 2 h, 2 w, out]."""


def _by_lines(x: Array, kernel: Array) -> Array:
    """A valid convolution: x [n, h, w, c], kernel [k, k, c, out] -> [n, h - k + 1, w - k + 1, out].

    The cheapest copy depends on the number of channels. With few, patches of k x k are gathered;
    with many, only the k pixels of a row, which are multiplied by all rows of the kernel at once,
    and the k results are added one line apart.
    """
    n, height, width, c = x.shape
    size, out = len(kernel), kernel.shape[-1]
    height, width = height - size + 1, width - size + 1
    rows = jnp.concatenate([x[:, :, j:j + width] for j in range(size)], -1)
    if size == 3 and 9 * c <= out:
        patches = jnp.concatenate([rows[:, i:i + height] for i in range(size)], -1)
        return (patches.reshape(-1, 9 * c) @ kernel.reshape(9 * c, -1)).reshape(
            n, height, width, out)
    lines = rows.reshape(-1, size * c) @ kernel.transpose(1, 2, 0, 3).reshape(size * c, -1)
    lines = lines.reshape(n, height + size - 1, width, size, out)
    return sum((lines[:, i:i + height, :, i] for i in range(size)), start=jnp.zeros(()))


convolve_valid = Convolution(
    product=_by_lines, backend=lambda x, kernel: _lax(x, kernel, 1, "VALID"))
"""VALID: maps [n, h, w, c], kernel [k, k, c, out] -> maps [n, h - k + 1, w - k + 1, out]."""


class _Conv(nn.Module):
    """A convolution with a bias; the name of the class is part of the names of released arrays."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies it to x [n, h, w, c]."""
        size, edge = self.form
        kernel = self.param("kernel", nn.initializers.lecun_normal(),
                            (size, size, x.shape[-1], self.features))
        if edge:
            x = jnp.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        return convolve_valid(x, kernel) + self.param("bias", nn.initializers.zeros,
                                                      (self.features,))


class Conv3x3(_Conv):
    """A valid 3x3 convolution with a bias: [n, h, w, c] -> [n, h - 2, w - 2, features]."""

    form = (3, 0)


class Conv5x5(_Conv):
    """A 5x5 convolution with zeros around the image and a bias: [n, h, w, c] -> [..., features]."""

    form = (5, 2)
