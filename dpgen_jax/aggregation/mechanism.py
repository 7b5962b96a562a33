"""Mechanisms: bound, noise and schedule, their cost, and the release.

`release` is the only code of the package that turns a sum over units into a public value.
`LocalMechanism` adds the noise at the client instead: what leaves a client is already private.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import chex
import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.aggregation.bound import Bound, CompactBound, add_up
from dpgen_jax.aggregation.noise import BitSource, Noise
from dpgen_jax.aggregation.schedule import FullParticipation, RoundRobin, Schedule
from dpgen_jax.core.errors import option
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, Private, UserError, unseal


class Mechanism(Protocol):
    """The protocol of a mechanism.

    `SumMechanism`, `teacher_votes.ConfidentGNMax` and `LocalMechanism` implement it. The loop and
    the ledger use nothing else.
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
        """The shape of one unit's contribution: (B, D), or that of a compact form."""

    @property
    def keeps_votes(self) -> bool:
        """Whether the data holder may keep the sums, for data-dependent accounting."""

    @property
    def queries(self) -> int:
        """The queries of one round whose votes may be kept; 0 if no votes are kept."""

    @property
    def vote_bins(self) -> int:
        """Bins of each kept histogram; 0 for single counts, or no votes."""

    @property
    def cost_depends_on_answers(self) -> bool:
        """Whether unanswered queries reduce the actual charge of a round."""

    @property
    def bits_shape(self) -> tuple[int, ...]:
        """The shape of the uint32 bits of one release."""

    def private_inputs(
        self, source: BitSource, cohorts: np.ndarray, first_round: int
    ) -> np.ndarray:
        """Draws the secret bits for the units of some rounds.

        Args:
            cohorts: int32 [n], the cohort of each of n rounds.

        Returns:
            [R, n, ...]: row r and round i are for unit r * n_cohorts + cohorts[i]; if units are
            sampled, row r is a place of the sampled batch. R rows cover all units.
        """

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns one unit's contribution to the sum: int32 of `contribution_shape`.

        Args:
            key: Random key for rounding; it protects nothing.
            message: float32 [B, M].
            private_input: The unit's entry of `private_inputs`.
        """

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with the contributions of some units added: int32 [B, D].

        Args:
            total: int32 [B, D].
            contributions: int32 [n, ...], each from `contribution`; zeros contribute nothing.
        """

    def decide(self, votes: Array, bits: Array) -> Any:
        """Returns the public outcome of the sum with noise, any pytree.

        Args:
            votes: int32 [B, D], the sum over units.
            bits: uint32 of `bits_shape`, from which the noise is made.
        """

    def value(self, outcome: Any) -> Array:
        """Returns the value that a method learns from: float32 [B, ...].

        Args:
            outcome: From `decide`.
        """

    def answered(self, outcome: Any) -> Array:
        """Returns which queries of the round were answered, if the cost depends on it: int32.

        Args:
            outcome: From `decide`.
        """

    def events(self, steps: int) -> Events:
        """Returns the largest cost of some rounds, as (event, count) pairs."""

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns the charge before some rounds, as (event, count) pairs."""

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns the actual cost of rounds; never more than `charged`.

        Args:
            answered: int32 [steps, ...], from `answered` for each round.
            charged: The charge before the rounds.
        """


class _FixedCost:
    """Base of mechanisms whose rounds all cost the same, and which keep no votes."""

    bound: Bound
    noise: Noise
    shape: tuple[int, int]

    @property
    def keeps_votes(self) -> bool:
        """False: no data-dependent accounting of such sums is known."""
        return False

    @property
    def queries(self) -> int:
        """0: no votes are kept."""
        return 0

    @property
    def vote_bins(self) -> int:
        """0: no histograms are kept."""
        return 0

    @property
    def cost_depends_on_answers(self) -> bool:
        """False: every round costs the same."""
        return False

    def value(self, outcome: Array) -> Array:
        """Returns the outcome itself."""
        return outcome

    def answered(self, outcome: Array) -> Array:
        """Returns nothing, int32 [0]: every round costs the same."""
        return jnp.zeros(0, jnp.int32)

    def events(self, steps: int) -> Events:
        """Returns the largest cost of some rounds, as (event, count) pairs."""
        raise NotImplementedError

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns the charge missing for all rounds up to the last one, as (event, count) pairs."""
        return pending_charge(self.events(first_round + steps), spent)

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns `charged`: every round costs the same."""
        return charged

    def _participation(self) -> Event:
        """The cost of one participation if it were known that the unit answers."""
        rows, columns = self.shape
        return self.noise.event(self.bound.squared_sensitivity(), rows * columns, self.bound.grid)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumMechanism(_FixedCost):
    """Integer messages, each bounded, summed over units and released with noise.

    Attributes:
        bound: The bound on the message of one unit.
        noise: The noise on the sum.
        schedule: The units that are queried in a round.
        n_units: U, public.
        shape: (B, D) of a bounded message.
        decode: A function from the noisy sum int32 [B, D] and the number of answering units to
        float32. relation: The neighbouring relation of the guarantee. unit: Who is protected.

    Guarantee:
        Unit and relation: as the fields say. Sensitivity: one participation is one Gaussian release
        of squared L2 sensitivity bound.squared_sensitivity(); the schedule proves how
        participations add up. Replace-one: the content and label behind one public record id
        change; this changes the message of one unit arbitrarily, and no other. The number of
        records and the ids are public. `events` is derived from the objects that bound and draw.

    Source:
        Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014): the Gaussian
        mechanism; Dong, Roth and Su (arXiv 1905.02383): its exact accounting.

    Raises:
        UserError: The bound is not proven for the relation or unit, shapes do not fit, or the noisy
            sum could overflow int32.
    """

    bound: Bound
    noise: Noise
    schedule: Schedule
    n_units: int
    shape: tuple[int, int]
    decode: Callable[[Array, float], Array]
    relation: Relation = Relation.REPLACE_ONE
    unit: Unit = Unit.RECORD

    def __post_init__(self) -> None:
        rows, columns = (operator.index(size) for size in self.shape)
        object.__setattr__(self, "shape", (rows, columns))
        object.__setattr__(self, "n_units", operator.index(self.n_units))
        if self.relation == Relation.ADD_REMOVE:
            raise UserError(f"relation '{self.relation}' is not available for teachers: a record "
                            "more or less moves later records to other teachers, so every "
                            f"message may change; use '{self.bound.relation}'")
        for name in ("relation", "unit"):
            claimed, proven = getattr(self, name), getattr(self.bound, name)
            if claimed != proven:
                raise UserError(f"{name} is '{claimed}'; the bound is proven for '{proven}'")
        if self.n_units < 1 or columns < 1:
            raise UserError(f"{self.n_units} units with messages of {columns} columns; at least "
                            "one of each is needed")
        if self.bound.rows != rows:
            raise UserError(f"the bound covers {self.bound.rows} rows, a message has {rows}")
        check_range(self.schedule.batch_capacity or self.n_units, self.bound, self.noise)

    @property
    def contribution_shape(self) -> tuple[int, ...]:
        """The shape of a bounded message: (B, D), or that of the bound's compact form."""
        return (self.bound.compact_shape if isinstance(self.bound, CompactBound) else self.shape)

    @property
    def bits_shape(self) -> tuple[int, ...]:
        """The shape of the uint32 bits of one release."""
        return self.noise.bits_shape(self.shape)

    def private_inputs(
        self, source: BitSource, cohorts: np.ndarray, first_round: int
    ) -> np.ndarray:
        """Draws which units participate, if that is secret: int32 [R, n, 0 or 1].

        Returns:
            1 if the answer of a unit is counted, or the unit that was sampled for a place.
        """
        n = len(cohorts)
        participation = self.schedule.participation(source, self.n_units, first_round, n)
        if participation is None:
            return np.zeros((rows_of(self), n, 0), np.int32)
        return participation[:, :, None]

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns the bounded message, or zeros if it is not counted."""
        bound = self.bound
        votes = (bound.compact if isinstance(bound, CompactBound) else bound.project)(key, message)
        return votes * self.schedule.counted(private_input[0]) if private_input.size else votes

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with the bounded messages of some units added: int32 [B, D]."""
        if isinstance(self.bound, CompactBound):
            return self.bound.added(total, contributions)
        return add_up(total, contributions)

    def decide(self, votes: Array, bits: Array) -> Array:
        """Returns the decoded noisy sum: float32 [B, ...]."""
        chex.assert_shape(votes, self.shape)
        chex.assert_type([votes, bits], [jnp.int32, jnp.uint32])
        answers = self.schedule.expected_answers(self.n_units)
        return self.decode(votes + self.noise.sample(bits), answers)

    def events(self, steps: int) -> Events:
        """Returns the privacy events of some rounds, as (event, count) pairs."""
        event = self.schedule.event(self._participation(), self.bound)
        return ((event, self.schedule.max_participations(steps)),)


def rows_of(mechanism: Mechanism) -> int:
    """Returns R, the number of rows of units: each row has one unit of every cohort.

    If units are sampled, it is the number of places of a sampled batch.
    """
    schedule = mechanism.schedule
    return schedule.batch_capacity or -(-mechanism.n_units // schedule.n_cohorts)


def pending_charge(events: Events, spent: Events) -> Events:
    """Returns the charge that is missing for `events`, given what was charged before.

    So the charges of a run are never below the cost of all its rounds, including lost and torn
    ones.

    Args:
        events: The cost of all rounds up to the last one.
    """
    charged: dict[Event, int] = dict(spent)
    return tuple((event, count - charged.get(event, 0)) for event, count in events
                 if count > charged.get(event, 0))


def check_range(n_units: int, bound: Bound, noise: Noise) -> None:
    """Checks that a noisy sum fits in int32.

    Args:
        n_units: The largest number of units in one sum.

    Raises:
        UserError: It could overflow int32.
    """
    if n_units * bound.max_abs + noise.max_abs >= 2**31:
        raise UserError(f"the noisy sum over {n_units} units could leave 32-bit integers; "
                        "use fewer units")


def release(mechanism: Mechanism, bits: Array, total: Private[Array]) -> Any:
    """Opens the sum over units and returns the public outcome of the mechanism.

    The function is pure. Bits of another shape would broadcast and give two entries the same noise.

    Args:
        bits: uint32 of mechanism.bits_shape, uniform, secret, and used for this release only.
        total: Sealed int32 [B, D].

    Raises:
        ValueError: A wrong shape or type.
    """
    votes = unseal(total)
    shape = mechanism.bits_shape
    if bits.shape != shape or bits.dtype != jnp.uint32:
        raise ValueError(f"noise bits are {bits.dtype}{bits.shape}, expected uint32{shape}")
    if votes.shape != mechanism.shape or votes.dtype != jnp.int32:
        raise ValueError(f"the sum is {votes.dtype}{votes.shape}, expected int32{mechanism.shape}")
    return mechanism.decide(votes, bits)


def kept(mechanism: Mechanism, total: Private[Array]) -> Private[Array]:
    """Returns the sum, still sealed, if the data holder keeps it in private/, else an empty array.

    Args:
        total: Sealed int32 [B, D].

    Returns:
        Sealed int32 [B, D] or [0].
    """
    votes = unseal(total)
    return Private(votes if mechanism.keeps_votes else jnp.zeros(0, jnp.int32))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMechanism(_FixedCost):
    """Each client bounds its message, adds noise, and sends the result.

    The mean of m answers has the noise of one client divided by sqrt m; with a trusted aggregator
    it has that noise divided by m.

    Attributes:
        bound: The bound on the message of one client.
        schedule: The clients that are queried in a round, public.
        n_units: U, clients, public.
        shape: (B, D) of a message.
        decode: As in `SumMechanism`.

    Guarantee:
        Unit: a client. Relation: replace-one: all records of one client change, including their
        number. Sensitivity: one participation is one Gaussian release of squared L2 sensitivity
        bound.squared_sensitivity() by that client, made before anything leaves it. So it holds
        against the server and all other clients together. A client is charged for its own
        participations, at most schedule.max_participations(T). Secret samples of clients amplify
        nothing against a server that knows which clients it queried, so such schedules are refused.

    Source:
        Kasiviswanathan et al., "What Can We Learn Privately?" (FOCS 2008): the local model.

    Raises:
        UserError: There are fewer than two clients, the schedule is secret, or a noisy sum could
            overflow int32.
    """

    bound: Bound
    noise: Noise
    schedule: Schedule
    n_units: int
    shape: tuple[int, int]
    decode: Callable[[Array, float], Array]

    unit: ClassVar[Unit] = Unit.CLIENT
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    bits_shape: ClassVar[tuple[int, ...]] = (0,)  # the sum gets no noise on top

    def __post_init__(self) -> None:
        rows, columns = (operator.index(size) for size in self.shape)
        object.__setattr__(self, "shape", (rows, columns))
        if self.n_units < 2:
            raise UserError(f"a federation of {self.n_units} clients; at least 2 are needed: leave "
                            f"out {option('federated')} to train on one data set")
        if not isinstance(self.schedule, FullParticipation | RoundRobin):
            raise UserError("clients answer by a public schedule: a secret draw hides nothing from "
                            "the server, which knows which clients it queries")
        if self.bound.rows != self.shape[0]:
            raise UserError(f"the bound covers {self.bound.rows} rows, a message has "
                            f"{self.shape[0]}")
        if self.n_units * self.largest >= 2**31:
            raise UserError(f"the sum over {self.n_units} noisy clients could leave 32-bit "
                            "integers; use fewer clients")

    @property
    def contribution_shape(self) -> tuple[int, ...]:
        """The shape of one client's contribution: (B, D)."""
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
        """Returns the message that leaves the client, already private: int32 [B, D]."""
        return self.bound.project(key, message) + self.noise.sample(private_input)

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with the answers of some clients added: int32 [B, D]."""
        return add_up(total, contributions)

    def decide(self, votes: Array, bits: Array) -> Array:
        """Returns the decoded sum: float32 [B, ...]."""
        chex.assert_shape(votes, self.shape)
        chex.assert_type(votes, jnp.int32)
        return self.decode(votes, self.schedule.expected_answers(self.n_units))

    def events(self, steps: int) -> Events:
        """Returns the cost to the client that participates most, as (event, count) pairs."""
        return ((self._participation(), self.schedule.max_participations(steps)),)
