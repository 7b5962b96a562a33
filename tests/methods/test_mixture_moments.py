"""From records to samples: what the rounds of a mixture release without noise, its samples have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_mixture

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods import mixture
from dpgen_jax.methods.shared import gaussians

N, DRAWN, SPEC = 600, 20_000, ImageSpec(4, 4, 1, 2)
# One Gaussian a class, of all frequencies: it has any mean and any covariance.
CONFIG = mixture.Config(records=N, cells=1, frequencies=4, dimensions=16, sigma=0.0, steps=4)


@pytest.fixture(scope="module")
def images():
    """Two classes of another mean and another covariance, none of them long enough to be cut."""
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(2, 16, 16)) * 0.01
    y = np.arange(N, dtype=np.int32) % 2
    mean = np.where(y[:, None] == 0, 0.4, np.linspace(0.3, 0.5, 16))
    x = mean + np.einsum("nij,nj->ni", mixed[y], rng.normal(size=(N, 16)))
    assert x.min() > 0 and x.max() < 1
    return np.rint(255 * x).astype(np.uint8).reshape(N, 4, 4, 1), y


@pytest.fixture(scope="module")
def samples(images):
    """Samples of each class before their shades are set, as vectors [2, DRAWN, 16]."""
    built, s = mixture.build(CONFIG, SPEC), mixture.sizes(CONFIG, SPEC)

    @jax.jit
    def draw(x, y):
        public = built.init(jax.random.key(0))
        for phase in built.phases[:4]:
            public = small_mixture.absorbed(phase, public, x, y, jax.random.key(1), 0.0)
        model = built.finalize(jax.random.key(2), public)
        labels = jnp.repeat(jnp.arange(2), DRAWN)
        return gaussians.unshaded(s, model, jax.random.key(3), labels, SPEC)

    return np.asarray(draw(*images)).reshape(2, DRAWN, 16)


@pytest.mark.parametrize("label", [0, 1])
def test_samples_have_the_means_and_covariances_of_the_records_of_their_class(
        images, samples, label):
    own = images[0][images[1] == label].reshape(-1, 16) / 255
    np.testing.assert_allclose(samples[label].mean(0), own.mean(0), atol=0.005)
    real, made = np.cov(own.T), np.cov(samples[label].T)
    assert np.linalg.norm(made - real) < 0.1 * np.linalg.norm(real)
    other = np.cov(images[0][images[1] != label].reshape(-1, 16).T / 255)
    assert np.linalg.norm(made - other) > 0.5 * np.linalg.norm(real)
