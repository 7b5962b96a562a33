"""The class weight adds nothing to a critic's answer but what tells one label from others."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import small_datalens
import small_gswgan
from small_gswgan import KEY, ROWS

from dpgen_jax.core.types import Records
from dpgen_jax.methods import gswgan


def answer(weight):
    """A critic's answer at one image under three labels, [3, pixels]."""
    method = gswgan.build(small_gswgan.gs(class_weight=weight), small_datalens.SPEC)
    public = small_gswgan.fresh(method)[0]
    query = jax.jit(method.ask)(KEY, public)
    query = dataclasses.replace(query, labels=jnp.arange(ROWS),
                                fakes=jnp.repeat(query.fakes[:1], ROWS, 0))
    x, y = small_datalens.images(4)
    unit = jax.jit(method.init_unit)(KEY)
    return np.asarray(jax.jit(method.answer)(KEY, unit, Records(x, y), query))


def test_the_class_weight_adds_what_labels_differ_in_and_no_more():
    plain, once, thrice = (answer(weight) for weight in (0.0, 1.0, 3.0))
    added = once - plain
    assert np.abs(added).max() > 1e-3 * np.abs(plain).max()
    np.testing.assert_allclose(thrice - plain, 3 * added, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(added.sum(0), 0.0, atol=1e-6)  # over all labels of one image
    # The label's score less the mean of the two others, of which each has its own gradient.
    np.testing.assert_allclose(added, 1.5 * (plain - plain.mean(0)), rtol=1e-3, atol=1e-6)
