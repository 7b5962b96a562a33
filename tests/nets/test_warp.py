"""Affine maps of generated images."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.core.types import Column, ImageSpec, TableSpec, UserError
from dpgen_jax.nets.image import SHIFT, DiscriminatorNet, GeneratorNet, affine, beyond, moved
from dpgen_jax.nets.pair import pair

pytestmark = pytest.mark.slow

SPEC = ImageSpec(8, 8, 1, 3)


def entries(**at):
    return jnp.zeros((1, 6)).at[0, jnp.array([int(k[1:]) for k in at])].set(
        jnp.array(list(at.values())))


def test_the_identity_moves_nothing():
    images = jax.random.uniform(jax.random.key(0), (3, 8, 12, 2))
    np.testing.assert_allclose(affine(images, jnp.zeros((3, 6))), images, atol=1e-6)


def test_a_shift_reads_from_where_it_says_and_0_outside():
    image = jnp.arange(25.0).reshape(1, 5, 5, 1) + 1
    pixels = 2 / (5 - 1) / SHIFT  # one pixel, in halves of a side
    down = affine(image, entries(e4=pixels))
    np.testing.assert_allclose(down[0, :4, :, 0], image[0, 1:, :, 0], atol=1e-4)
    assert not np.any(down[0, 4])
    right = affine(image, entries(e5=-pixels))
    np.testing.assert_allclose(right[0, :, 1:, 0], image[0, :, :-1, 0], atol=1e-4)
    assert not np.any(right[0, :, 0])


@pytest.mark.parametrize("matrix, turn", [
    ({"e0": -2.0}, lambda i: i[::-1]), ({"e3": -2.0}, lambda i: i[:, ::-1]),
    ({"e0": -1.0, "e1": 1.0, "e2": 1.0, "e3": -1.0}, lambda i: i.T)])
def test_known_maps(matrix, turn):
    image = np.random.default_rng(0).random((6, 6)).astype(np.float32)
    moved = affine(jnp.asarray(image)[None, ..., None], entries(**matrix))
    np.testing.assert_allclose(moved[0, ..., 0], turn(image), atol=1e-5)


def test_values_stay_in_their_range_and_slopes_are_finite():
    key = jax.random.key(1)
    images = jax.random.uniform(key, (4, 8, 8, 1))

    def total(e):
        return jnp.sum(affine(images, e) ** 2)

    e = jax.random.uniform(key, (4, 6), minval=-0.9, maxval=0.9)
    moved = affine(images, e)
    assert moved.min() >= 0 and moved.max() <= 1 + 1e-6
    assert np.isfinite(jax.grad(total)(e)).all()


@pytest.mark.parametrize(("channels", "outside"), [(1, "constant"), (3, "nearest")])
def test_each_image_is_a_function_of_its_own_latent(channels, outside):
    spec = dataclasses.replace(SPEC, channels=channels)
    net, _ = pair(spec, GeneratorNet(8, 16, 4, warp=0.3), DiscriminatorNet())
    key, labels = jax.random.key(2), jnp.arange(30) % 3
    z = net.latents(key, 30)
    model = net.freeze(net.init(key), z, labels)
    images = net.sample(model, key, z, labels)
    alone = net.sample(model, key, z[7:8], labels[7:8])
    np.testing.assert_allclose(alone[0], images[7], atol=1e-6)
    still, _ = pair(spec, GeneratorNet(8, 16, 4), DiscriminatorNet())
    assert still.sample({k: v["images"] for k, v in model.items()}, key, z, labels).shape \
        == images.shape
    np.testing.assert_allclose(
        affine(still.sample({k: v["images"] for k, v in model.items()}, key, z, labels),
               0.3 * z[:, :6], outside), images, atol=1e-6)


def test_a_scene_in_colour_does_not_end_in_a_black_frame():
    white, smaller = jnp.ones((1, 8, 8, 3)), entries(e0=0.5, e3=0.5)
    assert affine(white, smaller, beyond(3)).min() == 1 and affine(white, smaller,
                                                                   beyond(1)).min() == 0


@pytest.mark.parametrize("warp", [-0.1, 1.0, float("nan")])
def test_a_warp_out_of_range_is_refused(warp):
    with pytest.raises(UserError, match="warp is"):
        GeneratorNet(warp=warp)


def test_too_few_latents_are_refused():
    with pytest.raises(UserError, match="latent is 5; warp takes 6 latents"):
        pair(SPEC, GeneratorNet(5, 16, 4, warp=0.1), DiscriminatorNet())


def test_a_table_is_refused():
    with pytest.raises(UserError, match="which moves images; set it to 0 for a table"):
        moved(GeneratorNet(warp=0.1), None, TableSpec(
            (Column("age", "continuous", 0, 9),),
            Column("label", "categorical", categories=("no", "yes")), 1))
