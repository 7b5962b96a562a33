"""The protocol of a mechanism."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.aggregation.noise import Noise
from dpgen_jax.aggregation.schedule import Schedule
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array


class Mechanism(Protocol):
    """The protocol of a mechanism.

    It is what `SumMechanism`, `confident_gnmax.ConfidentGNMax` and `local.LocalMechanism` have in
    common, and all that the loop and the ledger know of them.
    """

    @property
    def bound(self) -> Bound:
        """The bound on the message of one unit."""

    @property
    def noise(self) -> Noise:
        """The noise on the sum, or on the message of each client."""

    @property
    def schedule(self) -> Schedule:
        """The units that are queried in a round."""

    @property
    def n_units(self) -> int:
        """U: the public number of units."""

    @property
    def unit(self) -> Unit:
        """Who is protected."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of the guarantee."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, D): the shape of the sum over units."""

    @property
    def contribution_shape(self) -> tuple[int, ...]:
        """The shape of what one unit adds: (B, D), or that of a compact form."""

    @property
    def keeps_votes(self) -> bool:
        """Whether the data holder may keep the sums, for data-dependent accounting."""

    @property
    def queries(self) -> int:
        """The queries of one round whose votes may be kept; 0 where no votes are."""

    @property
    def vote_bins(self) -> int:
        """Bins of each histogram whose votes may be kept; 0 for single counts, or no votes."""

    @property
    def cost_depends_on_answers(self) -> bool:
        """Whether the actual charge of a round is less where queries are not answered."""

    @property
    def bits_shape(self) -> tuple[int, ...]:
        """The shape of the uint32 bits of one release."""

    def private_inputs(
        self, source: BitSource, cohorts: np.ndarray, first_round: int
    ) -> np.ndarray:
        """Draws the secret bits that are given to the units of some rounds.

        Args:
            source: The source of the bits.
            cohorts: int32 [n], the cohort of each of n rounds.
            first_round: The number of the first of these rounds.

        Returns:
            [R, n, ...], for row r and round i that of unit r * n_cohorts + cohorts[i]; where units
            are sampled, row r is a place of the sampled batch. R rows hold all units.
        """

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns what one unit adds to the sum: int32 of `contribution_shape`.

        Args:
            key: Random key for rounding; it protects nothing.
            message: float32 [B, M].
            private_input: The unit's entry of `private_inputs`.
        """

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with the contributions of some units added.

        Args:
            total: int32 [B, D].
            contributions: int32 [n, ...], each as `contribution` returns it; zeros add nothing.

        Returns:
            int32 [B, D].
        """

    def decide(self, votes: Array, bits: Array) -> Any:
        """Returns the public outcome of the sum with noise, any pytree.

        Args:
            votes: int32 [B, D], the sum over units.
            bits: uint32 of `bits_shape`, that the noise is made of.
        """

    def value(self, outcome: Any) -> Array:
        """Returns what a method learns from the outcome: float32 [B, ...].

        Args:
            outcome: As `decide` returns it.
        """

    def answered(self, outcome: Any) -> Array:
        """Returns which queries of the round were answered, where that decides the cost: int32.

        Args:
            outcome: As `decide` returns it.
        """

    def events(self, steps: int) -> Events:
        """Returns the most that some rounds can cost, as (event, count) pairs.

        Args:
            steps: The number of rounds.
        """

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns what is to be charged before some rounds, as (event, count) pairs.

        Args:
            spent: All that was charged.
            first_round: The number of the first of these rounds.
            steps: The number of these rounds.
        """

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns what rounds cost in the end; never more than `charged`.

        Args:
            answered: int32 [steps, ...], as `answered` said of each round.
            charged: What was charged before the rounds.
        """
