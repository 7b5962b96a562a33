"""Confident-GNMax (Papernot et al. 2018, arXiv 1802.08908; G-PATE, Algorithm 3) on histograms."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from fractions import Fraction
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.accountant.rounding import round_up
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.histogram import OneHot
from dpgen_jax.aggregation.mechanism import Noise, check_range
from dpgen_jax.aggregation.noise import NoNoise
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.types import Array, UserError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Answers:
    """value float32 [B, k]: the midpoint of the winning bin, 0 where there is no answer;
    answered int32 [B, k]: 1 where there is one."""

    value: Array
    answered: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax:
    """Each of the B k histograms is one query: first whether its largest count, with noise, reaches
    the threshold, and only then which bin has the largest noisy count.

    bound: the votes; noise: on every count for the arg max (sigma_2); test_noise: on the largest
    count for the test (sigma_1); threshold: share of the units; n_units: public.

    Guarantee (replace-one, through one unit): a test is a Gaussian release of sensitivity 1, since
    the largest count moves by at most 1; an arg max is post-processing of a Gaussian release of
    sensitivity sqrt 2 (one vote less, one more). Which queries were answered is public. So every
    query costs a test, and an answered one a release on top: `settled`. Charging by the outcome is
    sound because the costs of Gaussian releases add up as mu^2, and the run stops before the worst
    case of a step could exceed the budget: a privacy filter on the sum of mu^2 (Smith and Thakurta
    2022, arXiv 2210.17520; Koskela, Tobaben and Honkela 2023, arXiv 2209.15596). A filter is for
    one number. How far the drawn noise is from ideal, tau, is charged beside mu^2 and grows with
    the length of the run, which the answers decide; so it is charged in proportion: `_costs`.

    Raises UserError for a threshold outside (0, 1], for more bins than units, where one of the two
    noises is none, or where a noisy count could leave int32.
    """

    bound: OneHot
    noise: Noise
    test_noise: Noise
    schedule: Everyone
    n_units: int
    threshold: float
    relation: ClassVar[str] = OneHot.relation
    unit: ClassVar[str] = OneHot.unit
    keeps_votes: ClassVar[bool] = True

    def __post_init__(self):
        object.__setattr__(self, "n_units", operator.index(self.n_units))
        if not 0 < self.threshold <= 1:
            raise UserError(f"threshold is {self.threshold}; it must be above 0 and at most 1")
        if self.bound.bins > self.n_units:
            raise UserError(f"{self.bound.bins} bins for {self.n_units} votes; use fewer bins or "
                            "more teachers")
        if type(self.noise) is not type(self.test_noise):
            raise UserError("either both noises of Confident-GNMax are none, or neither")
        for noise in (self.noise, self.test_noise):
            check_range(self.n_units, self.bound, noise)

    @property
    def queries(self) -> int:
        """Histograms of one step."""
        return self.bound.rows * self.bound.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self.bound.rows, self.bound.columns * self.bound.bins

    @property
    def bits_shape(self) -> tuple[int, ...]:
        """For each query a draw for the test, then for each of its bins one."""
        return self.noise.bits_shape((self.queries, 1 + self.bound.bins))

    @property
    def votes_needed(self) -> int:
        """The threshold in votes, with the share as the decimal that it prints as."""
        return math.ceil(Fraction(repr(float(self.threshold))) * self.n_units)

    def secrets(self, source: BitSource, turns: np.ndarray, first: int) -> np.ndarray:
        """int32 [U, n, 0]: none."""
        return np.zeros((self.n_units, len(turns), 0), np.int32)

    def contribution(self, key: Array, message: Array, secret: Array) -> Array:
        return self.bound.project(key, message)

    def decide(self, votes: Array, bits: Array) -> Answers:
        counts = votes.reshape(self.queries, self.bound.bins)
        largest = jnp.max(counts, -1) + self.test_noise.sample(bits[:, 0])
        winner = jnp.argmax(counts + self.noise.sample(bits[:, 1:]), -1)  # ties: the lowest bin
        answered = (largest >= self.votes_needed).astype(jnp.int32)
        value = jnp.where(answered == 1, self.bound.midpoints[winner], 0.0)
        shape = self.bound.rows, self.bound.columns
        return Answers(value.reshape(shape), answered.reshape(shape))

    def value(self, outcome: Answers) -> Array:
        return outcome.value

    def answered(self, outcome: Answers) -> Array:
        return outcome.answered

    def _events(self, tests: int, answers: int) -> Events:
        test, answer = self._costs
        return (test, tests), (answer, answers)

    @functools.cached_property
    def _costs(self) -> tuple[Event, Event]:
        """The events of a test and of an answer. The total variation of both is k times their mu^2,
        with k so large that neither is below what is drawn.

        Then no choice of answers trades one for the other. Let B be the largest mu^2 that any path
        of answers ends with. The path that does is charged a tau of at least k B, and the run went
        as far only as epsilon(B, k B) is within the budget. Every other path ends with mu^2 <= B,
        and what it drew is within k mu^2 <= k B of ideal noise. So the run is a filter on mu^2 that
        was started with B, and its transcript is within k B of the ideal one, whatever the answers:
        what the budget was checked for. (Charged as drawn, a path of few answers ends with more tau
        than the path of the largest mu^2 was checked with.)
        """
        drawn = self.test_noise.event(1, 1), self.noise.event(2, self.bound.bins)
        if isinstance(self.noise, NoNoise):
            return drawn
        k = max(Fraction(event.total_variation) / Fraction(event.mu_squared) for event in drawn)
        return tuple(dataclasses.replace(event, total_variation=min(1.0, round_up(
            k * Fraction(event.mu_squared)))) for event in drawn)

    def events(self, steps: int) -> Events:
        """Every query tested and answered."""
        queries = self.queries * self.schedule.visits(steps)
        return self._events(queries, queries)

    def due(self, spent: Events, turn: int, steps: int) -> Events:
        """Their worst case, whatever was spent: earlier steps were settled."""
        return self.events(steps)

    def settled(self, answered: np.ndarray, charged: Events) -> Events:
        """answered [steps, B, k]: every query tested, those answered released."""
        return self._events(answered.size, int(answered.sum()))
