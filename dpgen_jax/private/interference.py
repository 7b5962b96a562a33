"""Non-interference: the effect of a change of one record on units and their messages.

Each unit is run as in a training, on two sets of records. The values opened here are for the data
holder, who changes a record on purpose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, Method, Private, PyTree, Records, unseal
from dpgen_jax.private import teachers
from dpgen_jax.private.teachers import Layout, Units

Visit: TypeAlias = Callable[[Array, Records, Array], tuple[Units, Array]]
"""A function from the number of a unit, its records and its private input to the unit after all
rounds, and its messages, int32 [S, B, D].
"""


@dataclasses.dataclass(frozen=True)
class Moved:
    """The effect of a change of records on one unit.

    Attributes:
        state: Whether any bit of its state differs.
        squared: The largest squared L2 distance of its messages over all rounds, in integers.
    """

    unit: int
    state: bool
    squared: int


def visitor(method: Method, query: PyTree, rounds: int = 1) -> Visit:
    """Compiles the rounds of one unit, from its initial state on."""
    mechanism = method.mechanism

    @jax.jit
    def visit(number: Array, records: Records, private_input: Array) -> tuple[Units, Array]:
        unit = teachers.one_unit(method, jax.random.key(2), number)
        messages = []
        for step in range(rounds):
            unit, votes = teachers.query_unit(method, unit, records, query, jnp.int32(step),
                                              private_input)
            messages.append(mechanism.added(jnp.zeros(mechanism.shape, jnp.int32), votes[None]))
        return unit, jnp.stack(messages)

    return visit


def moved(visit: Visit, records: Private[Records], other: Private[Records], units: Iterable[int],
          private_input: np.ndarray) -> tuple[Moved, ...]:
    """Runs units on two sets of records.

    Args:
        visit: From `visitor`.
        records: Sealed x [U, m, ...], y int32 [U, m], dealt.
        other: Other records, dealt in the same way.
        units: The numbers of the units to run.
        private_input: The secret bits of a unit in a round.

    Returns:
        One for each unit. They depend on the records, so they are for the data holder only.
    """
    found = []
    for unit in units:
        (before, said), (after, now) = (
            _visited(visit, sealed, unit, private_input) for sealed in (records, other))
        apart = (said.astype(np.int64) - now) ** 2
        found.append(Moved(unit, not same(before, after), int(apart.sum((1, 2)).max())))
    return tuple(found)


def _visited(visit: Visit, records: Private[Records], unit: int, private_input: np.ndarray
             ) -> tuple[Units, np.ndarray]:
    """One unit after its rounds, and its messages."""
    dealt = jax.tree.map(lambda array: array[unit], unseal(records))
    seen: tuple[Units, np.ndarray] = jax.device_get(
        visit(jnp.int32(unit), dealt, jnp.asarray(private_input)))
    return seen


def differing(one: Private[Units], other: Private[Units], n_units: int) -> set[int]:
    """Returns the units with any different bit in their state, on one device.

    Units from `n_units` on are padding.
    """
    leaves = [jax.tree.leaves(jax.device_get(unseal(units))) for units in (one, other)]
    return {unit for a, b in zip(*leaves, strict=True) for unit in range(n_units)
            if a[unit].tobytes() != b[unit].tobytes()}


def alone(units: Private[Units], only: int, layout: Layout) -> Private[Units]:
    """Returns the units with the contributions of all but one muted."""
    opened = unseal(units)
    numbers = np.where(np.arange(layout.padded) == only, only, layout.n_units).astype(np.int32)
    return Private(dataclasses.replace(opened, id=jax.device_put(numbers, layout.by_unit)))


def same(one: PyTree, other: PyTree) -> bool:
    """Whether two pytrees of arrays are equal, bit for bit."""
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes()
               for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
