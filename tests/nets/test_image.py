"""The image networks: the fast discriminator equals the published form; the generator's parts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy_compare import but, close, largest, normal, shaken, uniform

from dpgen_jax.core.config import from_json, to_json
from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.nets.convolution import deconvolve
from dpgen_jax.nets.image import Discriminator, DiscriminatorNet, Generator, GeneratorNet, latents

pytestmark = pytest.mark.slow

SPECS = [ImageSpec(28, 28, 1, 10), ImageSpec(32, 32, 3, 2), ImageSpec(8, 12, 2, 3),
         ImageSpec(4, 4, 1, 2)]
MNIST = SPECS[0]


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def plain(p, x, labels, classes):
    """The published form, one group: label maps joined to the images, convolutions, plain BN."""
    onehot = jax.nn.one_hot(labels, classes)

    def conv(h, kernel):
        maps = jnp.broadcast_to(onehot[:, None, None], (*h.shape[:3], classes))
        return jax.lax.conv_general_dilated(jnp.concatenate([h, maps], -1), kernel, (2, 2), "SAME",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(h, scale, offset):
        axes = tuple(range(h.ndim - 1))
        return (h - h.mean(axes)) / jnp.sqrt(h.var(axes) + 1e-5) * scale + offset

    def lrelu(h):
        return jnp.where(h > 0, h, 0.2 * h)

    h = lrelu(conv(x, jnp.concatenate([p["conv1"], p["label1"]], 2)) + p["bias1"])
    h = conv(h, jnp.concatenate([p["conv2"], p["label2"]], 2)) + p["bias2"]
    h = lrelu(norm(h, p["scale2"], p["offset2"])).reshape(len(x), -1)
    h = jnp.concatenate([h, onehot], 1) @ jnp.concatenate([p["linear1"], p["label3"]]) + p["bias3"]
    h = lrelu(norm(h, p["scale3"], p["offset3"]))
    return jnp.concatenate([h, onehot], 1) @ jnp.concatenate([p["linear2"], p["label4"]]) \
        + p["bias4"]


@pytest.mark.parametrize("spec", [SPECS[0], *(
    pytest.param(spec, marks=pytest.mark.long) for spec in SPECS[1:3]), SPECS[3]], ids=str)
def test_discriminator_equals_the_plain_form(spec):
    d = Discriminator(DiscriminatorNet(), spec)
    params = shaken(jax.jit(d.init)(jax.random.key(1)))
    x, weight = uniform(2, 6, *spec.shape), normal(2, 6)
    labels = np.random.default_rng(1).integers(0, spec.classes, (2, 6))

    def value_and_grads(f):
        def both(p, x):  # arguments: constants would be folded, which takes XLA longer
            return f(p, x), jax.grad(lambda p, x: jnp.sum(weight * f(p, x)), (0, 1))(p, x)

        return jax.jit(both)(params, x)

    got = value_and_grads(lambda p, x: d.apply(p, x, labels))
    want = value_and_grads(lambda p, x: jnp.stack(
        [plain(p, x[g], labels[g], spec.classes) for g in (0, 1)]))
    close(got[0], want[0])
    # A bias before batch normalisation has no effect: its exact gradient is 0, both are rounding.
    for name in set(params) - {"bias2", "bias3"}:
        close(got[1][0][name], want[1][0][name])
    close(got[1][1], want[1][1])


def test_discriminator_parameter_count():
    assert count(jax.eval_shape(Discriminator(DiscriminatorNet(), MNIST).init,
                                jax.random.key(0))) == 555_655


def test_discriminator_initial_values():
    params = jax.jit(Discriminator(DiscriminatorNet(), MNIST).init)(jax.random.key(0))
    assert all(largest(params[n]) == 0 for n in params if n[:4] in ("bias", "offs"))
    assert all(float(params[n].min()) == 1 for n in ("scale2", "scale3"))
    for name in ("conv2", "label2"):  # truncated at two deviations, as TensorFlow does
        assert 0.035 < largest(params[name]) <= 0.04
    assert abs(float(params["linear1"].std()) / 0.02 - 1) < 0.01


def test_groups_do_not_mix():
    d = Discriminator(DiscriminatorNet(), MNIST)
    params, apply = jax.jit(d.init)(jax.random.key(0)), jax.jit(d.apply)
    x, labels = uniform(2, 5, *MNIST.shape), np.zeros((2, 5), np.int32)
    changed = apply(params, but(x, 1, 0.5), labels)
    np.testing.assert_array_equal(apply(params, x, labels)[0], changed[0])


def test_latents_have_the_distribution_that_is_named():
    """Uniform ones are bounded with variance 1/3; Gaussian ones are not, with variance 1."""
    uniform, gaussian = (np.asarray(latents(jax.random.key(0), 500, 40, name))
                         for name in ("uniform", "gaussian"))
    assert uniform.shape == gaussian.shape == (500, 40) and np.abs(uniform).max() < 1
    assert uniform.var() == pytest.approx(1 / 3, rel=0.02)
    assert gaussian.var() == pytest.approx(1, rel=0.03) and np.abs(gaussian).max() > 3
    assert GeneratorNet().latent_distribution == "uniform"


def test_a_later_field_is_written_where_it_is_not_the_default():
    """So the configurations of runs from before it, and their digests, stay what they were."""
    net = GeneratorNet(latent_distribution="gaussian")
    assert to_json(net) == to_json(GeneratorNet()) | {"latent_distribution": "gaussian"}
    assert "latent_distribution" not in to_json(GeneratorNet())
    assert from_json(GeneratorNet, to_json(net)) == net
    assert from_json(GeneratorNet, to_json(GeneratorNet())) == GeneratorNet()


def test_bounded_maps_need_bounded_latents():
    with pytest.raises(UserError, match="set latent_distribution to uniform, or warp to 0"):
        GeneratorNet(warp=0.1, latent_distribution="gaussian")
    with pytest.raises(UserError, match="latent_distribution is 'normal'; it must be uniform or g"):
        GeneratorNet(latent_distribution="normal")


def test_other_sizes_are_refused_in_one_line():
    with pytest.raises(UserError, match="--image-size 28") as error:
        Discriminator(DiscriminatorNet(), ImageSpec(27, 27, 1, 10))
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def generator():
    g = Generator(GeneratorNet(), MNIST)
    z, labels = latents(jax.random.key(1), 6, 50, "uniform"), np.arange(6)
    return g, jax.jit(lambda: g.init(jax.random.key(0), z, labels, train=True))(), z, labels


def test_generator_parameter_count(generator):
    by_hand = ((50 + 10) * 1024 + 1024 + 2 * 1024 + (1024 + 10) * 6272 + 6272 + 2 * 6272
               + 25 * (128 + 10) * 128 + 128 + 2 * 128 + 25 * (128 + 10) + 1)
    assert count(generator[1]["params"]) == by_hand


def test_stored_statistics_make_samples_independent(generator):
    g, variables, z, labels = generator
    trained, new = jax.jit(lambda variables: g.apply(
        variables, z, labels, train=True, mutable=["batch_stats"]))(variables)
    frozen = variables | new
    sample = jax.jit(functools.partial(g.apply, train=False))
    sampled = sample(frozen, z, labels)
    assert sampled.shape == (6, *MNIST.shape)
    np.testing.assert_allclose(sampled, trained, atol=1e-5)
    alone = sample(frozen, z[2:3], labels[2:3])
    np.testing.assert_allclose(alone[0], sampled[2], atol=1e-5)


@pytest.mark.parametrize("spec", [ImageSpec(32, 32, 3, 2), ImageSpec(12, 16, 1, 5)], ids=str)
def test_generator_shapes(spec):
    g = Generator(GeneratorNet(latent=8, hidden=16, channels=8), spec)
    z, labels = latents(jax.random.key(1), 4, 8, "uniform"), jnp.zeros(4, jnp.int32)
    images, _ = jax.jit(lambda key: g.init_with_output(key, z, labels, train=True))(
        jax.random.key(0))
    assert images.shape == (4, *spec.shape)
    assert float(images.min()) >= 0 and float(images.max()) <= 1


def test_deconvolution_is_the_adjoint_of_the_strided_convolution():
    x, kernel, weight = normal(2, 3, 4, 5), normal(5, 5, 6, 5, seed=1), normal(2, 6, 8, 6, seed=2)

    def adjoint(x, kernel):
        def conv(image):
            return jax.lax.conv_general_dilated(image, kernel, (2, 2), "SAME",
                                                dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.linear_transpose(conv, weight)(x)[0]

    close(jax.jit(deconvolve)(x, kernel), jax.jit(adjoint)(x, kernel))
    got, want = (jax.jit(jax.grad(lambda x, k, f=f: jnp.sum(weight * f(x, k)), (0, 1)))(x, kernel)
                 for f in (deconvolve, adjoint))
    close(got[0], want[0])
    close(got[1], want[1])
