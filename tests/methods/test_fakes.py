"""The fakes that critics and the classifier of DPAC learn from: from a pool, or drawn anew."""

import dataclasses

import jax
import numpy as np
import pytest
import small_datalens
import small_gswgan
from small_gswgan import KEY

from dpgen_jax import presets
from dpgen_jax.core.types import ImageSpec, Records
from dpgen_jax.methods import dpac, gswgan
from dpgen_jax.methods.shared.critics import fakes
from dpgen_jax.nets.resnet import ResNet, ResNetNet

SPEC = small_datalens.SPEC
RECORDS = Records(np.full((4, *SPEC.shape), 9, np.uint8), np.array([0, 1, 1, 2], np.int32))


@pytest.mark.slow
def test_without_a_pool_critics_draw_fakes_of_their_own_labels_anew_for_each_step():
    """From the generator that is queried, by the key alone; and a critic learns from them."""
    config = small_gswgan.gs(pool=0, warm_steps=0, penalty=0.0)
    method, source = gswgan.build(config, SPEC), fakes(config, SPEC)
    net = ResNet(config.generator, SPEC)

    @jax.jit
    def both(key, records):
        public, unit = method.init(KEY), method.init_unit(KEY)
        query = method.ask(KEY, public)
        expected = net.generate(public.weights, public.vectors, net.latents(key, 4), records.y)
        moved = jax.tree.map(lambda a: 2 * a, query.material)
        other = dataclasses.replace(query, material=moved)
        return (source.of_labels(key, query.material, records.y), expected,
                source.of_any(key, query.material, 5),
                [method.learn(KEY, unit, records, q)[0][0] for q in (query, other)])

    made, expected, (any_class, labels), (critic, other) = both(jax.random.key(8), RECORDS)
    np.testing.assert_allclose(made, expected, atol=1e-6)
    assert any_class.shape == (5, 8, 8, 1) and set(np.asarray(labels)) <= {0, 1, 2}
    assert np.abs(both(jax.random.key(9), RECORDS)[0] - made).max() > 1e-4
    assert not small_datalens.equal(critic, other)


@pytest.mark.parametrize("pool", [0, 2])
def test_a_query_does_not_depend_on_records(pool):
    """It holds the generator, or a pool of it: shapes alone tell them apart."""
    method = dpac.build(small_gswgan.dp(pool=pool), SPEC)
    form = jax.eval_shape(method.ask, KEY, jax.eval_shape(method.init, KEY))
    shapes = [a.shape for a in jax.tree.leaves(form.material)]
    assert ((3, 2, *SPEC.shape) in shapes) == (pool == 2)
    assert len(shapes) == (1 if pool else len(jax.eval_shape(method.init, KEY).weights))


def test_a_thousand_fakes_reach_the_classifier_in_each_step():
    """Without a pool, whatever the classes; with one, no more than it holds."""
    preset = presets.all_of("dpac")["mnist-published"].config
    assert (preset.pool, preset.fake_batch) == (0, 1000)
    config = dataclasses.replace(preset, generator=ResNetNet(6, 2))
    spec = ImageSpec(8, 8, 1, 10)
    net = ResNet(config.generator, spec)

    @jax.jit
    def made(key):
        params = net.init(key)
        model = net.freeze(params["weights"], params["vectors"])
        return fakes(config, spec).of_any(key, model, config.fake_batch)

    images, labels = made(KEY)
    assert images.shape == (1000, 8, 8, 1)
    assert np.bincount(labels, minlength=10).min() > 50
    pooled = fakes(dataclasses.replace(config, pool=4), spec)
    x, y = pooled.of_any(KEY, np.zeros((10, 4, 8, 8, 1)), config.fake_batch)
    assert len(x) == 40 and np.bincount(y).tolist() == [4] * 10
    rotation = presets.all_of("dpac")["mnist-eps10-rotation"].config
    assert rotation.pool * 10 >= rotation.fake_batch
