"""DP-Sinkhorn with teachers: where transport moves fakes, and whole runs.

That one record moves one message by no more than is declared is shown for every method by
`test_battery`.
"""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from dpgen_jax.core.types import EMPTY, ImageSpec
from dpgen_jax.methods import dpsinkhorn
from dpgen_jax.nets.image import GeneratorNet

CONFIG = dpsinkhorn.Config(teachers=5, batch=6, steps=2, generator=GeneratorNet(2, 8, 4))
SHARP = dataclasses.replace(CONFIG, entropy=1e-3, iterations=200)
IMAGES = ImageSpec(4, 4, 1, 3)


def moves(config, x, labels, y, y_labels):
    function = jax.jit(lambda *arrays: dpsinkhorn.transport_moves(config, *arrays))
    return np.asarray(function(*(np.asarray(a, dtype) for a, dtype in (
        (x, np.float32), (labels, np.int32), (y, np.float32), (y_labels, np.int32)))))


def points(n, seed, features=3):
    return np.random.default_rng(seed).random((n, features))


def test_a_sharp_plan_is_the_cheapest_assignment():
    """The transport of least cost between equally many points is an assignment."""
    x, y = points(6, 0), points(6, 1)
    cost = ((x[:, None] - y[None]) ** 2).mean(-1)
    rows, columns = linear_sum_assignment(cost)
    moved = x + moves(SHARP, x, np.zeros(6), y, np.zeros(6))
    np.testing.assert_allclose(moved[rows], y[columns], atol=0.02)


def test_a_move_is_the_gradient_of_the_transport_cost():
    """By finite differences of the cost of the regularised plan, which is found in float64."""
    x, y, entropy = points(3, 2), points(4, 3), 0.1
    config = dataclasses.replace(CONFIG, entropy=entropy, iterations=500)

    def cost(x):
        c = ((x[:, None] - y[None]) ** 2).mean(-1)
        f, g = np.zeros(3), np.zeros(4)
        for _ in range(2000):
            f = -entropy * np.log(np.exp((g[None] - c) / entropy).sum(1) * 3)
            g = -entropy * np.log(np.exp((f[:, None] - c) / entropy).sum(0) * 4)
        return f.mean() + g.mean()

    found = moves(config, x, np.zeros(3), y, np.zeros(4))
    for i, j in itertools.product(range(3), range(3)):
        step = np.zeros_like(x)
        step[i, j] = 1e-5
        slope = (cost(x + step) - cost(x - step)) / 2e-5
        # d/dx of the mean of squares over 3 features, for a row of weight 1/3
        assert found[i, j] == pytest.approx(-slope * 3 * 3 / 2, rel=2e-3, abs=1e-4)


def test_a_costly_change_of_class_is_avoided():
    x, y = np.full((4, 2), 0.5), np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.1], [1.0, 0.9]])
    labels = np.array([0, 1, 0, 1])
    config = dataclasses.replace(SHARP, label_cost=10.0)
    moved = x + moves(config, x, labels, y, labels)
    assert (moved[labels == 0] < 0.2).all() and (moved[labels == 1] > 0.8).all()


def test_empty_slots_take_no_part():
    x, y, labels = points(5, 4), points(4, 5), np.array([0, 1, 2, 0])
    few = moves(CONFIG, x, np.arange(5) % 3, y, labels)
    padded = moves(CONFIG, x, np.arange(5) % 3, np.vstack([y, np.zeros((2, 3))]),
                   np.append(labels, [EMPTY, EMPTY]))
    np.testing.assert_allclose(few, padded, atol=1e-5)
    assert np.isfinite(padded).all()
