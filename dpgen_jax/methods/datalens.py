"""DataLens (Wang et al., CCS 2021, arXiv 2103.11109), Algorithms 1 to 3.

Unit: a teacher discriminator. It learns to tell its own records from public fakes, and answers
with the top-k stochastic signs of the direction in which each queried fake would look more real.
The votes are summed with Gaussian noise, thresholded, and the generator is fitted to its fakes
moved by the result. `_skeleton` names the departures from the published code.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.aggregation.threshold import Mean, Threshold
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.config import Runtime
from dpgen_jax.methods._skeleton import TeacherConfig, converse, features
from dpgen_jax.types import Method, Spec


@dataclasses.dataclass(frozen=True)
class Config(TeacherConfig):
    """What DataLens computes."""

    top_k: int = 200
    """votes of a teacher on one fake"""
    clip: float = 1e-5
    """gradients are clipped to +- this before they are scaled to signs; inf: not clipped"""
    decode: Literal["threshold", "mean"] = "threshold"
    """what is made of the noisy votes: the paper's threshold, or the votes over teachers"""
    threshold: float = 0.7
    """share of the teachers that must agree"""
    step_size: float = 1e-3
    """how far a fake is moved"""

    positive = (*TeacherConfig.positive, "top_k", "step_size", "clip")


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The top-k sign vote. Unit: a record, through its teacher; replace-one; 2 sqrt(k B)."""
    return Mechanism(
        bound=TopKSign(min(config.top_k, features(spec)), rows=config.batch, clip=config.clip),
        noise=gaussian(config.sigma), schedule=Everyone(), n_units=config.teachers,
        shape=(config.batch, features(spec)),
        decode=Threshold(config.threshold) if config.decode == "threshold" else Mean())


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    return converse(config, spec, runtime, mechanism(config, spec),
                    message=lambda _, gradients: gradients,
                    direction=lambda _, released: config.step_size * released)
