"""Noisy moments and histograms, of noise alone too, and the frequencies of images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.moments import Moments
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods.shared.gaussians import edge, quantiles
from dpgen_jax.nets.frequencies import frequencies, n_frequencies, restored


@pytest.mark.slow
def test_noise_alone_is_below_its_edge():
    """None of 100 matrices has an eigenvalue above 1.05 times the edge; below it lie as many as the
    semicircle law says."""
    size = 196
    bound = Moments(blocks=1, square_blocks=1, length=size, shades=0, levels=40, first=20000,
                    square=20000, count=0,
                    tint=0, columns=2 * size + size * (size + 1) // 2, limit=10**9)
    rng, sums = np.random.default_rng(0), jax.jit(bound.sums)
    scale = 1000 / np.sqrt(bound.limit)
    inside = []
    for _ in range(100):
        noise = np.round(1000 * rng.standard_normal((1, bound.columns), np.float32))
        values = np.linalg.eigvalsh(np.asarray(sums(noise).second[0]))
        values /= float(edge(size, bound.noise(scale)[3]))
        assert np.abs(values).max() < 1.05
        inside.append([np.mean(np.abs(values) < share) for share in (0.3, 0.7, 0.95)])
    law = [2 / np.pi * (s * np.sqrt(1 - s * s) + np.arcsin(s)) for s in (0.3, 0.7, 0.95)]
    np.testing.assert_allclose(np.mean(inside, 0), law, atol=0.01)


def test_a_noisy_histogram_has_rising_quantiles():
    rng = np.random.default_rng(0)
    shares = np.array([0.7, 0, 0, 0.1, 0, 0, 0, 0.2])
    found = np.asarray(quantiles(jnp.asarray(shares + 0.01 * rng.normal(size=8)), 400))
    assert (np.diff(found) >= 0).all() and found[0] == 0 and found[-1] == 1
    assert np.mean(found == 0) == pytest.approx(0.7, abs=0.03)
    assert np.mean((found > 0.36) & (found < 0.51)) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("spec", [ImageSpec(5, 8, 1, 2), ImageSpec(6, 6, 3, 2)])
def test_low_frequencies_are_orthonormal(spec):
    for count in (2, 6):
        eye = np.eye(n_frequencies(spec, count), dtype=np.float32)
        basis = jax.jit(lambda v, count=count: restored(v, spec, count))(eye)
        back = jax.jit(lambda x, count=count: frequencies(x, count))(basis)
        np.testing.assert_allclose(back, eye, atol=1e-5)
        flat = np.asarray(basis).reshape(len(eye), -1)
        np.testing.assert_allclose(flat @ flat.T, eye, atol=1e-5)
        assert np.ptp(flat[0]) < 1e-6
