"""The checks of records that every door shares: what fits passes, what does not is named."""

import numpy as np
import pytest

from dpgen_jax.core import arrays
from dpgen_jax.core.types import UserError


def test_what_fits_passes():
    assert arrays.check_images("train", np.zeros((3, 5, 6))).shape == (3, 5, 6, 1)
    arrays.check_labels("train", np.array([0, 2, 1]), 3, 3)
    arrays.check_labels("train", np.array([0, -1]), 2, 1, empty=np.array([False, True]))
    arrays.check_unit_range("train", np.array([[0.0], [1.0]]))
    arrays.check_unit_range("train", np.zeros((0, 4)))
    arrays.check_unit_range("train", np.array([[1.0000001]]), tolerance=1e-6)


@pytest.mark.parametrize(("check", "match"), [
    (lambda: arrays.check_images("test", np.zeros((3, 5, 6, 2))),
     r"images have shape \(3, 5, 6, 2"),
    (lambda: arrays.check_labels("test", np.zeros(4, int), 3, 2),
     "test: 3 records but labels of shape"),
    (lambda: arrays.check_labels("test", np.zeros(3), 3, 2),
     "labels are float64, expected integers 0..1"),
    (lambda: arrays.check_labels("test", np.array([0, 2]), 2, 2),
     "label 2 in row 1 .* declared 0..1"),
    (lambda: arrays.check_labels("test", np.array([-1]), 1),
     "label -1 in row 0 .* declared from 0"),
    (lambda: arrays.check_unit_range("test", np.array([[0.0], [np.nan]])),
     "test: row 1 has values outs"),
    (lambda: arrays.check_unit_range("test", np.array([[-1e-3]])), "test: row 0")])
def test_what_does_not_is_named(check, match):
    with pytest.raises(UserError, match=match):
        check()
