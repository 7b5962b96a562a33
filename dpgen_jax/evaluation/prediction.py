"""Utility of synthetic tables: columns predicted by models of their rows, also for subgroups.

A table is judged by what classifiers and regressions learn from it. Rows are float [n, F] in [0,
1], hard (a one-hot has a single 1); labels are integers 0..classes-1. A table without a label has a
single class: its utility is that of the columns that are named as targets, if any. A model is
trained once on encoded rows, standardised with the mean and scale of its own training rows, and
tested once. Of two classes class 1 is the positive one.

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
from typing import Any, NamedTuple, cast

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

from dpgen_jax.core import arrays
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.errors import listed, nearest, option
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.results import (
    TASKS,
    Finding,
    Key,
    Log,
    Part,
    Real,
    Records,
    Score,
    Setting,
    Synthetic,
    check_finite,
    once,
    pick,
    silent,
)

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


def score(classifier: str, train: Records, test: Records, classes: int, seed: int = 0) -> Scores:
    """Train one of `CLASSIFIERS` and test it; the same arguments give the same scores.

    Where the training rows have one class only, or boosting finds no member better than chance, the
    score is constant: the classes' shares in the training rows.
    """
    return judge_models(fit_model(classifier, train, classes, seed), test, classes)


def fit_model(classifier: str, train: Records, classes: int, seed: int) -> Classifier:
    """Train a classifier, as `score` does."""
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


def judge_models(trained: Classifier, test: Records, classes: int) -> Scores:
    """Test a trained classifier."""
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


SETTINGS = {setting.name: setting for setting in (
    Setting("full", "the full evaluation", 10_000, 3),
    Setting("fast", "a fast evaluation for laptops, whose numbers are less certain", 2_500, 2))}
FAST_ENTRIES = 2**22
"""The most entries, rows times features, of a draw of a fast evaluation: ensembles of 100 and 200
learners take minutes of more."""
FEWEST_ROWS = 250
"""The fewest rows of such a draw, however many features they have."""


def setting_for(options: Evaluation, spec: TableSpec, log: Log = silent) -> Setting:
    """Return the setting that a user's options ask for: a fast one has few rows of a wide table."""
    setting = SETTINGS["fast" if options.fast else "full"]
    room = max(FAST_ENTRIES // spec.shape[0], FEWEST_ROWS)
    if options.fast and not options.samples and room < setting.n_samples:
        setting = dataclasses.replace(setting, n_samples=room, description=(
            f"{setting.description}, on fewer rows as there are {spec.shape[0]:,} features"))
    return dataclasses.replace(setting, options=options, log=log,
                               seeds=options.seeds or setting.seeds,
                               n_samples=options.samples or setting.n_samples)


def prepared(real: Real, synthetic: Synthetic, setting: Setting) -> tuple[Real, Synthetic, Part]:
    """Draw and check the rows of a table, and return them with facts on their numbers."""
    spec, started = cast(TableSpec, real.spec), time.monotonic()
    draw = once(lambda n, seed: _checked("synthetic", synthetic.draw(n, seed), spec))
    for seed in range(setting.seeds):
        draw(setting.n_samples, seed)
    train = None if real.train is None else _checked("real", real.train, spec)
    real = dataclasses.replace(real, test=_checked("test", real.test, spec), train=train)
    n_real = 0 if train is None else min(len(train[1]), setting.n_samples)
    learners = ("the classifiers of G-PATE with their published settings, logistic regression, a "
                "random forest and boosted trees, " if spec.labelled else "")
    text = (f"{setting.description}: {learners}on {setting.n_samples:,} synthetic rows for each "
            f"of {setting.seeds} seeds, and on {n_real:,} real ones")
    return real, dataclasses.replace(synthetic, draw=draw), Part(facts={
        "setting": {"name": setting.name, "schedule": {}, "text": text},
        "n_samples": setting.n_samples, "n_test": len(real.test[1]), "n_real": n_real,
        "seeds": setting.seeds}, real_facts=("setting.text",),
        seconds={"sampling": time.monotonic() - started})


def _checked(part: str, rows: Records, spec: TableSpec) -> Records:
    """Return rows float64 [n, F] and labels int [n], after a check against the schema."""
    x, y = np.asarray(rows[0], np.float64), np.asarray(rows[1])
    if x.ndim != 2 or x.shape[1:] != spec.shape or not len(x):
        raise UserError(f"{part} rows have shape {x.shape}, the schema needs [n, {spec.shape[0]}] "
                        "with n at least 1; encode them with the same schema")
    arrays.check_labels(part, y, len(x), spec.classes)
    check_finite(part, x, "rows")
    return x, y


def utility(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Measure a table by how well its label is predicted, as a `results.Measure`.

    Of two classes class 1 is the positive one. Of training rows as many are used as a draw has. The
    options of the setting name tasks and classifiers, all of `CLASSIFIERS` by default.

    Returns:
      Findings (task, classifier, name of a field of `Scores`); a note on each draw in which a class
      is absent, since its score is then no measurement; nothing without a label.
    """
    spec, options = cast(TableSpec, real.spec), setting.options
    if not spec.labelled:
        return Part(seconds={})
    real = real.alike(setting.n_samples)
    draws = setting.draws(synthetic)
    pairs = {"gen2real": [(draw, real.test) for draw in draws]}
    if real.train is not None:
        pairs |= {"real2gen": [(real.train, draw) for draw in draws],
                  "real2real": [(real.train, real.test)] * len(draws)}
    pairs = {task: pairs[task] for task in TASKS if task in pairs and task in options.metrics}
    findings, seconds = [], {}
    for name in (options.classifiers or tuple(CLASSIFIERS)) if pairs else ():
        started = time.monotonic()
        scores = _scored(name, pairs, spec.classes)
        seconds[name] = time.monotonic() - started
        findings += [
            Finding((task, name, field.name), Score.of([getattr(one, field.name) for one in of]))
            for task, of in scores.items() for field in dataclasses.fields(Scores)]
        setting.log(f"{name}: AUROC " + ", ".join(
            f"{task} {np.mean([one.auroc for one in of]):.4f}" for task, of in scores.items())
            + f" ({seconds[name]:.0f} s)")
    order = [*pairs]
    findings.sort(key=lambda one: order.index(str(one.key[0])))
    return Part(tuple(findings), notes=tuple(_absent(pairs, spec)), seconds=seconds)


Pairs = dict[str, list[tuple[Records, Records]]]
"""Task -> the rows to train on and the rows to test on, of each seed."""


def _scored(name: str, pairs: Pairs, classes: int) -> dict[str, list[Scores]]:
    """Return the scores of a classifier, trained once for the tasks that train on the same rows."""
    models: dict[tuple[int, int], Classifier] = {}
    scores: dict[str, list[Scores]] = {}
    for task, of_task in pairs.items():
        for seed, (train, test) in enumerate(of_task):
            key = seed, id(train)
            if key not in models:
                models[key] = fit_model(name, train, classes, seed)
            scores.setdefault(task, []).append(judge_models(models[key], test, classes))
    return scores


def _absent(pairs: Pairs, spec: TableSpec) -> Iterator[str]:
    """Yield a line for each draw in which a class is absent."""
    for task, of_task in pairs.items():
        for seed, pair in enumerate(of_task):
            for part, (_, y) in zip(("training", "test"), pair, strict=True):
                absent = sorted({*range(spec.classes)} - {*y.tolist()})
                if absent:
                    names = ", ".join(spec.label.categories[c] for c in absent)
                    yield f"{task}, seed {seed}: no {part} row has class {names}"


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

    def problem(self, rows: Records) -> Records:
        """Return the features float [m, F'] and the target's values [m] of rows that have one.

        Values are classes int, or numbers between their bounds, 0 to 1 on the column's scale.
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

    def fit(self, model: str, train: Records, seed: int = 0) -> Any:
        """Return a model that is trained on a `problem`; None where rows are too few."""
        if len(train[1]) < MIN_ROWS:
            return None
        if self.column.categories:
            return fit_model(model, train, len(self.column.categories), seed)
        regression = make_pipeline(StandardScaler(), pick("regression", REGRESSIONS, model)(seed))
        with threadpool_limits(1):
            return regression.fit(*train)

    def judge(self, trained: Any, test: Records) -> dict[str, float]:
        """Return the scores of a trained model on a `problem` of two rows or more, by name.

        R2 of a number is 1 where every number is right, 0 for the mean of the test rows, and below
        0 for worse.
        """
        if self.column.categories:
            return dataclasses.asdict(judge_models(
                trained, test, len(self.column.categories)))
        with threadpool_limits(1):
            return {"r2": float(r2_score(test[1], trained.predict(test[0])))}


def named_targets(spec: TableSpec, names: Sequence[str]) -> list[Target]:
    """Return the targets of these names, each once, without the label; refuse unknown names."""
    columns = {column.name: column for column in spec.all_columns}
    for name in names:
        if name not in columns:
            raise UserError(f"{option('targets', name)}: no such column{nearest(name, columns)}; "
                            f"known: {listed(columns)}")
    targets = [Target(spec, columns[name]) for name in dict.fromkeys(names)]
    return [target for target in targets if not target.is_label]


def predicted(real: Real, synthetic: Synthetic, setting: Setting, targets: Sequence[Target]
              ) -> Part:
    """Measure how well columns are predicted from the others, as a `results.Measure`.

    Returns:
      Findings ("targets", column, task, model, metric), tasks being gen2real and, where the metrics
      of the setting name it, real2real; a note for each target that could not be scored.
    """
    if "gen2real" not in setting.options.metrics:
        return Part(seconds={})
    draws, real = setting.draws(synthetic), real.alike(setting.n_samples)
    train = real.train if "real2real" in setting.options.metrics else None
    findings: list[Finding] = []
    seconds, notes = {}, []
    names: Json = {}
    for target in targets:
        started, name = time.monotonic(), target.column.name
        rows_of = {"gen2real": draws, "real2real": [] if train is None else [train] * len(draws)}
        of_target = [one for task, rows in rows_of.items()
                     for one in _of_task(target, task, rows, real.test)]
        seconds[f"target {name}"], names[name] = time.monotonic() - started, {}
        if not any(one.key[2] == "gen2real" for one in of_target):
            notes.append(f"target {name}: fewer than {MIN_ROWS} rows with a value; no score")
        best = {task: max(one.value.mean for one in of_target
                          if one.key[2] == task and one.name == target.metric)
                for task in dict.fromkeys(one.key[2] for one in of_target)}
        setting.log(f"target {name}: " + ", ".join(
            f"{task} {target.metric} {score:.4f}" for task, score in best.items()))
        findings += of_target
    return Part(tuple(findings), {"targets": names}, ("targets",), tuple(notes), seconds)


def _of_task(target: Target, task: str, trains: Sequence[Records], test: Records) -> list[Finding]:
    """Return the scores of all models over the seeds; none where rows are too few."""
    tested, found = target.problem(test), []
    problems = [target.problem(rows) for rows in trains]
    if not problems or min(len(y) for _, y in (tested, *problems)) < MIN_ROWS:
        return []
    for model in target.models:
        by_seed = [target.judge(target.fit(model, train, seed), tested)
                   for seed, train in enumerate(problems)]
        found += [Finding(("targets", target.column.name, task, model, metric),
                          Score.of([scores[metric] for scores in by_seed]))
                  for metric in by_seed[0]]
    return found


MIN_SUBGROUP_ROWS = 30
"""A group of fewer rows is not measured."""
MAX_GROUPS = 50
"""The most groups of one grouping, the largest first."""
QUARTERS = (0.25, 0.5, 0.75)
MODEL = "gradient_boosting"
"""The model that predicts the label, or the first target, in every group."""


def named_groups(spec: TableSpec, texts: Sequence[str]) -> list[tuple[Column, ...]]:
    """Return the groupings that a user names: a column each, or several with commas between them.

    A UserError refuses a column that does not exist or is named twice.
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
        groupings.append(tuple(columns[name] for name in names))
    return groupings


def subgroups(real: Real, synthetic: Synthetic, setting: Setting,
              groupings: Sequence[Sequence[Column]], targets: Sequence[Target] = ()) -> Part:
    """Measure parts of the rows of a table, as a `results.Measure`, all of it from real rows.

    The first of `targets` is predicted in every group; the label, if there is one, stands for it.

    Returns:
      The fact `subgroups`, for each group {"by", "group", "n_test", "n_synthetic", "real_share"},
      "metric" of its scores, "n_rarest", how many of its held-out rows are of the rarest class, and
      "note" where something is left out, and why. Findings ("subgroups", its number, name):
      `synthetic_share`; those of `marginals.distances`, of equal numbers of rows; `gen2real` and
      `real2real`, the score on the group's held-out rows of `MODEL` trained on all rows.
    """
    spec, draws = cast(TableSpec, real.spec), setting.draws(synthetic)
    real = real.alike(setting.n_samples)
    goal = Target(spec, spec.label) if spec.labelled else next(iter(targets), None)
    models = None if goal is None else _Predicted.of(goal, draws, real.train)
    findings: list[Finding] = []
    facts: list[Json] = []
    for columns in groupings:
        by = ", ".join(column.name for column in columns)
        setting.log(f"subgroups by {by}")
        # within a group the column that makes it is nearly constant: nothing is to be predicted
        known = goal is None or goal.column in columns
        for group in _groups(spec, columns, real.test):
            of_group, more = _measured(group, draws, real, ("subgroups", len(facts)),
                                       None if known else models)
            findings += of_group
            facts.append({"by": by, "group": group.name} | more)
    return Part(tuple(findings), {"subgroups": facts}, ("subgroups",))


class _Group(NamedTuple):
    """A group of the rows of a table."""

    spec: TableSpec
    name: str = ""
    ranges: tuple[tuple[Column, float, float], ...] = ()
    """Columns with the lowest and the highest code that belong to it, NaN for null."""

    def of(self, rows: Records) -> Records:
        """Return the rows that belong to it."""
        cells, kept = marginals.cells(self.spec, rows), np.ones(len(rows[1]), bool)
        for column, low, high in self.ranges:
            values = cells[:, self.spec.all_columns.index(column)]
            if np.isnan(low):
                kept &= np.isnan(values)
            else:
                kept &= (values >= low) & (values <= high)
                kept &= (low == high) | ~np.isin(values, column.special)
        return rows[0][kept], rows[1][kept]


def _groups(spec: TableSpec, columns: Sequence[Column], test: Records) -> list[_Group]:
    """Return the groups, the largest first, at most `MAX_GROUPS`; none that has no held-out row."""
    groups, cells = [_Group(spec)], marginals.cells(spec, test)
    for column in columns:
        values = cells[:, spec.all_columns.index(column)]
        parts = [_Group(spec, ", ".join(filter(None, (group.name, name))),
                        (*group.ranges, (column, *span)))
                 for group in groups for name, span in _values(column, values)]
        sized = [(len(part.of(test)[1]), part) for part in parts]
        sized = sorted(sized, key=lambda one: -one[0])[:MAX_GROUPS]
        groups = [part for size, part in sized if size]
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
    def of(cls, target: Target, draws: Sequence[Records], real: Records | None) -> _Predicted:
        tasks = {"gen2real": draws, "real2real": [] if real is None else [real]}
        return cls(target, {task: [target.fit(MODEL, target.problem(rows), seed)
                                   for seed, rows in enumerate(trains)]
                            for task, trains in tasks.items()})

    def scores(self, test: Records, key: Key) -> tuple[list[Finding], Json]:
        """Return the score of each task on these rows, and what it is; none where they are few."""
        tested, metric = self.target.problem(test), self.target.metric
        counts = (np.bincount(tested[1].astype(np.int64)) if self.target.column.categories
                  else np.array([len(tested[1])]))
        if (counts >= MIN_ROWS).sum() < (2 if self.target.column.categories else 1):
            return [], {}
        return [Finding((*key, task), Score.of([self.target.judge(model, tested)[metric]
                                                for model in trained]))
                for task, trained in self.trained.items() if trained and None not in trained], {
                    "metric": metric, "n_rarest": int(counts[counts > 0].min())}


def _measured(group: _Group, draws: Sequence[Records], real: Real, key: Key,
              models: _Predicted | None) -> tuple[list[Finding], Json]:
    """Return the findings and the facts of one group."""
    parts, held_out = [group.of(draw) for draw in draws], group.of(real.test)
    fewest = min(len(one[1]) for one in parts)
    facts: Json = {"n_test": len(held_out[1]), "n_synthetic": fewest}
    if len(held_out[1]) < MIN_SUBGROUP_ROWS:
        return [], facts | {"note": f"too few held-out rows to say anything: {MIN_SUBGROUP_ROWS} "
                                    "are needed"}
    facts["real_share"] = len(held_out[1]) / len(real.test[1])
    findings = [Finding((*key, "synthetic_share"), Score.of(
        [len(one[1]) / len(draw[1]) for one, draw in zip(parts, draws, strict=True)]))]
    if models is not None:
        scores, known = models.scores(held_out, key)
        findings, facts = [*findings, *scores], facts | known
    training = None if real.train is None else group.of(real.train)
    if training is not None and len(training[1]) < MIN_SUBGROUP_ROWS:
        training = None
    if fewest < MIN_SUBGROUP_ROWS:
        return findings, facts | {"note": "too few synthetic rows to compare columns: "
                                          f"{MIN_SUBGROUP_ROWS} are needed"}
    n = min(fewest, len(held_out[1] if training is None else training[1]))
    floor = None if training is None else (training[0][:n], training[1][:n])
    return findings + marginals.distances([(x[:n], y[:n]) for x, y in parts], Real(
        real.spec, held_out, floor), key), facts
