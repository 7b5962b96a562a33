"""One interface to the networks of images and tables: a generator and a unit's discriminator.

A method calls `pair` and is then written for both kinds of records. Fakes are float32 of the shape
[N, *spec.shape] in [0, 1], and differentiable; released records are what users get.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, PyTree, Spec, TableSpec, UserError
from dpgen_jax.nets import image, paper, pategan, table, warp
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet, LatentDistribution

Layers = Literal["published", "paper"]
STATISTICS_BATCH = 2000
"""Public fakes by which normalisation is fixed."""


class Discriminator(Protocol):
    """A unit's discriminator, conditional on labels, to be vmapped over units.

    Batch normalisation uses the statistics of the call, separately for each group g.
    """

    def init(self, key: Array) -> PyTree:
        """Draws the weights."""

    def features(self, x: Array) -> Array:
        """Gathers what `apply_patches` reads of sealed records x (as in `Records`).

        It depends on the records alone, so it can be computed once for many steps.
        """

    def patches(self, x: Array) -> Array:
        """Gathers what `apply_patches` reads of fakes x [..., *spec.shape]."""

    def apply_patches(self, params: PyTree, patches: Array, labels: Array) -> Array:
        """Maps patches [G, m, ...], labels int [G, m] to logits [G, m]; statistics per g."""

    def apply(self, params: PyTree, x: Array, labels: Array) -> Array:
        """Does as `apply_patches` of `patches(x)`, for x [G, m, *spec.shape]."""


@dataclasses.dataclass(frozen=True)
class Generator:
    """A conditional generator, for public use.

    Attributes:
        module: maps (z, labels, train) to fakes, and keeps the statistics of its last call with
            train.
        release: maps (key, fakes) to records as they are released, each from its own fake alone.
        distribution: of the latents.
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
            params: the weights.
            z: [N, latent].
            labels: int [N].

        Returns:
            Fakes [N, *spec.shape].
        """
        return self._train(params, z, labels)[0]

    def fakes(self, params: PyTree, key: Array, n: int, classes: int) -> tuple[Array, Array]:
        """Generates n fakes, and returns them with their labels.

        Labels are drawn uniformly: they are never those of records.
        """
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (n,), 0, classes)
        return self.generate(params, self.latents(k_z, n), labels), labels

    def freeze(self, params: PyTree, z: Array, labels: Array) -> PyTree:
        """Returns the model that `sample` takes: the weights and fixed statistics of normalisation.

        The statistics are those of this batch, which should be large and, as all that a generator
        sees, public.
        """
        return {"params": params, **self._train(params, z, labels)[1]}

    def settle(self, params: PyTree, key: Array, classes: int) -> PyTree:
        """Freezes the weights by one large batch, of each class equally many."""
        labels = jnp.arange(STATISTICS_BATCH) % classes
        return self.freeze(params, self.latents(key, STATISTICS_BATCH), labels)

    def _train(self, params: PyTree, z: Array, labels: Array) -> PyTree:
        """(fakes, the statistics of this call)."""
        return self.module.apply({"params": params}, z, labels, train=True,
                                 mutable=["batch_stats"])

    def sample(self, model: PyTree, key: Array, z: Array, labels: Array) -> Array:
        """Generates records as they are released.

        Each is a function of its own latent and label (and, for tables, of its own draws from the
        key).

        Args:
            model: as `freeze` returns it.
            key: of the draws of table rows.
            z: [N, latent].
            labels: int [N].

        Returns:
            [N, *spec.shape]: images in [0, 1]; encoded table rows, with every one-hot and null flag
            drawn from its probabilities.
        """
        fakes: Any = self.module.apply(model, z, labels, train=False)
        return self.release(key, fakes)

    def draw(self, model: PyTree, key: Array, labels: Array) -> Array:
        """Does as `sample`, with latents drawn from the key: `Method.sample`."""
        k_z, k_draw = jax.random.split(key)
        return self.sample(model, k_draw, self.latents(k_z, len(labels)), labels)


def pair(spec: Spec, generator: GeneratorNet, discriminator: DiscriminatorNet,
         layers: Layers = "published") -> tuple[Generator, Discriminator]:
    """Returns the two networks for records of this schema.

    Args:
        spec: the schema.
        generator: widths of the generator.
        discriminator: widths of the discriminator.
        layers: of images those of the published code (`nets.image`) or of the paper (`nets.paper`);
            of tables this library's (`nets.table`) or of the paper (`nets.pategan`).

    Raises:
        UserError: for other layers, and for images whose height or width is no multiple of 4.
    """
    if layers not in ("published", "paper"):
        raise UserError(f"layers is '{layers}'; it must be published or paper")
    if isinstance(spec, TableSpec):
        rows: nn.Module = table.TableGenerator(generator, spec)
        critic: Discriminator = table.TableDiscriminator(discriminator, spec)
        if layers == "paper":
            rows = pategan.PateGanGenerator(generator, spec)
            critic = pategan.PateGanDiscriminator(discriminator, spec)
        return Generator(warp.moved(generator, rows, spec), released(spec),
                         generator.latent_distribution), critic
    if layers == "paper":
        images: nn.Module = paper.PaperGenerator(generator, spec)
        judge: Discriminator = paper.PaperDiscriminator(discriminator, spec)
    else:
        images = image.Generator(generator, spec)
        judge = image.Discriminator(discriminator, spec)
    return Generator(warp.moved(generator, images, spec), released(spec),
                     generator.latent_distribution), judge


def released(spec: Spec) -> Callable[[Array, Array], Array]:
    """Returns `Generator.release` for this schema: from (key, fakes) to released records."""
    if isinstance(spec, TableSpec):
        return functools.partial(table.hard_rows, spec=spec)
    return lambda key, images: images
