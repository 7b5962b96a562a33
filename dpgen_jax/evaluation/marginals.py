"""Distances between the marginals of synthetic and of real tables, and violations of the schema.

A table is compared by its cells, float64 [n, K]: the columns of the schema and the label last,
numbers in their own units, categories as their index among the declared ones, NaN for null.

Random queries measure how far the shares of rows that they count are off. A query is a condition on
three columns, as users of a table ask: a number lies in a range, a category has a certain value.
Source: the query error of Chen et al., "Benchmarking Differentially Private Tabular Data Synthesis"
(SIGMOD 2025, arXiv 2504.14061), section 6.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation.scores import summary

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
      A number in [0, 1]; 0 where there is no query.
    """
    drawn = queries(truth, columns, seed)
    errors = [abs(query.share(cells) - query.share(truth)) for query in drawn]
    return float(np.mean(errors)) if errors else 0.0


Rows = tuple[np.ndarray, np.ndarray]
"""Encoded rows float [n, F] in [0, 1] and labels int [n]."""

BINS = 20
"""Equal bins of a number, between its declared bounds."""
MAX_PAIRS = 1000
"""The most pairs of columns that are compared."""
MAX_FEATURES = 2000
"""The most features whose correlations are compared."""
DENSE = 2**20
"""The most bins that are counted one by one; of more only those that are not empty."""


def columns(spec: TableSpec) -> tuple[Column, ...]:
    """Return the columns of the cells: the features, then the label, if there is one."""
    return spec.all_columns


def cells(spec: TableSpec, rows: Rows) -> np.ndarray:
    """Return the cells float64 [n, K] of encoded rows float [n, F] and labels int [n]."""
    x, y = rows
    codes = transform.decode(spec, x)
    return np.column_stack([codes, y]) if spec.labelled else codes


def fidelity(draws: Sequence[Rows], test: Rows, real: Rows | None, spec: TableSpec) -> Json:
    """Compute the `fidelity` part of metrics.json for tables, all of it from real rows.

    Total variation distances are in [0, 1]. They are means over the columns (`columns` holds each),
    or over `pairs` of the `all_pairs` pairs of columns, sampled with a fixed seed where there are
    more than `MAX_PAIRS`.

    Args:
      draws: Synthetic rows, one draw a seed; each is compared with `test`.
      test: Held-out real rows.
      real: Real training rows, for the floors, the distances that sampling alone explains; a floor
        is fair only where there are as many rows as in a draw. None for no floors.
      spec: The schema.

    Returns:
      {`one_way_tvd`, `two_way_tvd`, `query_error` (see `query_error`),
      `correlation_difference`}, each a `summary` over the draws with `floor`, the distance of
      `real` from `test`, or None.
    """
    k = len(columns(spec))
    distances = column_distances(draws, test, real, spec)
    if k > 1:
        distances["two_way_tvd"] |= {"pairs": len(_pairs(k)), "all_pairs": k * (k - 1) // 2}
    floor = None if real is None else correlation_difference(real[0], test[0])
    correlation = summary([correlation_difference(x, test[0]) for x, _ in draws])
    return distances | {"query_error": query_errors(draws, test, real, spec),
                        "correlation_difference": correlation | {"floor": floor}}


def query_errors(draws: Sequence[Rows], test: Rows, real: Rows | None, spec: TableSpec) -> Json:
    """Compute `query_error`, as `fidelity` does and with its arguments."""
    truth, named = cells(spec, test), columns(spec)
    return summary([query_error(cells(spec, draw), truth, named) for draw in draws]) | {
        "floor": None if real is None else query_error(cells(spec, real), truth, named)}


def column_distances(draws: Sequence[Rows], test: Rows, real: Rows | None, spec: TableSpec) -> Json:
    """Compute `one_way_tvd` and `two_way_tvd`, as `fidelity` does.

    Args:
      draws: Synthetic rows, one draw a seed.
      test: Held-out real rows.
      real: Real training rows for the floors, or None.
      spec: The schema.

    Returns:
      For each a `summary` with its floor; the first also with `columns`. Of a table of one column
      there are no pairs, and no distance of them.
    """
    truth, named = cells(spec, test), columns(spec)
    tables = [cells(spec, draw) for draw in draws]
    own = None if real is None else cells(spec, real)

    def entry(distance: Callable[..., Any]) -> Json:
        return summary([float(np.mean(distance(one, truth, named))) for one in tables]) | {
            "floor": None if own is None else float(np.mean(distance(own, truth, named)))}

    ours = np.mean([one_way_tvd(one, truth, named) for one in tables], 0)
    floors = [None] * len(named) if own is None else one_way_tvd(own, truth, named).tolist()
    by_column = {column.name: {"mean": float(mean), "floor": floor}
                 for column, mean, floor in zip(named, ours, floors, strict=True)}
    pairs = {"two_way_tvd": entry(two_way_tvd)} if len(named) > 1 else {}
    return {"one_way_tvd": entry(one_way_tvd) | {"columns": by_column}} | pairs


def one_way_tvd(a: np.ndarray, b: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Compute the total variation distance of each column.

    It is half the L1 distance of the shares of each bin: `BINS` equal bins between the bounds of a
    number, on its scale, a bin for each category and special value, and one for null.

    Args:
      a: Cells float64 [n, K].
      b: Cells float64 [n', K].
      columns: The K columns.

    Returns:
      float64 [K], in [0, 1].
    """
    a, b, sizes = _binned(a, columns), _binned(b, columns), _sizes(columns)
    return np.array([_tvd(a[:, i], b[:, i], size) for i, size in enumerate(sizes)])


def two_way_tvd(a: np.ndarray, b: np.ndarray, columns: Sequence[Column]) -> float:
    """Compute the mean total variation distance of the joint bins of pairs of columns.

    The bins and the arguments are those of `one_way_tvd`.
    """
    return float(np.mean(_joint(a, b, columns, _pairs(len(columns)))))


def pairwise(a: np.ndarray, b: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Compute the total variation distances of all pairs of columns.

    Args:
      a: Cells float64 [n, K].
      b: Cells float64 [n', K].
      columns: The K columns.

    Returns:
      float64 [K, K], symmetric; on the diagonal the distances of `one_way_tvd`.
    """
    k = len(columns)
    pairs = list(itertools.combinations_with_replacement(range(k), 2))
    distances = np.empty((k, k))
    for (i, j), distance in zip(pairs, _joint(a, b, columns, pairs), strict=True):
        distances[i, j] = distances[j, i] = distance
    return distances


def bin_shares(values: np.ndarray, column: Column) -> np.ndarray:
    """Compute the shares of the bins of one column, as `one_way_tvd` bins it.

    Args:
      values: Cells float64 [n], NaN for null.
      column: The column.

    Returns:
      float64 [bins + 1], the last of null.
    """
    (size,) = _sizes([column])
    return np.bincount(_binned(values[:, None], [column])[:, 0], minlength=size) / len(values)


def _joint(a: np.ndarray, b: np.ndarray, columns: Sequence[Column], pairs: list[tuple[int, int]]
           ) -> list[float]:
    """Return the distance of the joint bins of each pair of columns."""
    a, b, sizes = _binned(a, columns), _binned(b, columns), _sizes(columns)
    return [_tvd(a[:, i] * sizes[j] + a[:, j], b[:, i] * sizes[j] + b[:, j], sizes[i] * sizes[j])
            for i, j in pairs]


def _pairs(k: int) -> list[tuple[int, int]]:
    """Return all pairs of k columns, or `MAX_PAIRS` of them, without a list of all."""
    total = k * (k - 1) // 2
    if total <= MAX_PAIRS:
        return list(itertools.combinations(range(k), 2))
    picked = np.sort(np.random.default_rng(0).choice(total, MAX_PAIRS, replace=False))
    i = np.arange(k)
    starts = i * k - i * (i + 1) // 2  # of the pairs whose first column is i, in this order
    first = np.searchsorted(starts, picked, "right") - 1
    return list(zip(first.tolist(), (picked - starts[first] + first + 1).tolist(), strict=True))


def _sizes(columns: Sequence[Column]) -> list[int]:
    """Return the number of bins of each column: special values, and null, are the last."""
    return [(len(column.categories) or BINS) + len(column.special) + 1 for column in columns]


def _binned(cells: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Return the bin of each cell: int64 [n, K]."""
    bins = cells.copy()
    for i, (column, size) in enumerate(zip(columns, _sizes(columns), strict=True)):
        if not column.categories:
            bins[:, i] = transform.unit(column, cells[:, i]) * BINS
        most = size - 2 - len(column.special)
        bins[:, i] = np.where(np.isnan(cells[:, i]), size - 1,
                              np.clip(np.floor(bins[:, i]), 0, most))
        for place, value in enumerate(column.special, most + 1):
            bins[cells[:, i] == value, i] = place
    return bins.astype(np.int64)


def _tvd(a: np.ndarray, b: np.ndarray, size: int) -> float:
    """Return the total variation distance of bins a [n] and b [n'], integers below `size`."""
    if size > DENSE:
        a, b = np.split(np.unique(np.concatenate([a, b]), return_inverse=True)[1], [len(a)])
        size = int(max(a.max(), b.max())) + 1
    shares = [np.bincount(bins, minlength=size) / len(bins) for bins in (a, b)]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())


def correlation_difference(x: np.ndarray, truth: np.ndarray) -> float:
    """Compute the mean absolute difference of the Pearson correlations of pairs of features.

    Features that are constant in `truth` are left out; one that is constant only in x has
    correlation 0 there, so that a generator which makes the same row again and again gains nothing
    by it. Of more than `MAX_FEATURES` features some are picked with a fixed seed.

    Args:
      x: Encoded rows float [n, F].
      truth: Encoded real rows float [n', F].

    Returns:
      A number in [0, 2]; 0 where fewer than two features are left.
    """
    if x.shape[1] > MAX_FEATURES:
        picked = np.sort(np.random.default_rng(0).choice(x.shape[1], MAX_FEATURES, replace=False))
        x, truth = x[:, picked], truth[:, picked]
    varies = np.ptp(truth, 0) > 0
    if varies.sum() < 2:
        return 0.0
    upper = np.triu_indices(int(varies.sum()), 1)
    difference = correlations(x[:, varies]) - correlations(truth[:, varies])
    return float(np.abs(difference[upper]).mean())


def correlations(x: np.ndarray) -> np.ndarray:
    """Compute the Pearson correlations of features.

    Args:
      x: Encoded rows float [n, F].

    Returns:
      float64 [F, F]; 0 in the row and column of a constant feature, on the diagonal too.
    """
    centred = x - x.mean(0, dtype=np.float64)
    norms = np.sqrt((centred**2).sum(0))
    centred /= np.where(np.ptp(x, 0) > 0, norms, np.inf)  # rounding leaves no exact zero norm
    return centred.T @ centred


def schema_violations(cells: np.ndarray, columns: Sequence[Column]) -> float:
    """Compute the fraction of cells that break the schema; a release must have none.

    Such a cell is a number outside its bounds, an integer that is not one, an index that no
    category has, or a null in a column that has none.

    Args:
      cells: float64 [n, K].
      columns: The K columns.

    Returns:
      A number in [0, 1].
    """
    return float(np.mean([_broken(cells[:, i], column) for i, column in enumerate(columns)]))


def _broken(values: np.ndarray, column: Column) -> np.ndarray:
    """Return which values [n] of a column break the schema: bool [n]."""
    if column.categories:
        wrong = ~np.isin(values, np.arange(len(column.categories)))
    else:
        wrong = ~((values >= column.low) & (values <= column.high))
        if column.kind == "integer":
            wrong |= values != np.round(values)
        wrong &= ~np.isin(values, column.special)
    return np.where(np.isnan(values), not column.nullable, wrong)
