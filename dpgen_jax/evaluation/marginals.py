"""Distances between the marginals of synthetic and of real tables, and violations of the schema.

A table is compared by its cells, float64 [n, K]: the columns of the schema and the label last,
numbers in their own units, categories as their index among the declared ones, NaN for null.

Random queries measure how far the shares of rows that they count are off. A query is a condition on
three columns, as users of a table ask: a number lies in a range, a category has a certain value.
Source: the query error of Chen et al., "Benchmarking Differentially Private Tabular Data Synthesis"
(SIGMOD 2025, arXiv 2504.14061), section 6.

Detection measures how well a classifier distinguishes synthetic rows from real ones. The classifier
sees equal numbers of both, picked with the seed, as features in [0, 1]: the encoded row and its
class as a one-hot. The real rows are held-out ones, so that copies of training rows gain nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation.results import (
    Finding,
    Key,
    Part,
    Real,
    Records,
    Score,
    Setting,
    Synthetic,
    percent,
)

QUERIES = 1000
"""The queries of a measurement."""
COLUMNS = 3
"""The columns of a query, or all of a table that has fewer."""


@dataclasses.dataclass(frozen=True)
class Query:
    """A query: the rows whose cells lie in a range in each of some columns, whose places it has.

    Both bounds of a range are included; for a category they are equal.
    """

    columns: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def share(self, cells: np.ndarray) -> float:
        """Return the share of rows that it counts, of cells float64 [n, K]; null lies nowhere."""
        values = cells[:, self.columns]
        return float(np.mean(((values >= self.low) & (values <= self.high)).all(1)))


def queries(truth: np.ndarray, columns: Sequence[Column], seed: int = 0) -> list[Query]:
    """Draw `QUERIES` queries: three columns, and in each a range or a category, uniformly.

    The ends of a range are drawn between the lowest and the highest number in `truth`, cells of
    real rows float64 [n, K], and categories from those that occur. A column that is null in all
    rows is in none.
    """
    rng = np.random.default_rng(seed)
    values = {i: np.unique(truth[~np.isnan(truth[:, i]), i]) for i in range(truth.shape[1])}
    known = [i for i, of in values.items() if len(of)]

    def ends(i: int) -> np.ndarray:
        if columns[i].categories:
            return np.repeat(rng.choice(values[i]), 2)
        if columns[i].kind == "integer":  # so that a range can begin with the lowest, often a spike
            return np.sort(rng.integers(int(values[i][0]), int(values[i][-1]) + 1, 2))
        return np.sort(rng.uniform(values[i][0], values[i][-1], 2))

    drawn = []
    for _ in range(QUERIES if known else 0):
        chosen = rng.choice(known, min(COLUMNS, len(known)), replace=False).tolist()
        low, high = np.transpose([ends(i) for i in chosen]).astype(float).tolist()
        drawn.append(Query(tuple(chosen), tuple(low), tuple(high)))
    return drawn


def query_error(cells: np.ndarray, truth: np.ndarray, columns: Sequence[Column], seed: int = 0
                ) -> float:
    """Compute the mean absolute difference of the shares of rows that random queries count.

    The queries are drawn by `truth`, cells of real rows float64 [n', K]. The result is in [0, 1]; 0
    where there is no query.
    """
    drawn = queries(truth, columns, seed)
    errors = [abs(query.share(cells) - query.share(truth)) for query in drawn]
    return float(np.mean(errors)) if errors else 0.0


BINS = 20
"""Equal bins of a number, between its declared bounds."""
MAX_PAIRS = 1000
"""The most pairs of columns that are compared."""
MAX_FEATURES = 2000
"""The most features whose correlations are compared."""
DENSE = 2**20
"""The most bins that are counted one by one; of more only those that are not empty."""


def columns(spec: TableSpec) -> tuple[Column, ...]:
    """Return the columns of the cells: the features, then the label, if there is one."""
    return spec.all_columns


def cells(spec: TableSpec, rows: Records) -> np.ndarray:
    """Return the cells float64 [n, K] of encoded rows float [n, F] and labels int [n]."""
    x, y = rows
    codes = transform.decode(spec, x)
    return np.column_stack([codes, y]) if spec.labelled else codes


def likeness(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Measure how close rows are to real ones, as a `results.Measure`.

    Each draw is compared with held-out rows, as many of it as there are training rows: their
    distance is the floor, which sampling by itself explains, and is fair only for equal numbers.

    Returns:
      Findings ("fidelity", name): those of `distances`, `correlation_difference`, `pmse` and
      `detection_auroc`; the facts `far_off` (see there) and `label_shares`.
    """
    spec, real = cast(TableSpec, real.spec), real.alike(setting.n_samples)
    rows = slice(None if real.train is None else len(real.train[1]))
    draws = [(x[rows], y[rows]) for x, y in setting.draws(synthetic)]
    key, named, test = ("fidelity",), columns(spec), cells(spec, real.test)
    findings = distances(draws, real, key)
    findings.append(_compared((*key, "correlation_difference"), lambda one:
                              correlation_difference(one[0], real.test[0]), draws, real))
    scores = []
    for seed, draw in enumerate(draws):
        scores.append(detect(draw, real.test, spec.classes, seed))
        setting.log(f"detection, seed {seed}: " + ", ".join(
            f"{name} {value:.4g}" for name, value in scores[-1].items()))
    floor = {} if real.train is None else {
        name: Score(value) for name, value in detect(real.train, real.test, spec.classes).items()}
    findings += [Finding((*key, name), Score.of([one[name] for one in scores]), floor.get(name))
                 for name in DETECTION_METRICS]
    findings += _independent(draws[0], real)
    by_column = [one for one in findings if one.key[-2] == "columns"]
    facts: Json = {"fidelity": {"far_off": far_off(
        [cells(spec, draw) for draw in draws], test, named, by_column)}}
    if len(named) > 1:
        k = len(named)
        facts["fidelity"]["two_way_tvd"] = {"pairs": len(pairs_of(k)),
                                            "all_pairs": k * (k - 1) // 2}
    if np.mean([one["detection_auroc"] for one in scores]) > GIVEN_AWAY:
        facts["fidelity"]["detection"] = giveaways(draws[0], real.test, spec)
    if spec.labelled:
        facts["label_shares"] = label_shares(draws, real.test, spec)
    return Part(tuple(findings), facts, (
        "fidelity.far_off", "fidelity.detection", *(["label_shares"] if spec.labelled else ())))


def _independent(draw: Records, real: Real) -> list[Finding]:
    """Return the baseline of independent columns: a draw whose columns are shuffled one by one.

    Its marginals are those of the release, so it is what independent columns give for the same
    epsilon. The findings are ("baselines", "independent", name), for measures of several columns.
    """
    spec, rng = cast(TableSpec, real.spec), np.random.default_rng(0)
    codes = transform.decode(spec, draw[0])
    codes = np.stack([rng.permutation(codes[:, i]) for i in range(codes.shape[1])], 1)
    shuffled = transform.encode(spec, codes), rng.permutation(draw[1])
    truth, named = cells(spec, real.test), columns(spec)
    made = cells(spec, shuffled)
    scores = {"query_error": query_error(made, truth, named),
              "correlation_difference": correlation_difference(shuffled[0], real.test[0])}
    if len(named) > 1:
        scores = {"two_way_tvd": two_way_tvd(made, truth, named)} | scores
    return [Finding(("baselines", "independent", name), Score(value))
            for name, value in scores.items()]


def validity(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Measure the fraction of cells that break the public schema, as a `results.Measure`."""
    spec = cast(TableSpec, real.spec)
    broken = [schema_violations(cells(spec, draw), columns(spec))
              for draw in setting.draws(synthetic)]
    return Part((Finding(("schema_violations",), Score.of(broken), from_real=False),), seconds={})


def distances(draws: Sequence[Records], real: Real, key: Key) -> list[Finding]:
    """Return the distances of the columns, of pairs of them, and the error of random queries.

    Total variation distances are in [0, 1]. They are means over the columns, or over pairs of them,
    sampled with a fixed seed where there are more than `MAX_PAIRS`.

    Args:
      draws: Synthetic rows, one draw a seed.
      real: Held-out rows, and training rows for the floors.
      key: The beginning of the findings' keys.

    Returns:
      `one_way_tvd`, its `columns`, `two_way_tvd` unless there is one column only, `query_error`.
    """
    spec = cast(TableSpec, real.spec)
    truth, named = cells(spec, real.test), columns(spec)
    tables = [cells(spec, draw) for draw in draws]
    own = None if real.train is None else cells(spec, real.train)
    by_draw = [one_way_tvd(one, truth, named) for one in tables]
    floors = None if own is None else one_way_tvd(own, truth, named)
    found = [Finding((*key, "one_way_tvd"), Score.of([one.mean() for one in by_draw]),
                     None if floors is None else Score(float(floors.mean())))]
    for i, mean in enumerate(np.mean(by_draw, 0).tolist()):
        found.append(Finding((*key, "one_way_tvd", "columns", named[i].name), Score(mean),
                             None if floors is None else Score(float(floors[i]))))
    measures: dict[str, Callable[[np.ndarray], float]] = {
        "two_way_tvd": lambda one: two_way_tvd(one, truth, named),
        "query_error": lambda one: query_error(one, truth, named)}
    return found + [
        Finding((*key, name), Score.of([measure(one) for one in tables]),
                None if own is None else Score(measure(own)))
        for name, measure in measures.items() if name != "two_way_tvd" or len(named) > 1]


def _compared(key: Key, measure: Callable[[Records], float], draws: Sequence[Records], real: Real
              ) -> Finding:
    """Return a measure of each draw beside that of the training rows."""
    return Finding(key, Score.of([measure(draw) for draw in draws]),
                   None if real.train is None else Score(measure(real.train)))


def one_way_tvd(a: np.ndarray, b: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Compute the total variation distance in [0, 1] of each column of two tables: float64 [K].

    It is half the L1 distance of the shares of each bin: `BINS` equal bins between the bounds of a
    number, on its scale, a bin for each category and special value, and one for null. Cells are a
    float64 [n, K] and b float64 [n', K].
    """
    a, b, sizes = _binned(a, columns), _binned(b, columns), _sizes(columns)
    return np.array([_tvd(a[:, i], b[:, i], size) for i, size in enumerate(sizes)])


def two_way_tvd(a: np.ndarray, b: np.ndarray, columns: Sequence[Column]) -> float:
    """Compute the mean distance of the joint bins of pairs of columns; see `one_way_tvd`."""
    return float(np.mean(_joint(a, b, columns, pairs_of(len(columns)))))


def pairwise(a: np.ndarray, b: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Compute the distances of all pairs of columns: float64 [K, K], symmetric.

    On the diagonal are the distances of `one_way_tvd`.
    """
    k = len(columns)
    pairs = list(itertools.combinations_with_replacement(range(k), 2))
    distances = np.empty((k, k))
    for (i, j), distance in zip(pairs, _joint(a, b, columns, pairs), strict=True):
        distances[i, j] = distances[j, i] = distance
    return distances


def bin_shares(values: np.ndarray, column: Column) -> np.ndarray:
    """Compute the shares of the bins of cells [n] of a column: float64 [bins + 1], null last."""
    (size,) = _sizes([column])
    return np.bincount(_binned(values[:, None], [column])[:, 0], minlength=size) / len(values)


def _joint(a: np.ndarray, b: np.ndarray, columns: Sequence[Column], pairs: list[tuple[int, int]]
           ) -> list[float]:
    """Return the distance of the joint bins of each pair of columns."""
    a, b, sizes = _binned(a, columns), _binned(b, columns), _sizes(columns)
    return [_tvd(a[:, i] * sizes[j] + a[:, j], b[:, i] * sizes[j] + b[:, j], sizes[i] * sizes[j])
            for i, j in pairs]


def pairs_of(k: int) -> list[tuple[int, int]]:
    """Return all pairs of k columns, or `MAX_PAIRS` of them, without a list of all."""
    total = k * (k - 1) // 2
    if total <= MAX_PAIRS:
        return list(itertools.combinations(range(k), 2))
    picked = np.sort(np.random.default_rng(0).choice(total, MAX_PAIRS, replace=False))
    i = np.arange(k)
    starts = i * k - i * (i + 1) // 2  # of the pairs whose first column is i, in this order
    first = np.searchsorted(starts, picked, "right") - 1
    return list(zip(first.tolist(), (picked - starts[first] + first + 1).tolist(), strict=True))


def _sizes(columns: Sequence[Column]) -> list[int]:
    """Return the number of bins of each column: special values, and null, are the last."""
    return [(len(column.categories) or BINS) + len(column.special) + 1 for column in columns]


def _binned(cells: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
    """Return the bin of each cell: int64 [n, K]."""
    bins = cells.copy()
    for i, (column, size) in enumerate(zip(columns, _sizes(columns), strict=True)):
        if not column.categories:
            bins[:, i] = transform.unit(column, cells[:, i]) * BINS
        most = size - 2 - len(column.special)
        bins[:, i] = np.where(np.isnan(cells[:, i]), size - 1,
                              np.clip(np.floor(bins[:, i]), 0, most))
        for place, value in enumerate(column.special, most + 1):
            bins[cells[:, i] == value, i] = place
    return bins.astype(np.int64)


def _tvd(a: np.ndarray, b: np.ndarray, size: int) -> float:
    """Return the total variation distance of bins a [n] and b [n'], integers below `size`."""
    if size > DENSE:
        a, b = np.split(np.unique(np.concatenate([a, b]), return_inverse=True)[1], [len(a)])
        size = int(max(a.max(), b.max())) + 1
    shares = [np.bincount(bins, minlength=size) / len(bins) for bins in (a, b)]
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())


def correlation_difference(x: np.ndarray, truth: np.ndarray) -> float:
    """Compute the mean absolute difference of the Pearson correlations of pairs of features.

    Rows are x float [n, F] and truth float [n', F], encoded. Features that are constant in `truth`
    are left out; one that is constant only in x has correlation 0 there, so that a generator which
    makes the same row again and again gains nothing by it. Of more than `MAX_FEATURES` features
    some are picked with a fixed seed. The result is in [0, 2]; 0 where fewer than two features are
    left.
    """
    if x.shape[1] > MAX_FEATURES:
        picked = np.sort(np.random.default_rng(0).choice(x.shape[1], MAX_FEATURES, replace=False))
        x, truth = x[:, picked], truth[:, picked]
    varies = np.ptp(truth, 0) > 0
    if varies.sum() < 2:
        return 0.0
    upper = np.triu_indices(int(varies.sum()), 1)
    difference = correlations(x[:, varies]) - correlations(truth[:, varies])
    return float(np.abs(difference[upper]).mean())


def correlations(x: np.ndarray) -> np.ndarray:
    """Compute the Pearson correlations of features float [n, F]: float64 [F, F].

    They are 0 in the row and column of a constant feature, on the diagonal too.
    """
    centred = x - x.mean(0, dtype=np.float64)
    norms = np.sqrt((centred**2).sum(0))
    centred /= np.where(np.ptp(x, 0) > 0, norms, np.inf)  # rounding leaves no exact zero norm
    return centred.T @ centred


def schema_violations(cells: np.ndarray, columns: Sequence[Column]) -> float:
    """Compute the fraction of cells [n, K] that break the schema; a release must have none.

    Such a cell is a number outside its bounds, an integer that is not one, an index that no
    category has, or a null in a column that has none.
    """
    return float(np.mean([_broken(cells[:, i], column) for i, column in enumerate(columns)]))


def _broken(values: np.ndarray, column: Column) -> np.ndarray:
    """Return which values [n] of a column break the schema: bool [n]."""
    if column.categories:
        wrong = ~np.isin(values, np.arange(len(column.categories)))
    else:
        wrong = ~((values >= column.low) & (values <= column.high))
        if column.kind == "integer":
            wrong |= values != np.round(values)
        wrong &= ~np.isin(values, column.special)
    return np.where(np.isnan(values), not column.nullable, wrong)


FOLDS = 5
"""Folds of the cross-validation."""
MIN_DETECTED = 10
"""With fewer rows of either kind nothing can be learned."""
DETECTION_METRICS = ("pmse", "detection_auroc")


def detect(synthetic: Records, real: Records, classes: int, seed: int = 0) -> dict[str, float]:
    """Return `pmse` and `detection_auroc` (see `auroc`) of synthetic rows among real ones.

    As many of each part are used as the smaller has. The seed is that of their choice and of the
    classifiers.
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
    """Compute the propensity score mean squared error of rows [N, F].

    Truth int [N] is 1 for a synthetic row. The error is the mean of (p - c)^2 over all N rows,
    where c is the share of synthetic rows and p the probability of being synthetic that a logistic
    regression gives a row: unpenalised, on main effects, and fitted to these same rows. It sees
    single features, and not how they go together. It lies between 0 and c (1 - c), which is 0.25
    for equal numbers.

    Of rows of one law, k of whose features do not depend on each other linearly, its expected value
    is about k c (1 - c) / N, k / 4N for equal numbers: p - c is about c (1 - c) z b with z the
    standardised row and b the fitted weights, whose variance is 1 / (N c (1 - c)). (That of the
    paper, smaller by 1 - c, is for rows drawn from a model fitted to these very real rows.)

    Source:
      Snoke, Raab, Nowok, Dibben and Slavkovic, JRSS A 2018.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, tol=1e-7, max_iter=300))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows that are separable
        probabilities = model.fit(x, truth).predict_proba(x)[:, 1]
    return float(np.mean((probabilities - truth.mean()) ** 2))


def auroc(x: np.ndarray, truth: np.ndarray, seed: int = 0) -> float:
    """Compute the area under the ROC curve of boosted trees that separate two kinds of rows [N, F].

    Cross-validated: each row is judged by trees that never saw it. It is 0.5 for rows that cannot
    be distinguished, and with fewer than `MIN_DETECTED` of either kind; 1 for rows that always can;
    below 0.5 where rows with truth 1 are copies of the very rows with truth 0: trees that saw one
    of the two take the other for its opposite.
    """
    if np.bincount(truth, minlength=2).min() < MIN_DETECTED:
        return 0.5
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with threadpool_limits(1):  # more threads take ten times as long on a busy machine
        probabilities = cross_val_predict(trees, x, truth, cv=folds, method="predict_proba")
    return float(roc_auc_score(truth, probabilities[:, 1]))


GIVEN_AWAY = 0.6
"""The AUROC of detection from which the columns that give rows away are named."""
MOST_TRIED = 50
"""The most columns of which that is tried, those that are farthest off."""


def giveaways(synthetic: Records, real: Records, spec: TableSpec, seed: int = 0) -> Json:
    """Return {"columns", "each_by_itself"}: the columns by which rows are told from real ones.

    Trees are trained on half of both kinds of rows. A column counts where the AUROC on the other
    half falls by a quarter of what it is above 0.5 when the cells of the column are shuffled among
    these rows. It counts by itself where half is left when all other columns are shuffled.
    """
    n = min(len(synthetic[1]), len(real[1]))
    x = np.concatenate([part[0][:n] for part in (synthetic, real)])
    y = np.eye(spec.classes)[np.concatenate([part[1][:n] for part in (synthetic, real)])]
    x, truth, rng = np.column_stack([x, y]), np.repeat([1, 0], n), np.random.default_rng(seed)
    order = rng.permutation(2 * n)
    first, second = order[:n], order[n:]
    ends = np.cumsum([0, *(column.width for column in spec.columns), spec.classes])
    named = columns(spec)
    far = one_way_tvd(cells(spec, synthetic), cells(spec, real), named)
    tried = np.argsort(-far, kind="stable")[:MOST_TRIED].tolist()
    with threadpool_limits(1):
        trees = HistGradientBoostingClassifier(random_state=seed).fit(x[first], truth[first])

        def score(kept: np.ndarray) -> float:
            """Return the AUROC above 0.5 with the features that are not kept shuffled as one."""
            mixed = np.where(kept, x[second], x[rng.permutation(second)])
            return float(roc_auc_score(truth[second], trees.predict_proba(mixed)[:, 1])) - 0.5

        features = np.arange(x.shape[1])
        full = score(features >= 0)
        spans = {named[i].name: (features >= ends[i]) & (features < ends[i + 1]) for i in tried}
        drops = {name: full - score(~span) for name, span in spans.items()}
        worst = sorted((name for name in drops if drops[name] > full / 4),
                       key=lambda name: -drops[name])[:3]
        alone = all(score(spans[name]) > full / 2 for name in worst)
    return {"columns": worst, "each_by_itself": bool(worst and alone)}


FAR = 0.1
"""A column is far off where its distance exceeds its floor by more than this."""
POINTS, FACTOR = 0.05, 1.5
"""The share of a class is wrong where it is off by more than these points, or by this factor."""
ERRORS = 3
"""Standard errors that a difference of shares must exceed as well."""
MAX_SHOWN = 2
"""The most values of a column that a sentence names on either side."""


def far_off(draws: Sequence[np.ndarray], test: np.ndarray, columns: Sequence[Column],
            distances: Sequence[Finding]) -> list[str]:
    """Describe the columns whose one-way distances are far above their floors, the farthest first.

    The sentences hold shares of real rows, which epsilon does not cover. Cells are float64 [n, K],
    one draw a seed, and those of held-out rows.
    """
    gaps = [one.value.mean - (one.real.mean if one.real else 0) for one in distances]
    order = sorted(range(len(columns)), key=lambda i: -gaps[i])
    return [_sentence(np.concatenate([draw[:, i] for draw in draws]), test[:, i], columns[i],
                      distances[i]) for i in order if gaps[i] > FAR]


def _sentence(values: np.ndarray, truth: np.ndarray, column: Column, distance: Finding) -> str:
    """Return how far one column is off, and at which values most."""
    ours, theirs = (bin_shares(part, column) for part in (values, truth))
    names = bin_names(column)
    parts = []
    for sign, much in ((1, "Too many"), (-1, "Too few")):
        worst = [i for i in np.argsort(-sign * (ours - theirs), kind="stable")[:MAX_SHOWN].tolist()
                 if sign * (ours[i] - theirs[i]) > POINTS]
        if worst:
            parts.append(f" {much}: " + ", ".join(
                f"{names[i]} ({percent(ours[i])}, real {percent(theirs[i])})" for i in worst) + ".")
    floor = "" if distance.real is None else (
        f" (among real ones {percent(distance.real.mean)})")
    return (f"{column.name}: {percent(distance.value.mean)} of the rows would have to move{floor}."
            f"{''.join(parts)}")


def bin_names(column: Column) -> list[str]:
    """Return the name of each bin of `bin_shares`: a category, a range as written, or null."""
    if column.categories:
        return [*column.categories, "null"]
    if column.kind == "integer" and column.scale == "linear":  # whole numbers lie in one bin each
        edges = np.ceil(np.linspace(column.low, column.high, BINS + 1) - 1e-9)
        lows, highs = edges[:-1], np.maximum(np.append(edges[1:-1] - 1, column.high), edges[:-1])
    else:
        edges = transform.from_unit(column, np.linspace(0, 1, BINS + 1))
        lows, highs = edges[:-1], edges[1:]
    ranges = zip(transform.texts(column, lows), transform.texts(column, highs), strict=True)
    return [*(low if low == high else f"{low} to {high}" for low, high in ranges),
            *transform.texts(column, np.array(column.special)), "null"]


def label_shares(draws: Sequence[Records], test: Records, spec: TableSpec) -> list[Json]:
    """Return {"class", "synthetic", "real", "wrong"} for each class: its name and its shares.

    They are wrong where they differ by `POINTS` or a factor of `FACTOR`, and by more than chance
    explains (`ERRORS`).
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
