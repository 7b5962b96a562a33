"""The classifiers that judge synthetic images: the papers' CNN and a small MLP.

Source: the CNN of the published G-PATE and DataLens evaluations (two valid 3x3 convolutions of 32
and 64 channels, dropout 0.2 and 0.25, 64 hidden units); the MLP is one hidden layer of 100 units.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.types import Array, UserError

CNN_MIN_SIDE = 8


class Conv3x3(nn.Module):
    """A valid 3x3 convolution as one matrix product.

    On CPUs this trains more than ten times as fast as the convolution of XLA inside a compiled
    loop. What is cheapest to copy depends on the channels: few are gathered into patches of 3x3;
    of many only the three pixels of a row are, which are multiplied by all rows of the kernel at
    once, and the three results are added one line apart.
    """

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [N, H, W, ch] -> [N, H - 2, W - 2, features]."""
        n, height, width, ch = x.shape
        height, width = height - 2, width - 2
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (3, 3, ch, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        rows = jnp.concatenate([x[:, :, j:j + width] for j in range(3)], -1)
        if 9 * ch <= self.features:
            patches = jnp.concatenate([rows[:, i:i + height] for i in range(3)], -1)
            out = patches.reshape(-1, 9 * ch) @ kernel.reshape(9 * ch, -1)
            return out.reshape(n, height, width, self.features) + bias
        by_line = rows.reshape(-1, 3 * ch) @ kernel.transpose(1, 2, 0, 3).reshape(3 * ch, -1)
        by_line = by_line.reshape(n, height + 2, width, 3, self.features)
        return sum(by_line[:, i:i + height, :, i] for i in range(3)) + bias


class Dropout(nn.Module):
    """Dropout whose masks are drawn as bytes, so `rate` is kept to 1/256: on CPUs five times as
    fast as drawing a float for each number, which takes a third of the CNN's training.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """x [N, ...], unchanged without `train`, which reads the key 'dropout'."""
        if not train:
            return x
        kept = round(256 * (1 - self.rate))
        words = jax.random.bits(self.make_rng("dropout"), (-(-len(x) // 4), *x.shape[1:]), "uint32")
        mask = jnp.concatenate([(words >> 8 * i & 255) < kept for i in range(4)])[:len(x)]
        return jnp.where(mask, x * (256 / kept), 0)


def max_pool(x: Array) -> Array:
    """x [N, H, W, c] -> [N, H // 2, W // 2, c]: the largest of each 2x2; an odd edge is dropped."""
    n, height, width, c = x.shape
    x = x[:, :height // 2 * 2, :width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, c)
    return functools.reduce(jnp.maximum, [x[:, :, i, :, j] for i in range(2) for j in range(2)])


class CNN(nn.Module):
    """Logits of `classes` classes; the softmax is in the loss."""

    classes: int

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """x float [N, H, W, ch] in [0, 1] -> logits [N, classes].

        With `train`, dropout reads the key 'dropout'. Errors: UserError below 8x8 pixels.
        """
        if min(x.shape[1:3]) < CNN_MIN_SIDE:
            raise UserError(f"the CNN needs images of at least {CNN_MIN_SIDE} x {CNN_MIN_SIDE} "
                            f"pixels, got {x.shape[1]} x {x.shape[2]}; use the classifier 'mlp'")
        # The maximum and ReLU commute; ReLU second touches a quarter of the numbers.
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
        """x float [N, H, W, ch] in [0, 1] -> logits [N, classes]; `train` changes nothing."""
        h = nn.relu(nn.Dense(100)(x.reshape(len(x), -1)))
        return nn.Dense(self.classes)(h)
