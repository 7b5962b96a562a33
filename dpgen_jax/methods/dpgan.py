"""DP-GAN: a conditional GAN whose discriminator is trained with DP-SGD.

Sources: Xie, Lin, Wang, Wang and Zhou, "Differentially Private Generative Adversarial Network"
(arXiv 1802.06739); Bie, Kamath and Zhang, "Private GANs, Revisited" (TMLR 2023, arXiv 2302.02936),
which finds that many discriminator steps for each step of the generator, and large batches, are
what the published ones lacked. As published by Xie et al. it has no guarantee: gradients are not
clipped, only weights, and batch normalisation couples records. Neither is so here, see
`shared.dpsgd`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.core.config import Runtime, require_not_negative, require_positive
from dpgen_jax.core.types import ImageSpec, Method, PyTree, Spec
from dpgen_jax.methods.shared.dpsgd import GanConfig, Players, Scorer, build_gan, dpsgd, length
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import Conv, ConvNet, Generator, Mlp, MlpGenerator, MlpNet, pair, released


@dataclasses.dataclass(frozen=True)
class Linear:
    """Fully connected networks; the defaults are those of Long et al. 2021, appendix E."""

    latent: int = 100
    """numbers of a latent; the paper prints none"""
    generator: tuple[int, ...] = (128, 256, 512)
    """widths of the generator's layers before the last"""
    discriminator: tuple[int, ...] = (64, 64)
    """widths of the discriminator's layers before the last"""
    slope: float = 0.5
    """the activation of both is this times ReLU"""
    limit: float = 0.5
    """features of the discriminator are clipped to +- this"""

    def __post_init__(self) -> None:
        MlpNet(self.latent, self.generator)
        require_positive(discriminator=min(self.discriminator, default=1), slope=self.slope,
                         limit=self.limit)


@dataclasses.dataclass(frozen=True)
class Config(GanConfig):
    """The configuration of DP-GAN."""

    weight_clip: float = 0.0
    """the discriminator's weights are clipped to +- this after each step, which bounds its slope
    and no gradient; 0: they are not clipped"""
    networks: Literal["usual", "linear"] = "usual"
    """usual: `generator`, and `discriminator` or `hidden`; linear: those of `linear`"""
    linear: Linear = Linear()
    generator: GeneratorNet = GeneratorNet()
    discriminator: ConvNet = ConvNet()
    """the discriminator of images"""
    hidden: tuple[int, ...] = (256, 128)
    """hidden layers of the discriminator of tables"""
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(weight_clip=self.weight_clip)


def scorer(config: Config, spec: Spec) -> Scorer:
    """Returns the discriminator for records of this schema."""
    if config.networks == "linear":
        net = config.linear
        return Mlp(net.discriminator, spec, net.slope, leak=0.0, limit=net.limit)
    return (Conv(config.discriminator, spec) if isinstance(spec, ImageSpec)
            else Mlp(config.hidden, spec))


def generator(config: Config, spec: Spec) -> Generator:
    """Returns the generator of records of this schema."""
    if config.networks == "linear":
        net = config.linear
        module = MlpGenerator(MlpNet(net.latent, net.generator), spec, net.slope)
        return Generator(module, released(spec))
    return pair(spec, config.generator, DiscriminatorNet())[0]


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: the noisy mean of the clipped gradients.

    Guarantee:
        That of `shared.dpsgd.dpsgd`; the unit is a record.
    """
    return dpsgd(config, length(scorer(config, spec)))


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    del runtime
    bound = config.weight_clip

    def constrain(d: PyTree) -> PyTree:
        return jax.tree.map(lambda w: jnp.clip(w, -bound, bound), d) if bound else d

    return build_gan(config, spec, Players(
        generator(config, spec), scorer(config, spec), config.d_optimiser.transformation(),
        config.g_optimiser.transformation()), constrain)
