"""Noise at the client: what leaves a client is already private, whoever runs the server."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import ClassVar

import chex
import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.bound import Bound, add_up
from dpgen_jax.aggregation.mechanism import pending_charge, rows_of
from dpgen_jax.aggregation.noise import Noise
from dpgen_jax.aggregation.schedule import FullParticipation, RoundRobin, Schedule
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMechanism:
    """Each client bounds its message, adds noise of its own, and sends that.

    The price: the mean of m answers carries the noise of one client over sqrt m, where a trusted
    aggregator would leave that over m.

    Attributes:
        bound: The bound on the message of one client.
        noise: The noise of one client.
        schedule: The clients that are queried in a round, public.
        n_units: U, clients, public.
        shape: (B, D) of a message.
        decode: As in `SumMechanism`.

    Guarantee:
        Unit: a client. Relation: replace-one: all records of one client change, their number too.
        Sensitivity: one participation is one Gaussian release of squared L2 sensitivity
        bound.squared_sensitivity() by that client, made before anything leaves it: it holds against
        the server and against all other clients together. A client is charged for its own
        participations, at most schedule.max_participations(T). Secret samples of clients amplify
        nothing against a server that knows whom it asked, so no such schedule is taken.

    Source:
        Kasiviswanathan et al., "What Can We Learn Privately?" (FOCS 2008): the local model.

    Raises:
        UserError: There are fewer than two clients, the schedule is secret, or a noisy sum could
            leave int32.
    """

    bound: Bound
    noise: Noise
    schedule: Schedule
    n_units: int
    shape: tuple[int, int]
    decode: Callable[[Array, float], Array]

    unit: ClassVar[Unit] = Unit.CLIENT
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    keeps_votes: ClassVar[bool] = False
    cost_depends_on_answers: ClassVar[bool] = False
    queries: ClassVar[int] = 0
    vote_bins: ClassVar[int] = 0
    bits_shape: ClassVar[tuple[int, ...]] = (0,)  # the sum gets no noise on top

    def __post_init__(self) -> None:
        rows, columns = (operator.index(size) for size in self.shape)
        object.__setattr__(self, "shape", (rows, columns))
        if self.n_units < 2:
            raise UserError(f"a federation of {self.n_units} clients; at least 2 are needed: leave "
                            "out --federated to train on one data set")
        if not isinstance(self.schedule, FullParticipation | RoundRobin):
            raise UserError("clients answer by a public schedule: a secret draw hides nothing from "
                            "the server, which knows whom it asks")
        if self.bound.rows != self.shape[0]:
            raise UserError(f"the bound covers {self.bound.rows} rows, a message has "
                            f"{self.shape[0]}")
        if self.n_units * self.largest >= 2**31:
            raise UserError(f"the sum over {self.n_units} noisy clients could leave 32-bit "
                            "integers; use fewer clients")

    @property
    def contribution_shape(self) -> tuple[int, ...]:
        """The shape of what one client adds: (B, D)."""
        return self.shape

    @property
    def largest(self) -> int:
        """The largest magnitude of an entry that a client can send."""
        return self.bound.max_abs + self.noise.max_abs

    @property
    def client_bits_shape(self) -> tuple[int, ...]:
        """The shape of the uint32 bits of one client's noise for one participation."""
        return self.noise.bits_shape(self.shape)

    def private_inputs(
        self, source: BitSource, cohorts: np.ndarray, first_round: int
    ) -> np.ndarray:
        """Draws the noise bits of each queried client: uint32 [R, n, *client_bits_shape]."""
        units = np.arange(rows_of(self))[:, None] * self.schedule.n_cohorts + cohorts
        return source.draw_for(units, first_round, self.client_bits_shape)

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns the message that leaves the client, private as it stands: int32 [B, D]."""
        return self.bound.project(key, message) + self.noise.sample(private_input)

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with what some clients answered added: int32 [B, D]."""
        return add_up(total, contributions)

    def decide(self, votes: Array, bits: Array) -> Array:
        """Returns the decoded sum: float32 [B, ...]."""
        chex.assert_shape(votes, self.shape)
        chex.assert_type(votes, jnp.int32)
        return self.decode(votes, self.schedule.expected_answers(self.n_units))

    def value(self, outcome: Array) -> Array:
        """Returns the outcome itself."""
        return outcome

    def answered(self, outcome: Array) -> Array:
        """Returns nothing, int32 [0]: every participation costs the same."""
        return jnp.zeros(0, jnp.int32)

    def events(self, steps: int) -> Events:
        """Returns the cost to the client that participates most, as (event, count) pairs."""
        rows, columns = self.shape
        visit = self.noise.event(self.bound.squared_sensitivity(), rows * columns, self.bound.grid)
        return ((visit, self.schedule.max_participations(steps)),)

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns what is missing for all rounds up to the last one, as (event, count) pairs."""
        return pending_charge(self.events(first_round + steps), spent)

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns what was charged: every participation costs the same."""
        return charged
