"""Features [n, F] of an npz file: a table by public bounds, with empty slots and clients."""

import dataclasses

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.errors import UserError
from dpgen_jax.core.types import EMPTY, ImageSpec
from dpgen_jax.data import load
from dpgen_jax.data.base import Dataset, Uncovered, frozen
from dpgen_jax.data.images import npz
from dpgen_jax.data.table import transform

X = np.linspace(0, 1, 5 * 12, dtype=np.float32).reshape(5, 12)
Y = np.array([0, 2, 1, 1, 0])


@pytest.fixture
def save(tmp_path):
    def write(**arrays) -> str:
        np.savez(tmp_path / "some.npz", **arrays)
        return f"npz:{tmp_path / 'some.npz'}"
    return write


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_users_own_features_are_a_table(save, dtype):
    data = load(save(x_train=X.astype(dtype), y_train=Y, x_test=X[:2], y_test=Y[:2], classes=3))
    assert data.name == "some" and not data.uncovered and "user's own" in data.notes[0]
    assert data.x_train.dtype == np.float32 and data.y_train.dtype == np.int32
    np.testing.assert_allclose(data.x_train, X, atol=1e-3)
    assert [column.name for column in data.spec.columns[:2]] == ["f00", "f01"]
    assert {(c.kind, c.low, c.high) for c in data.spec.columns} == {("continuous", 0.0, 1.0)}
    assert data.spec.shape == (12,) and data.spec.class_names == ("0", "1", "2")
    assert load(save(x_train=X, y_train=Y), classes=7).spec.classes == 7


def images(**fields) -> Dataset:
    """Five images, the fourth of which is an empty slot."""
    y = np.where(np.arange(5) == 3, EMPTY, Y)
    return dataclasses.replace(Dataset(
        "scans", ImageSpec(4, 4, 1, 3, ("a", "b", "c")), frozen(np.zeros((5, 4, 4, 1)), np.uint8),
        frozen(y, np.int32), frozen(np.zeros((2, 4, 4, 1)), np.uint8), frozen(Y[:2], np.int32),
        notes=("a public line",)), **fields)


def test_what_is_known_of_the_images_is_kept(save):
    uncovered = (Uncovered("the channels are read from the files", "--channels 1"),)
    data = images(clients=np.array([1, 0, 1, 1, 0], np.int32), uncovered=uncovered)
    stored = npz.feature_arrays(data, X, X[:2], 3.0, ("another line",))
    read = load(save(**stored))
    assert read.uncovered == uncovered and read.notes == ("a public line", "another line")
    assert read.spec.class_names == ("a", "b", "c") and read.clients.tolist() == [1, 0, 1, 1, 0]
    assert read.y_train.tolist() == [0, 2, 1, EMPTY, 0] and not read.x_train[3].any()
    np.testing.assert_array_equal(read.x_train[[0, 1, 2, 4]], X[[0, 1, 2, 4]])
    np.testing.assert_array_equal(read.x_test, X[:2])
    assert np.max(transform.decode(read.spec, read.x_train)) == pytest.approx(3.0)


def test_an_entry_is_clipped_by_the_bound_alone():
    x = np.array([[0.0, 1.5, 3.0], [-1.0, 9.0, np.nan], [np.inf, 0.3, 0.0]], np.float32)
    encoded = npz.encode_features(x, 3.0)
    np.testing.assert_allclose(encoded, [[0, .5, 1], [0, 1, 0], [1, .1, 0]], atol=1e-7)
    for row in range(3):  # replacing a record replaces one row
        changed = x.copy()
        changed[row] = 2.0
        others = np.arange(3) != row
        np.testing.assert_array_equal(npz.encode_features(changed, 3.0)[others], encoded[others])


@pytest.mark.parametrize(("change", "match"), [
    ({"x_train": X + 1}, "x_train: row 0 has values outside"),
    ({"x_train": np.arange(10).reshape(5, 2)}, "features are floats"),
    ({"y_train": Y + 1}, "label 3 in row 1"),
    ({"y_train": Y[:3]}, "5 records but labels"),
    ({"y_train": Y - 1}, "label -1 in row 0"),
    ({"x_test": X[:2, :3], "y_test": Y[:2]}, "12 features of training records and 3 of test"),
    ({"classes": 0}, "0 classes declared"),
    ({"features_bound": 0.0}, "not a number above 0"),
    ({"features_bound": "x"}, "not a number above 0"),
    ({"features_empty": np.zeros(4, bool)}, "one bool per training record"),
    ({"features_empty": np.ones(5, bool)}, "an empty slot has features"),
    ({"features_class_names": np.array(["a", "a", "b"])}, "3 class names for 3 classes"),
    ({"features_notes": np.zeros(3)}, "features_notes is float64"),
    ({"features_uncovered": np.array(["a"])}, "features_uncovered is")])
def test_bad_arrays_are_named(save, change, match):
    spec = save(**({"x_train": X, "y_train": Y, "classes": 3} | change))
    refused(match, load, spec)


def test_features_are_not_resized(save):
    with pytest.raises(UserError, match="contains features and no images; drop --image-size"):
        load(save(x_train=X, y_train=Y, classes=3), image_size=8)
