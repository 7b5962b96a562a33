"""The Wasserstein losses of GS-WGAN's critics and DPAC's classifiers, each a scalar.

Source: Gulrajani et al., NeurIPS 2017 (the gradient penalty), with the drift term of Karras et al.,
ICLR 2018, as the published codes of Chen et al., NeurIPS 2020 (GS-WGAN) and of DP-GAN-DPAC combine
them: penalty 10, drift 1e-3. A score maps (x [m, H, W, ch], labels [m]) to [m]; one record's score
must not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array

Score = Callable[[Array, Array], Array]


def critic_loss(score: Score, key: Array, real: Array, fake: Array, labels: Array,
                penalty: float, drift: float) -> Array:
    """Returns mean score(fake) - mean score(real) + drift * mean score(real)^2 + penalty * P.

    P is the gradient penalty at x = fake + e (real - fake), e uniform on (0, 1) for each pair.

    Args:
        score: of records, without coupling between them.
        key: of e; not used where penalty is 0.0.
        real: [m, H, W, ch].
        fake: [m, H, W, ch], with the same labels.
        labels: int [m].
        penalty: weight of P; with 0.0 (a Python float) it is not computed.
        drift: weight of the squared scores.
    """
    scores = score(jnp.concatenate([real, fake]), jnp.concatenate([labels, labels]))
    of_real, of_fake = jnp.split(scores, 2)
    loss = jnp.mean(of_fake) - jnp.mean(of_real) + drift * jnp.mean(of_real**2)
    if penalty == 0:
        return loss
    share = jax.random.uniform(key, (len(real), *[1] * (real.ndim - 1)))
    return loss + penalty * gradient_penalty(score, fake + share * (real - fake), labels)


def classifier_loss(score: Score, x: Array, labels: Array, penalty: float, drift: float) -> Array:
    """Returns -mean score(x) + drift * mean score(x)^2 + penalty * the gradient penalty at x.

    Args:
        score: of records, without coupling between them.
        x: [m, H, W, ch].
        labels: int [m].
        penalty: weight of the gradient penalty; with 0.0 (a Python float) it is not computed.
        drift: weight of the squared scores.
    """
    scores = score(x, labels)
    loss = -jnp.mean(scores) + drift * jnp.mean(scores**2)
    return loss + penalty * gradient_penalty(score, x, labels) if penalty else loss


def gradient_penalty(score: Score, x: Array, labels: Array) -> Array:
    """Returns the mean of (|d score / dx| - 1)^2 over the records, with the L2 norm over each.

    Where the gradient is 0, the penalty is 1 and its own derivative is taken as 0.
    """
    slopes = jax.grad(lambda x: jnp.sum(score(x, labels)))(x)
    squares = jnp.sum(slopes**2, range(1, x.ndim))
    positive = squares > 0
    norms = jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)
    return jnp.mean((norms - 1)**2)
