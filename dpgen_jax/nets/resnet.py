"""The networks of GS-WGAN: a residual generator, its critics, and spectral normalisation.

Source: the published codes of Chen, Orekondy and Fritz, "GS-WGAN", NeurIPS 2020, and of
DP-GAN-DPAC, which uses the same generator and adds an auxiliary classifier.

Generator (`ResNet`). Binary latents and the one-hot label; a linear layer to maps of about 4x4,
ReLU, pixel normalisation; blocks that double the size; a 3x3 convolution and a sigmoid. There is no
normalisation by batch: each image is a function of its own latent and label. One block is, as
published: h = pixel_norm(x); h and x are doubled (nearest neighbour); conv 3x3; pixel_norm; ReLU;
conv 3x3; plus a 1x1 convolution of the doubled x. Doubling commutes with pixel normalisation and
with the 1x1 convolution, so both come first, on a quarter of the pixels; and a 3x3 convolution of a
doubled map reads 2x2 pixels of the map itself, with taps added up.

Critics and classifier (`Critic`, `Classifier`), written for one unit and vmapped over units. Three
convolutions 5x5, stride 2, padding 2, and ReLU, without normalisation by batch, so that a record's
score depends on no other record; then a linear layer. With padding 2, output i reads inputs 2i-2 ..
2i+2, but `nets.convolution` reads 2i-1 .. 2i+3 on an even size. Reversed these are the same, so the
image is mirrored along both axes, and a map of odd size gets a row (column) of zeros at its start.
This is exactly the published function, with kernels and the last layer's inputs in mirrored order.

All weights are spectrally normalised by power iteration (Miyato et al., ICLR 2018), as the
published GS-WGAN code runs it: one iteration a call. There the two vectors are parameters that Adam
also changes; here they are only the result of the iteration.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from dpgen_jax.core.config import later, require_decay
from dpgen_jax.core.types import Array, ImageSpec, UserError
from dpgen_jax.nets import image
from dpgen_jax.nets.convolution import (
    convolve,
    convolve3,
    convolve3_doubled,
    convolve3_few,
    convolve_image,
    double,
    to_blocks,
)
from dpgen_jax.nets.image import Shapes, check_size, check_widths, join

Arrays = dict[str, Array]


def spectral_normalise(weights: Arrays, vectors: Arrays) -> tuple[Arrays, Arrays]:
    """Divides weights by their largest singular value, estimated by one power iteration.

    A weight counts as a matrix W with a row for each output. With v = W^T u and u = W v, each
    scaled to length 1, it is divided by sigma = u^T W v, in which u and v, unlike W, are constants
    for the gradient.

    Args:
        weights: arrays by name; those without a vector are unchanged.
        vectors: for each layer to normalise its vector u, with the length of the weight's last axis
            (the outputs of the layer).

    Returns:
        The normalised weights, and the new vectors.
    """
    normalised, moved = dict(weights), {}
    for name, u in vectors.items():
        w = weights[name].reshape(-1, len(u))
        # One step of the power iteration, whose vectors are constants of the gradient.
        v = jax.lax.stop_gradient(unit_vector(w @ u))
        image = v @ w
        moved[name] = jax.lax.stop_gradient(unit_vector(image))
        normalised[name] = weights[name] / (moved[name] @ image + 1e-12)
    return normalised, moved


def unit_vector(x: Array) -> Array:
    """Scales x to length 1; zeros stay zeros."""
    return x / (jnp.linalg.norm(x) + 1e-12)


def spectral_init(key: Array, uniform: Shapes, normal: Shapes) -> tuple[Arrays, Arrays]:
    """Returns (weights, vectors) of layers of these shapes [..., in, out], by name.

    The defaults of PyTorch, which the published codes use.

    Args:
        uniform: linear layers and convolutions: uniform within 1 / sqrt(inputs of an output), as
            are their biases `<name>_bias` [out].
        normal: embeddings: normal with variance 1, and no bias. Vectors have uniform directions.
    """
    k_uniform, k_normal = jax.random.split(key)
    lengths = {name: shape[-1:] for name, shape in {**uniform, **normal}.items()}
    arrays = image.cut(lambda shape: jax.random.normal(k_normal, shape),
                       [*normal.values(), *lengths.values()])
    weights = dict(zip(normal, arrays, strict=False))
    vectors = {name: unit_vector(u) for name, u in zip(lengths, arrays[len(normal):], strict=True)}
    biases = [shape[-1:] for shape in uniform.values()]
    arrays = image.cut(lambda shape: jax.random.uniform(k_uniform, shape, minval=-1.0),
                       [*uniform.values(), *biases])
    for name, w, bias in zip(uniform, arrays, arrays[len(uniform):], strict=False):
        inputs = math.prod(w.shape[:-1])
        weights |= {name: w / math.sqrt(inputs), f"{name}_bias": bias / math.sqrt(inputs)}
    return weights, vectors


@dataclasses.dataclass(frozen=True)
class ResNetNet:
    """Widths of the generator; the defaults are the published ones."""

    latent: int = 10
    """Bits of a latent."""
    width: int = 256
    """Channels of all inner maps."""
    warp: float = later(0.0)
    """Each image is turned, sheared, scaled and moved by an affine map whose entries are up to this
    far from the identity's (`nets.image`); 0: images are not moved, as published."""

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

        PyTorch's default initialisation, as published (`spectral_init`).
        """
        width, (h, w) = self.net.width, self._base()
        layers: dict[str, tuple[int, ...]] = {
            "linear": (self.net.latent + self.spec.classes, h * w * width)}
        for i in range(self.doublings):
            layers |= {f"first{i}": (3, 3, width, width), f"second{i}": (3, 3, width, width),
                       f"shortcut{i}": (width, width)}
        layers["last"] = (3, 3, width, self.spec.channels)
        weights, vectors = spectral_init(key, layers, {})
        return {"weights": weights, "vectors": vectors}

    def _base(self) -> tuple[int, int]:
        """Height and width of the first maps; doubled, they cover the image."""
        cover = 2**self.doublings
        return -(-self.spec.height // cover), -(-self.spec.width // cover)

    def latents(self, key: Array, n: int) -> Array:
        """Draws z float32 [n, latent], each entry 0 or 1 with probability 1/2.

        If images are moved, z is [n, latent + 6]: the bits are followed by the entries of the
        affine map, uniform in +-net.warp.
        """
        bits = jax.random.bernoulli(key, 0.5, (n, self.net.latent)).astype(jnp.float32)
        if not self.net.warp:
            return bits
        entries = jax.random.uniform(jax.random.fold_in(key, 1), (n, image.WARP_ENTRIES),
                                     minval=-self.net.warp, maxval=self.net.warp)
        return join(bits, entries)

    def generate(self, weights: Arrays, vectors: Arrays, z: Array, labels: Array) -> Array:
        """Generates images for training: [n, H, W, ch] in [0, 1].

        The weights are divided by their largest singular values, estimated by one power iteration
        from the stored vectors, which are constants for the gradient.

        Args:
            weights: from `init`.
            vectors: likewise.
            z: from `latents`.
            labels: int [n].
        """
        return self.sample(spectral_normalise(weights, vectors)[0], z, labels)

    def iterate(self, weights: Arrays, vectors: Arrays) -> Arrays:
        """Returns the vectors after one power iteration."""
        return spectral_normalise(weights, vectors)[1]

    def freeze(self, weights: Arrays, vectors: Arrays) -> Arrays:
        """Returns the released model: the weights divided by their singular values.

        These are computed with twenty further power iterations.
        """
        vectors = jax.lax.fori_loop(0, 20, lambda _, v: self.iterate(weights, v), vectors)
        return spectral_normalise(weights, vectors)[0]

    def sample(self, model: Arrays, z: Array, labels: Array) -> Array:
        """Generates images [n, H, W, ch] in [0, 1] from z (`latents`) and labels."""
        return self.moved(jax.nn.sigmoid(self.logits(model, z, labels)), z)

    def moved(self, images: Array, z: Array) -> Array:
        """Moves images [n, H, W, ch] by the affine maps in z."""
        if not self.net.warp:
            return images
        return image.affine(images, z[:, self.net.latent:], image.beyond(self.spec.channels))

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

    On an axis with two extra pixels the published convolution has no padding, so the image starts
    at pixel 1.
    """
    top, left = int(x.shape[1] >= spec.height + 2), int(x.shape[2] >= spec.width + 2)
    return x[:, top:top + spec.height, left:left + spec.width]


@dataclasses.dataclass(frozen=True)
class CriticNet:
    """The width of a critic or classifier; the default is the published one."""

    width: int = 64
    """The three convolutions have width, 2 width and 4 width channels."""

    def __post_init__(self) -> None:
        check_widths(self)


@dataclasses.dataclass(frozen=True)
class _Network:
    """Base of critic and classifier.

    Raises:
        UserError: unless height and width are multiples of 4.
    """

    net: CriticNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        check_size(self.spec)

    def normalise(self, weights: Arrays, vectors: Arrays) -> tuple[Arrays, Arrays]:
        """Applies `spectral_normalise` with one power iteration; biases are unchanged."""
        return spectral_normalise(weights, vectors)


class Critic(_Network):
    """A projection discriminator: linear(h) + <embedding of the label, h>, h the last maps."""

    def init(self, key: Array) -> tuple[Arrays, Arrays]:
        """Returns (weights, vectors).

        The weights are `conv1..3` [5, 5, in, out], `linear` [flat, 1], `embedding` [flat, C], and
        `<layer>_bias` of each but the embedding; each of the five layers has a vector.
        """
        layers = _layers(self.net, self.spec, outputs=1)
        flat = layers["linear"][0]
        return spectral_init(key, layers, {"embedding": (flat, self.spec.classes)})

    def apply(self, normalised: Arrays, x: Array, labels: Array) -> Array:
        """Scores records: [m].

        Args:
            normalised: weights from `normalise`.
            x: float [m, H, W, ch] in [0, 1].
            labels: int [m].
        """
        return at_label(self.scores(normalised, x), labels)

    def scores(self, normalised: Arrays, x: Array) -> Array:
        """Scores records x [m, H, W, ch] under every label: [m, C]; arguments as in `apply`."""
        heads = normalised["linear"] + normalised["embedding"]
        return _maps(normalised, x) @ heads + normalised["linear_bias"]


class Classifier(_Network):
    """DPAC's auxiliary classifier: the critic's convolutions and a linear layer to the classes."""

    def init(self, key: Array) -> tuple[Arrays, Arrays]:
        """Returns (weights, vectors): `conv1..3` [5, 5, in, out], `linear` [flat, C], biases."""
        return spectral_init(key, _layers(self.net, self.spec, self.spec.classes), {})

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
    """Three convolutions, each of which halves sizes, rounding up, and a linear layer."""
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
