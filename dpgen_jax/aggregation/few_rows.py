"""Messages of which few rows are not zero."""

from __future__ import annotations

import dataclasses
import operator

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.aggregation.enforce import enforce
from dpgen_jax.core.terms import Relation, Unit
from dpgen_jax.core.types import Array, UserError


@dataclasses.dataclass(frozen=True)
class FewRows:
    """A bound on the few rows of a message that are present; all others are zero.

    A row is present that is finite and not zero. Where more are than `bound` has rows, so many are
    drawn among them. They are bounded by it, and put back in their places.

    Attributes:
        bound: The bound on these rows, U of them.
        rows: B, of a message; at least U.

    Guarantee:
        Unit and relation: those of `bound`. Sensitivity: a projected message has the entries of a
        message of U rows that `bound` projected, each row in one place, and zeros. So its norm is
        at most sqrt(bound.squared_norm), whatever the records are and wherever the rows lie, and
        two messages of one unit differ by at most twice that, which opposite rows in the same
        places attain if `bound` has such.

    Source:
        This library, for teachers that answer for few of many fakes.

    Raises:
        UserError: For fewer rows than `bound` has, and for a bound under another relation than
            replace-one.
    """

    bound: Bound
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", operator.index(self.rows))
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
        """The neighbouring relation that the sensitivity is proven for."""
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
        """Bounds U rows of a message that are present, and returns the others as 0.

        Args:
            key: Random key for the draw of rows and for rounding; it protects nothing.
            message: float32 [B, M].

        Returns:
            int32 [B, D].
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
        """The squared L2 norm, in integers, that no projected message exceeds."""
        return self.bound.squared_norm

    def squared_sensitivity(self) -> int:
        """Returns the squared L2 sensitivity of a message: all its rows may turn over."""
        return 4 * self.squared_norm
