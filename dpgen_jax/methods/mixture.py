"""A mixture of Gaussians for each class, estimated from a few noisy sums.

Unit: a record, in every round. An image is a vector of its low frequencies, about a public grey.
The first round releases, together, how often each shade occurs, the size and the mean of each
class, and the second moment of all records: a centre, a basis, and by it cells of each class, which
are found on samples of what was released. The next rounds release the size and the mean of each
cell (a step of Lloyd's algorithm); all further ones its size, mean and covariance, of which the
average is taken. What is left is public: eigenvalues that noise alone could make are cut, cells'
covariances leaning on their class's, and these on all together.

A record is in one class and one cell, so what it adds is zero but in one block (`moments`). Every
round costs the same, so one that a crash lost costs one round of averaging.

Source: this library's. Analyze Gauss (Dwork, Talwar, Thakurta and Zhang, STOC 2014) releases a
covariance so; Lloyd's steps with noise are in Su, Cao, Li, Bertino and Jin, "Differentially Private
K-Means Clustering" (CODASPY 2016).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.moment_grids import PhaseShares, alike
from dpgen_jax.aggregation.moments import Moments
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import (
    Array,
    ImageSpec,
    Method,
    Metrics,
    PyTree,
    Records,
    Spec,
    UserError,
)
from dpgen_jax.methods.shared import gaussians
from dpgen_jax.methods.shared.config import RecordUnits, require_not_negative, require_positive
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.methods.shared.gaussians import Public, Sizes
from dpgen_jax.nets.frequencies import low_frequencies, n_frequencies
from dpgen_jax.nets.noisy_moments import nearest_centre

SHADES = 32
POOLED: dict[str, Any] = {"first": 0.235, "second": 0.7, "count": 0.015, "tint": 0.05}
MEANS: dict[str, Any] = {"first": 0.9, "count": 0.1}
CELLS: dict[str, Any] = {"first": 0.15, "second": 0.78, "count": 0.07}
"""Shares of the squared norm of a message, in each kind of round."""


@dataclasses.dataclass(frozen=True)
class Config(RecordUnits):
    """The configuration of a mixture. `sigma` may be None: it is found from the budget."""

    records: int | None = None
    """number of records, which is public; that of the data set if left out"""
    relation: Literal["replace-one", "zero-out"] = "replace-one"
    """how neighbouring data sets differ: one record's content is replaced, or its influence is
    removed, which needs about 0.7 of the noise and promises less"""
    cells: int | None = None
    """Gaussians of each class; if left out, by a formula of records, noise and classes"""
    frequencies: int | None = None
    """cosine frequencies a side that images are described by; if left out, by a formula of records
    and noise"""
    dimensions: int = 60
    """largest number of principal directions in which cells have covariances"""
    norm: float | None = None
    """longest image about the grey level, in units of the square root of its numbers; longer ones
    are shortened to it; if left out 0.39 for grey images and 0.35 for colours"""
    grey: float | None = None
    """level from which images are counted; if left out 0 (background) for grey images and 0.5 for
    colours"""
    whitening: float = 0.25
    """how much directions of small variance are stretched before covariances are asked for: the
    power of the variance by which they are divided"""
    trust: float = 0.7
    """where noise is cut, in units of the largest eigenvalue that noise alone makes"""
    prune: float = 0.5
    """cells below this share of an average cell of their class are not sampled from"""
    warp: float = 0.1
    """each sampled image is turned, sheared, scaled and moved by a random affine map whose entries
    are up to this far from the identity's (`nets.warp`): knowledge put in by hand; 0: none"""
    means: int = 1
    """rounds that release means of cells alone, each a step of Lloyd's algorithm"""
    sigma: float | None = None
    """noise multiplier: standard deviation of a round's noise over its sensitivity; found from the
    budget and steps if left out; 0: no noise, epsilon is infinite"""
    steps: int = 5
    """rounds, each of the same cost: one of all records together, `means`, and the rest for cells'
    covariances"""

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = {name: value for name in ("cells", "frequencies", "norm")
                  if (value := getattr(self, name)) is not None}
        require_positive(dimensions=self.dimensions, trust=self.trust, **chosen)
        require_not_negative(whitening=self.whitening, prune=self.prune, warp=self.warp,
                             means=self.means)
        if self.warp >= 1:
            raise UserError(f"warp is {self.warp}; it must lie in 0 <= warp < 1")
        if self.steps < self.means + 2:
            raise UserError(f"steps is {self.steps}; with {self.means} for means of cells at least "
                            f"{self.means + 2} are needed")


def sizes(config: Config, spec: Spec) -> Sizes:
    """Returns the sizes of what is asked: a function of the configuration and the schema alone.

    What was left out follows from n mu, records times the square root of what all rounds cost in
    mu^2: by how much a mean over all records stands out of the noise.

    Raises:
        UserError: For a table, and for more frequencies than an image has pixels.
    """
    if not isinstance(spec, ImageSpec):
        raise UserError("this method is for images; for a table use marginals, gpate or dpmerf")
    n, grey = config.n_records, spec.channels == 1
    clear = n * min(math.sqrt(config.steps) / config.sigma if config.sigma else 10.0, 10.0)
    side = max(spec.height, spec.width)
    frequencies = config.frequencies or max(3, min(16, side, round(clear**0.275)))
    if frequencies > side:
        raise UserError(f"frequencies is {frequencies}, and images are {spec.height} x "
                        f"{spec.width} pixels; it must be {side} or below")
    cells = config.cells or max(1, min(20, round(0.72 * (clear / spec.classes) ** 0.36),
                                       n // (10 * spec.classes)))
    length = n_frequencies(spec, frequencies)
    return Sizes(
        records=n, classes=spec.classes, cells=cells, length=length,
        dimensions=min(config.dimensions, length), frequencies=frequencies, shades=SHADES,
        grey=config.grey if config.grey is not None else 0.0 if grey else 0.5,
        norm=(config.norm or (0.39 if grey else 0.35)) * math.sqrt(math.prod(spec.shape)),
        means=config.means, whitening=config.whitening, trust=config.trust, prune=config.prune)


def bounds(config: Config, spec: Spec) -> tuple[Moments, Moments, Moments]:
    """Returns the bounds of the three kinds of rounds."""
    s = sizes(config, spec)
    all_cells, k = s.classes * s.cells, s.dimensions
    phases = (PhaseShares(blocks=s.classes, square_blocks=1, length=s.length, shades=s.shades,
                          **POOLED),
              PhaseShares(blocks=all_cells, square_blocks=0, length=k, **MEANS),
              PhaseShares(blocks=all_cells, square_blocks=all_cells, length=k, **CELLS))
    pooled, means, cells = alike(phases, config.sigma or 0.0, s.records, Relation(config.relation))
    return pooled, means, cells


def mechanisms(config: Config, spec: Spec) -> tuple[SumMechanism, ...]:
    """Returns the mechanism of each kind of round; see `mechanism`."""
    return tuple(SumMechanism(
        bound=bound, noise=gaussian((config.sigma or 0.0) * math.sqrt(bound.limit)),
        schedule=FullParticipation(), n_units=config.n_records, shape=(1, bound.columns),
        decode=raw, relation=Relation(config.relation)) for bound in bounds(config, spec))


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism of the first round, whose cost is that of every round.

    Guarantee:
        Unit: a record. Relation: replace-one, or zero-out. What a record adds moves by at most the
        square root of the bound's declared squared sensitivity (`moments.Moments`), and the noise
        has sigma times that for each entry: one round is one Gaussian release with mu = 1 / sigma,
        whichever of the three it is.

    Source:
        `dpgen_jax.aggregation.moments` has the proof.
    """
    return mechanisms(config, spec)[0]


def raw(noised: Array, n_units: float) -> Array:
    """Decodes a noisy sum as it is, in integers of the grid: float32 [1, D].

    Args:
        noised: int32 [1, D].
        n_units: Not used.
    """
    del n_units
    return noised.astype(jnp.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The query of the later rounds: all of it was released before.

    Attributes:
        centre: float32 [M].
        basis: float32 [M, k], whose columns are principal directions, or zeros.
        centres: float32 [C, K, k], of the cells.
        scale: float32 [k], by which a record's distance to its cell's centre is stretched, and
            divided by the longest that counts in full.
    """

    centre: Array
    basis: Array
    centres: Array
    scale: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for images of this schema."""
    del runtime
    s, released_by = sizes(config, spec), mechanisms(config, spec)
    pooled, means, cells = bounds(config, spec)
    assert isinstance(spec, ImageSpec)
    basis, sigma = low_frequencies(spec, s.frequencies), config.sigma or 0.0

    def described(records: Records) -> Array:
        """The low frequencies [M] of an image, of norm up to about 1."""
        return (values(records, spec)[0].reshape(-1) - s.grey) @ basis / s.norm

    def ask_nothing(key: Array, public: Public) -> Array:
        del key, public
        return jnp.zeros((), jnp.int32)

    def ask(white: float) -> Callable[[Array, Public], Query]:
        def of(key: Array, public: Public) -> Query:
            del key
            return Query(public.centre, public.basis, public.centres,
                         gaussians.scale(s, public, white))
        return of

    def answer_pooled(key: Array, unit: Array, records: Records, query: Array) -> Array:
        """The class, the image and the shares of its shades: [1, 1 + M + T]."""
        del key, unit, query
        shade = jnp.minimum(values(records, spec)[0].reshape(-1) * s.shades, s.shades - 1)
        shares = jnp.mean(shade.astype(jnp.int32)[:, None] == jnp.arange(s.shades), 0)
        return jnp.concatenate([records.y[:1].astype(jnp.float32), described(records),
                                shares])[None]

    def answer_cell(key: Array, unit: Array, records: Records, query: Query) -> Array:
        """The nearest cell of the class, and the way from its centre: [1, 1 + k]."""
        del key, unit
        label, z = records.y[0], (described(records) - query.centre) @ query.basis
        centres = query.centres[label]
        cell = nearest_centre(z[None], centres)[0]
        block = (label * s.cells + cell).astype(jnp.float32)
        return jnp.concatenate([block[None], (z - centres[cell]) * query.scale])[None]

    def absorb_pooled(key: Array, public: Public, query: Array, released: Array
                      ) -> tuple[Public, Metrics]:
        del query
        return logged(gaussians.begun(s, key, public, pooled.sums(released), pooled.noise(sigma)))

    def absorb_means(key: Array, public: Public, query: Query, released: Array
                     ) -> tuple[Public, Metrics]:
        del key
        sums, noise = means.sums(released), means.noise(sigma)
        return logged(gaussians.moved(s, public, sums, noise, query.scale))

    def absorb_cells(key: Array, public: Public, query: Query, released: Array
                     ) -> tuple[Public, Metrics]:
        del key, query
        return logged(gaussians.added(public, cells.sums(released)))

    def finalize(key: Array, public: Public) -> PyTree:
        parts = gaussians.mixture(s, public, cells.noise(sigma))
        return gaussians.toned(s, key, public, parts, basis, pooled.noise(sigma)[0])

    def sample(model: PyTree, key: Array, labels: Array) -> Array:
        return gaussians.sample(model, key, labels, spec, config.warp)

    def phase(mechanism: SumMechanism, **verbs: Any) -> Method:
        return Method(mechanism=mechanism, init=lambda key: gaussians.nothing(s),
                      finalize=finalize, sample=sample, **verbs)

    first = phase(released_by[0], ask=ask_nothing, answer=answer_pooled, absorb=absorb_pooled)
    second = phase(released_by[1], ask=ask(0.0), answer=answer_cell, absorb=absorb_means)
    third = phase(released_by[2], ask=ask(s.whitening), answer=answer_cell, absorb=absorb_cells)
    return dataclasses.replace(first, phases=(first, *[second] * s.means, third))


def logged(public: Public) -> tuple[Public, Metrics]:
    """Returns the public state with what is logged of it."""
    return public, {"directions": jnp.sum(public.spectrum > 0).astype(jnp.float32),
                    "released_norm": jnp.linalg.norm(public.first)}
