"""The losses of the published conditional GANs, as functions of logits.

Source: G-PATE and DataLens train both networks with binary cross-entropy on sigmoid outputs;
`softplus` is the same number computed from the logit, without overflow.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array


def discriminator_loss(real_logits: Array, fake_logits: Array) -> Array:
    """Returns mean BCE(real, 1) + mean BCE(fake, 0): a scalar, from logits of any shapes."""
    return jnp.mean(jax.nn.softplus(-real_logits)) + jnp.mean(jax.nn.softplus(fake_logits))


def generator_loss(fake_logits: Array) -> Array:
    """Returns BCE(fake, 1) of each fake, in the shape of the logits.

    It is not reduced, so that the image gradient of the sum is each fake's own gradient. The
    published loss is the mean of these: its image gradients are smaller by the factor 1/B.
    """
    return jax.nn.softplus(-fake_logits)
