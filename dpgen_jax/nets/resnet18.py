"""ResNet-18 up to its last pooling, with stored statistics: it turns images into 512 features.

Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, in the form of the
package torchvision (`torchvision.models.resnet18`), whose names of modules these are.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array

SIDE = 224
FEATURES = 512


class ConvNorm(nn.Module):
    """A convolution without bias, and batch normalisation by stored statistics (epsilon 1e-5).

    Parameters: `kernel` [k, k, in, out]; `scale`, `bias`, `mean`, `var` [out], fixed in use.
    """

    features: int
    size: int = 3
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, h, w, in] to [n, h / stride, w / stride, features], rounded up."""
        kernel = self.param("kernel", nn.initializers.he_normal(),
                            (self.size, self.size, x.shape[-1], self.features))
        zeros, ones = nn.initializers.zeros, nn.initializers.ones
        scale, bias, mean, var = (self.param(name, init, (self.features,)) for name, init in (
            ("scale", ones), ("bias", zeros), ("mean", zeros), ("var", ones)))
        edge = (self.size // 2, self.size // 2)
        y = jax.lax.conv_general_dilated(x, kernel, (self.stride, self.stride), (edge, edge),
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        factor = scale * jax.lax.rsqrt(var + 1e-5)
        return y * factor + (bias - mean * factor)


class Block(nn.Module):
    """Two convolutions of 3x3 beside a path without them.

    That path is a convolution of 1x1 where the size or the number of channels changes.
    """

    features: int
    stride: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, h, w, in] to [n, h / stride, w / stride, features], never negative."""
        y = nn.relu(ConvNorm(self.features, stride=self.stride, name="1")(x))
        y = ConvNorm(self.features, name="2")(y)
        if self.stride > 1 or x.shape[-1] != self.features:
            x = ConvNorm(self.features, 1, self.stride, name="downsample")(x)
        return nn.relu(y + x)


class ResNet18(nn.Module):
    """The network without its classifier: 11,186,112 numbers, with the stored statistics."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x float [n, H, W, 3], normalised, to features [n, 512], never negative."""
        x = nn.relu(ConvNorm(64, 7, 2, name="stem")(x))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for layer, width in enumerate((64, 128, 256, 512), start=1):
            for block in range(2):
                stride = 2 if layer > 1 and block == 0 else 1
                x = Block(width, stride, name=f"layer{layer}.{block}")(x)
        return jnp.mean(x, (1, 2))
