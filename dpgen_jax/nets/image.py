"""The conditional image networks of G-PATE and DataLens, by their code and by the paper.

The generator is public and runs once for all units. The discriminator is written for one unit and
is vmapped over units, each with its own weights: see `Discriminator` for its form.

`Generator` and `Discriminator` are the networks of the published G-PATE and DataLens codes: two
linear layers and two 5x5 deconvolutions; two 5x5 convolutions and two linear layers. The label is
concatenated to the input of every layer.

`PaperGenerator` and `PaperDiscriminator` are the networks that appendix E of the G-PATE paper
prints (Long et al., NeurIPS 2021), which its code does not run. Generator: a linear layer of 1024
units and a deconvolution of 64 kernels 5x5, stride 2. Discriminator: a convolution of 32 kernels
5x5, stride 2, and a linear layer of 256 units. Batch normalisation and leaky ReLU on all layers,
with the label concatenated to each. The paper names hidden layers only; the rest is our reading of
it: the linear layer's units are the first maps, at a quarter of the image's size (1024 units are 21
maps of 7x7, rounded, for 28x28 pixels), a second deconvolution with a sigmoid leads to the image,
and a linear layer to the logit; leaky ReLU is 0.2.

`Warped` moves generated images by affine maps that are computed from the latents. Images of one
thing differ by rotation, shear, scale and position, whatever the thing is; a generator that
collapses to a few shapes for each class then still shows each of them with such variation (Simard,
Steinkraus and Platt, ICDAR 2003, move training images in this way). It is prior knowledge about
images: none of it is read from records.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.config import later, require_decay
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import Array, ImageSpec, Spec, TableSpec, UserError
from dpgen_jax.nets.convolution import (
    batch_norm,
    convolve,
    deconvolve,
    first_kernel,
    label_maps,
    leaky_relu,
    to_blocks,
    windows,
)

_INIT = nn.initializers.normal(0.02)
LatentDistribution = Literal["uniform", "gaussian"]


@dataclasses.dataclass(frozen=True)
class GeneratorNet:
    """A generator; the default widths are the published ones (latent 50 or 100)."""

    latent: int = 50
    hidden: int = 1024
    channels: int = 128
    """Images only: channels of the inner maps, at a quarter and at half of the image's size."""
    warp: float = 0.0
    """Images only: each image is turned, sheared, scaled and moved by an affine map whose entries
    are up to this far from the identity's (`nets.image`); 0: images are not moved"""
    latent_distribution: LatentDistribution = later("uniform")
    """uniform: between -1 and 1, as in the published codes; gaussian: standard normal, as in the
    DataLens paper"""

    def __post_init__(self) -> None:
        require_decay(warp=self.warp)
        distribution = self.latent_distribution
        if distribution not in get_args(LatentDistribution):
            raise UserError(f"latent_distribution is '{distribution}'; it must be "
                            "uniform or gaussian")
        if self.warp and distribution != "uniform":
            raise UserError(f"warp is {self.warp}, and its maps are read off bounded latents; set "
                            "latent_distribution to uniform, or warp to 0")
        check_widths(self)


@dataclasses.dataclass(frozen=True)
class DiscriminatorNet:
    """Widths of a discriminator; None means the published width, which depends on the data."""

    channels1: int | None = None
    """Images only: output channels of the first convolution; published: image channels + classes
    (the code), 32 (the G-PATE paper)."""
    channels2: int | None = None
    """Images only: output channels of the second convolution; published: 32 + classes (the code);
    the G-PATE paper has none."""
    hidden: int = 256

    def __post_init__(self) -> None:
        check_widths(self)

    def resolve(self, spec: ImageSpec) -> tuple[int, int, int]:
        """Returns (channels1, channels2, hidden) for records of this schema."""
        return (self.channels1 or spec.channels + spec.classes,
                self.channels2 or 32 + spec.classes, self.hidden)


def check_widths(net: object) -> None:
    """Raises UserError unless all integer fields are 1 or above."""
    for name, width in vars(net).items():
        if isinstance(width, int) and width < 1:
            raise UserError(f"{name} is {width}; it must be 1 or above")


def check_size(spec: ImageSpec) -> None:
    """Raises UserError unless height and width are multiples of 4: both networks halve twice."""
    if spec.height % 4 or spec.width % 4 or min(spec.height, spec.width) < 4:
        side = max(4, 4 * round(max(spec.height, spec.width) / 4))
        raise UserError(f"images: {spec.height} x {spec.width} pixels are not multiples of 4; "
                        f"resize them, for example with {option('image_size', side)}")


class Generator(nn.Module):
    """Images from latents and labels, for public use.

    Batch normalisation keeps the statistics of exactly one call: after one call with `train=True`
    and `mutable=['batch_stats']` on a large public batch, calls with `train=False` give each image
    as a function of its own latent and label only.
    """

    net: GeneratorNet
    spec: ImageSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images [N, H, W, ch] in [0, 1].

        Args:
            z: float [N, latent], from `latents`.
            labels: int [N].
            train: whether batch normalisation uses and keeps the statistics of this call.

        Raises:
            UserError: unless height and width are multiples of 4.
        """
        check_size(self.spec)
        net, spec = self.net, self.spec
        height, width = spec.height // 4, spec.width // 4
        onehot = jax.nn.one_hot(labels, spec.classes)

        def normed(h: Array) -> Array:
            return nn.relu(batch_normed(h, train))

        h = normed(nn.Dense(net.hidden, kernel_init=_INIT)(join(z, onehot)))
        h = normed(nn.Dense(height * width * net.channels, kernel_init=_INIT)(join(h, onehot)))
        h = h.reshape(-1, height, width, net.channels)
        h = normed(_Deconv(net.channels)(join(h, onehot)))
        return nn.sigmoid(_Deconv(spec.channels)(join(h, onehot)))


def batch_normed(h: Array, train: bool) -> Array:
    """Normalises h by a layer of the calling module: see `Generator`."""
    return nn.BatchNorm(use_running_average=not train, momentum=0.0, epsilon=1e-5,
                        use_fast_variance=False)(h)


def join(x: Array, onehot: Array) -> Array:
    """Concatenates the label to x as further channels, constant over each map.

    From `x` [N, ..., c] and `onehot` [N, classes] to [N, ..., c + classes].
    """
    maps = onehot.reshape(len(onehot), *[1] * (x.ndim - 2), onehot.shape[-1])
    return jnp.concatenate([x, jnp.broadcast_to(maps, (*x.shape[:-1], onehot.shape[-1]))], -1)


class _Deconv(nn.Module):
    """A transposed convolution, 5x5, stride 2, SAME: [N, h, w, c] -> [N, 2 h, 2 w, features].

    The name of the class is part of the names of released arrays.
    """

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Applies it to x [N, h, w, c]."""
        kernel = self.param("kernel", _INIT, (5, 5, self.features, x.shape[-1]))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return deconvolve(x, kernel) + bias


Shapes = Mapping[str, tuple[int, ...]]


def initial_weights(key: Array, convolutional: Shapes, linear: Shapes, zeros: Shapes,
                    ones: Shapes) -> dict[str, Array]:
    """Draws weights as published, from shapes by name.

    Args:
        convolutional: kernels that are truncated normal with scale 0.02.
        linear: kernels that are normal with standard deviation 0.02.
        zeros: offsets.
        ones: scales.
    """
    # Two draws for all kernels: a draw for each takes as long to compile as the training step.
    k_conv, k_linear = jax.random.split(key)
    truncated = cut(lambda shape: 0.02 * jax.random.truncated_normal(k_conv, -2.0, 2.0, shape),
                    convolutional.values())
    normal = cut(lambda shape: 0.02 * jax.random.normal(k_linear, shape), linear.values())
    return (dict(zip(convolutional, truncated, strict=True))
            | dict(zip(linear, normal, strict=True))
            | {name: jnp.zeros(shape) for name, shape in zeros.items()}
            | {name: jnp.ones(shape) for name, shape in ones.items()})


def cut(draw: Callable[[tuple[int, ...]], Array], shapes: Collection[tuple[int, ...]]
        ) -> list[Array]:
    """Cuts arrays of these shapes from one draw."""
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    pieces = jnp.split(draw((ends[-1],)), ends[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


_DRAWS: dict[str, Callable[..., Array]] = {
    "uniform": functools.partial(jax.random.uniform, minval=-1.0, maxval=1.0),
    "gaussian": jax.random.normal}


def latents(key: Array, n: int, width: int, distribution: LatentDistribution) -> Array:
    """Draws z float32 [n, width]: uniform on (-1, 1), or standard normal."""
    return _DRAWS[distribution](key, (n, width))


@dataclasses.dataclass(frozen=True)
class _OfBlocks:
    """Base of both discriminators: their first layer, on blocks of 4x4 pixels."""

    net: DiscriminatorNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        check_size(self.spec)

    def apply(self, params: dict[str, Array], x: Array, labels: Array) -> Array:
        """Maps x [G, m, H, W, ch], labels int [G, m] to logits [G, m]; statistics per g."""
        return self.apply_patches(params, self.patches(x), labels)

    def features(self, x: Array) -> Array:
        """Returns the `patches` of sealed records x, uint8 [..., H, W, ch]."""
        return self.patches(x.astype(jnp.float32) / 255)

    def patches(self, x: Array) -> Array:
        """Gathers the inputs of the first layer for each block.

        It depends only on the images, so it can be computed once for many steps: from x
        [..., H, W, ch] in [0, 1] to [..., H/4 * W/4, 64 ch].
        """
        return windows(x)

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Computes `apply` from `patches(x)` [G, m, H/4 * W/4, 64 ch]."""
        raise NotImplementedError

    def _first(self, p: dict[str, Array], patches: Array, onehot: Array) -> Array:
        """The first convolution, from `patches(x)` [G, m, area, 64 ch]: [G * m * area, 4 c1]."""
        height, width = self.spec.height // 2, self.spec.width // 2
        maps = to_blocks(label_maps(p["label1"], p["bias1"], height, width))
        h = patches.reshape(-1, patches.shape[-1]) @ first_kernel(p["conv1"])
        return h + (onehot @ maps.reshape(self.spec.classes, -1)).reshape(h.shape)


class Discriminator(_OfBlocks):
    """One unit's discriminator, conditional on integer labels, as functions of a dict of weights.

    The function is the published one: conv 5x5 stride 2 SAME, leaky ReLU 0.2; the same with batch
    normalisation; linear, batch normalisation, leaky ReLU; linear to one logit; the label joined to
    the input of every layer. The form differs, because under vmap a convolution with per-unit
    weights is slow: a label concatenated as constant maps adds a bias that depends only on the
    class, the output channel and whether a pixel is at a border, and a strided convolution of small
    images is a matrix product on blocks of pixels.

    Batch normalisation always uses the statistics of the call, separately for each group g (real
    and fake records are two groups), so a unit has no state except its weights.
    """

    def init(self, key: Array) -> dict[str, Array]:
        """Draws the weights: kernels (truncated) normal 0.02, offsets 0, scales 1.

        `conv1`, `conv2` [5, 5, in, out] and `linear1`, `linear2` [in, out] act on the image
        features, `label1..4` are the rows of the same layer that act on the one-hot label.
        """
        c1, c2, hidden = self.net.resolve(self.spec)
        ch, classes = self.spec.channels, self.spec.classes
        flat = self.spec.height // 4 * (self.spec.width // 4) * c2
        convolutional = {"conv1": (5, 5, ch, c1), "label1": (5, 5, classes, c1),
                         "conv2": (5, 5, c1, c2), "label2": (5, 5, classes, c2)}
        linear = {"linear1": (flat, hidden), "label3": (classes, hidden),
                  "linear2": (hidden,), "label4": (classes,)}
        zeros = {"bias1": (c1,), "bias2": (c2,), "offset2": (c2,), "bias3": (hidden,),
                 "offset3": (hidden,), "bias4": ()}
        ones = {"scale2": (c2,), "scale3": (hidden,)}
        return initial_weights(key, convolutional, linear, zeros, ones)

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Computes `apply` from `patches(x)` [G, m, H/4 * W/4, 64 ch]."""
        groups, m, area, _ = patches.shape
        n, p, spec = groups * m, params, self.spec
        height, width = spec.height // 4, spec.width // 4
        c1, c2, hidden = self.net.resolve(spec)
        onehot = jax.nn.one_hot(labels.reshape(n), spec.classes)

        h = leaky_relu(self._first(p, patches, onehot))

        maps = label_maps(p["label2"], p["bias2"], height, width).reshape(spec.classes, -1)
        h = convolve(h.reshape(n, height, width, 4 * c1), p["conv2"])
        h = (h.reshape(n, -1) + onehot @ maps).reshape(groups, m * area, c2)
        h = leaky_relu(batch_norm(h, p["scale2"], p["offset2"]))

        h = h.reshape(n, area * c2) @ p["linear1"] + onehot @ p["label3"] + p["bias3"]
        h = leaky_relu(batch_norm(h.reshape(groups, m, hidden), p["scale3"], p["offset3"]))
        h = h.reshape(n, hidden) @ p["linear2"] + onehot @ p["label4"] + p["bias4"]
        return h.reshape(groups, m)


class PaperGenerator(nn.Module):
    """Images from latents and labels, for public use. The paper's widths: hidden 1024, channels 64.

    Batch normalisation keeps the statistics of exactly one call, as in `Generator`.
    """

    net: GeneratorNet
    spec: ImageSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images as `Generator` does."""
        check_size(self.spec)
        height, width = self.spec.height // 4, self.spec.width // 4
        maps = max(1, round(self.net.hidden / (height * width)))
        onehot = jax.nn.one_hot(labels, self.spec.classes)

        def normed(h: Array) -> Array:
            return leaky_relu(batch_normed(h, train))

        h = normed(nn.Dense(height * width * maps, kernel_init=_INIT)(join(z, onehot)))
        h = normed(_Deconv(self.net.channels)(join(h.reshape(-1, height, width, maps), onehot)))
        return nn.sigmoid(_Deconv(self.spec.channels)(join(h, onehot)))


class PaperDiscriminator(_OfBlocks):
    """One unit's discriminator, conditional on integer labels, as functions of a dict of weights.

    conv 5x5 stride 2 SAME, linear, linear to one logit; batch normalisation with the statistics of
    the call, separately for each group g, and leaky ReLU 0.2 after the first two. Its form is that
    of `Discriminator`. `net.channels2` is not used: there is one convolution.
    """

    def _widths(self) -> tuple[int, int]:
        """(channels of the convolution, hidden units)."""
        return self.net.channels1 or 32, self.net.hidden

    def init(self, key: Array) -> dict[str, Array]:
        """Draws the weights.

        `conv1` [5, 5, in, out] and `linear1`, `linear2` [in, out] act on the image features,
        `label1..3` are the rows of the same layer that act on the one-hot label.
        """
        (c1, hidden), spec = self._widths(), self.spec
        flat = spec.height // 2 * (spec.width // 2) * c1
        return initial_weights(
            key,
            convolutional={"conv1": (5, 5, spec.channels, c1), "label1": (5, 5, spec.classes, c1)},
            linear={"linear1": (flat, hidden), "label2": (spec.classes, hidden),
                    "linear2": (hidden,), "label3": (spec.classes,)},
            zeros={"bias1": (c1,), "offset1": (c1,), "bias2": (hidden,), "offset2": (hidden,),
                   "bias3": ()},
            ones={"scale1": (c1,), "scale2": (hidden,)})

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Computes `apply` from `patches(x)` [G, m, H/4 * W/4, 64 ch]."""
        groups, m, area, _ = patches.shape
        n, p = groups * m, params
        c1, hidden = self._widths()
        onehot = jax.nn.one_hot(labels.reshape(n), self.spec.classes)

        h = self._first(p, patches, onehot)
        h = batch_norm(h.reshape(groups, m * area * 4, c1), p["scale1"], p["offset1"])

        # `linear1` reads the positions in the order of the blocks.
        h = leaky_relu(h).reshape(n, -1) @ p["linear1"] + onehot @ p["label2"] + p["bias2"]
        h = leaky_relu(batch_norm(h.reshape(groups, m, hidden), p["scale2"], p["offset2"]))
        h = h.reshape(n, hidden) @ p["linear2"] + onehot @ p["label3"] + p["bias3"]
        return h.reshape(groups, m)


WARP_ENTRIES = 6
SHIFT = 0.25
"""The largest shift, in halves of the image's sides, over the largest entry of the matrix."""


class Warped(nn.Module):
    """A generator of images that are moved by `affine`.

    The first six latents, times net.warp, are the differences of the map from the identity. The
    generator gets these latents too, so shape and position may depend on each other.

    Attributes:
        net: Sizes of the generator.
        outside: As for `affine`.

    Raises:
        UserError: for fewer than six latents.
    """

    net: GeneratorNet
    images: nn.Module
    outside: str = "constant"

    def __post_init__(self) -> None:
        if self.net.latent < WARP_ENTRIES:
            raise UserError(f"latent is {self.net.latent}; warp takes "
                            f"{WARP_ENTRIES} latents: make it "
                            f"{WARP_ENTRIES} or more, or set warp to 0")
        super().__post_init__()

    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images [N, H, W, ch] in [0, 1] from z float [N, latent], labels int [N]."""
        return affine(self.images(z, labels, train), self.net.warp * z[:, :WARP_ENTRIES],
                      self.outside)


def moved(net: GeneratorNet, module: nn.Module, spec: Spec) -> nn.Module:
    """Returns the generator `module`, or `Warped` if net.warp is above 0.

    Raises:
        UserError: for a table with net.warp above 0.
    """
    if not net.warp:
        return module
    if isinstance(spec, TableSpec):
        raise UserError(f"warp is {net.warp}, which moves images; set it to 0 for a table")
    return Warped(net, module, beyond(spec.channels))


def beyond(channels: int) -> str:
    """Returns how pixels beyond an image are read: a background of 0, as in digits, continues.

    Colour images are continued by their border pixels instead of a black frame.
    """
    return "nearest" if channels == 3 else "constant"


def affine(images: Array, entries: Array, outside: str = "constant") -> Array:
    """Moves images by affine maps: [N, H, W, ch].

    The pixel at (y, x), in halves of the sides from the centre, is read bilinearly at
    (y, x) + A (y, x) + SHIFT b.

    Args:
        images: [N, H, W, ch].
        entries: [N, 6]: A, row by row, and b.
        outside: How pixels beyond the image are read: "constant", as 0, or "nearest".
    """
    _, height, width, _ = images.shape
    y, x = jnp.meshgrid(jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width), indexing="ij")

    def one(image: Array, e: Array) -> Array:
        rows = (1 + e[0]) * y + e[1] * x + SHIFT * e[4]
        columns = e[2] * y + (1 + e[3]) * x + SHIFT * e[5]
        at = [(rows + 1) * (height - 1) / 2, (columns + 1) * (width - 1) / 2]
        return jax.vmap(lambda channel: jax.scipy.ndimage.map_coordinates(
            channel, at, order=1, mode=outside), 2, 2)(image)

    return jax.vmap(one)(images, entries)


def warp_for_numpy(warp: float, outside: str) -> dict[str, np.ndarray]:
    """Returns the parameters of the movement for `release.numpy_samplers`.

    Args:
        warp: The largest entry of a map.
        outside: As for `affine`.
    """
    return {"warp": np.array(warp), "shift": np.array(SHIFT),
            "goes_on": np.array(outside == "nearest")}
