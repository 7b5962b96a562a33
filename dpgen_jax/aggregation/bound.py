"""The protocol of a bound: what is done to the message of one unit, and how far it may move."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import chex
import jax.numpy as jnp

from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array


class Bound(Protocol):
    """A bound on the message of one unit; what it does and what it proves come from one object."""

    @property
    def unit(self) -> Unit:
        """Who is protected."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation that the sensitivity is proven for."""

    @property
    def rows(self) -> int:
        """B: the rows of a message."""

    @property
    def max_abs(self) -> int:
        """The largest magnitude of an entry of a projected message."""

    @property
    def grid(self) -> float:
        """The value of one step of the integers, in units of the message."""

    @property
    def squared_norm(self) -> int:
        """The squared L2 norm, in integers, that no projected message of B rows exceeds."""

    def project(self, key: Array, message: Array) -> Array:
        """Bounds the message of one unit.

        Args:
            key: Random key for rounding; it protects nothing.
            message: float32 [B, M].

        Returns:
            int32 [B, D].
        """

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of the whole message of one round, in integers."""


@runtime_checkable
class CompactBound(Bound, Protocol):
    """A bound whose messages are mostly zeros, and are summed without them."""

    @property
    def compact_shape(self) -> tuple[int, ...]:
        """The shape of a compact message."""

    def compact(self, key: Array, message: Array) -> Array:
        """Bounds the message of one unit, as `project` does, in the compact form.

        Args:
            key: Random key for rounding; it protects nothing.
            message: float32 [B, M].

        Returns:
            int32 of `compact_shape`; zeros add nothing.
        """

    def added(self, total: Array, messages: Array) -> Array:
        """Returns a sum int32 [B, D] with compact messages int32 [n, ...] added."""


def assert_message(message: Array, columns: int | None = None) -> None:
    """Checks the shape and type of a message when a program is traced.

    Args:
        message: The message of one unit.
        columns: M, or None for any number.

    Raises:
        AssertionError: The message is not float32 [B, columns].
    """
    chex.assert_shape(message, (None, columns))
    chex.assert_type(message, jnp.float32)


def add_up(total: Array, contributions: Array) -> Array:
    """Returns a sum with contributions added; in integers, so that their order is nothing.

    Args:
        total: int32 [B, D].
        contributions: int32 [n, B, D].

    Returns:
        int32 [B, D].
    """
    chex.assert_type([total, contributions], jnp.int32)
    chex.assert_shape(contributions, (None, *total.shape))
    return total + contributions.sum(0)
