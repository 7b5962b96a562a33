"""The conditional image generator of DP-MERF, and the networks of its variant on codes.

Source: ConvCondGen of the published code of Harder, Adamczewski and Park, "DP-MERF: Differentially
Private Mean Embeddings with Random Features for Practical Privacy-Preserving Data Generation",
AISTATS 2021. The latent and the one-hot label go through two linear layers with batch
normalisation to maps at a quarter of the image's size; twice these are doubled in size by bilinear
interpolation and convolved, 5x5.
"""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet, check_size, join
from dpgen_jax.nets.pair import Generator, pair
from dpgen_jax.nets.table import probabilities
from dpgen_jax.nets.warp import moved
from dpgen_jax.types import Array, Column, ImageSpec, Spec, TableSpec

PUBLISHED = GeneratorNet(latent=5, hidden=200, channels=16)


class ConvGenerator(nn.Module):
    """Images from latents and labels, for public use; `net.channels` at a quarter of the size, half
    as many at half of it. Batch normalisation keeps the statistics of exactly one call, as in
    `nets.image.Generator`."""

    net: GeneratorNet
    spec: ImageSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """z float [N, latent], labels int [N] -> images [N, H, W, ch] in [0, 1]."""
        net, spec = self.net, self.spec

        def normed(h):
            return nn.BatchNorm(use_running_average=not train, momentum=0.0, epsilon=1e-5,
                                use_fast_variance=False)(h)

        h = join(z, jax.nn.one_hot(labels, spec.classes))
        h = nn.relu(normed(nn.Dense(net.hidden)(h)))
        h = normed(nn.Dense(spec.height // 4 * (spec.width // 4) * net.channels)(h))
        h = h.reshape(-1, spec.height // 4, spec.width // 4, net.channels)
        h = nn.relu(Conv5x5(max(1, net.channels // 2))(double(h)))
        return nn.sigmoid(Conv5x5(spec.channels)(double(h)))


def generator(net: GeneratorNet, spec: Spec) -> Generator:
    """The generator of images behind the interface that all generators share, or that of tables.
    Latents are uniform on (-1, 1), the published ones standard normal. Raises UserError for images
    whose height or width is no multiple of 4."""
    if isinstance(spec, TableSpec):
        return pair(spec, net, DiscriminatorNet())[0]
    check_size(spec)
    return Generator(moved(net, ConvGenerator(net, spec), spec), lambda key, images: images)


@dataclasses.dataclass(frozen=True)
class Autoencoder:
    """Records to codes and back, as functions of a dict of weights: one hidden layer each way.

    Without batch normalisation, which would couple records. Codes have a length of sqrt(code),
    whatever the record is, so a kernel on codes needs no bandwidth that was read from them.
    """

    hidden: int
    code: int
    spec: Spec

    def init(self, key: Array) -> dict[str, Array]:
        """Glorot normal."""
        numbers = math.prod(self.spec.shape)
        widths = (numbers, self.hidden, self.code, self.hidden, numbers)
        draw = jax.nn.initializers.glorot_normal()
        return {f"w{i}": draw(jax.random.fold_in(key, i), widths[i:i + 2]) for i in range(4)} | {
            f"b{i}": jnp.zeros(width) for i, width in enumerate(widths[1:])}

    @property
    def code_spec(self) -> TableSpec:
        """Codes as the rows of a table of numbers."""
        columns = tuple(Column(f"code {i}", "continuous", -1.0, 1.0) for i in range(self.code))
        classes = tuple(map(str, range(self.spec.classes)))
        return TableSpec(columns, Column("class", "categorical", categories=classes), self.code)

    def encode(self, params: dict[str, Array], x: Array) -> Array:
        """x [N, *spec.shape] in [0, 1] -> codes [N, code]."""
        h = jnp.tanh(2 * (x.reshape(len(x), -1) - 0.5) @ params["w0"] + params["b0"])
        return on_sphere(h @ params["w1"] + params["b1"])

    def logits(self, params: dict[str, Array], codes: Array) -> Array:
        """codes [N, code] -> [N, F]."""
        h = jnp.tanh(codes @ params["w2"] + params["b2"])
        return h @ params["w3"] + params["b3"]

    def decode(self, params: dict[str, Array], codes: Array) -> Array:
        """codes [N, code] -> fakes [N, *spec.shape] in [0, 1], as generators make them."""
        logits = self.logits(params, codes)
        made = (probabilities(logits, self.spec) if isinstance(self.spec, TableSpec)
                else nn.sigmoid(logits))
        return made.reshape(-1, *self.spec.shape)

    def loss(self, params: dict[str, Array], x: Array) -> Array:
        """The mean over records, and sum over their numbers, of the binary cross-entropy."""
        made = self.decode(params, self.encode(params, x)).reshape(len(x), -1)
        made, x = jnp.clip(made, 1e-6, 1 - 1e-6), x.reshape(len(x), -1)
        return -jnp.mean(jnp.sum(x * jnp.log(made) + (1 - x) * jnp.log(1 - made), 1))


class CodeGenerator(nn.Module):
    """Codes from latents and labels, for public use: two hidden layers, batch-normalised."""

    net: GeneratorNet
    code: int
    classes: int

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """z float [N, latent], labels int [N] -> codes [N, code]."""
        h = join(z, jax.nn.one_hot(labels, self.classes))
        for _ in range(2):
            h = nn.BatchNorm(use_running_average=not train, momentum=0.0, epsilon=1e-5,
                             use_fast_variance=False)(nn.Dense(self.net.hidden)(h))
            h = nn.relu(h)
        return on_sphere(nn.Dense(self.code)(h))


def on_sphere(codes: Array) -> Array:
    """[N, k] -> the same directions, of length sqrt(k)."""
    return codes * jax.lax.rsqrt(jnp.mean(codes**2, -1, keepdims=True) + 1e-8)


def double(x: Array) -> Array:
    """x [N, h, w, c] -> [N, 2 h, 2 w, c]: bilinear interpolation between the centres of pixels."""
    for axis in (1, 2):
        before = jnp.concatenate([jax.lax.slice_in_dim(x, 0, 1, axis=axis),
                                  jax.lax.slice_in_dim(x, 0, -1, axis=axis)], axis)
        after = jnp.concatenate([jax.lax.slice_in_dim(x, 1, None, axis=axis),
                                 jax.lax.slice_in_dim(x, -1, None, axis=axis)], axis)
        x = jnp.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], axis + 1)
        x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2:])
    return x


class Conv5x5(nn.Module):
    """A 5x5 convolution, zeros around the image, as one matrix product: each pixel's row of five is
    multiplied by all rows of the kernel at once, and the five results are added one line apart. In
    a compiled loop on CPUs the convolution of XLA is many times as slow."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [N, h, w, c] -> [N, h, w, features]."""
        n, height, width, c = x.shape
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (5, 5, c, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        x = jnp.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
        rows = jnp.concatenate([x[:, :, j:j + width] for j in range(5)], -1)
        lines = rows.reshape(-1, 5 * c) @ kernel.transpose(1, 2, 0, 3).reshape(5 * c, -1)
        lines = lines.reshape(n, height + 4, width, 5, self.features)
        return sum(lines[:, i:i + height, :, i] for i in range(5)) + bias
