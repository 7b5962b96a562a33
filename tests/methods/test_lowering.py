"""Programs beside a block of rounds lower for accelerators too, on a machine that has none."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import test_battery
from nets.test_convolution import PATCHES, SHAPES

from dpgen_jax import methods
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import Private, Records
from dpgen_jax.nets import convolution
from dpgen_jax.private import pretraining, streaming, teachers
from dpgen_jax.run import loop

SPEC = small_datalens.SPEC
ACCELERATORS = ("cuda", "tpu")


def lowered(function, *arguments):
    """Returns the program for accelerators; nothing in it waits for the host."""
    text = function.trace(*arguments).lower(lowering_platforms=ACCELERATORS).as_text()
    assert "callback" not in text
    return text


def small(name, **fields):
    return methods.get(name).build(
        dataclasses.replace(test_battery.small(name), **fields), SPEC)


def records(units, m=3):
    x, y = small_datalens.images(units * m)
    return Records(x.reshape(units, m, *SPEC.shape), y.reshape(units, m).astype(np.int32))


@pytest.mark.parametrize(("name", "shapes"), [*SHAPES.items(), ("convolve_valid", PATCHES)])
def test_the_convolutions_of_the_backend_and_their_gradients_lower(name, shapes):
    apply = getattr(convolution, name).backend
    both = jax.jit(jax.value_and_grad(lambda x, kernel: jnp.sum(apply(x, kernel) ** 2), (0, 1)))
    text = lowered(both, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    assert text.count("stablehlo.convolution") == 3 * len(ACCELERATORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gswgan", "dcgan"])
def test_the_gradient_penalty_lowers(name):
    """`test_battery_loop` leaves its second derivatives out."""
    networks = {"networks": "gs-wgan"} if name == "dcgan" else {}
    method = small(name, **networks)
    unit = jax.tree.map(lambda a: a, teachers.unit_shapes(method).state)
    own = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), records(1, 6))
    key = jax.eval_shape(lambda: jax.random.key(0))
    query = jax.eval_shape(method.ask, key, jax.eval_shape(method.init, key))
    penalised = lowered(jax.jit(method.learn), key, unit, own, query)
    free = small(name, **networks, **{"penalty": 0.0})
    assert len(penalised) > len(lowered(jax.jit(free.learn), key, unit, own, query))


@pytest.mark.slow
def test_pretraining_lowers():
    method = small("gswgan", warm_steps=2)
    where = teachers.Layout(method.mechanism.n_units, 2, tuple(jax.devices()[:1]))
    stacked = jax.eval_shape(lambda: jax.tree.map(
        lambda a: jnp.zeros((where.padded, *a.shape), a.dtype), teachers.unit_shapes(method)))
    states = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape), a.dtype),
                          jax.eval_shape(method.pretraining.init, jax.random.key(0)))
    text = lowered(pretraining.compile_call(method, where), Private(stacked),
                   Private(records(where.padded)), Private(states), pretraining.Span(0, 0, 1))
    assert "stablehlo.while" in text


def test_a_slab_lowers(monkeypatch):
    method = small("gpate")
    where = dataclasses.replace(teachers.Layout(
        method.mechanism.n_units, 2, tuple(jax.devices()[:1])), slab=2)
    texts, real = [], streaming.on_devices

    def on_devices(*arguments):
        call = real(*arguments)

        def first(*values):
            texts.append(lowered(call, *values))
            return call(*values)

        return first

    monkeypatch.setattr(streaming, "on_devices", on_devices)
    state = loop.initial_state(method, jax.random.key(0), where)
    draws = loop.draw(method.mechanism, where, SeededBits(0), 0, 1, 1)
    loop.run_block(loop.compile_block(method, where), Private(records(where.padded)), state, where,
                   draws, 1)
    assert len(texts) == where.padded // 2 and "stablehlo.while" in texts[0]


def test_post_training_lowers_and_has_no_second_copy_of_its_state():
    method = small("dpmerf")
    training, key = method.post_training, jax.random.key(0)
    state = jax.jit(training.init)(key, jax.device_get(jax.jit(method.init)(key)))
    block = loop.compile_post_block(training)
    text = lowered(block, key, state, 0, 1)
    leaves = len(jax.tree.leaves(state))
    assert text.count("tf.aliasing_output") + text.count("jax.buffer_donor") == leaves
    after, _ = block(key, state, 0, 1)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(after))


@pytest.mark.slow
@pytest.mark.parametrize("name", methods.NAMES)
def test_no_product_of_matrices_lies_between_a_bound_and_the_release(name):
    """Accelerators round the factors of products to 8 or 11 bits; sums and noise are integers."""
    spec = test_battery.spec_of(name)
    method = methods.get(name).build(test_battery.small(name), spec)
    for phase in method.phases or (method,):
        mechanism = phase.mechanism
        inputs = mechanism.private_inputs(SeededBits(0), np.zeros(1, np.int32), 0)[0, 0]
        bound = lowered(jax.jit(mechanism.contribution), KEY, message_of(phase, spec), inputs)
        added = lowered(jax.jit(mechanism.added), jax.ShapeDtypeStruct(mechanism.shape, jnp.int32),
                        jax.ShapeDtypeStruct((3, *mechanism.contribution_shape), jnp.int32))
        drawn = lowered(jax.jit(mechanism.noise.sample), jax.ShapeDtypeStruct(
            mechanism.noise.bits_shape((4,)), jnp.uint32))
        for text in (bound, added, drawn):
            assert "dot_general" not in text and "stablehlo.convolution" not in text
        assert IN_FLOATS.search(bound) and not IN_FLOATS.search(added + drawn)


KEY, IN_FLOATS = jax.eval_shape(lambda: jax.random.key(0)), re.compile(r"[x<]b?f\d+>")


def message_of(method, spec):
    """The shape of a message of a unit."""
    own = Records(jax.ShapeDtypeStruct((6, *spec.shape), spec.dtype),
                  jax.ShapeDtypeStruct((6,), jnp.int32))
    query = jax.eval_shape(method.ask, KEY, jax.eval_shape(method.init, KEY))
    return jax.eval_shape(method.answer, KEY, jax.eval_shape(method.init_unit, KEY), own, query)
