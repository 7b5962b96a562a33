"""Detection of synthetic rows: how well a classifier tells them from real ones.

It sees equal numbers of both, picked with the seed, as features in [0, 1]: the encoded row and its
class as a one-hot. Real rows are held-out ones, so that copies of training rows gain nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from dpgen_jax.core.strict_json import Json
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import Log, silent, summary

FOLDS = 5
"""Folds of the cross-validation."""
MIN_ROWS = 10
"""With fewer rows of either kind nothing can be learned."""
METRICS = ("pmse", "detection_auroc")


def fidelity(draws: Sequence[Rows], test: Rows, real: Rows | None, classes: int,
             log: Log = silent) -> Json:
    """Compute `pmse` and `detection_auroc` of metrics.json, all from real rows.

    Args:
      draws: Synthetic rows, one draw a seed.
      test: Held-out real rows.
      real: Real training rows, for the floors; None for no floors.
      classes: The number of classes.
      log: A function that takes a line of progress for each draw.

    Returns:
      {name: `summary` over the draws, with `floor`, the same score of `real`}.
    """
    scores = []
    for seed, draw in enumerate(draws):
        scores.append(detect(draw, test, classes, seed))
        log(f"detection, seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in scores[-1].items()))
    floor = {} if real is None else detect(real, test, classes)
    return {name: summary([score[name] for score in scores]) | {"floor": floor.get(name)}
            for name in METRICS}


def detect(synthetic: Rows, real: Rows, classes: int, seed: int = 0) -> dict[str, float]:
    """Measure how well synthetic rows can be told from real ones.

    Args:
      synthetic: Encoded rows float [n, F] in [0, 1] and labels int [n].
      real: Encoded real rows and labels; as many of each part are used as the smaller has.
      classes: The number of classes.
      seed: The seed of the choice of rows and of the classifiers.

    Returns:
      {"pmse": see `pmse`, "detection_auroc": see `auroc`}.
    """
    n = min(len(synthetic[1]), len(real[1]))
    rng = np.random.default_rng(seed)
    parts = []
    for x, y in (synthetic, real):
        picked = rng.permutation(len(y))[:n]
        parts.append(np.column_stack([x[picked], np.eye(classes)[y[picked]]]))
    x, truth = np.concatenate(parts), np.repeat([1, 0], n)
    return dict(zip(METRICS, (pmse(x, truth), auroc(x, truth, seed)), strict=True))


def pmse(x: np.ndarray, truth: np.ndarray) -> float:
    """Compute the propensity score mean squared error.

    It is the mean of (p - c)^2 over all N rows, where c is the share of synthetic rows and p the
    probability of being synthetic that a logistic regression gives a row: unpenalised, on main
    effects, and fitted to these same rows. It sees single features, and not how they go together.

    Of rows of one law, k of whose features do not depend on each other linearly, its expected value
    is about k c (1 - c) / N, k / 4N for equal numbers: p - c is about c (1 - c) z b with z the
    standardised row and b the fitted weights, whose variance is 1 / (N c (1 - c)). (That of the
    paper, smaller by 1 - c, is for rows drawn from a model fitted to these very real rows.)

    Args:
      x: Rows float [N, F].
      truth: int [N], 1 for a synthetic row and 0 for a real one.

    Returns:
      A number from 0 to c (1 - c), which is 0.25 for equal numbers.

    Source:
      Snoke, Raab, Nowok, Dibben and Slavkovic, JRSS A 2018.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, tol=1e-7, max_iter=300))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows that are separable
        probabilities = model.fit(x, truth).predict_proba(x)[:, 1]
    return float(np.mean((probabilities - truth.mean()) ** 2))


def auroc(x: np.ndarray, truth: np.ndarray, seed: int = 0) -> float:
    """Compute the area under the ROC curve of boosted trees that tell two kinds of rows apart.

    Cross-validated: each row is judged by trees that never saw it. It is below 0.5 where rows with
    truth 1 are copies of the very rows with truth 0: trees that saw one of the two take the other
    for its opposite.

    Args:
      x: Rows float [N, F].
      truth: int [N], 1 for a synthetic row and 0 for a real one.
      seed: The seed of the folds and of the trees.

    Returns:
      0.5 for rows that cannot be told apart, and with fewer than `MIN_ROWS` of either kind; 1 for
      rows that always can.
    """
    if np.bincount(truth, minlength=2).min() < MIN_ROWS:
        return 0.5
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(1):  # more threads take ten times as long on a busy machine
        probabilities = cross_val_predict(trees, x, truth, cv=folds, method="predict_proba")
    return float(roc_auc_score(truth, probabilities[:, 1]))
