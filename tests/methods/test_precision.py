"""Units may multiply matrices in bfloat16 on accelerators; nothing else does, and no CPU."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import runs
import small_datalens
import test_battery

from dpgen_jax import methods
from dpgen_jax.core.types import Records, UserError
from dpgen_jax.methods import datalens
from dpgen_jax.run import loop, planning
from dpgen_jax.run.capacity import units_in_precision

PLAIN = datalens.build(small_datalens.CONFIG, small_datalens.SPEC)
METHOD = units_in_precision(PLAIN, "bfloat16")
IN_BFLOAT16 = "algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type"


def program(function, *arguments):
    """The program of a function for a GPU."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def products(text):
    """How many products of matrices a program has, and how many of them in bfloat16."""
    lines = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    return len(lines), sum(IN_BFLOAT16 in line for line in lines)


def block(method):
    """The program of a block of rounds for a GPU."""
    where = small_datalens.layout()
    state = loop.initial_state(method, jax.random.key(0), where)
    records = small_datalens.placed(*small_datalens.images(), where)
    draws = loop.draw(method.mechanism, where, loop.SeededBits(0), 0, 1, 1)
    traced = loop.compile_block(method, where).trace(
        state.public, state.units, records, *draws, state.key, 0, 1)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def test_the_products_of_units_and_no_others_are_in_bfloat16():
    key = jax.random.key(0)
    public = METHOD.init(key)
    query, unit = METHOD.ask(key, public), METHOD.init_unit(key)
    x, y = small_datalens.images(5)
    records = jax.tree.map(np.asarray, Records(x, y.astype(np.int32)))
    for function, arguments in ((METHOD.learn, (key, unit, records, query)),
                                (METHOD.answer, (key, unit, records, query))):
        count, lower = products(program(function, *arguments))
        assert count == lower > 0
    released = np.zeros(METHOD.mechanism.shape, np.float32)
    message = np.zeros(METHOD.mechanism.shape, np.float32)
    for function, arguments in (
            (METHOD.ask, (key, public)), (METHOD.absorb, (key, public, query, released)),
            (METHOD.mechanism.contribution, (key, message, np.zeros(1, np.uint32)))):
        assert products(program(function, *arguments))[1] == 0
    count, lower = products(block(METHOD))
    assert count > lower > 0 and products(block(PLAIN)) == (count, 0)


def test_every_phase_computes_alike():
    phased = dataclasses.replace(PLAIN, phases=(PLAIN, PLAIN))
    assert units_in_precision(phased, "float32") is phased
    for phase in units_in_precision(phased, "bfloat16").phases:
        assert phase.answer is not PLAIN.answer and phase.absorb is PLAIN.absorb


@pytest.mark.parametrize(("written", "stated", "expected"), [
    ("bfloat16", "float32", "bfloat16"), ("float32", "float32", "float32"),
    ("float32", "bfloat16", "bfloat16"), (None, "bfloat16", "bfloat16"),
    (None, "float32", "float32"), ("float8", "float32", "float32"), ([], "float32", "float32")])
def test_a_run_goes_on_in_the_precision_in_which_it_began(tmp_path, written, stated, expected):
    """Another one that the user states is refused where the folder is opened (`test_resume`)."""
    (tmp_path / "config.json").write_text(json.dumps(
        {"runtime": {} if written is None else {"compute": written}}))
    request = dataclasses.replace(runs.request(tmp_path, resume=True),
                                  runtime=dataclasses.replace(runs.RUNTIME, compute=stated))
    declared = planning.declare(request, runs.dataset(), lambda line: None)
    assert declared.request.runtime.compute == expected
    anew = dataclasses.replace(request, resume=False)
    assert planning.declare(anew, runs.dataset(),
                            lambda line: None).request.runtime.compute == stated


@pytest.mark.parametrize("written", [[], [{"compute": "float32"}], "bfloat16", None])
def test_a_runtime_that_is_no_object_is_damage(tmp_path, written):
    (tmp_path / "config.json").write_text(json.dumps({"runtime": written}))
    request = runs.request(tmp_path, resume=True)
    with pytest.raises(UserError, match="config.json is damaged: its runtime is not an object"):
        planning.declare(request, runs.dataset(), lambda line: None)


INTEGERS_IN_BFLOAT16 = re.compile(
    r"stablehlo\.convert .* : \(tensor<(?:[^>]*x)?u?i(?!1>)\d+>\) -> tensor<(?:[^>]*x)?bf16>")


def rounded_integers(method, records):
    """The conversions from integers to bfloat16 in what a unit of a method does.

    Truth values are exact in it, and may be factors.
    """
    key, found = jax.eval_shape(lambda: jax.random.key(0)), []
    for phase in method.phases or (method,):
        query = jax.eval_shape(phase.ask, key, jax.eval_shape(method.init, key))
        unit = jax.eval_shape(method.init_unit, key)
        for function in (phase.learn, phase.answer):
            text = program(function, key, unit, records, query)
            found += INTEGERS_IN_BFLOAT16.findall(text)
    return found


def shapes(spec):
    """Records of one unit."""
    return Records(jax.ShapeDtypeStruct((6, *spec.shape), spec.dtype),
                   jax.ShapeDtypeStruct((6,), np.int32))


@pytest.mark.parametrize("name", test_battery.marked(methods.NAMES))
def test_no_unit_multiplies_matrices_of_integers(name):
    """In bfloat16 their products would be wrong above 256, and nothing would tell."""
    spec = test_battery.spec_of(name)
    method = units_in_precision(methods.get(name).build(test_battery.small(name), spec), "bfloat16")
    assert rounded_integers(method, shapes(spec)) == []


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint32])
def test_a_product_of_integers_would_be_found(dtype):
    def answer(key, unit, records, query):
        counts = records.y.astype(dtype)[:, None]
        return (counts.T @ counts).astype(np.float32)

    wrong = units_in_precision(dataclasses.replace(PLAIN, answer=answer), "bfloat16")
    assert rounded_integers(wrong, shapes(small_datalens.SPEC))


@pytest.mark.slow
def test_on_a_cpu_a_run_is_the_same_bit_for_bit(tmp_path):
    made = []
    for compute in ("float32", "bfloat16"):
        runtime = dataclasses.replace(runs.RUNTIME, compute=compute)
        release, _ = runs.train(tmp_path / compute, runtime=runtime, seed=3)
        made.append([leaf.tobytes() for leaf in jax.tree.leaves(release.model)])
    assert made[0] == made[1]
