"""Large arrays are mapped: they are the same as read ones, and take no memory of their own."""

import gzip
import struct
import zipfile

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core import arrays, files
from dpgen_jax.data import base, load

X = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
Y = np.arange(50) % 3


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(base, "LARGE_ARRAY", 1)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("x", [X, X[..., 0], np.asfortranarray(X)])
def test_an_npz_file(tmp_path, monkeypatch, save, x):
    save(tmp_path / "a.npz", y_train=Y, x_train=x, classes=3)
    data = load(f"npz:{tmp_path / 'a.npz'}")
    by_row = x.flags.c_contiguous or x.ndim == 3
    monkeypatch.setattr(base, "LARGE_ARRAY", 10**9)
    read = load(f"npz:{tmp_path / 'a.npz'}")
    assert bool(arrays.mapping(data.x_train)) == (save is np.savez and by_row)
    assert not arrays.mapping(read.x_train)
    np.testing.assert_array_equal(data.x_train, read.x_train)
    np.testing.assert_array_equal(data.y_train, read.y_train)
    assert not data.x_train.flags.writeable


def test_features_in_a_file_with_other_members(tmp_path):
    """An array need not begin where a number of its type may."""
    x = np.random.default_rng(1).random((20, 5), np.float32)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("about.txt", "abc")
        for name, array in {"x_train": x, "y_train": Y[:20], "classes": np.int64(3)}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    np.testing.assert_array_equal(load(f"npz:{tmp_path / 'a.npz'}").x_train, x)


def test_a_damaged_array_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, classes=3)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[content.index(X.tobytes()) + 7] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    refused(r"a\.npz cannot be read .*CRC", load, f"npz:{tmp_path / 'a.npz'}")


def test_what_is_mapped_needs_no_memory(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, classes=3)
    np.savez_compressed(tmp_path / "b.npz", x_train=X, y_train=Y, classes=3)
    with files.limited(1e-6):
        assert len(load(f"npz:{tmp_path / 'a.npz'}").x_train) == 50
        refused("whose arrays unpack to that, takes", load, f"npz:{tmp_path / 'b.npz'}")


@pytest.mark.parametrize("packed", [False, True])
def test_the_layout_of_mnist(tmp_path, packed):
    for name, array in (("images-idx3", X[..., 0]), ("labels-idx1", Y.astype(np.uint8))):
        content = bytes((0, 0, 8, array.ndim)) + struct.pack(
            f">{array.ndim}I", *array.shape) + array.tobytes()
        file = tmp_path / f"train-{name}-ubyte{'.gz' * packed}"
        file.write_bytes(gzip.compress(content) if packed else content)
    data = load(f"idx:{tmp_path}")
    assert bool(arrays.mapping(data.x_train)) is not packed
    np.testing.assert_array_equal(data.x_train[..., 0], X[..., 0])
    assert data.y_train.tolist() == Y.tolist()
