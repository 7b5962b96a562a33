"""Noisy deviations: nothing of noise is kept, and all of what stands out of it."""

import functools

import jax
import numpy as np
import pytest

from dpgen_jax.methods.shared import table_tree

D, B = 12, 8
SIZE = np.array([0.7, 0.3], np.float32)


@functools.cache
def compiled():
    return jax.jit(table_tree.expected_deviations)


def kept(slope, noise, is_number=True, seed=0):
    """True and expected deviations of class 1; the ratio rises or falls along each column."""
    rng = np.random.default_rng(seed)
    total = rng.dirichlet(np.full(B, 20.0), D).astype(np.float32)
    ratio = slope * np.linspace(-1, 1, B) * rng.choice([-1, 1], (D, 1))
    true = total * (ratio - (total * ratio).sum(1, keepdims=True)) * SIZE[1]
    noisy = np.stack([-true, true], 1) + noise * rng.normal(size=(D, 2, B))
    spread = np.full((D, 2), noise, np.float32)
    found = compiled()(np.float32(noisy), spread, SIZE, total, np.full((D, B), is_number))
    return true, np.asarray(found)[:, 1], noisy[:, 1]


@pytest.mark.parametrize(("is_number", "most"), [(True, 0.1), (False, 0.05)])
def test_noise_alone_is_pulled_to_none(is_number, most):
    """A number may have shapes beside a smooth ratio, of which some fit noise by chance."""
    runs = [kept(0.0, 0.02, is_number, seed)[1:] for seed in range(5)]
    parts = [(found**2).sum() / (noisy**2).sum() for found, noisy in runs]
    assert np.mean(parts) < most and max(parts) < 2 * most


def test_what_stands_out_is_kept_and_comes_closer_than_the_counts_did():
    true, found, noisy = kept(0.8, 0.01)
    assert ((found - true)**2).sum() < 0.5 * ((noisy - true)**2).sum()
    assert (found * true).sum() > 0.8 * (true**2).sum()


@pytest.mark.parametrize("is_number", [True, False])
def test_without_noise_the_counts_stand(is_number):
    true, found, _ = kept(0.8, 0.0, is_number)
    np.testing.assert_allclose(found, true, atol=1e-4)


def beyond_noise(columns, seed, size=0.002, signal=1.6):
    """How much of a rare class is found in the ends of columns that it keeps to, and of the others.

    In each bin of a column the noise is nearly what the class has there.
    """
    rng, bins, d = np.random.default_rng(seed), 16, 24
    total = np.full((d, bins), 1 / bins, np.float32)
    end = np.where(rng.random(d) < 0.5, 0, bins - 1)
    ratio = np.zeros((d, bins))
    ratio[np.arange(d), end] = np.where(np.arange(d) < columns, 0.8, 0)
    ratio -= ratio.sum(1, keepdims=True) * total
    noise = 0.8 * size / signal
    noisy = ratio * size + noise * rng.normal(size=ratio.shape)
    found = np.asarray(jax.jit(table_tree.expected_deviations)(
        np.stack([-noisy, noisy], 1).astype(np.float32), np.full((d, 2), noise, np.float32),
        np.array([1 - size, size], np.float32), total, np.full((d, bins), True)))[:, 1] / size
    kept = found[np.arange(d), end]
    return kept[:columns].mean() if columns else 0.0, np.abs(kept[columns:]).mean()


def test_a_rare_class_at_the_ends_of_columns_is_found_by_what_they_have_in_common():
    """No single column tells it from noise; that eight of them have the same shape does."""
    kept, others = np.mean([beyond_noise(8, seed) for seed in range(4)], 0)
    assert kept > 0.25 and others < kept / 3
    assert np.mean([beyond_noise(0, seed)[1] for seed in range(4)]) < 0.1
