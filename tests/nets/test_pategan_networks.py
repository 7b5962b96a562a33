"""PATE-GAN's networks for tables: the plain form, no mixing of rows, and G-PATE's preset."""

import jax
import numpy as np
import pytest
from numpy_compare import but, close, shaken, uniform

from dpgen_jax import presets
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.methods import gpate
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair

SPEC = TableSpec((Column("a", "continuous", 0, 1, nullable=True),
                  Column("b", "categorical", categories=("x", "y", "z"))),
                 Column("label", "categorical", categories=("0", "1", "2")), 2)
G, D = pair(SPEC, GeneratorNet(2, 7), DiscriminatorNet(hidden=6), "paper")
LABELS = np.arange(10) % 3


@pytest.fixture(scope="module")
def params():
    return shaken(jax.jit(G.init)(jax.random.key(0)))


def dense(layer, h):
    return h @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])


def test_the_generator_is_two_layers_of_tanh_and_a_sigmoid_or_softmax(params):
    z = 2 * uniform(10, 2) - 1
    h = np.concatenate([z, np.eye(3)[LABELS]], 1)
    for i in (0, 1):
        h = np.tanh(dense(params[f"Dense_{i}"], h))
    h = dense(params["Dense_2"], h)
    softmax = np.exp(h[:, 2:]) / np.exp(h[:, 2:]).sum(1, keepdims=True)
    close(jax.jit(G.generate)(params, z, LABELS),
          np.concatenate([1 / (1 + np.exp(-h[:, :2])), softmax], 1))
    assert [params[f"Dense_{i}"]["kernel"].shape for i in range(3)] == [(5, 7), (7, 7), (7, 5)]


def test_the_discriminator_is_two_layers_of_relu():
    params = shaken(jax.jit(D.init)(jax.random.key(1)))
    x, labels = uniform(2, 5, *SPEC.shape), LABELS.reshape(2, 5)
    h = np.concatenate([x, np.eye(3)[labels]], -1)
    for i in (1, 2):
        h = np.maximum(h @ np.asarray(params[f"linear{i}"]) + np.asarray(params[f"bias{i}"]), 0)
    close(jax.jit(D.apply)(params, x, labels),
          (h @ np.asarray(params["linear3"]) + np.asarray(params["bias3"]))[..., 0])


def test_each_row_is_judged_and_made_by_itself(params):
    unit = jax.jit(D.init)(jax.random.key(1))
    x, labels = uniform(1, 10, *SPEC.shape), LABELS[None]
    score = jax.jit(D.apply)
    np.testing.assert_allclose(score(unit, but(x, (0, 0), 0), labels)[0, 1:],
                               score(unit, x, labels)[0, 1:], rtol=1e-6)
    z = 2 * uniform(10, 2) - 1
    fake = jax.jit(G.generate)
    np.testing.assert_allclose(fake(params, but(z, 0, 0), LABELS)[1:], fake(params, z, LABELS)[1:],
                               rtol=1e-6)


def test_the_credit_preset_has_them():
    """A quarter and all of 29 features; the discriminator does not see the spread of its group."""
    config, spec = presets.all_of("gpate")["credit"].config, presets.all_of("gpate")["credit"].spec
    net_g, net_d = pair(spec, config.generator, config.discriminator, config.layers)
    widths = [layer["kernel"].shape for layer in jax.eval_shape(
        net_g.init, jax.random.key(0)).values()]
    assert widths == [(9, 29), (29, 29), (29, 29)]
    unit = jax.eval_shape(net_d.init, jax.random.key(0))
    assert [unit[f"linear{i}"].shape for i in (1, 2, 3)] == [(31, 29), (29, 29), (29, 1)]
    assert gpate.mechanism(config, spec).n_units == 2100
