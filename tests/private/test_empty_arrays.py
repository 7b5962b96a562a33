"""Arrays without entries are not passed to devices: XLA of JAX 0.11 crashes where it compiles that.

`taken` looks at programs before they are compiled, whatever the version; `test_battery_loop` looks
so at the block of every method.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
from jax import lax

from dpgen_jax.private.teachers import on_devices, sharded

UNITS = 8
NONE, NO_COLUMNS = np.zeros((3, 0), np.float32), jnp.zeros((2, 0))
WAYS = [(1, "shard_map"), (2, "shard_map"), (8, "shard_map"), (2, "pmap")]


def taken(traced):
    """The shapes of what is passed to the functions that a program maps over devices, with those of
    the arrays that they close over."""
    mapped = [eqn for eqn in traced.jaxpr.eqns if eqn.primitive.name == "shard_map"]
    assert mapped, "no function is mapped over devices"
    return [array.aval.shape for eqn in mapped for array in eqn.invars]


def local(units, public, bits, n):
    """Takes and returns empty arrays, and closes over others in a loop."""
    def one(i, carry):
        values, none = carry
        nothing = bits.sum() + NO_COLUMNS.sum() + jnp.asarray(NONE).sum()
        return values + i + nothing, none * 2

    values, none = lax.fori_loop(0, n, one, (units["values"] + public, units["none"]))
    assert units["none"].dtype == jnp.uint8 and none.shape == (len(values), 0, 2)
    return {"values": values, "none": none}, bits


def arguments(where):
    units = {"values": np.arange(UNITS, dtype=np.float32),
             "none": np.zeros((UNITS, 0, 2), np.uint8)}
    return (where.fold(jax.device_put(units, where.by_unit)), np.float32(5),
            np.zeros((4, 0), np.uint8), 3)


@pytest.mark.parametrize(("devices", "parallel"), WAYS)
def test_a_function_of_empty_arrays_computes_what_it_says(devices, parallel):
    where = small_datalens.layout(1, devices, parallel, units=UNITS)
    call = on_devices(local, where, (True, False, False, False), (True, False), (0,))
    units, bits = call(*arguments(where))
    assert units["values"].ravel().tolist() == [5 + 3 + i for i in range(UNITS)]
    shape = (devices, UNITS // devices) if parallel == "pmap" else (UNITS,)
    assert (units["none"].shape, units["none"].dtype) == ((*shape, 0, 2), jnp.uint8)
    assert (bits.shape, bits.dtype) == ((4, 0), jnp.uint8)
    units, _ = call(units, np.float32(0), bits, 0)  # its results are its arguments again
    assert units["values"].ravel().tolist() == [5 + 3 + i for i in range(UNITS)]


def test_no_empty_array_is_passed_on():
    where, by_unit, out = (small_datalens.layout(1, 2, units=UNITS), (True, *[False] * 3),
                           (True, False))
    ours = jax.jit(sharded(local, where, by_unit, out)).trace(*arguments(where))
    assert taken(ours) == [(UNITS,), (), ()]
    ways = where.by_unit.spec, where.replicated.spec
    plain = jax.shard_map(local, mesh=where.mesh, in_specs=tuple(ways[not by] for by in by_unit),
                          out_specs=ways, check_vma=False)
    empty = [shape for shape in taken(jax.jit(plain).trace(*arguments(where))) if 0 in shape]
    assert sorted(empty) == [(2, 0), (3, 0), (4, 0), (UNITS, 0, 2)]
