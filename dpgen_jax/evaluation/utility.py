"""Utility of synthetic images: the accuracy of classifiers trained on them, and the reverse.

Images are [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1]; labels are integers from 0.

A classifier is trained with a fixed schedule and tested once, after the last epoch: picking the
best epoch on the test images, as the published codes do, would fit the schedule to them. Models may
be chosen by `validation_accuracy` of `gen2real`, which is measured on labelled images held out of
the synthetic ones and so costs no privacy.

The classical classifiers are those of GS-WGAN's evaluation, on pixels in [0, 1]. Source:
evaluation/eval_sklearn.py of the published GS-WGAN code (Chen et al., NeurIPS 2020), whose settings
are kept, with four exceptions:

- adaboost: SAMME, since scikit-learn no longer has SAMME.R, which the code names;
- linear_svc: scikit-learn's tolerance, 1e-4, and at most 1000 iterations, where the code has 1e-8
  and 10,000, which take hours;
- lda: without a number of components, which changes no prediction;
- xgboost: the objective is XGBoost's choice, which is the code's for more than two classes.

The setting of the evaluation says how many images the slow ones learn from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

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
from threadpoolctl import threadpool_limits

from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation import results
from dpgen_jax.evaluation.networks import FAST, FULL, Schedule, fit_classifier, predict
from dpgen_jax.evaluation.results import (
    TASKS,
    Finding,
    Log,
    Part,
    Real,
    Records,
    Score,
    Synthetic,
    checked,
    pick,
)
from dpgen_jax.nets import classifiers as nets

Predict = Callable[[np.ndarray], np.ndarray]
"""Records [n, H, W, ch] -> their classes, int [n]."""

CHUNK = 10_000
"""Records that are classified at once."""


def _xgboost(seed: int) -> Any:
    require_installed("xgboost")
    import xgboost

    return xgboost.XGBClassifier(colsample_bytree=0.1, n_estimators=50, n_jobs=-1,
                                 random_state=seed)


CLASSICAL_CLASSIFIERS: dict[str, Callable[[int], Any]] = {
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


def is_installed(name: str) -> bool:
    """Return whether a classifier is installed: all but XGBoost come with this package."""
    return name != "xgboost" or importlib.util.find_spec("xgboost") is not None


def require_installed(name: str) -> None:
    """Raise a UserError unless a classifier is installed."""
    if not is_installed(name):
        raise UserError(f"the classifier {name!r} needs a package that is missing; pip install "
                        f"'dpgen_jax[{name}]', or leave it out")


def fit_classical(name: str, x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    """Train one of `CLASSICAL_CLASSIFIERS`; the same arguments give the same.

    It knows only the classes in y. It predicts the commonest class where there is only one, where
    the images are all (or all but) alike, and where boosting finds no member better than chance.
    """
    model = pick("classifier", CLASSICAL_CLASSIFIERS, name)(seed)
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


NETWORKS = {"cnn": nets.CNN, "mlp": nets.MLP}
ALL_CLASSIFIERS = (*NETWORKS, *CLASSICAL_CLASSIFIERS)
VALIDATION_SHARE = 0.1
"""The share of the training images that is held out."""


def held_out_count(n: int) -> int:
    """Return how many of n training images are held out: a tenth, and one at least."""
    return max(1, round(VALIDATION_SHARE * n))


@dataclasses.dataclass(frozen=True)
class Setting(results.Setting):
    """How much an evaluation of images does."""

    schedule: Schedule = FULL
    """How networks are trained."""
    classifiers: tuple[str, ...] = ALL_CLASSIFIERS
    classical_rows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The most images that a slow classical classifier learns from; the others learn from all."""
    tasks: tuple[str, ...] = TASKS
    optional: tuple[str, ...] = ("xgboost",)
    """Classifiers that are left out, with a note, where they are not installed."""

    def info(self, names: Sequence[str]) -> Json:
        """Return {"name", "text", "schedule", "classical_rows"} of metrics.json.

        The last is of those classifiers, of `names`, that learned from fewer images than there
        were.
        """
        n_train = self.n_samples - held_out_count(self.n_samples)
        rows = {name: self.classical_rows[name] for name in names
                if self.classical_rows.get(name, n_train) < n_train}
        text = (f"{self.description}: {self.n_samples:,} synthetic images a seed, seeds: "
                f"{self.seeds}; networks trained for {self.schedule.epochs} epochs or "
                f"{self.schedule.min_steps:,} steps, whichever is more, the MLP "
                f"{self.schedule.mlp_times} times as long")
        if rows:
            text += "; images that slow classifiers learn from: " + ", ".join(
                f"{name} {n:,}" for name, n in rows.items())
        return {"name": self.name, "text": text, "schedule": dataclasses.asdict(self.schedule),
                "classical_rows": rows}


def setting_for(options: Evaluation, log: Log = results.silent) -> Setting:
    """Return the setting that a user's options ask for."""
    setting = SETTINGS["fast" if options.fast else "full"]
    return dataclasses.replace(
        setting, n_samples=options.samples or setting.n_samples, options=options, log=log,
        seeds=options.seeds or setting.seeds,
        classifiers=options.classifiers or setting.classifiers,
        optional=() if options.classifiers else setting.optional,
        tasks=tuple(task for task in TASKS if task in options.metrics))


def _rows(slow: int, boosted: int) -> dict[str, int]:
    """Return the most images that slow classifiers, and the boosted ones, learn from."""
    return {"adaboost": boosted, "gradient_boosting": boosted} | dict.fromkeys(
        ("bagging", "decision_tree", "linear_svc", "logistic_regression", "random_forest",
         "xgboost"), slow)


SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 60_000, 3, classical_rows=_rows(10_000, 2_500)),
    Setting("fast", "a fast evaluation for laptops, whose numbers are lower and whose averages are "
            "over fewer classifiers than those of the full one", 10_000, 2, 5_000, schedule=FAST,
            classifiers=("cnn", "mlp", "bernoulli_nb", "gaussian_nb", "lda", "decision_tree"),
            classical_rows=_rows(5_000, 1_000)))}


REAL2GEN_IMAGES = 10_000
"""The most synthetic images on which a classifier of `real2gen` is tested, as in GS-WGAN's code."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained classifier."""

    predict: Predict

    def accuracy(self, images: Records) -> float:
        """Return the share, in [0, 1], of checked images that are given their label."""
        x, y = images
        return float(np.mean(self.predict(x) == y))


def train(name: str, images: Records, classes: int, setting: Setting, seed: int) -> Trained:
    """Train one of `ALL_CLASSIFIERS` on checked images; the same arguments give the same.

    A network follows setting.schedule; a classical one sees the first setting.classical_rows[name]
    images. A UserError refuses an unknown name, XGBoost where it is not installed, and images that
    are too small for the CNN.
    """
    x, y = images
    if name in NETWORKS:
        net = NETWORKS[name](classes)
        params = fit_classifier(net, x, y, setting.schedule, seed)
        return Trained(lambda x: predict(net, params, x).argmax(1))
    pick("classifier", dict.fromkeys(ALL_CLASSIFIERS), name)
    rows = setting.classical_rows.get(name)
    return Trained(fit_classical(name, x[:rows], y[:rows], seed))


def utility(real: Real, synthetic: Synthetic, setting: results.Setting) -> Part:
    """Measure images by the accuracy of classifiers, as a `results.Measure`.

    A tenth of each training set is held out. The tasks are
    - gen2real, trained on synthetic and tested on real images: the main figure of the papers. Also
      `validation_accuracy`, on held-out synthetic images, and, together with real2real,
      `calibrated_accuracy`: the ratio to real2real of the same classifier and seed;
    - real2gen, trained on real and tested on (at most 10,000) synthetic ones: it shows whether the
      images look like their labels;
    - real2real, trained on real and tested on other real ones: the upper bound of gen2real.
    Of real training images as many are used as there are synthetic ones.

    Args:
      real: Real images.
      synthetic: Synthetic ones, of which setting.n_samples are drawn for each seed.
      setting: A `Setting`.

    Returns:
      Findings (task, classifier, metric) and ("average", task, metric), the mean over the
      classifiers of each seed; the sizes and the setting.

    Raises:
      UserError: Records or labels are malformed, not finite or out of range; the parts differ in
        shape or classes; there are fewer synthetic images than classes; or as for `train`.
    """
    setting, log = cast(Setting, setting), setting.log
    names, notes = _available(setting)
    classes, n_samples = real.spec.classes, setting.n_samples
    test = checked("test", *real.test, at_least=1)
    train_part = None if real.train is None else _subset(
        checked("real training", *real.train, at_least=2), n_samples, seed=0)
    _check_classes(classes, test, train_part)
    accuracies: Accuracies = defaultdict(list)
    seconds = dict.fromkeys(("sampling", *names), 0.0)
    for seed in range(setting.seeds if setting.tasks else 0):
        prefix = f"seed {seed + 1} of {setting.seeds}"
        log(f"{prefix}: {n_samples:,} synthetic images")
        started = time.monotonic()
        samples = checked("synthetic", *synthetic.draw(n_samples, seed), at_least=2)
        seconds["sampling"] += time.monotonic() - started
        _check_comparable(samples, test, train_part, classes)
        notes += _absent(f"seed {seed}: no synthetic image", samples, classes)
        plan = _plan(samples, test, train_part, setting.tasks, seed)
        for name in names:
            started = time.monotonic()
            for kind, images, tests in plan:
                log(f"{prefix}: {name} on {len(images[1]):,} {kind} images")
                trained = train(name, images, classes, setting, seed)
                for (task, metric), tested in tests.items():
                    accuracies[task, name, metric].append(trained.accuracy(tested))
            seconds[name] += time.monotonic() - started
    n_real = 0 if train_part is None else len(train_part[1])
    if 0 < n_real < n_samples:
        notes.append(f"there are {n_real:,} real training images for {n_samples:,} synthetic ones")
    findings = _findings(accuracies, names, len(test[1]))
    average = {task: {"classifiers": names} for task in TASKS
               if any(one.key[0] == task for one in findings)}
    return Part(findings, {
        "average": average, "n_samples": n_samples, "n_test": len(test[1]), "n_real": n_real,
        "seeds": setting.seeds, "setting": setting.info(names)},
        notes=(*notes, *_absent("no test image", test, classes)), seconds=seconds)


Accuracies = dict[tuple[str, str, str], list[float]]
"""(task, classifier, metric) -> the accuracy of each seed."""


def _available(setting: Setting) -> tuple[list[str], list[str]]:
    """Check a setting; return its classifiers, each once, and a note on each that is left out."""
    if setting.seeds < 1:
        raise UserError(f"seeds must be at least 1, got {setting.seeds}")
    for task in setting.tasks:
        pick("task", dict.fromkeys(TASKS), task)
    names: list[str] = []
    notes: list[str] = []
    for name in dict.fromkeys(setting.classifiers):
        pick("classifier", dict.fromkeys(ALL_CLASSIFIERS), name)
        if name in setting.optional and not is_installed(name):
            notes.append(f"{name} is left out: pip install 'dpgen_jax[{name}]'")
            continue
        require_installed(name)
        names.append(name)
    return names, notes


def _plan(synthetic: Records, test: Records, real: Records | None, tasks: Sequence[str], seed: int
          ) -> list[tuple[str, Records, dict[tuple[str, str], Records]]]:
    """Return what a seed trains on, and what each (task, metric) is tested on.

    Synthetic and real images are split alike: equal ones give equal classifiers.
    """
    kept, held_out = _split(synthetic, seed)
    plan = [("synthetic", kept, {("gen2real", "accuracy"): test,
                                 ("gen2real", "validation_accuracy"): held_out})]
    if real is not None:
        plan.append(("real", _split(real, seed)[0], {
            ("real2gen", "accuracy"): _subset(synthetic, REAL2GEN_IMAGES, seed),
            ("real2real", "accuracy"): test}))
    needed = [(kind, images, {key: tested for key, tested in tests.items() if key[0] in tasks})
              for kind, images, tests in plan]
    return [part for part in needed if part[2]]


def _split(images: Records, seed: int) -> tuple[Records, Records]:
    """Return nine tenths to train on and the tenth that is held out, each in random order."""
    x, y = images
    order = np.random.default_rng(seed).permutation(len(y))
    held_out, kept = np.split(order, [held_out_count(len(y))])
    return (x[kept], y[kept]), (x[held_out], y[held_out])


def _subset(images: Records, n: int, seed: int) -> Records:
    """Return at most n of the images, picked at random and in their order."""
    x, y = images
    picked = np.sort(np.random.default_rng(seed).permutation(len(y))[:n])
    return x[picked], y[picked]


def _findings(accuracies: Accuracies, names: Sequence[str], n_test: int) -> tuple[Finding, ...]:
    """Return the accuracies of each classifier, and their averages."""
    for name in names:
        ours, real = (accuracies.get((task, name, "accuracy"))
                      for task in ("gen2real", "real2real"))
        if ours and real:  # one right image at least: with none there is no ratio
            accuracies["gen2real", name, "calibrated_accuracy"] = [
                a / max(b, 1 / n_test) for a, b in zip(ours, real, strict=True)]
    each = [Finding(key, Score.of(values), from_real=key[2] != "validation_accuracy")
            for key, values in accuracies.items()]
    return (*each, *(
        Finding(("average", task, metric), Score.of(
            np.mean([accuracies[task, name, metric] for name in names], 0)))
        for task in TASKS for metric in ("accuracy", "calibrated_accuracy")
        if (task, names[0], metric) in accuracies))


def _check_classes(classes: int, test: Records, real: Records | None) -> None:
    """Raise a UserError where a real label is none of the release's."""
    for part, (_, y) in {"test": test, "real training": real or test}.items():
        if y.max() >= classes:
            raise UserError(f"{part} label {y.max()} is not one of the release's classes "
                            f"0..{classes - 1}; name the data set that it was trained on")


def _check_comparable(synthetic: Records, test: Records, real: Records | None, classes: int
                      ) -> None:
    """Raise a UserError unless the parts have one shape of image and the same classes."""
    for part, images in {"test": test, "real training": real or test}.items():
        if synthetic[0].shape[1:] != images[0].shape[1:]:
            raise UserError(f"synthetic images are {synthetic[0].shape[1:]}, {part} images "
                            f"{images[0].shape[1:]}; all need the same height, width and channels")
    if synthetic[1].max() >= classes:
        raise UserError(f"synthetic label {synthetic[1].max()} is not one of the classes "
                        f"0..{classes - 1}; name the data set that the release was trained on")
    if len(synthetic[1]) < classes:
        raise UserError(f"{len(synthetic[1])} synthetic images for {classes} classes; draw at "
                        "least one a class")


def _absent(prefix: str, images: Records, classes: int) -> list[str]:
    """Return a note where a class is absent: the score then says nothing on it."""
    absent = sorted({*range(classes)} - {*images[1].tolist()})
    return [f"{prefix} has class {', '.join(map(str, absent))}"] if absent else []
