"""DataLens (Wang et al., CCS 2021, arXiv 2103.11109), Algorithms 1 to 3.

Unit: a teacher discriminator. It learns to tell its own records from public fakes, and answers
with the top-k stochastic signs of the direction in which each queried fake would look more real.
The votes are summed with Gaussian noise, thresholded, and the generator is fitted to its fakes
moved by the result. `_skeleton` names the departures from the published code.

`aggregate` chooses between the paper's compression and the two that it compares with (Table 5,
appendix C.2), which are made sound here: D2P-Fed rotates gradients, rounds them to few levels and
is rotated back after the noise; FetchSGD adds up sketches of votes, with noise on the sketch and
the largest estimates chosen afterwards.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp

from dpgen_jax.aggregation import hadamard, sketch
from dpgen_jax.aggregation.clip import GridMean
from dpgen_jax.aggregation.levels import KLevels
from dpgen_jax.aggregation.mechanism import Bound, Mechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.aggregation.sketch import CountSketch, SketchedSigns
from dpgen_jax.aggregation.threshold import Mean, Threshold
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.config import Runtime
from dpgen_jax.methods._skeleton import TeacherConfig, converse, features
from dpgen_jax.types import Array, Method, Spec


@dataclasses.dataclass(frozen=True)
class Config(TeacherConfig):
    """What DataLens computes."""

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
    """what is made of the noisy votes: the paper's threshold, or the votes over teachers"""
    threshold: float = 0.7
    """share of the teachers that must agree"""
    step_size: float = 1e-3
    """how far a fake is moved"""

    positive = (*TeacherConfig.positive, "top_k", "step_size", "clip", "levels", "sketch_rows",
                "sketch_columns")


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """A noisy sum of bounded messages. Unit: a record, through its teacher; replace-one; the
    sensitivity is that of the bound: for topk 2 sqrt(k B)."""
    bound, columns, decode = _BOUNDS[config.aggregate](config, spec)
    return Mechanism(bound=bound, noise=gaussian(config.sigma), schedule=Everyone(),
                     n_units=config.teachers, shape=(config.batch, columns), decode=decode)


def _votes(config: Config, spec: Spec) -> TopKSign:
    return TopKSign(min(config.top_k, features(spec)), rows=config.batch, clip=config.clip)


def _topk(config: Config, spec: Spec) -> tuple[Bound, int, Callable]:
    decode = Threshold(config.threshold) if config.decode == "threshold" else Mean()
    return _votes(config, spec), features(spec), decode


def _d2p(config: Config, spec: Spec) -> tuple[Bound, int, Callable]:
    bound = KLevels(config.levels, hadamard.width(features(spec)), config.batch)
    return bound, bound.columns, GridMean(bound.grid)


def _fetchsgd(config: Config, spec: Spec) -> tuple[Bound, int, Callable]:
    table = CountSketch(config.sketch_rows, config.sketch_columns, features(spec))
    return SketchedSigns(_votes(config, spec), table), table.size, Mean()


_BOUNDS = {"topk": _topk, "d2p": _d2p, "fetchsgd": _fetchsgd}


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    held = mechanism(config, spec)
    functions = _FUNCTIONS[config.aggregate](config, spec, held.bound)
    return converse(config, spec, runtime, held, **functions)


def _as_it_is(config: Config, spec: Spec, bound: TopKSign) -> dict[str, Callable]:
    return {"message": lambda _, gradients: gradients,
            "direction": lambda _, released: config.step_size * released}


def _rotated(config: Config, spec: Spec, bound: KLevels) -> dict[str, Callable]:
    columns, agreed = features(spec), _agreed(config)

    def message(signs: Array, gradients: Array) -> Array:
        inside = jnp.clip(gradients, -config.clip, config.clip)
        return hadamard.rotate(signs, jnp.where(jnp.isfinite(gradients), inside, jnp.nan))

    def direction(signs: Array, released: Array) -> Array:
        # Of length sqrt(D) where all teachers agree, as signs are.
        votes = math.sqrt(columns) * hadamard.unrotate(signs, released, columns)
        return config.step_size * agreed(votes)

    return {"question": lambda key: hadamard.signs(key, config.batch, columns),
            "message": message, "direction": direction}


def _sketched(config: Config, spec: Spec, bound: SketchedSigns) -> dict[str, Callable]:
    agreed = _agreed(config)

    def direction(shuffle: tuple[Array, Array], released: Array) -> Array:
        return config.step_size * agreed(sketch.unshuffled(shuffle, bound.unsketch(released)))

    return {"question": lambda key: sketch.shuffle(key, config.batch, features(spec)),
            "message": sketch.shuffled, "direction": direction}


_FUNCTIONS = {"topk": _as_it_is, "d2p": _rotated, "fetchsgd": _sketched}


def _agreed(config: Config) -> Callable[[Array], Array]:
    """The decoder of votes that are no integers: float32, in shares of the teachers."""
    if config.decode == "mean":
        return lambda votes: votes
    share = Threshold(config.threshold).beta
    return lambda votes: jnp.where(jnp.abs(votes) >= share, jnp.sign(votes), 0)
