"""The randomised Hadamard transform: orthogonal, its own inverse, and flat."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard as matrix

from dpgen_jax.aggregation import compression

WIDTHS = st.sampled_from([1, 2, 5, 64, 100])
SEEDS = st.integers(0, 2**32 - 1)


def signs_and_values(seed, columns, rows=3):
    """(signs, float32 [rows, columns]), of all sizes between 1e-6 and 1e6."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-6, 7, (rows, 1))
    return compression.random_signs(jax.random.key(seed), rows, columns), x.astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 8, 128])
def test_it_is_the_hadamard_matrix(n):
    ours = np.asarray(compression.hadamard_transform(jnp.eye(n)))
    np.testing.assert_allclose(ours, matrix(n) / np.sqrt(n), rtol=1e-6)
    np.testing.assert_allclose(ours @ ours.T, np.eye(n), atol=1e-6)
    np.testing.assert_allclose(ours, ours.T)


@settings(max_examples=20)
@given(SEEDS, WIDTHS)
def test_lengths_and_angles_are_kept_and_it_is_undone(seed, columns):
    signs, x = signs_and_values(seed, columns)
    rotated = np.asarray(compression.rotate(signs, x), float)
    assert rotated.shape == (3, compression.padded_width(columns)) == signs.shape
    size = np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(rotated, axis=1, keepdims=True), size, rtol=1e-5)
    same = compression.rotate(signs, np.tile(x[:1], (3, 1)))  # each row has its own signs
    np.testing.assert_allclose(np.linalg.norm(same, axis=1), size[0, 0], rtol=1e-5)
    back = compression.unrotate(signs, rotated.astype(np.float32), columns)
    np.testing.assert_allclose(back / size, x / size, atol=3e-6)


@settings(max_examples=20)
@given(SEEDS, WIDTHS)
def test_sums_are_rotated_term_by_term(seed, columns):
    signs, x = signs_and_values(seed, columns)
    apart = compression.rotate(signs, x) + compression.rotate(signs, 2 * x[::-1])
    np.testing.assert_allclose(compression.rotate(signs, x + 2 * x[::-1]), apart, rtol=1e-4,
                               atol=1e-5 * np.abs(x).max())


def test_a_row_of_one_entry_becomes_flat():
    signs = compression.random_signs(jax.random.key(0), 1, 784)
    row = np.zeros((1, 784), np.float32)
    row[0, 77] = 3
    rotated = np.asarray(compression.rotate(signs, row))
    np.testing.assert_allclose(np.abs(rotated), 3 / 32, rtol=1e-6)
    assert 400 < (rotated > 0).sum() < 624


def test_any_row_becomes_as_flat_as_noise():
    """Also one that the matrix alone would gather in a single entry."""
    rows = np.ones((2000, 1024), np.float32)
    assert np.abs(compression.hadamard_transform(rows[:1])).max() == 32
    rotated = compression.rotate(compression.random_signs(jax.random.key(1), *rows.shape), rows)
    # P(one of 2 million beyond 6.5) < 2e-4 by Hoeffding's bound, 2 exp(-t^2 / 2) each
    assert np.abs(rotated).max() < 6.5
    assert np.std(rotated) == pytest.approx(1, abs=0.01)


def test_signs_are_fair_and_drawn_anew():
    first, second = (np.asarray(compression.random_signs(jax.random.key(i), 40, 500))
                     for i in range(2))
    assert set(np.unique(first)) == {-1, 1} and first.shape == (40, 512)
    for signs in (first, first * second, first[:20] * first[20:]):
        assert abs(signs.sum()) < 5.4 * np.sqrt(signs.size)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_stays_so_everywhere(bad):
    signs, x = signs_and_values(0, 100)
    x[1, 17] = bad
    finite = np.isfinite(compression.rotate(signs, x))
    assert finite[0].all() and finite[2].all() and not finite[1].any()
