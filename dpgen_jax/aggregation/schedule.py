"""Schedules: which units are queried in a round, and how often that is the same unit.

A schedule splits the units into cohorts of equal size (up to one): unit u belongs to cohort
u mod n_cohorts. A round queries one cohort, and no other unit learns or answers in it.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Protocol

import numpy as np

from dpgen_jax.accountant.events import (
    Event,
    NonPrivateEvent,
)
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.core.types import Array, UserError


class Schedule(Protocol):
    """The protocol of a schedule.

    Rounds count from the start of a run, lost ones and those of all its resumed parts included.
    Where units are sampled into places, they keep no state, their records lie on every device, and
    `participation` names who was sampled.
    """

    @property
    def n_cohorts(self) -> int:
        """The number of cohorts that the units are split into."""

    @property
    def batch_capacity(self) -> int | None:
        """The places of a sampled batch, or None where the units of a round are not sampled."""

    def cohorts(self, source: BitSource, first_round: int, n: int) -> np.ndarray:
        """Returns the cohorts of some rounds: int32 [n].

        Args:
            source: The source of secret bits.
            first_round: The number of the first of these rounds.
            n: The number of these rounds.
        """

    def participation(self, source: BitSource, n_units: int, first_round: int, n: int
                      ) -> np.ndarray | None:
        """Draws whose answers are counted, where that is a secret, or returns None: all of them.

        Args:
            source: The source of secret bits.
            n_units: U.
            first_round: The number of the first of these rounds.
            n: The number of these rounds.

        Returns:
            int32 [U, n], 1 where the answer of a unit is counted; where units are sampled into
            places, int32 [batch_capacity, n]: the unit of each place, or -1 for none.
        """

    def counted(self, participation: Array) -> Array:
        """Returns 1 where an answer is counted, else 0: int32.

        Args:
            participation: Entries of `participation`, int32 [...].
        """

    def expected_answers(self, n_units: int) -> float:
        """Returns the public number of answers of a round, which a sum is divided by.

        It is the average over the cohorts, or over the samples.

        Args:
            n_units: U.
        """

    def max_participations(self, rounds: int) -> int:
        """Returns how often the unit that is queried most is queried.

        Args:
            rounds: The number of rounds from the start of the run.
        """

    def event(self, release: Event, bound: Bound) -> Event:
        """Returns the cost of one participation.

        Args:
            release: Its cost if it were known that the unit answers.
            bound: The bound on the message of the unit.

        Raises:
            UserError: The schedule is not proven for this release or this bound.
        """


class _Public:
    """A public schedule: nothing is secret, and a participation costs what the release costs."""

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
    """A public round-robin: round after round the next cohort answers.

    With m = U / n_cohorts units a round, gradients clipped to C, B of them in a round, and T
    rounds, the mean gradient carries noise of 2 C sqrt(T B / (2 c U m)) per coordinate, c = mu^2 /
    2 the total budget. More units a round are better at equal cost in privacy, and cost time: with
    all of them this is `FullParticipation`.

    Attributes:
        n_cohorts: The number of cohorts.

    Guarantee:
        Unit and relation: those of the bound. The cohort of a round is a function of the number of
        the round alone. Given what was released so far, a round that does not query a record's unit
        has the same law on both of two neighbouring data sets: it reads neither the record nor
        anything computed from it. So the run is the adaptive composition of the participations of
        that one unit (parallel composition), at most ceil(T / n_cohorts) in T rounds. Rounds count
        whatever was begun, also those that a crash lost: a unit that was queried in a lost round is
        not queried again before its next round.

    Source:
        Parallel composition: McSherry, "Privacy Integrated Queries" (SIGMOD 2009), Theorem 4.

    Raises:
        UserError: There is no cohort.
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
        None. The state of a unit tells how often it was sampled, so the rounds are no adaptive
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
