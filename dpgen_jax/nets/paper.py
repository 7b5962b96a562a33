"""The image networks as the G-PATE paper's appendix E prints them; its code runs others.

Source: Long et al., NeurIPS 2021, appendix E. Generator: a linear layer of 1024 units and a
deconvolution of 64 kernels 5x5, stride 2. Discriminator: a convolution of 32 kernels 5x5, stride 2,
and a linear layer of 256 units. Batch normalisation and leaky ReLU on all layers, the label joined
to each. The published code, `nets.image`, has two linear layers and two (de)convolutions instead.

Read into the paper, which names hidden layers only: the linear layer's units are the first maps, at
a quarter of the image's size (1024 units are 21 maps of 7x7, rounded, for 28x28 pixels), a second
deconvolution with a sigmoid leads to the image, and a linear layer to the logit; leaky ReLU is 0.2.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec
from dpgen_jax.nets.blocks import (
    batch_norm,
    first_kernel,
    label_maps,
    leaky_relu,
    to_blocks,
    windows,
)
from dpgen_jax.nets.image import (
    DiscriminatorNet,
    GeneratorNet,
    _Deconv,
    check_size,
    initial_weights,
    join,
)


class PaperGenerator(nn.Module):
    """Images from latents and labels, for public use. The paper's widths: hidden 1024, channels 64.

    Batch normalisation keeps the statistics of exactly one call, as in `image.Generator`.
    """

    net: GeneratorNet
    spec: ImageSpec

    @nn.compact
    def __call__(self, z: Array, labels: Array, train: bool) -> Array:
        """Generates images as `image.Generator` does."""
        check_size(self.spec)
        height, width = self.spec.height // 4, self.spec.width // 4
        maps = max(1, round(self.net.hidden / (height * width)))
        onehot = jax.nn.one_hot(labels, self.spec.classes)

        def normed(h: Array) -> Array:
            return leaky_relu(nn.BatchNorm(use_running_average=not train, momentum=0.0,
                                           epsilon=1e-5, use_fast_variance=False)(h))

        h = normed(nn.Dense(height * width * maps, kernel_init=nn.initializers.normal(0.02))(
            join(z, onehot)))
        h = normed(_Deconv(self.net.channels)(join(h.reshape(-1, height, width, maps), onehot)))
        return nn.sigmoid(_Deconv(self.spec.channels)(join(h, onehot)))


@dataclasses.dataclass(frozen=True)
class PaperDiscriminator:
    """One unit's discriminator, conditional on integer labels, as functions of a dict of weights.

    conv 5x5 stride 2 SAME, linear, linear to one logit; batch normalisation with the statistics of
    the call, separately for each group g, and leaky ReLU 0.2 after the first two. Its form is that
    of `image.Discriminator`. `net.channels2` is not used: there is one convolution.
    """

    net: DiscriminatorNet
    spec: ImageSpec

    def __post_init__(self) -> None:
        check_size(self.spec)

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

    def apply(self, params: dict[str, Array], x: Array, labels: Array) -> Array:
        """Maps x [G, m, H, W, ch], labels int [G, m] to logits [G, m]; statistics per g."""
        return self.apply_patches(params, self.patches(x), labels)

    def features(self, x: Array) -> Array:
        """Returns the `patches` of sealed records x, uint8 [..., H, W, ch]."""
        return self.patches(x.astype(jnp.float32) / 255)

    def patches(self, x: Array) -> Array:
        """Gathers [..., H/4 * W/4, 64 ch] from x [..., H, W, ch], as `image.Discriminator`."""
        return windows(x)

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Does as `apply`, from `patches(x)` [G, m, H/4 * W/4, 64 ch]."""
        groups, m, area, _ = patches.shape
        n, p = groups * m, params
        height, width = self.spec.height // 4, self.spec.width // 4
        c1, hidden = self._widths()
        onehot = jax.nn.one_hot(labels.reshape(n), self.spec.classes)

        maps = to_blocks(label_maps(p["label1"], p["bias1"], 2 * height, 2 * width))
        maps = maps.reshape(self.spec.classes, -1)
        h = patches.reshape(n * area, -1) @ first_kernel(p["conv1"])
        h = h + (onehot @ maps).reshape(n * area, 4 * c1)
        h = batch_norm(h.reshape(groups, m * area * 4, c1), p["scale1"], p["offset1"])

        # `linear1` reads the positions in the order of the blocks.
        h = leaky_relu(h).reshape(n, -1) @ p["linear1"] + onehot @ p["label2"] + p["bias2"]
        h = leaky_relu(batch_norm(h.reshape(groups, m, hidden), p["scale2"], p["offset2"]))
        h = h.reshape(n, hidden) @ p["linear2"] + onehot @ p["label3"] + p["bias3"]
        return h.reshape(groups, m)
