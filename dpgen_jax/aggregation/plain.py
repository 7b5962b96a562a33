"""A message as it stands, for methods that promise nothing. NO guarantee."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import chex
import jax.numpy as jnp
from jax import lax

from dpgen_jax.aggregation.bound import assert_message
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array


@dataclasses.dataclass(frozen=True)
class Unbounded:
    """A bound that bounds nothing: float32 passes bit for bit, as the integer that its 32 bits are.

    Such integers cannot be added up and cannot carry noise, and neither gets past `SumMechanism`:
    entries fill int32, so that a sum over two units, or one with noise, could leave it. What is
    left is one unit without noise, whose every round is a `NonPrivateEvent`. An entry that is not
    finite becomes 0, as at every bound.

    Attributes:
        rows: B.
        columns: D.

    Guarantee:
        None: nothing is clipped, and the sensitivity is that of all possible messages.
    """

    rows: int
    columns: int

    unit: ClassVar[Unit] = Unit.RECORD
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    max_abs: ClassVar[int] = 2**31 - 1
    grid: ClassVar[float] = 1.0

    def project(self, key: Array, message: Array) -> Array:
        """Returns the bits of a message.

        Of the two zeros it takes the positive one: the bits of the other are -2^31.

        Args:
            key: Random key, not used.
            message: float32 [B, D].

        Returns:
            int32 [B, D].
        """
        assert_message(message, self.columns)
        usual = jnp.isfinite(message) & (message != 0)
        return lax.bitcast_convert_type(jnp.where(usual, message, 0.0), jnp.int32)

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm of the longest vector of such integers."""
        return self.max_abs**2 * self.rows * self.columns

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of all possible messages."""
        return 4 * self.squared_norm


def as_float(bits: Array, answers: float) -> Array:
    """Decodes the bits of a message, exactly.

    Args:
        bits: int32 [B, D].
        answers: The number of units that answered, not used.

    Returns:
        float32 [B, D].
    """
    del answers
    chex.assert_type(bits, jnp.int32)
    return lax.bitcast_convert_type(bits, jnp.float32)
