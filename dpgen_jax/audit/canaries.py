"""Canaries: records of which each makes its unit say one of two opposite things, by a fair coin.

A method with canaries is the method itself, its own mechanism, loop and ledger, but for what units
with a canary answer. Which of the two values a canary has stands in its label, as numbers beyond
the classes; so the two values are those of one record that was replaced, or left out.

Where messages are gradients, each canary has a coordinate of its own, which the gradients of all
other records leave free. Elsewhere each canary has a code of its own, another in each round, and
units without one are silent. An adversary of the definition may choose all other records, so both
are attacks that it allows, and what is certified is certified for the mechanism and the loop.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.sampling import PoissonSampling
from dpgen_jax.audit.attacks import as_it_is
from dpgen_jax.audit.pairs import HUGE, adder, opposites
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Method, Metrics, PyTree, Records, UserError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Watched:
    """The public state: that of the method, and how likely each coin has become.

    Attributes:
        inner: The method's own.
        ratio: float32 [N], log likelihood ratios of heads to tails.
        step: int32 [], rounds so far.
    """

    inner: PyTree
    ratio: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The method's own query, and the number of the round, int32 []."""

    inner: PyTree
    step: Array


@dataclasses.dataclass(frozen=True)
class Canaries:
    """The messages of canaries, and the units that have them.

    Attributes:
        method: The method that is attacked.
        shape: (B, M) of a message.
        classes: C; the label C + 2 i + coin is that of canary i.
        units: int [N], the unit of each canary.
        places: int [N], the coordinate of each canary, where messages are gradients.
    """

    method: Method
    shape: tuple[int, int]
    classes: int
    units: np.ndarray
    places: np.ndarray

    @property
    def mechanism(self) -> Any:
        """The method's mechanism: a noisy sum of any kind."""
        return self.method.mechanism

    @property
    def spikes(self) -> bool:
        """Whether each canary has a coordinate of its own."""
        return isinstance(self.mechanism.bound, GradientL2 | RowL2)

    @property
    def rate(self) -> float:
        """The chance that a canary is counted in a round in which its unit is queried."""
        schedule, n = self.mechanism.schedule, self.mechanism.n_units
        if isinstance(schedule, PoissonSampling):
            return schedule.rate
        return min(1.0, schedule.expected_answers(n) * schedule.n_cohorts / n)

    def pair(self, i: Array, step: Array) -> Array:
        """Returns what canary i says in a round, for tails and for heads: float32 [2, B, M]."""
        bound = self.mechanism.bound
        if self.spikes:
            place = jnp.arange(self.shape[1]) == jnp.asarray(self.places)[i]
            a = jnp.where(place, HUGE * bound.clip, 0.0) * jnp.ones(self.shape)
            b = -a
        else:
            a, b = opposites(bound, jax.random.fold_in(jax.random.key(i), step), self.shape)
        if bound.relation == Relation.ZERO_OUT:
            b = jnp.full_like(a, jnp.nan)
        return jnp.stack([b, a])

    def added(self, i: Array, step: Array) -> Array:
        """Returns what canary i adds for tails and for heads: float32 [2, B, D]."""
        add = adder(self.mechanism)
        pair = self.pair(i, step)
        return jnp.stack([add(jax.random.key(0), pair[0]), add(jax.random.key(0), pair[1])]
                         ).astype(jnp.float32)

    def answer(self, key: Array, unit: PyTree, records: Records, query: Query) -> Array:
        """The answer of a unit: its canary's message if it has one, else its own."""
        tag = jnp.max(records.y) - self.classes
        i, coin = jnp.clip(tag // 2, 0, len(self.units) - 1), tag % 2
        said = self.pair(i, query.step)[coin]
        if self.spikes:
            usual = self.method.answer(key, unit, self.plain(records), query.inner)
            usual = usual * jnp.ones(self.shape[1]).at[jnp.asarray(self.places)].set(0)
        else:
            usual = jnp.full(self.shape, jnp.nan)
        return jnp.where(tag >= 0, said, usual)

    def plain(self, records: Records) -> Records:
        """Returns records with labels that the method knows."""
        return Records(records.x, jnp.where(records.y >= self.classes, 0, records.y))

    def evidence(self, noised: Array, step: Array) -> Array:
        """Returns the log likelihood ratios [N] of heads that one noisy sum [B, D] adds."""
        mechanism = self.mechanism
        sigma, rate, everyone = mechanism.noise.sigma, self.rate, jnp.arange(len(self.units))
        cohort = step % mechanism.schedule.n_cohorts
        queried = jnp.asarray(self.units) % mechanism.schedule.n_cohorts == cohort

        def middle(total: Array, i: Array) -> tuple[Array, None]:
            return total + rate * queried[i] * self.added(i, step).mean(0), None

        if self.spikes:
            return self._evidence_of_spikes(noised, queried, sigma)
        others = lax.scan(middle, jnp.zeros_like(noised), everyone)[0]

        def one(i: Array) -> Array:
            tails, heads = self.added(i, step)
            apart = heads - tails
            direction = apart / jnp.sqrt(jnp.sum(apart * apart))
            rest = others - rate * queried[i] * (tails + heads) / 2
            z = jnp.sum((noised - rest) * direction) / sigma
            logs = [jnp.log1p(rate * jnp.expm1(jnp.clip(z * s - s * s / 2, -60, 60)))
                    for s in (jnp.sum(heads * direction) / sigma,
                              jnp.sum(tails * direction) / sigma)]
            return jnp.where(queried[i], logs[0] - logs[1], 0)

        return lax.map(one, everyone)

    def _evidence_of_spikes(self, noised: Array, queried: Array, sigma: float) -> Array:
        """The same where a canary has a coordinate of its own, without a sum over all others."""
        z = noised[:, jnp.asarray(self.places)].sum(0) / np.sqrt(len(noised)) / sigma
        tails, heads = self.added(jnp.int32(0), jnp.int32(0))
        length = np.sqrt(len(noised)) * jnp.sum(heads) / len(noised) / sigma
        shifts = (length, jnp.where(jnp.any(tails != 0), -length, 0))
        logs = [jnp.log1p(self.rate * jnp.expm1(jnp.clip(z * s - s * s / 2, -60, 60)))
                for s in shifts]
        return jnp.where(queried, logs[0] - logs[1], 0)

    def watched(self) -> Method:
        """Returns the method with canaries, whose public state tells how likely each coin is."""
        method, mechanism = self.method, self.mechanism
        decode = mechanism.decode
        answers = mechanism.schedule.expected_answers(mechanism.n_units)

        def init(key: Array) -> Watched:
            return Watched(method.init(key), jnp.zeros(len(self.units)), jnp.zeros((), jnp.int32))

        def ask(key: Array, public: Watched) -> Query:
            return Query(method.ask(key, public.inner), public.step)

        def learn(key: Array, unit: PyTree, records: Records, query: Query) -> PyTree:
            return method.learn(key, unit, self.plain(records), query.inner)

        def absorb(key: Array, public: Watched, query: Query, noised: Array
                   ) -> tuple[Watched, Metrics]:
            inner, metrics = method.absorb(key, public.inner, query.inner,
                                           decode(noised.astype(jnp.int32), answers))
            ratio = public.ratio + self.evidence(noised, public.step)
            return Watched(inner, ratio, public.step + 1), metrics

        return dataclasses.replace(
            method, mechanism=dataclasses.replace(mechanism, decode=as_it_is), init=init, ask=ask,
            answer=self.answer, learn=learn, absorb=absorb, pretraining=None, post_training=None)


def chosen(method: Method, shape: tuple[int, int], classes: int, canaries: int,
           rng: np.random.Generator) -> Canaries:
    """Chooses the units of canaries, at most one in each, and their coordinates.

    Args:
        method: The method.
        shape: (B, M) of a message.
        classes: C.
        canaries: How many.
        rng: Of the choice, which may be public.

    Raises:
        UserError: There are more canaries than units or coordinates.
    """
    n_units = method.mechanism.n_units
    made = Canaries(method, shape, classes, rng.permutation(n_units)[:canaries],
                    rng.permutation(shape[1])[:canaries])
    most = min(n_units, shape[1]) if made.spikes else n_units
    if not 1 <= canaries <= most:
        raise UserError(f"--canaries is {canaries}; 1 to {most} have a unit"
                        + " and a coordinate" * made.spikes + " of their own here")
    return made
