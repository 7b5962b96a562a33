"""The rounds of the mixture without a loop: a whole fit is one compiled function."""

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Records
from dpgen_jax.methods import mixture


def absorbed(phase, public, x, y, key, noise):
    """The public state after a round in which all records are summed at once."""
    query = phase.ask(key, public)
    compact = jax.vmap(lambda x, y: phase.mechanism.contribution(
        key, phase.answer(key, None, Records(x[None], y[None]), query), jnp.zeros(0)))(x, y)
    total = phase.mechanism.added(jnp.zeros(phase.mechanism.shape, jnp.int32), compact)
    noisy = total + jnp.round(noise * jax.random.normal(key, total.shape))
    return phase.absorb(key, public, query, noisy)[0]


def fitted(config, spec):
    """A function (x, y, labels) -> images of these labels, float32 [n, H, W, ch].

    It is of one compiled method, with rounded normal noise as a run would draw it.
    """
    built = mixture.build(config, spec)

    def fit(x, y, labels, key):
        public = built.init(key)
        for step, phase in enumerate(built.phases):
            public = absorbed(phase, public, x, y, jax.random.fold_in(key, step),
                              phase.mechanism.noise.sigma)
        return built.sample(built.finalize(key, public), key, labels)

    compiled = jax.jit(fit)

    def images(x, y, labels):
        return np.asarray(compiled(x, np.int32(y), np.int32(labels), jax.random.key(0)))

    return images
