"""Classifiers and regressions that judge a table by what can be learned from it.

Rows are float [n, F] in [0, 1]. A model is trained once on encoded rows, standardised with the mean
and scale of its own training rows, and tested once. Of two classes class 1 is the positive one.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    r2_score,
    roc_auc_score,
    roc_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import pick

POSITIVE_WEIGHT = 350
"""Weight of class 1 in `lr`: the paper's, meant for 0.17 % of frauds, and kept for all data."""
LEAF = 5
"""The fewest rows in a leaf of a forest: with fewer it learns its own rows by heart."""


def _logistic(classes: int, seed: int) -> Any:
    """Return a logistic regression with L1, liblinear and weights 350:1.

    With more than two classes it is one against the rest, and unweighted.
    """
    options = {"solver": "liblinear", "l1_ratio": 1, "random_state": seed}
    if classes > 2:
        return OneVsRestClassifier(LogisticRegression(**options))
    return LogisticRegression(class_weight={0: 1, 1: POSITIVE_WEIGHT}, **options)


def _member() -> LogisticRegression:
    """Return a member of an ensemble, with L2.

    More iterations change nothing: the ensembles' scores at 20, 50 and 100 are alike.
    """
    return LogisticRegression(max_iter=50)


G_PATE: dict[str, Callable[[int, int], Any]] = {
    "lr": _logistic,
    "adaboost": lambda _, seed: AdaBoostClassifier(_member(), n_estimators=200, random_state=seed),
    "bagging": lambda _, seed: BaggingClassifier(_member(), n_estimators=100, random_state=seed),
    "mlp": lambda _, seed: MLPClassifier((18, 18, 18), activation="tanh", random_state=seed),
}
"""The classifiers of G-PATE (Long et al., 2021, appendix E), as `CLASSIFIERS`.

What the paper leaves open is scikit-learn's default. AdaBoost is SAMME on predicted classes: the
variant on probabilities, the default when the paper was written, has left scikit-learn. It makes
fewer than 200 members where one more would not help.
"""
COMMON: dict[str, Callable[[int, int], Any]] = {
    "logistic_regression": lambda _, seed: LogisticRegression(max_iter=1000, random_state=seed),
    "random_forest": lambda _, seed: RandomForestClassifier(min_samples_leaf=LEAF,
                                                            random_state=seed),
    "gradient_boosting": lambda _, seed: HistGradientBoostingClassifier(random_state=seed),
}
"""The classifiers that people use on tables, without weights, as `CLASSIFIERS`."""
CLASSIFIERS = G_PATE | COMMON
"""Name -> a function of (classes, seed)."""
REGRESSIONS: dict[str, Callable[[int], Any]] = {
    "ridge_regression": lambda _: Ridge(),
    "random_forest": lambda seed: RandomForestRegressor(min_samples_leaf=LEAF, random_state=seed),
    "gradient_boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
}
"""Name -> a function of a seed."""


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of a classifier on the test rows, each in [0, 1].

    The first two are those of class 1, or of more than two classes the mean over all that some but
    not all test rows have, each against the rest. A constant score has 0.5 and the class's share.
    """

    auroc: float
    """The area under the ROC curve."""
    auprc: float
    """The average precision, the area under the precision-recall curve."""
    accuracy: float
    """The share of rows whose likeliest class is right. A classifier that weighs its rows, as `lr`
    does, and rows in other shares of the classes make it low where every row is ranked well."""
    balanced_accuracy: float
    """The mean over classes of the share of its rows that are called by it. Of two classes the line
    is drawn where this is highest on the training rows; of more, the likeliest class counts."""
    f1: float
    """The mean over classes of F1, the harmonic mean of precision and recall, where the likeliest
    class counts: the measure of published benchmarks, which rows in other shares of the classes
    lower as they do accuracy."""


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A trained classifier."""

    model: Any
    line: float
    """The probability of class 1 from which on a row of two classes is called so."""


def score(classifier: str, train: Rows, test: Rows, classes: int, seed: int = 0) -> Scores:
    """Train one classifier and test it; the same arguments give the same scores.

    Where the training rows have one class only, or boosting finds no member better than chance, the
    score is constant: the classes' shares in the training rows.

    Args:
      classifier: A name of `CLASSIFIERS`.
      train: Encoded rows float [n, F] and labels int [n] to train on.
      test: The same to test on.
      classes: The number of classes.
      seed: The seed of the training.

    Returns:
      The scores on the test rows.

    Raises:
      UserError: There is no such classifier.
    """
    return judge(fit(classifier, train, classes, seed), test, classes)


def fit(classifier: str, train: Rows, classes: int, seed: int) -> Classifier:
    """Train a classifier, as `score` does.

    Args:
      classifier: A name of `CLASSIFIERS`.
      train: Encoded rows float [n, F] and labels int [n].
      classes: The number of classes.
      seed: The seed of the training.

    Returns:
      The trained classifier.
    """
    (x, y), model = train, pick("classifier", CLASSIFIERS, classifier)(classes, seed)
    model = make_pipeline(StandardScaler(), model if len(np.unique(y)) > 1 else DummyClassifier())
    # The matrices are so small that several threads take six times as long on a busy machine.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(x, y)
        except ValueError:
            # Rows and labels were checked: boosting's first member is no better than chance.
            model = DummyClassifier().fit(x, y)
        return Classifier(model, _line(_probabilities(model, x, classes)[:, -1], y)
                          if classes == 2 else 0.5)


def _line(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Return the probability of class 1 at which the balanced accuracy of these rows is highest.

    It lies halfway between the rows on both sides, of which a model that knows its rows by heart
    leaves many probabilities between them.
    """
    if not 0 < y.sum() < len(y):
        return 0.5
    fpr, tpr, lines = roc_curve(y, probabilities, drop_intermediate=False)
    best = int(np.argmax(tpr - fpr))
    below = lines[best + 1] if best + 1 < len(lines) else 0.0
    return float((min(lines[best], 1.0) + below) / 2)


def _probabilities(model: Any, x: np.ndarray, classes: int) -> np.ndarray:
    """Return the probability of each class [n, C]: 0 for one that the model never saw."""
    probabilities = np.zeros((len(x), classes))
    with threadpool_limits(1):
        probabilities[:, model.classes_] = model.predict_proba(x)
    return probabilities


def judge(trained: Classifier, test: Rows, classes: int) -> Scores:
    """Test a trained classifier.

    Args:
      trained: The result of `fit`.
      test: Encoded rows float [n, F] and labels int [n].
      classes: The number of classes.

    Returns:
      Its scores.
    """
    x, y = test
    probabilities = _probabilities(trained.model, x, classes)
    likeliest = probabilities.argmax(1)
    called = (probabilities[:, 1] >= trained.line).astype(int) if classes == 2 else likeliest
    hits = {c: y == c for c in ([1] if classes == 2 else range(classes))}
    split = {c: hit for c, hit in hits.items() if 0 < hit.sum() < len(hit)}
    auroc = [roc_auc_score(hit, probabilities[:, c]) for c, hit in split.items()] or [0.5]
    auprc = [average_precision_score(hit, probabilities[:, c]) for c, hit in split.items()
             ] or [hit.mean() for hit in hits.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class that no test row has
        balanced = balanced_accuracy_score(y, called)
    f1 = f1_score(y, likeliest, average="macro", zero_division=0)
    return Scores(float(np.mean(auroc)), float(np.mean(auprc)), float(np.mean(likeliest == y)),
                  float(balanced), float(f1))


def fit_regression(regression: str, train: Rows, seed: int = 0) -> Any:
    """Train a regression; the same arguments give the same one.

    Args:
      regression: A name of `REGRESSIONS`.
      train: Encoded rows float [n, F] and numbers float [n].
      seed: The seed of the training.

    Returns:
      The trained model.

    Raises:
      UserError: There is no such regression.
    """
    model = make_pipeline(StandardScaler(), pick("regression", REGRESSIONS, regression)(seed))
    with threadpool_limits(1):
        return model.fit(*train)


def r2(model: Any, test: Rows) -> float:
    """Test a trained regression.

    Args:
      model: The result of `fit_regression`.
      test: Encoded rows float [n, F] and numbers float [n], two rows at least.

    Returns:
      R2: 1 where every number is right, 0 for the mean of the test rows, and below 0 for worse.
    """
    with threadpool_limits(1):
        return float(r2_score(test[1], model.predict(test[0])))
