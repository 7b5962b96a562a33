"""The door: bound x noise x schedule, what it costs, and the release itself.

`release` is the only code of the package that turns a private value into a public one.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import ClassVar, Protocol

import jax.numpy as jnp

from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.types import Array, Private, UserError, unseal

ADD_OR_REMOVE = "add-or-remove-one"


class Bound(Protocol):
    """What is done to one unit's message, and how far that lets it move, from the same fields.

    unit, relation: what the bound is proven for; rows: B; max_abs: largest entry after `project`.
    """

    unit: ClassVar[str]
    relation: ClassVar[str]
    rows: int
    max_abs: ClassVar[int]

    def project(self, key: Array, message: Array) -> Array:
        """float32 [B, D] to int32 [B, D]."""

    def squared_sensitivity(self) -> int:
        """Squared L2 sensitivity of the whole message of one step, in the integers released."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Integer messages, bounded one by one, summed over units, released with noise.

    bound: of one unit's message; noise: on the sum; schedule: who answers; n_units: public;
    shape: (B, D) of a message; decode: (noisy sum int32 [B, D], n_units) -> float32 [B, D].

    Guarantee: one step is one Gaussian release of sensitivity bound.squared_sensitivity(), for
    the unit and the relation named here. Replace-one: the content and label behind one public
    record id change; that moves the message of one unit, arbitrarily, and no other. n and the ids
    are public. What `events` says is derived from the very objects that bound and draw.

    Raises UserError for a relation or unit that the bound is not proven for, for shapes that do
    not fit, and where the noisy sum could leave int32.
    """

    bound: Bound
    noise: RoundedGaussian | NoNoise
    schedule: Everyone
    n_units: int
    shape: tuple[int, int]
    decode: Callable[[Array, int], Array]
    relation: str = "replace-one"
    unit: str = "record"

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
        if self.n_units * self.bound.max_abs + self.noise.max_abs >= 2**31:
            raise UserError(f"the noisy sum over {self.n_units} units could leave 32-bit integers; "
                            "use fewer units")

    def events(self, steps: int) -> Events:
        """The privacy events of `steps` steps, as (event, count) pairs, for the accountant."""
        rows, columns = self.shape
        return ((self.noise.event(self.bound, rows * columns), self.schedule.visits(steps)),)


def release(mechanism: Mechanism, bits: Array, total: Private[Array]) -> Array:
    """Opens the sum over units, adds noise and decodes: float32 [B, D], public.

    bits: uint32 of mechanism.noise.bits_shape(mechanism.shape), uniform, secret, and used for this
    release only; total: int32 [B, D]. Pure. Raises ValueError for other shapes or types, since
    bits that broadcast would give two entries the same noise.
    """
    votes = unseal(total)
    wanted = mechanism.noise.bits_shape(mechanism.shape)
    if bits.shape != wanted or bits.dtype != jnp.uint32:
        raise ValueError(f"noise bits are {bits.dtype}{bits.shape}, expected uint32{wanted}")
    if votes.shape != mechanism.shape or votes.dtype != jnp.int32:
        raise ValueError(f"the sum is {votes.dtype}{votes.shape}, expected int32{mechanism.shape}")
    return mechanism.decode(votes + mechanism.noise.sample(bits), mechanism.n_units)
