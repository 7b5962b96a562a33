"""Distances of marginals by hand, and broken cells found."""

import dataclasses

import numpy as np
import pytest
from people_table import SPEC, table

from dpgen_jax.core.types import Column
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import marginals as m
from dpgen_jax.evaluation.results import Real, Setting, Synthetic

A = Column("a", "categorical", categories=("p", "q"), nullable=True)
B = Column("b", "continuous", 0.0, 20.0)
NULL = np.nan


def test_distances_by_hand():
    left = np.array([[0, 0.5], [0, 0.9], [1, 19.5], [NULL, 20.0]])
    right = np.array([[0, 0.1], [1, 1.5], [1, 19.0], [1, 19.0]])
    # a: 1/2 1/4 1/4 against 1/4 3/4 0;  b: 2 of the first bin, 2 of the last against 1, 1, 2
    np.testing.assert_allclose(m.one_way_tvd(left, right, (A, B)), [0.5, 0.25])
    # joint: p0 1/2, q19 1/4, null19 1/4 against p0 1/4, q1 1/4, q19 1/2
    assert m.two_way_tvd(left, right, (A, B)) == pytest.approx(0.5)
    assert m.two_way_tvd(left, left, (A, B)) == 0
    np.testing.assert_allclose(m.one_way_tvd(left, right[[0, 0, 1, 1, 2, 2, 3, 3]], (A, B)),
                               [0.5, 0.25])  # other row counts


def test_joint_bins_see_what_single_bins_do_not():
    same = np.array([[0, 1.5], [1, 9.5]] * 3)
    crossed = np.array([[0, 9.5], [1, 1.5]] * 3)
    np.testing.assert_allclose(m.one_way_tvd(same, crossed, (A, B)), 0)
    assert m.two_way_tvd(same, crossed, (A, B)) == 1


def test_null_is_no_number():
    column = dataclasses.replace(B, nullable=True)
    for place in (0.0, 10.0, 20.0):
        assert m.one_way_tvd(np.array([[NULL]]), np.array([[place]]), (column,)) == [1]


def test_bounds_may_be_one_number():
    column = Column("c", "integer", 5, 5)
    five, seven = np.full((3, 1), 5.0), np.full((3, 1), 7.0)
    assert m.one_way_tvd(five, five, (column,)) == [0]
    assert m.schema_violations(five, (column,)) == 0 and m.schema_violations(seven, (column,)) == 1


def test_pairs_are_capped_with_a_fixed_seed(monkeypatch):
    assert len(m.pairs_of(45)) == 990 and len(m.pairs_of(46)) == m.MAX_PAIRS
    assert m.pairs_of(46) == m.pairs_of(46) and len(set(m.pairs_of(46))) == m.MAX_PAIRS
    monkeypatch.setattr(m, "MAX_PAIRS", 4)
    entry = m.likeness(Real(SPEC, table(50, 1)), Synthetic(lambda n, seed: table(n)), Setting(
        "full", "", 50, 1)).facts["fidelity"]["two_way_tvd"]
    assert (entry["pairs"], entry["all_pairs"]) == (4, 10)


def test_correlation_difference_by_hand():
    line = np.linspace(0, 1, 50)
    up, down = np.stack([line, line], 1), np.stack([line, 1 - line], 1)
    assert m.correlation_difference(up, down) == pytest.approx(2)
    assert m.correlation_difference(up, up) == 0
    stuck = np.full_like(up, 0.1)
    assert m.correlation_difference(stuck, up) == pytest.approx(1)
    assert m.correlation_difference(up, stuck) == 0
    three = np.column_stack([up, np.full(50, 0.1)])
    assert m.correlation_difference(np.column_stack([down, line]), three) == pytest.approx(2)


@pytest.mark.parametrize(("column", "bad"), [
    (0, -1), (0, 101), (0, 50.5), (0, NULL), (0, np.inf), (1, 2), (1, 0.5), (1, -1), (1, NULL),
    (2, 30.001), (2, -10.001), (2, -np.inf), (3, 3), (3, 1.5), (3, NULL), (4, 2), (4, NULL)])
def test_each_broken_cell_is_counted(column, bad):
    good = m.cells(SPEC, table(20))
    assert m.schema_violations(good, m.columns(SPEC)) == 0
    good[7, column] = bad
    assert m.schema_violations(good, m.columns(SPEC)) == pytest.approx(1 / good.size)


def test_bounds_and_null_where_declared_are_no_violation():
    rows = np.array([[0, 0, -10, 0, 0], [100, 1, 30, 2, 1], [7, 1, NULL, 1, 1]], float)
    assert m.schema_violations(rows, m.columns(SPEC)) == 0
    x = transform.encode(SPEC, rows[:, :4]).astype(np.float32)
    np.testing.assert_array_equal(m.cells(SPEC, (x, rows[:, 4])), rows)


def test_pairwise_holds_all_pairs_and_single_columns_on_the_diagonal():
    a, b = m.cells(SPEC, table(60)), m.cells(SPEC, table(50, 1, signal=0))
    result = m.pairwise(a, b, m.columns(SPEC))
    np.testing.assert_array_equal(result, result.T)
    np.testing.assert_allclose(np.diag(result), m.one_way_tvd(a, b, m.columns(SPEC)))
    assert result[np.triu_indices(5, 1)].mean() == pytest.approx(
        m.two_way_tvd(a, b, m.columns(SPEC)))


def test_correlations_are_numpys_and_zero_for_a_constant():
    x = table(80)[0]
    np.testing.assert_allclose(m.correlations(x), np.corrcoef(x.T), atol=1e-6)
    stuck = np.column_stack([x, np.full(80, 0.1, np.float32)])
    result = m.correlations(stuck)
    np.testing.assert_array_equal(result[-1], 0)
    np.testing.assert_allclose(result[:-1, :-1], m.correlations(x))
