"""Prediction of a table's columns by models of synthetic rows, also for subgroups of rows.

A table is judged by what classifiers and regressions learn from it. Rows are float [n, F] in
[0, 1]. A model is trained once on encoded rows, standardised with the mean and scale of its own
training rows, and tested once. Of two classes class 1 is the positive one.

Any column can be predicted from all others, the label among them. A column of categories is a
classification problem, scored by `Scores`; a number is a regression problem, scored by R2. Rows in
which the target is null, or a special value, are left out.

The same measures are taken for subgroups of rows, since rare groups lose most under a small budget.
A group is a value of a column, or a combination of values of several; for a number it is a quarter
of the held-out rows. A group with too few held-out rows is not measured.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from threadpoolctl import threadpool_limits

from dpgen_jax.core.errors import nearest, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.base import listed
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import Log, pick, silent, summary

POSITIVE_WEIGHT = 350
"""Weight of class 1 in `lr`: the paper's, meant for 0.17 % of frauds, and kept for all data."""
LEAF = 5
"""The fewest rows in a leaf of a forest: with fewer it memorises its training rows."""


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
    """The probability of class 1 from which on a row of two classes is assigned to it."""


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
    return judge_models(fit_model(classifier, train, classes, seed), test, classes)


def fit_model(classifier: str, train: Rows, classes: int, seed: int) -> Classifier:
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

    It lies halfway between the rows on both sides, since a model that has memorised its rows leaves
    a wide gap between them.
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


def judge_models(trained: Classifier, test: Rows, classes: int) -> Scores:
    """Test a trained classifier.

    Args:
      trained: The result of `fit_model`.
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


MIN_ROWS = 10
"""With fewer rows to train or to test on there is no score."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A column that is predicted from the others."""

    spec: TableSpec
    column: Column

    @property
    def is_label(self) -> bool:
        """Whether it is the label."""
        return self.spec.labelled and self.column == self.spec.label

    @property
    def metric(self) -> str:
        """The name of its first score."""
        return "auroc" if self.column.categories else "r2"

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that predict it."""
        return tuple(COMMON if self.column.categories else REGRESSIONS)

    def problem(self, rows: Rows) -> Rows:
        """Return the features float [m, F'] and the target's values [m] of rows that have one.

        Values are classes int, or numbers between their bounds, 0 to 1 on the column's scale.

        Args:
          rows: Encoded rows float [n, F] and labels int [n].
        """
        x, y = rows
        if self.is_label:
            return x, y
        place = self.spec.columns.index(self.column)
        start = sum(column.width for column in self.spec.columns[:place])
        own = slice(start, start + self.column.width)
        values = transform.decode(self.spec, x)[:, place]
        known = ~np.isnan(values) & ~np.isin(values, self.column.special)
        others = np.delete(x, np.r_[own], 1)
        if self.spec.labelled:
            others = np.column_stack([others, np.eye(self.spec.classes)[y]])
        if self.column.categories:
            return others[known], values[known].astype(np.int64)
        return others[known], transform.unit(self.column, values[known])

    def fit(self, model: str, train: Rows, seed: int = 0) -> Any:
        """Return a trained model; None where rows are too few.

        Args:
          model: A name of `models`.
          train: The result of `problem` on the rows to train on.
          seed: The seed of the training.
        """
        if len(train[1]) < MIN_ROWS:
            return None
        if self.column.categories:
            return fit_model(model, train, len(self.column.categories), seed)
        return fit_regression(model, train, seed)

    def judge(self, trained: Any, test: Rows) -> dict[str, float]:
        """Return the scores of a trained model, by name.

        Args:
          trained: A model that `fit` returned.
          test: The result of `problem` on the rows to test on, two at least.
        """
        if self.column.categories:
            return dataclasses.asdict(judge_models(
                trained, test, len(self.column.categories)))
        return {"r2": r2(trained, test)}


def named_targets(spec: TableSpec, names: Sequence[str]) -> list[Target]:
    """Return the targets of these names, each once, without the label.

    Args:
      spec: The schema.
      names: Names of columns.

    Raises:
      UserError: There is no such column.
    """
    columns = {column.name: column for column in spec.all_columns}
    for name in names:
        if name not in columns:
            raise UserError(f"{option('targets', name)}: no such column{nearest(name, columns)}; "
                            f"known: {listed(columns)}")
    targets = [Target(spec, columns[name]) for name in dict.fromkeys(names)]
    return [target for target in targets if not target.is_label]


def utility_of_targets(targets: Sequence[Target], draws: Sequence[Rows], test: Rows, real: Rows
                       | None,
                       log: Log = silent) -> Json:
    """Compute the parts `targets` and `seconds` of metrics.json.

    Args:
      targets: What is predicted.
      draws: Synthetic rows, one draw a seed.
      test: Held-out real rows, on which every model is tested.
      real: Real training rows, for `real2real`; None to leave it out.
      log: A function that takes a line of progress for each target.

    Returns:
      {"targets": {name: {task: {model: {metric: `summary`}}}}, "seconds": {target: seconds},
      "notes": a line for each target that could not be scored}; tasks are gen2real and real2real.
    """
    parts: Json = {}
    seconds, notes = {}, []
    for target in targets:
        started, name = time.monotonic(), target.column.name
        trains = {"gen2real": draws, "real2real": [] if real is None else [real] * len(draws)}
        part = {task: _of_task(target, rows, test) for task, rows in trains.items()}
        parts[name] = {task: scores for task, scores in part.items() if scores}
        seconds[f"target {name}"] = time.monotonic() - started
        if not part["gen2real"]:
            notes.append(f"target {name}: fewer than {MIN_ROWS} rows with a value; no score")
        log(f"target {name}: " + ", ".join(
            f"{task} {target.metric} {best(parts[name][task], target.metric):.4f}"
            for task in parts[name]))
    return {"targets": parts, "seconds": seconds, "notes": notes}


def best(scores: Json, metric: str) -> float:
    """Return the highest mean of a metric over models.

    Args:
      scores: {model: {metric: `summary`}}, one model at least.
      metric: The metric.
    """
    return max(model[metric]["mean"] for model in scores.values())


def _of_task(target: Target, trains: Sequence[Rows], test: Rows) -> Json:
    """Return {model: {metric: summary}} over the seeds; {} where rows are too few."""
    tested, result = target.problem(test), {}
    problems = [target.problem(rows) for rows in trains]
    if not problems or min(len(y) for _, y in (tested, *problems)) < MIN_ROWS:
        return {}
    for model in target.models:
        by_seed = [target.judge(target.fit(model, train, seed), tested)
                   for seed, train in enumerate(problems)]
        result[model] = {metric: summary([scores[metric] for scores in by_seed])
                         for metric in by_seed[0]}
    return result


MIN_SUBGROUP_ROWS = 30
"""A group of fewer rows is not measured."""
MAX_GROUPS = 50
"""The most groups of one grouping, the largest first."""
QUARTERS = (0.25, 0.5, 0.75)
MODEL = "gradient_boosting"
"""The model that predicts the label, or the first target, in every group."""


@dataclasses.dataclass(frozen=True)
class Grouping:
    """Columns whose values part the rows."""

    spec: TableSpec
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The names of the columns."""
        return ", ".join(column.name for column in self.columns)


def named_groups(spec: TableSpec, texts: Sequence[str]) -> list[Grouping]:
    """Return the groupings that a user names.

    Args:
      spec: The schema.
      texts: For each the name of a column, or of several with commas between them.

    Raises:
      UserError: There is no such column, or one is named twice.
    """
    columns = {column.name: column for column in spec.all_columns}
    groupings = []
    for text in dict.fromkeys(texts):
        names = [text] if text in columns else [name.strip() for name in text.split(",")]
        for name in names:
            if name not in columns:
                raise UserError(f"{option('by', text)}: no such column "
                                f"{name!r}{nearest(name, columns)}; known: {listed(columns)}")
        if len(set(names)) < len(names):
            raise UserError(f"{option('by', text)}: a column is named twice; name each once")
        groupings.append(Grouping(spec, tuple(columns[name] for name in names)))
    return groupings


def subgroups(groupings: Sequence[Grouping], draws: Sequence[Rows], test: Rows, real: Rows | None,
              targets: Sequence[Target] = (), log: Log = silent) -> list[Json]:
    """Compute the part `subgroups` of metrics.json, all of it from real rows.

    Args:
      groupings: How the rows are parted, one after the other.
      draws: Synthetic rows, one draw a seed.
      test: Held-out real rows.
      real: Real training rows, for the floors and `real2real`; None for neither.
      targets: The columns that are predicted; the label, if there is one, stands for them.
      log: A function that takes a line of progress for each grouping.

    Returns:
      For each group {"by", "group", "n_test", "n_synthetic", "synthetic_share", "real_share"}, with
      "one_way_tvd", "two_way_tvd" and "query_error" as `marginals.fidelity` gives them, of equal
      numbers of rows; "metric", "gen2real" and "real2real", the score on the group's held-out rows
      of `MODEL` trained on all rows, and "n_rarest", how many of them are of the rarest class; and
      "note" where something is left out, and why.
    """
    if not groupings:
        return []
    spec = groupings[0].spec
    goal = Target(spec, spec.label) if spec.labelled else next(iter(targets), None)
    predicted = None if goal is None else _Predicted.of(goal, draws, real)
    result = []
    for grouping in groupings:
        log(f"subgroups by {grouping.name}")
        # within a group the column that makes it is nearly constant: nothing is to be predicted
        known = goal is None or goal.column in grouping.columns
        result += [_measured(grouping, group, draws, test, real, None if known else predicted)
                   for group in _groups(grouping, test)]
    return result


@dataclasses.dataclass(frozen=True)
class _Group:
    """A group: its name, and for each column the lowest and highest code that belongs to it."""

    name: str
    ranges: tuple[tuple[float, float], ...]
    """NaN for null."""

    def rows(self, grouping: Grouping, rows: Rows) -> np.ndarray:
        """Return which rows [n] belong to it: bool [n]."""
        cells, kept = marginals.cells(grouping.spec, rows), np.ones(len(rows[1]), bool)
        for column, (low, high) in zip(grouping.columns, self.ranges, strict=True):
            values = cells[:, grouping.spec.all_columns.index(column)]
            if np.isnan(low):
                kept &= np.isnan(values)
            else:
                kept &= (values >= low) & (values <= high)
                kept &= (low == high) | ~np.isin(values, column.special)
        return kept


def _groups(grouping: Grouping, test: Rows) -> list[_Group]:
    """Return the groups, the largest first, at most `MAX_GROUPS`; none that has no held-out row."""
    groups = [_Group("", ())]
    cells = marginals.cells(grouping.spec, test)
    for column in grouping.columns:
        values = cells[:, grouping.spec.all_columns.index(column)]
        groups = [_Group(", ".join(filter(None, (group.name, name))), (*group.ranges, span))
                  for group in groups for name, span in _values(column, values)]
        sizes = [int(group.rows(dataclasses.replace(
            grouping, columns=grouping.columns[:len(group.ranges)]), test).sum())
            for group in groups]
        order = sorted(range(len(groups)), key=lambda i: -sizes[i])[:MAX_GROUPS]
        groups = [groups[i] for i in order if sizes[i]]
    return groups


def _values(column: Column, values: np.ndarray) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the name and the range of each group of one column."""
    known = values[~np.isnan(values) & ~np.isin(values, column.special)]
    if column.categories:
        for code, name in enumerate(column.categories):
            yield name, (code, code)
    elif len(known):
        edges = np.array([column.low, *np.unique(np.quantile(known, QUARTERS)), column.high])
        texts = transform.texts(column, edges)
        for i, (low, high) in enumerate(zip(edges, edges[1:], strict=False), 1):
            last = high if i == len(edges) - 1 else np.nextafter(high, -np.inf)
            yield f"{column.name} {texts[i - 1]} to {texts[i]}", (low, last)
    for value, text in zip(column.special, transform.texts(column, np.array(column.special)),
                           strict=True):
        yield f"{column.name} {text}", (value, value)
    if column.nullable:
        yield f"{column.name} null", (np.nan, np.nan)


@dataclasses.dataclass(frozen=True)
class _Predicted:
    """A target with the models that predict it, trained on rows of all groups, by their task."""

    target: Target
    trained: dict[str, list[Any]]

    @classmethod
    def of(cls, target: Target, draws: Sequence[Rows], real: Rows | None) -> _Predicted:
        tasks = {"gen2real": draws, "real2real": [] if real is None else [real]}
        return cls(target, {task: [target.fit(MODEL, target.problem(rows), seed)
                                   for seed, rows in enumerate(trains)]
                            for task, trains in tasks.items()})

    def scores(self, test: Rows) -> Json:
        """Return the score of each task on these rows, and what it is; {} where they are few."""
        tested, metric = self.target.problem(test), self.target.metric
        counts = (np.bincount(tested[1].astype(np.int64)) if self.target.column.categories
                  else np.array([len(tested[1])]))
        if (counts >= MIN_ROWS).sum() < (2 if self.target.column.categories else 1):
            return {}
        result: Json = {"metric": metric, "n_rarest": int(counts[counts > 0].min())}
        for task, trained in self.trained.items():
            if trained and None not in trained:
                result[task] = summary([self.target.judge(model, tested)[metric]
                                        for model in trained])
        return result


def _measured(grouping: Grouping, group: _Group, draws: Sequence[Rows], test: Rows,
              real: Rows | None, predicted: _Predicted | None) -> Json:
    """Return what is measured of one group."""
    parts = [_only(draw, group.rows(grouping, draw)) for draw in draws]
    held_out = _only(test, group.rows(grouping, test))
    shares = [len(part[1]) / len(draw[1]) for part, draw in zip(parts, draws, strict=True)]
    result: Json = {
        "by": grouping.name, "group": group.name, "n_test": len(held_out[1]),
        "n_synthetic": min(len(part[1]) for part in parts)}
    if len(held_out[1]) < MIN_SUBGROUP_ROWS:
        return result | {"note": f"too few held-out rows to say anything: "
                                 f"{MIN_SUBGROUP_ROWS} are needed"}
    result |= {"synthetic_share": summary(shares), "real_share": len(held_out[1]) / len(test[1])}
    result |= {} if predicted is None else predicted.scores(held_out)
    training = None if real is None else _only(real, group.rows(grouping, real))
    if training is not None and len(training[1]) < MIN_SUBGROUP_ROWS:
        training = None
    if result["n_synthetic"] < MIN_SUBGROUP_ROWS:
        note = f"too few synthetic rows to compare columns: {MIN_SUBGROUP_ROWS} are needed"
        return result | {"note": note}
    n = min(result["n_synthetic"], len(held_out[1] if training is None else training[1]))
    cut = [(x[:n], y[:n]) for x, y in parts]
    floor = None if training is None else (training[0][:n], training[1][:n])
    return (result | marginals.column_distances(cut, held_out, floor, grouping.spec)
            | {"query_error": marginals.query_errors(cut, held_out, floor, grouping.spec)})


def _only(rows: Rows, kept: np.ndarray) -> Rows:
    """Return the rows that are kept, bool [n]."""
    return rows[0][kept], rows[1][kept]
