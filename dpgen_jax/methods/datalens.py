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

from dpgen_jax.accountant import published as formulas
from dpgen_jax.accountant.published import Published
from dpgen_jax.aggregation import compression
from dpgen_jax.aggregation.clip import GridMean
from dpgen_jax.aggregation.compression import CountSketch, KLevels, SketchedSigns
from dpgen_jax.aggregation.mechanism import Bound, SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.topagg import Mean, Threshold, TopAggMechanism, TopKSign
from dpgen_jax.core.config import Runtime, later, require_not_negative, require_positive
from dpgen_jax.core.types import Array, Method, Spec, UserError
from dpgen_jax.methods.shared.low_frequencies import in_frequencies, length
from dpgen_jax.methods.shared.teachers import Messages, TeacherConfig, build_gan


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
    return Messages(lambda _, gradients: gradients,
                    lambda _, released: config.step_size * released)


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
    """The decoder of votes that are no integers: float32, in shares of the teachers."""
    if config.decode == "mean":
        return lambda votes: votes
    share = Threshold(config.threshold).beta
    return lambda votes: jnp.where(jnp.abs(votes) >= share, jnp.sign(votes), 0)


def published(config: Config, delta: float) -> Published | None:
    """Returns the paper's own accounting; None for another aggregation than the paper's."""
    if config.aggregate != "topk":
        return None
    return formulas.datalens(config.top_k, config.batch, config.sigma or 0.0, delta)
