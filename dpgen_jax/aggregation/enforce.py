"""The last thing that is done to a message: integers that break their bound become 0."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from dpgen_jax.types import Array

ENFORCED = "enforced"
"""how the loop is called in a compiled program"""


def enforce(entries: Array, within: Callable[[Array], Array]) -> Array:
    """entries int32 as they are where `within(entries)`, bool that broadcasts to them, is True, and
    0 where it is not. `within` must be True of zeros.

    Guarantee: the integers that are checked are those that are returned. A compiler may compute a
    value anew for each of its uses, and two loops over floats need not round alike: on CPU an
    `optimization_barrier` is gone before loops are fused, and messages were rounded once for the
    check and once more for the sum. What a loop carries is memory by definition: the entries are
    rounded into it once, the condition reads it, and what the loop leaves in it is the result. So
    no proof rests on what floats did before. The loop is hardly ever entered, and at most once, as
    what it writes is within the bound.
    """
    with jax.named_scope(ENFORCED):
        return lax.while_loop(lambda kept: ~jnp.all(within(kept)),
                              lambda kept: jnp.where(within(kept), kept, 0), entries)
