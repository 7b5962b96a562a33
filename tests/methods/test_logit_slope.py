"""How a direction for pixels becomes one for their logits, and what a generator makes of it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import small_gswgan
from small_gswgan import KEY, ROWS

from dpgen_jax.methods import gswgan
from dpgen_jax.nets import losses


def test_the_sigmoid_slope_is_that_of_the_chain_rule():
    logits = jax.random.normal(jax.random.key(0), (4, 5)) * 3
    direction = jax.random.normal(jax.random.key(1), (4, 5))
    pixels, pull = jax.vjp(jax.nn.sigmoid, logits)
    np.testing.assert_allclose(losses.sigmoid(pixels, direction), pull(direction)[0],
                               rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("pixel, direction, moved", [
    (0.0, 1.0, 1.0), (0.0, -1.0, 0.0), (0.019, -1.0, 0.0), (0.021, -1.0, -1.0),
    (0.5, -0.3, -0.3), (0.979, 2.0, 2.0), (0.981, 2.0, 0.0), (1.0, 1.0, 0.0), (1.0, -1.0, -1.0)])
def test_straight_through_leaves_out_what_moves_a_pixel_further_out(pixel, direction, moved):
    assert losses.straight_through(jnp.float32(pixel), jnp.float32(direction)) == moved


@pytest.mark.parametrize("slope, lighter, darker", [
    ("sigmoid", False, False), ("straight-through", True, False)])
def test_black_images_become_lighter_by_straight_through_alone(slope, lighter, darker):
    method = gswgan.build(small_gswgan.gs(logit_slope=slope), small_datalens.SPEC)
    public = small_gswgan.fresh(method)[0]
    weights = public.weights | {"last_bias": public.weights["last_bias"] - 40}
    black = dataclasses.replace(public, weights=weights)
    query, absorb = jax.jit(method.ask)(KEY, black), jax.jit(method.absorb)
    for sign, moves in ((1, lighter), (-1, darker)):
        released = sign * np.ones((ROWS, 64), np.float32)
        norm = float(absorb(KEY, black, query, released)[1]["generator_gradient"])
        assert norm > 1e-2 if moves else norm < 1e-12, (sign, norm)
