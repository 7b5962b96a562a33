"""The table networks of PATE-GAN, which the G-PATE paper runs on the credit card data.

Source: Long et al., NeurIPS 2021, section 6.1 ("the same architecture as PATE-GAN"), and the code
with which the PATE-GAN paper (Jordon, Yoon and van der Schaar, ICLR 2019) was written, as
spalabucr/pategan-audit preserves it: two hidden layers of as many units as a row has features, tanh
in the generator and ReLU in the discriminator, the label joined to the input of the first layer,
latents of a quarter of the features, uniform on (-1, 1); no normalisation. Here the label is
one-hot, and columns of categories are a softmax as in `nets.table`.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, TableSpec
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet, join
from dpgen_jax.nets.table import probabilities

_INIT = nn.initializers.he_normal()
"""weights of variance 2 / inputs, as in that code"""


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
            h = nn.tanh(nn.Dense(self.net.hidden, kernel_init=_INIT)(h))
        return probabilities(nn.Dense(*self.spec.shape, kernel_init=_INIT)(h), self.spec)


@dataclasses.dataclass(frozen=True)
class PateGanDiscriminator:
    """One unit's discriminator, conditional on integer labels, as functions of a dict of weights.

    Two hidden layers of `net.hidden` units with ReLU, linear to one logit. It sees one row at a
    time: its form is that of `table.TableDiscriminator`, and groups do not matter to it.
    """

    net: DiscriminatorNet
    spec: TableSpec

    def init(self, key: Array) -> dict[str, Array]:
        """Draws the weights: `linear1..3` [in, out], the first of which reads the label too."""
        (features,), hidden = self.spec.shape, self.net.hidden
        widths = (features + self.spec.classes, hidden, hidden, 1)
        return {f"linear{i + 1}": _INIT(k, widths[i:i + 2])
                for i, k in enumerate(jax.random.split(key, 3))} | {
                    f"bias{i}": jnp.zeros(width) for i, width in enumerate(widths[1:], 1)}

    def apply(self, params: dict[str, Array], x: Array, labels: Array) -> Array:
        """Maps x [G, m, F], labels int [G, m] to logits [G, m]."""
        h = jnp.concatenate([x, jax.nn.one_hot(labels, self.spec.classes)], -1)
        for i in (1, 2):
            h = nn.relu(h @ params[f"linear{i}"] + params[f"bias{i}"])
        return (h @ params["linear3"] + params["bias3"])[..., 0]

    def features(self, x: Array) -> Array:
        """Returns sealed rows, float32 [..., F], as they are."""
        return x

    def patches(self, x: Array) -> Array:
        """Returns fake rows [..., F] as they are."""
        return x

    def apply_patches(self, params: dict[str, Array], patches: Array, labels: Array) -> Array:
        """Does as `apply`, from `patches(x)` [G, m, F]."""
        return self.apply(params, patches, labels)
