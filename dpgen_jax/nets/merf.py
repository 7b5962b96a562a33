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

from dpgen_jax.core.types import Array, Column, ImageSpec, Spec, TableSpec
from dpgen_jax.nets.convolution import Conv5x5
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet, check_size, join
from dpgen_jax.nets.pair import Generator, pair
from dpgen_jax.nets.table import probabilities
from dpgen_jax.nets.warp import moved

PUBLISHED = GeneratorNet(latent=5, hidden=200, channels=16)


class ConvGenerator(nn.Module):
    """Images from latents and labels, for public use.

    There are `net.channels` channels at a quarter of the size, half as many at half of it. Batch
    normalisation keeps the statistics of exactly one call, as in `nets.image.Generator`.
    """

    net: GeneratorNet
    spec: ImageSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images [N, H, W, ch] in [0, 1] from z float [N, latent], labels int [N]."""
        net, spec = self.net, self.spec

        def normed(h: Array) -> Array:
            return nn.BatchNorm(use_running_average=not train, momentum=0.0, epsilon=1e-5,
                                use_fast_variance=False)(h)

        h = join(z, jax.nn.one_hot(labels, spec.classes))
        h = nn.relu(normed(nn.Dense(net.hidden)(h)))
        h = normed(nn.Dense(spec.height // 4 * (spec.width // 4) * net.channels)(h))
        h = h.reshape(-1, spec.height // 4, spec.width // 4, net.channels)
        h = nn.relu(Conv5x5(max(1, net.channels // 2))(double(h)))
        return nn.sigmoid(Conv5x5(spec.channels)(double(h)))


def generator(net: GeneratorNet, spec: Spec) -> Generator:
    """Returns the generator of images, or that of tables, as `pair.Generator`.

    The published latents are standard normal.

    Raises:
        UserError: for images whose height or width is no multiple of 4.
    """
    if isinstance(spec, TableSpec):
        return pair(spec, net, DiscriminatorNet())[0]
    check_size(spec)
    return Generator(moved(net, ConvGenerator(net, spec), spec), lambda key, images: images,
                     net.latent_distribution)


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
        """Draws Glorot normal weights: `w0..3` [in, out] and `b0..3` [out]."""
        numbers = math.prod(self.spec.shape)
        widths = (numbers, self.hidden, self.code, self.hidden, numbers)
        draw = jax.nn.initializers.glorot_normal()
        return {f"w{i}": draw(jax.random.fold_in(key, i), widths[i:i + 2]) for i in range(4)} | {
            f"b{i}": jnp.zeros(width) for i, width in enumerate(widths[1:])}

    @property
    def code_spec(self) -> TableSpec:
        """The schema of codes, as the rows of a table of numbers."""
        columns = tuple(Column(f"code {i}", "continuous", -1.0, 1.0) for i in range(self.code))
        classes = tuple(map(str, range(self.spec.classes)))
        return TableSpec(columns, Column("class", "categorical", categories=classes), self.code)

    def encode(self, params: dict[str, Array], x: Array) -> Array:
        """Maps x [N, *spec.shape] in [0, 1] to codes [N, code]."""
        h = jnp.tanh(2 * (x.reshape(len(x), -1) - 0.5) @ params["w0"] + params["b0"])
        return on_sphere(h @ params["w1"] + params["b1"])

    def logits(self, params: dict[str, Array], codes: Array) -> Array:
        """Maps codes [N, code] to logits [N, F]."""
        h = jnp.tanh(codes @ params["w2"] + params["b2"])
        return h @ params["w3"] + params["b3"]

    def decode(self, params: dict[str, Array], codes: Array) -> Array:
        """Maps codes [N, code] to fakes [N, *spec.shape] in [0, 1], as generators make them."""
        logits = self.logits(params, codes)
        fakes = (probabilities(logits, self.spec) if isinstance(self.spec, TableSpec)
                 else nn.sigmoid(logits))
        return fakes.reshape(-1, *self.spec.shape)

    def loss(self, params: dict[str, Array], x: Array) -> Array:
        """Returns the binary cross-entropy: a sum over numbers, and a mean over the records x."""
        decoded = self.decode(params, self.encode(params, x)).reshape(len(x), -1)
        decoded, x = jnp.clip(decoded, 1e-6, 1 - 1e-6), x.reshape(len(x), -1)
        return -jnp.mean(jnp.sum(x * jnp.log(decoded) + (1 - x) * jnp.log(1 - decoded), 1))


class CodeGenerator(nn.Module):
    """Codes from latents and labels, for public use: two hidden layers, batch-normalised."""

    net: GeneratorNet
    code: int
    classes: int

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates codes [N, code] from z float [N, latent] and labels int [N]."""
        h = join(z, jax.nn.one_hot(labels, self.classes))
        for _ in range(2):
            h = nn.BatchNorm(use_running_average=not train, momentum=0.0, epsilon=1e-5,
                             use_fast_variance=False)(nn.Dense(self.net.hidden)(h))
            h = nn.relu(h)
        return on_sphere(nn.Dense(self.code)(h))


def on_sphere(codes: Array) -> Array:
    """Scales codes [N, k] to the length sqrt(k)."""
    return codes * jax.lax.rsqrt(jnp.mean(codes**2, -1, keepdims=True) + 1e-8)


def double(x: Array) -> Array:
    """Doubles x [N, h, w, c] by bilinear interpolation between the centres of pixels."""
    for axis in (1, 2):
        before = jnp.concatenate([jax.lax.slice_in_dim(x, 0, 1, axis=axis),
                                  jax.lax.slice_in_dim(x, 0, -1, axis=axis)], axis)
        after = jnp.concatenate([jax.lax.slice_in_dim(x, 1, None, axis=axis),
                                 jax.lax.slice_in_dim(x, -1, None, axis=axis)], axis)
        x = jnp.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], axis + 1)
        x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2:])
    return x
