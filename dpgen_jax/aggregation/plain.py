"""A message as it stands, for methods that promise nothing. NO guarantee."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import lax

from dpgen_jax.types import Array


@dataclasses.dataclass(frozen=True)
class Unbounded:
    """float32 passes through the door bit for bit, as the integer that its 32 bits are.

    NO guarantee: nothing is clipped, and the sensitivity is that of all possible messages. Such
    integers cannot be added up and cannot carry noise, and neither gets past `Mechanism`: entries
    fill int32, so that a sum over two units, or one with noise, could leave it. What is left is one
    unit without noise, whose every step is a `NonPrivateEvent`. An entry that is not finite
    becomes 0, as at every bound.
    """

    rows: int
    columns: int

    unit: ClassVar[str] = "record"
    relation: ClassVar[str] = "replace-one"
    max_abs: ClassVar[int] = 2**31 - 1
    grid: ClassVar[float] = 1.0

    def project(self, key: Array, message: Array) -> Array:
        """float32 [B, D] to its bits, int32 [B, D]. Of the two zeros it takes the positive one: the
        bits of the other are -2^31."""
        usual = jnp.isfinite(message) & (message != 0)
        return lax.bitcast_convert_type(jnp.where(usual, message, 0.0), jnp.int32)

    def squared_sensitivity(self) -> int:
        return (2 * self.max_abs)**2 * self.rows * self.columns


def as_float(bits: Array, answers: int) -> Array:
    """Decoder: int32 [B, D] back to float32 [B, D], exactly."""
    del answers
    return lax.bitcast_convert_type(bits, jnp.float32)
