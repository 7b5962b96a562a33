"""Noise at the client: what leaves a client is already private, whoever runs the server."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.aggregation.mechanism import Bound, Noise, due, rows_of
from dpgen_jax.aggregation.schedule import Everyone, Rotation
from dpgen_jax.types import Array, UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMechanism:
    """Each client bounds its message, adds noise of its own, and sends that.

    bound: of one client's message; noise: of one client; schedule: whose turn it is, public;
    n_units: clients, public; shape: (B, D) of a message; decode as in `Mechanism`.

    Guarantee: unit: a client; replace-one: all records of one client change, their number too. One
    visit is one Gaussian release of sensitivity bound.squared_sensitivity() by that client, made
    before anything leaves it: it holds against the server and against all other clients together.
    A client is charged for its own visits, at most schedule.visits(T). Secret draws of clients
    amplify nothing against a server that knows whom it asked, so no such schedule is taken. The
    price: the mean of m answers carries the noise of one client over sqrt m, where a trusted
    aggregator would leave that over m.

    Raises UserError for fewer than two clients, and where a noisy sum could leave int32.
    """

    bound: Bound
    noise: Noise
    schedule: Everyone | Rotation
    n_units: int
    shape: tuple[int, int]
    decode: Callable[[Array, float], Array]

    unit: ClassVar[str] = "client"
    relation: ClassVar[str] = "replace-one"
    keeps_votes: ClassVar[bool] = False
    bits_shape: ClassVar[tuple[int]] = (0,)  # the sum gets no noise on top

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(operator.index(size) for size in self.shape))
        if self.n_units < 2:
            raise UserError(f"a federation of {self.n_units} clients; at least 2 are needed: leave "
                            "out --federated to train on one data set")
        if not isinstance(self.schedule, Everyone | Rotation):
            raise UserError("clients answer by a public schedule: a secret draw hides nothing from "
                            "the server, which knows whom it asks")
        if self.bound.rows != self.shape[0]:
            raise UserError(f"the bound covers {self.bound.rows} rows, a message has "
                            f"{self.shape[0]}")
        if self.n_units * self.largest >= 2**31:
            raise UserError(f"the sum over {self.n_units} noisy clients could leave 32-bit "
                            "integers; use fewer clients")

    @property
    def largest(self) -> int:
        """The largest entry, in size, that a client can send."""
        return self.bound.max_abs + self.noise.max_abs

    @property
    def client_bits_shape(self) -> tuple[int, ...]:
        """Of the uint32 bits of one client's noise for one visit."""
        return self.noise.bits_shape(self.shape)

    def secrets(self, source: BitSource, turns: np.ndarray, first: int) -> np.ndarray:
        """uint32 [R, n, *client_bits_shape]: each visited client's own noise bits."""
        units = np.arange(rows_of(self))[:, None] * self.schedule.groups + turns
        return source.draw_for(units, first, self.client_bits_shape)

    def contribution(self, key: Array, message: Array, secret: Array) -> Array:
        """What leaves the client: int32 [B, D], private as it stands."""
        return self.bound.project(key, message) + self.noise.sample(secret)

    def decide(self, votes: Array, bits: Array) -> Array:
        return self.decode(votes, self.schedule.answering(self.n_units))

    def value(self, outcome: Array) -> Array:
        return outcome

    def answered(self, outcome: Array) -> Array:
        """Nothing: every visit costs the same."""
        return jnp.zeros(0, jnp.int32)

    def events(self, steps: int) -> Events:
        """What `steps` steps cost the most visited client."""
        rows, columns = self.shape
        visit = self.noise.event(self.bound.squared_sensitivity(), rows * columns, self.bound.grid)
        return ((visit, self.schedule.visits(steps)),)

    def due(self, spent: Events, turn: int, steps: int) -> Events:
        return due(self.events(turn + steps), spent)

    def settled(self, answered: np.ndarray, charged: Events) -> Events:
        return charged
