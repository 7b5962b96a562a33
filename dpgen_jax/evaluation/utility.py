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
from threadpoolctl import threadpool_limits

from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import UserError
from dpgen_jax.evaluation.networks import FAST, FULL, Schedule, fit_classifier, predict
from dpgen_jax.evaluation.scores import Images, Log, Synthetic, checked, draw, pick, silent, summary
from dpgen_jax.nets import classifiers as nets

Predict = Callable[[np.ndarray], np.ndarray]
"""Images [n, H, W, ch] -> their classes, int [n]."""

CHUNK = 10_000
"""Images that are classified at once."""


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
    """Check that a classifier is installed.

    Raises:
      UserError: It is not.
    """
    if not is_installed(name):
        raise UserError(f"the classifier {name!r} needs a package that is missing; pip install "
                        f"'dpgen_jax[{name}]', or leave it out")


def fit_classical(name: str, x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    """Train a classifier; the same arguments give the same one.

    It knows only the classes in y. It predicts the commonest class where there is only one, where
    the images are all (or all but) alike, and where boosting finds no member better than chance.

    Args:
      name: A name of `CLASSICAL_CLASSIFIERS`.
      x: Images [n, H, W, ch], uint8 or float in [0, 1].
      y: Labels int [n].
      seed: The seed of its training.

    Returns:
      A function of images [m, H, W, ch] that returns their classes int [m].

    Raises:
      UserError: There is no such classifier, or XGBoost is not installed.
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
TASKS = ("gen2real", "real2gen", "real2real")
VALIDATION_SHARE = 0.1
"""The share of the training images that is held out."""


def held_out_count(n: int) -> int:
    """Return how many of n training images are held out: a tenth, and one at least."""
    return max(1, round(VALIDATION_SHARE * n))


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    description: str
    """The start of the text that metrics.json has on the setting."""
    n_samples: int
    """Synthetic images of a seed, and the most real ones to train on."""
    seeds: int
    schedule: Schedule
    """How networks are trained."""
    classifiers: tuple[str, ...]
    """The classifiers that are trained."""
    classical_rows: Mapping[str, int]
    """The most images that a slow classical classifier learns from; the others learn from all."""
    tasks: tuple[str, ...] = TASKS
    """The tasks that are measured."""
    optional: tuple[str, ...] = ("xgboost",)
    """Classifiers that are left out, with a note, where they are not installed."""

    def info(self, names: Sequence[str]) -> Json:
        """Describe the setting of an evaluation, for metrics.json.

        Args:
          names: The classifiers that were trained.

        Returns:
          {"name", "text", "schedule", "classical_rows"}; the last for those classifiers that
          learned from fewer images than there were.
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


def setting_for(options: Evaluation) -> Setting:
    """Return the setting that a user's options ask for."""
    setting = SETTINGS["fast" if options.fast else "full"]
    setting = dataclasses.replace(
        setting, n_samples=options.samples or setting.n_samples,
        seeds=options.seeds or setting.seeds,
        tasks=tuple(task for task in TASKS if task in options.metrics))
    if not options.classifiers:
        return setting
    return dataclasses.replace(setting, classifiers=options.classifiers, optional=())


def _rows(slow: int, boosted: int) -> dict[str, int]:
    """Return the most images that slow classifiers, and the boosted ones, learn from."""
    return {"adaboost": boosted, "gradient_boosting": boosted} | dict.fromkeys(
        ("bagging", "decision_tree", "linear_svc", "logistic_regression", "random_forest",
         "xgboost"), slow)


SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 60_000, 3, FULL, ALL_CLASSIFIERS, _rows(10_000, 2_500)),
    Setting("fast", "a fast evaluation for laptops, whose numbers are lower and whose averages are "
            "over fewer classifiers than those of the full one", 10_000, 2, FAST,
            ("cnn", "mlp", "bernoulli_nb", "gaussian_nb", "lda", "decision_tree"),
            _rows(5_000, 1_000)))}


REAL2GEN_IMAGES = 10_000
"""The most synthetic images on which a classifier of `real2gen` is tested, as in GS-WGAN's code."""
Accuracies = Mapping[tuple[str, str, str], list[float]]
"""(task, classifier, metric) -> the accuracy of each seed."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained classifier."""

    predict: Callable[[np.ndarray], np.ndarray]
    """A function of images [n, H, W, ch] that returns their classes int [n]."""

    def accuracy(self, images: Images) -> float:
        """Return the share, in [0, 1], of checked images that are given their label."""
        x, y = images
        return float(np.mean(self.predict(x) == y))


def train(name: str, images: Images, classes: int, setting: Setting, seed: int) -> Trained:
    """Train a classifier; the same arguments give the same one.

    A network follows setting.schedule; a classical one sees the first setting.classical_rows[name]
    images.

    Args:
      name: A name of `ALL_CLASSIFIERS`.
      images: Checked images [n, H, W, ch] and labels int32 [n] below `classes`.
      classes: The number of classes.
      setting: The schedule, and the most images of slow classifiers.
      seed: The seed of the training.

    Returns:
      The trained classifier.

    Raises:
      UserError: There is no such classifier, XGBoost is not installed, or the images are too small
        for the CNN.
    """
    x, y = images
    if name in NETWORKS:
        net = NETWORKS[name](classes)
        params = fit_classifier(net, x, y, setting.schedule, seed)
        return Trained(lambda x: predict(net, params, x).argmax(1))
    pick("classifier", dict.fromkeys(ALL_CLASSIFIERS), name)
    rows = setting.classical_rows.get(name)
    return Trained(fit_classical(name, x[:rows], y[:rows], seed))


def utility(synthetic: Synthetic, test: Images, real: Images | None = None,
            setting: Setting = SETTINGS["full"], *, classes: int | None = None,
            log: Log = silent) -> Json:
    """Compute the utility part of metrics.json for images.

    A tenth of each training set is held out. The tasks are
    - gen2real, trained on synthetic and tested on real images: the main figure of the papers. Also
      `validation_accuracy`, on held-out synthetic images, and, together with real2real,
      `calibrated_accuracy`: the ratio to real2real of the same classifier and seed;
    - real2gen, trained on real and tested on (at most 10,000) synthetic ones: it shows whether the
      images look like their labels;
    - real2real, trained on real and tested on other real ones: the upper bound of gen2real.

    Args:
      synthetic: Images and labels, all of which are used, or a function of (n, seed), which draws
        setting.n_samples new ones for each seed.
      test: Held-out real images and labels, which are in no training set.
      real: Real training images and labels, of which as many are used as there are synthetic ones;
        None to leave out `real2gen` and `real2real`.
      setting: The tasks, classifiers, seeds and numbers of images.
      classes: The number of classes of the release; by default that of the real labels.
      log: A function that takes lines of progress.

    Returns:
      {task: {classifier: {metric: leaf}}}, leaves being a `summary` over the seeds; `average`, the
      mean over the classifiers of each seed; n_samples, n_test, n_real; seeds; setting; notes;
      seconds, of sampling and of each classifier; and `not_covered_by_epsilon`: the keys that were
      computed from real images, which the privacy statement of a release does not cover and which
      nobody may use to choose between models.

    Raises:
      UserError: Images or labels are malformed, not finite or out of range; the parts differ in
        shape or classes; there are fewer synthetic images than classes; or as for `train`.
    """
    names, notes = _available(setting)
    if not callable(synthetic):
        setting = dataclasses.replace(setting, n_samples=len(synthetic[1]))
    n_samples = setting.n_samples
    test = checked("test", *test, at_least=1)
    real = None if real is None else _subset(checked("real training", *real, at_least=2),
                                             n_samples, seed=0)
    classes = _classes(classes, test, real)
    accuracies: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    seconds = dict.fromkeys(("sampling", *names), 0.0)
    for seed in range(setting.seeds if setting.tasks else 0):
        prefix = f"seed {seed + 1} of {setting.seeds}"
        log(f"{prefix}: {n_samples:,} synthetic images")
        started = time.monotonic()
        samples = checked("synthetic", *draw(synthetic, n_samples, seed), at_least=2)
        seconds["sampling"] += time.monotonic() - started
        _check_comparable(samples, test, real, classes)
        notes += _absent(f"seed {seed}: no synthetic image", samples, classes)
        plan = _plan(samples, test, real, setting.tasks, seed)
        for name in names:
            started = time.monotonic()
            for kind, images, tests in plan:
                log(f"{prefix}: {name} on {len(images[1]):,} {kind} images")
                trained = train(name, images, classes, setting, seed)
                for (task, metric), tested in tests.items():
                    accuracies[task, name, metric].append(trained.accuracy(tested))
            seconds[name] += time.monotonic() - started
    result = _nested(accuracies, names, len(test[1]))
    n_real = 0 if real is None else len(real[1])
    if 0 < n_real < n_samples:
        notes.append(f"there are {n_real:,} real training images for {n_samples:,} synthetic ones")
    return result | {
        "n_samples": n_samples, "n_test": len(test[1]), "n_real": n_real, "seeds": setting.seeds,
        "setting": setting.info(names),
        "notes": notes + _absent("no test image", test, classes), "seconds": seconds,
        "not_covered_by_epsilon": _from_real(result)}


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


def _plan(synthetic: Images, test: Images, real: Images | None, tasks: Sequence[str], seed: int
          ) -> list[tuple[str, Images, dict[tuple[str, str], Images]]]:
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


def _split(images: Images, seed: int) -> tuple[Images, Images]:
    """Return nine tenths to train on and the tenth that is held out, each in random order."""
    x, y = images
    order = np.random.default_rng(seed).permutation(len(y))
    held_out, kept = np.split(order, [held_out_count(len(y))])
    return (x[kept], y[kept]), (x[held_out], y[held_out])


def _subset(images: Images, n: int, seed: int) -> Images:
    """Return at most n of the images, picked at random and in their order."""
    x, y = images
    picked = np.sort(np.random.default_rng(seed).permutation(len(y))[:n])
    return x[picked], y[picked]


def _nested(accuracies: Accuracies, names: Sequence[str], n_test: int) -> Json:
    """Return {task: {classifier: {metric: leaf}}} and `average`."""
    by_key = dict(accuracies)
    for name in names:
        ours, real = (by_key.get((task, name, "accuracy")) for task in ("gen2real", "real2real"))
        if ours and real:  # one right image at least: with none there is no ratio
            by_key["gen2real", name, "calibrated_accuracy"] = [
                a / max(b, 1 / n_test) for a, b in zip(ours, real, strict=True)]
    result: Json = {}
    for (task, name, metric), values in by_key.items():
        result.setdefault(task, {}).setdefault(name, {})[metric] = summary(values)
    result["average"] = {task: {
        metric: summary(np.mean([by_key[task, name, metric] for name in names], 0))
        for metric in ("accuracy", "calibrated_accuracy") if (task, names[0], metric) in by_key
    } | {"classifiers": list(names)} for task in TASKS if task in result}
    return result


def _from_real(result: Mapping[str, Any]) -> list[str]:
    """Return the keys that were computed from real images."""
    return [f"{task}.{name}.{metric}" for task in (*TASKS, "average")
            for name, metrics in result.get(task, {}).items() for metric in metrics
            if metric in ("accuracy", "calibrated_accuracy")]


def _classes(declared: int | None, test: Images, real: Images | None) -> int:
    """Return the number of classes, after a check of the real labels."""
    parts = {"test": test} | ({} if real is None else {"real training": real})
    largest = {part: int(y.max()) for part, (_, y) in parts.items()}
    for part, label in largest.items():
        if declared is not None and label >= declared:
            raise UserError(f"{part} label {label} is not one of the release's classes "
                            f"0..{declared - 1}; name the data set that it was trained on")
    return declared or max(largest.values()) + 1


def _check_comparable(synthetic: Images, test: Images, real: Images | None, classes: int) -> None:
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


def _absent(prefix: str, images: Images, classes: int) -> list[str]:
    """Return a note where a class is absent: the score then says nothing on it."""
    absent = sorted({*range(classes)} - {*images[1].tolist()})
    return [f"{prefix} has class {', '.join(map(str, absent))}"] if absent else []
