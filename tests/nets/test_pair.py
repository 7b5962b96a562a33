"""The interface that methods use, for every kind of network: all properties, all pairs."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_compare import but, compiled, largest, shaken, uniform

from dpgen_jax.core.types import Column, ImageSpec, TableSpec, UserError
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair

IMAGE = ImageSpec(8, 12, 2, 3)
TABLE = TableSpec((Column("a", "continuous", 0, 1, nullable=True),
                   Column("b", "categorical", categories=("x", "y", "z"))),
                  Column("label", "categorical", categories=("0", "1", "2")), 2)
KINDS = {"image": (IMAGE, "published"), "paper": (IMAGE, "paper"), "table": (TABLE, "published")}
N, LABELS = 12, np.arange(12) % 3


@pytest.fixture(scope="module", params=KINDS)
def nets(request):
    """The networks of a kind, each function compiled once; weights of G, of two units, of one."""
    spec, layers = KINDS[request.param]
    g, d = pair(spec, GeneratorNet(5, 16, 4), DiscriminatorNet(4, 6, 16), layers)
    units = compiled(jax.vmap(d.init))(jax.random.split(jax.random.key(1)))
    # As after some training: at first, the label of a table has no weight.
    params = shaken(jax.jit(g.init)(jax.random.key(0)))
    return SimpleNamespace(
        spec=spec, d=d, params=params, units=units,
        unit=jax.tree.map(lambda a: a[0], units), z=np.asarray(g.latents(jax.random.key(2), N)),
        generate=compiled(g.generate), freeze=compiled(g.freeze), sample=compiled(g.sample),
        apply=compiled(d.apply))


def records(spec):
    if isinstance(spec, TableSpec):
        return uniform(2, 5, *spec.shape)
    return np.random.default_rng(0).integers(0, 256, (2, 5, *spec.shape), np.uint8)


@pytest.mark.slow
def test_fakes_are_of_the_declared_shape(nets):
    fakes = nets.generate(nets.params, nets.z, LABELS)
    assert nets.z.shape == (N, 5) and largest(nets.z) <= 1
    assert fakes.shape == (N, *nets.spec.shape) and fakes.dtype == jnp.float32
    assert float(fakes.min()) >= 0 and float(fakes.max()) <= 1


def test_training_uses_the_statistics_of_the_call(nets):
    base = nets.generate(nets.params, nets.z, LABELS)
    changed = nets.generate(nets.params, but(nets.z, np.s_[1:], 0.1), LABELS)
    assert largest(changed[0] - base[0]) > 1e-4


def test_a_frozen_model_samples_each_record_from_its_own_latent_and_label(nets):
    z, key = nets.z, jax.random.key(3)
    model = nets.freeze(nets.params, z, LABELS)
    sampled = nets.sample(model, key, z, LABELS)
    others = nets.sample(model, key, but(z, np.s_[1:], 0.3), but(LABELS, np.s_[1:], 0))
    np.testing.assert_array_equal(sampled[0], others[0])
    assert largest(sampled[1:] - others[1:]) > 1e-4
    relabelled = nets.sample(model, key, z, but(LABELS, 0, 1))
    assert largest(sampled[0] - relabelled[0]) > 1e-4
    np.testing.assert_array_equal(sampled[1:], relabelled[1:])
    if nets.spec is IMAGE:
        trained = nets.generate(nets.params, z, LABELS)
        np.testing.assert_allclose(sampled, trained, atol=1e-5)


def test_logits_depend_on_the_label_and_on_the_own_group_only(nets):
    x = uniform(2, 5, *nets.spec.shape)
    labels = LABELS[2:].reshape(2, 5)
    base = nets.apply(nets.unit, x, labels)
    assert base.shape == (2, 5)
    other_group = nets.apply(nets.unit, but(x, 1, x[1] / 2), labels)
    np.testing.assert_array_equal(base[0], other_group[0])
    # Normalised with the group: one record changes the logits of the others in it.
    one_record = nets.apply(nets.unit, but(x, (1, 0), 0), labels)
    assert largest((base - one_record)[1, 1:]) > 1e-6
    relabelled = nets.apply(nets.unit, x, but(labels, (1, 0), labels[1, 0] - 1))
    assert largest((base - relabelled)[1, 0]) > 1e-5


def test_sealed_records_and_fakes_have_the_same_form(nets):
    x = records(nets.spec)
    fakes = x if isinstance(nets.spec, TableSpec) else x / 255
    np.testing.assert_allclose(*compiled(lambda x, fakes: (nets.d.features(x),
                                                           nets.d.patches(fakes)))(x, fakes),
                               atol=1e-7)


def test_vmapped_units_equal_single_ones(nets):
    x = uniform(2, 2, 5, *nets.spec.shape)
    labels = np.stack([LABELS[2:], LABELS[:10]]).reshape(2, 2, 5)
    together = compiled(jax.vmap(nets.d.apply))(nets.units, x, labels)
    alone = [nets.apply(jax.tree.map(lambda a, u=u: a[u], nets.units), x[u], labels[u])
             for u in (0, 1)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("layers", ["published", "paper"])
def test_a_generator_draws_latents_as_its_configuration_says(layers):
    net = GeneratorNet(latent=4, hidden=8, channels=4, latent_distribution="gaussian")
    made = pair(ImageSpec(8, 8, 1, 3), net, DiscriminatorNet(4, 4, 8), layers)[0]
    np.testing.assert_array_equal(made.latents(jax.random.key(3), 5),
                                  jax.random.normal(jax.random.key(3), (5, 4)))


def test_unknown_layers_are_refused_in_one_line():
    for spec in (TABLE, IMAGE):
        with pytest.raises(UserError, match="'deep'") as error:
            pair(spec, GeneratorNet(), DiscriminatorNet(), "deep")
        assert "\n" not in str(error.value)
