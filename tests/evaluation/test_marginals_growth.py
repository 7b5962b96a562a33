"""Distances of tables with very many columns and categories: of pairs that are drawn, not listed,
and of bins that are not empty."""

import itertools
import tracemalloc

import numpy as np
import pytest

from dpgen_jax.core.types import Column
from dpgen_jax.evaluation import marginals


@pytest.mark.parametrize("k", [2, 45, 46, 120])
def test_pairs_are_those_of_the_list_of_all(k):
    every = list(itertools.combinations(range(k), 2))
    result = marginals.pairs_of(k)
    assert set(result) <= set(every) and result == sorted(result)
    assert len(result) == min(len(every), marginals.MAX_PAIRS) == len(set(result))
    if len(every) > marginals.MAX_PAIRS:
        places = np.random.default_rng(0).choice(len(every), marginals.MAX_PAIRS, replace=False)
        assert result == [every[i] for i in sorted(places)]


def test_ten_thousand_columns_have_no_list_of_pairs():
    """There are 50 million."""
    tracemalloc.start()
    try:
        result = marginals.pairs_of(10_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(result) == marginals.MAX_PAIRS and peak < 10**7
    assert all(0 <= i < j < 10_000 for i, j in result)


def test_few_bins_of_very_many_are_counted(monkeypatch):
    columns = [Column(name, "categorical", categories=tuple(map(str, range(count))))
               for name, count in (("a", 100_000), ("b", 100_000), ("y", 2))]
    rng = np.random.default_rng(0)
    a, b = (np.stack([rng.integers(0, 5, n), rng.integers(99_990, 100_000, n),
                      rng.integers(0, 2, n)], 1).astype(float) for n in (300, 200))
    sparse = marginals.two_way_tvd(a, b, columns)  # 10^10 bins a pair
    small = [Column("a", "categorical", categories=tuple("abcde")),
             Column("b", "categorical", categories=tuple("abcdefghij")), columns[2]]
    moved = [part - [0, 99_990, 0] for part in (a, b)]
    assert sparse == pytest.approx(marginals.two_way_tvd(*moved, small))


def test_correlations_of_very_many_features_are_those_of_some(monkeypatch):
    rng = np.random.default_rng(0)
    x, truth = rng.random((50, 40)), rng.random((60, 40))
    whole = marginals.correlation_difference(x, truth)
    monkeypatch.setattr(marginals, "MAX_FEATURES", 30)
    some = marginals.correlation_difference(x, truth)
    assert some != whole and some == pytest.approx(whole, rel=0.2)
    assert some == marginals.correlation_difference(x, truth)
