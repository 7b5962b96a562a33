"""DP-CGAN: a conditional GAN of two small MLPs whose discriminator is trained with DP-SGD.

Source: Torkzadehmahani, Kairouz and Paten, "DP-CGAN: Differentially Private Synthetic Data and
Label Generation" (CVPR workshops 2019, arXiv 2001.09700), which clips gradients on records and on
fakes apart, and adds noise to those on records. Different here, as the guarantee needs it: one clip
over all parameters (the published code clips each of four tensors, so that together they move twice
as far as was accounted), uniform labels of fakes instead of the records' own, and the sampling rate
of the records that are there.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.config import Runtime
from dpgen_jax.methods._dpsgd import GanConfig, converse, dpsgd, length
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.pair import Generator, released
from dpgen_jax.nets.plain import Mlp, MlpGenerator, MlpNet
from dpgen_jax.types import Method, Spec


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Plain gradient descent whose learning rate falls linearly."""

    learning_rate: float = 0.1
    final_rate: float = 0.052
    """learning rate after `decay_steps`"""
    decay_steps: int = 10_000

    def init(self, params):
        """The number of steps done."""
        return jnp.zeros((), jnp.int32)

    def update(self, params, grads, done):
        """One step: new parameters and their state."""
        rate = optax.linear_schedule(self.learning_rate, self.final_rate, self.decay_steps)(done)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), done + 1


@dataclasses.dataclass(frozen=True)
class Config(GanConfig):
    """What DP-CGAN computes."""

    generator: MlpNet = MlpNet()
    hidden: tuple[int, ...] = (128,)
    """hidden layers of the discriminator"""
    label_weight: float = 1.0
    """what the discriminator's one-hot labels are multiplied by; at 1 they are a small share of its
    input beside hundreds of pixels, and few noisy steps teach it nothing of them"""
    d_optimiser: Sgd = Sgd()
    g_optimiser: Adam = Adam(1e-3, 0.9, 0.999)

    positive = (*GanConfig.positive, "label_weight")


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The noisy mean of the clipped gradients: `_dpsgd.dpsgd`. Unit: a record."""
    return dpsgd(config, length(_scorer(config, spec)))


def _scorer(config: Config, spec: Spec) -> Mlp:
    return Mlp(config.hidden, spec, leak=0.0, label_weight=config.label_weight)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    net_g = Generator(MlpGenerator(config.generator, spec), released(spec))
    return converse(config, spec, net_g, _scorer(config, spec), config.d_optimiser,
                    config.g_optimiser)
