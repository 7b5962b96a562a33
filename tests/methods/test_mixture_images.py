"""Images of a mixture: floors of their quality, and records that nobody would choose."""

import functools

import numpy as np
import pytest
import small_mixture
from sklearn.linear_model import LogisticRegression

from dpgen_jax import data
from dpgen_jax.core.config import Budget
from dpgen_jax.core.types import BudgetExceeded, ImageSpec, UserError
from dpgen_jax.methods import mixture
from dpgen_jax.run import calibrate_config, fitting


def completed(spec, n, epsilon, **fields):
    """The configuration of n records with the noise that a budget leaves."""
    return calibrate_config.complete("mixture", mixture.Config(records=n, **fields), spec,
                                     Budget(epsilon, 1e-5))


def linear_score(dataset, x, y):
    """The accuracy on real records of a linear classifier of synthetic ones, floats in [0, 1]."""
    judge = LogisticRegression(max_iter=300).fit(x.reshape(len(x), -1), y)
    return judge.score(dataset.x_test.reshape(len(dataset.x_test), -1) / 255, dataset.y_test)


@pytest.mark.parametrize(("name", "n", "epsilon", "floor"), [
    ("digits", 1437, 10.0, 0.75), ("glyphs", 4000, 3.0, 0.75)])
def test_digits_are_recognised_by_what_was_made(name, n, epsilon, floor):
    dataset = data.load(name)
    config = completed(dataset.spec, n, epsilon)
    y = np.arange(1000) % 10
    x = small_mixture.fitted(config, dataset.spec)(dataset.x_train[:n], dataset.y_train[:n], y)
    assert linear_score(dataset, x, y) > floor


@pytest.mark.slow
def test_mnist_is_recognised_by_what_a_run_made(tmp_path):
    try:
        mnist = data.load("idx:mnist")
    except UserError:
        pytest.skip("needs MNIST in DPGEN_DATA")
    made = fitting.fit("mixture", mnist, epsilon=1.0, delta=1e-5, out=tmp_path / "run")
    x, y = made.sample(4000, seed=0)
    assert linear_score(mnist, x / 255, y) > 0.83 and made.privacy["epsilon"] == 1.0


# Records that nobody would choose.

@functools.cache
def usual():
    """A fit of 96 images of 8 x 8 pixels, of three classes."""
    return small_mixture.fitted(
        mixture.Config(records=96, cells=2, frequencies=4, dimensions=6, sigma=2.0, classifier=2),
        ImageSpec(8, 8, 1, 3))


NOISE = np.random.default_rng(0).integers(0, 256, (96, 8, 8, 1), dtype=np.uint8)
LABELS = np.arange(96) % 3


@pytest.mark.slow
@pytest.mark.parametrize(("x", "y"), {
    "as usual": (NOISE, LABELS), "black": (0 * NOISE, LABELS), "white": (0 * NOISE + 255, LABELS),
    "grey": (0 * NOISE + 128, LABELS), "one image": (np.tile(NOISE[:1], (96, 1, 1, 1)), LABELS),
    "three of a class": (NOISE, np.where(np.arange(96) < 3, 2, np.arange(96) % 2)),
    "an empty class": (NOISE, np.arange(96) % 2), "one class": (NOISE, 0 * LABELS),
    "empty slots": (NOISE, 0 * LABELS - 1)}.values())
def test_records_that_nobody_would_choose_make_images_all_the_same(x, y):
    made = usual()(x, y, np.arange(60) % 3)
    assert made.shape == (60, 8, 8, 1) and np.isfinite(made).all()
    assert made.min() >= 0 and made.max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("side", "classes", "n", "epsilon"), [
    pytest.param(512, 2, 8, 100.0, marks=pytest.mark.long), (8, 300, 300, 0.01), (4, 1, 2, 1.0)])
def test_few_records_large_images_and_many_classes_make_images(side, classes, n, epsilon):
    spec = ImageSpec(side, side, 1, classes)
    x = np.random.default_rng(0).integers(0, 256, (n, side, side, 1), dtype=np.uint8)
    fit = small_mixture.fitted(completed(spec, n, epsilon), spec)
    made = fit(x, np.arange(n) % classes, np.arange(6) % classes)
    assert made.shape == (6, side, side, 1) and np.isfinite(made).all()
    assert made.min() >= 0 and made.max() <= 1


@pytest.mark.parametrize(("x", "epsilon", "error"), [
    (NOISE / 127, 1.0, r"row 0 has values outside \[0, 1\] or NaN"),
    (NOISE / 255 - 1, 1.0, r"row 0 has values outside \[0, 1\] or NaN"),
    (np.where(NOISE > 250, np.nan, NOISE / 255), 1.0, "or NaN; scale images"),
    (NOISE[:, :1, :1], 1.0, "1 x 1 pixels, expected at least 4 x 4"),
    (NOISE[:, :1], 1.0, "1 x 8 pixels, expected at least 4 x 4"),
    (NOISE, 1e-6, "epsilon 1e-06 .* needs more noise than can be drawn")])
def test_images_of_which_nothing_can_be_made_are_refused_in_one_line(tmp_path, x, epsilon, error):
    with pytest.raises((UserError, BudgetExceeded), match=error) as refusal:
        fitting.fit("mixture", x, LABELS, classes=3, epsilon=epsilon, delta=1e-5,
                    out=tmp_path / "run")
    assert "\n" not in str(refusal.value) and not (tmp_path / "run").exists()
