"""Networks that judge images: the papers' CNN, a small MLP, Inception-v3 and ResNet-18.

Sources:

`CNN` is that of the published G-PATE and DataLens evaluations: two valid 3x3 convolutions of 32 and
64 channels, dropout 0.2 and 0.25, 64 hidden units. `MLP` has one hidden layer of 100 units.

`Inception` is Inception-v3 up to its last pooling, as the Frechet Inception Distance uses it:
Szegedy et al., CVPR 2016 (arXiv 1512.00567), in the form of the TensorFlow graph of 2015-12-05,
which Heusel et al., NeurIPS 2017, used, and which the package pytorch-fid ported. Modules have the
names of the ported weights. It differs from the network of torchvision in its weights and in two
poolings: averages over a border divide by the places inside the image, and the last block pools its
input by the maximum.

`ResNet18`, up to its last pooling, maps images to 512 features: He et al., "Deep Residual Learning
for Image Recognition", CVPR 2016, in the form of the package torchvision
(`torchvision.models.resnet18`), with the same names of modules.

Both pretrained networks normalise by stored statistics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, UserError
from dpgen_jax.nets.convolution import Conv3x3

CNN_MIN_SIDE = 8


class Dropout(nn.Module):
    """Dropout whose masks are drawn as bytes, so `rate` is rounded to a multiple of 1/256.

    On CPUs this is five times as fast as drawing a float for each number, which would take a third
    of the CNN's training time.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Masks x [N, ...] by the key "dropout"; without `train`, returns it unchanged."""
        if not train:
            return x
        kept = round(256 * (1 - self.rate))
        words = jax.random.bits(self.make_rng("dropout"), (-(-len(x) // 4), *x.shape[1:]), "uint32")
        mask = jnp.concatenate([(words >> 8 * i & 255) < kept for i in range(4)])[:len(x)]
        return jnp.where(mask, x * (256 / kept), 0)


def max_pool(x: Array) -> Array:
    """Takes the maximum of each 2x2: [N, H, W, c] -> [N, H // 2, W // 2, c]; drops an odd edge."""
    n, height, width, c = x.shape
    x = x[:, :height // 2 * 2, :width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, c)
    return functools.reduce(jnp.maximum, [x[:, :, i, :, j] for i in range(2) for j in range(2)])


class CNN(nn.Module):
    """Logits of `classes` classes; the softmax is in the loss."""

    classes: int

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Classifies images: logits [N, classes].

        Args:
            x: float [N, H, W, ch] in [0, 1].
            train: whether to apply dropout, with the key "dropout".

        Raises:
            UserError: for images below 8x8 pixels.
        """
        if min(x.shape[1:3]) < CNN_MIN_SIDE:
            raise UserError(f"the CNN needs images of at least {CNN_MIN_SIDE} x {CNN_MIN_SIDE} "
                            f"pixels, got {x.shape[1]} x {x.shape[2]}; use the classifier 'mlp'")
        # The maximum and ReLU commute; after the maximum, ReLU processes a quarter of the numbers.
        h = nn.relu(max_pool(Conv3x3(32)(x)))
        h = Dropout(0.2)(h, train)
        h = nn.relu(Conv3x3(64)(h))
        h = Dropout(0.25)(h, train)
        h = nn.relu(nn.Dense(64)(h.reshape(len(h), -1)))
        return nn.Dense(self.classes)(h)


class MLP(nn.Module):
    """Logits from one hidden layer of 100 units with ReLU."""

    classes: int

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Maps x float [N, H, W, ch] in [0, 1] to logits [N, classes]; `train` has no effect."""
        h = nn.relu(nn.Dense(100)(x.reshape(len(x), -1)))
        return nn.Dense(self.classes)(h)


INCEPTION_SIDE = 299
INCEPTION_FEATURES = 2048

average = functools.partial(nn.avg_pool, window_shape=(3, 3), strides=(1, 1), padding="SAME",
                            count_include_pad=False)
highest = functools.partial(nn.max_pool, window_shape=(3, 3), strides=(1, 1), padding="SAME")
halve = functools.partial(nn.max_pool, window_shape=(3, 3), strides=(2, 2))


def _normalised_convolution(layer: nn.Module, shape: tuple[int, ...], stride: int,
                            padding: str | list[tuple[int, int]], epsilon: float, x: Array
                            ) -> Array:
    """A convolution of x without bias, and batch normalisation by stored statistics.

    The parameters of the layer: `kernel` of the shape [kh, kw, in, out]; `scale`, `bias`, `mean`,
    `var` [out], fixed in use.
    """
    kernel = layer.param("kernel", nn.initializers.he_normal(), shape)
    zeros, ones = nn.initializers.zeros, nn.initializers.ones
    scale, bias, mean, var = (layer.param(name, init, shape[-1:]) for name, init in (
        ("scale", ones), ("bias", zeros), ("mean", zeros), ("var", ones)))
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
    factor = scale * jax.lax.rsqrt(var + epsilon)
    return y * factor + (bias - mean * factor)


class Conv(nn.Module):
    """A convolution without bias, stored batch normalisation (epsilon 0.001), and ReLU."""

    features: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padding: str = "SAME"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, h, w, in] to [n, h', w', features]."""
        shape = (*self.kernel, x.shape[-1], self.features)
        return nn.relu(_normalised_convolution(self, shape, self.stride, self.padding, 1e-3, x))


def through(x: Array, *steps: Callable[[Array], Array]) -> Array:
    """Applies all steps to x in order."""
    for step in steps:
        x = step(x)
    return x


def join(*branches: Array) -> Array:
    """Concatenates the channels of all branches."""
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


RESNET18_SIDE = 224
RESNET18_FEATURES = 512


class ConvNorm(nn.Module):
    """A convolution without bias, and stored batch normalisation (epsilon 1e-5)."""

    features: int
    size: int = 3
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, h, w, in] to [n, h / stride, w / stride, features], rounded up."""
        shape = (self.size, self.size, x.shape[-1], self.features)
        edge = (self.size // 2, self.size // 2)
        return _normalised_convolution(self, shape, self.stride, [edge, edge], 1e-5, x)


class Block(nn.Module):
    """Two convolutions of 3x3 with a shortcut.

    The shortcut is a 1x1 convolution if the size or the number of channels changes.
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
