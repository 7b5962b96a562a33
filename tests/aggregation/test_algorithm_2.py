"""The votes of G-PATE's teachers are those of Algorithm 2 of Long et al. 2021, as it is printed."""

import numpy as np

from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.teacher_votes import OneHot

BOUND = OneHot(5, 4, 3, 1e-4)
"""Five bins, projections to four coordinates, three samples."""


def histogram(column):
    """Lines 6 and 7 for a projected coordinate [teachers]: counts [bins]."""
    clip = BOUND.clip
    return np.histogram(np.clip(column, -clip, clip), BOUND.bins, (-clip, clip))[0]


def test_each_teacher_votes_for_the_bin_of_algorithm_2():
    rng, used = np.random.default_rng(3), set()
    matrices = rng.standard_normal((3, 4, 16)).astype(np.float32) / 2
    gradients = rng.standard_normal((40, 3, 16), np.float32) * np.float32(BOUND.clip) / 3
    for teacher in gradients:
        votes = BOUND.project(None, teacher_votes.project(matrices, teacher)).reshape(3, 4, 5)
        for j in range(3):
            plain = [histogram(column) for column in (teacher[None, j] @ matrices[j].T).T]
            np.testing.assert_array_equal(votes[j], plain)
            used |= set(np.argmax(plain, -1).tolist())
    assert used == set(range(5))
