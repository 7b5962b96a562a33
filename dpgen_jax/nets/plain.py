"""Discriminators that see one record at a time, for gradients of single records; MLP generators.

No batch normalisation and no statistics over a batch: with those a record would change what other
records' gradients are, and clipping each gradient would bound nothing. Parameters are few, since
the noise of a DP-SGD step grows with their number.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.nets.blocks import convolve, first_kernel, leaky_relu, windows
from dpgen_jax.nets.image import check_size, join
from dpgen_jax.nets.table import probabilities
from dpgen_jax.types import Array, ImageSpec, Spec, TableSpec, UserError

Params = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class ConvNet:
    """Widths of `Conv`."""

    channels1: int = 32
    channels2: int = 64

    def __post_init__(self):
        if min(self.channels1, self.channels2) < 1:
            raise UserError("channels1 and channels2 must be 1 or above")


@dataclasses.dataclass(frozen=True)
class Conv:
    """Two 5x5 convolutions, stride 2, leaky ReLU 0.2 after each; a score that is linear in what
    they find, in all classes alike and in each (the projection of Miyato and Koyama, ICLR 2018).
    """

    net: ConvNet
    spec: ImageSpec

    def __post_init__(self):
        check_size(self.spec)

    def init(self, key: Array) -> Params:
        """He normal, so that signals keep their size without normalisation; scores start small."""
        k1, k2, k3 = jax.random.split(key, 3)
        c1, c2 = self.net.channels1, self.net.channels2
        flat = self.spec.height // 4 * (self.spec.width // 4) * c2
        he = jax.nn.initializers.he_normal()
        return {"conv1": he(k1, (5, 5, self.spec.channels, c1)), "bias1": jnp.zeros(c1),
                "conv2": he(k2, (5, 5, c1, c2)), "bias2": jnp.zeros(c2),
                "score": 0.1 * he(k3, (flat, 1))[:, 0], "offset": jnp.zeros(()),
                "classes": jnp.zeros((self.spec.classes, flat))}

    def score(self, params: Params, x: Array, labels: Array) -> Array:
        """x [m, H, W, ch] in [0, 1], labels int [m] -> scores [m]."""
        p, (n, height, width, _) = params, x.shape
        h = windows(2 * x - 1).reshape(n, height // 4, width // 4, -1) @ first_kernel(p["conv1"])
        h = leaky_relu(h + jnp.tile(p["bias1"], 4))
        h = leaky_relu(convolve(h, p["conv2"]) + p["bias2"]).reshape(n, -1)
        return h @ p["score"] + jnp.sum(h * p["classes"][labels], 1) + p["offset"]


@dataclasses.dataclass(frozen=True)
class Mlp:
    """Linear layers of these widths and one to the score, `label_weight` times the one-hot label
    joined to the input of each, `slope` x where x is above 0 and `leak` x below."""

    hidden: tuple[int, ...]
    spec: Spec
    slope: float = 1.0
    leak: float = 0.2
    label_weight: float = 1.0

    def init(self, key: Array) -> Params:
        """Glorot normal."""
        widths = (_features(self.spec), *self.hidden, 1)
        draw = jax.nn.initializers.glorot_normal()
        return {f"linear{i}": draw(jax.random.fold_in(key, i),
                                   (widths[i] + self.spec.classes, widths[i + 1]))
                for i in range(len(widths) - 1)} | {
                    f"bias{i}": jnp.zeros(width) for i, width in enumerate(widths[1:])}

    def score(self, params: Params, x: Array, labels: Array) -> Array:
        """x [m, *spec.shape] in [0, 1], labels int [m] -> scores [m]."""
        onehot = self.label_weight * jax.nn.one_hot(labels, self.spec.classes)
        h = 2 * x.reshape(len(x), -1) - 1
        for i in range(len(self.hidden) + 1):
            h = jnp.where(h > 0, self.slope * h, self.leak * h) if i else h
            h = join(h, onehot) @ params[f"linear{i}"] + params[f"bias{i}"]
        return h[:, 0]


def _features(spec: Spec) -> int:
    size = 1
    for side in spec.shape:
        size *= side
    return size


@dataclasses.dataclass(frozen=True)
class MlpNet:
    """latent: width of z; hidden: of the linear layers before the last."""

    latent: int = 100
    hidden: tuple[int, ...] = (128,)

    def __post_init__(self):
        if min(self.latent, *self.hidden) < 1:
            raise UserError("latent and hidden widths must be 1 or above")


class MlpGenerator(nn.Module):
    """Linear layers with `slope` ReLU, the label joined to the input of each: a module as
    `pair.Generator` takes it. Each record is a function of its own latent and label."""

    net: MlpNet
    spec: Spec
    slope: float = 1.0

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """z float [N, latent], labels int [N] -> fakes [N, *spec.shape] in [0, 1]."""
        del train
        onehot = jax.nn.one_hot(labels, self.spec.classes)
        h = z
        for width in self.net.hidden:
            h = self.slope * nn.relu(nn.Dense(width)(join(h, onehot)))
        h = nn.Dense(_features(self.spec))(join(h, onehot))
        if isinstance(self.spec, TableSpec):
            return probabilities(h, self.spec)
        return nn.sigmoid(h).reshape(len(z), *self.spec.shape)
