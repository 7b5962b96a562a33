"""DP-GAN: a conditional GAN whose discriminator is trained with DP-SGD.

Sources: Xie, Lin, Wang, Wang and Zhou, "Differentially Private Generative Adversarial Network"
(arXiv 1802.06739); Bie, Kamath and Zhang, "Private GANs, Revisited" (TMLR 2023, arXiv 2302.02936),
which finds that many discriminator steps for each step of the generator, and large batches, are
what the published ones lacked. As published by Xie et al. it has no guarantee: gradients are not
clipped, only weights, and batch normalisation couples records (both gone here, `_dpsgd`).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.config import Runtime
from dpgen_jax.methods._dpsgd import GanConfig, Scorer, converse, dpsgd, length
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair
from dpgen_jax.nets.plain import Conv, ConvNet, Mlp
from dpgen_jax.types import ImageSpec, Method, Spec


@dataclasses.dataclass(frozen=True)
class Config(GanConfig):
    """What DP-GAN computes."""

    weight_clip: float = 0.0
    """the discriminator's weights are clipped to +- this after each step, which bounds its slope
    and no gradient; 0: not"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: ConvNet = ConvNet()
    """of images"""
    hidden: tuple[int, ...] = (256, 128)
    """hidden layers of the discriminator of tables"""
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()


def scorer(config: Config, spec: Spec) -> Scorer:
    """The discriminator."""
    return (Conv(config.discriminator, spec) if isinstance(spec, ImageSpec)
            else Mlp(config.hidden, spec))


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The noisy mean of the clipped gradients: `_dpsgd.dpsgd`. Unit: a record."""
    return dpsgd(config, length(scorer(config, spec)))


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    net_g, _ = pair(spec, config.generator, DiscriminatorNet())
    bound = config.weight_clip

    def constrain(d):
        return jax.tree.map(lambda w: jnp.clip(w, -bound, bound), d) if bound else d

    return converse(config, spec, net_g, scorer(config, spec), config.d_optimiser,
                    config.g_optimiser, constrain)
