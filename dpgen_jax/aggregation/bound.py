"""The protocol of a bound, its final check, and the simplest bounds: none, and few rows."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import ClassVar, Protocol, runtime_checkable

import chex
import jax
import jax.numpy as jnp
from jax import lax

from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


class Bound(Protocol):
    """A bound on the message of one unit; it also states the sensitivity that follows."""

    @property
    def unit(self) -> Unit:
        """Who is protected."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation for which the sensitivity is proven."""

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
        """The largest squared L2 norm of a projected message of B rows, in integers."""

    def project(self, key: Array, message: Array) -> Array:
        """Bounds the message of one unit: int32 [B, D].

        Args:
            key: Random key for rounding; privacy does not depend on it.
            message: float32 [B, M].
        """

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of the whole message of one round, in integers."""


@runtime_checkable
class CompactBound(Bound, Protocol):
    """A bound whose messages are mostly zeros, which the sum skips."""

    @property
    def compact_shape(self) -> tuple[int, ...]:
        """The shape of a compact message."""

    def compact(self, key: Array, message: Array) -> Array:
        """Bounds the message of one unit, as `project` does, in the compact form.

        Args:
            key: Random key for rounding; privacy does not depend on it.
            message: float32 [B, M].

        Returns:
            int32 of `compact_shape`; zeros contribute nothing.
        """

    def added(self, total: Array, messages: Array) -> Array:
        """Returns a sum int32 [B, D] with compact messages int32 [n, ...] added."""


def require_whole(bound: object, **least: int) -> None:
    """Converts fields of a frozen bound to integers; raises UserError below the minimum of each."""
    for name, smallest in least.items():
        value = operator.index(getattr(bound, name))
        object.__setattr__(bound, name, value)
        if value < smallest:
            raise UserError(f"{name} is {value}; at least {smallest} is needed")


def squares_within(entries: Array, limit: int) -> Array:
    """Checks that the sum of squares over the last axis is at most `limit`, exactly: bool [..., 1].

    The sums are float32: below 2^24 sums of whole numbers are exact, and a sum that exceeds 2^24 on
    the way stays above it, since rounding is monotone and no term is negative.

    Args:
        entries: int32 [..., D].
        limit: Below 2^24.
    """
    row = entries.astype(jnp.float32)
    return jnp.sum(row * row, -1, keepdims=True) <= limit


def assert_message(message: Array, columns: int | None = None) -> None:
    """Checks the shape and type of a message when a program is traced.

    Args:
        columns: M, or None for any number.

    Raises:
        AssertionError: The message is not float32 [B, columns].
    """
    chex.assert_shape(message, (None, columns))
    chex.assert_type(message, jnp.float32)


def add_up(total: Array, contributions: Array) -> Array:
    """Returns a sum with contributions added, in integers, so the order does not matter.

    From `total` int32 [B, D] and `contributions` int32 [n, B, D] to int32 [B, D].
    """
    chex.assert_type([total, contributions], jnp.int32)
    chex.assert_shape(contributions, (None, *total.shape))
    return total + contributions.sum(0)


ENFORCED = "enforced"
"""The name of the loop in a compiled program."""


def enforce(entries: Array, within: Callable[[Array], Array]) -> Array:
    """Returns the entries that are within a bound, and 0 for the others: int32 [...].

    A compiler may recompute a value for each of its uses, and two float loops need not round
    equally: on CPU, XLA removes an `optimization_barrier` before it fuses loops, and messages were
    rounded once for the check and again for the sum. The carry of a loop is memory by definition:
    the entries are rounded into it once, the condition reads it, and its final value is the result.
    So no proof depends on earlier float operations. The loop is hardly ever entered, and at most
    once, since it writes values within the bound.

    Args:
        entries: int32 [...].
        within: A function from entries to bool that broadcasts to them; it must be True for zeros.

    Guarantee:
        The integers that are checked are those that are returned.
    """
    chex.assert_type(entries, jnp.int32)
    with jax.named_scope(ENFORCED):
        return lax.while_loop(lambda rows: ~jnp.all(within(rows)),
                              lambda rows: jnp.where(within(rows), rows, 0), entries)


@dataclasses.dataclass(frozen=True)
class Unbounded:
    """No bound: float32 values pass bit for bit, as the integers of their 32 bits.

    Such integers cannot be summed or noised, and `SumMechanism` refuses both: entries fill int32,
    so a sum over two units, or one with noise, could overflow. This leaves one unit without noise,
    whose every round is a `NonPrivateEvent`. A non-finite entry becomes 0, as in every bound.

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

        Negative zero becomes positive zero, since its bits are -2^31.

        From `message` float32 [B, D] to int32 [B, D].
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

    From `bits` int32 [B, D] to float32 [B, D].
    """
    del answers
    chex.assert_type(bits, jnp.int32)
    return lax.bitcast_convert_type(bits, jnp.float32)


@dataclasses.dataclass(frozen=True)
class FewRows:
    """A bound on a few rows of a message; all others are zero.

    A row is present if it is finite and not zero. If more rows are present than `bound` has, that
    many are drawn at random. `bound` bounds them, and they are put back in their places.

    Attributes:
        bound: The bound on these rows, U of them.
        rows: B, of a message; at least U.

    Guarantee:
        Unit and relation: those of `bound`. Sensitivity: a projected message has the entries of a
        message of U rows that `bound` projected, each row in one place, and zeros. So its norm is
        at most sqrt(bound.squared_norm), whatever the records are and wherever the rows are, and
        two messages of one unit differ by at most twice that. Opposite rows in the same places
        attain it, if `bound` allows them.

    Source:
        This library, for teachers that answer for few of many fakes.

    Raises:
        UserError: There are fewer rows than `bound` has, or its relation is not replace-one.
    """

    bound: Bound
    rows: int

    def __post_init__(self) -> None:
        require_whole(self, rows=1)
        if self.rows < self.bound.rows:
            raise UserError(f"a message has {self.rows} rows, of which {self.bound.rows} may be "
                            "used; it must have as many")
        if self.bound.relation != Relation.REPLACE_ONE:
            raise UserError(f"few rows are proven for replace-one, and {type(self.bound).__name__} "
                            f"bounds messages under {self.bound.relation}")

    @property
    def unit(self) -> Unit:
        """Who is protected."""
        return self.bound.unit

    @property
    def relation(self) -> Relation:
        """The neighbouring relation for which the sensitivity is proven."""
        return self.bound.relation

    @property
    def max_abs(self) -> int:
        """The largest magnitude of an entry of a projected message."""
        return self.bound.max_abs

    @property
    def grid(self) -> float:
        """The value of one step of the integers, in units of the message."""
        return self.bound.grid

    def project(self, key: Array, message: Array) -> Array:
        """Bounds U present rows of a message, and sets the others to 0: int32 [B, D].

        Args:
            key: Random key for the draw of rows and for rounding; privacy does not depend on it.
            message: float32 [B, M].
        """
        k_order, k_bound = jax.random.split(key)
        present = jnp.all(jnp.isfinite(message), -1) & jnp.any(message != 0, -1)
        # Drawn and not the first: rows may lie class by class.
        order = jnp.where(present, jax.random.uniform(k_order, present.shape), 2.0)
        places = jnp.argsort(order)[:self.bound.rows]
        rows = jnp.where(present[places, None], message[places], jnp.nan)  # no message at all
        entries = self.bound.project(k_bound, rows)
        # Set and not added: whatever the places are, no two rows can add up in one.
        placed = jnp.zeros((self.rows, entries.shape[1]), jnp.int32).at[places].set(entries)
        return enforce(placed, lambda rows: jnp.sum(jnp.any(rows != 0, -1)) <= self.bound.rows)

    @property
    def squared_norm(self) -> int:
        """The largest squared L2 norm of a projected message, in integers."""
        return self.bound.squared_norm

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: all its rows may change sign."""
        return 4 * self.squared_norm
