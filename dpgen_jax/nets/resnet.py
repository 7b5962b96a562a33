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

from dpgen_jax.core.config import later
from dpgen_jax.core.ranges import require_decay
from dpgen_jax.core.types import Array, ImageSpec, UserError
from dpgen_jax.nets import spectral, warp
from dpgen_jax.nets.convolution import convolve3, convolve3_doubled, convolve3_few, double
from dpgen_jax.nets.image import check_widths, join
from dpgen_jax.nets.spectral import Arrays


@dataclasses.dataclass(frozen=True)
class ResNetNet:
    """Widths of the generator; the defaults are the published ones."""

    latent: int = 10
    """Bits of a latent."""
    width: int = 256
    """Channels of all inner maps."""
    warp: float = later(0.0)
    """Each image is turned, sheared, scaled and moved by an affine map whose entries are up to this
    far from the identity's (`nets.warp`); 0: images are not moved, as published."""

    def __post_init__(self) -> None:
        require_decay(warp=self.warp)
        check_widths(self)


@dataclasses.dataclass(frozen=True)
class ResNet:
    """The generator as functions of a dict of weights.

    Raises:
        UserError: for images below 4x4.
    """

    net: ResNetNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        if min(self.spec.height, self.spec.width) < 4:
            raise UserError(f"images: {self.spec.height} x {self.spec.width} pixels are too small "
                            "for a ResNet generator; it needs 4 x 4 or more")

    @property
    def doublings(self) -> int:
        """The number of blocks: from about 4 pixels to the longer side; 3 for 28 and 32."""
        return max(1, round(math.log2(max(self.spec.height, self.spec.width) / 4)))

    def init(self, key: Array) -> dict[str, Arrays]:
        """Draws {"weights": by layer, "vectors": of the power iteration, by layer}.

        PyTorch's default initialisation, as published (`spectral.init`).
        """
        width, (h, w) = self.net.width, self._base()
        layers: dict[str, tuple[int, ...]] = {
            "linear": (self.net.latent + self.spec.classes, h * w * width)}
        for i in range(self.doublings):
            layers |= {f"first{i}": (3, 3, width, width), f"second{i}": (3, 3, width, width),
                       f"shortcut{i}": (width, width)}
        layers["last"] = (3, 3, width, self.spec.channels)
        weights, vectors = spectral.init(key, layers, {})
        return {"weights": weights, "vectors": vectors}

    def _base(self) -> tuple[int, int]:
        """Height and width of the first maps; doubled, they cover the image."""
        cover = 2**self.doublings
        return -(-self.spec.height // cover), -(-self.spec.width // cover)

    def latents(self, key: Array, n: int) -> Array:
        """Draws z float32 [n, latent], each entry 0 or 1 with probability 1/2.

        Where images are moved, z is [n, latent + 6]: behind the bits are the entries of the affine
        map, uniform in +-net.warp.
        """
        bits = jax.random.bernoulli(key, 0.5, (n, self.net.latent)).astype(jnp.float32)
        if not self.net.warp:
            return bits
        entries = jax.random.uniform(jax.random.fold_in(key, 1), (n, warp.ENTRIES),
                                     minval=-self.net.warp, maxval=self.net.warp)
        return join(bits, entries)

    def generate(self, weights: Arrays, vectors: Arrays, z: Array, labels: Array) -> Array:
        """Generates images for training.

        The weights are divided by their largest singular values as one power iteration from the
        stored vectors finds them; the vectors are constants of the gradient.

        Args:
            weights: as `init` returns them.
            vectors: likewise.
            z: as `latents` draws them.
            labels: int [n].

        Returns:
            Images [n, H, W, ch] in [0, 1].
        """
        return self.sample(spectral.normalise(weights, vectors)[0], z, labels)

    def iterate(self, weights: Arrays, vectors: Arrays) -> Arrays:
        """Returns the vectors after one power iteration."""
        return spectral.normalise(weights, vectors)[1]

    def freeze(self, weights: Arrays, vectors: Arrays) -> Arrays:
        """Returns the model that is released: the weights divided by their singular values.

        These are found with twenty further power iterations.
        """
        vectors = jax.lax.fori_loop(0, 20, lambda _, v: self.iterate(weights, v), vectors)
        return spectral.normalise(weights, vectors)[0]

    def sample(self, model: Arrays, z: Array, labels: Array) -> Array:
        """Generates images [n, H, W, ch] in [0, 1] from z, as `latents` draws them, and labels."""
        return self.moved(jax.nn.sigmoid(self.logits(model, z, labels)), z)

    def moved(self, images: Array, z: Array) -> Array:
        """Returns the images [n, H, W, ch] as the affine maps in z move them."""
        if not self.net.warp:
            return images
        return warp.affine(images, z[:, self.net.latent:], warp.beyond(self.spec.channels))

    def logits(self, model: Arrays, z: Array, labels: Array) -> Array:
        """Returns the logits [n, H, W, ch] of the pixels of these images before they are moved."""
        bits, onehot = z[:, :self.net.latent], jax.nn.one_hot(labels, self.spec.classes)
        h = join(bits, onehot) @ model["linear"] + model["linear_bias"]
        h = pixel_norm(jax.nn.relu(h.reshape(len(z), *self._base(), self.net.width)))
        for i in range(self.doublings):
            h = _block(model, i, h)
        h = _cropped(convolve3_few(h, model["last"]), self.spec)
        return h + model["last_bias"]


def pixel_norm(x: Array) -> Array:
    """Scales x [..., c] to a mean square of 1 over the channels of each pixel."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-10)


def _block(p: Arrays, i: int, x: Array) -> Array:
    """One residual block: maps [n, h, w, c] -> [n, 2 h, 2 w, c]."""
    c = x.shape[-1]
    h = _convolve3_doubled(pixel_norm(x), p[f"first{i}"]) + p[f"first{i}_bias"]
    h = jax.nn.relu(pixel_norm(h))
    h = _convolve3(h, p[f"second{i}"].reshape(9 * c, c)) + p[f"second{i}_bias"]
    return h + double(x @ p[f"shortcut{i}"] + p[f"shortcut{i}_bias"])


# These keep the map for the backward pass and not its shifted copies.
_convolve3 = jax.checkpoint(convolve3)
_convolve3_doubled = jax.checkpoint(convolve3_doubled)


def _cropped(x: Array, spec: ImageSpec) -> Array:
    """Crops maps [n, h, w, ch] to the image.

    On an axis with two pixels to spare the published convolution has no padding, so the image
    starts at pixel 1.
    """
    top, left = int(x.shape[1] >= spec.height + 2), int(x.shape[2] >= spec.width + 2)
    return x[:, top:top + spec.height, left:left + spec.width]
