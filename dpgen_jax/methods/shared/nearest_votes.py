"""Votes on fakes about the images of a generator that holds images, for PATE-GAN.

The fakes of a query lie about the images (`shared.nearest`): each is one of them, moved along a
public direction, one of a random orthonormal basis of the low frequencies. A teacher's linear
discriminator votes whether a fake looks more real than its image does; its mirror image, moved the
opposite way, would have the opposite vote. The student is a linear discriminator of each image too,
and learns from the noisy sums of votes in one step from 0: its weights are the sum of the
directions, each times its mean vote. The generator moves the images along them. A teacher votes on
fakes about few images, and only these are charged.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.threshold import Mean
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.core.types import Array, ImageSpec
from dpgen_jax.methods.shared.low_frequencies import in_frequencies
from dpgen_jax.methods.shared.nearest import Nearest, bounded
from dpgen_jax.methods.shared.teachers import Messages, TeacherConfig
from dpgen_jax.nets.frequencies import n_frequencies


def mechanism(config: TeacherConfig, nearest: Nearest, count: int, spec: ImageSpec
              ) -> SumMechanism:
    """Returns the mechanism: noisy sums of votes of 1, -1 or none on each fake.

    Args:
        config: the teachers, the images (batch) and the noise.
        nearest: the most images on whose fakes one teacher votes.
        count: frequencies a side, at most.
        spec: the schema of the images.

    Guarantee:
        Unit: a record, through its teacher. Relation: replace-one. Sensitivity: of M frequencies, a
        teacher votes on the M fakes of at most U images, and all its votes may turn over: squared
        L2 sensitivity 4 M U (`TopKSign` of all entries, and `FewRows`).

    Source:
        This library, for the votes of Jordon et al., ICLR 2019, Section 4.1.
    """
    fakes = n_frequencies(spec, count)
    return SumMechanism(
        bound=bounded(lambda rows: TopKSign(fakes, rows), config, nearest),
        noise=gaussian(config.sigma), schedule=FullParticipation(), n_units=config.teachers,
        shape=(config.batch, fakes), decode=Mean())


def messages(images: int, count: int, step_size: float, spec: ImageSpec) -> Messages:
    """Returns how a teacher's gradients become votes, and their noisy sums a move of the images.

    Args:
        images: B, all images of the generator.
        count: frequencies a side, at most.
        step_size: how far an image is moved, in weights of the student.
        spec: the schema of the images.
    """
    fakes = n_frequencies(spec, count)

    def question(key: Array) -> Array:
        return orthonormal(key, images, fakes)

    def message(basis: Array, low: Array) -> Array:
        return jnp.sign(jnp.einsum("bmf,bf->bm", basis, low))

    def direction(basis: Array, released: Array) -> Array:
        return step_size * jnp.einsum("bmf,bm->bf", basis, released)

    return in_frequencies(Messages(message, direction, question), spec, count)


def orthonormal(key: Array, n: int, m: int) -> Array:
    """Draws random orthonormal bases, as products of random Householder reflections.

    No matrix is decomposed: a call of LAPACK within a step of several CPU devices waits for threads
    that wait for it.

    Args:
        key: Random key.
        n: How many.
        m: Their dimension.

    Returns:
        float32 [n, m, m], whose rows are a basis: uniformly distributed, but for the signs of rows.

    Source:
        Stewart, SIAM Journal on Numerical Analysis 1980.
    """
    normals = jax.random.normal(key, (m, n, m))

    def reflect(i: Array, bases: Array) -> Array:
        x = jnp.where(jnp.arange(m) >= i, normals[i], 0)
        length = jnp.linalg.norm(x, axis=1)
        normal = x.at[:, i].add(jnp.where(x[:, i] < 0, -length, length))
        normal /= jnp.linalg.norm(normal, axis=1, keepdims=True)
        across = jnp.einsum("ni,nij->nj", normal, bases)
        return bases - 2 * normal[:, :, None] * across[:, None]

    return jax.lax.fori_loop(0, m, reflect, jnp.broadcast_to(jnp.eye(m), (n, m, m)))

