"""Evaluation of synthetic tables: what can be learned from them, how close to real they are.

Rows are float [n, F] in [0, 1], hard (a one-hot has a single 1); labels are integers 0..classes-1,
where of two classes class 1 is the positive one. A table without a label has a single class: its
utility is that of the columns that are named as targets, if any.

Detection measures how well a classifier distinguishes synthetic rows from real ones. The classifier
sees equal numbers of both, picked with the seed, as features in [0, 1]: the encoded row and its
class as a one-hot. The real rows are held-out ones, so that copies of training rows gain nothing.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dpgen_jax.core import arrays
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import marginals, prediction
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.prediction import CLASSIFIERS, Scores, fit_model, judge_models
from dpgen_jax.evaluation.scores import Log, percent, silent, summary
from dpgen_jax.evaluation.utility import TASKS

FOLDS = 5
"""Folds of the cross-validation."""
MIN_ROWS = 10
"""With fewer rows of either kind nothing can be learned."""
DETECTION_METRICS = ("pmse", "detection_auroc")


def detection_fidelity(draws: Sequence[Rows], test: Rows, real: Rows | None, classes: int,
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
            for name in DETECTION_METRICS}


def detect(synthetic: Rows, real: Rows, classes: int, seed: int = 0) -> dict[str, float]:
    """Measure how well synthetic rows can be distinguished from real ones.

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
    return dict(zip(DETECTION_METRICS, (pmse(x, truth), auroc(x, truth, seed)), strict=True))


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
    """Compute the area under the ROC curve of boosted trees that separate two kinds of rows.

    Cross-validated: each row is judged by trees that never saw it. It is below 0.5 where rows with
    truth 1 are copies of the very rows with truth 0: trees that saw one of the two take the other
    for its opposite.

    Args:
      x: Rows float [N, F].
      truth: int [N], 1 for a synthetic row and 0 for a real one.
      seed: The seed of the folds and of the trees.

    Returns:
      0.5 for rows that cannot be distinguished, and with fewer than `MIN_ROWS` of either kind; 1
      for rows that always can.
    """
    if np.bincount(truth, minlength=2).min() < MIN_ROWS:
        return 0.5
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(1):  # more threads take ten times as long on a busy machine
        probabilities = cross_val_predict(trees, x, truth, cv=folds, method="predict_proba")
    return float(roc_auc_score(truth, probabilities[:, 1]))


FAR = 0.1
"""A column is far off where its distance exceeds its floor by more than this."""
POINTS, FACTOR = 0.05, 1.5
"""The share of a class is wrong where it is off by more than these points, or by this factor."""
ERRORS = 3
"""Standard errors that a difference of shares must exceed as well."""
MAX_SHOWN = 2
"""The most values of a column that a sentence names on either side."""


def far_off(draws: Sequence[np.ndarray], test: np.ndarray, columns: Sequence[Column],
            distances: Mapping[str, Any]) -> list[str]:
    """Describe the columns that are far off, the farthest first, a sentence each.

    Args:
      draws: Synthetic cells float64 [n, K], one draw a seed.
      test: Held-out real cells float64 [n', K].
      columns: The K columns.
      distances: For each column by its name its one-way distance, "mean", and "floor", as
        `marginals.fidelity` gives them.

    Returns:
      The sentences; they hold shares of real rows, which epsilon does not cover.
    """
    gaps = [distances[c.name]["mean"] - (distances[c.name]["floor"] or 0) for c in columns]
    order = sorted(range(len(columns)), key=lambda i: -gaps[i])
    return [_sentence(np.concatenate([draw[:, i] for draw in draws]), test[:, i], columns[i],
                      distances[columns[i].name]) for i in order if gaps[i] > FAR]


def _sentence(values: np.ndarray, truth: np.ndarray, column: Column, distance: Mapping[str, Any]
              ) -> str:
    """Return how far one column is off, and at which values most."""
    ours, theirs = (marginals.bin_shares(part, column) for part in (values, truth))
    names = bin_names(column)
    parts = []
    for sign, much in ((1, "Too many"), (-1, "Too few")):
        worst = [i for i in np.argsort(-sign * (ours - theirs), kind="stable")[:MAX_SHOWN].tolist()
                 if sign * (ours[i] - theirs[i]) > POINTS]
        if worst:
            parts.append(f" {much}: " + ", ".join(
                f"{names[i]} ({percent(ours[i])}, real {percent(theirs[i])})" for i in worst) + ".")
    floor = distance["floor"]
    beside = "" if floor is None else f" (among real ones {percent(floor)})"
    return (f"{column.name}: {percent(distance['mean'])} of the rows would have to move{beside}."
            f"{''.join(parts)}")


def bin_names(column: Column) -> list[str]:
    """Return the name of each bin of `marginals.bin_shares`, the last of which is null.

    Args:
      column: The column.

    Returns:
      Its categories, or ranges of its numbers, dates or times as they are written.
    """
    if column.categories:
        return [*column.categories, "null"]
    if column.kind == "integer" and column.scale == "linear":  # whole numbers lie in one bin each
        edges = np.ceil(np.linspace(column.low, column.high, marginals.BINS + 1) - 1e-9)
        lows, highs = edges[:-1], np.maximum(np.append(edges[1:-1] - 1, column.high), edges[:-1])
    else:
        edges = transform.from_unit(column, np.linspace(0, 1, marginals.BINS + 1))
        lows, highs = edges[:-1], edges[1:]
    ranges = zip(transform.texts(column, lows), transform.texts(column, highs), strict=True)
    return [*(low if low == high else f"{low} to {high}" for low, high in ranges),
            *transform.texts(column, np.array(column.special)), "null"]


def label_shares(draws: Sequence[Rows], test: Rows, spec: TableSpec) -> list[Json]:
    """Compare the shares of the classes.

    Args:
      draws: Synthetic rows, one draw a seed.
      test: Held-out real rows.
      spec: The schema.

    Returns:
      For each class {"class", "synthetic", "real", "wrong"}: its name, its shares, and whether they
      differ by `POINTS` or a factor of `FACTOR`, and by more than chance explains (`ERRORS`).
    """
    y = np.concatenate([labels for _, labels in draws])
    ours, theirs = (np.bincount(part, minlength=spec.classes) / len(part) for part in (y, test[1]))
    return [{"class": name, "synthetic": float(p), "real": float(q),
             "wrong": _wrong(float(p), len(y), float(q), len(test[1]))}
            for name, p, q in zip(spec.label.categories, ours, theirs, strict=True)]


def _wrong(p: float, n: int, q: float, m: int) -> bool:
    """Return whether shares p of n rows and q of m rows differ by much, and by more than chance."""
    error = math.sqrt(p * (1 - p) / n + q * (1 - q) / m)
    much = abs(p - q) > POINTS or max(p, q) > FACTOR * min(p, q)
    return much and abs(p - q) > ERRORS * error


@dataclasses.dataclass(frozen=True)
class Setting:
    """How much an evaluation does; nothing in it depends on what is measured."""

    name: str
    description: str
    """The start of the text that metrics.json has on the setting."""
    n_samples: int
    """Synthetic rows of a draw, and the most real ones to train on."""
    seeds: int


FAST_ENTRIES = 2**22
"""The most entries, rows times features, of a draw of a fast evaluation: ensembles of 100 and 200
learners take minutes of more."""
FEWEST_ROWS = 250
"""The fewest rows of such a draw, however many features they have."""
Pairs = Mapping[str, Sequence[tuple[Rows, Rows]]]
"""Task -> the rows to train on and the rows to test on, of each seed."""
SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 10_000, 3),
    Setting("fast", "a fast evaluation for laptops, whose numbers are less certain", 2_500, 2))}


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The rows that an evaluation compares: draws, held-out rows, and training rows or None."""

    draws: list[Rows]
    test: Rows
    real: Rows | None
    spec: TableSpec


def utility(synthetic: Callable[[int, int], Rows], test: Rows, real: Rows | None, spec: TableSpec,
            options: Evaluation = Evaluation(), log: Log = silent) -> Json:
    """Compute the parts of metrics.json on the utility and the fidelity of a table.

    Args:
      synthetic: A function of (n, seed) that draws encoded rows and labels, in the released shares
        of the classes.
      test: Held-out real rows, which are in no training set.
      real: Real training rows, of which as many are used as there are synthetic ones; None to leave
        out `real2gen`, `real2real` and the floors.
      spec: The schema, whose targets count where the options name none.
      options: What is measured (`TASKS` and `fidelity` of its metrics), by which classifiers, with
        how many rows and seeds, for which targets and subgroups; what it leaves open is of
        `SETTINGS`.
      log: A function that takes a line of progress for each classifier and each draw.

    Returns:
      {task: {classifier: {metric: a `summary` over the seeds}}} of `prediction.Scores`, none
      without a label; `targets`, see `prediction.utility_of_targets`; `fidelity`, see
      `marginals.fidelity`, `detection_fidelity` and `far_off`; `label_shares` and `subgroups`, see
      there; `schema_violations`, the fraction of synthetic cells that break the schema; setting,
      n_samples, n_test, n_real (of the rows used), seeds; seconds, of each part; `notes`, on
      classes that a part lacks; and `not_covered_by_epsilon`: the keys that were computed from real
      rows, which the privacy statement does not cover and which nobody may use to choose between
      models.

    Raises:
      UserError: Rows are malformed or not finite, or there is no such classifier or column.
    """
    setting = _setting(options, spec)
    goals = prediction.named_targets(spec, options.targets or spec.targets)
    groupings = prediction.named_groups(spec, options.by)
    started = time.monotonic()
    parts = _draws_of(synthetic, test, real, spec, setting)
    seconds = {"sampling": time.monotonic() - started}
    pairs = _pairs(parts, options)
    scores = _tasks(pairs, spec.classes, options.classifiers or tuple(CLASSIFIERS), seconds, log)
    keys = ["setting.text", *(  # which says how many real rows there are
        f"{task}.{name}.{metric}" for task, by_name in scores.items()
        for name, metrics in by_name.items() for metric in metrics)]
    notes = _notes(pairs, spec)
    if goals and "gen2real" in options.metrics:
        real_too = parts.real if "real2real" in options.metrics else None
        of_targets = prediction.utility_of_targets(goals, parts.draws, parts.test, real_too, log)
        scores["targets"], keys = of_targets["targets"], [*keys, "targets"]
        seconds |= of_targets["seconds"]
        notes += of_targets["notes"]
    if "fidelity" in options.metrics:
        started = time.monotonic()
        likeness = _fidelity(parts, log)
        keys += [f"fidelity.{name}" for name in likeness["fidelity"]]
        keys += [name for name in likeness if name != "fidelity"]
        scores |= likeness
        seconds["fidelity"] = time.monotonic() - started
    if groupings:
        started = time.monotonic()
        scores["subgroups"] = prediction.subgroups(
            groupings, parts.draws, parts.test, parts.real, goals, log)
        seconds["subgroups"] = time.monotonic() - started
        keys.append("subgroups")
    n_real = 0 if parts.real is None else len(parts.real[1])
    return scores | {
        "schema_violations": summary(_violations(parts)),
        "setting": _described(setting, n_real, spec),
        "n_samples": setting.n_samples, "n_test": len(parts.test[1]), "n_real": n_real,
        "seeds": setting.seeds, "seconds": seconds, "notes": notes,
        "not_covered_by_epsilon": keys}


def _setting(options: Evaluation, spec: TableSpec) -> Setting:
    """Return the setting of the options: a fast one for a wide table has fewer rows."""
    setting = SETTINGS["fast" if options.fast else "full"]
    room = max(FAST_ENTRIES // spec.shape[0], FEWEST_ROWS)
    if options.fast and not options.samples and room < setting.n_samples:
        setting = dataclasses.replace(setting, n_samples=room, description=(
            f"{setting.description}, on fewer rows as there are {spec.shape[0]:,} features"))
    return dataclasses.replace(setting, seeds=options.seeds or setting.seeds,
                               n_samples=options.samples or setting.n_samples)


def _draws_of(synthetic: Callable[[int, int], Rows], test: Rows, real: Rows | None, spec: TableSpec,
              setting: Setting) -> _Parts:
    """Return the checked rows, the real ones cut to as many as there are in a draw."""
    draws = [_checked("synthetic", synthetic(setting.n_samples, seed), spec)
             for seed in range(setting.seeds)]
    test = _checked("test", test, spec)
    if real is not None:
        x, y = _checked("real", real, spec)
        picked = np.random.default_rng(0).permutation(len(y))[:setting.n_samples]
        real = x[picked], y[picked]
    return _Parts(draws, test, real, spec)


def _violations(parts: _Parts) -> list[float]:
    """Return the fraction of cells of each draw that break the schema."""
    return [marginals.schema_violations(marginals.cells(parts.spec, draw),
                                        marginals.columns(parts.spec)) for draw in parts.draws]


def _described(setting: Setting, n_real: int, spec: TableSpec) -> Json:
    """Return `setting` of metrics.json."""
    learners = ("the classifiers of G-PATE with their published settings, logistic regression, a "
                "random forest and boosted trees, " if spec.labelled else "")
    text = (f"{setting.description}: {learners}on {setting.n_samples:,} synthetic rows for each "
            f"of {setting.seeds} seeds, and on {n_real:,} real ones")
    return {"name": setting.name, "schedule": {}, "text": text}


def _pairs(parts: _Parts, options: Evaluation) -> Pairs:
    """Return the (training, test) rows of each task and seed; none without a label."""
    if not parts.spec.labelled:
        return {}
    pairs = {"gen2real": [(draw, parts.test) for draw in parts.draws]}
    if parts.real is not None:
        pairs |= {"real2gen": [(parts.real, draw) for draw in parts.draws],
                  "real2real": [(parts.real, parts.test)] * len(parts.draws)}
    return {task: pairs[task] for task in TASKS if task in pairs and task in options.metrics}


def _fidelity(parts: _Parts, log: Log) -> Json:
    """Return `fidelity` and `label_shares`, of as many rows of a draw as the floor has."""
    rows = slice(None if parts.real is None else len(parts.real[1]))
    alike = [(x[rows], y[rows]) for x, y in parts.draws]
    likeness = (marginals.fidelity(alike, parts.test, parts.real, parts.spec)
                | detection_fidelity(alike, parts.test, parts.real, parts.spec.classes, log))
    cells = [marginals.cells(parts.spec, draw) for draw in alike]
    far = far_off(cells, marginals.cells(parts.spec, parts.test),
                  marginals.columns(parts.spec), likeness["one_way_tvd"]["columns"])
    if not parts.spec.labelled:
        return {"fidelity": likeness | {"far_off": far}}
    return {"fidelity": likeness | {"far_off": far},
            "label_shares": label_shares(alike, parts.test, parts.spec)}


def _tasks(pairs: Pairs, classes: int, classifiers: Sequence[str], seconds: dict[str, float],
           log: Log) -> Json:
    """Return {task: {classifier: {metric: summary}}}, and add to `seconds`.

    A classifier is trained once for the tasks that train on the same rows.
    """
    result: Json = {task: {} for task in pairs}
    for name in classifiers if pairs else ():
        started = time.monotonic()
        models: dict[tuple[int, int], Any] = {}
        scores: dict[str, list[Scores]] = {}
        for task, of_task in pairs.items():
            for seed, (train, test) in enumerate(of_task):
                key = seed, id(train)
                if key not in models:
                    models[key] = fit_model(name, train, classes, seed)
                scores.setdefault(task, []).append(judge_models(models[key], test, classes))
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
    arrays.check_labels(part, y, len(x), spec.classes)
    if not np.isfinite(x).all():
        mend = ("the generator diverged: lower its learning rate and train again"
                if part == "synthetic" else "leave them out")
        raise UserError(f"{part} rows hold NaN or infinite values; {mend}")
    return x, y
