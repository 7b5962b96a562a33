"""How useful synthetic images are: the accuracy of classifiers trained on them, and the reverse.

A classifier is trained with a fixed schedule and judged once, after the last epoch: picking the
best epoch on the test images, as the published codes do, would fit the schedule to them. What may
be used to choose between models is `validation_accuracy` of `gen2real`, which is measured on
labelled images held out of the synthetic ones and so costs no privacy.

Images are [n, H, W] or [n, H, W, ch], uint8 or float in [0, 1]; labels are integers from 0.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpgen_jax.evaluation import classical
from dpgen_jax.evaluation.networks import FAST, FULL, Schedule, fit_classifier, predict
from dpgen_jax.evaluation.scores import Images, Synthetic, checked, draw, pick, summary
from dpgen_jax.nets import classifiers as nets
from dpgen_jax.types import UserError

NETWORKS = {"cnn": nets.CNN, "mlp": nets.MLP}
CLASSIFIERS = (*NETWORKS, *classical.CLASSIFIERS)
TASKS = ("gen2real", "real2gen", "real2real")
VALIDATION_SHARE = 0.1
JUDGED = 10_000
"""Most synthetic images on which a classifier of `real2gen` is judged, as in GS-WGAN's code."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    words: str
    """what people should know of it, the start of `text`"""
    n_samples: int
    """synthetic images of a seed, and most real ones to train on"""
    seeds: int
    schedule: Schedule
    """of the networks"""
    classifiers: tuple[str, ...]
    """those trained unless others are asked for"""
    classical_rows: Mapping[str, int]
    """the most images that a slow classical classifier learns from; the others learn from all"""

    def info(self, names: Sequence[str], seeds: int, n_samples: int) -> dict[str, Any]:
        """`setting` of metrics.json, of an evaluation with these classifiers; its `classical_rows`
        are those of them that learned from fewer images than there were."""
        rows = {name: self.classical_rows[name] for name in names
                if self.classical_rows.get(name, n_samples) < n_samples - _held_out(n_samples)}
        text = (f"{self.words}: {n_samples:,} synthetic images a seed, seeds: {seeds}; networks "
                f"trained for {self.schedule.epochs} epochs or {self.schedule.min_steps:,} steps, "
                f"whichever is more, the MLP {self.schedule.mlp_times} times as long")
        if rows:
            text += "; images that slow classifiers learn from: " + ", ".join(
                f"{name} {n:,}" for name, n in rows.items())
        return {"name": self.name, "text": text, "schedule": dataclasses.asdict(self.schedule),
                "classical_rows": rows}


def _rows(slow: int, boosted: int) -> dict[str, int]:
    return {"adaboost": boosted, "gradient_boosting": boosted} | dict.fromkeys(
        ("bagging", "decision_tree", "linear_svc", "logistic_regression", "random_forest",
         "xgboost"), slow)


SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 60_000, 3, FULL, CLASSIFIERS, _rows(10_000, 2_500)),
    Setting("fast", "a fast evaluation for laptops, whose numbers are lower and whose averages are "
            "over fewer classifiers than those of the full one", 10_000, 2, FAST,
            ("cnn", "mlp", "bernoulli_nb", "gaussian_nb", "lda", "decision_tree"),
            _rows(5_000, 1_000)))}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained classifier. predict: images [n, H, W, ch] -> their classes, int [n]."""

    predict: Callable[[np.ndarray], np.ndarray]

    def accuracy(self, images: Images) -> float:
        """The share of images, checked ones, that it gives their label: in [0, 1]."""
        x, y = images
        return float(np.mean(self.predict(x) == y))


def train(name: str, images: Images, classes: int, setting: Setting, seed: int) -> Trained:
    """A classifier trained on images, checked ones, whose labels are below `classes`; the same
    arguments give the same classifier.

    A network follows setting.schedule; a classical one sees the first setting.classical_rows[name]
    images. Errors: UserError for an unknown name, XGBoost where it is missing, and images too small
    for the CNN.
    """
    x, y = images
    if name in NETWORKS:
        net = NETWORKS[name](classes)
        params = fit_classifier(net, x, y, setting.schedule, seed)
        return Trained(lambda x: predict(net, params, x).argmax(1))
    pick("classifier", dict.fromkeys(CLASSIFIERS), name)
    rows = setting.classical_rows.get(name)
    return Trained(classical.fit(name, x[:rows], y[:rows], seed))


def utility(synthetic: Synthetic, test: Images, real: Images | None = None,
            seeds: int | None = None, *, tasks: Sequence[str] = TASKS,
            classifiers: Sequence[str] | None = None, setting: Setting = SETTINGS["full"],
            classes: int | None = None, say: Callable[[str], None] = lambda _: None
            ) -> dict[str, Any]:
    """The utility part of metrics.json.

    synthetic: arrays, all of which are used, or a function, which draws setting.n_samples new ones
    for each seed; test: real images that are in no training set; real: other real images to train
    on, of which as many are used as there are synthetic ones, and without which `real2gen` and
    `real2real` are left out. seeds, classifiers: those of the setting if left out, without XGBoost
    where it is missing. classes: of the release; without it, those of the real labels. say: is told
    what is being trained.

    A tenth of each training set is held out. Returns {task: {classifier: {"accuracy": leaf}}},
    leaves being a `summary` over the seeds, with
    - gen2real, trained on synthetic and tested on real: the main figure of the papers. Also
      `validation_accuracy`, on held-out synthetic images, and, beside real2real,
      `calibrated_accuracy`: the ratio to real2real of the same classifier and seed;
    - real2gen, trained on real and tested on (at most 10,000) synthetic: do the images look like
      their labels?
    - real2real, trained on real and tested on other real: the upper bound of gen2real;
    and `average`, the mean over the classifiers of each seed; n_samples, n_test, n_real; seeds;
    setting; notes; seconds, of sampling and of each classifier; and `not_covered_by_epsilon`: the
    keys that were computed from real images, which the privacy statement of a release does not
    cover and which nobody may use to choose between models.
    Errors: UserError for images or labels that are malformed, not finite or out of range, parts
    that differ in shape or classes, fewer synthetic images than classes, and as `train`.
    """
    seeds = setting.seeds if seeds is None else seeds
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, got {seeds}")
    for task in tasks:
        pick("task", dict.fromkeys(TASKS), task)
    names, notes = _chosen(classifiers, setting)
    n_samples = setting.n_samples if callable(synthetic) else len(synthetic[1])
    test = checked("test", *test, at_least=1)
    real = None if real is None else _some_of(checked("real training", *real, at_least=2),
                                              n_samples, seed=0)
    classes = _classes(classes, test, real)
    found, seconds = defaultdict(list), dict.fromkeys(("sampling", *names), 0.0)
    for seed in range(seeds if tasks else 0):
        turn = f"seed {seed + 1} of {seeds}"
        say(f"{turn}: {n_samples:,} synthetic images")
        started = time.monotonic()
        made = checked("synthetic", *draw(synthetic, n_samples, seed), at_least=2)
        seconds["sampling"] += time.monotonic() - started
        _comparable(made, test, real, classes)
        notes += _absent(f"seed {seed}: no synthetic image", made, classes)
        plan = _plan(made, test, real, tasks, seed)
        for name in names:
            started = time.monotonic()
            for word, images, judged in plan:
                say(f"{turn}: {name} on {len(images[1]):,} {word} images")
                trained = train(name, images, classes, setting, seed)
                for (task, metric), judge in judged.items():
                    found[task, name, metric].append(trained.accuracy(judge))
            seconds[name] += time.monotonic() - started
    out = _nested(found, names, len(test[1]))
    n_real = 0 if real is None else len(real[1])
    if 0 < n_real < n_samples:
        notes.append(f"there are {n_real:,} real training images for {n_samples:,} synthetic ones")
    return out | {
        "n_samples": n_samples, "n_test": len(test[1]), "n_real": n_real, "seeds": seeds,
        "setting": setting.info(names, seeds, n_samples),
        "notes": notes + _absent("no test image", test, classes), "seconds": seconds,
        "not_covered_by_epsilon": _seen(out)}


def _chosen(classifiers: Sequence[str] | None, setting: Setting) -> tuple[list[str], list[str]]:
    """The names of the classifiers, each once, and a note on what is left out."""
    if classifiers:
        for name in classifiers:
            pick("classifier", dict.fromkeys(CLASSIFIERS), name)
            classical.require(name)
        return list(dict.fromkeys(classifiers)), []
    missing = [name for name in setting.classifiers if not classical.installed(name)]
    return ([name for name in setting.classifiers if name not in missing],
            [f"{name} is left out: pip install 'dpgen_jax[{name}]'" for name in missing])


def _plan(made: Images, test: Images, real: Images | None, tasks: Sequence[str], seed: int
          ) -> list[tuple[str, Images, dict[tuple[str, str], Images]]]:
    """What a seed trains on, and what each (task, metric) judges it on. Synthetic and real images
    are split alike: equal ones give equal classifiers."""
    kept, held_out = _split(made, seed)
    plan = [("synthetic", kept, {("gen2real", "accuracy"): test,
                                 ("gen2real", "validation_accuracy"): held_out})]
    if real is not None:
        plan.append(("real", _split(real, seed)[0], {
            ("real2gen", "accuracy"): _some_of(made, JUDGED, seed),
            ("real2real", "accuracy"): test}))
    asked = [(word, images, {key: judge for key, judge in judged.items() if key[0] in tasks})
             for word, images, judged in plan]
    return [part for part in asked if part[2]]


def _split(images: Images, seed: int) -> tuple[Images, Images]:
    """Nine tenths to train on and the tenth that is held out, each in random order."""
    x, y = images
    order = np.random.default_rng(seed).permutation(len(y))
    held_out, kept = np.split(order, [_held_out(len(y))])
    return (x[kept], y[kept]), (x[held_out], y[held_out])


def _held_out(n: int) -> int:
    return max(1, round(VALIDATION_SHARE * n))


def _some_of(images: Images, n: int, seed: int) -> Images:
    """At most n of the images, picked at random and in their order."""
    x, y = images
    picked = np.sort(np.random.default_rng(seed).permutation(len(y))[:n])
    return x[picked], y[picked]


def _nested(found: Mapping[tuple[str, str, str], list[float]], names: Sequence[str], n_test: int
            ) -> dict[str, Any]:
    """{task: {classifier: {metric: leaf}}} and `average`, from accuracies of each seed."""
    found = dict(found)
    for name in names:
        ours, real = (found.get((task, name, "accuracy")) for task in ("gen2real", "real2real"))
        if ours and real:  # one right image at least: of none there is no ratio
            found["gen2real", name, "calibrated_accuracy"] = [
                a / max(b, 1 / n_test) for a, b in zip(ours, real, strict=True)]
    out: dict[str, Any] = {}
    for (task, name, metric), values in found.items():
        out.setdefault(task, {}).setdefault(name, {})[metric] = summary(values)
    out["average"] = {task: {
        metric: summary(np.mean([found[task, name, metric] for name in names], 0))
        for metric in ("accuracy", "calibrated_accuracy") if (task, names[0], metric) in found
    } | {"classifiers": list(names)} for task in TASKS if task in out}
    return out


def _seen(out: Mapping[str, Any]) -> list[str]:
    """The keys that were computed from real images."""
    return [f"{task}.{name}.{metric}" for task in (*TASKS, "average") for name, found in
            out.get(task, {}).items() for metric in found
            if metric in ("accuracy", "calibrated_accuracy")]


def _classes(given: int | None, test: Images, real: Images | None) -> int:
    parts = {"test": test} | ({} if real is None else {"real training": real})
    most = {part: int(y.max()) for part, (_, y) in parts.items()}
    for part, label in most.items():
        if given is not None and label >= given:
            raise UserError(f"{part} label {label} is not one of the release's classes "
                            f"0..{given - 1}; name the data set that it was trained on")
    return given or max(most.values()) + 1


def _comparable(made: Images, test: Images, real: Images | None, classes: int) -> None:
    """Errors: UserError unless the parts have one shape of image and the same classes."""
    for part, images in {"test": test, "real training": real or test}.items():
        if made[0].shape[1:] != images[0].shape[1:]:
            raise UserError(f"synthetic images are {made[0].shape[1:]}, {part} images "
                            f"{images[0].shape[1:]}; all need the same height, width and channels")
    if made[1].max() >= classes:
        raise UserError(f"synthetic label {made[1].max()} is not one of the classes "
                        f"0..{classes - 1}; name the data set that the release was trained on")
    if len(made[1]) < classes:
        raise UserError(f"{len(made[1])} synthetic images for {classes} classes; draw at least one "
                        "a class")


def _absent(words: str, images: Images, classes: int) -> list[str]:
    """A note where a class is absent: its images are then none of the score's."""
    absent = sorted({*range(classes)} - {*images[1].tolist()})
    return [f"{words} has class {', '.join(map(str, absent))}"] if absent else []
