"""Schedules: which units are queried in a round, in public rotation or sampled in secret.

A schedule splits the units into cohorts of equal size (up to one): unit u belongs to cohort
u mod n_cohorts. A round queries one cohort, and no other unit learns or answers in it.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
from scipy.special import bdtrc

from dpgen_jax.accountant.events import (
    Event,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
    round_up,
)
from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.aggregation.noise import BitSource
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, UserError


class Schedule(Protocol):
    """The protocol of a schedule.

    Rounds are counted from the start of a run, including lost ones and those of all its resumed
    parts. If units are sampled into places, they keep no state, their records are on every device,
    and `participation` returns which units were sampled.
    """

    @property
    def n_cohorts(self) -> int:
        """The number of cohorts that the units are split into."""

    @property
    def batch_capacity(self) -> int | None:
        """The places of a sampled batch, or None if the units of a round are not sampled."""

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Returns the cohorts of some rounds: int32 [n]."""

    def participation(self, source: BitSource, n_units: int, first_round: int, n: int
                      ) -> np.ndarray | None:
        """Draws whose answers are counted, if that is secret; None means all of them.

        Returns:
            int32 [U, n], 1 if the answer of a unit is counted; if units are sampled into places,
            int32 [batch_capacity, n]: the unit of each place, or -1 for none.
        """

    def counted(self, participation: Array) -> Array:
        """Returns 1 if an answer is counted, else 0: int32.

        Args:
            participation: Entries of `participation`, int32 [...].
        """

    def expected_answers(self, n_units: int) -> float:
        """Returns the public number of answers of a round, by which a sum is divided.

        It is the average over the cohorts, or over the samples.
        """

    def max_participations(self, rounds: int) -> int:
        """Returns the largest number of rounds in which a unit is queried.

        Args:
            rounds: The number of rounds from the start of the run.
        """

    def event(self, release: Event, bound: Bound) -> Event:
        """Returns the cost of one participation.

        Args:
            release: The cost if it were known that the unit answers.

        Raises:
            UserError: The schedule is not proven for this release or this bound.
        """


class _Public:
    """A public schedule: nothing is secret, and a participation costs as much as the release."""

    batch_capacity: ClassVar[None] = None

    def counted(self, participation: Array) -> Array:
        """Returns its argument: all answers are counted."""
        return participation

    def participation(self, source: BitSource, n_units: int, first_round: int, n: int) -> None:
        """Returns None: all answers are counted."""
        return None

    def event(self, release: Event, bound: Bound) -> Event:
        """Returns the release itself."""
        return release


@dataclasses.dataclass(frozen=True)
class FullParticipation(_Public):
    """Every unit answers in every round.

    Guarantee:
        Unit and relation: those of the bound. A unit participates in every round. Units are
        disjoint, so a record is charged for its own unit only.

    Source:
        Parallel composition: McSherry, "Privacy Integrated Queries" (SIGMOD 2009), Theorem 4.
    """

    n_cohorts: ClassVar[int] = 1

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Returns zeros: there is one cohort."""
        return np.zeros(n, np.int32)

    def expected_answers(self, n_units: int) -> float:
        """Returns U."""
        return n_units

    def max_participations(self, rounds: int) -> int:
        """Returns the number of rounds."""
        return rounds


@dataclasses.dataclass(frozen=True)
class RoundRobin(_Public):
    """A public round-robin: in each round the next cohort answers.

    With m = U / n_cohorts units a round, gradients clipped to C, B of them in a round, and T
    rounds, the mean gradient has noise of 2 C sqrt(T B / (2 c U m)) per coordinate, where c = mu^2
    / 2 is the total budget. More units a round are better at the same privacy cost, and take more
    time: with all of them this is `FullParticipation`.

    Guarantee:
        Unit and relation: those of the bound. The cohort of a round is a function of the number of
        the round only. Given the earlier releases, a round that does not query a record's unit has
        the same distribution on two neighbouring data sets: it reads neither the record nor
        anything computed from it. So the run is the adaptive composition of the participations of
        that one unit (parallel composition), at most ceil(T / n_cohorts) in T rounds. All rounds
        that were begun count, including those lost in a crash: a unit that was queried in a lost
        round is not queried again before its next round.

    Source:
        Parallel composition: McSherry, "Privacy Integrated Queries" (SIGMOD 2009), Theorem 4.

    Raises:
        UserError: The number of cohorts is below 1.
    """

    n_cohorts: int

    def __post_init__(self) -> None:
        if self.n_cohorts < 1:
            raise UserError(f"{self.n_cohorts} cohorts of units; at least 1 is needed")

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Returns the cohorts of some rounds: int32 [n]."""
        return (np.arange(first_round, first_round + n) % self.n_cohorts).astype(np.int32)

    def expected_answers(self, n_units: int) -> float:
        """Returns the size of a cohort, on average."""
        return n_units / self.n_cohorts

    def max_participations(self, rounds: int) -> int:
        """Returns the rounds of the first cohort."""
        return -(-rounds // self.n_cohorts)


@dataclasses.dataclass(frozen=True)
class PublishedSampling(_Public):
    """GS-WGAN as published: one unit, sampled in secret, learns and answers.

    Attributes:
        units: U.

    Guarantee:
        None. The state of a unit shows how often it was sampled, so the rounds are not an adaptive
        composition of subsampled releases, and no proof is known: every round is charged as if it
        had no noise.

    Source:
        Chen, Orekondy and Fritz, "GS-WGAN" (NeurIPS 2020, arXiv 2006.08265).
    """

    units: int

    @property
    def n_cohorts(self) -> int:
        """One cohort for each unit."""
        return self.units

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Draws one unit for each round: int32 [n]."""
        bits = source.draw_for(np.zeros((1, n), np.int32), first_round, ())[0]
        return (bits % self.units).astype(np.int32)

    def expected_answers(self, n_units: int) -> float:
        """Returns 1."""
        return 1.0

    def max_participations(self, rounds: int) -> int:
        """Returns the number of rounds."""
        return rounds

    def event(self, release: Event, bound: Bound) -> Event:
        """Returns the cost of a release without noise."""
        return NonPrivateEvent("published draw: no valid guarantee")


OVERFLOW = 1e-18
"""The largest allowed probability that a sample does not fit in its places."""


@dataclasses.dataclass(frozen=True)
class FixedSizeSampling:
    """All units learn in every round; the answers of a secret sample of fixed size are counted.

    It cannot beat `FullParticipation` at the same work: all units learn here too, and at the
    published 20,000 steps of 32 gradients, 1,000 units and epsilon 10 the gradient of the one
    sampled unit needs noise of 5.74 C per coordinate, the mean over all units 0.80 C.

    Attributes:
        units: U.

    Guarantee:
        Unit: that of the bound. Relation: replace-one. Sensitivity: that of the release. The state
        of a unit is a function of its own records and of earlier releases, since all units learn in
        every round. The sample is drawn uniformly without replacement from new secret bits and kept
        secret. Noise is added to the sum whatever the sample. So a round is one subsampled Gaussian
        release on the U units, of which one differs between neighbours, and its whole message, all
        B gradients, is inside the amplified event. Samples are uniform unless two of the U random
        numbers tie; that probability, below U^2 2^-97 a round, is part of the event. The published
        GS-WGAN does neither: its critics learn only when sampled, so their state depends on the
        samples, and it multiplies by B after amplification.

    Source:
        Wang, Balle and Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical
        Moments Accountant" (AISTATS 2019), Theorem 27; `accountant.composition`.

    Raises:
        UserError: The sample is empty, or has all units.
    """

    units: int
    sampled: int
    n_cohorts: ClassVar[int] = 1
    batch_capacity: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not 1 <= self.sampled < self.units:
            raise UserError(f"{self.sampled} of {self.units} units are drawn a step; it must be at "
                            "least 1 and fewer than there are")

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Returns zeros: there is one cohort."""
        return np.zeros(n, np.int32)

    def participation(self, source: BitSource, n_units: int, first_round: int, n: int
                      ) -> np.ndarray:
        """Draws samples: the `sampled` smallest of U numbers of 96 bits.

        They are uniform except for ties, whose probability is part of `event`.

        Returns:
            int32 [U, n], 1 if the answer of a unit is counted.
        """
        units = np.tile(np.arange(n_units)[:, None], n)
        bits = source.draw_for(units, first_round, (3,))
        order = np.lexsort([bits[..., word] for word in range(3)], axis=0)
        participation = np.zeros((n_units, n), np.int32)
        np.put_along_axis(participation, order[:self.sampled], 1, axis=0)
        return participation

    def counted(self, participation: Array) -> Array:
        """Returns its argument."""
        return participation

    def expected_answers(self, n_units: int) -> float:
        """Returns the size of a sample."""
        return self.sampled

    def max_participations(self, rounds: int) -> int:
        """Returns the number of rounds: every unit may be sampled in each."""
        return rounds

    def event(self, release: Event, bound: Bound) -> Event:
        """Returns the cost of one round with a secret sample.

        Raises:
            UserError: The release is not Gaussian, or the bound is not proven for replace-one.
        """
        if isinstance(release, NonPrivateEvent):
            return release
        gaussian = _require_gaussian(self, release, bound)
        if bound.relation != Relation.REPLACE_ONE:
            # In addition to a replaced unit, the proof compares messages of two different units.
            raise UserError(f"{type(self).__name__} is proven for {Relation.REPLACE_ONE}, and "
                            f"{type(bound).__name__} bounds messages under {bound.relation}; use "
                            "another relation or PoissonSampling")
        # Two of U numbers of 96 bits are the same: the lower unit is then preferred.
        ties = round_up(Fraction(math.comb(self.units, 2), 2**96))
        return SampledGaussianEvent(gaussian.with_further_distance(ties), self.units, self.sampled)


@dataclasses.dataclass(frozen=True)
class PoissonSampling:
    """Samples each unit independently, in secret, with the same probability, in every round.

    `FullParticipation` is for all units in every round, at the cost without sampling.

    Attributes:
        units: U.
        expected: The average number of units of a round, above 0 and below U.

    Guarantee:
        Unit and relation: those of the bound. Sensitivity: a message has at most the norm
        bound.squared_norm. Samples are drawn from new secret bits and kept secret, and units keep
        no state, so a round is one Poisson-subsampled Gaussian release
        (`accountant.events.PoissonGaussianEvent`). The probability is exactly `rate`, a multiple of
        2^-32: a unit is sampled if its 32 bits are below 2^32 rate. A round has room for
        `batch_capacity` units, so its shape is public; a uniformly random part of a larger sample
        is left out. This changes the distribution of the round by at most the probability that it
        happens, below 1e-18, whatever the records are, and this probability is part of the event.

    Source:
        `accountant.pld` has the proof; Chua et al., "Scalable DP-SGD: Shuffling vs. Poisson
        Subsampling" (NeurIPS 2024) treat truncated batches in the same way.

    Raises:
        UserError: The expected number of units is out of range.
    """

    units: int
    expected: float

    n_cohorts: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 < self.expected < self.units:
            raise UserError(f"{self.expected:g} of {self.units} records are drawn a step on "
                            "average; it must be more than 0 and fewer than there are")

    @property
    def chances(self) -> int:
        """The probability that a unit is sampled, in units of 2^-32."""
        return math.ceil(2**32 * self.expected / self.units)

    @property
    def rate(self) -> float:
        """The probability that a unit is sampled."""
        return self.chances / 2**32

    @functools.cached_property
    def batch_capacity(self) -> int:
        """The places of a sampled batch."""
        return bisect.bisect_left(range(self.units), True, key=lambda places: bool(
            bdtrc(places, self.units, self.rate) <= OVERFLOW))

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Returns zeros: there is one cohort."""
        return np.zeros(n, np.int32)

    def participation(
        self, source: BitSource, n_units: int, first_round: int, n: int
    ) -> np.ndarray:
        """Draws the sampled units of each round, in the order of their random bits.

        So the order is uniformly random, and so is which ones are left out.

        Returns:
            int32 [batch_capacity, n]: the unit of each place, or -1 for none.
        """
        bits = source.draw((n, n_units))
        places = np.full((self.batch_capacity, n), -1, np.int32)
        for step, row in enumerate(bits):
            sampled = np.flatnonzero(row < self.chances)
            sampled = sampled[np.argsort(row[sampled], kind="stable")][:len(places)]
            places[:len(sampled), step] = sampled
        return places

    def counted(self, participation: Array) -> Array:
        """Returns 1 for places with a unit, else 0."""
        return (participation >= 0).astype(np.int32)

    def expected_answers(self, n_units: int) -> float:
        """Returns the average number of answers; that of one round is secret."""
        return self.rate * n_units

    def max_participations(self, rounds: int) -> int:
        """Returns the number of rounds: every unit may be sampled in each."""
        return rounds

    def event(self, release: Event, bound: Bound) -> Event:
        """Returns the cost of one round with a secret sample.

        Raises:
            UserError: The release is not Gaussian.
        """
        if isinstance(release, NonPrivateEvent):
            return release
        gaussian = _require_gaussian(self, release, bound)
        overflow = float(bdtrc(self.batch_capacity, self.units, self.rate))
        one = dataclasses.replace(gaussian, squared_sensitivity=bound.squared_norm)
        return PoissonGaussianEvent(one.with_further_distance(overflow), self.rate, bound.relation)


def _require_gaussian(schedule: Schedule, release: Event, bound: Bound) -> GaussianEvent:
    """Returns the release if it is of a kind that secret sampling is proven to amplify."""
    if isinstance(release, GaussianEvent):
        return release
    raise UserError(f"{type(schedule).__name__} is proven for Gaussian noise, and "
                    f"{type(bound).__name__} is released with {release.mechanism}; use Gaussian "
                    "noise or FullParticipation")
