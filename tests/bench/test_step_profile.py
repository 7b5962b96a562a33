"""The time of a step by kind of instruction, as the accelerator benchmark records it."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import accelerator

pytestmark = pytest.mark.long

UNITS = 5


@jax.jit
def block(stack, x):
    """Each unit's matrix is read, multiplied by x, and written; the rest is the public half."""
    def unit(i, stack):
        own = jax.lax.dynamic_index_in_dim(stack, i, keepdims=False)
        product = jnp.tanh(own @ x)
        moved = jnp.concatenate([product[:, 8:], product[:, :8]], 1)
        return jax.lax.dynamic_update_index_in_dim(stack, jnp.flip(moved @ x), i, 0)

    return jax.lax.fori_loop(0, UNITS, unit, stack), jnp.exp(x @ x)


@pytest.fixture(scope="module")
def program():
    arguments = jnp.ones((UNITS, 16, 16)), jnp.ones((16, 16))
    return lambda: block(*arguments), block.lower(*arguments).compile().as_text()


def test_instructions_are_sorted_by_what_they_do(program):
    kinds = accelerator.kinds(program[1])
    assert sum(kind == "products" for kind in kinds.values()) >= 3
    assert {"products", "stack"} <= set(kinds.values()) <= {"products", "stack", "layout", "passes"}
    assert not any("while" in name for name in kinds)


@pytest.mark.parametrize(("opcodes", "kind"), [
    ({"fusion", "parameter", "dot", "add"}, "products"), ({"copy"}, "layout"),
    ({"fusion", "pad", "slice", "bitcast"}, "layout"), ({"fusion", "pad", "multiply"}, "passes"),
    ({"fusion", "dynamic-slice", "convert"}, "stack"), ({"reduce"}, "passes")])
def test_a_fusion_is_what_is_in_it(opcodes, kind):
    assert accelerator._kind(opcodes) == kind


def test_the_instructions_of_all_units_and_the_public_ones_are_timed(program):
    jax.block_until_ready(program[0]())
    spent = accelerator.seconds_by_kind(*program, UNITS)
    assert set(spent) == {"products", "stack", "layout", "passes", "public"}
    assert min(spent.values()) >= 0 and spent["products"] > 0
    # Asked by more units than there are, nothing is of a unit.
    more = accelerator.seconds_by_kind(*program, UNITS + 1)
    assert more["public"] > 0 and more["products"] == 0
