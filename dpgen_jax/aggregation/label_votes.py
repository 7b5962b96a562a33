"""Votes for a label, real or fake, of each queried fake, and what is made of their noisy count:
the aggregation of PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import ClassVar

import jax.numpy as jnp

from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class LabelVotes:
    """The bound of PATE-GAN: a unit's score of each fake becomes one vote, real (1) or fake (0).

    rows: B, fakes of a query.

    Guarantee: an entry of a message is 0 or 1, whatever the score was. When a record is replaced,
    and with it all that its unit answers, each of the B counts of "real" moves by at most 1:
    squared L2 sensitivity B, which some pair attains. Only this count is released; that of "fake"
    is the public number of units minus it. Unit: a record, through the message of its unit;
    replace-one. Raises UserError for fewer than one row.
    """

    rows: int

    unit: ClassVar[str] = "record"
    relation: ClassVar[str] = "replace-one"
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self):
        object.__setattr__(self, "rows", operator.index(self.rows))
        if self.rows < 1:
            raise UserError(f"rows is {self.rows}; at least 1 needed")

    def project(self, key: Array, message: Array) -> Array:
        """Scores float32 [B, 1] to votes int32 [B, 1]: 1 where a score is above 0; NaN votes fake.
        No randomness."""
        del key
        return (message > 0).astype(jnp.int32)

    def squared_sensitivity(self) -> int:
        """Of the whole message, replace-one: one vote on every fake."""
        return self.rows


@dataclasses.dataclass(frozen=True)
class Majority:
    """Decoder: float32 [B, 1], 1 where more than half of the units vote real, else 0. The paper's
    label; a noisy tie is fake. Compared in integers."""

    def __call__(self, noised: Array, n_units: int) -> Array:
        return (2 * noised > n_units).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Share:
    """Decoder: the noisy share of the units that vote real, float32 [B, 1], cut to [0, 1].

    The count is released at the price of its majority under data-independent accounting (the same
    release, less of it thrown away).
    """

    def __call__(self, noised: Array, n_units: int) -> Array:
        return jnp.clip(noised.astype(jnp.float32) / n_units, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelMechanism(Mechanism):
    """A `Mechanism` of noisy counts of `LabelVotes`, with Gaussian or Laplace noise.

    Guarantee: with Laplace noise, whose cost is no function of an L2 sensitivity, each of the B
    entries of a visit is one release of a count that moves by at most 1; else as `Mechanism`.
    """

    @property
    def keeps_votes(self) -> bool:
        """Where a majority is all that is released: data-dependent accounting is of no other."""
        return isinstance(self.decode, Majority)

    @property
    def queries(self) -> int:
        """Counts of one step."""
        return self.bound.rows

    @property
    def votes_needed(self) -> int:
        """The least count that is more than half of the units: `Majority` compares with it."""
        return self.n_units // 2 + 1

    def events(self, steps: int) -> Events:
        """With Laplace noise, one event for each entry of each visit."""
        if not isinstance(self.noise, DiscreteLaplace):
            return super().events(steps)
        rows, columns = self.shape
        entry = self.noise.event(1, 1)
        return ((self.schedule.event(entry, self.bound),
                 rows * columns * self.schedule.visits(steps)),)
