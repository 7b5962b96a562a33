"""Votes of teachers: histograms of projected gradients with Confident-GNMax, and labels of fakes.

The histograms are those of G-PATE (Long et al. 2021, arXiv 1906.09338), after the random projection
of gradients of its Algorithm 2. The projection matrices come from a public key and depend on
nothing private: projecting costs no privacy, and anyone may map a release in the projected space
back (post-processing).

The votes for a label, real or fake, of each queried fake, and the decoding of their noisy count,
are the aggregation of PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.

Data-dependent numbers are released only by `upper_bound`, through smooth sensitivity, with noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from fractions import Fraction
from typing import ClassVar, Protocol, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant import smooth_sensitivity
from dpgen_jax.accountant.events import (
    Event,
    Events,
    GaussianEvent,
    NonPrivateEvent,
    RenyiEvent,
    add_up,
    round_up,
)
from dpgen_jax.accountant.smooth_sensitivity import Placed, Sanitiser
from dpgen_jax.aggregation.bound import add_up as bound_add_up
from dpgen_jax.aggregation.bound import assert_message, enforce, require_whole
from dpgen_jax.aggregation.mechanism import SumMechanism, check_range
from dpgen_jax.aggregation.noise import (
    BitSource,
    DiscreteLaplace,
    NoNoise,
    RoundedGaussian,
    distance,
    draw_one,
)
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.topagg import votes_needed
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, Private, UserError, unseal


def projection_matrices(key: Array, rows: int, dimension: int, projected: int) -> Array:
    """Draws R^T with entries N(0, 1 / k), anew for every fake, as the published code does.

    In R^T a column of R is contiguous, which makes the products of a row with the columns faster on
    a CPU, where teachers answer one by one.

    Returns:
        float32 [B, k, D].

    Source:
        G-PATE (arXiv 1906.09338), Algorithm 2, line 3.
    """
    drawn = jax.random.normal(key, (rows, dimension, projected)) / jnp.sqrt(projected)
    return jnp.swapaxes(drawn, 1, 2)


def project(matrices: Array, gradients: Array) -> Array:
    """Returns u = x R: float32 [B, k].

    Args:
        matrices: R^T float32 [B, k, D].
        gradients: float32 [B, D].

    Source:
        G-PATE (arXiv 1906.09338), Algorithm 2, line 4.
    """
    chex.assert_rank([matrices, gradients], [3, 2])
    return jnp.einsum("bkd,bd->bk", matrices, gradients)


def reconstruct(matrices: Array, released: Array) -> Array:
    """Returns x = u R^T; the transpose, not the inverse: float32 [B, D].

    Args:
        matrices: R^T float32 [B, k, D].
        released: float32 [B, k].

    Source:
        G-PATE (arXiv 1906.09338), Algorithm 2, line 11.
    """
    chex.assert_rank([matrices, released], [3, 2])
    return jnp.einsum("bk,bkd->bd", released, matrices)


@dataclasses.dataclass(frozen=True)
class OneHot:
    """The bound of G-PATE: each coordinate of a message becomes one vote for one of the bins.

    Attributes:
        bins: Bins of equal width between -clip and clip; entries outside fall into the outer two.
        columns: k, the coordinates of a row (after the projection).
        rows: B.
        clip: The upper end of the range of the bins, in units of the message.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: a unit
        casts at most one vote on each of the rows x columns histograms. When a record is replaced,
        and with it its unit's whole answer, each histogram loses one vote and gains one:
        ||project(v) - project(v')||^2 <= 2 rows columns, and some pair attains it. The largest
        count of a histogram changes by at most 1.

    Source:
        G-PATE (Long et al. 2021, arXiv 1906.09338), Algorithm 2 and Lemma 2.

    Raises:
        UserError: A field is outside its range.
    """

    bins: int
    columns: int
    rows: int
    clip: float

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require_whole(self, bins=2, columns=1, rows=1)
        if not float(jnp.finfo(jnp.float32).tiny) <= self.clip < math.inf:
            raise UserError(f"clip is {self.clip}; it must be a finite float32 above 0, the range "
                            "that the bins divide")

    def project(self, key: Array, message: Array) -> Array:
        """Converts the message of one unit to votes: int32 [B, k bins] in {0, 1}.

        Args:
            message: float32 [B, k].
        """
        del key
        assert_message(message, self.columns)
        # Bins first: loops run along the many histograms, and not along the few bins of each.
        votes = bin_votes(message.ravel(), self.clip, self.bins).T
        # The proof is in integers: if a histogram got more than one vote, none is counted.
        votes = enforce(votes, lambda bins: jnp.sum(bins * bins, 0, keepdims=True) <= 1)
        return votes.T.reshape(message.shape[0], -1)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of a message: one vote on each histogram."""
        return self.rows * self.columns

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity: every histogram loses one vote and gains one."""
        return 2 * self.squared_norm

    @property
    def midpoints(self) -> Array:
        """float32 [bins]: the value of each bin, in units of the message."""
        return self.clip * ((2 * jnp.arange(self.bins) + 1) / self.bins - 1)


def bin_votes(message: Array, clip: float, bins: int) -> Array:
    """Votes for the bins of real numbers: one-hot int32 [..., bins].

    The bin of u is floor((u / clip + 1) bins / 2), at least 0 and at most bins - 1; with an even
    number of bins, zero falls into bin bins / 2. NaN casts no vote; infinities are clipped.

    Args:
        message: float32 [...].
        clip: The end of the range of the bins.
    """
    chex.assert_type(message, jnp.float32)
    place = jnp.floor((jnp.clip(message / clip, -1, 1) + 1) * (bins / 2))
    # NaN compares unequal to every bin: its row of the one-hot stays empty.
    place = jnp.minimum(place, bins - 1)
    return (place[..., None] == jnp.arange(bins)).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class HistogramMean:
    """A decoder: the mean of each noisy histogram.

    Under data-independent accounting the whole histogram costs as much as its arg max (the same
    Gaussian release). It is divided by the public number of units, not by the noisy total, which
    could be near 0.

    Attributes:
        bound: The bound of the counted votes.
    """

    bound: OneHot

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy counts: float32 [B, k], in units of the message.

        Args:
            noised: Noisy counts int32 [B, k bins].
        """
        chex.assert_shape(noised, (None, self.bound.columns * self.bound.bins))
        chex.assert_type(noised, jnp.int32)
        counts = noised.reshape(noised.shape[0], self.bound.columns, self.bound.bins)
        return counts.astype(jnp.float32) @ self.bound.midpoints / n_units


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Answers:
    """The outcome of one round.

    Attributes:
        value: float32 [B, k], the midpoint of the winning bin, 0 without an answer.
        answered: int32 [B, k], 1 for an answer.
    """

    value: Array
    answered: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidentGNMax:
    """Each of the B k histograms is one query, which is answered if enough units agree.

    It first tests, with noise, whether the largest count reaches the threshold, and only then
    releases the bin with the largest noisy count.

    Attributes:
        bound: The votes.
        noise: The noise on every count for the arg max (sigma_2).
        test_noise: The noise on the largest count for the test (sigma_1).
        schedule: All units answer in every round.
        n_units: U, public.
        threshold: Share of the units.

    Guarantee:
        Unit: a record, through one unit. Relation: replace-one. Sensitivity: a test is a Gaussian
        release of sensitivity 1, since the largest count changes by at most 1; an arg max is
        post-processing of a Gaussian release of sensitivity sqrt 2 (one vote less, one more). Which
        queries were answered is public. So every query costs a test, and an answered query costs a
        release in addition: `actual_charge`. Charging by the outcome is sound because the costs of
        Gaussian releases add up as mu^2, and the run stops before the worst case of a round could
        exceed the budget: a privacy filter on the sum of mu^2. A filter limits one number. The
        distance tau of the drawn noise from ideal noise is charged too, and grows with the length
        of the run, which depends on the answers; so it is charged in proportion: `_costs`.

    Source:
        Papernot et al. 2018 (arXiv 1802.08908), Algorithm 1; G-PATE (arXiv 1906.09338), Algorithm
        3; the filter: Smith and Thakurta 2022 (arXiv 2210.17520); Koskela, Tobaben and Honkela 2023
        (arXiv 2209.15596).

    Raises:
        UserError: The threshold is outside (0, 1], there are more bins than units, one of the two
            noises is missing, or a noisy count could overflow int32.
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
        """The shape of one unit's contribution: (B, D)."""
        return self.shape

    @property
    def bits_shape(self) -> tuple[int, ...]:
        """The shape of the uint32 bits of a round.

        For each query there is one draw for the test, then one for each of its bins.
        """
        return self.noise.bits_shape((self.queries, 1 + self.bound.bins))

    @property
    def votes_needed(self) -> int:
        """The threshold in votes, with the share taken as its printed decimal."""
        return votes_needed(self.n_units, self.threshold)

    def private_inputs(self, source: BitSource, cohorts: np.ndarray, first_round: int
                       ) -> np.ndarray:
        """Returns nothing: int32 [U, n, 0]."""
        return np.zeros((self.n_units, len(cohorts), 0), np.int32)

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns the votes of one unit: int32 [B, k bins]."""
        return self.bound.project(key, message)

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with the answers of some units added: int32 [B, D]."""
        return bound_add_up(total, contributions)

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

        The total variation of both is charged as k times their mu^2, with k so large that neither
        is below the actual one. Then no choice of answers trades one for the other. Let B be the
        largest final mu^2 over all paths of answers. That path is charged a tau of at least k B,
        and the run goes on only while epsilon(B, k B) is within the budget. Every other path ends
        with mu^2 <= B, and its draws are within k mu^2 <= k B of ideal noise. So the run is a
        filter on mu^2 that was started with B, and its transcript is within k B of the ideal one,
        whatever the answers, and the budget was checked for this. (If the actual tau were charged,
        a path with few answers would end with more tau than was checked for the path of the largest
        mu^2.)
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
        """Returns the largest cost of these rounds; earlier rounds were settled."""
        return self.events(steps)

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns the cost of a test of every query, and of a release of each answered one."""
        return self._events(answered.size, int(answered.sum()))


@dataclasses.dataclass(frozen=True)
class LabelVotes:
    """The bound of PATE-GAN: the score of each fake becomes one vote, real (1) or fake (0).

    Attributes:
        rows: B, fakes of a query.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: an
        entry of a message is 0 or 1, whatever the score was. When a record is replaced, and with it
        its unit's whole answer, each of the B counts of "real" changes by at most 1: squared L2
        sensitivity B, which some pair attains. Only this count is released; that of "fake" is the
        public number of units minus it.

    Source:
        PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.

    Raises:
        UserError: There is no row.
    """

    rows: int

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require_whole(self, rows=1)

    def project(self, key: Array, message: Array) -> Array:
        """Converts scores to votes: 1 if a score is above 0; NaN votes fake.

        Args:
            message: Scores float32 [B, 1].

        Returns:
            Votes int32 [B, 1] in {0, 1}.
        """
        del key
        assert_message(message, 1)
        return (message > 0).astype(jnp.int32)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of a message in which all votes are "real"."""
        return self.rows

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of the whole message: one vote for every fake."""
        return self.rows


@dataclasses.dataclass(frozen=True)
class Majority:
    """A decoder: the label of the majority, as in the paper; a noisy tie is fake."""

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy counts, compared as integers.

        Args:
            noised: Noisy counts of "real", int32 [B, 1].

        Returns:
            float32 [B, 1]: 1 if more than half of the units vote real, else 0.
        """
        chex.assert_type(noised, jnp.int32)
        return (2 * noised > n_units).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Share:
    """A decoder: the noisy share of the units that vote real.

    Under data-independent accounting the count costs as much as its majority (the same release).
    """

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy counts: float32 [B, 1], clipped to [0, 1].

        Args:
            noised: Noisy counts of "real", int32 [B, 1].
        """
        chex.assert_type(noised, jnp.int32)
        return jnp.clip(noised.astype(jnp.float32) / n_units, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelMechanism(SumMechanism):
    """A `SumMechanism` of noisy counts of `LabelVotes`, with Gaussian or Laplace noise.

    Guarantee:
        Unit: a record. Relation: replace-one. Sensitivity: with Laplace noise, whose cost is not a
        function of an L2 sensitivity, each of the B entries of a participation is one release of a
        count that changes by at most 1; else as in `SumMechanism`.

    Source:
        PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.
    """

    @property
    def keeps_votes(self) -> bool:
        """True if only a majority is released, as data-dependent accounting requires."""
        return isinstance(self.decode, Majority)

    @property
    def queries(self) -> int:
        """The number of counts of one round."""
        return self.bound.rows

    @property
    def votes_needed(self) -> int:
        """The smallest count that is more than half of the units; `Majority` compares with it."""
        return self.n_units // 2 + 1

    def events(self, steps: int) -> Events:
        """Returns the largest cost of some rounds.

        Returns:
            (event, count) pairs; with Laplace noise one event for each entry of each participation.
        """
        if not isinstance(self.noise, DiscreteLaplace):
            return super().events(steps)
        rows, columns = self.shape
        entry = self.noise.event(1, 1)
        return ((self.schedule.event(entry, self.bound),
                 rows * columns * self.schedule.max_participations(steps)),)


DIGITS = 3


class KeptVotes(Protocol):
    """The protocol of `private.kept_votes.Votes`, which this folder does not import."""

    @property
    def counts(self) -> np.ndarray:
        """The vote sums of each query: int32 [Q, bins]."""

    @property
    def answered(self) -> np.ndarray:
        """Whether each query was answered: bool [Q]."""

    @property
    def steps(self) -> int:
        """The rounds that they come from."""


Kept = TypeVar("Kept", bound=KeptVotes)


def sanitised_event(sanitiser: Sanitiser) -> RenyiEvent:
    """Returns the cost of one release of `upper_bound`.

    It is an RDP guarantee at the order of the sanitiser, including the distance of the two draws
    from ideal ones.
    """
    tau = add_up((distance(sigma, 1), 1) for sigma in sanitiser.sigmas)
    return RenyiEvent(sanitiser.order, sanitiser.rdp(), "smooth-sensitivity", tau)


def require_sanitised(mechanism: ConfidentGNMax, sanitiser: Sanitiser, kept: int,
                      charged: int) -> None:
    """Refuses a run for which no bound can be released, based on public facts.

    Args:
        kept: The number of rounds with stored votes.
        charged: The number of rounds in the ledger; all of their votes must be stored.

    Raises:
        UserError: Votes are missing, or the conditions C5 or C6 do not hold.
    """
    if kept != charged:
        raise UserError(f"{charged} steps are charged and the votes of {kept} are here: a bound on "
                        "all of them cannot be published")
    sanitiser.require_conditions(mechanism.noise.sigma, mechanism.vote_bins)


def sanitised_totals(votes: Private[Kept], mechanism: ConfidentGNMax, sanitiser: Sanitiser,
                     charged: int) -> Private[Placed]:
    """Returns the total RDP and its smooth sensitivity, on the sanitiser's grids: sealed.

    Called before anything is charged.

    Args:
        votes: The votes of the mechanism, sealed.
        charged: The number of rounds in the ledger, which is public; all of their votes must be
            present.

    Raises:
        UserError: Votes are missing, or there is no noise, or the conditions C5 or C6 do not hold:
            then nothing may be released.
    """
    counted = unseal(votes)
    require_sanitised(mechanism, sanitiser, counted.steps, charged)
    queries = (counted.counts, counted.answered, mechanism.votes_needed, mechanism.test_noise.sigma,
               mechanism.noise.sigma, sanitiser.order)
    # Those of the tests and answers of the run, which are public, whatever the votes were.
    largest = sanitiser.order / 2 * add_up(
        (_mu_squared(event), n) for event, n in mechanism.actual_charge(counted.answered, ()))
    return Private(sanitiser.place(
        smooth_sensitivity.total_rdp(*queries), smooth_sensitivity.smooth_sensitivity(
            *queries, sanitiser.beta, mechanism.n_units), largest))


def _mu_squared(event: Event) -> float:
    if isinstance(event, GaussianEvent):
        return event.mu_squared
    raise UserError("votes without Gaussian noise have no smooth sensitivity; train with a sigma")


def upper_bound(sealed: Private[Placed], sanitiser: Sanitiser, bits: BitSource) -> float:
    """Releases an upper bound on the total RDP at the sanitiser's order, with noise.

    Integer noise (`noise.draw_one`) is added to whole numbers of steps of public grids:
    `Sanitiser.place` has the proof. The bound is computed from the two noisy numbers, rounded up to
    10^-3, and is public.

    Args:
        sealed: From `sanitised_totals`.

    Guarantee:
        Unit: a record, through one unit. Relation: replace-one. Cost: `event(sanitiser)`. The bound
        holds except with probability sanitiser.failure.

    Source:
        Papernot et al., "Scalable Private Learning with PATE" (arXiv 1802.08908), appendices B and
        C.

    Raises:
        UserError: As `Sanitiser` does.
    """
    placed = unseal(sealed)
    first, second = bits.draw((1, 2, 3))[0]
    total = placed.total + draw_one(placed.sigma, first)
    log = placed.log + draw_one(sanitiser.sigmas[1], second)
    bound = sanitiser.upper_bound(total, log, placed.step)
    return math.ceil(bound * 10**DIGITS) / 10**DIGITS
