"""Mechanisms: bound, noise and schedule, what they cost, and the release itself.

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

    It is what `SumMechanism`, `teacher_votes.ConfidentGNMax` and `LocalMechanism` have in
    common, and the only interface of the loop and the ledger to them.
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
            cohorts: int32 [n], the cohort of each of n rounds.

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
        """Returns the sum with the contributions of some units added: int32 [B, D].

        Args:
            total: int32 [B, D].
            contributions: int32 [n, ...], each as `contribution` returns it; zeros add nothing.
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
        """Returns the most that some rounds can cost, as (event, count) pairs."""

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns what is to be charged before some rounds, as (event, count) pairs."""

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns what rounds cost in the end; never more than `charged`.

        Args:
            answered: int32 [steps, ...], as `answered` said of each round.
            charged: What was charged before the rounds.
        """


class _FixedCost:
    """The part of mechanisms whose rounds all cost the same, and which keep no votes."""

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
        """Returns the most that some rounds can cost, as (event, count) pairs."""
        raise NotImplementedError

    def pending_charge(self, spent: Events, first_round: int, steps: int) -> Events:
        """Returns what is missing for all rounds up to the last one, as (event, count) pairs."""
        return pending_charge(self.events(first_round + steps), spent)

    def actual_charge(self, answered: np.ndarray, charged: Events) -> Events:
        """Returns what was charged: every round costs the same."""
        return charged

    def _participation(self) -> Event:
        """The cost of one participation, if it were known that the unit answers."""
        rows, columns = self.shape
        return self.noise.event(self.bound.squared_sensitivity(), rows * columns, self.bound.grid)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumMechanism(_FixedCost):
    """Integer messages, bounded one by one, summed over units, released with noise.

    Attributes:
        bound: The bound on the message of one unit.
        noise: The noise on the sum.
        schedule: The units that are queried in a round.
        n_units: U, public.
        shape: (B, D) of a bounded message.
        decode: From the noisy sum int32 [B, D] and the number of units that answer to float32.
        relation: Which neighbouring data sets the guarantee is for.
        unit: Who is protected.

    Guarantee:
        Unit and relation: as the fields say. Sensitivity: one participation is one Gaussian release
        of squared L2 sensitivity bound.squared_sensitivity(); how participations add up is the
        schedule's to prove. Replace-one: the content and label behind one public record id change;
        that moves the message of one unit, arbitrarily, and no other. The number of records and the
        ids are public. What `events` says is derived from the very objects that bound and draw.

    Source:
        Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014): the Gaussian
        mechanism; Dong, Roth and Su (arXiv 1905.02383): its exact accounting.

    Raises:
        UserError: The bound is not proven for the relation or unit, shapes do not fit, or the noisy
            sum could leave int32.
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
        """Draws who participates, where that is a secret: int32 [R, n, 0 or 1].

        Returns:
            1 where the answer of a unit is counted, or the unit that was sampled for a place.
        """
        n = len(cohorts)
        participation = self.schedule.participation(source, self.n_units, first_round, n)
        if participation is None:
            return np.zeros((rows_of(self), n, 0), np.int32)
        return participation[:, :, None]

    def contribution(self, key: Array, message: Array, private_input: Array) -> Array:
        """Returns the bounded message, or zeros where it is not counted."""
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
    """Returns R, the rows of units: each row holds one unit of every cohort.

    Where units are sampled, it is the number of places of a sampled batch.
    """
    schedule = mechanism.schedule
    return schedule.batch_capacity or -(-mechanism.n_units // schedule.n_cohorts)


def pending_charge(events: Events, spent: Events) -> Events:
    """Returns what must still be charged so that all of `events` is, whatever was charged before.

    The charges of a run are never below what all its rounds cost, lost and torn ones included.

    Args:
        events: What all rounds up to the last one cost.
    """
    charged: dict[Event, int] = dict(spent)
    return tuple((event, count - charged.get(event, 0)) for event, count in events
                 if count > charged.get(event, 0))


def check_range(n_units: int, bound: Bound, noise: Noise) -> None:
    """Checks that a noisy sum stays in int32.

    Args:
        n_units: The most units that add to one sum.

    Raises:
        UserError: It could leave int32.
    """
    if n_units * bound.max_abs + noise.max_abs >= 2**31:
        raise UserError(f"the noisy sum over {n_units} units could leave 32-bit integers; "
                        "use fewer units")


def release(mechanism: Mechanism, bits: Array, total: Private[Array]) -> Any:
    """Opens the sum over units and returns what the mechanism makes of it: public.

    It is pure. Bits of another shape would broadcast and give two entries the same noise.

    Args:
        bits: uint32 of mechanism.bits_shape, uniform, secret, and used for this release only.
        total: Sealed int32 [B, D].

    Raises:
        ValueError: A shape or type is another one.
    """
    votes = unseal(total)
    shape = mechanism.bits_shape
    if bits.shape != shape or bits.dtype != jnp.uint32:
        raise ValueError(f"noise bits are {bits.dtype}{bits.shape}, expected uint32{shape}")
    if votes.shape != mechanism.shape or votes.dtype != jnp.int32:
        raise ValueError(f"the sum is {votes.dtype}{votes.shape}, expected int32{mechanism.shape}")
    return mechanism.decide(votes, bits)


def kept(mechanism: Mechanism, total: Private[Array]) -> Private[Array]:
    """Returns the sum, still sealed, if the data holder keeps it in private/, else nothing.

    Args:
        total: Sealed int32 [B, D].

    Returns:
        Sealed int32 [B, D] or [0].
    """
    votes = unseal(total)
    return Private(votes if mechanism.keeps_votes else jnp.zeros(0, jnp.int32))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMechanism(_FixedCost):
    """Each client bounds its message, adds noise of its own, and sends that.

    The price: the mean of m answers carries the noise of one client over sqrt m, where with a
    trusted aggregator it carries that noise over m.

    Attributes:
        bound: The bound on the message of one client.
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
        nothing against a server that knows which clients it queried, so no such schedule is taken.

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
    bits_shape: ClassVar[tuple[int, ...]] = (0,)  # the sum gets no noise on top

    def __post_init__(self) -> None:
        rows, columns = (operator.index(size) for size in self.shape)
        object.__setattr__(self, "shape", (rows, columns))
        if self.n_units < 2:
            raise UserError(f"a federation of {self.n_units} clients; at least 2 are needed: leave "
                            f"out {option('federated')} to train on one data set")
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
        """Returns the message that leaves the client, already private: int32 [B, D]."""
        return self.bound.project(key, message) + self.noise.sample(private_input)

    def added(self, total: Array, contributions: Array) -> Array:
        """Returns the sum with what some clients answered added: int32 [B, D]."""
        return add_up(total, contributions)

    def decide(self, votes: Array, bits: Array) -> Array:
        """Returns the decoded sum: float32 [B, ...]."""
        chex.assert_shape(votes, self.shape)
        chex.assert_type(votes, jnp.int32)
        return self.decode(votes, self.schedule.expected_answers(self.n_units))

    def events(self, steps: int) -> Events:
        """Returns the cost to the client that participates most, as (event, count) pairs."""
        return ((self._participation(), self.schedule.max_participations(steps)),)
