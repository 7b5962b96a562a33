"""DCGAN: a conditional GAN without privacy, the upper bound of the private ones.

One unit holds all records and trains one discriminator on them; its gradient at the queried fakes
reaches the generator unchanged. Networks, losses and the generator's step are those of the private
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
from dpgen_jax.methods import gpate
from dpgen_jax.methods.shared import critics, photographs, teachers
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.methods.shared.critics import CriticConfig, images_only
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, numbers, serving, stated
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


# Presets of DCGAN, which promises nothing (epsilon inf), by data and networks.
#
# `-published`, `-paper` and `-gswgan` are the rows without privacy of the papers: the DC-GAN of
# DataLens and G-PATE with the networks of their codes; the GAN of G-PATE's appendix E, with the
# networks that it prints and "the same hyper-parameters", of which steps are none; and the Real
# GAN of GS-WGAN, of which appendix C prints nothing. `credit` is the GAN of G-PATE's Table 7,
# with one discriminator that sees all records. What the papers do not print was chosen on glyphs.
# The first preset, `-small` and the other tables' are this library's, for a machine without an
# accelerator.

OURS = "this library: the networks as published, the training chosen on glyphs"
CODES = ("Wang et al. 2021 (DataLens), Table 1, and Long et al. 2021, Table 1c: DC-GAN, with the "
         "networks of their codes")
LONG = "Long et al. 2021, appendix E (GAN)"
LONG_CREDIT = "Long et al. 2021, Table 7 and appendix E (GAN)"
REAL = "Chen et al. 2020, Tables A1 and A2 (Real GAN), with the networks and rates of its GS-WGAN"

_adversarial = Config(batch=16, steps=4000, d_steps=2, ema=0.99, g_final_rate=0.1)
_paper = dataclasses.replace(_adversarial, networks="paper", generator=GeneratorNet(channels=64))
_gswgan = dataclasses.replace(_adversarial, networks="gs-wgan", batch=32, d_steps=5,
                              d_optimiser=Adam(1e-4, 0.5, 0.9), g_optimiser=Adam(1e-4, 0.5, 0.9))
_small = dataclasses.replace(_adversarial, steps=1500, generator=GeneratorNet(16, 256, 32),
                             discriminator=DiscriminatorNet(16, 32, 64))
_small_gswgan = dataclasses.replace(
    _gswgan, steps=1500, batch=16, d_steps=2, resnet=ResNetNet(10, 24), critic=CriticNet(16),
    d_optimiser=Adam(1e-3, 0.5, 0.9), g_optimiser=Adam(1e-3, 0.5, 0.9))
_rows = dataclasses.replace(_adversarial, batch=32, steps=2000, generator=GeneratorNet(16, 128),
                            discriminator=DiscriminatorNet(hidden=128))

_credit = dataclasses.replace(_adversarial, networks="paper", batch=32, d_steps=1, steps=1000,
                              ema=0.0, g_final_rate=1.0, generator=GeneratorNet(7, 29),
                              discriminator=DiscriminatorNet(hidden=29))


POOL = ("the discriminator's steps of a round share one public pool of fakes, so that no private "
        "label reaches the generator")
OUR_TRAINING = ("steps are ours, 4,000, as are a generator's rate that falls to a tenth and the "
                "average of weights that is released; the paper prints none")
BARE = "gradients reach the generator as they are; the perturbations of G-PATE are clipped at 1e-4"
LATENTS = "latents are the authors' code's, uniform; the paper prints none"
DIFFERS = {
    CODES: (OUR_TRAINING, "a batch of 16 and two discriminator steps for one of the generator are "
            "ours; the papers print none for photographs, nor DataLens for its DC-GAN", POOL,
            "latents are uniform, of 50 dimensions; DataLens has Gaussian ones, for photographs of "
            "100"),
    LONG: (OUR_TRAINING, "a batch is 16 records and 16 fakes; G-PATE's is 15 at epsilon 1, and 30 "
           "at epsilon 10", "two discriminator steps for one of the generator; G-PATE's code has "
           "one", POOL, BARE, LATENTS, gpate.LAYERS),
    LONG_CREDIT: ("the number of steps is ours; the paper prints none", POOL, BARE, LATENTS,
                  "networks of PATE-GAN's code, as G-PATE's for this table"),
    REAL: ("the paper prints no settings for it: these are its GS-WGAN's, with one critic",
           OUR_TRAINING, POOL, "batches are drawn from the records with replacement; the authors' "
           "code goes through them")}


def _preset(config: Config, spec: Spec, records: int, dataset: str | None = None,
            source: str = OURS) -> Preset:
    return Preset(config, spec, math.inf, 1e-5, records, source, dataset=dataset)


def _images(name: str) -> dict[str, Preset]:
    return {f"{name}-{networks}": _preset(config, MNIST, 60000, source=source)
            for networks, config, source in (
                ("published", _adversarial, CODES), ("paper", _paper, LONG),
                ("gswgan", _gswgan, REAL), ("small", _small, OURS))}


def _photographs() -> dict[str, Preset]:
    """CelebA and Places365; no delta is of use without an epsilon."""
    made = {f"{name}-published": photographs.preset(_adversarial, data, math.inf, CODES)
            for name, data in photographs.ALL.items()}
    return {name: dataclasses.replace(preset, differs=tuple(
        line for line in preset.differs if line not in photographs.SMALLER_DELTA))
        for name, preset in made.items()}


PRESETS = stated({
    "glyphs": _preset(_small, GLYPHS, 30000, "glyphs"),
    "glyphs-gswgan": _preset(_small_gswgan, GLYPHS, 30000),
    **_images("mnist"), **_images("fashion"),
    **_photographs(),
    "table": _preset(_rows, numbers(29), 45569, "table"),
    "breast_cancer": _preset(_rows, numbers(30), 455, "breast_cancer"),
    "credit": _preset(_credit, numbers(29), 284807, source=LONG_CREDIT),
    "adult": _preset(_rows, numbers(108), 32561, "adult"),
}, DIFFERS)
PRESETS = serving(PRESETS, ("mnist-small", "fashion-small"),
                  {"images": "mnist-small", "table-few": "breast_cancer"})
