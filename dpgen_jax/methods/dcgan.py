"""DCGAN: a conditional GAN without privacy, the upper bound of the private ones.

One unit holds all records and trains one discriminator on them; its gradient at the queried fakes
reaches the generator bare. Networks, losses and the generator's step are those of the private
systems, whose conversations (`_skeleton` for G-PATE and DataLens, `_critics` for GS-WGAN) it has
with a single teacher, so that what is compared is the cost of privacy. Source: Radford, Metz and
Chintala, "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial
Networks", ICLR 2016, as the DataLens and GS-WGAN papers use it for their non-private rows.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.aggregation.plain import Unbounded, as_float
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.config import Runtime
from dpgen_jax.methods import _critics, _skeleton
from dpgen_jax.methods._config import MethodConfig
from dpgen_jax.methods._critic_config import CriticConfig
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.types import Array, Method, Records, Spec, UserError


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """What the GAN computes."""

    networks: Literal["published", "paper", "gs-wgan"] = "published"
    """of the G-PATE and DataLens codes, as the G-PATE paper prints them, or of GS-WGAN, with its
    Wasserstein loss; of tables there is the first"""
    batch: int = 32
    """fakes of a generator step, and records and fakes of a discriminator step"""
    steps: int = 1000
    """generator steps"""
    sigma: float | None = None
    """none: there is no noise"""
    d_steps: int = 1
    """discriminator steps for each step of the generator"""
    penalty: float = 10.0
    """gs-wgan: weight of the gradient penalty"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.0
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: DiscriminatorNet = DiscriminatorNet()
    resnet: ResNetNet = ResNetNet()
    """gs-wgan: its generator"""
    critic: CriticNet = CriticNet()
    """gs-wgan: its discriminator"""
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    def __post_init__(self):
        if self.sigma:
            raise UserError("dcgan adds no noise and gives no privacy, its epsilon is infinite: "
                            "leave out --epsilon and --sigma, or take a private method")
        self.conversation()  # which checks what it takes over

    def conversation(self) -> _skeleton.TeacherConfig | CriticConfig:
        """The fields as those of the private system. Errors: UserError for what it refuses."""
        shared = {name: getattr(self, name) for name in (
            "batch", "steps", "g_final_rate", "ema", "d_optimiser", "g_optimiser")}
        if self.networks == "gs-wgan":
            return CriticConfig(
                critics=1, warm_steps=0, critic_steps=self.d_steps, critic_steps_first=self.d_steps,
                records_per_step=self.batch, pool=self.batch, penalty=self.penalty,
                generator=self.resnet, critic=self.critic, **shared)
        return _skeleton.TeacherConfig(
            teachers=1, sigma=0.0, d_steps=self.d_steps, d_steps_first=self.d_steps,
            layers=self.networks, generator=self.generator, discriminator=self.discriminator,
            **shared)


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The gradient at each fake, as it is. NO guarantee: every step is a NonPrivateEvent."""
    rows, columns = config.batch, math.prod(spec.shape)
    return Mechanism(bound=Unbounded(rows, columns), noise=NoNoise(), schedule=Everyone(),
                     n_units=1, shape=(rows, columns), decode=as_float)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema. Errors: UserError for a table with the networks of
    images."""
    conversation, held = config.conversation(), mechanism(config, spec)
    if config.networks == "gs-wgan":
        method = _critics.converse(conversation, spec, runtime, _critics.Extra())
    else:
        # Each fake moves by its own gradient, of the sum of losses: numbers of a fair size.
        method = _skeleton.converse(conversation, spec, runtime, held,
                                    message=lambda _, gradients: config.batch * gradients,
                                    direction=lambda _, released: released)

    def learn(key: Array, unit: Any, records: Records, query: Any) -> Any:
        """From a few records, drawn with replacement: teachers look at all of theirs, and these
        are all there are."""
        k_some, k_learn = jax.random.split(key)
        some = jax.random.randint(k_some, (config.d_steps * config.batch,), 0, len(records.y))
        return method.learn(k_learn, unit, jax.tree.map(lambda a: a[some], records), query)

    return dataclasses.replace(method, mechanism=held, learn=learn)
