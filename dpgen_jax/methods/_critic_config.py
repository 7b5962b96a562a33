"""The fields of GS-WGAN and DP-GAN-DPAC, whose turn it is among their critics, and what is released
of these. How they learn and answer is in `_critics`."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from dpgen_jax.aggregation.clip import GridMean, RowL2, coarsest
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import MAX_SIGMA, gaussian
from dpgen_jax.aggregation.schedule import Everyone, PublishedDraw, Rotation, Schedule, SecretDraw
from dpgen_jax.methods._config import MethodConfig
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.types import ImageSpec, Spec, UserError

PUBLISHED_ADAM = Adam(1e-4, 0.5, 0.9)


@dataclasses.dataclass(frozen=True)
class CriticConfig(MethodConfig):
    """The fields of both systems. `steps` or `sigma` may be None: found from the budget."""

    critics: int = 1000
    """disjoint parts of the records, each with a critic of its own; clients, where federated"""
    critics_per_step: int = 0
    """critics that answer in a step, in a public rotation; 0: all"""
    schedule: Literal["rotation", "secret-draw"] = "rotation"
    """secret-draw: all critics learn, critics_per_step of them are heard"""
    accounting: Literal["proven", "as-published"] = "proven"
    """as-published: the paper's schedule, for which no guarantee is known; needs --epsilon inf"""
    federated: bool = False
    """critics are clients, who add noise themselves; the promise is for a client's whole data"""
    client_records: int = 512
    """records of a client that its critic learns from; of a larger client's some are left out"""
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
    critic_steps_first: int = 5
    """critic steps at a visit, and at the first one"""
    records_per_step: int = 32
    """the most real records in one critic step"""
    pool: int = 32
    """fakes of each class that the critics of a step learn from"""
    penalty: float = 10.0
    """weight of the gradient penalty; 0: none"""
    drift: float = 1e-3
    """weight of the squared scores of real records"""
    warm_steps: int = 2000
    """steps of the warm start, in which each critic has a generator of its own"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.999
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: ResNetNet = ResNetNet()
    critic: CriticNet = CriticNet()
    warm_generator: ResNetNet = ResNetNet()
    d_optimiser: Adam = PUBLISHED_ADAM
    g_optimiser: Adam = PUBLISHED_ADAM

    positive = ("critics", "client_records", "batch", "clip", "critic_steps", "critic_steps_first",
                "records_per_step", "pool")
    not_negative = ("critics_per_step", "warm_steps", "penalty", "drift")
    shares, decays = ("g_final_rate",), ("ema",)


def schedule(config: CriticConfig) -> Schedule:
    """Whose turn it is. Errors: UserError for more critics a step than there are, and for draws
    that the accounting does not know."""
    total, heard = config.critics, config.critics_per_step or config.critics
    if heard > total:
        raise UserError(f"critics_per_step is {heard}, of {total} critics; it must be {total} or "
                        "fewer, or 0 for all")
    if config.accounting == "as-published":
        if heard != 1 or config.federated:
            raise UserError("--accounting as-published is for one critic a step in one process; "
                            "pass --critics-per-step 1, without --federated")
        return PublishedDraw(total)
    if config.schedule == "secret-draw":
        return SecretDraw(total, heard)
    return Everyone() if heard == total else Rotation(-(-total // heard))


def mechanism(config: CriticConfig, spec: Spec) -> Mechanism | LocalMechanism:
    """The noisy mean of the clipped gradients of one step.

    Guarantee: replace-one. A unit's message is a gradient of norm up to C at each of B fakes,
    whatever the unit holds, so it moves by at most 2 C sqrt(B); the noise has a standard deviation
    of 2 C sigma per coordinate of the sum, or of one client's message where federated. One visit
    is one Gaussian release with mu = sqrt(B) / sigma.
    """
    if not isinstance(spec, ImageSpec):
        raise UserError("this method's networks are for images; for a table use gpate")
    columns, sigma = math.prod(spec.shape), config.sigma or 0.0
    # So fine that rounding costs nothing, or as fine as the table of a large noise allows.
    levels = math.ceil(8 * math.sqrt(columns))
    levels = min(levels, int(MAX_SIGMA / (2 * sigma))) if sigma else levels
    if levels < coarsest(columns):
        raise UserError(f"sigma is {sigma:g}; for images of {columns} values at most "
                        f"{MAX_SIGMA / (2 * coarsest(columns)):g} can be drawn")
    bound = RowL2(config.clip, columns, config.batch, levels)
    kind = LocalMechanism if config.federated else Mechanism
    return kind(bound=bound, noise=gaussian(2 * levels * sigma), schedule=schedule(config),
                n_units=config.critics, shape=(config.batch, columns), decode=GridMean(bound.grid))
