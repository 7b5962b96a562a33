"""The classical classifiers of GS-WGAN's evaluation, on pixels in [0, 1].

Source: evaluation/eval_sklearn.py of the published GS-WGAN code (Chen et al., NeurIPS 2020), whose
settings are kept, with four exceptions:
- adaboost: SAMME, since SAMME.R, which the code names, has left scikit-learn;
- linear_svc: scikit-learn's tolerance, 1e-4, and at most 1000 iterations, where the code asks for
  1e-8 and 10,000, which take hours;
- lda: without a number of components, which changes no prediction;
- xgboost: the objective is XGBoost's choice, which is the code's for more than two classes.
The setting of the evaluation says how many images the slow ones learn from.
"""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.scores import pick

Predict = Callable[[np.ndarray], np.ndarray]
"""Images [n, H, W, ch] -> their classes, int [n]."""

CHUNK = 10_000
"""Images that are classified at once."""


def _xgboost(seed: int) -> Any:
    require("xgboost")
    import xgboost

    return xgboost.XGBClassifier(colsample_bytree=0.1, n_estimators=50, n_jobs=-1,
                                 random_state=seed)


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "adaboost": lambda seed: AdaBoostClassifier(n_estimators=100, random_state=seed),
    "bagging": lambda seed: BaggingClassifier(n_estimators=20, max_samples=0.1, random_state=seed),
    "bernoulli_nb": lambda _: BernoulliNB(binarize=0.5),
    "gaussian_nb": lambda _: GaussianNB(),
    "decision_tree": lambda seed: DecisionTreeClassifier(class_weight="balanced",
                                                         random_state=seed),
    "gradient_boosting": lambda seed: GradientBoostingClassifier(n_estimators=50, subsample=0.1,
                                                                 random_state=seed),
    "lda": lambda _: LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5, tol=1e-8),
    "linear_svc": lambda seed: LinearSVC(loss="hinge", max_iter=1000, random_state=seed),
    "logistic_regression": lambda _: LogisticRegression(max_iter=5000),
    "random_forest": lambda seed: RandomForestClassifier(n_estimators=100, class_weight="balanced",
                                                         n_jobs=-1, random_state=seed),
    "xgboost": _xgboost,
}
"""Name -> a function of the seed; parameters that the published code does not set are defaults."""


def installed(name: str) -> bool:
    """Return whether a classifier is installed: all but XGBoost come with this package."""
    return name != "xgboost" or importlib.util.find_spec("xgboost") is not None


def require(name: str) -> None:
    """Check that a classifier is installed.

    Raises:
      UserError: It is not.
    """
    if not installed(name):
        raise UserError(f"the classifier {name!r} needs a package that is missing; pip install "
                        f"'dpgen_jax[{name}]', or leave it out")


def fit(name: str, x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    """Train a classifier; the same arguments give the same one.

    It knows the classes in y alone. It predicts the commonest class where there is only one, where
    the images are all (or all but) alike, and where boosting finds no member better than chance.

    Args:
      name: A name of `CLASSIFIERS`.
      x: Images [n, H, W, ch], uint8 or float in [0, 1].
      y: Labels int [n].
      seed: The seed of its training.

    Returns:
      A function of images [m, H, W, ch] that returns their classes int [m].

    Raises:
      UserError: There is no such classifier, or XGBoost is not installed.
    """
    model = pick("classifier", CLASSIFIERS, name)(seed)
    classes, y = np.unique(y, return_inverse=True)
    commonest = classes[np.bincount(y).argmax()]

    def constant(images: np.ndarray) -> np.ndarray:
        return np.full(len(images), commonest)

    if len(classes) == 1 or (x == x[:1]).all():
        return constant
    with _quiet():
        try:
            model.fit(_pixels(x), y)
        except np.linalg.LinAlgError:
            return constant
        except ValueError as error:
            if "worse than random" in str(error):
                return constant
            raise

    def predict(images: np.ndarray) -> np.ndarray:
        with _quiet():
            return classes[np.concatenate([model.predict(_pixels(images[i:i + CHUNK]))
                                           for i in range(0, len(images), CHUNK)])]

    return predict


def _pixels(x: np.ndarray) -> np.ndarray:
    """Return images as float32 [n, H * W * ch] in [0, 1]."""
    flat = x.reshape(len(x), -1).astype(np.float32)
    return flat / 255 if x.dtype == np.uint8 else flat


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings that are expected, and give matrix products one thread.

    Several threads cost more than they gain, and the last bits of a result would depend on their
    number.
    """
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "Using the fractional value max_samples")  # few images
        yield
