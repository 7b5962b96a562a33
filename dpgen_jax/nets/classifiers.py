"""The classifiers that judge synthetic images: the papers' CNN and a small MLP.

Source: the CNN of the published G-PATE and DataLens evaluations (two valid 3x3 convolutions of 32
and 64 channels, dropout 0.2 and 0.25, 64 hidden units); the MLP is one hidden layer of 100 units.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, UserError
from dpgen_jax.nets.convolution import Conv3x3

CNN_MIN_SIDE = 8


class Dropout(nn.Module):
    """Dropout whose masks are drawn as bytes, so `rate` is rounded to a multiple of 1/256.

    On CPUs this is five times as fast as drawing a float for each number, which takes a third of
    the CNN's training.
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
        """Classifies images.

        Args:
            x: float [N, H, W, ch] in [0, 1].
            train: whether dropout is on, which then reads the key "dropout".

        Returns:
            Logits [N, classes].

        Raises:
            UserError: for images below 8x8 pixels.
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
        """Maps x float [N, H, W, ch] in [0, 1] to logits [N, classes]; `train` changes nothing."""
        h = nn.relu(nn.Dense(100)(x.reshape(len(x), -1)))
        return nn.Dense(self.classes)(h)
