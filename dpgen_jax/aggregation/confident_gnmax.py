"""Confident-GNMax on histograms (Papernot et al. 2018, arXiv 1802.08908; G-PATE, Algorithm 3)."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from fractions import Fraction
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.events import Event, Events, GaussianEvent, NonPrivateEvent
from dpgen_jax.accountant.rounding import round_up
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.bound import add_up
from dpgen_jax.aggregation.histogram import OneHot
from dpgen_jax.aggregation.mechanism import check_range
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Answers:
    """The outcome of one round.

    Attributes:
        value: float32 [B, k], the midpoint of the winning bin, 0 where there is no answer.
        answered: int32 [B, k], 1 where there is an answer.
    """

    value: Array
    answered: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax:
    """Each of the B k histograms is one query, which is answered if many units agree.

    First comes a test: whether its largest count, with noise, reaches the threshold; and only then
    which bin has the largest noisy count.

    Attributes:
        bound: The votes.
        noise: On every count for the arg max (sigma_2).
        test_noise: On the largest count for the test (sigma_1).
        schedule: All units answer in every round.
        n_units: U, public.
        threshold: Share of the units.

    Guarantee:
        Unit: a record, through one unit. Relation: replace-one. Sensitivity: a test is a Gaussian
        release of sensitivity 1, since the largest count moves by at most 1; an arg max is
        post-processing of a Gaussian release of sensitivity sqrt 2 (one vote less, one more). Which
        queries were answered is public. So every query costs a test, and an answered one a release
        on top: `actual_charge`. Charging by the outcome is sound because the costs of Gaussian
        releases add up as mu^2, and the run stops before the worst case of a round could exceed the
        budget: a privacy filter on the sum of mu^2. A filter is for one number. How far the drawn
        noise is from ideal, tau, is charged beside mu^2 and grows with the length of the run, which
        the answers decide; so it is charged in proportion: `_costs`.

    Source:
        Papernot et al. 2018 (arXiv 1802.08908), Algorithm 1; G-PATE (arXiv 1906.09338), Algorithm
        3; the filter: Smith and Thakurta 2022 (arXiv 2210.17520); Koskela, Tobaben and Honkela 2023
        (arXiv 2209.15596).

    Raises:
        UserError: The threshold is outside (0, 1], there are more bins than units, one of the two
            noises is none, or a noisy count could leave int32.
    """

    bound: OneHot
    noise: RoundedGaussian | NoNoise
    test_noise: RoundedGaussian | NoNoise
    schedule: FullParticipation
    n_units: int
    threshold: float
    relation: ClassVar[Relation] = OneHot.relation
    unit: ClassVar[Unit] = OneHot.unit
    keeps_votes: ClassVar[bool] = True
    cost_depends_on_answers: ClassVar[bool] = True

    def __post_init__(self) -> None:
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
    def vote_bins(self) -> int:
        """Bins of each histogram."""
        return self.bound.bins

    @property
    def queries(self) -> int:
        """The number of histograms of one round."""
        return self.bound.rows * self.bound.columns

    @property
    def shape(self) -> tuple[int, int]:
        """(B, k bins): the shape of the sum over units."""
        return self.bound.rows, self.bound.columns * self.bound.bins

    @property
    def contribution_shape(self) -> tuple[int, ...]:
        """The shape of what one unit adds: (B, D)."""
        return self.shape

    @property
    def bits_shape(self) -> tuple[int, ...]:
        """The shape of the uint32 bits of a round.

        For each query it is a draw for the test, then for each of its bins one.
        """
        return self.noise.bits_shape((self.queries, 1 + self.bound.bins))

    @property
    def votes_needed(self) -> int:
        """The threshold in votes, with the share as the decimal that it prints as."""
        return math.ceil(Fraction(repr(float(self.threshold))) * self.n_units)

    def private_inputs(self, source: BitSource, cohorts: np.ndarray, first_round: int
                       ) -> np.ndarray:
        """Returns nothing: int32 [U, n, 0]."""
        return np.zeros((self.n_units, len(cohorts), 0), np.int32)

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns the votes of one unit: int32 [B, k bins]."""
        return self.bound.project(key, message)

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with what some units answered added: int32 [B, D]."""
        return add_up(total, contributions)

    def decide(self, votes: Array, bits: Array) -> Answers:
        """Tests and answers the queries."""
        chex.assert_shape(votes, self.shape)
        chex.assert_type([votes, bits], [jnp.int32, jnp.uint32])
        counts = votes.reshape(self.queries, self.bound.bins)
        largest = jnp.max(counts, -1) + self.test_noise.sample(bits[:, 0])
        # Ties go to the lowest bin.
        winner = jnp.argmax(counts + self.noise.sample(bits[:, 1:]), -1)
        answered = (largest >= self.votes_needed).astype(jnp.int32)
        value = jnp.where(answered == 1, self.bound.midpoints[winner], 0.0)
        shape = self.bound.rows, self.bound.columns
        return Answers(value.reshape(shape), answered.reshape(shape))

    def value(self, outcome: Answers) -> Array:
        """Returns the values of the answers: float32 [B, k]."""
        return outcome.value

    def answered(self, outcome: Answers) -> Array:
        """Returns which queries were answered: int32 [B, k]."""
        return outcome.answered

    def _events(self, tests: int, answers: int) -> Events:
        test, answer = self._costs
        return (test, tests), (answer, answers)

    @functools.cached_property
    def _costs(self) -> tuple[Event, Event]:
        """The events of a test and of an answer.

        The total variation of both is k times their mu^2, with k so large that neither is below
        what is drawn. Then no choice of answers trades one for the other. Let B be the largest mu^2
        that any path of answers ends with. The path that does is charged a tau of at least k B, and
        the run went as far only as epsilon(B, k B) is within the budget. Every other path ends with
        mu^2 <= B, and what it drew is within k mu^2 <= k B of ideal noise. So the run is a filter
        on mu^2 that was started with B, and its transcript is within k B of the ideal one, whatever
        the answers: what the budget was checked for. (Charged as drawn, a path of few answers ends
        with more tau than the path of the largest mu^2 was checked with.)
        """
        test, answer = self.test_noise.event(1, 1), self.noise.event(2, self.bound.bins)
        if isinstance(test, NonPrivateEvent) or isinstance(answer, NonPrivateEvent):
            return test, answer
        k = max(Fraction(event.total_variation) / Fraction(event.mu_squared)
                for event in (test, answer))

        def in_proportion(event: GaussianEvent) -> GaussianEvent:
            variation = min(1.0, round_up(k * Fraction(event.mu_squared)))
            return dataclasses.replace(event, total_variation=variation)

        return in_proportion(test), in_proportion(answer)

    def events(self, steps: int) -> Events:
        """Returns the cost of rounds with every query answered, as (event, count) pairs."""
        queries = self.queries * self.schedule.max_participations(steps)
        return self._events(queries, queries)

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns the worst case of these rounds; earlier rounds were settled."""
        return self.events(steps)

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns the cost of a test of every query, and of a release of each answered one."""
        return self._events(answered.size, int(answered.sum()))
