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

from dpgen_jax.nets import image, paper, table, warp
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.types import Array, Spec, TableSpec, UserError

Layers = Literal["published", "paper"]
STATISTICS_BATCH = 2000
"""Public fakes by which normalisation is fixed."""


class Discriminator(Protocol):
    """One unit's discriminator, conditional on labels, to be vmapped over units.

    Batch normalisation uses the statistics of the call, separately for each group g.
    """

    def init(self, key: Array) -> Any:
        """The weights."""

    def features(self, x: Array) -> Array:
        """Sealed records (as in `Records`) -> what `apply_patches` reads of them. Depends on the
        records alone, so it can be computed once for many steps."""

    def patches(self, x: Array) -> Array:
        """Fakes [..., *spec.shape] -> what `apply_patches` reads of them."""

    def apply_patches(self, params: Any, patches: Array, labels: Array) -> Array:
        """patches [G, m, ...], labels int [G, m] -> logits [G, m]; statistics per g."""

    def apply(self, params: Any, x: Array, labels: Array) -> Array:
        """`apply_patches` of `patches(x)`, x [G, m, *spec.shape]."""


@dataclasses.dataclass(frozen=True)
class Generator:
    """A conditional generator, for public use.

    module: maps (z, labels, train) to fakes, and keeps the statistics of its last training call.
    release: maps (key, fakes) to records as they are released, each from its own fake alone.
    """

    module: nn.Module
    release: Callable[[Array, Array], Array]

    def init(self, key: Array) -> Any:
        """The weights."""
        z, labels = self.latents(key, 1), jnp.zeros(1, jnp.int32)
        return self.module.init(key, z, labels, train=True)["params"]

    def latents(self, key: Array, n: int) -> Array:
        """z [n, latent], uniform on (-1, 1)."""
        return image.latents(key, n, self.module.net)

    def generate(self, params: Any, z: Array, labels: Array) -> Array:
        """z [N, latent], labels int [N] -> fakes [N, *spec.shape], normalised with the statistics
        of this call: for training."""
        return self._train(params, z, labels)[0]

    def fakes(self, params: Any, key: Array, n: int, classes: int) -> tuple[Array, Array]:
        """n fakes as `generate` makes them, and their labels, drawn uniformly: never those of
        records."""
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (n,), 0, classes)
        return self.generate(params, self.latents(k_z, n), labels), labels

    def freeze(self, params: Any, z: Array, labels: Array) -> Any:
        """The model that `sample` takes: the weights, with the normalisation's statistics fixed to
        those of this batch, which should be large and, as all that a generator sees, public."""
        return {"params": params, **self._train(params, z, labels)[1]}

    def settle(self, params: Any, key: Array, classes: int) -> Any:
        """`freeze` by one large batch, of each class equally many."""
        labels = jnp.arange(STATISTICS_BATCH) % classes
        return self.freeze(params, self.latents(key, STATISTICS_BATCH), labels)

    def _train(self, params, z, labels):
        return self.module.apply({"params": params}, z, labels, train=True,
                                 mutable=["batch_stats"])

    def sample(self, model: Any, key: Array, z: Array, labels: Array) -> Array:
        """Records [N, *spec.shape] as released, each a function of its own latent and label (and,
        for tables, of its own draws from the key): images in [0, 1]; encoded table rows, with every
        one-hot and null flag drawn from its probabilities."""
        return self.release(key, self.module.apply(model, z, labels, train=False))

    def draw(self, model: Any, key: Array, labels: Array) -> Array:
        """`sample` with latents drawn from the key: `Method.sample`."""
        k_z, k_draw = jax.random.split(key)
        return self.sample(model, k_draw, self.latents(k_z, len(labels)), labels)


def pair(spec: Spec, generator: GeneratorNet, discriminator: DiscriminatorNet,
         layers: Layers = "published") -> tuple[Generator, Discriminator]:
    """The two networks for records of this schema.

    layers: of images, those of the published code (`nets.image`) or of the paper (`nets.paper`).
    Raises UserError for other layers, for a table with the paper's, and for images whose height or
    width is no multiple of 4.
    """
    if layers not in ("published", "paper"):
        raise UserError(f"layers is '{layers}'; it must be published or paper")
    if isinstance(spec, TableSpec):
        if layers == "paper":
            raise UserError("layers is 'paper', whose networks are for images; "
                            "leave it out for a table")
        module = warp.moved(generator, table.TableGenerator(generator, spec), spec)
        return (Generator(module, released(spec)),
                table.TableDiscriminator(discriminator, spec))
    if layers == "paper":
        nets = paper.PaperGenerator, paper.PaperDiscriminator
    else:
        nets = image.Generator, image.Discriminator
    return (Generator(warp.moved(generator, nets[0](generator, spec), spec), released(spec)),
            nets[1](discriminator, spec))


def released(spec: Spec) -> Callable[[Array, Array], Array]:
    """From (key, fakes) to records as they are released: `Generator.release`."""
    if isinstance(spec, TableSpec):
        return functools.partial(table.hard_rows, spec=spec)
    return lambda key, images: images
