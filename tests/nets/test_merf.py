"""DP-MERF's random features and generator."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.core.types import Column, ImageSpec, TableSpec, UserError
from dpgen_jax.nets import merf
from dpgen_jax.nets.convolution import Conv5x5
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.merf import RandomFeatures

IMAGE = ImageSpec(8, 12, 3, 4)
TABLE = TableSpec((Column("a", "continuous", 0.0, 1.0),
                   Column("b", "categorical", categories=("x", "y", "z")),
                   Column("c", "integer", 0.0, 9.0, nullable=True),
                   Column("d", "categorical", categories=("u", "v"))),
                  Column("class", "categorical", categories=("0", "1")), 4)
PLAIN = RandomFeatures(IMAGE, 40, (0,), (0.2,), 0.05, 0.4)
BLOCKS = [(0, 1), (1, 4), (4, 5), (5, 6), (6, 8)]


def frequencies(features, seed=0):
    return np.asarray(features.draw(jax.random.key(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("windows", [(0,), (4,), (0, 4, 7), (100,)])
@pytest.mark.parametrize("spec", [IMAGE, TABLE])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31 - 1))
def test_every_embedding_has_norm_1(spec, windows, seed):
    features = RandomFeatures(spec, 20, windows, (0.1,), 0.05, 0.4)
    x = np.random.default_rng(seed).uniform(0, 1, (3, *spec.shape)).astype(np.float32)
    if spec is TABLE:
        for start, stop in [(1, 4), (6, 8)]:
            x[:, start:stop] = np.eye(stop - start)[seed % (stop - start)]
    made = np.asarray(features.embed(features.draw(jax.random.key(seed)), jnp.asarray(x)))
    assert made.shape == (3, features.columns)
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(made[:, 0] ** 2, 0.05, rtol=1e-5)


def test_inner_products_are_the_gaussian_kernel(rng):
    features = dataclasses.replace(PLAIN, count=40_000)
    x = rng.uniform(0, 1, (2, *IMAGE.shape)).astype(np.float32)
    a, b = np.asarray(features.embed(features.draw(jax.random.key(0)), jnp.asarray(x)))
    kernel = math.exp(-np.sum((x[0] - x[1]) ** 2) / (2 * 0.2 * x[0].size))
    assert a @ b == pytest.approx(0.05 + 0.95 * kernel, abs=0.02)


def test_a_window_reads_one_square_and_its_bandwidth_is_per_number():
    features = dataclasses.replace(PLAIN, count=4000, windows=(3, 100), bandwidths=(0.2, 0.5))
    maps = frequencies(features).reshape(*IMAGE.shape, -1)
    small, whole = maps[..., ::2], maps[..., 1::2]
    read = small != 0
    assert (read.sum((0, 1, 2)) == 27).all() and (whole != 0).all()
    rows, columns = read.any((1, 2)), read.any((0, 2))
    for side in (rows, columns):  # three in a row, and every place is visited
        assert (side.sum(0) == 3).all() and side.any(1).all()
        assert (np.diff(side.astype(int), axis=0, prepend=0, append=0) == 1).sum() == 1000
    assert small[read].var() == pytest.approx(1 / (0.2 * 27), rel=0.05)
    assert whole.var() == pytest.approx(1 / (0.5 * 8 * 12 * 3), rel=0.05)


def test_a_window_of_a_table_reads_whole_columns():
    features = RandomFeatures(TABLE, 400, (2,), (0.1,), 0.05, 0.4)
    read = frequencies(features) != 0
    by_block = np.stack([read[a:b] for a, b in BLOCKS[:1]] + [read[4:5], read[5:6]])[:, 0]
    onehots = np.stack([read[1:4].all(0), read[6:8].all(0)])
    assert (read[1:4].any(0) == onehots[0]).all() and (read[6:8].any(0) == onehots[1]).all()
    assert (by_block.sum(0) + onehots.sum(0) == 2).all()


def test_onehots_are_embedded_as_they_are(rng):
    features = RandomFeatures(TABLE, 20, (0,), (0.1,), 0.05, 0.4)
    x = rng.uniform(0, 1, (2, 8)).astype(np.float32)
    made = np.asarray(features.embed(features.draw(jax.random.key(0)), jnp.asarray(x)))
    np.testing.assert_allclose(made[:, 1:6], math.sqrt(0.2) * x[:, [1, 2, 3, 6, 7]], rtol=1e-5)
    numbers = dataclasses.replace(TABLE, columns=TABLE.columns[:1])
    assert RandomFeatures(numbers, 20, (0,), (0.1,), 0.05, 0.4).columns == 21


@pytest.mark.parametrize(("field", "value"), [
    ("count", 7), ("count", 0), ("windows", ()), ("windows", (-1,)), ("bandwidths", (0.0,)),
    ("bandwidths", (0.1, 0.2, 0.3)), ("bandwidths", ()), ("constant", 0.0), ("constant", 1.0),
    ("onehots", -0.1), ("onehots", 0.95)])
def test_features_that_cannot_be_are_refused(field, value):
    with pytest.raises(UserError, match="features" if field == "count" else field):
        dataclasses.replace(PLAIN, **{field: value})


# The generator.

@pytest.mark.parametrize("spec", [ImageSpec(8, 8, 1, 10), ImageSpec(12, 12, 1, 2), IMAGE])
def test_images_have_the_declared_shape_and_range(spec):
    net = merf.generator(GeneratorNet(3, 8, 4), spec)
    labels = jnp.arange(6) % spec.classes

    @jax.jit
    def frequencies(key):
        model = net.freeze(net.init(key), net.latents(key, 6), labels)
        z = net.latents(jax.random.key(2), 6)
        return net.sample(model, key, z, labels), net.sample(model, key, z[:1], labels[:1])

    images, alone = map(np.asarray, frequencies(jax.random.key(0)))
    assert images.shape == (6, *spec.shape) and (images > 0).all() and (images < 1).all()
    np.testing.assert_allclose(alone[0], images[0], atol=1e-5)  # its own latent and label decide


def test_published_widths():
    net = merf.generator(merf.PUBLISHED, ImageSpec(28, 28, 1, 10))
    params = jax.eval_shape(net.init, jax.random.key(0))
    shapes = {"/".join(k.key for k in path): leaf.shape
              for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    kernels = sorted(shape for name, shape in shapes.items() if name.endswith("kernel"))
    assert kernels == [(5, 5, 8, 1), (5, 5, 16, 8), (15, 200), (200, 784)]


def test_the_convolution_is_a_convolution(rng):
    x = rng.normal(size=(2, 6, 5, 3)).astype(np.float32)
    layer = Conv5x5(4)
    params = layer.init(jax.random.key(0), x)
    expected = jax.lax.conv_general_dilated(
        x, params["params"]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(layer.apply(params, x), expected, atol=1e-5)


def test_doubling_is_bilinear(rng):
    x = rng.normal(size=(2, 5, 4, 3)).astype(np.float32)
    expected = jax.image.resize(x, (2, 10, 8, 3), "bilinear")
    np.testing.assert_allclose(merf.double(jnp.asarray(x)), expected, atol=1e-5)


def test_images_of_odd_sizes_are_refused():
    with pytest.raises(UserError, match="multiples of 4"):
        merf.generator(merf.PUBLISHED, ImageSpec(9, 8, 1, 2))
