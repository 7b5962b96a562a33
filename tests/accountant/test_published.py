import math
import types

import pytest

from dpgen_jax.accountant.published import PUBLISHED, datalens
from dpgen_jax.errors import BudgetExceeded

DELTA = 1e-5

# name: k, sigma, B, target epsilon, most steps, epsilon of these; None where no source gives it
ROWS = {
    "mnist 1": (200, 5000, 15, 1, 86, .9957),
    "gender 1": (700, 9000, 30, 1, 40, .9982),
    "hair 1": (700, 9000, 15, 1, 80, .9982),
    "mnist 10": (300, 800, 15, 10, 109, 9.969),
    "fashion 10": (350, 1000, 15, 10, 146, 9.970),
    "paper 10": (350, 900, 15, 10, 118, 9.956),
    "gender 10": (500, 700, 30, 10, 25, 9.960),
    "mnist 1 without the batch": (200, 5000, 1, 1, 1300, None),
}


@pytest.mark.parametrize("row", ROWS)
def test_datalens_rows(row):
    k, sigma, batch, target, steps, epsilon = ROWS[row]
    published = datalens(k, batch, sigma, DELTA)
    assert published.max_steps(target) == steps
    assert published.epsilon(steps) <= target < published.epsilon(steps + 1)
    if epsilon is not None:
        assert published.epsilon(steps) == pytest.approx(epsilon, abs=10 ** (target // 10) * 5.1e-5)


def test_datalens_is_the_formula_it_names():
    by_hand = min(86 * 2 * 200 * 15 * a / 5000**2 + math.log(1e5) / (a - 1)
                  for a in (1.1, *range(2, 200)))
    published = datalens(200, 15, 5000, DELTA)
    assert published.epsilon(86) == pytest.approx(by_hand, rel=1e-12)
    assert published.epsilon(0) == 0
    assert "k=200, B=15, sigma=5000, delta=1e-05" in published.formula


def test_from_a_configuration():
    config = types.SimpleNamespace(top_k=200, batch=15, sigma=5000.0)
    assert PUBLISHED["datalens"](config, DELTA).max_steps(1) == 86
    config.sigma = 0.0
    assert PUBLISHED["datalens"](config, DELTA).epsilon(1) == math.inf


def test_no_step_is_said():
    with pytest.raises(BudgetExceeded, match="one step costs"):
        datalens(200, 15, 10, DELTA).max_steps(1)
