"""`femnist:FILE.h5`: writers as clients, variants by the file's name, and bad files."""

import sys

import h5py
import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import ImageSpec, UserError
from dpgen_jax.data import load
from dpgen_jax.data.clients import with_declared_clients

WRITERS = {"f0003_42": [9, 0], "f0000_14": [3, 61, 5], "f0001_41": [7]}


def write(path, writers=WRITERS, **change):
    """As TensorFlow Federated writes it; the first pixel is 1 - label / 255."""
    with h5py.File(path, "w") as file:
        for name, labels in writers.items():
            pixels = np.ones((len(labels), 28, 28), np.float32)
            pixels[:, 0, 0] -= np.array(labels) / 255
            arrays = {"pixels": pixels, "label": np.array(labels, np.int32)} | change
            for key, value in arrays.items():
                file.create_dataset(f"examples/{name}/{key}", data=value)
    return path


def test_writers_are_clients(tmp_path):
    path = write(tmp_path / "fed_emnist_train.h5")
    data = load(f"femnist:{path}")
    assert data.name == "fed_emnist_train" and data.spec == ImageSpec(28, 28, 1, 62)
    assert data.clients.tolist() == [0, 0, 0, 1, 2, 2] and data.clients.dtype == np.int32
    assert data.y_train.tolist() == [3, 61, 5, 7, 9, 0] and data.x_test is None
    np.testing.assert_array_equal(data.x_train[:, 0, 0, 0], 255 - data.y_train)
    assert (data.x_train[:, 1:] == 255).all()  # white paper stays white
    assert with_declared_clients(data, None, None).clients.tolist() == data.clients.tolist()
    with pytest.raises(ValueError, match="read-only"):
        data.clients[0] = 1


def test_the_test_file_beside(tmp_path):
    path = write(tmp_path / "fed_emnist_digitsonly_train.h5", {"a": [1, 2], "b": [9]})
    write(tmp_path / "fed_emnist_digitsonly_test.h5", {"a": [4], "b": [5]})
    write(tmp_path / "fed_emnist_test.h5")
    data = load(f"femnist:{path}", classes=10, image_size=32)
    assert data.spec == ImageSpec(32, 32, 1, 10)
    assert data.y_test.tolist() == [4, 5] and data.clients.tolist() == [0, 0, 1]


def test_classes_come_from_the_name_and_never_from_the_labels(tmp_path):
    path = write(tmp_path / "some.h5")
    refused("some.h5 does not state its number of classes", load, f"femnist:{path}")
    assert load(f"femnist:{path}", classes=99).spec.classes == 99
    path = write(tmp_path / "fed_emnist_digitsonly_train.h5")
    refused("client f0000_14: a label lies outside 0..9", load, f"femnist:{path}")
    refused("has 10 classes, --classes 62 was given", load, f"femnist:{path}", classes=62)


def test_36_classes_merge_the_case_of_letters(tmp_path):
    path = write(tmp_path / "fed_emnist_train.h5", {"w": [0, 9, 10, 35, 36, 61]})
    write(tmp_path / "fed_emnist_test.h5", {"w": [37]})
    data = load(f"femnist:{path}", classes=36)
    assert data.spec == ImageSpec(28, 28, 1, 36) and data.y_test.tolist() == [11]
    assert data.y_train.tolist() == [0, 9, 10, 35, 10, 35]
    assert data.notes[-1] == "a capital and a small letter are one class"
    assert load(f"femnist:{path}").y_train.max() == 61  # not merged
    refused("has 62 classes, --classes 26 was given", load, f"femnist:{path}", classes=26)
    write(path, {"w": [62]})
    refused("a label lies outside 0..61", load, f"femnist:{path}", classes=36)
    write(tmp_path / "fed_emnist_digitsonly_train.h5", {"w": [3]})
    with pytest.raises(UserError, match="has 10 classes, --classes 36 was given"):
        load(f"femnist:{tmp_path / 'fed_emnist_digitsonly_train.h5'}", classes=36)


@pytest.mark.parametrize(("change", "match"), [
    ({"pixels": np.ones((6, 28), np.float32)}, r"pixels are float32 of shape \(6, 28\)"),
    ({"pixels": np.ones((2, 28, 28), np.uint8)}, "pixels are uint8"),
    ({"pixels": np.full((2, 28, 28), 1.5)}, r"pixels outside \[0, 1\] or NaN"),
    ({"pixels": np.full((2, 28, 28), np.nan)}, "or NaN"),
    ({"label": np.array([1.0, 2.0])}, "label is float64"), ({"label": np.array([1])}, "2 images"),
    ({"label": np.array([1, -1])}, "a label lies outside 0..61"),
    ({"label": np.zeros(0, int), "pixels": np.ones((0, 28, 28))}, "at least 1 image")])
def test_bad_clients(tmp_path, change, match):
    path = write(tmp_path / "fed_emnist_train.h5", {"w": [1, 2]}, **change)
    line = refused(match, load, f"femnist:{path}")
    assert "client w" in line


def test_bad_files(tmp_path):
    path = tmp_path / "fed_emnist_train.h5"
    with h5py.File(path, "w") as file:
        file["other"] = 1
    refused(r"holds \['other'\], expected a group `examples`", load, f"femnist:{path}")
    with h5py.File(path, "w") as file:
        file["examples/a/pixels"] = np.ones((1, 28, 28), np.float32)
    refused("client a: no `pixels` and `label`", load, f"femnist:{path}")
    with h5py.File(path, "w") as file:
        file["examples/a"] = np.ones(3)
    refused("client a: no `pixels` and `label`", load, f"femnist:{path}")
    for content in (b"", b"garbage", write(path).read_bytes()[:900]):
        path.write_bytes(content)
        refused("cannot be read as HDF5", load, f"femnist:{path}")
    refused("none.h5 not found", load, "femnist:none.h5", classes=3)


def test_without_h5py(tmp_path, monkeypatch):
    path = write(tmp_path / "fed_emnist_train.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    refused(r"pip install 'dpgen_jax\[femnist\]'", load, f"femnist:{path}")
