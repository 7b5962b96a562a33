"""Large images are made smaller before they are measured, synthetic and real ones alike."""

import numpy as np
import pytest

from dpgen_jax.core.types import ImageSpec
from dpgen_jax.evaluation import assess
from dpgen_jax.evaluation.results import Real, Synthetic


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
    real, _, part = assess._reduced(Real(spec, (x, np.zeros(2, int))), Synthetic(None))
    assert real.train is None and (real.test[0] == made).all() and len(part.notes) == (by > 1)
    for note in part.notes:
        assert f"at {made.shape[1]} x {made.shape[2]}, each pixel the mean of" in note


def test_a_pixel_is_the_mean_of_its_square_and_an_edge_goes_on():
    x = np.array([[0, 2, 9], [4, 6, 11]], np.uint8)[None, ..., None]
    assert assess.reduced(x, 2)[0, ..., 0].tolist() == [[3, 10]]
    assert assess.reduced(x, 1) is x
