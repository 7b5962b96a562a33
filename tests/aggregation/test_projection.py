"""Random projection, alone and within Algorithm 2 of G-PATE written out in numpy."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, OneHot

ROWS, DIMENSION, PROJECTED = 2, 6, 3


@functools.cache
def draws():
    """Matrices [20000, B, k, D], each time of another key."""
    one = functools.partial(teacher_votes.projection_matrices, rows=ROWS, dimension=DIMENSION,
                            projected=PROJECTED)
    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 20_000))


def test_the_mean_of_what_comes_back_is_the_gradient(rng):
    gradients = rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    back = jax.vmap(lambda m: teacher_votes.reconstruct(m, teacher_votes.project(m, gradients)))(
        draws())
    # The variance of entry i is (|x|^2 + x_i^2) / k.
    variance = ((gradients**2).sum(1, keepdims=True) + gradients**2) / PROJECTED
    error = np.abs(np.mean(back, 0, dtype=float) - gradients) / np.sqrt(variance / len(back))
    assert error.max() < 5.3  # fails once in 10^6 times
    np.testing.assert_allclose(np.var(back, 0), variance, rtol=0.15)


def test_matrices_are_normal_and_fresh_for_each_fake_and_key():
    entries = np.asarray(draws()).reshape(20_000, -1)
    assert draws().shape == (20_000, ROWS, PROJECTED, DIMENSION) and entries.dtype == np.float32
    assert stats.kstest(entries.ravel() * math.sqrt(PROJECTED), "norm").pvalue > 1e-6
    # alpha 10^-6 over all pairs of entries of one draw, and of the same entry in two draws
    limit = 6 / math.sqrt(20_000)
    assert np.abs(np.corrcoef(entries.T) - np.eye(entries.shape[1])).max() < limit
    assert np.abs((PROJECTED * entries[1:] * entries[:-1]).mean(0)).max() < limit


def test_shapes_and_values_are_those_of_the_matrix_products(rng):
    matrices = np.asarray(draws()[0])
    gradients = rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    projected = teacher_votes.project(matrices, gradients)
    assert projected.shape == (ROWS, PROJECTED)
    back = teacher_votes.reconstruct(matrices, projected)
    assert back.shape == (ROWS, DIMENSION)
    for row in range(ROWS):
        np.testing.assert_allclose(projected[row], matrices[row] @ gradients[row], rtol=1e-4)
        np.testing.assert_allclose(back[row], np.asarray(projected[row]) @ matrices[row], rtol=1e-4)


def algorithm_2(gradients, matrix, clip, bins, threshold, test_noise, noise):
    """For one fake: gradients [n, D], matrix [D, k], noise of its k queries -> [D]."""
    released = np.zeros(matrix.shape[1])
    for j, column in enumerate((gradients @ matrix).T):
        edges = np.linspace(-clip, clip, bins + 1)
        counts, _ = np.histogram(np.clip(column, -clip, clip), edges)
        if counts.max() + test_noise[j] >= threshold * len(gradients):
            winner = int(np.argmax(counts + noise[j]))
            released[j] = (edges[winner] + edges[winner + 1]) / 2
    return released @ matrix.T


def test_the_aggregator_is_algorithm_2(rng):
    teachers, bins, clip, threshold = 40, 4, 0.5, 0.4
    mechanism = ConfidentGNMax(
        bound=OneHot(bins, PROJECTED, ROWS, clip), noise=RoundedGaussian(3.0),
        test_noise=RoundedGaussian(6.0), schedule=FullParticipation(), n_units=teachers,
        threshold=threshold)
    matrices = draws()[0]
    bits = rng.integers(2**32, size=mechanism.bits_shape, dtype=np.uint32)
    gradients = (0.3 * rng.normal(size=(teachers, ROWS, DIMENSION))
                 + 0.3 * rng.normal(size=(ROWS, DIMENSION))).astype(np.float32)

    @jax.jit
    def aggregated(gradients, matrices, bits):
        messages = jax.vmap(teacher_votes.project, (None, 0))(matrices, gradients)
        votes = jax.vmap(lambda m: mechanism.bound.project(None, m))(messages).sum(0)
        outcome = mechanism.decide(votes, bits)
        return teacher_votes.reconstruct(matrices, mechanism.value(outcome)), outcome.answered

    sums, answered = aggregated(gradients, matrices, bits)
    assert 0 < int(answered.sum()) < answered.size
    test_noise = np.asarray(mechanism.test_noise.sample(jnp.asarray(bits[:, 0])))
    noise = np.asarray(mechanism.noise.sample(jnp.asarray(bits[:, 1:])))
    for row in range(ROWS):
        queries = slice(row * PROJECTED, (row + 1) * PROJECTED)
        expected = algorithm_2(
            gradients[:, row].astype(float), np.asarray(matrices[row], float).T, clip, bins,
            threshold, test_noise[queries], noise[queries])
        np.testing.assert_allclose(sums[row], expected, rtol=1e-4, atol=1e-6)
