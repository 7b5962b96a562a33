"""Inception-v3 up to its last pooling, as the Frechet Inception Distance uses it.

Source: Szegedy et al., CVPR 2016 (arXiv 1512.00567), in the form of the TensorFlow graph of
2015-12-05, which Heusel et al., NeurIPS 2017, measured with, and which the package pytorch-fid
ported. Modules bear the names of the ported weights. It differs from the network of torchvision in
its weights and in two poolings: averages over a border divide by the places inside the image, and
the last block pools its input by the maximum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array

SIDE = 299
FEATURES = 2048

average = functools.partial(nn.avg_pool, window_shape=(3, 3), strides=(1, 1), padding="SAME",
                            count_include_pad=False)
highest = functools.partial(nn.max_pool, window_shape=(3, 3), strides=(1, 1), padding="SAME")
halve = functools.partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2))


class Conv(nn.Module):
    """A convolution without bias, batch normalisation by stored statistics (epsilon 0.001), ReLU.

    Parameters: `kernel` [kh, kw, in, out]; `scale`, `bias`, `mean`, `var` [out], fixed in use.
    """

    features: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padding: str = "SAME"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, h, w, in] to [n, h', w', features]."""
        shape = (*self.kernel, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape)
        zeros, ones = nn.initializers.zeros, nn.initializers.ones
        scale, bias, mean, var = (self.param(name, init, shape[-1:]) for name, init in (
            ("scale", ones), ("bias", zeros), ("mean", zeros), ("var", ones)))
        y = jax.lax.conv_general_dilated(x, kernel, (self.stride, self.stride), self.padding,
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        factor = scale * jax.lax.rsqrt(var + 1e-3)
        return nn.relu(y * factor + (bias - mean * factor))


def through(x: Array, *steps: Callable[[Array], Array]) -> Array:
    """Takes x through all steps, the first one first."""
    for step in steps:
        x = step(x)
    return x


def join(*branches: Array) -> Array:
    """Lays the channels of all branches side by side."""
    return jnp.concatenate(branches, -1)


class MixedA(nn.Module):
    """A block of branches: [n, h, w, c] -> [n, h, w, 224 + pool]."""

    pool: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies the block to x [n, h, w, c]."""
        return join(
            Conv(64, name="branch1x1")(x),
            through(x, Conv(48, name="branch5x5_1"), Conv(64, (5, 5), name="branch5x5_2")),
            through(x, Conv(64, name="branch3x3dbl_1"), Conv(96, (3, 3), name="branch3x3dbl_2"),
                    Conv(96, (3, 3), name="branch3x3dbl_3")),
            through(x, average, Conv(self.pool, name="branch_pool")))


class MixedB(nn.Module):
    """A block of branches: [n, h, w, c] -> [n, (h - 1) // 2, (w - 1) // 2, 480 + c]."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies the block to x [n, h, w, c]."""
        return join(
            Conv(384, (3, 3), 2, "VALID", name="branch3x3")(x),
            through(x, Conv(64, name="branch3x3dbl_1"), Conv(96, (3, 3), name="branch3x3dbl_2"),
                    Conv(96, (3, 3), 2, "VALID", name="branch3x3dbl_3")),
            halve(x))


class MixedC(nn.Module):
    """A block of branches: [n, h, w, c] -> [n, h, w, 768]; `narrow` channels within 7x7 ones."""

    narrow: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies the block to x [n, h, w, c]."""
        c = self.narrow
        return join(
            Conv(192, name="branch1x1")(x),
            through(x, Conv(c, name="branch7x7_1"), Conv(c, (1, 7), name="branch7x7_2"),
                    Conv(192, (7, 1), name="branch7x7_3")),
            through(x, Conv(c, name="branch7x7dbl_1"), Conv(c, (7, 1), name="branch7x7dbl_2"),
                    Conv(c, (1, 7), name="branch7x7dbl_3"), Conv(c, (7, 1), name="branch7x7dbl_4"),
                    Conv(192, (1, 7), name="branch7x7dbl_5")),
            through(x, average, Conv(192, name="branch_pool")))


class MixedD(nn.Module):
    """A block of branches: [n, h, w, c] -> [n, (h - 1) // 2, (w - 1) // 2, 512 + c]."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies the block to x [n, h, w, c]."""
        return join(
            through(x, Conv(192, name="branch3x3_1"),
                    Conv(320, (3, 3), 2, "VALID", name="branch3x3_2")),
            through(x, Conv(192, name="branch7x7x3_1"), Conv(192, (1, 7), name="branch7x7x3_2"),
                    Conv(192, (7, 1), name="branch7x7x3_3"),
                    Conv(192, (3, 3), 2, "VALID", name="branch7x7x3_4")),
            halve(x))


class MixedE(nn.Module):
    """A block of branches: [n, h, w, c] -> [n, h, w, 2048]; `pool` comes before the last branch."""

    pool: Callable[[Array], Array]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies the block to x [n, h, w, c]."""
        single = Conv(384, name="branch3x3_1")(x)
        double = through(x, Conv(448, name="branch3x3dbl_1"),
                         Conv(384, (3, 3), name="branch3x3dbl_2"))
        return join(
            Conv(320, name="branch1x1")(x),
            Conv(384, (1, 3), name="branch3x3_2a")(single),
            Conv(384, (3, 1), name="branch3x3_2b")(single),
            Conv(384, (1, 3), name="branch3x3dbl_3a")(double),
            Conv(384, (3, 1), name="branch3x3dbl_3b")(double),
            through(x, self.pool, Conv(192, name="branch_pool")))


class Inception(nn.Module):
    """The network without its classifier: 21,820,000 numbers, with the stored statistics."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x float [n, 299, 299, 3] in [-1, 1] to features [n, 2048], never negative."""
        x = through(
            x, Conv(32, (3, 3), 2, "VALID", name="Conv2d_1a_3x3"),
            Conv(32, (3, 3), padding="VALID", name="Conv2d_2a_3x3"),
            Conv(64, (3, 3), name="Conv2d_2b_3x3"), halve,
            Conv(80, name="Conv2d_3b_1x1"),
            Conv(192, (3, 3), padding="VALID", name="Conv2d_4a_3x3"), halve,
            MixedA(32, name="Mixed_5b"), MixedA(64, name="Mixed_5c"), MixedA(64, name="Mixed_5d"),
            MixedB(name="Mixed_6a"), MixedC(128, name="Mixed_6b"), MixedC(160, name="Mixed_6c"),
            MixedC(160, name="Mixed_6d"), MixedC(192, name="Mixed_6e"),
            MixedD(name="Mixed_7a"), MixedE(average, name="Mixed_7b"),
            MixedE(highest, name="Mixed_7c"))
        return x.mean((1, 2))
