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

import optax

from dpgen_jax.accountant import published as formulas
from dpgen_jax.accountant.published import Published
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.core.config import Runtime, require_not_negative, require_positive
from dpgen_jax.core.types import Array, Method, PyTree, Spec
from dpgen_jax.methods.shared.dpsgd import GanConfig, Players, build_gan, dpsgd, length
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.pair import Generator, Mlp, MlpGenerator, MlpNet, released


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Settings of plain gradient descent whose learning rate falls linearly."""

    learning_rate: float = 0.1
    """learning rate of the first step"""
    final_rate: float = 0.052
    """learning rate after `decay_steps`"""
    decay_steps: int = 10_000
    """steps in which the learning rate falls"""

    def __post_init__(self) -> None:
        require_not_negative(learning_rate=self.learning_rate, final_rate=self.final_rate)
        require_positive(decay_steps=self.decay_steps)

    def transformation(self) -> optax.GradientTransformation:
        """Returns optax's gradient descent, with the bare count of steps as its state.

        Checkpoints hold the state in this form.
        """
        rate = optax.linear_schedule(self.learning_rate, self.final_rate, self.decay_steps)
        descent = optax.scale_by_schedule(lambda count: -rate(count))

        def init(params: PyTree) -> Array:
            return descent.init(params).count

        def update(grads: PyTree, count: Array, params: PyTree = None) -> tuple[PyTree, Array]:
            updates, state = descent.update(grads, optax.ScaleByScheduleState(count), params)
            return updates, state.count

        return optax.GradientTransformation(init, update)


@dataclasses.dataclass(frozen=True)
class Config(GanConfig):
    """The configuration of DP-CGAN."""

    generator: MlpNet = MlpNet()
    hidden: tuple[int, ...] = (128,)
    """hidden layers of the discriminator"""
    label_weight: float = 1.0
    """factor of the discriminator's one-hot labels; at 1 they are a small share of its input beside
    hundreds of pixels, and few noisy steps teach it nothing of them"""
    d_optimiser: Sgd = Sgd()
    g_optimiser: Adam = Adam(1e-3, 0.9, 0.999)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(label_weight=self.label_weight)


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: the noisy mean of the clipped gradients.

    Guarantee:
        That of `shared.dpsgd.dpsgd`; the unit is a record.
    """
    return dpsgd(config, length(_scorer(config, spec)))


def _scorer(config: Config, spec: Spec) -> Mlp:
    """The discriminator."""
    return Mlp(config.hidden, spec, leak=0.0, label_weight=config.label_weight)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    del runtime
    net_g = Generator(MlpGenerator(config.generator, spec), released(spec))
    return build_gan(config, spec, Players(
        net_g, _scorer(config, spec), config.d_optimiser.transformation(),
        config.g_optimiser.transformation()))


def published(config: Config, delta: float) -> Published | None:
    """Returns the paper's own accounting; None while the number of records is not known."""
    if not config.records:
        return None
    return formulas.dpcgan(config.records, config.batch, config.clip, config.sigma or 0.0, delta)
