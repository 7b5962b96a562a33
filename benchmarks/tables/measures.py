"""Measures of synthetic rows: the use of classifiers, and the distance of column pairs.

All of it reads real rows, and none of it is covered by an epsilon: it belongs to public tables.
"""

from __future__ import annotations

import statistics

import numpy as np

from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import marginals, prediction
from dpgen_jax.evaluation.marginals import Rows, query_error

MOST_ROWS = 10_000
"""The most rows, synthetic or real, that a classifier learns from."""
RARE = 0.01
"""The share of a class below which `MOST_ROWS` rows hold too few of it to learn from: of frauds
that are 0.17 % they hold 17, and gradient boosting on real rows is then no better than chance."""
CLASSIFIERS = tuple(prediction.COMMON)
"""Logistic regression, a random forest and gradient boosting."""
ABOUT = ("AUROC of logistic regression, a forest with 5 rows a leaf and gradient boosting of "
         "histograms; mean total variation distance of pairs of columns, 20 bins of a number")
"""The description of the scores: results of other measures are measured anew."""
FURTHER = ("F1, the mean over classes and these classifiers; mean error of random queries of three "
           "columns")
"""The description of scores that were added later: runs that lack them are kept, and stay so."""


def with_rare_class(y: np.ndarray) -> bool:
    """Return whether a class of a table is rare, and all rows of it are to be learned from."""
    return bool(np.bincount(y).min() < RARE * len(y))


def learned(rows: Rows, seed: int) -> Rows:
    """Return what a classifier learns from: at most `MOST_ROWS`, all of rare classes among them.

    What it predicts is judged by ranks (AUROC), which the shares of the classes do not move.

    Args:
      rows: Rows, encoded.
      seed: Of the choice.
    """
    x, y = rows
    if len(y) <= MOST_ROWS:
        return rows
    order = np.random.default_rng(seed).permutation(len(y))
    is_common = np.bincount(y)[y[order]] >= RARE * len(y)
    chosen = order[np.argsort(is_common, kind="stable")][:MOST_ROWS]
    return x[chosen], y[chosen]


def measured(rows: Rows, test: Rows, spec: TableSpec, seed: int) -> dict[str, float]:
    """Measure rows.

    Args:
      rows: The rows, encoded; classifiers learn from what `learned` chooses.
      test: Held-out real rows.
      spec: The schema.
      seed: Of the classifiers, and of that choice.

    Returns:
      The AUROC of each classifier on the test rows (of more than two classes the mean over them);
      `pairs`, the mean total variation distance of pairs of columns from the test rows; `f1`, the
      mean F1 of the classifiers; and `queries`, the error of random queries.
    """
    tables = marginals.cells(spec, rows), marginals.cells(spec, test), marginals.columns(spec)
    chosen = learned(rows, seed)
    scores = {name: prediction.score(name, chosen, test, spec.classes, seed)
              for name in CLASSIFIERS}
    return {name: score.auroc for name, score in scores.items()} | {
        "pairs": marginals.two_way_tvd(*tables),
        "f1": statistics.fmean(score.f1 for score in scores.values()),
        "queries": query_error(*tables)}
