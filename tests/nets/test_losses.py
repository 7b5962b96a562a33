"""The losses are binary cross-entropies, finite for any logit."""

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.nets.losses import discriminator_loss, generator_loss


def test_losses_are_cross_entropies():
    real, fake = jnp.array([0.3, -2.0, 1.0]), jnp.array([1.5, -0.5])
    p, q = jax.nn.sigmoid(real), jax.nn.sigmoid(fake)
    want = -jnp.mean(jnp.log(p)) - jnp.mean(jnp.log(1 - q))
    np.testing.assert_allclose(discriminator_loss(real, fake), want, rtol=1e-6)
    np.testing.assert_allclose(generator_loss(fake), -jnp.log(q), rtol=1e-6)


def test_losses_are_finite_at_extreme_logits():
    logits = jnp.array([-1e4, 1e4])
    assert jnp.isfinite(discriminator_loss(logits, logits))
    assert jnp.all(jnp.isfinite(jax.grad(lambda s: generator_loss(s).sum())(logits)))
