"""A mixture of images in colour of 64 x 64 pixels: two classes of few records, and a hundred."""

import colorsys
import functools

import numpy as np
import pytest
import small_mixture

from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import ImageSpec
from dpgen_jax.methods import mixture
from dpgen_jax.run import calibrate_config

SIDE = 64
pytestmark = pytest.mark.slow


def colours(classes):
    """The colour of each class, float [C, 3]: hues around the circle."""
    return np.array([colorsys.hsv_to_rgb(i / classes, 0.9, 0.9) for i in range(classes)])


@functools.lru_cache(1)
def discs(n, classes):
    """Discs in the colour of their class, here and there on grounds of any grey, with noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    across = np.arange(SIDE)
    centre, radius = rng.uniform(26, 38, (n, 2)), rng.uniform(14, 22, n)
    inside = ((across[:, None] - centre[:, :1, None])**2 + (across - centre[:, 1:, None])**2
              < radius[:, None, None]**2)
    ground = np.broadcast_to(rng.uniform(0.4, 0.8, (n, 1, 1, 1)), (n, SIDE, SIDE, 3))
    x = np.where(inside[..., None], colours(classes)[labels][:, None, None], ground)
    return (255 * np.clip(x + rng.normal(0, 0.03, x.shape), 0, 1)).astype(np.uint8), labels


def made(n, classes, epsilon, each):
    """`each` images of every class, by a mixture of n records in the settings of a new user."""
    spec = ImageSpec(SIDE, SIDE, 3, classes)
    config = calibrate_config.complete("mixture", mixture.Config(records=n), spec,
                                       Budget(epsilon, 1e-5))
    labels = np.repeat(np.arange(classes), each)
    return small_mixture.fitted(config, spec)(*discs(n, classes), labels), labels


def middles(x, labels):
    """The mean colour of the middle of each class, [C, 3], about the mean of all."""
    middle = x[:, 24:40, 24:40].mean((1, 2))
    means = np.array([middle[labels == label].mean(0) for label in np.unique(labels)])
    return means - means.mean(0)


@pytest.mark.parametrize(("n", "classes", "epsilon", "least"), [
    (500, 2, 1.0, 0.3), pytest.param(500, 2, 10.0, 0.8, marks=pytest.mark.long),
    pytest.param(2000, 100, 10.0, 0.5, marks=pytest.mark.long)])
def test_classes_have_their_colours_and_images_are_neither_black_nor_white(
        n, classes, epsilon, least):
    x, labels = made(n, classes, epsilon, 200 // classes)
    real, real_labels = discs(n, classes)
    assert np.isfinite(x).all() and abs(x.mean() - real.mean() / 255) < 0.1 and x.std() > 0.1
    true, seen = middles(real / 255, real_labels), middles(x, labels)
    assert np.corrcoef(true.ravel(), seen.ravel())[0, 1] > least


@pytest.mark.parametrize(("channels", "norm", "expected"), [
    (1, None, 0.6), (3, None, 0.35), (3, 0.5, 0.5)])
def test_images_in_colour_are_taken_to_be_nearer_to_grey(channels, norm, expected):
    spec = ImageSpec(SIDE, SIDE, channels, 2)
    config = mixture.Config(records=500, sigma=1.0, norm=norm)
    assert mixture.sizes(config, spec).norm == pytest.approx(
        expected * SIDE * np.sqrt(channels))
