"""The conditional table networks, and those of PATE-GAN.

An encoded row has three sorts of features (`types.Column`): values in [0, 1], null flags, and
one-hots. A fake row has probabilities for the last two, so that a discriminator's gradient reaches
the generator; a released row has draws.

`TableGenerator` and `TableDiscriminator` are fully connected, as those of PATE-GAN (Yoon et al.,
ICLR 2019); the label is concatenated as in `nets.image`.

`PateGanGenerator` and `PateGanDiscriminator` are the networks of PATE-GAN itself, which the G-PATE
paper runs on the credit card data. Source: Long et al., NeurIPS 2021, section 6.1 ("the same
architecture as PATE-GAN"), and the code with which the PATE-GAN paper (Jordon, Yoon and van der
Schaar, ICLR 2019) was written, as spalabucr/pategan-audit preserves it: two hidden layers of as
many units as a row has features, tanh in the generator and ReLU in the discriminator, the label
joined to the input of the first layer, latents of a quarter of the features, uniform on (-1, 1); no
normalisation. Here the label is one-hot, and columns of categories are a softmax as in
`TableGenerator`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, TableSpec
from dpgen_jax.nets.convolution import leaky_relu
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet, batch_normed, join

_INIT = nn.initializers.glorot_normal()
FIRST_SCALE = 0.25
"""Scale of the last layer's initial weights, relative to those of Glorot and Bengio."""


class TableGenerator(nn.Module):
    """Fake rows from latents and labels, for public use: two hidden layers of `net.hidden` units.

    Batch normalisation keeps the statistics of exactly one call, as in `image.Generator`. Initially
    the label has weight 0, and rows are close to the middle: under a small budget a generator
    changes little, and chance differences between classes would remain.
    """

    net: GeneratorNet
    spec: TableSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates fake rows [N, F] in [0, 1] from z float [N, latent], labels int [N]."""
        onehot = jax.nn.one_hot(labels, self.spec.classes)

        def dense(h: Array, width: int, scale: float = 1.0) -> Array:
            def init(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
                return (scale * _INIT(key, shape, dtype)).at[h.shape[-1]:].set(0)

            return nn.Dense(width, kernel_init=init)(join(h, onehot))

        h = z
        for _ in range(2):
            h = nn.relu(batch_normed(dense(h, self.net.hidden), train))
        return probabilities(dense(h, *self.spec.shape, FIRST_SCALE), self.spec)


def probabilities(logits: Array, spec: TableSpec) -> Array:
    """Maps logits [N, F] to a softmax over each one-hot, and a sigmoid of values and null flags."""
    block, is_onehot, _ = _layout(spec)
    # It keeps exp finite and cancels in the softmax, so that its gradient is exactly 0.
    highest = jax.lax.stop_gradient(_over_blocks(jax.ops.segment_max, logits, block))
    exp = jnp.exp(logits - highest)
    softmax = exp / _over_blocks(jax.ops.segment_sum, exp, block)
    return jnp.where(is_onehot, softmax, nn.sigmoid(logits))


def hard_rows(key: Array, fakes: Array, spec: TableSpec) -> Array:
    """Draws encoded rows from fake ones.

    Args:
        fakes: [N, F] in [0, 1].

    Returns:
        [N, F]: each one-hot and each null flag drawn with its probabilities; values unchanged.
    """
    block, is_onehot, is_flag = _layout(spec)
    k_onehot, k_flag = jax.random.split(key)
    score = jnp.log(fakes) + jax.random.gumbel(k_onehot, fakes.shape)
    place = jnp.arange(fakes.shape[-1])
    best = score == _over_blocks(jax.ops.segment_max, score, block)
    # Scores may tie, and a one-hot has a single 1.
    first = _over_blocks(jax.ops.segment_min, jnp.where(best, place, len(place)), block)
    flags = jax.random.uniform(k_flag, fakes.shape) < fakes
    return jnp.where(is_onehot, place == first, jnp.where(is_flag, flags, fakes))


def _layout(spec: TableSpec) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each feature [F] its block, and whether it is part of a one-hot, or a null flag."""
    sorts = [sort for column in spec.columns for sort, size in column.parts for _ in range(size)]
    block = np.repeat(np.arange(len(spec.blocks)), [stop - start for start, stop in spec.blocks])
    return block, np.array(sorts) == "onehot", np.array(sorts) == "flag"


def _over_blocks(reduce: Callable[..., Array], x: Array, block: np.ndarray) -> Array:
    """Reduces x [N, F] over each block, and gives each feature its block's value: [N, F]."""
    reduced = reduce(x.T, block, num_segments=int(block[-1]) + 1, indices_are_sorted=True)
    return reduced[block].T


@dataclasses.dataclass(frozen=True)
class _OfRows:
    """Base of both discriminators, whose first layer reads encoded rows."""

    net: DiscriminatorNet
    spec: TableSpec

    def features(self, x: Array) -> Array:
        """Returns sealed rows, float32 [..., F]."""
        return x

    def patches(self, x: Array) -> Array:
        """Returns fake rows [..., F]."""
        return x

    def apply(self, params: dict[str, Array], x: Array, labels: Array) -> Array:
        """Maps x [G, m, F], labels int [G, m] to logits [G, m]."""
        return self.apply_patches(params, x, labels)

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Computes `apply`."""
        raise NotImplementedError


class TableDiscriminator(_OfRows):
    """One unit's discriminator, conditional on integer labels, as functions of a dict of weights.

    Linear to `hidden` units, linear to hidden / 2, leaky ReLU 0.2 after each, linear to one logit;
    the label joined to the input of every layer. With each row it reads the spread of its group
    (the minibatch deviation of Karras et al. 2018, arXiv 1710.10196), by which it recognises a
    group of nearly equal fakes. Unlike the image networks it has no batch normalisation: after a
    group's mean is subtracted, the group no longer shows that all its fakes are in a wrong place.
    """

    def init(self, key: Array) -> dict[str, Array]:
        """Draws the weights: `linear1..3` [in, out] read the features, `label1..3` the label."""
        (rows,), classes, hidden = self.spec.shape, self.spec.classes, self.net.hidden
        widths = (2 * rows, hidden, max(1, hidden // 2), 1)
        params: dict[str, Array] = {}
        for i, k in enumerate(jax.random.split(key, 3), 1):
            into, out = widths[i - 1:i + 1]
            kernel = _INIT(k, (into + classes, out))
            params |= {f"linear{i}": kernel[:into], f"label{i}": kernel[into:],
                       f"bias{i}": jnp.zeros(out)}
        return params

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Maps patches [G, m, F], labels int [G, m] to logits [G, m]; statistics per g."""
        p, onehot = params, jax.nn.one_hot(labels, self.spec.classes)
        h = 2 * patches - 1
        # The constant keeps the gradient of the root finite where all rows of a group are equal.
        spread = jnp.sqrt(jnp.var(h, 1, keepdims=True) + 1e-4)
        h = jnp.concatenate([h, jnp.broadcast_to(spread, h.shape)], -1)
        for i in (1, 2):
            h = leaky_relu(h @ p[f"linear{i}"] + onehot @ p[f"label{i}"] + p[f"bias{i}"])
        return (h @ p["linear3"] + onehot @ p["label3"] + p["bias3"])[..., 0]


_PATEGAN_INIT = nn.initializers.he_normal()
"""Weights of variance 2 / inputs, as in the code of PATE-GAN."""


class PateGanGenerator(nn.Module):
    """Fake rows from latents and labels: two hidden layers of `net.hidden` units with tanh.

    Each row is a function of its own latent and label.
    """

    net: GeneratorNet
    spec: TableSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates fake rows [N, F] in [0, 1] from z float [N, latent], labels int [N]."""
        del train
        h = join(z, jax.nn.one_hot(labels, self.spec.classes))
        for _ in range(2):
            h = nn.tanh(nn.Dense(self.net.hidden, kernel_init=_PATEGAN_INIT)(h))
        return probabilities(nn.Dense(*self.spec.shape, kernel_init=_PATEGAN_INIT)(h), self.spec)


class PateGanDiscriminator(_OfRows):
    """One unit's discriminator, conditional on integer labels, as functions of a dict of weights.

    Two hidden layers of `net.hidden` units with ReLU, linear to one logit. It has the form of
    `TableDiscriminator`, but scores each row independently of its group.
    """

    def init(self, key: Array) -> dict[str, Array]:
        """Draws the weights: `linear1..3` [in, out], the first of which reads the label too."""
        (features,), hidden = self.spec.shape, self.net.hidden
        widths = (features + self.spec.classes, hidden, hidden, 1)
        return {f"linear{i + 1}": _PATEGAN_INIT(k, widths[i:i + 2])
                for i, k in enumerate(jax.random.split(key, 3))} | {
                    f"bias{i}": jnp.zeros(width) for i, width in enumerate(widths[1:], 1)}

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Maps patches [G, m, F], labels int [G, m] to logits [G, m]."""
        h = jnp.concatenate([patches, jax.nn.one_hot(labels, self.spec.classes)], -1)
        for i in (1, 2):
            h = nn.relu(h @ params[f"linear{i}"] + params[f"bias{i}"])
        return (h @ params["linear3"] + params["bias3"])[..., 0]


@dataclasses.dataclass(frozen=True)
class Student:
    """A linear function of the features of a record for each class, and one hidden layer for all.

    Fakes of one class are close together, and their labels show how they differ. So the student's
    input is the difference of a fake from the centre of its class in its query: `rank` votes
    compare fakes of one query, and do not show how two queries differ.
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
        """Returns logits [N] of fakes, as differences [N, D] from their centres, with labels."""
        onehot = jax.nn.one_hot(labels, self.classes)
        h = leaky_relu(jnp.concatenate([away, onehot], 1) @ params["hidden"] + params["bias"])
        linear = jnp.sum(away * params["linear"][labels], 1) / math.sqrt(self.features)
        return linear + h @ params["out"] + params["label"][labels]

    def centres(self, x: Array, labels: Array, before: Array) -> Array:
        """Returns the mean [C, D] of x [N, D] by class; the previous one for an empty class."""
        onehot = jax.nn.one_hot(labels, self.classes)
        sizes = onehot.sum(0)[:, None]
        return jnp.where(sizes > 0, onehot.T @ x / jnp.maximum(sizes, 1), before)
