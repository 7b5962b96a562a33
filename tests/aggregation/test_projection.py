"""Random projection, alone and within Algorithm 2 of G-PATE written out in numpy."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation import projection
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.histogram import OneHot
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import Everyone

ROWS, DIMENSION, PROJECTED = 2, 6, 3


@jax.jit
def there_and_back(keys, gradients):
    """[keys, B, D]: each time through matrices of another key."""
    def one(key):
        drawn = projection.matrices(key, ROWS, DIMENSION, PROJECTED)
        return projection.reconstruct(drawn, projection.project(drawn, gradients))

    return jax.vmap(one)(keys)


def test_the_mean_of_what_comes_back_is_the_gradient(rng):
    keys, gradients = 40_000, rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    back = np.asarray(there_and_back(jax.random.split(jax.random.key(0), keys), gradients), float)
    # The variance of entry i is (|x|^2 + x_i^2) / k.
    variance = ((gradients**2).sum(1, keepdims=True) + gradients**2) / PROJECTED
    error = np.abs(back.mean(0) - gradients) / np.sqrt(variance / keys)
    assert error.max() < 5.3  # fails once in 10^6 times
    np.testing.assert_allclose(back.var(0), variance, rtol=0.1)


def test_matrices_are_normal_and_fresh_for_each_fake_and_key():
    shape = (4, 50, 8)
    first, second = (projection.matrices(jax.random.key(seed), *shape) for seed in (0, 1))
    assert first.shape == shape and first.dtype == jnp.float32
    assert float(first.std()) == 1 / math.sqrt(8) * np.float32(1) or abs(
        float(first.std()) * math.sqrt(8) - 1) < 5 / math.sqrt(2 * first.size)
    every = np.concatenate([first, second]).reshape(8, -1)
    correlation = np.corrcoef(every) - np.eye(8)
    assert np.abs(correlation).max() < 5.5 / math.sqrt(every.shape[1])


def test_shapes_and_values_are_those_of_the_matrix_products(rng):
    drawn = rng.normal(size=(ROWS, DIMENSION, PROJECTED)).astype(np.float32)
    gradients = rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    projected = projection.project(drawn, gradients)
    assert projected.shape == (ROWS, PROJECTED)
    back = projection.reconstruct(drawn, projected)
    assert back.shape == (ROWS, DIMENSION)
    for row in range(ROWS):
        np.testing.assert_allclose(projected[row], gradients[row] @ drawn[row], rtol=1e-4)
        np.testing.assert_allclose(back[row], drawn[row] @ np.asarray(projected[row]), rtol=1e-4)


def algorithm_2(gradients, drawn, clip, bins, threshold, test_noise, noise):
    """For one fake: gradients [n, D], drawn [D, k], noise of its k queries -> [D]."""
    released = np.zeros(drawn.shape[1])
    for j, column in enumerate((gradients @ drawn).T):
        edges = np.linspace(-clip, clip, bins + 1)
        counts, _ = np.histogram(np.clip(column, -clip, clip), edges)
        if counts.max() + test_noise[j] >= threshold * len(gradients):
            winner = int(np.argmax(counts + noise[j]))
            released[j] = (edges[winner] + edges[winner + 1]) / 2
    return released @ drawn.T


def test_the_aggregator_is_algorithm_2(rng):
    teachers, bins, clip, threshold = 40, 4, 0.5, 0.4
    mechanism = ConfidentGNMax(
        bound=OneHot(bins, PROJECTED, ROWS, clip), noise=RoundedGaussian(3.0),
        test_noise=RoundedGaussian(6.0), schedule=Everyone(), n_units=teachers,
        threshold=threshold)
    drawn = projection.matrices(jax.random.key(3), ROWS, DIMENSION, PROJECTED)
    bits = rng.integers(2**32, size=mechanism.bits_shape, dtype=np.uint32)
    gradients = (0.3 * rng.normal(size=(teachers, ROWS, DIMENSION))
                 + 0.3 * rng.normal(size=(ROWS, DIMENSION))).astype(np.float32)

    @jax.jit
    def aggregated(gradients, drawn, bits):
        messages = jax.vmap(projection.project, (None, 0))(drawn, gradients)
        votes = jax.vmap(lambda m: mechanism.bound.project(None, m))(messages).sum(0)
        outcome = mechanism.decide(votes, bits)
        return projection.reconstruct(drawn, mechanism.value(outcome)), outcome.answered

    given, answered = aggregated(gradients, drawn, bits)
    assert 0 < int(answered.sum()) < answered.size
    test_noise = np.asarray(mechanism.test_noise.sample(jnp.asarray(bits[:, 0])))
    noise = np.asarray(mechanism.noise.sample(jnp.asarray(bits[:, 1:])))
    for row in range(ROWS):
        queries = slice(row * PROJECTED, (row + 1) * PROJECTED)
        expected = algorithm_2(gradients[:, row].astype(float), np.asarray(drawn[row], float), clip,
                               bins, threshold, test_noise[queries], noise[queries])
        np.testing.assert_allclose(given[row], expected, rtol=1e-4, atol=1e-6)
