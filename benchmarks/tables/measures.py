"""What is measured of synthetic rows: the use of classifiers, and the distance of column pairs.

All of it reads real rows, and none of it is covered by an epsilon: it belongs to public tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import marginals

Rows = tuple[np.ndarray, np.ndarray]
"""Encoded rows float [n, F] and labels int [n]."""
MOST_ROWS = 10_000
"""The most rows, synthetic or real, that a classifier learns from."""
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "lr": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "rf": lambda seed: RandomForestClassifier(100, random_state=seed),
    "gb": lambda seed: HistGradientBoostingClassifier(random_state=seed)}
"""Logistic regression, a random forest and gradient boosting, each with its defaults."""


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
    columns = marginals.columns(spec)
    distance = marginals.two_way_tvd(marginals.cells(spec, rows), marginals.cells(spec, test),
                                     columns)
    return {name: _auroc(make(seed), rows, test, spec.classes)
            for name, make in CLASSIFIERS.items()} | {"pairs": distance}


def _auroc(model: Any, rows: Rows, test: Rows, classes: int) -> float:
    """Return the AUROC of a classifier; 0.5 where the rows it learns from have one class."""
    (x, y), (x_test, y_test) = rows, test
    if len(np.unique(y)) < 2:
        return 0.5
    scores = np.zeros((len(y_test), classes))  # 0 for a class that the rows do not have
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
        scores[:, model.classes_] = model.predict_proba(x_test)
    hits = {c: y_test == c for c in ([1] if classes == 2 else range(classes))}
    return float(np.mean([roc_auc_score(hit, scores[:, c]) for c, hit in hits.items()
                          if 0 < hit.sum() < len(hit)]))
