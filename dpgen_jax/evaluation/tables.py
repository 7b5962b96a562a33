"""Utility of synthetic tables, by the four classifiers of G-PATE (Long et al., 2021, appendix E).

A classifier is trained once on encoded rows, standardised with the mean and scale of its own
training rows, and tested once. Rows are float [n, F] in [0, 1], hard (a one-hot has a single 1);
labels are integers 0..classes-1, where of two classes class 1 is the positive one.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
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

from dpgen_jax.core import checks
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.evaluation import detection, marginals
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import Log, pick, silent, summary
from dpgen_jax.evaluation.settings import TASKS

POSITIVE_WEIGHT = 350
"""Weight of class 1 in `lr`: the paper's, meant for 0.17 % of frauds, and kept for all data."""


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


CLASSIFIERS: dict[str, Callable[[int, int], Any]] = {
    "lr": _logistic,
    "adaboost": lambda _, seed: AdaBoostClassifier(_member(), n_estimators=200, random_state=seed),
    "bagging": lambda _, seed: BaggingClassifier(_member(), n_estimators=100, random_state=seed),
    "mlp": lambda _, seed: MLPClassifier((18, 18, 18), activation="tanh", random_state=seed),
}
"""Name -> a function of (classes, seed); what the paper leaves open is scikit-learn's default.

AdaBoost is SAMME on predicted classes: the variant on probabilities, the default when the paper was
written, has left scikit-learn. It makes fewer than 200 members where one more would not help.
"""


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
    """The share of rows whose likeliest class is right."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    description: str
    """The start of the text that metrics.json has on the setting."""
    n_samples: int
    """Synthetic rows of a draw, and the most real ones to train on."""
    seeds: int


Pairs = Mapping[str, Sequence[tuple[Rows, Rows]]]
"""Task -> the rows to train on and the rows to test on, of each seed."""
SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 10_000, 3),
    Setting("fast", "a fast evaluation for laptops, whose numbers are less certain", 2_500, 2))}


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
    return _judge(_fit(classifier, train, classes, seed), test, classes)


def _fit(classifier: str, train: Rows, classes: int, seed: int) -> Any:
    """Return the trained model."""
    (x, y), model = train, pick("classifier", CLASSIFIERS, classifier)(classes, seed)
    model = make_pipeline(StandardScaler(), model if len(np.unique(y)) > 1 else DummyClassifier())
    # The matrices are so small that several threads take six times as long on a busy machine.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return model.fit(x, y)
        except ValueError:
            # Rows and labels were checked: boosting's first member is no better than chance.
            return DummyClassifier().fit(x, y)


def _judge(model: Any, test: Rows, classes: int) -> Scores:
    """Return the scores of a trained model on the test rows."""
    x, y = test
    probabilities = np.zeros((len(y), classes))  # 0 for a class that the model never saw
    with threadpool_limits(1):
        probabilities[:, model.classes_] = model.predict_proba(x)
    hits = {c: y == c for c in ([1] if classes == 2 else range(classes))}
    split = {c: hit for c, hit in hits.items() if 0 < hit.sum() < len(hit)}
    auroc = [roc_auc_score(hit, probabilities[:, c]) for c, hit in split.items()] or [0.5]
    auprc = [average_precision_score(hit, probabilities[:, c]) for c, hit in split.items()
             ] or [hit.mean() for hit in hits.values()]
    return Scores(float(np.mean(auroc)), float(np.mean(auprc)),
                  float(np.mean(probabilities.argmax(1) == y)))


def utility(synthetic: Callable[[int, int], Rows], test: Rows, real: Rows | None, spec: TableSpec,
            options: Evaluation = Evaluation(), log: Log = silent) -> dict[str, Any]:
    """Compute the parts of metrics.json on the utility and the fidelity of a table.

    Args:
      synthetic: A function of (n, seed) that draws encoded rows and labels, in the released shares
        of the classes.
      test: Held-out real rows, which are in no training set.
      real: Real training rows, of which as many are used as there are synthetic ones; None to leave
        out `real2gen`, `real2real` and the floors.
      spec: The schema.
      options: What is measured (`TASKS` and `fidelity` of its metrics), by which classifiers, with
        how many rows and seeds; what it leaves open is of `SETTINGS`.
      log: A function that takes a line of progress for each classifier and each draw.

    Returns:
      {task: {classifier: {"auroc", "auprc", "accuracy"}}}, each a `summary` over the seeds;
      `fidelity`, see `marginals.fidelity` and `detection.fidelity`; `schema_violations`, the
      fraction of synthetic cells that break the schema; setting, n_samples, n_test, n_real (of the
      rows used), seeds; seconds, of each part; `notes`, on classes that a part lacks; and
      `not_covered_by_epsilon`: the keys that were computed from real rows, which the privacy
      statement does not cover and which nobody may use to choose between models.

    Raises:
      UserError: Rows are malformed or not finite, or there is no such classifier.
    """
    setting = SETTINGS["fast" if options.fast else "full"]
    setting = dataclasses.replace(setting, seeds=options.seeds or setting.seeds,
                                  n_samples=options.samples or setting.n_samples)
    started = time.monotonic()
    draws = [_checked("synthetic", synthetic(setting.n_samples, seed), spec)
             for seed in range(setting.seeds)]
    seconds = {"sampling": time.monotonic() - started}
    test = _checked("test", test, spec)
    if real is not None:
        x, y = _checked("real", real, spec)
        picked = np.random.default_rng(0).permutation(len(y))[:setting.n_samples]
        real = x[picked], y[picked]
    available = _pairs(draws, test, real)
    pairs: Pairs = {task: available[task] for task in TASKS
                    if task in available and task in options.metrics}
    scores = _tasks(pairs, spec.classes, options.classifiers or tuple(CLASSIFIERS), seconds, log)
    keys = [f"{task}.{name}.{metric}" for task, by_name in scores.items()
            for name, metrics in by_name.items() for metric in metrics]
    if "fidelity" in options.metrics:
        started = time.monotonic()
        scores["fidelity"] = _fidelity(draws, test, real, spec, log)
        seconds["fidelity"] = time.monotonic() - started
        keys += [f"fidelity.{name}" for name in scores["fidelity"]]
    broken = [marginals.schema_violations(marginals.cells(spec, draw), marginals.columns(spec))
              for draw in draws]
    n_real = 0 if real is None else len(real[1])
    return scores | {
        "schema_violations": summary(broken), "setting": _described(setting, n_real),
        "n_samples": setting.n_samples, "n_test": len(test[1]), "n_real": n_real,
        "seeds": setting.seeds, "seconds": seconds, "notes": _notes(pairs, spec),
        "not_covered_by_epsilon": keys}


def _described(setting: Setting, n_real: int) -> dict[str, Any]:
    """Return `setting` of metrics.json."""
    text = (f"{setting.description}: the classifiers of G-PATE with their published settings, on "
            f"{setting.n_samples:,} synthetic rows for each of {setting.seeds} seeds, and on "
            f"{n_real:,} real ones")
    return {"name": setting.name, "schedule": {}, "text": text}


def _pairs(draws: Sequence[Rows], test: Rows, real: Rows | None) -> Pairs:
    """Return the (training, test) rows of each task and seed."""
    pairs = {"gen2real": [(draw, test) for draw in draws]}
    if real is not None:
        pairs |= {"real2gen": [(real, draw) for draw in draws],
                  "real2real": [(real, test)] * len(draws)}
    return pairs


def _fidelity(draws: Sequence[Rows], test: Rows, real: Rows | None, spec: TableSpec, log: Log
              ) -> dict[str, Any]:
    """Return the fidelity of as many rows of a draw as the floor has."""
    rows = slice(None if real is None else len(real[1]))
    alike = [(x[rows], y[rows]) for x, y in draws]
    return (marginals.fidelity(alike, test, real, spec)
            | detection.fidelity(alike, test, real, spec.classes, log))


def _tasks(pairs: Pairs, classes: int, classifiers: Sequence[str], seconds: dict[str, float],
           log: Log) -> dict[str, Any]:
    """Return {task: {classifier: {metric: summary}}}, and add to `seconds`.

    A classifier is trained once for the tasks that train on the same rows.
    """
    result: dict[str, Any] = {task: {} for task in pairs}
    for name in classifiers:
        started = time.monotonic()
        models: dict[tuple[int, int], Any] = {}
        scores: dict[str, list[Scores]] = {}
        for task, of_task in pairs.items():
            for seed, (train, test) in enumerate(of_task):
                key = seed, id(train)
                if key not in models:
                    models[key] = _fit(name, train, classes, seed)
                scores.setdefault(task, []).append(_judge(models[key], test, classes))
        for task, values in scores.items():
            result[task][name] = {field.name: summary([getattr(s, field.name) for s in values])
                                  for field in dataclasses.fields(Scores)}
        aurocs = ", ".join(f"{t} {result[t][name]['auroc']['mean']:.4f}" for t in scores)
        seconds[name] = time.monotonic() - started
        log(f"{name}: AUROC {aurocs} ({seconds[name]:.0f} s)")
    return result


def _notes(pairs: Pairs, spec: TableSpec) -> list[str]:
    """Return a line for each draw in which a class is absent: its score is then no measurement."""
    notes = []
    for task, of_task in pairs.items():
        for seed, pair in enumerate(of_task):
            for part, (_, y) in zip(("training", "test"), pair, strict=True):
                absent = sorted({*range(spec.classes)} - {*y.tolist()})
                if absent:
                    names = ", ".join(spec.label.categories[c] for c in absent)
                    notes.append(f"{task}, seed {seed}: no {part} row has class {names}")
    return notes


def _checked(part: str, rows: Rows, spec: TableSpec) -> Rows:
    """Return rows float64 [n, F] and labels int [n], after a check against the schema."""
    x, y = np.asarray(rows[0], np.float64), np.asarray(rows[1])
    if x.ndim != 2 or x.shape[1:] != spec.shape or not len(x):
        raise UserError(f"{part} rows have shape {x.shape}, the schema needs [n, {spec.shape[0]}] "
                        "with n at least 1; encode them with the same schema")
    checks.labels(part, y, len(x), spec.classes)
    if not np.isfinite(x).all():
        mend = ("the generator diverged: lower its learning rate and train again"
                if part == "synthetic" else "leave them out")
        raise UserError(f"{part} rows hold NaN or infinite values; {mend}")
    return x, y
