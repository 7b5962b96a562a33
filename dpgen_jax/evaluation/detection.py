"""Can synthetic rows be told from real ones? A classifier is trained to try.

Equal numbers of both, chosen with the seed, as features in [0, 1]: the encoded row and its class as
a one-hot. Real rows are held-out ones, so that copies of training rows gain nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import summary

FOLDS = 5
FEWEST = 10
"""Rows of a part below which nothing can be learned from it."""
METRICS = ("pmse", "detection_auroc")


def fidelity(draws: Sequence[Rows], test: Rows, real: Rows | None, classes: int,
             say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """`pmse` and `detection_auroc` of metrics.json: summaries over the draws against `test`, with
    `floor`, that of `real`, training rows, as in `marginals.fidelity`. All of it is computed from
    real rows. say: told one line a draw."""
    found = []
    for seed, draw in enumerate(draws):
        found.append(detect(draw, test, classes, seed))
        say(f"detection, seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found[-1].items()))
    floor = dict.fromkeys(METRICS) if real is None else detect(real, test, classes)
    return {name: summary([f[name] for f in found]) | {"floor": floor[name]} for name in METRICS}


def detect(made: Rows, real: Rows, classes: int, seed: int = 0) -> dict[str, float]:
    """{"pmse": see `pmse`, "detection_auroc": see `auroc`} of rows against real ones; each part of
    as many rows as the smaller has."""
    n = min(len(made[1]), len(real[1]))
    rng = np.random.default_rng(seed)
    parts = []
    for x, y in (made, real):
        picked = rng.permutation(len(y))[:n]
        parts.append(np.column_stack([x[picked], np.eye(classes)[y[picked]]]))
    x, truth = np.concatenate(parts), np.repeat([1, 0], n)
    return dict(zip(METRICS, (pmse(x, truth), auroc(x, truth, seed)), strict=True))


def pmse(x: np.ndarray, truth: np.ndarray) -> float:
    """Propensity score mean squared error (Snoke, Raab, Nowok, Dibben and Slavkovic, JRSS A 2018).

    The mean of (p - c)^2 over all N rows x float [N, F], p being the chance of being synthetic that
    a logistic regression gives a row, unpenalised, on main effects and fitted to these same rows;
    c: the share of synthetic rows, where truth int [N] is 1. It sees what single features tell, and
    not how they go together. From 0 to c (1 - c), 0.25 for equal numbers.
    Of rows of one law, k of whose features do not depend on each other linearly, its expected value
    is about k c (1 - c) / N, k / 4N for equal numbers: p - c is about c (1 - c) z b with z the
    standardised row and b the fitted weights, whose variance is 1 / (N c (1 - c)). (Theirs, smaller
    by 1 - c, is for rows that were drawn from a model fitted to these very real rows.)
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, tol=1e-7, max_iter=300))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows that can be told apart surely
        chances = model.fit(x, truth).predict_proba(x)[:, 1]
    return float(np.mean((chances - truth.mean()) ** 2))


def auroc(x: np.ndarray, truth: np.ndarray, seed: int = 0) -> float:
    """The area under the ROC curve of boosted trees that tell rows with truth 1 from those with 0:
    0.5 for rows that cannot be told apart, 1 for rows that always can.

    Cross-validated: each row is judged by trees that never saw it. Below 0.5 where rows with truth
    1 are copies of the very rows with truth 0: trees that saw one take the other for its opposite.
    0.5 with fewer than `FEWEST` of either kind.
    """
    if np.bincount(truth, minlength=2).min() < FEWEST:
        return 0.5
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(1):  # on a busy machine more threads take ten times as long
        chances = cross_val_predict(trees, x, truth, cv=folds, method="predict_proba")
    return float(roc_auc_score(truth, chances[:, 1]))
