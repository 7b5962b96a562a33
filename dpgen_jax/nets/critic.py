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

from dpgen_jax.nets import spectral
from dpgen_jax.nets.blocks import convolve, first_kernel, windows
from dpgen_jax.nets.image import Shapes, _check_widths, check_size
from dpgen_jax.nets.spectral import Arrays
from dpgen_jax.types import Array, ImageSpec


@dataclasses.dataclass(frozen=True)
class CriticNet:
    """The width of a critic or classifier; the default is the published one."""

    width: int = 64
    """The three convolutions have width, 2 width and 4 width channels."""

    def __post_init__(self):
        _check_widths(self)


@dataclasses.dataclass(frozen=True)
class _Network:
    """What critic and classifier share. Raises UserError unless height and width are multiples
    of 4."""

    net: CriticNet
    spec: ImageSpec

    def __post_init__(self):
        check_size(self.spec)

    def normalise(self, weights: Arrays, vectors: Arrays) -> tuple[Arrays, Arrays]:
        """`spectral.normalise`: one power iteration, biases pass through."""
        return spectral.normalise(weights, vectors)


class Critic(_Network):
    """A projection discriminator: linear(h) + <embedding of the label, h>, h the last maps."""

    def init(self, key: Array) -> tuple[Arrays, Arrays]:
        """(weights, vectors): `conv1..3` [5, 5, in, out], `linear` [flat, 1], `embedding`
        [flat, C], and `<layer>_bias` of each but the embedding; a vector of each of the five."""
        layers = _layers(self.net, self.spec, outputs=1)
        flat = layers["linear"][0]
        return spectral.init(key, layers, {"embedding": (flat, self.spec.classes)})

    def score(self, normalised: Arrays, x: Array, labels: Array) -> Array:
        """x float [m, H, W, ch] in [0, 1], labels int [m] -> scores [m]."""
        heads = normalised["linear"] + normalised["embedding"]
        scores = _maps(normalised, x) @ heads + normalised["linear_bias"]
        return jnp.sum(scores * jax.nn.one_hot(labels, self.spec.classes), -1)


class Classifier(_Network):
    """DPAC's auxiliary classifier: the critic's convolutions and a linear layer to the classes."""

    def init(self, key: Array) -> tuple[Arrays, Arrays]:
        """(weights, vectors): `conv1..3` [5, 5, in, out], `linear` [flat, C], and their biases."""
        return spectral.init(key, _layers(self.net, self.spec, self.spec.classes), {})

    def logits(self, normalised: Arrays, x: Array) -> Array:
        """x float [m, H, W, ch] in [0, 1] -> [m, C]."""
        return _maps(normalised, x) @ normalised["linear"] + normalised["linear_bias"]


def class_score(logits: Array, labels: Array) -> Array:
    """logits [m, C], labels int [m] -> the label's logit minus the mean of the others, [m]."""
    classes = logits.shape[-1]
    at_label = jax.nn.one_hot(labels, classes)
    return jnp.sum(logits * (at_label - (1 - at_label) / max(classes - 1, 1)), -1)


def _layers(net: CriticNet, spec: ImageSpec, outputs: int) -> Shapes:
    """Three convolutions, each of which rounds half a size up, and a linear layer."""
    sizes = (spec.channels, net.width, 2 * net.width, 4 * net.width)
    layers = {f"conv{i + 1}": (5, 5, *sizes[i:i + 2]) for i in range(3)}
    flat = -(-spec.height // 8) * -(-spec.width // 8) * sizes[3]
    return layers | {"linear": (flat, outputs)}


def _maps(p: Arrays, x: Array) -> Array:
    """x [m, H, W, ch] -> the features [m, flat], mirrored."""
    m, h, w = len(x), x.shape[1] // 4, x.shape[2] // 4
    y = windows(x[:, ::-1, ::-1]).reshape(m * h * w, -1) @ first_kernel(p["conv1"])
    y = jax.nn.relu(y + jnp.tile(p["conv1_bias"], 4)).reshape(m, h, w, -1)
    y = jax.nn.relu(convolve(y, p["conv2"]) + p["conv2_bias"])
    y = jax.nn.relu(convolve(_in_blocks(y), p["conv3"]) + p["conv3_bias"])
    return y.reshape(m, -1)


def _in_blocks(x: Array) -> Array:
    """x [m, h, w, c] -> blocks [m, ceil(h / 2), ceil(w / 2), 4 c], with zeros in front."""
    m, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (h % 2, 0), (w % 2, 0), (0, 0)))
    x = x.reshape(m, -(-h // 2), 2, -(-w // 2), 2, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(m, -(-h // 2), -(-w // 2), 4 * c)
