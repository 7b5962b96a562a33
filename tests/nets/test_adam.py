"""Adam is optax's in float32, and stays close to it with moments of half the size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpgen_jax.core.types import UserError
from dpgen_jax.nets.adam import Adam, _load, _store_nearest, _store_random, descend


def tree(key):
    a, b = jax.random.split(key)
    return {"w": jax.random.normal(a, (7, 5)), "b": jax.random.normal(b, ())}


@pytest.mark.parametrize("adam", [Adam(), Adam(1e-4, 0.0, 0.9), Adam(1e-2, 0.9, 0.99)], ids=str)
def test_float32_equals_optax(adam):
    theirs = optax.adam(adam.learning_rate, adam.beta1, adam.beta2, adam.epsilon)
    rule = adam.transformation()
    ours = expected = tree(jax.random.key(0))
    state, their_state = rule.init(ours), theirs.init(expected)
    update, their_update = (jax.jit(functools.partial(descend, r)) for r in (rule, theirs))
    for key in jax.random.split(jax.random.key(1), 20):
        grads = tree(key)
        ours, state = update(ours, grads, state)
        expected, their_state = their_update(expected, grads, their_state)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    assert state.count == 20 and state.count.dtype == jnp.int32


def test_nearest_rounding_is_that_of_bfloat16():
    x = jax.random.normal(jax.random.key(0), (1000,))
    np.testing.assert_array_equal(_load(_store_nearest(x, jnp.uint16)),
                                  x.astype(jnp.bfloat16).astype(jnp.float32))


@pytest.mark.parametrize("constant", [False, True], ids=["random gradient", "zero gradient"])
def test_random_rounding_is_unbiased(constant):
    """Over elements and over steps; a zero gradient leaves only the salt to vary."""
    g = jnp.zeros(200) if constant else jax.random.normal(jax.random.key(0), (200,))
    x = jax.random.uniform(jax.random.key(1), (200,), minval=1.0, maxval=2.0)
    steps = jnp.arange(1, 2001, dtype=jnp.int32) * 14
    rounded = jax.vmap(lambda salt: _load(_store_random(x, jnp.uint16, g, salt)))(steps)
    spacing = 2.0**-7
    assert float(jnp.abs(rounded - x).max()) <= spacing
    assert float(jnp.abs(rounded.mean(0) - x).max()) < 0.06 * spacing
    assert abs(float((rounded.mean(0) - x).mean())) < 0.01 * spacing


def test_second_moment_decays_at_its_own_rate():
    """Rounded to nearest it would never move: a step changes it by 0.1 % of itself."""
    adam, params = Adam().transformation("bfloat16"), {"w": jnp.ones(4000)}
    _, state = descend(adam, params, {"w": jnp.ones(4000)}, adam.init(params))
    start = float(_load(state.second["w"]).mean())

    def step(_, state):
        return descend(adam, params, {"w": jnp.zeros(4000)}, state)[1]

    state = jax.jit(lambda s: jax.lax.fori_loop(0, 500, step, s))(state)
    assert abs(float(_load(state.second["w"]).mean()) / (start * 0.999**500) - 1) < 0.02


def test_bfloat16_training_ends_near_float32():
    x = jax.random.normal(jax.random.key(0), (64, 8))
    target = x @ jnp.arange(8.0)
    def loss(w):
        return jnp.mean((x @ w - target) ** 2)

    def train(moments):
        adam, w = Adam(learning_rate=3e-2).transformation(moments), jnp.zeros(8)

        def step(_, carry):
            return descend(adam, carry[0], jax.grad(loss)(carry[0]), carry[1])

        return jax.lax.fori_loop(0, 400, step, (w, adam.init(w)))[0]

    exact, low = jax.jit(train, static_argnums=0)("float32"), jax.jit(train, static_argnums=0)(
        "bfloat16")
    assert float(loss(exact)) < 0.1 * float(loss(jnp.zeros(8)))
    np.testing.assert_allclose(low, exact, atol=0.05)


def test_state_is_per_unit_under_vmap():
    adam, params = Adam().transformation("bfloat16"), {"w": jnp.ones((3, 4))}
    update = jax.vmap(functools.partial(descend, adam))
    state = jax.vmap(adam.init)(params)
    assert state.count.shape == (3,) and state.second["w"].dtype == jnp.uint16
    grads = {"w": jnp.ones((3, 4)).at[1].set(5.0)}
    other, _ = update(params, {"w": grads["w"].at[1].set(-2.0)}, state)
    stepped, state = update(params, grads, state)
    np.testing.assert_array_equal(stepped["w"][::2], other["w"][::2])
    np.testing.assert_array_equal(state.count, 1)


def test_unknown_precision_is_refused():
    with pytest.raises(UserError, match="float32, bfloat16"):
        Adam().transformation("float16")
