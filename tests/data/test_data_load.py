"""`load`: the specs, the checks common to all sources, and the embedded data sets."""


import cpu_limit
import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import SPECS, load
from dpgen_jax.data.base import assemble, fit, safe_name
from dpgen_jax.data.images.digits import glyphs


def centroid_accuracy(data) -> float:
    x, x_test = (a.reshape(len(a), -1) / 255 for a in (data.x_train, data.x_test))
    centres = np.stack([x[data.y_train == c].mean(0) for c in range(data.spec.classes)])
    distance = ((centres**2).sum(1) - 2 * x_test @ centres.T)
    return float((distance.argmin(1) == data.y_test).mean())


@pytest.mark.parametrize("spec, hint", [
    ("glyph", "did you mean glyphs"), ("femnis", "mean femnist"), ("IDX:mnist", "did you mean idx"),
    ("folders:x", "did you mean folder:DIR"), ("", "unknown data set ''"), ("idx", "idx:DIR"),
    ("npz:", "npz:FILE"), ("glyphs:16", "did you mean glyphs"), ("feather:x", "known:"),
    ("parquet:", "parquet:FILE")])
def test_unknown_spec(spec, hint):
    with pytest.raises(UserError, match=hint) as caught:
        load(spec)
    message = str(caught.value)
    assert "\n" not in message and all(known in message for known in SPECS)


@pytest.mark.parametrize("name", ["glyphs", "digits"])
def test_embedded_class_count_is_fixed(name):
    refused("has 10 classes, --classes 3 was given", load, name, classes=3)


def test_bad_options():
    refused("--image-size 3 is too small", load, "digits", image_size=3)
    refused("--classes 0 is too small", load, "digits", classes=0)


@pytest.mark.parametrize("size", [8, 12])
def test_digits(size):
    data = load("digits", image_size=size)
    assert (data.name, data.spec) == ("digits", ImageSpec(size, size, 1, 10))
    assert (len(data.x_train), len(data.x_test)) == (1437, 360)
    assert data.x_train.max() == 255 and data.x_train.dtype == np.uint8
    assert centroid_accuracy(data) > 0.85


@pytest.fixture(scope="module")
def data_set():
    with cpu_limit.at_most(15):
        return load("glyphs")


def test_glyphs_are_complete_and_frozen(data_set):
    assert data_set.spec == ImageSpec(12, 12, 1, 10) and data_set.name == "glyphs"
    assert data_set.x_train.shape == (30000, 12, 12, 1)
    assert data_set.x_test.shape == (6000, 12, 12, 1)
    assert (data_set.x_train.dtype, data_set.y_train.dtype) == (np.uint8, np.int32)
    assert np.bincount(data_set.y_train).tolist() == [3000] * 10
    assert np.bincount(data_set.y_test).tolist() == [600] * 10
    assert len(np.unique(data_set.y_train[:100])) == 10  # shuffled
    for array in (data_set.x_train, data_set.y_train, data_set.x_test, data_set.y_test):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_glyphs_fill_the_frame(data_set):
    """White strokes on black, none faint, no digit small or cut off by much."""
    assert data_set.x_train.max((1, 2, 3)).min() > 128
    inked = data_set.x_train[..., 0] > 64
    extent = np.maximum(inked.any(1).sum(1), inked.any(2).sum(1))
    assert extent.min() >= 7 and np.median(extent) >= 9
    assert 20 < data_set.x_train.mean() < 80


def test_glyph_labels_match_pictures(data_set):
    assert centroid_accuracy(data_set) > 0.6


def test_glyphs_are_deterministic():
    first, second = glyphs(12, 300, 50), glyphs(12, 300, 50)
    np.testing.assert_array_equal(first.x_train, second.x_train)
    np.testing.assert_array_equal(first.y_test, second.y_test)
    np.testing.assert_array_equal(glyphs(12, 20, 50).x_test, first.x_test)
    assert (glyphs(12, 300, 50, seed=1).x_train != first.x_train).any()
    assert not (first.x_train[:50] == first.x_test).all((1, 2, 3)).any()


def test_glyph_options():
    assert load("glyphs", image_size=12, classes=10).spec == ImageSpec(12, 12, 1, 10)
    assert glyphs(8, 5, 0).x_test is None
    refused("n_train 0", glyphs, 16, 0)


X, Y = np.zeros((3, 4, 6, 1), np.uint8), np.array([0, 1, 1])


@pytest.mark.parametrize("x, y, classes, match", [
    (X, Y, 1, "label 1 in row 1 is outside the declared 0..0"),
    (X, np.array([0, -1, 0]), 2, "label -1 in row 1"),
    (X, Y.astype(float), 2, "labels are float64"),
    (X, Y[:2], 2, r"3 records but labels of shape \(2,\)"),
    (X, Y, 0, "0 classes declared"),
    (X[:0], Y[:0], 2, "no records"),
    (X[:, :3], Y, 2, "images are 3 x 6 pixels, expected at least 4 x 4"),
    (X.astype(np.int64), Y, 2, "images are int64, expected uint8"),
    (np.zeros((3, 8, 8, 2), np.uint8), Y, 2, "1 or 3 channels"),
    (X.reshape(3, -1), Y, 2, r"expected \[n, H, W\]"),
])
def test_common_checks(x, y, classes, match):
    refused(match, assemble, "some", classes, (x, y), None)
    refused(match, assemble, "some", classes, (X, Y * 0), (x, y))


def test_parts_must_agree_unless_resized():
    other = (np.zeros((2, 8, 8), np.uint8), np.zeros(2, int))
    refused("test images are", assemble, "some", 2, (X, Y), other)
    assert assemble("some", 2, (X, Y), other, image_size=4).spec == ImageSpec(4, 4, 1, 2)


def test_the_callers_array_stays_his():
    x = np.zeros((3, 4, 4), np.uint8)
    data = assemble("some", 2, (x, Y), None)
    x[:] = 9
    assert data.x_train.max() == 0 and data.x_test is None


def test_fit_crops_the_middle_and_antialiases():
    image = np.zeros((8, 16, 3), np.uint8)
    image[:, 4:12] = 200
    assert abs(fit(image, 4).astype(int) - 200).max() < 30
    stripes = np.zeros((16, 16, 1), np.uint8)
    stripes[:, ::2] = 255
    assert abs(fit(stripes, 4).astype(int) - 127).max() < 30
    refused("cannot resize float64", fit, np.zeros((8, 8, 1)), 4)


def test_safe_name():
    assert safe_name("../a b/c:1.0") == "a-b-c-1.0" and safe_name("..") == "data"
