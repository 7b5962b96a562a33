"""Many images of tensorflow-datasets are decoded once, to the cache, and mapped."""

import json
import os
import shutil

import numpy as np
import pytest
from refusals import refused

from dpgen_jax import train
from dpgen_jax.core import arrays, files, hosts
from dpgen_jax.data import cache, load, tfds
from dpgen_jax.data.images import files as images_files

pytest.importorskip("tensorflow_datasets")
PARTS = ("x_train", "y_train", "x_test", "y_test")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A data set in a random-access format: 12 images to train on, and 6 to test on."""
    from tiny_tfds.tiny_tfds_dataset_builder import TinyTfds
    path = tmp_path_factory.mktemp("tfds")
    TinyTfds(data_dir=path, file_format="array_record").download_and_prepare()
    return path


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    """A copy of it, of which the training part counts as large; returns its folder."""
    shutil.copytree(prepared, tmp_path / "tfds")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.setenv("DPGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images_files, "MANY", 10)
    monkeypatch.setattr(images_files, "BLOCK", 5)
    return tmp_path / "tfds/tiny_tfds/1.0.0"


@pytest.fixture
def decodes(monkeypatch):
    """The splits whose records were read."""
    seen, inner = [], tfds._records

    def records(builder, split):
        seen.append(split)
        return inner(builder, split)

    monkeypatch.setattr(tfds, "_records", records)
    return seen


def entries():
    return sorted(path.name for path in cache.location().iterdir())


@pytest.mark.parametrize("size", [None, 4])
def test_the_records_are_the_same(folder, decodes, monkeypatch, size):
    first, again = (load("tfds:tiny_tfds", image_size=size) for _ in range(2))
    assert decodes == ["test", "train", "test"]  # the test part is small
    monkeypatch.setattr(images_files, "MANY", 1000)
    small = load("tfds:tiny_tfds", image_size=size)
    for data in (first, again):
        assert arrays.mapping(data.x_train) and not arrays.mapping(data.x_test)
        assert data.spec == small.spec and data.notes == small.notes
        for name in PARTS:
            np.testing.assert_array_equal(getattr(data, name), getattr(small, name))
            assert getattr(data, name).dtype == getattr(small, name).dtype
        assert str(cache.location()) in data.private_notes[-1]
    assert not small.private_notes and not arrays.mapping(small.x_train)
    assert not first.x_train.flags.writeable


def test_another_size_or_a_changed_file_is_decoded_anew(folder, decodes):
    load("tfds:tiny_tfds")
    load("tfds:tiny_tfds", image_size=4)
    assert len(entries()) == 2 and decodes.count("train") == 2
    train, = folder.glob("*train.array_record*")
    for path in (train, folder / "features.json"):
        os.utime(path, ns=(1, 1))  # the time alone
        load("tfds:tiny_tfds")
    assert len(entries()) == 4 and decodes.count("train") == 4
    # The records of the test part in the place of those of the training part.
    test, = folder.glob("*test.array_record*")
    described = json.loads((folder / "dataset_info.json").read_text())
    for split in described["splits"]:
        split["shardLengths"] = ["6"]
    (folder / "dataset_info.json").write_text(json.dumps(described))
    shutil.copy(test, train)
    images_files.MANY = 6
    data = load("tfds:tiny_tfds")
    np.testing.assert_array_equal(data.x_train, data.x_test)
    assert arrays.mapping(data.x_train) and arrays.mapping(data.x_test)
    assert len(entries()) == 6  # one of each part, which the same files make


@pytest.mark.parametrize("damage", [
    lambda entry: (entry / "pixels.npy").write_bytes(b""),
    lambda entry: (entry / "meta.json").write_text(
        (entry / "meta.json").read_text().replace('"labels": [', '"labels": [2, ')),
    lambda entry: (entry / "meta.json").write_text('{"bad": [], "crc32": 0}')])
def test_a_damaged_entry_is_decoded_anew(folder, decodes, damage):
    expected = load("tfds:tiny_tfds").y_train
    name, = entries()
    damage(cache.location() / name)
    np.testing.assert_array_equal(load("tfds:tiny_tfds").y_train, expected)
    assert decodes.count("train") == 2 and entries() == [name]


def test_what_fails_leaves_nothing(folder):
    described = folder / "dataset_info.json"
    text = described.read_text()
    described.write_text(text.replace('"12"', '"13"'))
    refused("tfds:tiny_tfds.*prepare it again", load, "tfds:tiny_tfds")
    described.write_text(text)
    train, = folder.glob("*train.array_record*")
    train.write_bytes(train.read_bytes()[:100])
    refused("tfds:tiny_tfds cannot be read.*prepare it again", load, "tfds:tiny_tfds")
    assert not entries()


class Described:
    """A builder of records that are made here."""

    def __init__(self, data_dir, count):
        self.data_dir, self.info = str(data_dir), self
        self.splits, self.num_examples = {"train": self}, count


def test_records_that_fit_no_array(folder, tmp_path):
    def read(*images, size=None, count=None, place=folder):
        builder = Described(place, len(images) if count is None else count)
        images_files.MANY = 1
        return tfds.read_images("a", builder, "train", (
            {"image": image, "label": 1} for image in images), size)

    square = np.zeros((8, 8, 1), np.uint8)
    for image, wrong in ((np.zeros((8, 9, 1), np.uint8), "train image 1 has shape"),
                         (square.astype(np.uint16), "images are uint16")):
        refused(wrong, read, square, image)
    refused("holds 0 records and states 0", read)
    refused("holds 2 or more records and states 1", read, square, square, count=1)
    assert not entries()
    read(square, square, place=tmp_path / "gs:/bucket")  # nothing would tell of a change there
    assert not entries()
    with files.limited(100e-9):
        refused("an array of 2 images like train image 0 takes", read, square, square)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(hosts, "machines", lambda: 2)
            patched.setattr(tfds.base, "LARGE_ARRAY", 1)
            assert len(read(square, square)[1]) == 2


@pytest.mark.slow
def test_a_seeded_run_is_the_same_wherever_its_images_lie(folder, tmp_path, monkeypatch):
    made = {}
    for name, many in (("mapped", 10), ("read", 1000)):
        monkeypatch.setattr(images_files, "MANY", many)
        root = tmp_path / name
        train.command(["mixture", "--dataset=tfds:tiny_tfds", "--epsilon=5", "--delta=1e-2",
                       "--seed=3", "--out", str(root)])
        identity = json.loads((root / "private/identity.json").read_text())
        made[name] = (identity["fingerprint"],
                      (root / "release/generator.safetensors").read_bytes())
    assert made["mapped"] == made["read"] and len(entries()) == 1
