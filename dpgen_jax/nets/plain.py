"""Discriminators that see one record at a time, for gradients of single records; MLP generators.

No batch normalisation and no statistics over a batch: with those a record would change what other
records' gradients are, and clipping each gradient would bound nothing. Parameters are few, since
the noise of a DP-SGD step grows with their number.
"""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.nets.blocks import leaky_relu
from dpgen_jax.nets.convolution import convolve, convolve_image
from dpgen_jax.nets.image import check_size, join
from dpgen_jax.nets.table import probabilities

Params = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class ConvNet:
    """Widths of `Conv`."""

    channels1: int = 32
    """output channels of the first convolution"""
    channels2: int = 64
    """output channels of the second convolution"""

    def __post_init__(self) -> None:
        if min(self.channels1, self.channels2) < 1:
            raise UserError("channels1 and channels2 must be 1 or above")


@dataclasses.dataclass(frozen=True)
class Conv:
    """Two 5x5 convolutions, stride 2, with leaky ReLU 0.2, and a linear score.

    The score has a part that all classes share and one for each class (the projection of Miyato and
    Koyama, ICLR 2018).
    """

    net: ConvNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        check_size(self.spec)

    def init(self, key: Array) -> Params:
        """Draws He normal weights: signals keep their size, and scores start small."""
        k1, k2, k3 = jax.random.split(key, 3)
        c1, c2 = self.net.channels1, self.net.channels2
        flat = self.spec.height // 4 * (self.spec.width // 4) * c2
        he = jax.nn.initializers.he_normal()
        return {"conv1": he(k1, (5, 5, self.spec.channels, c1)), "bias1": jnp.zeros(c1),
                "conv2": he(k2, (5, 5, c1, c2)), "bias2": jnp.zeros(c2),
                "score": 0.1 * he(k3, (flat, 1))[:, 0], "offset": jnp.zeros(()),
                "classes": jnp.zeros((self.spec.classes, flat))}

    def apply(self, params: Params, x: Array, labels: Array) -> Array:
        """Scores x [m, H, W, ch] in [0, 1] with labels int [m]: [m]."""
        p = params
        h = leaky_relu(convolve_image(2 * x - 1, p["conv1"]) + jnp.tile(p["bias1"], 4))
        h = leaky_relu(convolve(h, p["conv2"]) + p["bias2"]).reshape(len(x), -1)
        return h @ p["score"] + jnp.sum(h * p["classes"][labels], 1) + p["offset"]


@dataclasses.dataclass(frozen=True)
class Mlp:
    """Linear layers with the label joined to the input of each, and one to the score.

    Attributes:
        hidden: widths of the layers before the last.
        spec: schema of the records.
        slope: the activation is slope x where x is above 0,
        leak: and leak x below.
        label_weight: factor of the one-hot label.
        limit: hidden features are clipped to +- this.
    """

    hidden: tuple[int, ...]
    spec: Spec
    slope: float = 1.0
    leak: float = 0.2
    label_weight: float = 1.0
    limit: float = math.inf

    def init(self, key: Array) -> Params:
        """Draws Glorot normal weights."""
        widths = (math.prod(self.spec.shape), *self.hidden, 1)
        draw = jax.nn.initializers.glorot_normal()
        return {f"linear{i}": draw(jax.random.fold_in(key, i),
                                   (widths[i] + self.spec.classes, widths[i + 1]))
                for i in range(len(widths) - 1)} | {
                    f"bias{i}": jnp.zeros(width) for i, width in enumerate(widths[1:])}

    def apply(self, params: Params, x: Array, labels: Array) -> Array:
        """Scores x [m, *spec.shape] in [0, 1] with labels int [m]: [m]."""
        onehot = self.label_weight * jax.nn.one_hot(labels, self.spec.classes)
        h = 2 * x.reshape(len(x), -1) - 1
        for i in range(len(self.hidden) + 1):
            h = self._activated(h) if i else h
            h = join(h, onehot) @ params[f"linear{i}"] + params[f"bias{i}"]
        return h[:, 0]

    def _activated(self, h: Array) -> Array:
        """The features of a hidden layer."""
        h = jnp.where(h > 0, self.slope * h, self.leak * h)
        return h if math.isinf(self.limit) else jnp.clip(h, -self.limit, self.limit)


@dataclasses.dataclass(frozen=True)
class MlpNet:
    """Widths of an MLP generator."""

    latent: int = 100
    """numbers of a latent"""
    hidden: tuple[int, ...] = (128,)
    """widths of the linear layers before the last"""

    def __post_init__(self) -> None:
        if min(self.latent, *self.hidden) < 1:
            raise UserError("latent and hidden widths must be 1 or above")


class MlpGenerator(nn.Module):
    """Linear layers with `slope` times ReLU, the label joined to the input of each.

    A module as `pair.Generator` takes it. Each record is a function of its own latent and label.
    """

    net: MlpNet
    spec: Spec
    slope: float = 1.0

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates fakes [N, *spec.shape] in [0, 1] from z float [N, latent], labels int [N]."""
        del train
        onehot = jax.nn.one_hot(labels, self.spec.classes)
        h = z
        for width in self.net.hidden:
            h = self.slope * nn.relu(nn.Dense(width)(join(h, onehot)))
        h = nn.Dense(math.prod(self.spec.shape))(join(h, onehot))
        if isinstance(self.spec, TableSpec):
            return probabilities(h, self.spec)
        return nn.sigmoid(h).reshape(len(z), *self.spec.shape)
