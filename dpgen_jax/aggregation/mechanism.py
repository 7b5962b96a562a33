"""The door: bound x noise x schedule, what it costs, and the release itself.

`release` is the only code of the package that turns a sum over units into a public value.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.events import Event, Events
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import Schedule
from dpgen_jax.types import Array, Private, UserError, unseal

ADD_OR_REMOVE = "add-remove"
Noise = RoundedGaussian | NoNoise


class Bound(Protocol):
    """What is done to one unit's message, and how far that lets it move, from the same fields.

    unit, relation: what the bound is proven for; rows: B; max_abs: largest entry after `project`;
    grid: the value of one unit of the integers.
    """

    unit: ClassVar[str]
    relation: ClassVar[str]
    rows: int
    max_abs: int
    grid: float

    def project(self, key: Array, message: Array) -> Array:
        """float32 [B, M] to int32 [B, D]."""

    def squared_sensitivity(self) -> int:
        """Squared L2 sensitivity of the whole message of one step, in the integers released."""


class Releases(Protocol):
    """What the loop asks of a mechanism: `Mechanism`, `confident_gnmax.ConfidentGNMax`,
    `local.LocalMechanism`.

    shape: (B, D) of the sum over units; bits_shape: of the uint32 bits of one release; keeps_votes:
    whether the data holder may keep the sums, for data-dependent accounting.
    """

    bound: Bound
    schedule: Schedule
    n_units: int
    shape: tuple[int, int]
    keeps_votes: ClassVar[bool]

    @property
    def bits_shape(self) -> tuple[int, ...]: ...

    def secrets(self, source: BitSource, turns: np.ndarray, first: int) -> np.ndarray:
        """[R, n, ...]: what the unit visited in row r and step i is told in secret, which is unit
        r * groups + turns[i]; turns int32 [n] from turn `first` on; R rows hold all units."""

    def contribution(self, key: Array, message: Array, secret: Array) -> Array:
        """int32 [B, D]: what one unit adds to the sum, from its message and its secret."""

    def decide(self, votes: Array, bits: Array) -> Any:
        """The public outcome of the sum int32 [B, D], with noise made of `bits`."""

    def value(self, outcome: Any) -> Array:
        """What a method learns from the outcome: float32 [B, ...]."""

    def answered(self, outcome: Any) -> Array:
        """int32: which queries of the step were answered, where that decides the cost."""

    def events(self, steps: int) -> Events:
        """The most that `steps` steps can cost."""

    def due(self, spent: Events, turn: int, steps: int) -> Events:
        """What is to be charged, on top of `spent`, before `steps` steps from this turn on."""

    def settled(self, answered: np.ndarray, charged: Events) -> Events:
        """What steps cost whose `answered` [steps, ...] are these; never more than `charged`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Integer messages, bounded one by one, summed over units, released with noise.

    bound: of one unit's message; noise: on the sum; schedule: who answers; n_units: public;
    shape: (B, D) of a bounded message; decode: (noisy sum int32 [B, D], answers) -> float32,
    answers being how many units answered.

    Guarantee: one visit is one Gaussian release of sensitivity bound.squared_sensitivity(), for
    the unit and the relation named here; how visits add up is the schedule's to prove.
    Replace-one: the content and label behind one public record id change; that moves the message of
    one unit, arbitrarily, and no other. n and the ids are public. What `events` says is derived
    from the very objects that bound and draw.

    Raises UserError for a relation or unit that the bound is not proven for, for shapes that do
    not fit, and where the noisy sum could leave int32.
    """

    bound: Bound
    noise: Noise
    schedule: Schedule
    n_units: int
    shape: tuple[int, int]
    decode: Callable[[Array, int], Array]
    relation: str = "replace-one"
    unit: str = "record"

    keeps_votes: ClassVar[bool] = False

    def __post_init__(self):
        rows, columns = (operator.index(size) for size in self.shape)
        object.__setattr__(self, "shape", (rows, columns))
        object.__setattr__(self, "n_units", operator.index(self.n_units))
        if self.relation == ADD_OR_REMOVE:
            raise UserError(f"relation {ADD_OR_REMOVE!r} is not available for teachers: a record "
                            "more or less moves later records to other teachers, so every "
                            f"message may change; use {self.bound.relation!r}")
        for name in ("relation", "unit"):
            ours, proven = getattr(self, name), getattr(self.bound, name)
            if ours != proven:
                raise UserError(f"{name} is {ours!r}; the bound is proven for {proven!r}")
        if self.n_units < 1 or columns < 1:
            raise UserError(f"{self.n_units} units with messages of {columns} columns; at least "
                            "one of each is needed")
        if self.bound.rows != rows:
            raise UserError(f"the bound covers {self.bound.rows} rows, a message has {rows}")
        check_range(self.schedule.places or self.n_units, self.bound, self.noise)

    @property
    def bits_shape(self) -> tuple[int, ...]:
        return self.noise.bits_shape(self.shape)

    def secrets(self, source: BitSource, turns: np.ndarray, first: int) -> np.ndarray:
        """int32 [R, n, 0 or 1]: whether the unit is heard, or which unit was drawn, where that is
        a secret."""
        rows, n = rows_of(self), len(turns)
        shares = self.schedule.shares(source, self.n_units, first, n)
        return np.zeros((rows, n, 0), np.int32) if shares is None else shares[:, :, None]

    def contribution(self, key: Array, message: Array, secret: Array) -> Array:
        votes = self.bound.project(key, message)
        return votes * self.schedule.heard(secret[0]) if secret.size else votes

    def decide(self, votes: Array, bits: Array) -> Array:
        answers = self.schedule.answering(self.n_units)
        return self.decode(votes + self.noise.sample(bits), answers)

    def value(self, outcome: Array) -> Array:
        return outcome

    def answered(self, outcome: Array) -> Array:
        """Nothing: every step costs the same."""
        return jnp.zeros(0, jnp.int32)

    def events(self, steps: int) -> Events:
        """The privacy events of a run of `steps` steps, as (event, count) pairs."""
        rows, columns = self.shape
        visit = self.noise.event(self.bound.squared_sensitivity(), rows * columns, self.bound.grid)
        return ((self.schedule.event(visit, self.bound), self.schedule.visits(steps)),)

    def due(self, spent: Events, turn: int, steps: int) -> Events:
        return due(self.events(turn + steps), spent)

    def settled(self, answered: np.ndarray, charged: Events) -> Events:
        return charged


def rows_of(mechanism: Releases) -> int:
    """R: rows of units, each holding one unit of every group; where units are drawn, the places
    that a step has for them."""
    return mechanism.schedule.places or -(-mechanism.n_units // mechanism.schedule.groups)


def due(wanted: Events, spent: Events) -> Events:
    """What must be charged so that all of `wanted` is, whatever was charged before and for what: a
    run's charges are never below what all its turns cost, lost and torn ones included."""
    held: dict[Event, int] = dict(spent)
    return tuple((event, count - held.get(event, 0)) for event, count in wanted
                 if count > held.get(event, 0))


def check_range(n_units: int, bound: Bound, noise: Noise) -> None:
    """Raises UserError where a noisy sum over the units could leave int32."""
    if n_units * bound.max_abs + noise.max_abs >= 2**31:
        raise UserError(f"the noisy sum over {n_units} units could leave 32-bit integers; "
                        "use fewer units")


def release(mechanism: Releases, bits: Array, total: Private[Array]) -> Any:
    """Opens the sum over units and returns what the mechanism makes of it: public.

    bits: uint32 of mechanism.bits_shape, uniform, secret, and used for this release only; total:
    int32 [B, D]. Pure. Raises ValueError for other shapes or types, since bits that broadcast
    would give two entries the same noise.
    """
    votes = unseal(total)
    wanted = mechanism.bits_shape
    if bits.shape != wanted or bits.dtype != jnp.uint32:
        raise ValueError(f"noise bits are {bits.dtype}{bits.shape}, expected uint32{wanted}")
    if votes.shape != mechanism.shape or votes.dtype != jnp.int32:
        raise ValueError(f"the sum is {votes.dtype}{votes.shape}, expected int32{mechanism.shape}")
    return mechanism.decide(votes, bits)


def kept(mechanism: Releases, total: Private[Array]) -> Private[Array]:
    """The sum, still sealed, if the data holder keeps it in private/, else nothing."""
    votes = unseal(total)
    return Private(votes if mechanism.keeps_votes else jnp.zeros(0, jnp.int32))
