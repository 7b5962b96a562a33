"""DCGAN: a conditional GAN without privacy, the upper bound of the private ones.

One unit holds all records and trains one discriminator on them; its gradient at the queried fakes
reaches the generator bare. Networks, losses and the generator's step are those of the private
systems: it trains as these do (`shared.teachers` as G-PATE and DataLens, `shared.critics` as
GS-WGAN), with a single teacher, so that the difference is the cost of privacy. Source: Radford,
Metz and Chintala, "Unsupervised Representation Learning with Deep Convolutional Generative
Adversarial Networks", ICLR 2016, as the DataLens and GS-WGAN papers use it for their non-private
rows.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax

from dpgen_jax.aggregation.bound import Unbounded, as_float
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import Array, Method, PyTree, Records, Spec, UserError
from dpgen_jax.methods.shared import critics, teachers
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.methods.shared.critics import CriticConfig, images_only
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """The configuration of the GAN."""

    networks: Literal["published", "paper", "gs-wgan"] = "published"
    """networks of the G-PATE and DataLens codes, those that the G-PATE paper prints, or those of
    GS-WGAN with its Wasserstein loss; for tables the first"""
    batch: int = 32
    """fakes in a generator step, and records and fakes in a discriminator step"""
    steps: int = 1000
    """generator steps"""
    sigma: float | None = None
    """always left out: there is no noise"""
    d_steps: int = 1
    """discriminator steps for each step of the generator"""
    penalty: float = 10.0
    """gs-wgan: weight of the gradient penalty"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.0
    """the released generator is a moving average of the weights; 0: the last weights"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: DiscriminatorNet = DiscriminatorNet()
    resnet: ResNetNet = ResNetNet()
    """gs-wgan: its generator"""
    critic: CriticNet = CriticNet()
    """gs-wgan: its discriminator"""
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    def __post_init__(self) -> None:
        if self.sigma:
            raise UserError("dcgan adds no noise and gives no privacy, its epsilon is infinite: "
                            f"leave out {option('epsilon')} and {option('sigma')}, or take a "
                            "private method")
        # The private system checks the fields that it has as well.
        self.as_critics() if self.networks == "gs-wgan" else self.as_teachers()

    def as_critics(self) -> CriticConfig:
        """Returns the configuration of GS-WGAN with one critic.

        Raises:
            UserError: for a field that is out of range.
        """
        return CriticConfig(
            critics=1, warm_steps=0, critic_steps=self.d_steps, critic_steps_first=self.d_steps,
            records_per_step=self.batch, pool=self.batch, penalty=self.penalty,
            generator=self.resnet, critic=self.critic, batch=self.batch, steps=self.steps,
            g_final_rate=self.g_final_rate, ema=self.ema, d_optimiser=self.d_optimiser,
            g_optimiser=self.g_optimiser)

    def as_teachers(self) -> teachers.TeacherConfig:
        """Returns the configuration of G-PATE and DataLens with one teacher.

        Raises:
            UserError: for a field that is out of range.
        """
        return teachers.TeacherConfig(
            teachers=1, sigma=0.0, d_steps=self.d_steps, d_steps_first=self.d_steps,
            layers="paper" if self.networks == "paper" else "published", generator=self.generator,
            discriminator=self.discriminator, batch=self.batch, steps=self.steps,
            g_final_rate=self.g_final_rate, ema=self.ema, d_optimiser=self.d_optimiser,
            g_optimiser=self.g_optimiser)


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: the gradient at each fake, as it is.

    Guarantee:
        None: every step is a NonPrivateEvent.
    """
    rows, columns = config.batch, math.prod(spec.shape)
    return SumMechanism(
        bound=Unbounded(rows, columns),
        noise=NoNoise(),
        schedule=FullParticipation(),
        n_units=1,
        shape=(rows, columns),
        decode=as_float,
    )


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema.

    Raises:
        UserError: for a table with the networks of images.
    """
    released_by = mechanism(config, spec)
    if config.networks == "gs-wgan":
        method = critics.build_gan(config.as_critics(), images_only(spec), runtime, critics.Extra())
    else:
        # Each fake moves by its own gradient, of the sum of losses: numbers of a fair size.
        method = teachers.build_gan(config.as_teachers(), spec, runtime, released_by,
                                    teachers.Messages(lambda _, gradients: config.batch * gradients,
                                                      lambda _, released: released))

    def learn(key: Array, unit: PyTree, records: Records, query: PyTree) -> PyTree:
        # Teachers read all of their records in each step, and these are all that there are: a few
        # are drawn, with replacement.
        k_rows, k_learn = jax.random.split(key)
        rows = jax.random.randint(k_rows, (config.d_steps * config.batch,), 0, len(records.y))
        return method.learn(k_learn, unit, jax.tree.map(lambda a: a[rows], records), query)

    return dataclasses.replace(method, mechanism=released_by, learn=learn)
