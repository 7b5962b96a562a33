"""Measures of synthetic rows: the use of classifiers, and the distance of column pairs.

All of it reads real rows, and none of it is covered by an epsilon: it belongs to public tables.
"""

from __future__ import annotations

from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import marginals, table_models
from dpgen_jax.evaluation.marginals import Rows

MOST_ROWS = 10_000
"""The most rows, synthetic or real, that a classifier learns from."""
CLASSIFIERS = tuple(table_models.COMMON)
"""Logistic regression, a random forest and gradient boosting."""
ABOUT = ("AUROC of logistic regression, a forest with 5 rows a leaf and gradient boosting of "
         "histograms; mean total variation distance of pairs of columns, 20 bins of a number")
"""The description of the scores: results of other measures are measured anew."""


def measured(rows: Rows, test: Rows, spec: TableSpec, seed: int) -> dict[str, float]:
    """Measure rows.

    Args:
      rows: What the classifiers learn from, encoded; at most `MOST_ROWS`.
      test: Held-out real rows.
      spec: The schema.
      seed: Of the classifiers.

    Returns:
      The AUROC of each classifier on the test rows (of more than two classes the mean over them),
      and `pairs`, the mean total variation distance of pairs of columns from the test rows.
    """
    distance = marginals.two_way_tvd(marginals.cells(spec, rows), marginals.cells(spec, test),
                                     marginals.columns(spec))
    return {name: table_models.score(name, rows, test, spec.classes, seed).auroc
            for name in CLASSIFIERS} | {"pairs": distance}
