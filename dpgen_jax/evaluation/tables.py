"""How useful synthetic tables are: the four classifiers of G-PATE (Long et al., 2021, appendix E).

A classifier is trained once on encoded rows, standardised with the mean and scale of its own
training rows, and judged once. Rows are float [n, F] in [0, 1], hard (a one-hot has a single 1);
labels are integers 0..classes-1, where of two classes class 1 is the positive one.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.utility import TASKS, summary
from dpgen_jax.types import TableSpec, UserError

POSITIVE_WEIGHT = 350
"""Weight of class 1 in `lr`: the paper's, made for 0.17 % of frauds, and kept for all data."""


def _logistic(classes: int, seed: int) -> Any:
    """L1, liblinear, 350:1; one against the rest and unweighted where classes are more than two."""
    options = {"solver": "liblinear", "l1_ratio": 1, "random_state": seed}
    if classes > 2:
        return OneVsRestClassifier(LogisticRegression(**options))
    return LogisticRegression(class_weight={0: 1, 1: POSITIVE_WEIGHT}, **options)


def _member() -> LogisticRegression:
    """L2. More iterations change nothing: the ensembles' scores at 20, 50 and 100 are alike."""
    return LogisticRegression(max_iter=50)


CLASSIFIERS: dict[str, Callable[[int, int], Any]] = {
    "lr": _logistic,
    "adaboost": lambda _, seed: AdaBoostClassifier(_member(), n_estimators=200, random_state=seed),
    "bagging": lambda _, seed: BaggingClassifier(_member(), n_estimators=100, random_state=seed),
    "mlp": lambda _, seed: MLPClassifier((18, 18, 18), activation="tanh", random_state=seed),
}
"""Name -> a function of (classes, seed); what the paper does not state is scikit-learn's default.

AdaBoost is SAMME on predicted classes: the variant on probabilities, the default when the paper was
written, has left scikit-learn. It makes fewer than 200 members where one more would not help.
"""


@dataclasses.dataclass(frozen=True)
class Scores:
    """On the test rows, each in [0, 1]: the area under the ROC curve, the average precision (area
    under the precision-recall curve), and the share of rows whose likeliest class is right.

    The first two are those of class 1, or of more than two classes the mean over all that some but
    not all test rows have, each against the rest. A constant score has 0.5 and the class's share.
    """

    auroc: float
    auprc: float
    accuracy: float


def score(classifier: str, train: Rows, test: Rows, classes: int, seed: int = 0) -> Scores:
    """Trains one classifier and judges it; the same arguments give the same scores.

    Where the training rows have one class only, or boosting finds no member better than chance, the
    score is constant: the classes' shares in the training rows. Errors: UserError for an unknown
    classifier.
    """
    if classifier not in CLASSIFIERS:
        raise UserError(f"unknown classifier {classifier!r}; known: {', '.join(CLASSIFIERS)}")
    x_test, y_test = test
    chances = _chances(CLASSIFIERS[classifier](classes, seed), *train, x_test, classes)
    hits = {c: y_test == c for c in ([1] if classes == 2 else range(classes))}
    split = {c: hit for c, hit in hits.items() if 0 < hit.sum() < len(hit)}
    return Scores(
        float(np.mean([roc_auc_score(hit, chances[:, c]) for c, hit in split.items()] or [0.5])),
        float(np.mean([average_precision_score(hit, chances[:, c]) for c, hit in split.items()]
                      or [hit.mean() for hit in hits.values()])),
        float(np.mean(chances.argmax(1) == y_test)))


def _chances(model: Any, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, classes: int
             ) -> np.ndarray:
    """What the trained model gives each class: float [n, classes], 0 for one it never saw."""
    model = make_pipeline(StandardScaler(), model if len(np.unique(y)) > 1 else DummyClassifier())
    # So small a matrix is no work for several threads: on a busy machine they cost six times.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model.fit(x, y)
        except ValueError:  # rows and labels are checked: boosting's first member is no better
            model = DummyClassifier().fit(x, y)  # than chance
    chances = np.zeros((len(x_test), classes))
    chances[:, model.classes_] = model.predict_proba(x_test)
    return chances


def utility(synthetic: Callable[[int, int], Rows], test: Rows, real: Rows | None, spec: TableSpec,
            seeds: int = 3, *, tasks: Sequence[str] = TASKS, n_samples: int = 10_000,
            classifiers: Sequence[str] = tuple(CLASSIFIERS)) -> dict[str, Any]:
    """What metrics.json says of a table.

    synthetic: draws rows and labels for (n, seed), in the released shares of the classes; test:
    real rows that are in no training set; real: other real rows, of which as many are used as there
    are synthetic ones, and without which `real2gen`, `real2real` and the floors are left out.
    Returns {task: {classifier: {"auroc", "auprc", "accuracy"}}}, each a `summary` over the seeds;
    `fidelity`, see `marginals.fidelity`; `schema_violations`, the fraction of synthetic cells that
    break the schema; n_samples, n_test, seeds; `notes`, on classes that a part lacks; and
    `not_covered_by_epsilon`: the keys that were computed from real rows, which the statement of
    privacy does not cover and which nobody may use to choose between models.
    Errors: UserError for rows that are malformed or not finite, and as `score`.
    """
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, got {seeds}")
    draws = [_checked("synthetic", synthetic(n_samples, seed), spec) for seed in range(seeds)]
    test = _checked("test", test, spec)
    parts = {"gen2real": [(draw, test) for draw in draws]}
    if real is not None:
        real = _checked("real", real, spec)
        picked = np.random.default_rng(0).permutation(len(real[1]))[:n_samples]
        real = real[0][picked], real[1][picked]
        parts |= {"real2gen": [(real, draw) for draw in draws], "real2real": [(real, test)] * seeds}
    parts = {task: parts[task] for task in tasks if task in parts}
    found = {task: _over_seeds(pairs, spec.classes, classifiers) for task, pairs in parts.items()}
    like = slice(None if real is None else len(real[1]))  # as many rows as the floor has
    fidelity = marginals.fidelity([(x[like], y[like]) for x, y in draws], test, real, spec)
    broken = [marginals.schema_violations(marginals.cells(spec, draw), marginals.columns(spec))
              for draw in draws]
    seen = [f"{task}.{name}.{metric}" for task, scores in found.items()
            for name, metrics in scores.items() for metric in metrics]
    return found | {
        "fidelity": fidelity, "schema_violations": summary(broken), "n_samples": n_samples,
        "n_test": len(test[1]), "seeds": seeds, "notes": _notes(parts, spec),
        "not_covered_by_epsilon": seen + [f"fidelity.{name}" for name in fidelity]}


def _over_seeds(pairs: Sequence[tuple[Rows, Rows]], classes: int, classifiers: Sequence[str]
                ) -> dict[str, Any]:
    found = {name: [score(name, train, test, classes, seed)
                    for seed, (train, test) in enumerate(pairs)] for name in classifiers}
    return {name: {field.name: summary([getattr(s, field.name) for s in scores])
                   for field in dataclasses.fields(Scores)} for name, scores in found.items()}


def _notes(parts: dict[str, list[tuple[Rows, Rows]]], spec: TableSpec) -> list[str]:
    """A line for each draw in which a class is absent: its score is then no measurement."""
    notes = []
    for task, pairs in parts.items():
        for seed, pair in enumerate(pairs):
            for part, (_, y) in zip(("training", "test"), pair, strict=True):
                absent = sorted({*range(spec.classes)} - {*y.tolist()})
                if absent:
                    names = ", ".join(spec.label.categories[c] for c in absent)
                    notes.append(f"{task}, seed {seed}: no {part} row has class {names}")
    return notes


def _checked(part: str, rows: Rows, spec: TableSpec) -> Rows:
    x, y = np.asarray(rows[0], np.float64), np.asarray(rows[1])
    if x.ndim != 2 or x.shape[1:] != spec.shape or not len(x):
        raise UserError(f"{part} rows have shape {x.shape}, the schema needs [n, {spec.shape[0]}] "
                        "with n at least 1; encode them with the same schema")
    if y.shape != x.shape[:1] or not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{part} labels are {y.dtype}{list(y.shape)} for {len(x)} rows; expected "
                        "one integer a row")
    if y.min() < 0 or y.max() >= spec.classes:
        raise UserError(f"{part} labels are {y.min()}..{y.max()}, the schema has "
                        f"0..{spec.classes - 1}; number the classes as it does")
    if not np.isfinite(x).all():
        mend = ("the generator diverged: lower its learning rate and train again"
                if part == "synthetic" else "leave them out")
        raise UserError(f"{part} rows hold NaN or infinite values; {mend}")
    return x, y
