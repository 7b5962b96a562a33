"""DataLens (Wang et al., CCS 2021, arXiv 2103.11109), Algorithms 1 to 3.

Unit: a teacher discriminator. It learns to tell its own records from public fakes, and answers
with the top-k stochastic signs of the direction in which each queried fake would look more real.
The votes are summed with Gaussian noise, thresholded, and the generator is fitted to its fakes
moved by the result. `shared.teachers` names the departures from the published code.

`aggregate` chooses between the paper's compression and the two that it compares with (Table 5,
appendix C.2), which are made sound here: D2P-Fed rotates gradients, rounds them to few levels and
is rotated back after the noise; FetchSGD adds up sketches of votes, with noise on the sketch and
the largest estimates chosen afterwards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp

from dpgen_jax.accountant.published import Published, gaussians
from dpgen_jax.aggregation import compression
from dpgen_jax.aggregation.clip import GridMean
from dpgen_jax.aggregation.compression import CountSketch, KLevels, SketchedSigns
from dpgen_jax.aggregation.mechanism import Bound, SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.topagg import Mean, Threshold, TopAggMechanism, TopKSign
from dpgen_jax.core.config import Runtime, later, require_not_negative, require_positive
from dpgen_jax.core.types import Array, ImageSpec, Method, Spec, UserError
from dpgen_jax.methods.shared import photographs, teachers
from dpgen_jax.methods.shared.low_frequencies import in_frequencies, length
from dpgen_jax.methods.shared.photographs import GENDER_L, GENDER_S, HAIR, HAIR_S, PLACES
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, serving
from dpgen_jax.methods.shared.teachers import Messages, TeacherConfig, build_gan
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet


@dataclasses.dataclass(frozen=True)
class Config(TeacherConfig):
    """The configuration of DataLens."""

    aggregate: Literal["topk", "d2p", "fetchsgd"] = "topk"
    """topk: the paper's sum of top-k signs; d2p: of rotated gradients, rounded to few levels;
    fetchsgd: of count sketches of top-k signs, of which the k largest entries are used"""
    top_k: int = 200
    """votes of a teacher on one fake; not of d2p"""
    clip: float = 1e-5
    """gradients are clipped to +- this before they are scaled to signs, or rotated; inf: not
    clipped"""
    levels: int = 16
    """d2p: levels of an entry"""
    sketch_rows: int = 3
    """fetchsgd: estimates of which the median is taken"""
    sketch_columns: int = 256
    """fetchsgd: sums in each row of a sketch"""
    decode: Literal["threshold", "mean"] = "threshold"
    """how the noisy votes are decoded: by the paper's threshold, or as votes over teachers"""
    threshold: float = 0.7
    """share of the teachers that must agree"""
    step_size: float = 1e-3
    """how far a fake is moved"""
    frequencies: int = later(0)
    """images: low frequencies a side, at most, of which gradients are compressed and added up; 0:
    gradients of all pixels"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(top_k=self.top_k, step_size=self.step_size, levels=self.levels,
                         sketch_rows=self.sketch_rows, sketch_columns=self.sketch_columns)
        require_not_negative(frequencies=self.frequencies)
        if not self.clip > 0:
            raise UserError(f"clip is {self.clip}; it must be above 0 (inf: not clipped)")


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: a noisy sum of bounded messages.

    Guarantee:
        Unit: a record, through its teacher. Relation: replace-one. The sensitivity is that of the
        bound; for topk it is 2 sqrt(k B). One step is one Gaussian release.

    Source:
        Wang et al., CCS 2021, Theorem 3, where the batch is counted as well.
    """
    bound, columns, decode = _BOUNDS[config.aggregate](config, spec)
    fields: dict[str, Any] = {
        "noise": gaussian(config.sigma), "schedule": FullParticipation(),
        "n_units": config.teachers, "shape": (config.batch, columns)}
    if isinstance(bound, TopKSign) and isinstance(decode, Threshold):
        return TopAggMechanism(bound=bound, decode=decode, **fields)
    return SumMechanism(bound=bound, decode=decode, **fields)


Decode = Callable[[Array, float], Array]
Bounded = tuple[Bound, int, Decode]
"""A bound, the columns of a bounded message, and the decoder of the noisy sum."""


def _votes(config: Config, spec: Spec) -> TopKSign:
    """The bound of top-k signs."""
    kept = min(config.top_k, length(spec, config.frequencies))
    return TopKSign(kept, config.batch, clip=config.clip)


def _topk(config: Config, spec: Spec) -> Bounded:
    """The paper's sum of top-k signs."""
    decode: Decode = Threshold(config.threshold) if config.decode == "threshold" else Mean()
    return _votes(config, spec), length(spec, config.frequencies), decode


def _d2p(config: Config, spec: Spec) -> Bounded:
    """A sum of rotated gradients, rounded to few levels."""
    bound = KLevels(config.levels, compression.padded_width(length(spec, config.frequencies)),
                    config.batch)
    return bound, bound.columns, GridMean(bound.grid)


def _fetchsgd(config: Config, spec: Spec) -> Bounded:
    """A sum of count sketches of top-k signs."""
    columns = length(spec, config.frequencies)
    table = CountSketch(config.sketch_rows, config.sketch_columns, columns)
    return SketchedSigns(_votes(config, spec), table), table.size, Mean()


_BOUNDS = {"topk": _topk, "d2p": _d2p, "fetchsgd": _fetchsgd}


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    released_by = mechanism(config, spec)
    messages = in_frequencies(_MESSAGES[config.aggregate](config, spec, released_by.bound),
                              spec, config.frequencies)
    return build_gan(config, spec, runtime, released_by, messages)


def _unchanged(config: Config, spec: Spec, bound: Bound) -> Messages:
    """Gradients as they are, of which the bound takes signs."""
    return teachers.unchanged(config.step_size)


def _rotated(config: Config, spec: Spec, bound: Bound) -> Messages:
    """Gradients, clipped and rotated."""
    columns, agreed = length(spec, config.frequencies), _agreed(config)

    def message(signs: Array, gradients: Array) -> Array:
        inside = jnp.clip(gradients, -config.clip, config.clip)
        return compression.rotate(signs, jnp.where(jnp.isfinite(gradients), inside, jnp.nan))

    def direction(signs: Array, released: Array) -> Array:
        # Of length sqrt(D) where all teachers agree, as signs are.
        votes = math.sqrt(columns) * compression.unrotate(signs, released, columns)
        return config.step_size * agreed(votes)

    return Messages(message, direction,
                    lambda key: compression.random_signs(key, config.batch, columns))


def _sketched(config: Config, spec: Spec, bound: Bound) -> Messages:
    """Gradients in an order that is shuffled in public, since the sketch's hashes are fixed."""
    assert isinstance(bound, SketchedSigns)
    columns, agreed = length(spec, config.frequencies), _agreed(config)

    def direction(shuffle: tuple[Array, Array], released: Array) -> Array:
        return config.step_size * agreed(compression.unshuffled(shuffle, bound.unsketch(released)))

    return Messages(compression.shuffled, direction,
                    lambda key: compression.shuffle(key, config.batch, columns))


_MESSAGES = {"topk": _unchanged, "d2p": _rotated, "fetchsgd": _sketched}


def _agreed(config: Config) -> Callable[[Array], Array]:
    """The decoder of votes that are not integers: float32, in shares of the teachers."""
    if config.decode == "mean":
        return lambda votes: votes
    share = Threshold(config.threshold).beta
    return lambda votes: jnp.where(jnp.abs(votes) >= share, jnp.sign(votes), 0)


def published(config: Config, delta: float) -> Published | None:
    """Returns the paper's accounting: Theorem 3 for one fake, added up over the batch as its code.

    It is None for another aggregation than the paper's.
    """
    if config.aggregate != "topk":
        return None
    k, batch, sigma = config.top_k, config.batch, config.sigma or 0.0
    return Published(
        formula="T * B Gaussians of multiplier sigma / (2 sqrt(k)), "
                f"k={k}, B={batch}, sigma={sigma:g}, delta={delta:g} (DataLens, Theorem 3)",
        event=gaussians(4 * k * batch, sigma), delta=delta)


# Presets of DataLens, each with its source.
#
# The presets named after data and epsilon are the paper's settings; `-code` presets are the
# command lines in the authors' README, which has uniform latents and, for epsilon 10, another k,
# noise or clip. Batch is min(30, n / teachers), as there. The published networks are the defaults
# of `nets.image`. CelebA and Places365 are read as `shared.photographs` says.

PAPER = "Wang et al. 2021 (DataLens), section 5.1 and Table 4"
COMMAND = "README command of AI-secure/DataLens"

SOUND = (
    *teachers.SOUND,
    "steps are those that exact Gaussian accounting allows, with all fakes of a query counted")
"""Differences from paper and code that the guarantee needs."""
UNPRINTED = (
    "2 teacher steps a round, and more before the first, as in the authors' code; Algorithm 1 has "
    "one for each fake",
    "a teacher's gradient is that of its mean loss over the batch, and the generator's loss a sum "
    "over it, as in the authors' code; Algorithm 1 has the reverse",
    "Adam at 1e-3 and steps of 1e-3 for the fakes are the authors' code's; the paper prints none")
"""Settings that the paper leaves out, or that differ in the code."""


def _published(epsilon: float, spec: ImageSpec, records: int, latent: int = 50, **fields: Any
               ) -> Preset:
    """A preset with the settings of the authors' command lines."""
    config = Config(generator=GeneratorNet(latent=latent), **fields)
    return Preset(config, spec, epsilon, 1e-5, records, COMMAND, differs=SOUND)


def _printed(preset: Preset, **fields: Any) -> Preset:
    """The paper's settings: Gaussian latents, and what else differs from the command line."""
    net = dataclasses.replace(preset.config.generator, latent_distribution="gaussian")
    differs = UNPRINTED if preset.epsilon == 1 else (
        *UNPRINTED, "the threshold is the command line's; the paper prints none for epsilon 10")
    return dataclasses.replace(
        preset, config=dataclasses.replace(preset.config, generator=net, **fields), source=PAPER,
        differs=(*preset.differs, *differs))


def _mean(preset: Preset, steps: int) -> Preset:
    """The published teachers and votes at the same budget, spent in fewer steps.

    The noisy votes are used as they are, by a generator with a falling learning rate that is
    averaged.
    """
    config = dataclasses.replace(
        preset.config, decode="mean", sigma=None, steps=steps, g_optimiser=Adam(4e-3),
        g_final_rate=0.1, ema=0.9, generator=GeneratorNet(latent=10))
    return dataclasses.replace(preset, config=config, differs=(), source="this library, teachers "
                               "and votes as in the " + preset.source)


def _compressed(name: str, aggregate: str) -> Preset:
    """The same teachers, steps and budget with another compression; the noise is found."""
    preset = PRESETS[name]
    config = dataclasses.replace(preset.config, aggregate=aggregate, sigma=None,
                                 sketch_columns=40 if name == "glyphs" else 256)
    return dataclasses.replace(preset, config=config, source=f"this library: {name} with another "
                               "compression, to compare as in Table 5 of Wang et al. 2021")


_codes = {
    "mnist-eps1": _published(1.0, MNIST, 60000, top_k=200, sigma=5000.0, threshold=0.7),
    "mnist-eps10": _published(10.0, MNIST, 60000, top_k=300, sigma=800.0, threshold=0.2),
    "fashion-eps1": _published(1.0, MNIST, 60000, top_k=200, sigma=5000.0, threshold=0.9),
    "fashion-eps10": _published(10.0, MNIST, 60000, latent=64, top_k=350, sigma=1000.0,
                                threshold=0.27),
}


def _of_photographs(epsilon: float, data: photographs.Photographs, *differs: str,
                    **fields: Any) -> Preset:
    """A preset with the settings of the authors' command lines for photographs."""
    config = Config(d_steps_first=30, generator=GeneratorNet(latent=100), **fields)
    return photographs.preset(config, data, epsilon, COMMAND, *SOUND, *differs)


_FACES_1: dict[str, Any] = {"top_k": 700, "sigma": 9000.0}
_FACES_10: dict[str, Any] = {"top_k": 500, "sigma": 700.0, "clip": float("inf")}
_GENDER: dict[str, Any] = {"teachers": 6000, "batch": 30}
_HAIR_1: dict[str, Any] = {"teachers": 8000, "batch": 15, "threshold": 0.9} | _FACES_1
_HAIR_10: dict[str, Any] = {"teachers": 4000, "batch": 30, "threshold": 0.25} | _FACES_10
_SMALLER = "the paper has 64 x 64 pixels; its settings for those"
_HAIRS = "the paper prints the latents and k of Places365; all else is that of CelebA-Hair"

_photographs = {
    "gender-eps1": _of_photographs(1.0, GENDER_L, threshold=0.85, **_GENDER, **_FACES_1),
    "gender-eps10": _of_photographs(10.0, GENDER_L, threshold=0.12, **_GENDER, **_FACES_10),
    "gender-s-eps1": _of_photographs(1.0, GENDER_S, _SMALLER, threshold=0.85, **_GENDER,
                                     **_FACES_1),
    "gender-s-eps10": _of_photographs(10.0, GENDER_S, _SMALLER, threshold=0.12, **_GENDER,
                                      **_FACES_10),
    "hair-eps1": _of_photographs(1.0, HAIR, **_HAIR_1),
    "hair-eps10": _of_photographs(10.0, HAIR, **_HAIR_10),
    "hair-s-eps1": _of_photographs(1.0, HAIR_S, _SMALLER, **_HAIR_1),
    "hair-s-eps10": _of_photographs(10.0, HAIR_S, _SMALLER, **_HAIR_10),
    "places-eps1": _of_photographs(1.0, PLACES, _HAIRS, **_HAIR_1),
    "places-eps10": _of_photographs(10.0, PLACES, _HAIRS, **_HAIR_10 | {"top_k": 700}),
}
_codes |= {name: _photographs[name] for name in (
    "gender-eps1", "gender-eps10", "hair-eps1", "hair-eps10")}  # of which there are command lines

PRESETS = {
    "glyphs": Preset(
        Config(teachers=1500, batch=15, top_k=60, steps=100, decode="mean", d_steps=1,
               d_steps_first=5, g_optimiser=Adam(4e-3), g_final_rate=0.05, ema=0.9,
               generator=GeneratorNet(8, 256, 32), discriminator=DiscriminatorNet(8, 16, 32)),
        GLYPHS, 10.0, 1e-5, 30000,
        "this library: chosen on glyphs, whose records are public; benchmarks/images.py"),
    "mnist-eps1": _printed(_codes["mnist-eps1"]),
    "mnist-eps10": _printed(_codes["mnist-eps10"], top_k=350, sigma=900.0),
    "fashion-eps1": _printed(_codes["fashion-eps1"]),
    "fashion-eps10": _printed(_codes["fashion-eps10"], sigma=900.0),
    **{name: _printed(preset, clip=1e-5) for name, preset in _photographs.items()},
    **{f"{name}-code": preset for name, preset in _codes.items()},
}
PRESETS |= {f"{name}-mean": _mean(_codes[name], steps) for name, steps in (
    ("mnist-eps1", 50), ("mnist-eps10", 25), ("fashion-eps1", 50), ("fashion-eps10", 25))}
PRESETS |= {f"{name.removesuffix('-mean')}-{aggregate}": _compressed(name, aggregate)
            for name in ("glyphs", *(f"{data}-{epsilon}-mean" for data in ("mnist", "fashion")
                                     for epsilon in ("eps1", "eps10")))
            for aggregate in ("d2p", "fetchsgd")}
PRESETS = serving(
    PRESETS, ("glyphs", *_photographs, *(name for name in PRESETS if name.endswith("-mean"))),
    {"images-eps10": "mnist-eps10-mean", "images-eps1": "mnist-eps1-mean"})
