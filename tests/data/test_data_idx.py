"""`idx:DIR`: the MNIST layout and each way in which its files can be wrong."""

import gzip
import struct

import numpy as np
import pytest
from refusals import refused

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.data import content, load

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
X = np.arange(6 * 5 * 4, dtype=np.uint8).reshape(6, 5, 4)
Y = np.array([0, 1, 2, 9, 4, 5], np.uint8)


def encode(array: np.ndarray) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
    return header + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "my set"
    path.mkdir()
    (path / IMAGES).write_bytes(encode(X))
    (path / f"{LABELS}.gz").write_bytes(gzip.compress(encode(Y)))
    return path


def test_plain_and_gz_without_test_part(folder):
    data = load(f"idx:{folder}")
    assert data.name == "my-set" and data.spec == ImageSpec(5, 4, 1, 10)
    np.testing.assert_array_equal(data.x_train[..., 0], X)
    np.testing.assert_array_equal(data.y_train, Y)
    assert data.y_train.dtype == np.int32 and not data.x_train.flags.writeable
    assert data.x_test is None and data.y_test is None


def test_test_part_and_more_classes(folder):
    (folder / "t10k-images-idx3-ubyte").write_bytes(encode(X[:2]))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(encode(Y[:2]))
    data = load(f"idx:{folder}", classes=26, image_size=8)
    assert data.spec == ImageSpec(8, 8, 1, 26) and len(data.y_test) == 2


def test_found_under_dpgen_data(folder, monkeypatch):
    monkeypatch.setenv("DPGEN_DATA", str(folder.parent))
    assert len(load("idx:my set").y_train) == 6


def test_missing_folder_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path / "elsewhere"))
    refused("nowhere not found; looked at .*elsewhere.nowhere", load, "idx:nowhere")


def test_missing_file(folder):
    (folder / IMAGES).unlink()
    refused(rf"{IMAGES}\[.gz\] is missing", load, f"idx:{folder}")


def test_half_a_test_part(folder):
    (folder / "t10k-images-idx3-ubyte").write_bytes(encode(X))
    refused("t10k-labels-idx1-ubyte.* is missing", load, f"idx:{folder}")


@pytest.mark.parametrize("content, match", [
    (encode(X)[:-7], "truncated by 7 bytes"),
    (encode(X) + b"abc", "too long by 3 bytes"),
    (encode(X)[:9], "truncated: 9 bytes, and its header needs 16"),
    (b"", "truncated: 0 bytes"),
    (encode(Y), "starts with bytes 00000801, an idx3 file with 00000803"),
    (b"PK\x03\x04" + bytes(100), "starts with bytes 504b0304"),
    (encode(X[:4]), "holds 4 images, .* 6 labels"),
    (encode(X[:, :3]), "images are 3 x 4 pixels"),
    (encode(X[:0]), "holds 0 images"),
    (struct.pack(">4I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1), "truncated by"),
])
def test_bad_images_file(folder, content, match):
    (folder / IMAGES).write_bytes(content)
    refused(match, load, f"idx:{folder}")


@pytest.mark.parametrize("damage", [
    lambda data: data[:-9], lambda data: b"not gzip", lambda data: b"",
    lambda data: data[:12] + b"\xff\xff\xff" + data[15:], lambda data: data[:-6] + b"abcdef"])
def test_corrupt_gzip(folder, damage):
    path = folder / f"{LABELS}.gz"
    path.write_bytes(damage(path.read_bytes()))
    refused(f"{LABELS}.gz (cannot be read|is truncated|starts with)", load, f"idx:{folder}")


def test_label_outside_the_declared_classes(folder):
    refused("label 9 in row 3 is outside the declared 0..4", load, f"idx:{folder}", classes=5)


def test_the_same_files_are_known_however_they_are_read(folder, tmp_path):
    """For the journal, which knew arrays alone: another size or share of MNIST was another set."""
    known = {load(f"idx:{folder}", **options).content
             for options in ({}, {"image_size": 8}, {"test_fraction": 0.5}, {"classes": 12})}
    assert known == {content(f"idx:{folder}")} == {content(str(folder))} and known != {""}
    (folder / f"{LABELS}.gz").write_bytes(gzip.compress(encode(Y[::-1].copy())))
    assert content(f"idx:{folder}") not in known
    np.savez(tmp_path / "a.npz", x_train=X, y_train=Y, classes=10)
    one, other = (load(f"npz:{tmp_path / 'a.npz'}", image_size=size) for size in (None, 8))
    assert one.content == other.content == content(f"npz:{tmp_path / 'a.npz'}")
    assert content("glyphs") == load("glyphs").content == ""
    assert content("tfds:mnist") == content("tfds:mnist:3.0.1") != content("tfds:emnist")
