"""G-PATE (Long et al., NeurIPS 2021, arXiv 1906.09338), Algorithms 1 to 3.

Unit: a teacher discriminator. It answers with the direction in which each queried fake would look
more real, projected by a public random matrix that is drawn anew for every fake. Each projected
coordinate is a vote for one of a few bins; the bin with most noisy votes is released where enough
teachers agree (Confident-GNMax), its midpoint is projected back, and the generator is fitted to
its fakes so moved. `_skeleton` names the departures from the published code.

Beyond the paper, `aggregate` chooses what is released, at the same price for the same noise or
less: the whole noisy histogram and its mean; a noisy sum of clipped projections; or, without
projection, the top-k signs of DataLens. Under data-independent accounting the arg max throws away
what was paid for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import projection
from dpgen_jax.aggregation.clip import GridMean, RowL2
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.histogram import HistogramMean, OneHot
from dpgen_jax.aggregation.mechanism import Bound, Mechanism, Releases
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.aggregation.threshold import Mean
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.config import Runtime
from dpgen_jax.methods._skeleton import TeacherConfig, converse, features
from dpgen_jax.types import Array, Method, Spec, UserError


@dataclasses.dataclass(frozen=True)
class Config(TeacherConfig):
    """What G-PATE computes."""

    aggregate: Literal["gnmax", "mean", "sum", "topk"] = "gnmax"
    """gnmax: the paper's noisy arg max behind a noisy threshold; mean: of the noisy histogram; sum:
    noisy sum of clipped projections; topk: noisy sum of top-k signs, without projection"""
    projection: int = 10
    """k: coordinates that a gradient is projected to; 0: not projected; with topk: votes on one
    fake, without projection"""
    bins: int = 10
    """B: of each coordinate's histogram"""
    clip: float = 1e-4
    """c: projected gradients are clipped to +- this; sum: to this L2 norm; topk: gradients, before
    they are scaled to signs"""
    threshold: float = 0.5
    """share of the teachers that must agree on a bin"""
    sigma_ratio: float = 3.0
    """noise of the threshold test, as a multiple of sigma"""
    sanitiser: Sanitiser = Sanitiser(20.0, 0.01, 10.0, 30.0, 3.0)
    """by which `account RUN --sanitise` may publish a data-dependent bound; fixed with the run"""
    d_steps: int = 1
    d_steps_first: int = 1

    positive = (*TeacherConfig.positive, "bins", "clip", "sigma_ratio")

    def __post_init__(self):
        super().__post_init__()
        if self.projection < 0:
            raise UserError(f"projection is {self.projection}; it must be 0 (none) or above")

    @property
    def sigma_threshold(self) -> float | None:
        """sigma_1, the noise of the threshold test; sigma is sigma_2."""
        return None if self.sigma is None else self.sigma_ratio * self.sigma


LEVELS = 32
"""of the grid that clipped projections are put on, at least; its step is a unit of sigma"""


def mechanism(config: Config, spec: Spec) -> Releases:
    """What is released of the votes. Unit: a record, through its teacher; replace-one.

    Errors: UserError for a projection to more coordinates than a record has, and for more bins
    than votes.
    """
    if config.projection > features(spec):
        raise UserError(f"projection is {config.projection}; the records have only "
                        f"{features(spec)} features to project")
    return _AGGREGATES[config.aggregate](config, config.projection or features(spec), spec)


def _gnmax(config: Config, columns: int, spec: Spec) -> ConfidentGNMax:
    return ConfidentGNMax(
        bound=_votes(config, columns), noise=gaussian(config.sigma), threshold=config.threshold,
        test_noise=gaussian(config.sigma_threshold), schedule=Everyone(), n_units=config.teachers)


def _mean(config: Config, columns: int, spec: Spec) -> Mechanism:
    bound = _votes(config, columns)
    return _sum_of(config, bound, columns * config.bins, HistogramMean(bound))


def _votes(config: Config, columns: int) -> OneHot:
    if config.bins > config.teachers:
        raise UserError(f"{config.bins} bins for {config.teachers} votes; use fewer bins or more "
                        "teachers")
    return OneHot(config.bins, columns, config.batch, config.clip)


def _sum(config: Config, columns: int, spec: Spec) -> Mechanism:
    bound = RowL2(config.clip, columns, config.batch,
                  levels=max(LEVELS, math.ceil(8 * math.sqrt(columns))))
    return _sum_of(config, bound, columns, GridMean(bound.grid))


def _topk(config: Config, columns: int, spec: Spec) -> Mechanism:
    return _sum_of(config, TopKSign(columns, config.batch, config.clip), features(spec), Mean())


_AGGREGATES = {"gnmax": _gnmax, "mean": _mean, "sum": _sum, "topk": _topk}


def _sum_of(config: Config, bound: Bound, columns: int, decode: Callable) -> Mechanism:
    return Mechanism(bound=bound, noise=gaussian(config.sigma), schedule=Everyone(),
                     n_units=config.teachers, shape=(config.batch, columns), decode=decode)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    held = mechanism(config, spec)
    if config.aggregate == "topk":  # signs carry no length: they are moved by the clip
        return converse(config, spec, runtime, held, message=lambda _, gradients: gradients,
                        direction=lambda _, released: config.clip * released)
    if not config.projection:
        return converse(config, spec, runtime, held, message=lambda _, gradients: gradients,
                        direction=lambda _, released: released)

    def question(key: Array) -> Array:
        return projection.matrices(key, config.batch, features(spec), config.projection)

    return converse(config, spec, runtime, held, question=question, message=projection.project,
                    direction=projection.reconstruct)
