"""The configuration that GS-WGAN and DP-GAN-DPAC share, their schedule and their mechanism.

How critics learn and answer is in `shared.critics`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, Self, cast

from dpgen_jax.aggregation.clip import MOST_COLUMNS, GridMean, RowL2, row_levels
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.sampling import FixedSizeSampling
from dpgen_jax.aggregation.schedule import (
    FullParticipation,
    PublishedSampling,
    RoundRobin,
    Schedule,
)
from dpgen_jax.core.ranges import (
    require_decay,
    require_not_negative,
    require_positive,
    require_share,
)
from dpgen_jax.core.types import ImageSpec, Spec, UserError
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.logit_slope import LogitSlope
from dpgen_jax.nets.resnet import ResNetNet

PUBLISHED_ADAM = Adam(1e-4, 0.5, 0.9)


@dataclasses.dataclass(frozen=True)
class CriticConfig(MethodConfig):
    """The fields of both systems. `steps` or `sigma` may be None: it is found from the budget."""

    critics: int = 1000
    """disjoint parts of the records, each with its own critic; clients, where federated"""
    critics_per_step: int = 0
    """the most critics that answer in a step, in a public rotation of turns of equal size: 600 of
    1,000 take turns of 500; 0: all of them"""
    schedule: Literal["rotation", "secret-draw"] = "rotation"
    """secret-draw: all critics learn, and critics_per_step of them, sampled in secret, count"""
    accounting: Literal["proven", "as-published"] = "proven"
    """as-published: the paper's schedule, for which no guarantee is known; needs --epsilon inf"""
    federated: bool = False
    """critics are clients, who add the noise themselves; the promise is for all data of a client"""
    client_records: int = 512
    """records of a client from which its critic learns; a larger client leaves some out"""
    batch: int = 32
    """fakes in one query"""
    clip: float = 1.0
    """largest L2 norm of a critic's gradient at one fake"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise on the sum of gradients over 2 clip, the
    most that one critic can move it; found from the budget and steps if left out; 0: no noise"""
    steps: int | None = None
    """generator steps; found from the budget and sigma if left out"""
    critic_steps: int = 5
    """critic steps each time that a critic is queried"""
    critic_steps_first: int = 5
    """critic steps the first time that a critic is queried"""
    records_per_step: int = 32
    """the most real records in one critic step"""
    pool: int = 32
    """fakes of each class that the critics of a step learn from; 0: each critic draws its own anew
    for each of its steps, as in Algorithm 1, which is quick where few critics answer"""
    penalty: float = 10.0
    """weight of the gradient penalty; 0: none"""
    drift: float = 1e-3
    """weight of the squared scores of real records"""
    class_weight: float = 0.0
    """weight, in a critic's answer at a fake, of the gradient of its class score (the score under
    the fake's label less the mean of those under the others), beside the gradient of its score; 0:
    none, as published"""
    warm_steps: int = 2000
    """steps of the warm start, in which each critic has its own generator"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    logit_slope: LogitSlope = "sigmoid"
    """how what is released for pixels reaches the generator's logits: sigmoid: by the chain rule,
    as published; straight-through: as it is, less what moves a black or white pixel further out"""
    ema: float = 0.999
    """the released generator is a moving average of the weights; 0: the last weights"""
    generator: ResNetNet = ResNetNet()
    critic: CriticNet = CriticNet()
    warm_generator: ResNetNet = ResNetNet()
    d_optimiser: Adam = PUBLISHED_ADAM
    g_optimiser: Adam = PUBLISHED_ADAM

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            critics=self.critics, client_records=self.client_records, batch=self.batch,
            clip=self.clip, critic_steps=self.critic_steps,
            critic_steps_first=self.critic_steps_first, records_per_step=self.records_per_step)
        require_not_negative(critics_per_step=self.critics_per_step, warm_steps=self.warm_steps,
                             pool=self.pool, penalty=self.penalty, drift=self.drift,
                             class_weight=self.class_weight)
        require_share(g_final_rate=self.g_final_rate)
        require_decay(ema=self.ema)

    @property
    def n_clients(self) -> int:
        """The number of critics, each of which is a client where federated."""
        return self.critics

    def with_clients(self, clients: int) -> Self:
        """Returns the configuration with this number of critics."""
        return dataclasses.replace(self, critics=clients)


def images_only(spec: Spec) -> ImageSpec:
    """Returns the schema of images.

    Raises:
        UserError: for a table, and for images that are too large.
    """
    if not isinstance(spec, ImageSpec):
        raise UserError("this method's networks are for images; for a table use gpate")
    if (values := math.prod(spec.shape)) > MOST_COLUMNS:
        raise UserError(f"images of {spec.height} x {spec.width} x {spec.channels} have {values:,} "
                        f"values; this method releases a gradient of {MOST_COLUMNS:,} at most: "
                        "load them smaller, a folder with --image-size")
    return spec


def schedule(config: CriticConfig) -> Schedule:
    """Returns the schedule by which critics answer.

    Raises:
        UserError: for more critics in a step than there are, and for sampling that the accounting
            does not know.
    """
    total, answering = config.critics, config.critics_per_step or config.critics
    if answering > total:
        raise UserError(f"critics_per_step is {answering}, of {total} critics; it must be {total} "
                        "or fewer, or 0 for all")
    if config.accounting == "as-published":
        if answering != 1 or config.federated:
            raise UserError("--accounting as-published is for one critic a step in one process; "
                            "pass --critics-per-step 1, without --federated")
        return PublishedSampling(total)
    if config.schedule == "secret-draw":
        return FixedSizeSampling(total, answering)
    return FullParticipation() if answering == total else RoundRobin(-(-total // answering))


def mechanism(config: CriticConfig, spec: Spec) -> SumMechanism | LocalMechanism:
    """Returns the mechanism: the noisy mean of the clipped gradients of one step.

    Guarantee:
        Unit: a record through its critic, or a client where federated. Relation: replace-one.
        A message is a gradient of norm up to C at each of B fakes, whatever the records of the unit
        are, so its sensitivity is 2 C sqrt(B). The noise has a standard deviation of 2 C sigma per
        coordinate of the sum, or of one client's message where federated. One participation is one
        Gaussian release with mu = sqrt(B) / sigma.

    Raises:
        UserError: for a table, and for a sigma that is too large for the noise's integers.
    """
    columns, sigma = math.prod(images_only(spec).shape), config.sigma or 0.0
    levels = row_levels(columns, sigma)
    bound = RowL2(config.clip, columns, config.batch, levels)
    noise, rounds = gaussian(2 * levels * sigma), schedule(config)
    shape, decode = (config.batch, columns), GridMean(bound.grid)
    if config.federated:
        public = cast(FullParticipation | RoundRobin, rounds)  # it refuses all others itself
        return LocalMechanism(bound=bound, noise=noise, schedule=public, n_units=config.critics,
                              shape=shape, decode=decode)
    return SumMechanism(bound=bound, noise=noise, schedule=rounds, n_units=config.critics,
                        shape=shape, decode=decode)
