"""Random queries of a table: how far the shares of rows that they count are off.

A query is a condition on three columns, as people ask of a table: a number lies in a range, a
category is a certain one. Source: the query error of Chen et al., "Benchmarking Differentially
Private Tabular Data Synthesis" (SIGMOD 2025, arXiv 2504.14061), section 6.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dpgen_jax.core.types import Column

QUERIES = 1000
"""The queries of a measurement."""
COLUMNS = 3
"""The columns of a query, or all of a table that has fewer."""


@dataclasses.dataclass(frozen=True)
class Query:
    """A query: the rows whose cells lie in a range in each of some columns.

    Attributes:
      columns: Their places.
      low: The lower bound of each, which is included.
      high: The upper bound of each, which is included; of a category it is the lower one.
    """

    columns: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def share(self, cells: np.ndarray) -> float:
        """Return the share of rows that it counts, of cells float64 [n, K]; null lies nowhere."""
        values = cells[:, self.columns]
        return float(np.mean(((values >= self.low) & (values <= self.high)).all(1)))


def queries(truth: np.ndarray, columns: Sequence[Column], seed: int = 0) -> list[Query]:
    """Draw `QUERIES` queries: three columns, and in each a range or a category, uniformly.

    Args:
      truth: Cells of real rows, float64 [n, K], NaN for null: the ends of a range are drawn between
        the lowest and the highest number of a column, categories from those that occur.
      columns: The K columns.
      seed: The seed.

    Returns:
      The queries. A column that is null in all rows is in none.
    """
    rng = np.random.default_rng(seed)
    values = {i: np.unique(truth[~np.isnan(truth[:, i]), i]) for i in range(truth.shape[1])}
    known = [i for i, of in values.items() if len(of)]

    def ends(i: int) -> np.ndarray:
        if columns[i].categories:
            return np.repeat(rng.choice(values[i]), 2)
        if columns[i].kind == "integer":  # so that a range can begin with the lowest, often a spike
            return np.sort(rng.integers(int(values[i][0]), int(values[i][-1]) + 1, 2))
        return np.sort(rng.uniform(values[i][0], values[i][-1], 2))

    drawn = []
    for _ in range(QUERIES if known else 0):
        chosen = rng.choice(known, min(COLUMNS, len(known)), replace=False).tolist()
        low, high = np.transpose([ends(i) for i in chosen]).astype(float).tolist()
        drawn.append(Query(tuple(chosen), tuple(low), tuple(high)))
    return drawn


def query_error(cells: np.ndarray, truth: np.ndarray, columns: Sequence[Column], seed: int = 0
                ) -> float:
    """Compute the mean absolute difference of the shares of rows that random queries count.

    Args:
      cells: Cells of synthetic rows, float64 [n, K], NaN for null.
      truth: Cells of real rows, float64 [n', K], by which the queries are drawn.
      columns: The K columns.
      seed: The seed of the queries.

    Returns:
      A number in [0, 1]; 0 where nothing can be asked.
    """
    drawn = queries(truth, columns, seed)
    errors = [abs(query.share(cells) - query.share(truth)) for query in drawn]
    return float(np.mean(errors)) if errors else 0.0
