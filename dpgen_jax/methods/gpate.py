"""G-PATE (Long et al., NeurIPS 2021, arXiv 1906.09338), Algorithms 1 to 3.

Unit: a teacher discriminator. It answers with the direction in which each queried fake would look
more real, projected by a public random matrix that is drawn anew for every fake. Each projected
coordinate is a vote for one of a few bins; the bin with most noisy votes is released where enough
teachers agree (Confident-GNMax), its midpoint is projected back, and the generator is fitted to
its fakes so moved. `shared.teachers` names the departures from the published code.

Beyond the paper, `aggregate` chooses what is released, at the same price for the same noise or
less: the whole noisy histogram and its mean; a noisy sum of clipped projections; or, without
projection, the top-k signs of DataLens. Under data-independent accounting the arg max discards most
of what was paid for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from dpgen_jax.accountant import published as formulas
from dpgen_jax.accountant.published import Published
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.clip import GridMean, RowL2
from dpgen_jax.aggregation.mechanism import Bound, Mechanism, SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, HistogramMean, OneHot
from dpgen_jax.aggregation.topagg import Mean, TopKSign
from dpgen_jax.core.config import Runtime, later, require_not_negative, require_positive
from dpgen_jax.core.types import Array, Method, Spec, UserError
from dpgen_jax.methods.shared.low_frequencies import in_frequencies, length
from dpgen_jax.methods.shared.teachers import Messages, TeacherConfig, build_gan


@dataclasses.dataclass(frozen=True)
class Config(TeacherConfig):
    """The configuration of G-PATE."""

    aggregate: Literal["gnmax", "mean", "sum", "topk"] = "gnmax"
    """gnmax: the paper's noisy arg max behind a noisy threshold; mean: of the noisy histogram; sum:
    noisy sum of clipped projections; topk: noisy sum of top-k signs, without projection"""
    projection: int = 10
    """k: coordinates to which a gradient is projected; 0: no projection; with topk: votes on one
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
    """discriminator steps before each answer"""
    d_steps_first: int = 1
    """discriminator steps before the first answer"""
    step_size: float = later(1.0)
    """how far a fake is moved, in released gradients"""
    frequencies: int = later(0)
    """images: low frequencies a side, at most, of which gradients are projected, clipped and added
    up; 0: gradients of all pixels"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(bins=self.bins, clip=self.clip, sigma_ratio=self.sigma_ratio,
                         step_size=self.step_size)
        require_not_negative(frequencies=self.frequencies)
        if self.projection < 0:
            raise UserError(f"projection is {self.projection}; it must be 0 (none) or above")

    @property
    def sigma_threshold(self) -> float | None:
        """The noise of the threshold test, sigma_1 in the paper, where sigma is sigma_2."""
        return None if self.sigma is None else self.sigma_ratio * self.sigma


LEVELS = 32
"""The least number of levels of the grid of clipped projections; its step is a unit of sigma."""


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """Returns the mechanism of `config.aggregate`.

    Guarantee:
        Unit: a record, through its teacher. Relation: replace-one. The sensitivity is that of the
        bound, see `ConfidentGNMax`, `OneHot`, `RowL2` and `TopKSign`.

    Source:
        Long et al., NeurIPS 2021, Algorithm 3 (gnmax).

    Raises:
        UserError: for a projection to more coordinates than a record has, and for more bins than
            votes.
    """
    whole = length(spec, config.frequencies)
    if config.projection > whole:
        raise UserError(f"projection is {config.projection}; the records have only {whole} "
                        f"{'frequencies' if config.frequencies else 'features'} to project")
    return _AGGREGATES[config.aggregate](config, config.projection or whole, spec)


def _gnmax(config: Config, columns: int, spec: Spec) -> ConfidentGNMax:
    """The paper's noisy arg max behind a noisy threshold."""
    return ConfidentGNMax(
        bound=_votes(config, columns),
        noise=gaussian(config.sigma),
        threshold=config.threshold,
        test_noise=gaussian(config.sigma_threshold),
        schedule=FullParticipation(),
        n_units=config.teachers,
    )


def _mean(config: Config, columns: int, spec: Spec) -> SumMechanism:
    """The noisy histograms, of which the mean is decoded."""
    bound = _votes(config, columns)
    return _sum_of(config, bound, columns * config.bins, HistogramMean(bound))


def _votes(config: Config, columns: int) -> OneHot:
    """The bound of one vote on each histogram."""
    if config.bins > config.teachers:
        raise UserError(f"{config.bins} bins for {config.teachers} votes; use fewer bins or more "
                        "teachers")
    return OneHot(config.bins, columns, config.batch, config.clip)


def _sum(config: Config, columns: int, spec: Spec) -> SumMechanism:
    """The noisy sum of clipped projections."""
    levels = max(LEVELS, math.ceil(8 * math.sqrt(columns)))
    bound = RowL2(config.clip, columns, config.batch, levels)
    return _sum_of(config, bound, columns, GridMean(bound.grid))


def _topk(config: Config, columns: int, spec: Spec) -> SumMechanism:
    """The noisy sum of top-k signs."""
    bound = TopKSign(columns, config.batch, config.clip)
    return _sum_of(config, bound, length(spec, config.frequencies), Mean())


_AGGREGATES: dict[str, Callable[[Config, int, Spec], Mechanism]] = {
    "gnmax": _gnmax, "mean": _mean, "sum": _sum, "topk": _topk}


def _sum_of(config: Config, bound: Bound, columns: int, decode: Callable[[Array, float], Array]
            ) -> SumMechanism:
    """A noisy sum over all teachers."""
    return SumMechanism(bound=bound, noise=gaussian(config.sigma), schedule=FullParticipation(),
                        n_units=config.teachers, shape=(config.batch, columns), decode=decode)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    released_by = mechanism(config, spec)
    messages = in_frequencies(_messages(config, spec), spec, config.frequencies)
    return build_gan(config, spec, runtime, released_by, messages)


def _messages(config: Config, spec: Spec) -> Messages:
    """Gradients, projected or as they are; a release moves fakes by step_size of itself."""
    if config.aggregate == "topk":  # signs carry no length: fakes move by the clip
        return Messages(lambda _, gradients: gradients,
                        lambda _, released: config.step_size * config.clip * released)
    if not config.projection:
        return Messages(lambda _, gradients: gradients,
                        lambda _, released: config.step_size * released)

    def question(key: Array) -> Array:
        whole = length(spec, config.frequencies)
        return teacher_votes.projection_matrices(key, config.batch, whole, config.projection)

    def direction(matrices: Array, released: Array) -> Array:
        return config.step_size * teacher_votes.reconstruct(matrices, released)

    return Messages(teacher_votes.project, direction, question)


def published(config: Config, delta: float) -> Published | None:
    """Returns the paper's own accounting; None for another aggregation than the paper's."""
    if config.aggregate != "gnmax" or not config.projection:
        return None
    return formulas.gpate(config.batch, config.projection, config.sigma or 0.0,
                          config.sigma_threshold or 0.0, delta)
