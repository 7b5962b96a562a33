"""The fakes that critics and classifiers learn from: one public pool, or drawn anew for each step.

A pool is generated once for all units of a round. Without one (`pool` 0) a query holds the public
generator itself, and each unit draws fakes of its own records' labels for each of its steps, as
Algorithm 1 of GS-WGAN and of DP-GAN-DPAC has it. Either way fakes are a function of public values
and of labels that stay with the unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec, PyTree
from dpgen_jax.methods.shared.critic_config import CriticConfig
from dpgen_jax.nets.resnet import ResNet


@dataclasses.dataclass(frozen=True)
class Fakes:
    """Three functions of the fakes of a round.

    Attributes:
        of_round: `of_round(pool, model)` -> what a query holds of these two, of the fakes of each
            class float32 [C, P, H, W, ch] and the generator's normalised weights.
        of_labels: `of_labels(key, kept, labels)` -> fakes [m, H, W, ch] of the labels int [m], from
            what the query holds.
        of_any: `of_any(key, kept, most)` -> (fakes, labels), at most so many of all classes.
    """

    of_round: Callable[[Array, PyTree], PyTree]
    of_labels: Callable[[Array, PyTree, Array], Array]
    of_any: Callable[[Array, PyTree, int], tuple[Array, Array]]


def fakes(config: CriticConfig, spec: ImageSpec) -> Fakes:
    """Returns the fakes of the configuration: from a pool, or drawn anew where `pool` is 0."""
    return _pooled() if config.pool else _fresh(ResNet(config.generator, spec))


def minibatch(key: Array, n: int, most: int) -> Array:
    """Draws indices of min(n, most) of n records, without replacement."""
    return jnp.arange(n) if n <= most else jax.random.permutation(key, n)[:most]


def _pooled() -> Fakes:
    """Fakes from a pool of equally many of each class."""
    def of_labels(key: Array, pool: PyTree, labels: Array) -> Array:
        return pool[labels, jax.random.randint(key, labels.shape, 0, pool.shape[1])]

    def of_any(key: Array, pool: PyTree, most: int) -> tuple[Array, Array]:
        classes, size = pool.shape[:2]
        rows = minibatch(key, classes * size, most)
        return pool.reshape(-1, *pool.shape[2:])[rows], rows // size

    return Fakes(lambda pool, model: pool, of_labels, of_any)


def _fresh(net: ResNet) -> Fakes:
    """Fakes of latents that are drawn anew whenever fakes are needed."""
    def of_labels(key: Array, model: PyTree, labels: Array) -> Array:
        return net.sample(model, net.latents(key, len(labels)), labels)

    def of_any(key: Array, model: PyTree, most: int) -> tuple[Array, Array]:
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (most,), 0, net.spec.classes)
        return of_labels(k_z, model, labels), labels

    return Fakes(lambda pool, model: model, of_labels, of_any)
