"""The losses of conditional GANs, of GS-WGAN's critics and of DPAC's classifiers.

Conditional GANs. Source: G-PATE and DataLens train both networks with binary cross-entropy on
sigmoid outputs; `softplus` computes the same number from the logit, without overflow.

Critics and classifiers have Wasserstein losses, each a scalar. Source: Gulrajani et al., NeurIPS
2017 (the gradient penalty), with the drift term of Karras et al., ICLR 2018, as the published codes
of Chen et al., NeurIPS 2020 (GS-WGAN) and of DP-GAN-DPAC combine them: penalty 10, drift 1e-3. A
score maps (x [m, H, W, ch], labels [m]) to [m]; one record's score must not depend on the others.

`LOGIT_SLOPES` convert a direction for pixels to one for their logits; pixels are sigmoids of
logits. By the chain rule a direction is multiplied by the sigmoid's slope x (1 - x). Noise drives
pixels to black and white, where that slope is almost 0: a direction released there has no effect,
and a generator whose images have become black stays so. Straight-through estimation uses a slope of
1 instead (Bengio, Léonard and Courville, arXiv 1308.3432, section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array


def discriminator_loss(real_logits: Array, fake_logits: Array) -> Array:
    """Returns mean BCE(real, 1) + mean BCE(fake, 0): a scalar, from logits of any shapes."""
    return jnp.mean(jax.nn.softplus(-real_logits)) + jnp.mean(jax.nn.softplus(fake_logits))


def generator_loss(fake_logits: Array) -> Array:
    """Returns BCE(fake, 1) of each fake, in the shape of the logits.

    It is not reduced, so the image gradient of the sum is each fake's own gradient. The published
    loss is the mean of these, with image gradients smaller by the factor 1/B.
    """
    return jax.nn.softplus(-fake_logits)


Score = Callable[[Array, Array], Array]


def critic_loss(score: Score, key: Array, real: Array, fake: Array, labels: Array,
                penalty: float, drift: float) -> Array:
    """Returns mean score(fake) - mean score(real) + drift * mean score(real)^2 + penalty * P.

    P is the gradient penalty at x = fake + e (real - fake), e uniform on (0, 1) for each pair.

    Args:
        score: scores of records, without coupling between them.
        key: for e; not used if penalty is 0.0.
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
        score: scores of records, without coupling between them.
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

    If the gradient is 0, the penalty is 1 and its derivative is taken as 0.
    """
    slopes = jax.grad(lambda x: jnp.sum(score(x, labels)))(x)
    squares = jnp.sum(slopes**2, range(1, x.ndim))
    positive = squares > 0
    norms = jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)
    return jnp.mean((norms - 1)**2)


LogitSlope = Literal["sigmoid", "straight-through"]
EDGE = 0.02  # One value was tried.


def sigmoid(pixels: Array, direction: Array) -> Array:
    """Returns the direction for logits by the chain rule.

    Args:
        pixels: in (0, 1), any shape.
        direction: in which the pixels should move, same shape.
    """
    return direction * pixels * (1 - pixels)


def straight_through(pixels: Array, direction: Array) -> Array:
    """Returns the direction without the parts that move a pixel within EDGE of 0 or 1 further out.

    Otherwise noise would drive logits so far out that few steps would bring them back.

    Args:
        pixels: in (0, 1), any shape.
        direction: in which the pixels should move, same shape.
    """
    outward = ((pixels < EDGE) & (direction < 0)) | ((pixels > 1 - EDGE) & (direction > 0))
    return jnp.where(outward, 0, direction)


LOGIT_SLOPES: dict[LogitSlope, Callable[[Array, Array], Array]] = {
    "sigmoid": sigmoid, "straight-through": straight_through}
