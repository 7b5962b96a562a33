"""One interface to networks for images and tables, and networks for single records.

A method that uses `pair` works for both kinds of records. Fakes are float32 of the shape [N,
*spec.shape] in [0, 1], and differentiable; released records are what users get.

`Conv` and `Mlp` are discriminators for the gradients of single records; `MlpGenerator` is their
counterpart of linear layers. The discriminators have no batch normalisation and no statistics over
a batch: with those a record would change the gradients of other records, and clipping each gradient
would not bound its effect. They have few parameters, since the noise of a DP-SGD step grows with
their number.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec, PyTree, Spec, TableSpec, UserError
from dpgen_jax.nets import image, table
from dpgen_jax.nets.convolution import convolve, convolve_image, leaky_relu
from dpgen_jax.nets.image import (
    DiscriminatorNet,
    GeneratorNet,
    LatentDistribution,
    check_size,
    join,
)
from dpgen_jax.nets.table import probabilities

Layers = Literal["published", "paper"]
STATISTICS_BATCH = 2000
"""The number of public fakes from which the statistics of normalisation are computed."""


class Discriminator(Protocol):
    """A unit's discriminator, conditional on labels, to be vmapped over units.

    Batch normalisation uses the statistics of the call, separately for each group g.
    """

    def init(self, key: Array) -> PyTree:
        """Draws the weights."""

    def features(self, x: Array) -> Array:
        """Gathers the inputs of `apply_patches` for sealed records x (as in `Records`).

        It depends only on the records, so it can be computed once for many steps.
        """

    def patches(self, x: Array) -> Array:
        """Gathers the inputs of `apply_patches` for fakes x [..., *spec.shape]."""

    def apply_patches(self, params: PyTree, patches: Array, labels: Array) -> Array:
        """Maps patches [G, m, ...], labels int [G, m] to logits [G, m]; statistics per g."""

    def apply(self, params: PyTree, x: Array, labels: Array) -> Array:
        """Computes `apply_patches` of `patches(x)`, for x [G, m, *spec.shape]."""


@dataclasses.dataclass(frozen=True)
class Generator:
    """A conditional generator, for public use.

    Attributes:
        module: maps (z, labels, train) to fakes, and keeps the statistics of its last call with
            train.
        release: maps (key, fakes) to records in released form, each from its own fake only.
    """

    module: nn.Module
    release: Callable[[Array, Array], Array]
    distribution: LatentDistribution = "uniform"

    def init(self, key: Array) -> PyTree:
        """Draws the weights."""
        z, labels = self.latents(key, 1), jnp.zeros(1, jnp.int32)
        return self.module.init(key, z, labels, train=True)["params"]

    def latents(self, key: Array, n: int) -> Array:
        """Draws z [n, latent]."""
        return image.latents(key, n, self.module.net.latent, self.distribution)

    def generate(self, params: PyTree, z: Array, labels: Array) -> Array:
        """Generates fakes for training, normalised with the statistics of this call.

        Args:
            z: [N, latent].
            labels: int [N].

        Returns:
            Fakes [N, *spec.shape].
        """
        return self._train(params, z, labels)[0]

    def fakes(self, params: PyTree, key: Array, n: int, classes: int) -> tuple[Array, Array]:
        """Generates n fakes, and returns them with their labels.

        Labels are drawn uniformly, never from records.
        """
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (n,), 0, classes)
        return self.generate(params, self.latents(k_z, n), labels), labels

    def freeze(self, params: PyTree, z: Array, labels: Array) -> PyTree:
        """Returns the model for `sample`: the weights and fixed statistics of normalisation.

        The statistics are those of this batch, which should be large and must be public.
        """
        return {"params": params, **self._train(params, z, labels)[1]}

    def settle(self, params: PyTree, key: Array, classes: int) -> PyTree:
        """Freezes the weights with one large batch, balanced over classes."""
        labels = jnp.arange(STATISTICS_BATCH) % classes
        return self.freeze(params, self.latents(key, STATISTICS_BATCH), labels)

    def _train(self, params: PyTree, z: Array, labels: Array) -> PyTree:
        """(fakes, the statistics of this call)."""
        return self.module.apply({"params": params}, z, labels, train=True,
                                 mutable=["batch_stats"])

    def sample(self, model: PyTree, key: Array, z: Array, labels: Array) -> Array:
        """Generates records in released form.

        Each is a function of its own latent and label (and, for tables, of its own draws from the
        key).

        Args:
            model: from `freeze`.
            key: for the draws of table rows.
            z: [N, latent].
            labels: int [N].

        Returns:
            [N, *spec.shape]: images in [0, 1]; encoded table rows, with every one-hot and null flag
            drawn from its probabilities.
        """
        fakes: Any = self.module.apply(model, z, labels, train=False)
        return self.release(key, fakes)

    def draw(self, model: PyTree, key: Array, labels: Array) -> Array:
        """Calls `sample` with latents drawn from the key: `Method.sample`."""
        k_z, k_draw = jax.random.split(key)
        return self.sample(model, k_draw, self.latents(k_z, len(labels)), labels)


def pair(spec: Spec, generator: GeneratorNet, discriminator: DiscriminatorNet,
         layers: Layers = "published") -> tuple[Generator, Discriminator]:
    """Returns the two networks for records of this schema.

    Args:
        layers: for images those of the published code or of the paper (`nets.image`); for tables
            this library's or those of the paper (`nets.table`).

    Raises:
        UserError: for other layers, and for images whose height or width is not a multiple of 4.
    """
    if layers not in ("published", "paper"):
        raise UserError(f"layers is '{layers}'; it must be published or paper")
    if isinstance(spec, TableSpec):
        rows: nn.Module = table.TableGenerator(generator, spec)
        critic: Discriminator = table.TableDiscriminator(discriminator, spec)
        if layers == "paper":
            rows = table.PateGanGenerator(generator, spec)
            critic = table.PateGanDiscriminator(discriminator, spec)
        return Generator(image.moved(generator, rows, spec), released(spec),
                         generator.latent_distribution), critic
    if layers == "paper":
        images: nn.Module = image.PaperGenerator(generator, spec)
        judge: Discriminator = image.PaperDiscriminator(discriminator, spec)
    else:
        images = image.Generator(generator, spec)
        judge = image.Discriminator(discriminator, spec)
    return Generator(image.moved(generator, images, spec), released(spec),
                     generator.latent_distribution), judge


def released(spec: Spec) -> Callable[[Array, Array], Array]:
    """Returns `Generator.release` for this schema: (key, fakes) to released records."""
    if isinstance(spec, TableSpec):
        return functools.partial(table.hard_rows, spec=spec)
    return lambda key, images: images


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

    The score has a part shared by all classes and one for each class (the projection of Miyato and
    Koyama, ICLR 2018).
    """

    net: ConvNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        check_size(self.spec)

    def init(self, key: Array) -> Params:
        """Draws He normal weights, so signals keep their size and scores start small."""
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
    """Linear layers with the label concatenated to the input of each, and one to the score.

    Attributes:
        hidden: widths of the layers before the last.
        spec: schema of the records.
        slope: the activation is slope * x if x is above 0,
        leak: and leak * x below.
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
    """Linear layers with `slope` times ReLU, and the label concatenated to the input of each.

    A module for `Generator`. Each record is a function of its own latent and label.
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
