"""The student discriminator of PATE-GAN, which is public."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array
from dpgen_jax.nets.blocks import leaky_relu


@dataclasses.dataclass(frozen=True)
class Student:
    """A linear function of the features of a record for each class, and one hidden layer for all.

    Fakes of one class lie close together, and their labels say in which way they differ. So the
    student reads how far a fake lies from the centre of its class in the query it belongs to:
    `rank` votes compare fakes of one query, and say nothing of how two queries differ.
    """

    hidden: int
    features: int
    classes: int

    def init(self, key: Array) -> dict[str, Array]:
        """Draws the weights."""
        width = self.features + self.classes
        return {"linear": jnp.zeros((self.classes, self.features)),
                "hidden": jax.random.normal(key, (width, self.hidden)) / math.sqrt(width),
                "bias": jnp.zeros(self.hidden), "out": jnp.zeros(self.hidden),
                "label": jnp.zeros(self.classes)}

    def apply(self, params: dict[str, Array], away: Array, labels: Array) -> Array:
        """Returns the logits [N] of fakes away [N, D] from their centre, with labels int [N]."""
        onehot = jax.nn.one_hot(labels, self.classes)
        h = leaky_relu(jnp.concatenate([away, onehot], 1) @ params["hidden"] + params["bias"])
        linear = jnp.sum(away * params["linear"][labels], 1) / math.sqrt(self.features)
        return linear + h @ params["out"] + params["label"][labels]

    def centres(self, x: Array, labels: Array, before: Array) -> Array:
        """Returns the mean [C, D] of x [N, D] of each class; of an empty class, that before."""
        onehot = jax.nn.one_hot(labels, self.classes)
        sizes = onehot.sum(0)[:, None]
        return jnp.where(sizes > 0, onehot.T @ x / jnp.maximum(sizes, 1), before)
