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
from typing import Any, Literal

from dpgen_jax.accountant.published import Published, gaussians
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.clip import GridMean
from dpgen_jax.aggregation.mechanism import Bound, Mechanism, SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, HistogramMean, OneHot
from dpgen_jax.aggregation.topagg import Mean, TopKSign
from dpgen_jax.core.config import Runtime, later, require_not_negative, require_positive
from dpgen_jax.core.types import Array, ImageSpec, Method, Spec, UserError
from dpgen_jax.methods.shared import photographs, teachers
from dpgen_jax.methods.shared.low_frequencies import in_frequencies, length
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, numbers, serving
from dpgen_jax.methods.shared.teachers import Messages, TeacherConfig, build_gan
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet


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
    bound = teachers.clipped(config.clip, columns, config.batch)
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
        return teachers.unchanged(config.step_size * config.clip)
    if not config.projection:
        return teachers.unchanged(config.step_size)

    def question(key: Array) -> Array:
        whole = length(spec, config.frequencies)
        return teacher_votes.projection_matrices(key, config.batch, whole, config.projection)

    def direction(matrices: Array, released: Array) -> Array:
        return config.step_size * teacher_votes.reconstruct(matrices, released)

    return Messages(teacher_votes.project, direction, question)


PAPER_ANSWER_RATE = 0.55
"""share of answered queries at which G-PATE's 232 MNIST steps come to its epsilon of 1 by the
classic conversion"""


def published(config: Config, delta: float, answer_rate: float = PAPER_ANSWER_RATE
              ) -> Published | None:
    """Returns the accounting of the paper's code; None for another aggregation than the paper's.

    For each fake and each projected coordinate it counts a threshold test, and a noisy argmax where
    that answers.

    Args:
        answer_rate: The expected share of answered queries; it depends on the records, so below 1
            this is no guarantee.
    """
    if config.aggregate != "gnmax" or not config.projection:
        return None
    batch, k, event = config.batch, config.projection, None
    test, sigma = config.sigma_threshold or 0.0, config.sigma or 0.0
    if sigma and test:
        event = gaussians(batch * k * (1 / test**2 + 2 * answer_rate / sigma**2))
    return Published(
        formula="T * B k threshold tests, Gaussians of multiplier sigma1, and a share P of as many "
                f"noisy argmaxes, of sigma2 / sqrt(2), B={batch}, k={k}, sigma1={test:g}, "
                f"sigma2={sigma:g}, P={answer_rate:g}, delta={delta:g} (G-PATE's code)",
        event=event, delta=delta)


# Presets of G-PATE, each with its source.
#
# `mnist-` and `fashion-` presets are the settings of Long et al. 2021, appendix E and Tables 1, 2
# and 4; `-code` presets are the README commands and defaults of AI-secure/G-PATE, which has other
# networks, and the same bins and clip for both data sets. The batch is all records of a teacher,
# at most 64. Neither prints settings for CelebA: those are MNIST's of the code, also for
# DataLens' Places365. Photographs are read as `shared.photographs` says; these presets and
# `credit` have delta 1e-6, since the paper's 1e-5 is not below 1 / records.
#
# The presets of this library: `-gnmax`, `-mean`, `-sum` and `-topk` compare what is released at
# one proven budget, with small networks, and `-full` is the sum without projection. They were
# chosen on public data.

CODE = "README command of AI-secure/G-PATE; noise and teachers of Long et al. 2021, appendix E"
APPENDIX = "Long et al. 2021, appendix E"
PAPER = f"{APPENDIX} and Table 4"
OURS = "this library: chosen on public data"


SOUND = (
    *teachers.SOUND,
    "steps are those that data-independent accounting allows; the paper's epsilon depends on votes")
"""Differences from paper and code that the guarantee needs."""
UNPRINTED = (
    "one teacher step a round, as in the authors' code; Algorithm 1 has one for each fake",
    "a teacher's gradient is that of its mean non-saturating loss over the batch, and the "
    "generator's loss a sum over it, as in the authors' code; Algorithm 1 has the reverse",
    "latents are the authors' code's, uniform; the paper prints none")
"""Settings that the paper leaves out, or that differ in the code."""
LAYERS = "the last layers of the networks are read into the paper (nets.image), which names none"
SEARCHED = "bins and clip are the best of Table 4, which is for epsilon 1 only"

def _published(epsilon: float, spec: Spec, records: int, *, latent: int = 50,
               source: str = CODE, **fields: Any) -> Preset:
    """A preset with the settings of the authors' command lines."""
    config = Config(generator=GeneratorNet(latent=latent), **fields)
    return Preset(config, spec, epsilon, 1e-5, records, source, differs=SOUND)


_eps1: dict[str, Any] = {"teachers": 4000, "batch": 15, "sigma": 1000.0, "sigma_ratio": 3.0}
_eps10: dict[str, Any] = {"teachers": 2000, "batch": 30, "sigma": 100.0, "sigma_ratio": 6.0,
                          "latent": 100}


def _pair(name: str, spec: ImageSpec, records: int, **fields: Any) -> dict[str, Preset]:
    """The published settings for epsilon 1 and for 10."""
    return {f"{name}-eps1": _published(1.0, spec, records, **_eps1 | fields),
            f"{name}-eps10": _published(10.0, spec, records, **_eps10 | fields)}


def _small_budgets(name: str, preset: Preset) -> dict[str, Preset]:
    """The points of Table 2: the settings of epsilon 1, stopped earlier."""
    return {f"{name}-eps{epsilon}": dataclasses.replace(
        preset, epsilon=epsilon, source="Long et al. 2021, Table 2", paper_steps=None)
        for epsilon in (0.2, 0.4, 0.6, 0.8)}


def _printed(preset: Preset, **fields: Any) -> Preset:
    """The paper's settings: its networks, and the best bins and clip of Table 4."""
    net = dataclasses.replace(preset.config.generator, channels=64)
    config = dataclasses.replace(preset.config, layers="paper", generator=net, **fields)
    differs = (*SOUND, *UNPRINTED, LAYERS, *((SEARCHED,) if preset.epsilon > 1 else ()))
    return dataclasses.replace(preset, config=config, source=PAPER, differs=differs)


def _compared(name: str) -> dict[str, Preset]:
    """The aggregations at epsilon 1 with 4,000 teachers, everything else being equal."""
    config = Config(
        teachers=4000, batch=15, steps=50, d_steps_first=5, g_optimiser=Adam(4e-3),
        g_final_rate=0.1, ema=0.9, generator=GeneratorNet(10, 512, 64),
        discriminator=DiscriminatorNet(8, 16, 64))
    # Planned for 50 steps too; the budget that unanswered queries leave buys it more.
    ways: dict[str, dict[str, Any]] = {
        "gnmax": {"steps": None, "sigma": 469.5}, "mean": {}, "sum": {},
        "topk": {"projection": 200, "clip": 1e-5}, "full": {"aggregate": "sum", "projection": 0}}
    return {f"{name}-eps1-{way}": Preset(
        dataclasses.replace(config, **{"aggregate": way} | fields), MNIST, 1.0, 1e-5, 60000, OURS)
        for way, fields in ways.items()}


def _of_a_table(dataset: str, features: int, records: int, teachers: int) -> Preset:
    """A noisy sum of clipped gradients in few steps, as suits rows of some tens of features."""
    config = Config(
        aggregate="sum", projection=0, abstain=True, teachers=teachers, batch=32, steps=50,
        d_steps_first=5, d_optimiser=Adam(5e-3), g_optimiser=Adam(4e-3), g_final_rate=0.1, ema=0.9,
        generator=GeneratorNet(latent=8, hidden=64), discriminator=DiscriminatorNet(hidden=32))
    return Preset(config, numbers(features), 1.0, 1e-5, records, OURS, 0.01, dataset)


def _of_photographs() -> dict[str, Preset]:
    """CelebA and Places365, with the settings of MNIST."""
    return {name: photographs.preset(
        preset.config, data, preset.epsilon, preset.source, *SOUND,
        "neither paper nor code prints settings for photographs: those of MNIST")
        for kind, data in photographs.ALL.items()
        for name, preset in _pair(kind, data.spec, data.records).items()}


_codes = _pair("mnist", MNIST, 60000) | _pair("fashion", MNIST, 60000)
_mnist = {name: _printed(_codes[name], bins=5) for name in ("mnist-eps1", "mnist-eps10")}
_fashion = {name: _printed(_codes[name], clip=5e-5) for name in ("fashion-eps1", "fashion-eps10")}
# "reaches the privacy budget of epsilon = 1 at epoch 232" (appendix G)
_mnist["mnist-eps1"] = dataclasses.replace(_mnist["mnist-eps1"], paper_steps=232)
_credit = Preset(
    Config(teachers=2100, batch=32, projection=5, sigma=600.0, sigma_ratio=2.5, layers="paper",
           generator=GeneratorNet(latent=7, hidden=29), discriminator=DiscriminatorNet(hidden=29)),
    numbers(29), 1.0, 1e-5, 284807, APPENDIX, 0.01, differs=(
        *SOUND, *UNPRINTED, "networks of PATE-GAN's code; the bins, 10, are those of G-PATE's",
        "delta 1e-6: the paper's 1e-5 is not below 1 / records, and a run refuses it"))

PRESETS = {
    "glyphs": Preset(
        Config(aggregate="sum", teachers=1500, batch=15, steps=100, d_steps_first=5,
               g_optimiser=Adam(4e-3), g_final_rate=0.05, ema=0.9,
               generator=GeneratorNet(8, 256, 32), discriminator=DiscriminatorNet(8, 16, 32)),
        GLYPHS, 10.0, 1e-5, 30000, OURS),
    **_mnist, **_fashion,
    **_small_budgets("mnist", _mnist["mnist-eps1"]),
    **_small_budgets("fashion", _fashion["fashion-eps1"]),
    **{f"{name}-code": preset for name, preset in _codes.items()},
    **_compared("mnist"), **_compared("fashion"),
    **_of_photographs(),
    "table": _of_a_table("table", 29, 45569, 400),
    "breast_cancer": _of_a_table("breast_cancer", 30, 455, 455),
    "adult": _of_a_table("adult", 108, 32561, 4000),
    "credit-sample": _of_a_table("", 29, 45569, 2100),
    "credit": dataclasses.replace(_credit, delta=1e-6),
    "credit-nonprivate": dataclasses.replace(
        _credit, config=dataclasses.replace(_credit.config, teachers=10, sigma=0.0, steps=1000),
        epsilon=math.inf, class_epsilon=0.0,
        source="Long et al. 2021, Table 7",
        differs=(*_credit.differs[:-1], "the number of steps is ours; the paper prints none")),
}
PRESETS = serving(
    PRESETS, ("glyphs", "mnist-eps1-sum", "fashion-eps1-sum", *_of_photographs()),
    {"images-eps1": "mnist-eps1-sum", "table-few": "breast_cancer"})
RENAMED = {f"{name}-paper": name for name in _codes} | {"images": "images-eps1"}
