"""The loss of one release: the pair of laws dominates all others, its grid the pair."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dpgen_jax.accountant import pld

GAMMAS = np.array([0.01, 0.3, 0.8, 1.0, 1.001, 1.05, 1.3, 2.0, 5.0, 40.0])


def on_grid(one, gammas):
    """sup_S P(S) - g Q(S) of the pair on the grid; what is infinite has no mass under Q."""
    ratio = np.exp(-one.width * one.node)
    return one.infinite + np.array([
        one.mass @ np.maximum(0, 1 - gamma * ratio) for gamma in gammas])


def integrated(p, q, cell):
    """The same for two densities on a grid of cells."""
    return np.array([np.maximum(p - gamma * q, 0).sum() * cell for gamma in GAMMAS])


def antipodal(q, c, gamma):
    """Closed form at g: P(x > x0) - g Q(x > x0), where the loss is increasing in x."""
    x0 = pld._antipodal(q, c)[1](np.log(gamma))
    return ((1 - q) * (1 - gamma) * ndtr(-x0) + q * ndtr(c - x0) - gamma * q * ndtr(-c - x0))


@pytest.mark.parametrize("q, c", [(0.01, 1.0), (0.3, 0.4), (1e-4, 2.5), (1.0, 0.5), (0.7, 3.0)])
def test_the_closed_forms_are_the_hockey_stick(q, c):
    x, cell = np.linspace(-40, 40, 400_001, retstep=True)

    def normal(mean):
        return np.exp(-(x - mean)**2 / 2) / math.sqrt(2 * math.pi)

    p, other = (1 - q) * normal(0) + q * normal(c), (1 - q) * normal(0) + q * normal(-c)
    true = integrated(p, other, cell)
    assert antipodal(q, c, GAMMAS) == pytest.approx(true, abs=1e-8)
    for direction, pair in (("both", (p, other)), ("remove", (p, normal(0))),
                            ("add", (normal(0), p))):
        true, grid = integrated(*pair, cell), on_grid(pld.gaussian_loss(q, c, direction), GAMMAS)
        assert np.all(grid >= true - 1e-9), direction
        assert grid == pytest.approx(true, abs=6e-3 * true.max()), direction


@settings(max_examples=60)
@given(st.sampled_from([1e-3, 0.05, 0.4, 0.9]), st.floats(0.05, 3), st.floats(0, 1),
       st.floats(0, 1), st.floats(0, 2 * math.pi), st.booleans())
def test_no_pair_of_messages_is_worse(q, c, r, r_other, angle, on_a_line):
    """Messages v = (r c, 0) and v' of norms up to c, at any angle; sums over the plane.

    Where the grid crosses the edge of the worst set the sums are off by 2e-5.
    """
    angle = angle if not on_a_line else math.pi * round(angle / math.pi)
    x, cell = np.linspace(-9, 9, 361, retstep=True)
    along, across = np.meshgrid(x, x, indexing="ij")

    def normal(v):
        return np.exp(-((along - v[0])**2 + (across - v[1])**2) / 2) / (2 * math.pi)

    one, other = ((1 - q) * normal((0, 0)) + q * normal(v) for v in (
        (r * c, 0), (r_other * c * math.cos(angle), r_other * c * math.sin(angle))))
    worst = antipodal(q, c, GAMMAS)
    for pair in ((one, other), (other, one)):
        assert np.all(integrated(*pair, cell**2) <= worst + 2e-3 * worst + 5e-5)
    # zero-out: a message of any norm beside none, both ways round
    for direction, pair in (("remove", (one, normal((0, 0)))), ("add", (normal((0, 0)), one))):
        dominating = on_grid(pld.gaussian_loss(q, c, direction), GAMMAS)
        assert np.all(integrated(*pair, cell**2) <= dominating * (1 + 2e-3) + 5e-5)


def test_the_worst_pair_is_antipodal_and_no_less():
    """One-sided messages, v and 0, are visibly better: charging them would be too little."""
    q, c = 0.05, 1.0
    one_sided = on_grid(pld.gaussian_loss(q, c, "remove"), GAMMAS)
    assert np.all(antipodal(q, c, GAMMAS)[3:] > 1.2 * one_sided[3:])


@settings(max_examples=60)
@given(st.floats(-5, 0).map(lambda e: 10**e), st.floats(0.01, 4),
       st.sampled_from(["both", "remove", "add"]))
def test_a_loss_is_a_law_and_a_wider_grid_dominates(q, c, direction):
    fine = pld.gaussian_loss(q, c, direction)
    wide = pld.gaussian_loss(q, c, direction, 4 * fine.width)
    assert wide.width == 4 * fine.width
    nodes = set((fine.node).tolist())
    assert all(4 * node in nodes for node in wide.node.tolist()[1:-1])
    for one in (fine, wide):
        assert math.log2(one.width).is_integer()
        assert np.all(np.diff(one.node) > 0) and np.all(one.mass >= 0)
        assert one.mass.sum() + one.infinite == pytest.approx(1, abs=1e-12)
        assert one.infinite < 1e-20
        # Q has at most the mass 1
        assert one.mass @ np.exp(-one.width * one.node) <= 1 + 1e-9
        assert one.log_mgf[0] == pytest.approx(0, abs=1e-12)
    gammas = np.exp(np.linspace(-3, 3, 61) * fine.width * 32)
    assert np.all(on_grid(wide, gammas) >= on_grid(fine, gammas) - 1e-12)


@pytest.mark.parametrize("scale, sensitivity", [(20.0, 1), (0.7, 1), (3.0, 2), (5.0, 40)])
def test_laplace(scale, sensitivity):
    k = np.arange(-4000, 4000)
    p = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
    q = np.exp(-np.abs(k - sensitivity) / scale) * math.tanh(0.5 / scale)
    assert p.sum() == pytest.approx(1)
    true, grid = integrated(p, q, 1), on_grid(pld.laplace_loss(scale, sensitivity), GAMMAS)
    assert np.all(grid >= true - 1e-12)
    assert grid == pytest.approx(true, abs=2e-2 * true[3])
    # nothing is above the epsilon of one draw, but for the grid
    one = pld.laplace_loss(scale, sensitivity)
    assert one.node[-1] * one.width < sensitivity / scale + one.width
    for smaller in range(1, sensitivity):
        q = np.exp(-np.abs(k - smaller) / scale) * math.tanh(0.5 / scale)
        assert np.all(integrated(p, q, 1) <= true + 1e-12)


@pytest.mark.parametrize("q, c", [(1e-9, 1e4), (1e-9, 1e-9), (0.5, 1e3), (1.0, 1e-6), (1 - 1e-9, 5),
                                  (1e-5, 40.0), (1e-99, 1e-99)])
@pytest.mark.parametrize("direction", ["both", "remove", "add"])
def test_extremes(q, c, direction):
    with np.errstate(all="raise", under="ignore"):
        one = pld.gaussian_loss(q, c, direction)
    assert one.mass.sum() + one.infinite == pytest.approx(1, abs=1e-9)
    assert len(one.node) < 200_000 and np.all(np.isfinite(one.log_mgf[:20]))


def test_a_loss_is_made_once():
    assert pld.gaussian_loss(0.01, 1.0, "both") is pld.gaussian_loss(0.01, 1.0, "both")
