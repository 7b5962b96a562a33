"""Critics that answer with low frequencies: the message, what follows from it, and its cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_datalens
import small_gswgan
from small_gswgan import KEY, ROWS

from dpgen_jax.core.types import ImageSpec, Records, UserError
from dpgen_jax.methods import dpac, gswgan
from dpgen_jax.nets.frequencies import frequencies, restored

COLOUR = ImageSpec(8, 8, 3, 3)


def built(count):
    return gswgan.build(small_gswgan.gs(frequencies=count, warm_steps=0), small_datalens.SPEC)


def answered(count):
    """A critic's answer in the first step, and the query; the same critic whatever the count."""
    method = built(count)
    public = method.init(KEY)
    query = method.ask(KEY, public)
    records = Records(np.zeros((2, *small_datalens.SPEC.shape), np.uint8), np.zeros(2, np.int32))
    return method, public, query, method.answer(KEY, method.init_unit(KEY), records, query)


@pytest.fixture(scope="module")
def pixels():
    return answered(0)


def test_an_answer_has_the_low_frequencies_of_the_gradient(pixels):
    _, _, query, slope = pixels
    _, _, other, low = answered(3)
    np.testing.assert_array_equal(query.fakes, other.fakes)
    assert slope.shape == (ROWS, 64) and low.shape == (ROWS, 9)
    expected = frequencies(slope.reshape(query.fakes.shape), 3)
    np.testing.assert_allclose(low, expected, atol=1e-6)
    assert 0 < jnp.linalg.norm(low) < jnp.linalg.norm(slope)


def test_all_frequencies_are_the_gradient_in_another_basis(pixels):
    slope, every = pixels[3], answered(8)[3]
    np.testing.assert_allclose(jnp.linalg.norm(every, axis=1), jnp.linalg.norm(slope, axis=1),
                               rtol=1e-5)


def test_the_generator_follows_the_image_of_what_was_released(pixels):
    method, public, query, _ = pixels
    released = np.random.default_rng(1).normal(size=(ROWS, 9)).astype(np.float32)
    as_pixels = restored(released, small_datalens.SPEC, 3).reshape(ROWS, -1)
    new, _ = built(3).absorb(KEY, public, query, released)
    same, _ = method.absorb(KEY, public, query, as_pixels)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), new.weights, public.weights)
    assert max(jax.tree.leaves(moved)) > 0
    for a, b in zip(jax.tree.leaves(new.weights), jax.tree.leaves(same.weights), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(("count", "columns"), [(0, 192), (6, 36 + 2 * 4), (1, 3)])
def test_fewer_numbers_cost_the_same_and_have_less_noise_in_all(count, columns):
    """Opponent colours have a third of the frequencies a side, and at least one."""
    for config, method in ((small_gswgan.gs(frequencies=count), gswgan),
                           (small_gswgan.dp(frequencies=count), dpac)):
        mechanism = method.mechanism(config, COLOUR)
        ((event, times),) = mechanism.events(7)
        assert mechanism.shape == (ROWS, columns) and times == 7
        assert event.mu_squared == pytest.approx(ROWS)
        assert event.sensitivity * event.grid == pytest.approx(2 * 0.1 * ROWS**0.5)
        assert event.sigma * event.grid == pytest.approx(2 * 0.1, rel=1e-3)


@pytest.mark.parametrize(("count", "text"), [(-1, "frequencies"), (9, "at most 8, or 0")])
def test_frequencies_that_no_image_has_are_refused(count, text):
    with pytest.raises(UserError, match=text):
        gswgan.build(small_gswgan.gs(frequencies=count), small_datalens.SPEC)
