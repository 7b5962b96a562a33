"""How useful synthetic tables are: the four classifiers of G-PATE (Long et al., 2021, appendix E).

A classifier is trained once on encoded rows, standardised with the mean and scale of its own
training rows, and judged once. Rows are float [n, F] in [0, 1], hard (a one-hot has a single 1);
labels are integers 0..classes-1, where of two classes class 1 is the positive one.
"""

from __future__ import annotations

import dataclasses
import time
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

from dpgen_jax.evaluation import detection, marginals
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import pick, summary
from dpgen_jax.evaluation.utility import TASKS
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


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    words: str
    n_samples: int
    seeds: int


SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 10_000, 3),
    Setting("fast", "a fast evaluation for laptops, whose numbers are less certain", 2_500, 2))}


def score(classifier: str, train: Rows, test: Rows, classes: int, seed: int = 0) -> Scores:
    """Trains one classifier and judges it; the same arguments give the same scores.

    Where the training rows have one class only, or boosting finds no member better than chance, the
    score is constant: the classes' shares in the training rows. Errors: UserError for an unknown
    classifier.
    """
    return _judge(_fit(classifier, train, classes, seed), test, classes)


def _fit(classifier: str, train: Rows, classes: int, seed: int) -> Any:
    """The trained model."""
    (x, y), model = train, pick("classifier", CLASSIFIERS, classifier)(classes, seed)
    model = make_pipeline(StandardScaler(), model if len(np.unique(y)) > 1 else DummyClassifier())
    # So small a matrix is no work for several threads: on a busy machine they cost six times.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return model.fit(x, y)
        except ValueError:  # rows and labels are checked: boosting's first member is no better
            return DummyClassifier().fit(x, y)  # than chance


def _judge(model: Any, test: Rows, classes: int) -> Scores:
    x, y = test
    chances = np.zeros((len(y), classes))  # 0 for a class that the model never saw
    with threadpool_limits(1):
        chances[:, model.classes_] = model.predict_proba(x)
    hits = {c: y == c for c in ([1] if classes == 2 else range(classes))}
    split = {c: hit for c, hit in hits.items() if 0 < hit.sum() < len(hit)}
    return Scores(
        float(np.mean([roc_auc_score(hit, chances[:, c]) for c, hit in split.items()] or [0.5])),
        float(np.mean([average_precision_score(hit, chances[:, c]) for c, hit in split.items()]
                      or [hit.mean() for hit in hits.values()])),
        float(np.mean(chances.argmax(1) == y)))


def utility(synthetic: Callable[[int, int], Rows], test: Rows, real: Rows | None, spec: TableSpec,
            seeds: int | None = None, *, tasks: Sequence[str] = TASKS, fast: bool = False,
            n_samples: int | None = None, classifiers: Sequence[str] = (),
            with_fidelity: bool = True, say: Callable[[str], None] = lambda line: None
            ) -> dict[str, Any]:
    """What metrics.json says of a table.

    synthetic: draws rows and labels for (n, seed), in the released shares of the classes; test:
    real rows that are in no training set; real: other real rows, of which as many are used as there
    are synthetic ones, and without which `real2gen`, `real2real` and the floors are left out.
    seeds, n_samples: those of `SETTINGS`, `fast` or full, if left out; classifiers: all if left
    out; say: told one line a classifier and one a draw.
    Returns {task: {classifier: {"auroc", "auprc", "accuracy"}}}, each a `summary` over the seeds;
    `fidelity`, see `marginals.fidelity` and `detection.fidelity`; `schema_violations`, the fraction
    of synthetic cells that break the schema; setting, n_samples, n_test, n_real (of the rows used),
    seeds; seconds, of each part; `notes`, on classes that a part lacks; and
    `not_covered_by_epsilon`: the keys that were computed from real rows, which the statement of
    privacy does not cover and which nobody may use to choose between models.
    Errors: UserError for rows that are malformed or not finite, and as `score`.
    """
    setting = SETTINGS["fast" if fast else "full"]
    seeds = setting.seeds if seeds is None else seeds
    n_samples = setting.n_samples if n_samples is None else n_samples
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, got {seeds}")
    started = time.monotonic()
    draws = [_checked("synthetic", synthetic(n_samples, seed), spec) for seed in range(seeds)]
    seconds = {"sampling": time.monotonic() - started}
    test = _checked("test", test, spec)
    parts = {"gen2real": [(draw, test) for draw in draws]}
    if real is not None:
        real = _checked("real", real, spec)
        picked = np.random.default_rng(0).permutation(len(real[1]))[:n_samples]
        real = real[0][picked], real[1][picked]
        parts |= {"real2gen": [(real, draw) for draw in draws], "real2real": [(real, test)] * seeds}
    parts = {task: parts[task] for task in tasks if task in parts}
    found = _tasks(parts, spec.classes, classifiers or tuple(CLASSIFIERS), seconds, say)
    seen = [f"{task}.{name}.{metric}" for task, scores in found.items()
            for name, metrics in scores.items() for metric in metrics]
    if with_fidelity:
        started = time.monotonic()
        found["fidelity"] = _fidelity(draws, test, real, spec, say)
        seconds["fidelity"] = time.monotonic() - started
        seen += [f"fidelity.{name}" for name in found["fidelity"]]
    broken = [marginals.schema_violations(marginals.cells(spec, draw), marginals.columns(spec))
              for draw in draws]
    n_real = 0 if real is None else len(real[1])
    text = (f"{setting.words}: the classifiers of G-PATE with their published settings, on "
            f"{n_samples:,} synthetic rows for each of {seeds} seeds, and on {n_real:,} real ones")
    return found | {
        "schema_violations": summary(broken),
        "setting": {"name": setting.name, "schedule": {}, "text": text}, "n_samples": n_samples,
        "n_test": len(test[1]), "n_real": n_real, "seeds": seeds, "seconds": seconds,
        "notes": _notes(parts, spec), "not_covered_by_epsilon": seen}


def _fidelity(draws: Sequence[Rows], test: Rows, real: Rows | None, spec: TableSpec,
              say: Callable[[str], None]) -> dict[str, Any]:
    """On as many rows of a draw as the floor has."""
    like = slice(None if real is None else len(real[1]))
    alike = [(x[like], y[like]) for x, y in draws]
    return (marginals.fidelity(alike, test, real, spec)
            | detection.fidelity(alike, test, real, spec.classes, say))


def _tasks(parts: dict[str, list[tuple[Rows, Rows]]], classes: int, classifiers: Sequence[str],
           seconds: dict[str, float], say: Callable[[str], None]) -> dict[str, Any]:
    """{task: {classifier: {metric: summary}}}, from each task's (training, test) rows of each seed;
    a classifier is trained once for the tasks that train on the same rows. Adds to `seconds`."""
    found: dict[str, Any] = {task: {} for task in parts}
    for name in classifiers:
        started, models, scores = time.monotonic(), {}, {}
        for task, pairs in parts.items():
            for seed, (train, test) in enumerate(pairs):
                key = seed, id(train)
                if key not in models:
                    models[key] = _fit(name, train, classes, seed)
                scores.setdefault(task, []).append(_judge(models[key], test, classes))
        for task, values in scores.items():
            found[task][name] = {field.name: summary([getattr(s, field.name) for s in values])
                                 for field in dataclasses.fields(Scores)}
        aurocs = ", ".join(f"{t} {found[t][name]['auroc']['mean']:.4f}" for t in scores)
        seconds[name] = time.monotonic() - started
        say(f"{name}: AUROC {aurocs} ({seconds[name]:.0f} s)")
    return found


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
