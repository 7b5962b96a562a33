"""Detection: rows of one law are not told apart, noise is, and small numbers by hand."""

import warnings

import numpy as np
import pytest
from people_table import SPEC, table
from written import written

from dpgen_jax.evaluation import marginals as d
from dpgen_jax.evaluation.results import Real, Setting, Synthetic

pytestmark = pytest.mark.slow


def noise(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 6)), rng.integers(0, 2, n).astype(np.int32)


def test_rows_of_one_law_reach_a_half_and_the_null_of_pmse():
    result = [d.detect(table(400, seed), table(400, 50 + seed), 2, seed) for seed in range(4)]
    assert abs(np.mean([f["detection_auroc"] for f in result]) - 0.5) < 0.025
    x, y = table(400)
    features = np.column_stack([x, np.eye(2)[y]])
    null = np.linalg.matrix_rank(features - features.mean(0), tol=1e-3) / (4 * 800)
    assert 0.6 * null < np.mean([f["pmse"] for f in result]) < 1.5 * null


def test_rows_of_few_values_of_one_law_reach_a_half_too():
    """Most rows have equals of either kind, by chance not equally many."""
    rng = np.random.default_rng(0)
    result = [d.auroc(rng.integers(0, 4, (600, 3)) / 3, np.repeat([1, 0], 300), seed)
              for seed in range(6)]
    assert abs(np.mean(result) - 0.5) < 0.03


def test_noise_is_told_from_rows():
    result = d.detect(noise(500), table(500, 1), 2)
    assert result["detection_auroc"] > 0.98 and result["pmse"] > 20 * 6 / (4 * 1000)


def test_copies_of_the_very_rows_are_not_told_apart():
    x, y = table(300)
    result = d.detect((x, y), (x[::-1], y[::-1]), 2)
    assert result["detection_auroc"] < 0.52 and result["pmse"] == pytest.approx(0, abs=1e-6)


def test_the_class_counts_and_so_does_how_it_goes_with_a_feature():
    x, y = table(500, signal=1)
    assert d.detect((x, np.zeros_like(y)), table(500, 1, signal=1), 2)["pmse"] > 0.05
    swapped = d.detect((x, 1 - y), table(500, 1, signal=1), 2)
    assert swapped["detection_auroc"] > 0.6  # no single feature tells: an interaction does


def test_pmse_by_hand():
    """One binary feature: the logistic regression fits its two shares exactly."""
    x = np.repeat([0.0, 1.0, 0.0, 1.0], [30, 10, 10, 30])[:, None]
    truth = np.repeat([1, 0], 40)
    assert d.pmse(x, truth) == pytest.approx(0.25**2, abs=1e-6)  # p is 3/4 and 1/4
    three = np.repeat([0.0, 1.0, 0.0, 1.0], [10, 10, 30, 30])[:, None]
    uneven = np.repeat([1, 0], [20, 60])
    assert d.pmse(three, uneven) == pytest.approx(0, abs=1e-9)  # p is c = 1/4 everywhere
    assert d.pmse(np.repeat([[0.0], [1.0]], 40, 0), truth) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize(("value", "real", "expected"), [(0.3, 0.3, 0.5), (0.3, 0.4, 1.0)])
def test_constant_rows_do_no_harm(value, real, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = d.detect((np.full((50, 6), value), np.zeros(50, int)),
                          (np.full((60, 6), real), np.zeros(60, int)), 2)
    assert result["detection_auroc"] == expected
    assert result["pmse"] == pytest.approx((expected - 0.5) / 2, abs=1e-3)


def test_few_rows_are_too_few_to_learn_from():
    assert d.detect(noise(9), table(300), 2)["detection_auroc"] == 0.5
    for n in (1, 2, 10, 11):
        result = d.detect(noise(n), table(n), 2)
        assert 0 <= result["detection_auroc"] <= 1 and 0 <= result["pmse"] <= 0.25 + 1e-9


def test_fidelity_has_floors_and_uses_held_out_rows():
    lines = []
    setting = Setting("full", "", 200, 2, log=lines.append)
    test, real = table(200, 9), table(200, 8)
    result = written(d.likeness(Real(SPEC, test, real), Synthetic(noise), setting))["fidelity"]
    assert [*result][-2:] == [*d.DETECTION_METRICS] and len(lines) == 2
    for score in (result[name] for name in d.DETECTION_METRICS):
        assert len(score["values"]) == 2 and score["mean"] > 1.5 * score["floor"]
    assert result["pmse"]["floor"] == pytest.approx(d.detect(real, test, 2)["pmse"])
    alone = written(d.likeness(Real(SPEC, test), Synthetic(noise), setting))["fidelity"]
    assert alone["pmse"]["floor"] is None
