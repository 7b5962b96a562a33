"""The benchmark of published steps beside what a device can do."""

import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks import accelerator, common, engine, steps
from benchmarks.accelerator import traced_flops
from benchmarks.steps import published_flops

pytestmark = pytest.mark.long


A, B = jnp.zeros((3, 4)), jnp.zeros((4, 5))
PRODUCT = 2 * 3 * 4 * 5


def looped(length):
    return jax.lax.fori_loop(0, length, lambda i, total: total + jnp.sum(A @ B), 0.0)


@pytest.mark.parametrize(("function", "shapes", "expected"), [
    (jnp.matmul, (A, B), PRODUCT),
    (jax.vmap(jnp.matmul), (jnp.zeros((7, 3, 4)), jnp.zeros((7, 4, 5))), 7 * PRODUCT),
    (lambda a: jax.jit(lambda a: jnp.tanh(a) @ B)(a), (A,), PRODUCT),
    (lambda a: jax.lax.scan(lambda c, _: (c, jnp.sum(c @ B)), a, None, 6), (A,), 6 * PRODUCT),
    (lambda a: jax.lax.cond(a[0, 0] > 0, lambda: a @ B, lambda: jnp.zeros((3, 5))), (A,), PRODUCT),
    (lambda x: jax.lax.conv(x, jnp.zeros((6, 2, 3, 3)), (1, 1), "SAME"),
     (jnp.zeros((1, 2, 8, 8)),), 2 * 8 * 8 * 9 * 2 * 6),
    # Forwards the product, backwards one for each factor.
    (jax.value_and_grad(lambda a, b: jnp.sum((a @ b) ** 2), (0, 1)), (A, B), 3 * PRODUCT)])
def test_the_products_of_a_function_are_counted(function, shapes, expected):
    assert traced_flops(function, *shapes) == expected


def test_a_loop_to_the_value_of_an_array_needs_its_length():
    with pytest.raises(ValueError, match="no length that is known"):
        traced_flops(looped, jnp.int32(3))
    assert traced_flops(looped, jnp.int32(3), loop_length=9) == 9 * PRODUCT


def test_a_teacher_computes_what_the_published_network_asks_for():
    p = engine.problem("datalens", "mnist-eps1", share=.001)
    counted = accelerator.unit_flops(p.method, p.records, p.config.d_steps)
    # The labels joined as constant maps cost the library nothing.
    assert .5 < counted / published_flops(p.config, p.spec, p.records.y.shape[1]) < 1


def test_what_several_processes_cost_is_measured(tmp_path):
    out = tmp_path / "hosts.json"
    assert steps.main(["--processes", "2", "--out", str(out)]) == 0
    measured = json.loads(out.read_text())["results"]
    assert measured["processes"] == 2
    assert len(measured["seconds_per_block"]["all"]) == 20
    assert measured["bytes_per_block"] >= 4 * 28 * 28  # at least a word of bits a pixel


def test_rows_that_were_measured_are_kept(tmp_path, monkeypatch):
    calls = []

    def measured(module, case, env):
        calls.append(case["preset"])
        if case["preset"] == "mnist-published":
            return {"error": "no memory"}
        return {"device": "toy", "seconds_per_step": {"median": 1.5}, "units_queried_a_step": 4000,
                "chunk": 64, "flops_per_step": 3e9, "bytes_per_step": 6e9,
                "of_float32_products": .5, "of_copies": .25, "compile_seconds": 9.0}

    monkeypatch.setattr(common, "apart", measured)
    out = ["--out", str(tmp_path / "rows.json")]
    assert accelerator.main(["datalens-mnist", "gswgan-mnist", *out]) == 1
    assert accelerator.main(["datalens-mnist", "gpate-mnist", "gswgan-mnist", *out]) == 1
    assert calls == ["mnist-eps1", "mnist-published", "mnist-eps1", "mnist-published"]
    rows = json.loads((tmp_path / "rows.json").read_text())["results"]["rows"]
    assert [row["row"] for row in rows] == ["datalens-mnist", "gpate-mnist", "gswgan-mnist"]
    assert all(row["seconds_per_step"] == {"median": 1.5} for row in rows[:2])


# The time of a step by kind of instruction, as the accelerator benchmark records it.

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
