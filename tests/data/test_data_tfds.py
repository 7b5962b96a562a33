"""`tfds:NAME`, on a data set that is prepared here without TensorFlow."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dpgen_jax.data import load, tfds
from dpgen_jax.types import UserError

pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data sets prepared in a random-access format."""
    from tiny_tfds.tiny_tfds_dataset_builder import TinyTexts, TinyTfds
    path = tmp_path_factory.mktemp("tfds")
    for builder in (TinyTfds, TinyTexts):
        builder(data_dir=path, file_format="array_record").download_and_prepare()
    return path


@pytest.fixture(autouse=True)
def data_dir(folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder))


@pytest.mark.parametrize("spec, name", [("tfds:tiny_tfds", "tiny_tfds"),
                                        ("tfds:tiny_tfds:1.0.0", "tiny_tfds-1.0.0")])
def test_reads_prepared_data(spec, name):
    data = load(spec)
    assert data.name == name
    assert data.spec.shape == (8, 8, 1) and data.spec.classes == 3
    assert (len(data.x_train), len(data.x_test)) == (12, 6)
    filled = data.x_train[:, 0, 0, 0]  # tfds shuffles the records
    assert sorted(filled) == [20 * i for i in range(12)]
    np.testing.assert_array_equal(data.y_train, filled // 20 % 3)
    assert (data.x_train == filled[:, None, None, None]).all() and not data.uncovered


@pytest.mark.parametrize(("shape", "image_size", "expected"), [
    ((None, None, 1), None, ["--image-size 8"]), ((None, None, 1), 8, []),
    ((8, 8, None), None, ["the number of channels in the data set's description"])])
def test_what_the_description_leaves_open_is_uncovered(shape, image_size, expected):
    """The first record decides it, so that replacing that record would change the schema."""
    found = tfds._undescribed(load("tfds:tiny_tfds"), shape, image_size)
    assert [entry.declare for entry in found] == expected


def test_resizes():
    assert load("tfds:tiny_tfds", image_size=4).spec.shape == (4, 4, 1)


def test_no_such_data_set():
    with pytest.raises(UserError, match="not_there not found under .*TFDS_DATA_DIR"):
        load("tfds:not_there")
    with pytest.raises(UserError, match="'train'"):
        load("tfds:bad name!")


def test_not_prepared_for_random_access():
    with pytest.raises(UserError, match="random-access format; run .*array_record"):
        load("tfds:mnist")


def test_not_images():
    with pytest.raises(UserError, match="has features words"):
        load("tfds:tiny_texts")


def test_other_class_count():
    with pytest.raises(UserError, match="has 3 classes, --classes 5 was given"):
        load("tfds:tiny_tfds", classes=5)


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UserError, match="pip install tensorflow-datasets"):
        load("tfds:tiny_tfds")


def test_other_sources_import_none_of_it():
    code = ("import sys, dpgen_jax.data; "
            "print({'tensorflow_datasets', 'sklearn', 'matplotlib'} & set(sys.modules))")
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True,
                         check=True)
    assert out.stdout.strip() == "set()"
