"""Both forms of every convolution compute the same function, with the same gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_compare import normal

from dpgen_jax.nets import convolution
from dpgen_jax.nets.convolution import Convolution

# x and kernel of each; sizes whose borders matter.
SHAPES = {
    "convolve_image": ((2, 8, 12, 3), (5, 5, 3, 4)),
    "convolve": ((2, 3, 4, 8), (5, 5, 2, 3)),
    "deconvolve": ((2, 3, 4, 2), (5, 5, 3, 2)),
    "convolve3": ((2, 4, 5, 2), (18, 3)),
    "convolve3_few": ((2, 4, 5, 3), (3, 3, 3, 1)),
    "convolve3_doubled": ((2, 3, 4, 2), (3, 3, 2, 3)),
    "convolve_valid": ((2, 6, 7, 2), (5, 5, 2, 3)),
}
PATCHES = ((2, 5, 6, 1), (3, 3, 1, 9))
"""few channels, which `convolve_valid` gathers whole"""


def both(form: Convolution, shapes):
    x, kernel = normal(*shapes[0]), normal(*shapes[1], seed=1)
    out = jax.eval_shape(form.product, x, kernel)
    weights = normal(*out.shape, seed=2)

    def value_and_grads(apply):
        return jax.jit(jax.value_and_grad(
            lambda x, kernel: jnp.sum(weights * apply(x, kernel) ** 2), (0, 1)))(x, kernel)

    return [jax.tree.leaves((jax.jit(apply)(x, kernel), value_and_grads(apply)))
            for apply in (form.product, form.backend)]


def test_every_convolution_is_compared():
    names = {name for name, value in vars(convolution).items() if isinstance(value, Convolution)}
    assert names == set(SHAPES)


@pytest.mark.parametrize(("name", "shapes"), [*SHAPES.items(), ("convolve_valid", PATCHES)])
def test_both_forms_are_one_function(name, shapes):
    for ours, theirs in zip(*both(getattr(convolution, name), shapes), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def test_the_form_is_chosen_by_the_backend(monkeypatch):
    form = Convolution(product=lambda x, kernel: "product", backend=lambda x, kernel: "backend")
    assert form(None, None) == "product"
    monkeypatch.setattr(convolution, "FASTER_ON", frozenset({jax.default_backend()}))
    assert form(None, None) == "backend"
