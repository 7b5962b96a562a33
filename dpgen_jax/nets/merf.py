"""The random features and the generators of DP-MERF.

DP-MERF's embedding is the mean of random features of norm 1, cosines and sines of random
projections, whose inner product is a Gaussian kernel on average (Rahimi and Recht, "Random Features
for Large-Scale Kernel Machines", NeurIPS 2007). Each feature reads all of a record, or a window of
it: a square of an image, a few columns of a table. The kernel is then a mean of kernels on windows,
which captures the shape of a stroke or the relation of two columns; a kernel on whole records
captures little more than means and coarse shapes. The features are a function of the declared
schema and a public key, and not of any record.

`ConvGenerator` is ConvCondGen of the published code of Harder, Adamczewski and Park, "DP-MERF:
Differentially Private Mean Embeddings with Random Features for Practical Privacy-Preserving Data
Generation", AISTATS 2021. The latent and the one-hot label go through two linear layers with batch
normalisation to maps at a quarter of the image's size; twice these are doubled in size by bilinear
interpolation and convolved, 5x5.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, Column, ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.nets.convolution import Conv5x5
from dpgen_jax.nets.image import (
    DiscriminatorNet,
    GeneratorNet,
    batch_normed,
    check_size,
    join,
    moved,
)
from dpgen_jax.nets.pair import Generator, pair
from dpgen_jax.nets.table import probabilities


@dataclasses.dataclass(frozen=True)
class RandomFeatures:
    """The random features phi(x) of a record x, a vector of Euclidean norm 1.

    It consists of a constant, so that a mean of phi shows how many records there were; the one-hots
    of a table; and cosines and sines.

    Attributes:
        spec: schema of the records.
        count: cosines and sines.
        windows: sides in pixels, or numbers of columns, which features use in turn; 0 is the whole
            record.
        bandwidths: likewise, per pixel or column read: the kernel on a window of k of them is
            exp(-|x - x'|^2 / (2 bandwidth k)).
        constant: share of the constant in the squared norm.
        onehots: share of the one-hots; a table without categories gives it to the cosines and
            sines.

    Raises:
        UserError: for fields that are out of range.
    """

    spec: Spec
    count: int
    windows: tuple[int, ...]
    bandwidths: tuple[float, ...]
    constant: float
    onehots: float

    def __post_init__(self) -> None:
        if self.count < 2 or self.count % 2:
            raise UserError(f"features is {self.count}; it must be an even number of 2 or above")
        if not self.windows or min(self.windows) < 0:
            raise UserError(f"windows is {self.windows}; give one or more, each 0 or above")
        if len(self.bandwidths) not in (1, len(self.windows)) or not min(self.bandwidths) > 0:
            raise UserError(f"bandwidths is {self.bandwidths}; give one above 0, or one for each "
                            f"of {len(self.windows)} windows")
        if not (self.constant > 0 and self.onehots >= 0 and self.constant + self.onehots < 1):
            raise UserError(f"constant is {self.constant} and onehots {self.onehots}; they are "
                            "shares of 1, of which something must be left")

    @property
    def _categories(self) -> np.ndarray:
        """Places of one-hots among the features of a row."""
        onehots = [np.arange(a, b) for a, b in _blocks(self.spec) if b - a > 1]
        return np.concatenate([np.zeros(0, int), *onehots])

    @property
    def columns(self) -> int:
        """D, the length of phi(x)."""
        return 1 + len(self._categories) + self.count

    def draw(self, key: Array) -> Array:
        """Draws the frequencies [F, count / 2], F the numbers of a record."""
        k_normal, k_window = jax.random.split(key)
        n = self.count // 2
        which = np.arange(n) % len(self.windows)
        window = np.array(self.windows)[which]
        bandwidth = np.array(self.bandwidths)[which % len(self.bandwidths)]
        if isinstance(self.spec, ImageSpec):
            mask, read = _squares(k_window, window, self.spec)
        else:
            mask, read = _columns(k_window, window, self.spec)
        normal = jax.random.normal(k_normal, (math.prod(self.spec.shape), n))
        return mask * normal / np.sqrt(bandwidth * read)

    def embed(self, frequencies: Array, x: Array) -> Array:
        """Maps x [N, *spec.shape] in [0, 1] to phi(x) [N, D]."""
        x = x.reshape(len(x), -1)
        phase = x @ frequencies
        categories = self._categories
        parts = [jnp.full((len(x), 1), math.sqrt(self.constant))]
        left = 1 - self.constant
        if categories.size:
            n_onehots = sum(b - a > 1 for a, b in _blocks(self.spec))
            parts.append(math.sqrt(self.onehots / n_onehots) * x[:, categories])
            left -= self.onehots
        scale = math.sqrt(left / phase.shape[1])
        return jnp.concatenate([*parts, scale * jnp.cos(phase), scale * jnp.sin(phase)], 1)


def _blocks(spec: Spec) -> tuple[tuple[int, int], ...]:
    """The blocks of a table's features; an image has none."""
    return spec.blocks if isinstance(spec, TableSpec) else ()


def _squares(key: Array, window: np.ndarray, spec: ImageSpec) -> tuple[Array, np.ndarray]:
    """A mask bool [F, n] of squares at random places, and the number of values in each."""
    inside, sizes = [], []
    for k, length in zip(jax.random.split(key), (spec.height, spec.width), strict=True):
        size = np.where((window == 0) | (window > length), length, window)
        first = jax.random.randint(k, size.shape, 0, length - size + 1)
        place = np.arange(length)[:, None]
        inside.append(jnp.asarray((place >= first) & (place < first + size)))
        sizes.append(size)
    channels = np.ones((spec.channels, 1), bool)
    mask: Array = inside[0][:, None, None] & inside[1][None, :, None] & channels
    return mask.reshape(-1, len(window)), sizes[0] * sizes[1] * spec.channels


def _columns(key: Array, window: np.ndarray, spec: TableSpec) -> tuple[Array, np.ndarray]:
    """A mask bool [F, n] of random columns, and their number in each; a one-hot counts as one."""
    blocks = spec.blocks
    read = np.where((window == 0) | (window > len(blocks)), len(blocks), window)
    order = jnp.argsort(jax.random.uniform(key, (len(blocks), len(window))), axis=0)
    # The rank of a random order: those below k are k columns without replacement.
    rank = jnp.argsort(order, axis=0)
    return jnp.repeat(rank < read, np.array([b - a for a, b in blocks]), axis=0), read


PUBLISHED = GeneratorNet(latent=5, hidden=200, channels=16)


class ConvGenerator(nn.Module):
    """Images from latents and labels, for public use.

    It has `net.channels` channels at a quarter of the size, and half as many at half of it. Batch
    normalisation keeps the statistics of exactly one call, as in `nets.image.Generator`.
    """

    net: GeneratorNet
    spec: ImageSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images [N, H, W, ch] in [0, 1] from z float [N, latent], labels int [N]."""
        net, spec = self.net, self.spec
        normed = functools.partial(batch_normed, train=train)
        h = join(z, jax.nn.one_hot(labels, spec.classes))
        h = nn.relu(normed(nn.Dense(net.hidden)(h)))
        h = normed(nn.Dense(spec.height // 4 * (spec.width // 4) * net.channels)(h))
        h = h.reshape(-1, spec.height // 4, spec.width // 4, net.channels)
        h = nn.relu(Conv5x5(max(1, net.channels // 2))(double(h)))
        return nn.sigmoid(Conv5x5(spec.channels)(double(h)))


def generator(net: GeneratorNet, spec: Spec) -> Generator:
    """Returns the generator for images or for tables, as `pair.Generator`.

    The published latents are standard normal.

    Raises:
        UserError: for images whose height or width is not a multiple of 4.
    """
    if isinstance(spec, TableSpec):
        return pair(spec, net, DiscriminatorNet())[0]
    check_size(spec)
    return Generator(moved(net, ConvGenerator(net, spec), spec), lambda key, images: images,
                     net.latent_distribution)


@dataclasses.dataclass(frozen=True)
class Autoencoder:
    """Records to codes and back, as functions of a dict of weights: one hidden layer each way.

    It has no batch normalisation, which would couple records. Codes have length sqrt(code) for
    every record, so a kernel on codes needs no bandwidth estimated from them.
    """

    hidden: int
    code: int
    spec: Spec

    def init(self, key: Array) -> dict[str, Array]:
        """Draws Glorot normal weights: `w0..3` [in, out] and `b0..3` [out]."""
        numbers = math.prod(self.spec.shape)
        widths = (numbers, self.hidden, self.code, self.hidden, numbers)
        draw = jax.nn.initializers.glorot_normal()
        return {f"w{i}": draw(jax.random.fold_in(key, i), widths[i:i + 2]) for i in range(4)} | {
            f"b{i}": jnp.zeros(width) for i, width in enumerate(widths[1:])}

    @property
    def code_spec(self) -> TableSpec:
        """The schema of codes, as the rows of a table of numbers."""
        columns = tuple(Column(f"code {i}", "continuous", -1.0, 1.0) for i in range(self.code))
        classes = tuple(map(str, range(self.spec.classes)))
        return TableSpec(columns, Column("class", "categorical", categories=classes), self.code)

    def encode(self, params: dict[str, Array], x: Array) -> Array:
        """Maps x [N, *spec.shape] in [0, 1] to codes [N, code]."""
        h = jnp.tanh(2 * (x.reshape(len(x), -1) - 0.5) @ params["w0"] + params["b0"])
        return on_sphere(h @ params["w1"] + params["b1"])

    def logits(self, params: dict[str, Array], codes: Array) -> Array:
        """Maps codes [N, code] to logits [N, F]."""
        h = jnp.tanh(codes @ params["w2"] + params["b2"])
        return h @ params["w3"] + params["b3"]

    def decode(self, params: dict[str, Array], codes: Array) -> Array:
        """Maps codes [N, code] to fakes [N, *spec.shape] in [0, 1]."""
        logits = self.logits(params, codes)
        fakes = (probabilities(logits, self.spec) if isinstance(self.spec, TableSpec)
                 else nn.sigmoid(logits))
        return fakes.reshape(-1, *self.spec.shape)

    def loss(self, params: dict[str, Array], x: Array) -> Array:
        """Returns the binary cross-entropy: a sum over numbers, and a mean over the records x."""
        decoded = self.decode(params, self.encode(params, x)).reshape(len(x), -1)
        decoded, x = jnp.clip(decoded, 1e-6, 1 - 1e-6), x.reshape(len(x), -1)
        return -jnp.mean(jnp.sum(x * jnp.log(decoded) + (1 - x) * jnp.log(1 - decoded), 1))


class CodeGenerator(nn.Module):
    """Codes from latents and labels, for public use: two hidden layers, batch-normalised."""

    net: GeneratorNet
    code: int
    classes: int

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates codes [N, code] from z float [N, latent] and labels int [N]."""
        h = join(z, jax.nn.one_hot(labels, self.classes))
        for _ in range(2):
            h = nn.relu(batch_normed(nn.Dense(self.net.hidden)(h), train))
        return on_sphere(nn.Dense(self.code)(h))


def on_sphere(codes: Array) -> Array:
    """Scales codes [N, k] to the length sqrt(k)."""
    return codes * jax.lax.rsqrt(jnp.mean(codes**2, -1, keepdims=True) + 1e-8)


def double(x: Array) -> Array:
    """Doubles x [N, h, w, c] by bilinear interpolation between the centres of pixels."""
    for axis in (1, 2):
        before = jnp.concatenate([jax.lax.slice_in_dim(x, 0, 1, axis=axis),
                                  jax.lax.slice_in_dim(x, 0, -1, axis=axis)], axis)
        after = jnp.concatenate([jax.lax.slice_in_dim(x, 1, None, axis=axis),
                                 jax.lax.slice_in_dim(x, -1, None, axis=axis)], axis)
        x = jnp.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], axis + 1)
        x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2:])
    return x
