"""`npz:FILE`: layouts, float images, declared classes, and bad files."""

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import load

X = np.arange(4 * 8 * 8 * 3, dtype=np.uint8).reshape(4, 8, 8, 3)
Y = np.array([0, 1, 2, 1])


@pytest.fixture
def save(tmp_path):
    def write(**arrays) -> str:
        np.savez(tmp_path / "some.npz", **arrays)
        return f"npz:{tmp_path / 'some.npz'}"
    return write


def test_colour_with_test_part(save):
    data = load(save(x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2]), classes=5)
    assert data.name == "some" and data.spec == ImageSpec(8, 8, 3, 5)
    np.testing.assert_array_equal(data.x_train, X)
    assert data.x_test.shape == (2, 8, 8, 3) and data.y_test.dtype == np.int32


def test_gray_without_channel_and_stored_classes(save):
    data = load(save(x_train=X[..., 0], y_train=Y.astype(np.uint64), classes=3))
    assert data.spec == ImageSpec(8, 8, 1, 3) and data.x_test is None
    assert load(save(x_train=X, y_train=Y, classes=3), classes=7).spec.classes == 7


def test_classes_are_never_read_off_the_labels(save):
    refused("pass --classes N", load, save(x_train=X, y_train=Y))
    refused("pass --classes N", load, save(x_train=X, y_train=Y, classes=np.array(["a", "b"])))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_become_bytes(save, dtype):
    data = load(save(x_train=(X / 255).astype(dtype), y_train=Y), classes=3)
    assert data.x_train.dtype == np.uint8
    assert abs(data.x_train.astype(int) - X).max() <= (dtype == np.float16)


@pytest.mark.parametrize("value", [1.01, -0.01, np.nan, np.inf])
def test_float_outside_the_unit_interval(save, value):
    x = np.zeros((4, 8, 8), np.float32)
    x[2, 3, 3] = value
    refused("x_train: row 2 has values outside", load, save(x_train=x, y_train=Y), classes=3)


@pytest.mark.parametrize("change, match", [
    ({"y_train": Y.astype(np.float32)}, "labels are float32, expected integers 0..2"),
    ({"y_train": Y + 1}, "label 3 in row 2"),
    ({"y_train": Y[:3]}, "4 records but labels"),
    ({"y_train": Y[:, None]}, r"labels of shape \(4, 1\)"),
    ({"x_train": X.astype(np.int32)}, "images are int32"),
    ({"x_train": X.transpose(0, 3, 1, 2)}, "1 or 3 channels"),
    ({"x_train": np.zeros((0, 8, 8)), "y_train": Y[:0]}, "no records"),
    ({"x_test": X}, "x_test and y_test may come together"),
    ({"x_test": X[:, :4], "y_test": Y}, "test images are"),
    ({"y_train": np.array(["a", None], object)}, "without pickles"),
])
def test_bad_arrays(save, change, match):
    refused(match, load, save(**{"x_train": X, "y_train": Y, **change}), classes=3)


def test_missing_arrays(save):
    with pytest.raises(UserError, match="holds other, x_train; x_train and y_train are needed"):
        load(save(x_train=X, other=Y), classes=3)


@pytest.mark.parametrize("damage", [
    lambda data: b"garbage", lambda data: b"", lambda data: data[:200],
    lambda data: data[:300] + b"\x55" * 20 + data[320:]])
def test_corrupt_file(save, tmp_path, damage):
    spec = save(x_train=X, y_train=Y)
    path = tmp_path / "some.npz"
    path.write_bytes(damage(path.read_bytes()))
    refused("some.npz cannot be read as npz", load, spec, classes=3)


def test_single_array_and_missing_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    refused("is a single .npy array", load, f"npz:{tmp_path / 'x.npy'}", classes=3)
    refused("none.npz not found", load, f"npz:{tmp_path / 'none.npz'}", classes=3)
    refused("is not a regular file", load, f"npz:{tmp_path}", classes=3)
