"""Every method's compiled block lowers for accelerators, on a machine that has none."""

from __future__ import annotations

import as_in_a_run
import jax
import jax.numpy as jnp
import pytest
import test_battery

from dpgen_jax import methods
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.core.types import Method, Private, Records
from dpgen_jax.run import loop

PLATFORMS = ("cuda", "tpu")


def arguments(method: Method, layout, spec) -> tuple:
    """Shapes of what a block of one round takes."""
    state = jax.eval_shape(
        lambda: loop.initial_state(method, jax.random.key(0), layout).__dict__)
    shape = (layout.n_units, 1) if layout.sampled else (layout.padded, as_in_a_run.RECORDS)
    own = Private(Records(jax.ShapeDtypeStruct((*shape, *spec.shape), spec.dtype),
                          jax.ShapeDtypeStruct(shape, jnp.int32)))
    drawn = loop.draw(method.mechanism, layout, SeededBits(0), 0, 1, 1)
    return state["public"], state["units"], own, *drawn, state["key"], 0, 1


@pytest.mark.slow
@pytest.mark.parametrize("name", methods.NAMES)
def test_a_block_lowers(name):
    """All of it is traced: a primitive without a rule for a platform would raise."""
    method = test_battery.built(name)[0]
    layout = as_in_a_run.layout(method, 1)
    traced = loop.compile_block(method.at(0)[0], layout).trace(
        *arguments(method, layout, test_battery.spec_of(name)))
    text = traced.lower(lowering_platforms=PLATFORMS).as_text()
    assert "while" in text and "callback" not in text, "a host call stands inside the loop"
