"""Noisy deviations: nothing of noise is kept, and all of what stands out of it."""

import functools

import jax
import numpy as np
import pytest

from dpgen_jax.methods.shared import table_prior

D, B = 12, 8
SIZE = np.array([0.7, 0.3], np.float32)


@functools.cache
def compiled():
    return jax.jit(table_prior.expected)


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


@pytest.mark.parametrize("is_number", [True, False])
def test_noise_alone_is_pulled_to_none(is_number):
    _, found, noisy = kept(0.0, 0.02, is_number)
    assert (found**2).sum() < 0.05 * (noisy**2).sum()


def test_what_stands_out_is_kept_and_comes_closer_than_the_counts_did():
    true, found, noisy = kept(0.8, 0.01)
    assert ((found - true)**2).sum() < 0.5 * ((noisy - true)**2).sum()
    assert (found * true).sum() > 0.8 * (true**2).sum()


@pytest.mark.parametrize("is_number", [True, False])
def test_without_noise_the_counts_stand(is_number):
    true, found, _ = kept(0.8, 0.0, is_number)
    np.testing.assert_allclose(found, true, atol=1e-4)
