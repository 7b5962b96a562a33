"""Random queries of three columns: what they count, how they are drawn, and their error."""

import numpy as np
import pytest

from dpgen_jax.core.types import Column
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.marginals import Query

NUMBER = Column("x", "continuous", 0.0, 10.0, nullable=True)
WHOLE = Column("k", "integer", 0.0, 9.0)
CATEGORY = Column("c", "categorical", categories=("a", "b", "never"))
COLUMNS = (NUMBER, CATEGORY, NUMBER, NUMBER)


def cells(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(2, 4, (n, 4))
    x[:, 1] = rng.integers(0, 2, n)
    x[rng.random(n) < 0.3, 2] = np.nan
    return x


def test_a_query_counts_the_rows_that_lie_in_all_its_ranges():
    table = np.array([[1.0, 0], [2, 0], [3, 0], [3, 1], [np.nan, 0]])
    assert Query((0, 1), (2.0, 0.0), (3.0, 0.0)).share(table) == 2 / 5
    assert Query((0,), (0.0,), (9.0,)).share(table) == 4 / 5  # null lies nowhere


def test_queries_are_of_three_columns_between_the_real_ends_and_of_categories_that_occur():
    table = cells(200)
    drawn = marginals.queries(table, COLUMNS)
    assert len(drawn) == marginals.QUERIES and len({query.columns for query in drawn}) == 24
    for query in drawn:
        assert len(set(query.columns)) == 3
        for i, low, high in zip(query.columns, query.low, query.high, strict=True):
            assert low <= high and np.nanmin(table[:, i]) <= low and high <= np.nanmax(table[:, i])
            assert i != 1 or (low == high and low in (0, 1))
    assert drawn == marginals.queries(table, COLUMNS) != marginals.queries(table, COLUMNS, 1)


def test_the_error_is_the_mean_difference_of_shares():
    real, made = cells(300), cells(50, 1)
    made[:, 0] += 0.8
    by_hand = []
    for query in marginals.queries(real, COLUMNS):
        shares = []
        for table in (made, real):
            inside = np.ones(len(table), bool)
            for i, low, high in zip(query.columns, query.low, query.high, strict=True):
                inside &= (table[:, i] >= low) & (table[:, i] <= high)
            shares.append(inside.mean())
        by_hand.append(abs(shares[0] - shares[1]))
    error = marginals.query_error(made, real, COLUMNS)
    assert error == pytest.approx(np.mean(by_hand)) and error > 0.02
    assert marginals.query_error(real, real, COLUMNS) == 0
    assert marginals.query_error(cells(300, 2), real, COLUMNS) < error


def test_tables_of_few_columns_and_of_nulls_alone():
    one = np.array([[1.0], [2.0], [3.0]])
    assert 0 < marginals.query_error(one + 1, one, (WHOLE,)) <= 1
    ends = {query.low + query.high for query in marginals.queries(one, (WHOLE,))}
    assert ends == {(a, b) for a in (1, 2, 3) for b in range(a, 4)}
    nulls = np.full((3, 1), np.nan)
    assert marginals.queries(nulls, (NUMBER,)) == []
    assert marginals.query_error(one, nulls, (NUMBER,)) == 0
