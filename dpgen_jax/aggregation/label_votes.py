"""Votes for a label, real or fake, of each queried fake, and the decoding of their noisy count.

This is the aggregation of PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import ClassVar

import chex
import jax.numpy as jnp

from dpgen_jax.accountant.events import Events
from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.aggregation.laplace import DiscreteLaplace
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class LabelVotes:
    """The bound of PATE-GAN: the score of each fake becomes one vote, real (1) or fake (0).

    Attributes:
        rows: B, fakes of a query.

    Guarantee:
        Unit: a record, through the message of its unit. Relation: replace-one. Sensitivity: an
        entry of a message is 0 or 1, whatever the score was. When a record is replaced, and with it
        all that its unit answers, each of the B counts of "real" moves by at most 1: squared L2
        sensitivity B, which some pair attains. Only this count is released; that of "fake" is the
        public number of units minus it.

    Source:
        PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.

    Raises:
        UserError: There is no row.
    """

    rows: int

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 1
    grid: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", operator.index(self.rows))
        if self.rows < 1:
            raise UserError(f"rows is {self.rows}; at least 1 needed")

    def project(self, key: Array, message: Array) -> Array:
        """Turns scores into votes: 1 where a score is above 0; NaN votes fake.

        Args:
            key: Random key, not used.
            message: Scores float32 [B, 1].

        Returns:
            Votes int32 [B, 1] in {0, 1}.
        """
        del key
        assert_message(message, 1)
        return (message > 0).astype(jnp.int32)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of a message of votes for "real" alone."""
        return self.rows

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of the whole message: one vote on every fake."""
        return self.rows


@dataclasses.dataclass(frozen=True)
class Majority:
    """A decoder: the label of the majority, as in the paper; a noisy tie is fake."""

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy counts; they are compared as integers.

        Args:
            noised: Noisy counts of "real", int32 [B, 1].
            n_units: The public number of units.

        Returns:
            float32 [B, 1]: 1 where more than half of the units vote real, else 0.
        """
        chex.assert_type(noised, jnp.int32)
        return (2 * noised > n_units).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Share:
    """A decoder: the noisy share of the units that vote real.

    The count is released at the price of its majority under data-independent accounting (the same
    release, less of it thrown away).
    """

    def __call__(self, noised: Array, n_units: float) -> Array:
        """Decodes noisy counts.

        Args:
            noised: Noisy counts of "real", int32 [B, 1].
            n_units: The public number of units.

        Returns:
            float32 [B, 1], clipped to [0, 1].
        """
        chex.assert_type(noised, jnp.int32)
        return jnp.clip(noised.astype(jnp.float32) / n_units, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelMechanism(SumMechanism):
    """A `SumMechanism` of noisy counts of `LabelVotes`, with Gaussian or Laplace noise.

    Guarantee:
        Unit: a record. Relation: replace-one. Sensitivity: with Laplace noise, whose cost is no
        function of an L2 sensitivity, each of the B entries of a participation is one release of a
        count that moves by at most 1; else as `SumMechanism`.

    Source:
        PATE-GAN (Jordon, Yoon and van der Schaar, ICLR 2019), Section 4.1.
    """

    @property
    def keeps_votes(self) -> bool:
        """True where a majority is all that is released, as data-dependent accounting needs."""
        return isinstance(self.decode, Majority)

    @property
    def queries(self) -> int:
        """The number of counts of one round."""
        return self.bound.rows

    @property
    def votes_needed(self) -> int:
        """The least count that is more than half of the units: `Majority` compares with it."""
        return self.n_units // 2 + 1

    def events(self, steps: int) -> Events:
        """Returns the most that some rounds can cost.

        Args:
            steps: The number of rounds.

        Returns:
            (event, count) pairs; with Laplace noise one event for each entry of each participation.
        """
        if not isinstance(self.noise, DiscreteLaplace):
            return super().events(steps)
        rows, columns = self.shape
        entry = self.noise.event(1, 1)
        return ((self.schedule.event(entry, self.bound),
                 rows * columns * self.schedule.max_participations(steps)),)
