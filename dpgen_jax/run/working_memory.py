"""The memory that units take while they learn, and how many an accelerator computes at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.core.types import Method, Records
from dpgen_jax.private import pretraining, teachers

MOST = 256
"""Units that an accelerator queries at once, at most. On an H100 the published steps of DataLens
and G-PATE took less time in chunks of 250 than of 64; more were not tried."""
SOME = 64
"""Units that an accelerator queries at once, where the shapes of their records are not known."""
SHARE = 1 / 8
"""of a device's memory that units which are computed at once may take beside their state"""


def at_once(method: Method, records: Records | None, memory: float, rows: int) -> int:
    """Returns how many units one accelerator queries at once.

    Args:
        method: The method, built.
        records: Shapes of the records of one unit: x [m, ...], y [m]; None: not known.
        memory: Bytes of memory of the device.
        rows: Units that a round queries on one device; a larger chunk would be filled up with
            places without a unit, which cost as much.
    """
    return _fit(unit_bytes, method, records, memory, rows)


def pretrained_at_once(method: Method, records: Records | None, memory: float, rows: int) -> int:
    """Returns how many units one accelerator pretrains at once.

    They are not those of a query: where few answer in a round, all still have their pretraining,
    and a unit that has a generator of its own meanwhile takes more memory than one that is queried.

    Args:
        method: The method, built.
        records: As in `at_once`.
        memory: Bytes of memory of the device.
        rows: All units of one device.

    Returns:
        The number; 0 for a method without pretraining.
    """
    if not (method.pretraining and method.pretraining.steps):
        return 0
    return _fit(pretraining_bytes, method, records, memory, rows)


def _fit(each: Callable[[Method, Records], int], method: Method, records: Records | None,
         memory: float, rows: int) -> int:
    fit = SOME if records is None else int(SHARE * memory // each(method, records))
    return max(1, min(MOST, rows, fit))


def unit_bytes(method: Method, records: Records) -> int:
    """Returns the bytes of all values that are needed at one time while one unit is queried.

    Compilers fuse operations and hold fewer of them: on an H100 chunks of published teachers of
    DataLens and G-PATE took about half of this.

    Args:
        method: The method, built.
        records: Shapes of the records of the unit: x [m, ...], y [m].
    """
    key = jax.random.key(0)
    query = jax.eval_shape(method.ask, key, jax.eval_shape(method.init, key))
    unit = _one_unit(method)
    private_input = method.mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)[0, 0]
    traced = jax.make_jaxpr(functools.partial(teachers.query_unit, method))(
        unit, records, query, jnp.int32(1), private_input)
    shared = sum(_size(leaf) for leaf in jax.tree.leaves(query))  # all units have one query
    return _peak(traced.jaxpr) - shared


def pretraining_bytes(method: Method, records: Records) -> int:
    """Returns the bytes of all values that are needed at one time while one unit is pretrained.

    Args:
        method: A method with pretraining.
        records: Shapes of the records of the unit: x [m, ...], y [m].
    """
    return _peak(jax.make_jaxpr(functools.partial(pretraining.pretrain_one, method))(
        _one_unit(method), records).jaxpr)


def _one_unit(method: Method) -> Any:
    """Returns the shapes of one unit."""
    return jax.eval_shape(functools.partial(teachers.one_unit, method, jax.random.key(0)),
                          jnp.int32(0))


def _peak(jaxpr: Any) -> int:
    """Returns the most bytes of inputs, results and what lies between them at one time."""
    last_use = {v: i for i, equation in enumerate(jaxpr.eqns) for v in _variables(equation.invars)}
    last_use |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))
    alive = {*jaxpr.invars, *jaxpr.constvars}
    total = peak = sum(_size(v.aval) for v in alive)
    for i, equation in enumerate(jaxpr.eqns):
        taken = sum(_size(v.aval) for v in equation.invars)
        within = max((_peak(inner) - taken for inner in inner_jaxprs(equation.params)), default=0)
        made = sum(_size(v.aval) for v in equation.outvars)
        peak = max(peak, total + max(made, within))
        total += made
        alive |= set(equation.outvars)
        gone = {v for v in alive if last_use.get(v, -1) <= i}
        alive -= gone
        total -= sum(_size(v.aval) for v in gone)
    return peak


def _variables(atoms: Any) -> Iterator[Any]:
    """Yields those that are variables, and no literals."""
    return (atom for atom in atoms if not hasattr(atom, "val"))


def _size(aval: Any) -> int:
    """Returns the bytes of an array by its shape; a random key is taken for four words."""
    itemsize = getattr(aval.dtype, "itemsize", 16)
    return math.prod(aval.shape) * itemsize


def inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Yields the jaxprs inside an equation, a rule for differentiation not among them.

    Args:
        params: Parameters of the equation.
    """
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner
