"""The residual generator equals the published layers, and is safe to release."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_compare import close, largest, normal

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.nets.convolution import convolve3_doubled, double
from dpgen_jax.nets.image import affine
from dpgen_jax.nets.resnet import ResNet, ResNetNet

pytestmark = pytest.mark.slow

MNIST = ImageSpec(28, 28, 1, 10)
# Height and width of the first maps, and doublings.
BASES = {MNIST: (4, 4, 3), ImageSpec(32, 32, 3, 2): (4, 4, 3), ImageSpec(12, 12, 1, 4): (3, 3, 2),
         ImageSpec(8, 8, 2, 3): (4, 4, 1), ImageSpec(64, 64, 1, 2): (4, 4, 4),
         ImageSpec(12, 20, 1, 2): (3, 5, 2)}
COMPARED = [MNIST, ImageSpec(8, 8, 2, 3), ImageSpec(12, 20, 1, 2)]  # cropped, square, neither


def conv(x, kernel, padding="SAME"):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), padding,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


def plain(p, z, labels, spec):
    """The published order of the layers, with convolutions of doubled maps."""
    base = BASES[spec]

    def norm(x):
        return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-10)

    def twice(x):
        return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)

    h = jnp.concatenate([z, jax.nn.one_hot(labels, spec.classes)], 1) @ p["linear"]
    h = norm(jnp.maximum(h + p["linear_bias"], 0).reshape(len(z), base[0], base[1], -1))
    for i in range(base[2]):
        x = twice(h)
        h = conv(twice(norm(h)), p[f"first{i}"]) + p[f"first{i}_bias"]
        h = conv(jnp.maximum(norm(h), 0), p[f"second{i}"]) + p[f"second{i}_bias"]
        h = h + conv(x, p[f"shortcut{i}"][None, None]) + p[f"shortcut{i}_bias"]
    unpadded = h.shape[1] >= spec.height + 2
    h = conv(h, p["last"], "VALID" if unpadded else "SAME") + p["last_bias"]
    return jax.nn.sigmoid(h)[:, :spec.height, :spec.width]


@pytest.mark.parametrize("spec", COMPARED, ids=str)
def test_generator_equals_the_plain_form(spec):
    g = ResNet(ResNetNet(latent=5, width=6), spec)
    params = jax.jit(g.init)(jax.random.key(0))
    z, labels = g.latents(jax.random.key(1), 3), jnp.array([1, 0, 1])
    model = jax.jit(g.freeze)(params["weights"], params["vectors"])
    got = jax.jit(g.sample)(model, z, labels)
    assert got.shape == (3, *spec.shape)
    close(got, jax.jit(lambda p: plain(p, z, labels, spec))(model))


def test_generator_gradient_equals_the_plain_form(small):
    g, params = small
    z, labels = g.latents(jax.random.key(1), 3), jnp.arange(3)
    weight = normal(3, *g.spec.shape)
    got, want = (jax.jit(jax.grad(lambda p, f=f: jnp.sum(weight * f(p))))(params["weights"])
                 for f in (lambda p: g.sample(p, z, labels),
                           lambda p: plain(p, z, labels, g.spec)))
    jax.tree.map(close, got, want)


def test_convolution_of_a_doubled_map():
    x, kernel = normal(2, 3, 4, 5), normal(3, 3, 5, 7, seed=1)
    close(*jax.jit(lambda x, k: (convolve3_doubled(x, k), conv(double(x), k)))(x, kernel))


@pytest.fixture(scope="module")
def small():
    g = ResNet(ResNetNet(latent=6, width=8), ImageSpec(12, 12, 1, 4))
    return g, jax.jit(g.init)(jax.random.key(0))


def test_each_image_depends_on_its_own_latent_and_label(small):
    g, params = small
    z, labels = g.latents(jax.random.key(1), 5), jnp.arange(5) % 4
    generate = jax.jit(lambda z, labels: g.generate(**params, z=z, labels=labels))
    images = generate(z, labels)
    alone = generate(z[2:3], labels[2:3])
    np.testing.assert_allclose(alone[0], images[2], atol=1e-5)
    other = generate(z, (labels + 1) % 4)
    assert largest(other - images) > 1e-3
    assert float(images.min()) > 0 and float(images.max()) < 1


def test_frozen_weights_have_largest_singular_value_one(small):
    g, params = small
    weights, vectors = params["weights"], params["vectors"]
    iterate = jax.jit(g.iterate)
    for _ in range(100):
        vectors = iterate(weights, vectors)
    model = jax.jit(g.freeze)(weights, vectors)
    assert set(model) == set(weights)
    for name in vectors:
        matrix = np.asarray(model[name]).reshape(-1, model[name].shape[-1])
        np.testing.assert_allclose(np.linalg.svd(matrix)[1][0], 1, rtol=1e-3)
    z, labels = g.latents(jax.random.key(1), 3), jnp.arange(3)
    close(jax.jit(g.sample)(model, z, labels), jax.jit(g.generate)(weights, vectors, z, labels),
          1e-3)


def test_vectors_are_constants_of_the_gradient(small):
    g, params = small
    z, labels = g.latents(jax.random.key(1), 3), jnp.arange(3)
    weights, by_vectors = jax.jit(jax.grad(
        lambda w, v: jnp.sum(g.generate(w, v, z, labels)), (0, 1)))(
            params["weights"], params["vectors"])
    assert all(largest(v) == 0 for v in by_vectors.values())
    assert all(largest(w) > 0 and np.isfinite(w).all() for w in weights.values())


def test_latents_are_fair_bits(small):
    z = small[0].latents(jax.random.key(0), 4000)
    assert z.dtype == jnp.float32 and set(np.unique(z)) == {0.0, 1.0}
    assert largest(z.mean(0) - 0.5) < 0.05


def test_a_warp_moves_each_image_by_its_own_map(small):
    """Bits and images before they are moved are those of the same key without a warp."""
    g, params = small
    warped = ResNet(dataclasses.replace(g.net, warp=0.3), g.spec)
    model = jax.jit(g.freeze)(**params)
    z, labels = warped.latents(jax.random.key(1), 3000), jnp.arange(3000) % 4
    assert z.shape == (3000, 12) and np.array_equal(z[:, :6], g.latents(jax.random.key(1), 3000))
    assert 0.29 < z[:, 6:].max() < 0.3 and -0.3 < z[:, 6:].min() < -0.29
    assert largest(z[:, 6:].mean(0)) < 0.02
    unmoved = g.sample(model, z[:9, :6], labels[:9])
    images = warped.sample(model, z[:9], labels[:9])
    close(images, affine(unmoved, z[:9, 6:]))
    assert largest(images - unmoved) > 0.1
    shapes = jax.tree.map(jnp.shape, params)
    assert jax.tree.map(jnp.shape, warped.init(jax.random.key(0))) == shapes


def test_published_parameter_count():
    shapes = jax.eval_shape(ResNet(ResNetNet(), MNIST).init, jax.random.key(0))["weights"]
    by_hand = (20 * 4096 + 4096 + 3 * (2 * (9 * 256 * 256 + 256) + 256 * 256 + 256)
               + 9 * 256 + 1)
    assert sum(np.prod(leaf.shape, dtype=int) for leaf in shapes.values()) == by_hand


def test_bad_widths_and_sizes_are_refused_in_one_line():
    with pytest.raises(UserError, match="latent is 0"):
        ResNetNet(latent=0)
    with pytest.raises(UserError, match="warp is 1.5"):
        ResNetNet(warp=1.5)
    with pytest.raises(UserError, match="width is -1"):
        ResNetNet(width=-1)
    with pytest.raises(UserError, match="2 x 8 pixels are too small") as error:
        ResNet(ResNetNet(), ImageSpec(2, 8, 1, 2))
    assert "\n" not in str(error.value)
