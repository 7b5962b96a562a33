"""The part of training images by which settings are chosen: no test image is in it."""

import dataclasses

import numpy as np
import pytest
import small_datalens

from benchmarks import validation_part
from dpgen_jax import data
from dpgen_jax.data import from_arrays

pytestmark = pytest.mark.long


def test_both_parts_are_of_the_training_images_alone(tmp_path, monkeypatch, capsys):
    x, y = small_datalens.images(60)
    tested = {"x_test": np.full((9, *x.shape[1:]), 255, x.dtype), "y_test": np.zeros(9, np.int32)}
    whole = dataclasses.replace(from_arrays(x, y, 3), **tested)
    monkeypatch.setattr(data, "load", lambda name, classes: whole)
    validation_part.main(["--dataset", "any", "--share", "0.2", "--out", str(tmp_path / "v.npz")])
    assert "48 training and 12 validation records" in capsys.readouterr().out
    made = np.load(tmp_path / "v.npz")
    both = np.concatenate([made["x_train"], made["x_test"]])
    assert made["classes"] == 3
    assert sorted(map(np.ndarray.tobytes, both)) == sorted(map(np.ndarray.tobytes, whole.x_train))
