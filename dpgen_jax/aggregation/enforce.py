"""The last thing that is done to a message: integers that break their bound become 0."""

from __future__ import annotations

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax import lax

from dpgen_jax.core.types import Array

ENFORCED = "enforced"
"""The name of the loop in a compiled program."""


def enforce(entries: Array, within: Callable[[Array], Array]) -> Array:
    """Returns the entries that are within a bound, and 0 for those that are not.

    A compiler may compute a value anew for each of its uses, and two loops over floats need not
    round alike: on CPU an `optimization_barrier` is gone before loops are fused, and messages were
    rounded once for the check and once more for the sum. What a loop carries is memory by
    definition: the entries are rounded into it once, the condition reads it, and what the loop
    leaves in it is the result. So no proof rests on what floats did before. The loop is hardly ever
    entered, and at most once, as what it writes is within the bound.

    Args:
        entries: int32 [...].
        within: From entries to bool that broadcasts to them; it must be True of zeros.

    Returns:
        int32 [...].

    Guarantee:
        The integers that are checked are those that are returned.
    """
    chex.assert_type(entries, jnp.int32)
    with jax.named_scope(ENFORCED):
        return lax.while_loop(lambda rows: ~jnp.all(within(rows)),
                              lambda rows: jnp.where(within(rows), rows, 0), entries)
