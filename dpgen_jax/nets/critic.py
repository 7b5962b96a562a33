"""The conditional critics of GS-WGAN, one for each unit, and DPAC's auxiliary classifier.

Source: the published codes of Chen, Orekondy and Fritz, "GS-WGAN", NeurIPS 2020, and of
DP-GAN-DPAC. Three convolutions 5x5, stride 2, padding 2, and ReLU, without normalisation by batch,
so that a record's score depends on no other record; then a linear layer. All weights are
spectrally normalised (`nets.spectral`). Written for one unit, to be vmapped over units.

With padding 2, output i reads inputs 2i-2 .. 2i+2, but `nets.blocks` reads 2i-1 .. 2i+3 on an even
size. Read backwards these are the same, so the image is mirrored along both axes, and a map of odd
size gets a row (column) of zeros at its front: exactly the published function, with kernels and the
last layer's inputs in mirrored order.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec
from dpgen_jax.nets import spectral
from dpgen_jax.nets.blocks import to_blocks
from dpgen_jax.nets.convolution import convolve, convolve_image
from dpgen_jax.nets.image import Shapes, check_size, check_widths
from dpgen_jax.nets.spectral import Arrays


@dataclasses.dataclass(frozen=True)
class CriticNet:
    """The width of a critic or classifier; the default is the published one."""

    width: int = 64
    """The three convolutions have width, 2 width and 4 width channels."""

    def __post_init__(self) -> None:
        check_widths(self)


@dataclasses.dataclass(frozen=True)
class _Network:
    """The part that critic and classifier share.

    Raises:
        UserError: unless height and width are multiples of 4.
    """

    net: CriticNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        check_size(self.spec)

    def normalise(self, weights: Arrays, vectors: Arrays) -> tuple[Arrays, Arrays]:
        """Takes one power iteration, `spectral.normalise`; biases pass through."""
        return spectral.normalise(weights, vectors)


class Critic(_Network):
    """A projection discriminator: linear(h) + <embedding of the label, h>, h the last maps."""

    def init(self, key: Array) -> tuple[Arrays, Arrays]:
        """Returns (weights, vectors).

        The weights are `conv1..3` [5, 5, in, out], `linear` [flat, 1], `embedding` [flat, C], and
        `<layer>_bias` of each but the embedding; each of the five layers has a vector.
        """
        layers = _layers(self.net, self.spec, outputs=1)
        flat = layers["linear"][0]
        return spectral.init(key, layers, {"embedding": (flat, self.spec.classes)})

    def apply(self, normalised: Arrays, x: Array, labels: Array) -> Array:
        """Scores records.

        Args:
            normalised: weights as `normalise` returns them.
            x: float [m, H, W, ch] in [0, 1].
            labels: int [m].

        Returns:
            Scores [m].
        """
        return at_label(self.scores(normalised, x), labels)

    def scores(self, normalised: Arrays, x: Array) -> Array:
        """Scores records x [m, H, W, ch] under every label: [m, C]; arguments as of `apply`."""
        heads = normalised["linear"] + normalised["embedding"]
        return _maps(normalised, x) @ heads + normalised["linear_bias"]


class Classifier(_Network):
    """DPAC's auxiliary classifier: the critic's convolutions and a linear layer to the classes."""

    def init(self, key: Array) -> tuple[Arrays, Arrays]:
        """Returns (weights, vectors): `conv1..3` [5, 5, in, out], `linear` [flat, C], biases."""
        return spectral.init(key, _layers(self.net, self.spec, self.spec.classes), {})

    def apply(self, normalised: Arrays, x: Array) -> Array:
        """Maps x float [m, H, W, ch] in [0, 1] to logits [m, C], with normalised weights."""
        return _maps(normalised, x) @ normalised["linear"] + normalised["linear_bias"]


def at_label(scores: Array, labels: Array) -> Array:
    """Returns the score under its label, [m], of scores [m, C] of records with labels int [m]."""
    return jnp.sum(scores * jax.nn.one_hot(labels, scores.shape[-1]), -1)


def class_score(logits: Array, labels: Array) -> Array:
    """Returns the label's logit minus the mean of the others, [m], of logits [m, C]."""
    classes = logits.shape[-1]
    onehot = jax.nn.one_hot(labels, classes)
    return jnp.sum(logits * (onehot - (1 - onehot) / max(classes - 1, 1)), -1)


def _layers(net: CriticNet, spec: ImageSpec, outputs: int) -> Shapes:
    """Three convolutions, each of which rounds half a size up, and a linear layer."""
    sizes = (spec.channels, net.width, 2 * net.width, 4 * net.width)
    layers: Shapes = {f"conv{i + 1}": (5, 5, *sizes[i:i + 2]) for i in range(3)}
    flat = -(-spec.height // 8) * -(-spec.width // 8) * sizes[3]
    return {**layers, "linear": (flat, outputs)}


def _maps(p: Arrays, x: Array) -> Array:
    """Maps x [m, H, W, ch] to the features [m, flat], mirrored."""
    y = convolve_image(x[:, ::-1, ::-1], p["conv1"])
    y = jax.nn.relu(y + jnp.tile(p["conv1_bias"], 4))
    y = jax.nn.relu(convolve(y, p["conv2"]) + p["conv2_bias"])
    h, w = y.shape[1:3]
    y = jnp.pad(y, ((0, 0), (h % 2, 0), (w % 2, 0), (0, 0)))
    y = jax.nn.relu(convolve(to_blocks(y), p["conv3"]) + p["conv3_bias"])
    return y.reshape(len(x), -1)
