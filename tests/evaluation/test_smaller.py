"""Large images are made smaller before they are measured, synthetic and real ones alike."""

import numpy as np
import pytest

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.data.base import Dataset
from dpgen_jax.evaluation import assess


@pytest.mark.parametrize(("height", "width", "by"), [
    (28, 28, 1), (64, 64, 1), (68, 64, 2), (512, 512, 8), (64, 1024, 8), (32, 512, 4), (4, 99, 1)])
def test_images_are_as_small_as_the_largest_unless_too_small_for_a_network(height, width, by):
    spec = ImageSpec(height, width, 3, 2)
    assert assess.smaller_factor(spec) == by
    x = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    made = assess.reduced(x, by)
    assert made.dtype == np.uint8 and max(made.shape[1:3]) <= max(
        assess.LARGEST, assess.LEAST * max(height, width) / min(height, width), 99 * (by == 1))
    assert min(made.shape[1:3]) >= min(assess.LEAST, height, width)
    assert len(assess.smaller_note(spec)) == (by > 1)
    if by > 1:
        note = assess.smaller_note(spec)[0]
        assert f"at {made.shape[1]} x {made.shape[2]}, each pixel the mean of" in note


def test_a_pixel_is_the_mean_of_its_square_and_an_edge_goes_on():
    x = np.array([[0, 2, 9], [4, 6, 11]], np.uint8)[None, ..., None]
    assert assess.reduced(x, 2)[0, ..., 0].tolist() == [[3, 10]]
    assert assess.reduced(x, 1) is x


def test_a_data_set_keeps_all_but_the_size_of_its_images():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (5, 8, 8, 1), dtype=np.uint8), np.arange(5) % 2
    whole = Dataset("made", ImageSpec(8, 8, 1, 2), x, y, x[:3], y[:3])
    made = assess.smaller_dataset(whole, 4)
    assert made.x_train.shape == (5, 2, 2, 1) and made.x_test.shape == (3, 2, 2, 1)
    assert (made.name, made.spec) == (whole.name, whole.spec)
    assert made.y_train is whole.y_train and made.y_test is whole.y_test
