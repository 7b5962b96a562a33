"""The generator of GS-WGAN: a spectrally normalised residual network, for public use.

Source: the published code of Chen, Orekondy and Fritz, "GS-WGAN", NeurIPS 2020 (DP-GAN-DPAC uses
the same). Binary latents and the one-hot label; a linear layer to maps of about 4x4, ReLU, pixel
normalisation; blocks that double the size; a 3x3 convolution and a sigmoid. There is no
normalisation by batch: each image is a function of its own latent and label.

One block is, as published: h = pixel_norm(x); h and x are doubled (nearest neighbour); conv 3x3;
pixel_norm; ReLU; conv 3x3; plus a 1x1 convolution of the doubled x. Doubling commutes with pixel
normalisation and with the 1x1 convolution, so both come first, on a quarter of the pixels; and a
3x3 convolution of a doubled map reads 2x2 pixels of the map itself, with taps added up.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.nets import spectral
from dpgen_jax.nets.blocks import convolve3
from dpgen_jax.nets.image import _check_widths, join
from dpgen_jax.nets.spectral import Arrays
from dpgen_jax.types import Array, ImageSpec, UserError


@dataclasses.dataclass(frozen=True)
class ResNetNet:
    """Widths of the generator; the defaults are the published ones."""

    latent: int = 10
    width: int = 256
    """Channels of all inner maps."""

    def __post_init__(self):
        _check_widths(self)


@dataclasses.dataclass(frozen=True)
class ResNet:
    """The generator as functions of a dict of weights. Raises UserError for images below 4x4."""

    net: ResNetNet
    spec: ImageSpec

    def __post_init__(self):
        if min(self.spec.height, self.spec.width) < 4:
            raise UserError(f"images: {self.spec.height} x {self.spec.width} pixels are too small "
                            "for a ResNet generator; it needs 4 x 4 or more")

    @property
    def doublings(self) -> int:
        """Blocks: as many as lead from about 4 pixels to the longer side; 3 for 28 and 32."""
        return max(1, round(math.log2(max(self.spec.height, self.spec.width) / 4)))

    def init(self, key: Array) -> dict[str, Arrays]:
        """{"weights": by layer, "vectors": of the power iteration, by layer}: PyTorch's default
        initialisation, as published (`spectral.init`)."""
        width, (h, w) = self.net.width, self._base()
        layers = {"linear": (self.net.latent + self.spec.classes, h * w * width)}
        for i in range(self.doublings):
            layers |= {f"first{i}": (3, 3, width, width), f"second{i}": (3, 3, width, width),
                       f"shortcut{i}": (width, width)}
        layers["last"] = (3, 3, width, self.spec.channels)
        weights, vectors = spectral.init(key, layers, {})
        return {"weights": weights, "vectors": vectors}

    def _base(self) -> tuple[int, int]:
        """Height and width of the first maps; doubled, they cover the image."""
        return tuple(-(-side // 2**self.doublings) for side in self.spec.shape[:2])

    def latents(self, key: Array, n: int) -> Array:
        """z float32 [n, latent], each entry 0 or 1 with probability 1/2."""
        return jax.random.bernoulli(key, 0.5, (n, self.net.latent)).astype(jnp.float32)

    def generate(self, weights: Arrays, vectors: Arrays, z: Array, labels: Array) -> Array:
        """z [n, latent], labels int [n] -> images [n, H, W, ch] in (0, 1), for training.

        The weights are divided by their largest singular values as one power iteration from the
        stored vectors finds them; the vectors are constants of the gradient.
        """
        return self.sample(spectral.normalise(weights, vectors)[0], z, labels)

    def iterate(self, weights: Arrays, vectors: Arrays) -> Arrays:
        """The vectors after one power iteration."""
        return spectral.normalise(weights, vectors)[1]

    def freeze(self, weights: Arrays, vectors: Arrays) -> Arrays:
        """The model that is released: the weights divided by their singular values, found with
        twenty further power iterations."""
        vectors = jax.lax.fori_loop(0, 20, lambda _, v: self.iterate(weights, v), vectors)
        return spectral.normalise(weights, vectors)[0]

    def sample(self, model: Arrays, z: Array, labels: Array) -> Array:
        """z [n, latent], labels int [n] -> images [n, H, W, ch] in (0, 1)."""
        onehot = jax.nn.one_hot(labels, self.spec.classes)
        h = join(z, onehot) @ model["linear"] + model["linear_bias"]
        h = pixel_norm(jax.nn.relu(h.reshape(len(z), *self._base(), self.net.width)))
        for i in range(self.doublings):
            h = _block(model, i, h)
        return jax.nn.sigmoid(_last(h, model["last"], self.spec) + model["last_bias"])


def pixel_norm(x: Array) -> Array:
    """x [..., c] -> the same with a mean square of 1 over the channels of each pixel."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-10)


def _block(p: Arrays, i: int, x: Array) -> Array:
    """x [n, h, w, c] -> [n, 2 h, 2 w, c]."""
    c = x.shape[-1]
    h = doubled_convolve(pixel_norm(x), p[f"first{i}"]) + p[f"first{i}_bias"]
    h = jax.nn.relu(pixel_norm(h))
    h = _convolve3(h, p[f"second{i}"].reshape(9 * c, c)) + p[f"second{i}_bias"]
    return h + double(x @ p[f"shortcut{i}"] + p[f"shortcut{i}_bias"])


# Keeps the map for the backward pass and not its nine shifted copies.
_convolve3 = jax.checkpoint(convolve3)


def double(x: Array) -> Array:
    """x [n, h, w, c] -> [n, 2 h, 2 w, c], each pixel four times."""
    n, h, w, c = x.shape
    return jnp.broadcast_to(x[:, :, None, :, None], (n, h, 2, w, 2, c)).reshape(n, 2 * h, 2 * w, c)


# How three taps read a doubled row: [parity of the output, which of the two rows it reads, tap].
_FOLD = np.array([[[1, 0, 0], [0, 1, 1]], [[1, 1, 0], [0, 0, 1]]], np.float32)


@jax.checkpoint
def doubled_convolve(x: Array, kernel: Array) -> Array:
    """`double(x)` convolved with kernel [3, 3, c, out]: x [n, h, w, c] -> [n, 2 h, 2 w, out]."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = jnp.concatenate([x[:, r:r + h + 1, s:s + w + 1] for r in (0, 1) for s in (0, 1)], -1)
    folded = jnp.einsum("art,bsu,tuco->rscabo", _FOLD, _FOLD, kernel).reshape(4 * c, -1)
    y = (corners @ folded).reshape(n, h + 1, w + 1, 2, 2, -1)
    # Outputs of parity (a, b) around pixel (i, j) read the four pixels at corner (i + a, j + b).
    rows = [jnp.stack([y[:, a:a + h, b:b + w, a, b] for b in (0, 1)], 3) for a in (0, 1)]
    return jnp.stack(rows, 2).reshape(n, 2 * h, 2 * w, -1)


def _last(x: Array, kernel: Array, spec: ImageSpec) -> Array:
    """The 3x3 convolution of x [n, h, w, c], cropped to the image.

    On an axis with two pixels to spare it is the published one without padding, which starts at
    pixel 1. The product comes first and the shifts after, because there are fewer outputs than c.
    """
    n, h, w, c = x.shape
    y = (x @ kernel.transpose(2, 0, 1, 3).reshape(c, -1)).reshape(n, h, w, 9, -1)
    y = jnp.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0), (0, 0)))
    top, left = int(h >= spec.height + 2), int(w >= spec.width + 2)
    return sum(y[:, top + i:top + i + spec.height, left + j:left + j + spec.width, 3 * i + j]
               for i in range(3) for j in range(3))
