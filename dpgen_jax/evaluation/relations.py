"""Losses of relations between columns: associations, rules, and those within subgroups.

Each judge yields findings as `comparison` measures them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dpgen_jax.core.types import Column
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.comparison import (
    EPSILON,
    ERRORS,
    LEAST,
    MOST_OF_A_GROUP,
    Bins,
    Tables,
    loss,
    shares_of,
    written,
)
from dpgen_jax.evaluation.results import Finding, percent

MOST_CODES = 20
"""The categories of a column whose relations are measured, the most common first; the rest is one.
"""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A column as its relations see it [n]: ranks, or codes of categories."""

    values: np.ndarray
    size: int
    """The number of categories; 0 of ranks."""

    @classmethod
    def of(cls, column: Column, cells: np.ndarray, common: np.ndarray) -> Feature:
        """Return the feature of cells [n]; `common` are the categories that are kept apart."""
        if not column.categories or column.kind == "ordinal":
            null = np.isnan(cells)
            ranks = rankdata(np.where(null, np.inf, cells))
            return cls(np.where(null, (np.sum(~null) + 1) / 2, ranks), 0)
        places = np.full(len(column.categories) + 1, len(common))
        places[common] = np.arange(len(common))
        codes = np.where(np.isnan(cells), len(column.categories), cells).astype(np.int64)
        return cls(places[codes], len(common) + 1)

    def part(self, rows: np.ndarray) -> Feature:
        """Return the feature of some rows."""
        return Feature(self.values[rows], self.size)


def features(t: Tables, cells: np.ndarray) -> list[Feature]:
    """Return the features of all columns."""
    return [Feature.of(column, cells[:, i], np.argsort(-bins.shares()[:-1], kind="stable")[
        :MOST_CODES]) for i, (column, bins) in enumerate(zip(t.columns, t.bins, strict=True))]


def association(a: Feature, b: Feature) -> float:
    """Return how strongly two columns are related.

    That is Spearman's correlation of two numbers, in [-1, 1]; the correlation ratio of a number
    and categories; and Cramer's V of two columns of categories: both in [0, 1], and corrected for
    what chance gives.
    """
    n = len(a.values)
    if not a.size and not b.size:
        x, y = (one.values - one.values.mean() for one in (a, b))
        norm = math.sqrt(float((x @ x) * (y @ y)))
        return float(x @ y) / norm if norm else 0.0
    if a.size and b.size:
        table = np.bincount(a.values * b.size + b.values, minlength=a.size * b.size).reshape(
            a.size, b.size).astype(float)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        rows, columns = table.shape
        if min(rows, columns) < 2:
            return 0.0
        expected = np.outer(table.sum(1), table.sum(0)) / n
        phi = ((table - expected) ** 2 / expected).sum() / n
        excess = max(0.0, phi - (rows - 1) * (columns - 1) / (n - 1))
        room = min(rows - (rows - 1) ** 2 / (n - 1), columns - (columns - 1) ** 2 / (n - 1)) - 1
        return min(1.0, math.sqrt(excess / room)) if room > 0 else 0.0
    codes, ranks = (a, b) if a.size else (b, a)
    counts = np.bincount(codes.values, minlength=codes.size)
    groups = int(np.count_nonzero(counts))
    x = ranks.values - ranks.values.mean()
    total = float(x @ x)
    if groups < 2 or not total or n <= groups:
        return 0.0
    sums = np.bincount(codes.values, weights=x, minlength=codes.size)
    within = total - float((sums**2 / np.maximum(counts, 1)).sum())
    return math.sqrt(max(0.0, 1 - (within / (n - groups)) / (total / (n - 1))))


def _by_chance(a: int, b: int) -> float:
    """Return the deviation of an association of unrelated columns, times the root of the rows.

    The chi-square of k freedoms that it comes from has variance 2 k.
    """
    freedoms, least = max(1, a - 1) * max(1, b - 1), max(1, min(a, b) - 1)
    return math.sqrt(math.sqrt(2 * freedoms) / least) if a or b else 1.0


RELATED = 0.1
"""The association from which two columns count as related."""


MADE_UP = 0.6
"""The weight of an association of columns that real rows do not relate; a lost one has weight 1."""


def correlations(t: Tables) -> Iterator[Finding]:
    """Yield the pairs of columns whose association is wrong."""
    if len(t.columns) < 2:
        return
    pairs = marginals.pairs_of(len(t.columns))
    made, real = features(t, t.made), features(t, t.real)
    names = [column.name for column in t.columns]
    for x, y in _spans(t):
        pairs += [(i, len(names)) for i in range(len(t.columns)) if i not in (x, y)]
        names.append(f"{t.columns[y].name} - {t.columns[x].name}")
        for columns, cells in ((made, t.made), (real, t.real)):
            days = _days(t, cells)
            columns.append(Feature.of(t.columns[y], days[:, y] - days[:, x], np.zeros(0, int)))

    def all_of(columns: list[Feature]) -> np.ndarray:
        return np.array([association(columns[i], columns[j]) for i, j in pairs])

    ours, theirs = all_of(made), all_of(real)
    least = [_by_chance(real[i].size, real[j].size) for i, j in pairs]
    noise = np.maximum(t.noise(lambda rows: all_of([one.part(rows) for one in real])),
                       np.array(least) / math.sqrt(min(len(t.made), len(t.real))))
    related = np.abs(theirs) > np.maximum(RELATED, 4 * noise)
    lost = related & (ours * np.sign(theirs) < np.abs(theirs) / 2)
    rest = (f"; {lost.sum()} of {related.sum()} related pairs of columns keep less than half of "
            "their relation" if lost.sum() > 1 else "")
    weights = np.where(related, 1.0, MADE_UP)
    for (i, j), p, q, chance, weight in zip(pairs, ours, theirs, noise, weights, strict=True):
        numbers = not (real[i].size or real[j].size)
        yield loss("correlation", (names[i], names[j]), (p, q, chance),
                   weight * (abs(p - q) - ERRORS * chance) / 0.05,
                   (f"the {'correlation' if numbers else 'association'} of {names[i]} and "
                    f"{names[j]} is {p:.2f} in synthetic rows and {q:.2f} in real ones "
                    f"(between halves of these \u00b1 {chance:.2f}){rest}", EPSILON))


MOST_NUMBERS = 20
"""The most columns of numbers among which rules are looked for, and of categories for subgroups."""
HOLDS = 0.98
"""The share of real rows in which a rule holds."""
SCREEN = 300
"""Rows on which candidates are tried first."""


def _numbers(t: Tables) -> list[int]:
    """Return the columns of numbers that vary."""
    varied = []
    for i, (column, bins) in enumerate(zip(t.columns, t.bins, strict=True)):
        top = float(bins.shares().max()) if bins.size > 2 else 1.0
        if not column.categories and top < 0.9:
            varied.append(i)
    return varied[:MOST_NUMBERS]


def _days(t: Tables, cells: np.ndarray) -> np.ndarray:
    """Return cells with times in days, as dates are."""
    seconds = [column.written in ("datetime", "duration", "time") for column in t.columns]
    return np.asarray(np.where(seconds, cells / transform.DAY, cells))


MOST_SPANS = 3
"""The most pairs of dates whose span is related to the other columns."""


def _spans(t: Tables) -> list[tuple[int, int]]:
    """Return pairs of dates whose order real rows keep, as of admission and discharge."""
    dated = {i for i, column in enumerate(t.columns) if column.written in ("date", "datetime")}
    ordered = [columns for _, columns, _ in _orders(t, _days(t, t.real)) if {*columns} <= dated]
    return [(columns[0], columns[1]) for columns in ordered[:MOST_SPANS]]


def rules(t: Tables) -> Iterator[Finding]:
    """Yield the sums and orders of columns that real rows keep and synthetic ones break."""
    made, real = _days(t, t.made), _days(t, t.real)
    for text, columns, holds in (*_sums(t, real), *_orders(t, real)):
        ours, theirs = float(np.mean(holds(made))), float(np.mean(holds(real)))
        noise = math.sqrt(max(theirs * (1 - theirs), 1 / len(real)) / len(made))
        yield loss("rule", [t.columns[i].name for i in columns], (ours, theirs, noise),
                   (theirs - ours - ERRORS * noise) / 0.05,
                   (f"{text} holds in {percent(ours)} of the synthetic rows and in "
                    f"{percent(theirs)} of the real ones",
                    f'declare "{text}" under constraints in the schema'))


Rule = tuple[str, tuple[int, ...], Callable[[np.ndarray], np.ndarray]]
"""A rule as text, the places of its columns, and whether rows float64 [n, K] keep it."""


def _sums(t: Tables, real: np.ndarray) -> Iterator[Rule]:
    """Yield the rules x = y + z, and x = y, up to a constant, that real rows keep."""
    numbers = _numbers(t)
    few = real[np.random.default_rng(0).permutation(len(real))[:SCREEN]]
    terms = [(i,) for i in numbers] + list(itertools.combinations(numbers, 2))
    for x in numbers:
        seen: set[int] = set()
        for of in terms:
            if x in of or seen & {*of} or not _kept(few[:, x] - few[:, list(of)].sum(1), t, x):
                continue
            if len(of) == 1 and of[0] < x:
                continue  # the same the other way round
            rest = real[:, x] - real[:, list(of)].sum(1)
            if not _kept(rest, t, x):
                continue
            seen |= {*of} if len(of) == 1 else set()
            constant = float(np.nanmedian(rest))
            shift = f" + {constant:.6g}" if abs(constant) > _tolerance(t, x) else ""
            text = f"{t.columns[x].name} = {' + '.join(t.columns[i].name for i in of)}{shift}"
            yield text, (x, *of), functools.partial(_sum_holds, (x, *of), constant,
                                                    _tolerance(t, x))


def _kept(rest: np.ndarray, t: Tables, x: int) -> bool:
    known = rest[~np.isnan(rest)]
    return len(known) >= LEAST and bool(np.mean(
        np.abs(known - np.median(known)) <= _tolerance(t, x)) >= HOLDS)


def _tolerance(t: Tables, x: int) -> float:
    """Return how far a sum may be off: half a step, or what rounding leaves."""
    column = t.columns[x]
    if column.kind == "integer":
        return 0.5
    days = transform.DAY if column.written in ("datetime", "duration", "time") else 1.0
    return max(5e-6 * (column.high - column.low), 0.51 * (transform.step(column) or 0.0)) / days


def _sum_holds(columns: tuple[int, ...], constant: float, tolerance: float, rows: np.ndarray
               ) -> np.ndarray:
    rest = rows[:, columns[0]] - rows[:, list(columns[1:])].sum(1) - constant
    return np.asarray(np.isnan(rest) | (np.abs(rest) <= tolerance))


def _orders(t: Tables, real: np.ndarray) -> Iterator[Rule]:
    """Yield the rules x <= y of columns of one kind that real rows keep, and chance would not."""
    shuffled = np.random.default_rng(0).permutation(len(real))
    for x, y in itertools.permutations(_numbers(t), 2):
        if (t.columns[x].written == "plain") != (t.columns[y].written == "plain"):
            continue
        holds = functools.partial(_order_holds, x, y)
        apart = np.stack([real[:, x], real[shuffled, y]], 1)
        if np.mean(holds(real)) >= 0.998 and np.mean(_order_holds(0, 1, apart)) < 0.9:
            yield f"{t.columns[x].name} <= {t.columns[y].name}", (x, y), holds


def _order_holds(x: int, y: int, rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.isnan(rows[:, x]) | np.isnan(rows[:, y]) | (rows[:, x] <= rows[:, y]))


def exclusions(t: Tables) -> Iterator[Finding]:
    """Yield the pairs of columns with synthetic values that never go together in real rows."""
    few = [i for i, (column, bins) in enumerate(zip(t.columns, t.bins, strict=True))
           if column.categories and 2 <= np.count_nonzero(bins.shares()) <= 3 * MOST_CODES]
    for i, j in itertools.combinations(few[:MOST_NUMBERS], 2):
        a, b = t.bins[i], t.bins[j]

        def joint(x: np.ndarray, y: np.ndarray, width: int = b.size, size: int = a.size * b.size
                  ) -> np.ndarray:
            return np.bincount(x * width + y, minlength=size)

        real, made = joint(a.real, b.real), joint(a.made, b.made)
        expected = len(t.real) * np.outer(a.shares(), b.shares()).ravel()
        never = (real == 0) & (expected >= 12)
        ours = float(made[never].sum() / len(t.made))
        if not ours:
            continue
        worst = int(np.argmax(np.where(never, made, -1)))
        names = t.name(i, worst // b.size), t.name(j, worst % b.size)
        noise = math.sqrt(ours / len(t.made))
        yield loss("rule", (t.columns[i].name, t.columns[j].name), (1 - ours, 1.0, noise),
                   (ours - noise) / 0.02,
                   (f"{percent(float(made[worst] / len(t.made)))} of the synthetic rows have "
                    f"{names[0]} with {names[1]}, which no real row has",
                    f'declare it under constraints in the schema, as "{names[0]} -> '
                    f'{t.columns[j].name} = ..."'))


MOST_WITHIN = 60
"""The most columns that are looked at within a subgroup."""
MOST_GROUPS = 3
"""The smallest categories of a column that are looked at as subgroups."""
FEWEST = 25
"""The fewest rows of a subgroup, of either kind."""
AMONG_MANY = 5.0
"""The `ERRORS` of subgroups, of which there are many."""


def subgroups(t: Tables) -> Iterator[Finding]:
    """Yield the small categories within which another column is wrong, and more than elsewhere."""
    for i in _grouping(t):
        for place in _smallest(t.bins[i], FEWEST)[:MOST_GROUPS]:
            for j in range(len(t.bins))[-MOST_WITHIN:]:
                if j != i:
                    yield from _within(t, i, place, j, t.bins[j])


def _grouping(t: Tables) -> list[int]:
    """Return the columns whose categories are subgroups: of many the last, the label among them."""
    return [i for i, bins in enumerate(t.bins) if bins.column.categories][-MOST_NUMBERS:]


def _smallest(group: Bins, fewest: int) -> list[int]:
    """Return the bins with so many rows of either kind or more, those with fewest first."""
    counts = np.minimum(np.bincount(group.real, minlength=group.size),
                        np.bincount(group.made, minlength=group.size))
    return [int(one) for one in np.argsort(counts, kind="stable") if counts[one] >= fewest]


def _within(t: Tables, i: int, place: int, j: int, other: Bins) -> Iterator[Finding]:
    """Yield whether one column is wrong within one category of another."""
    group = t.bins[i]
    inside = [codes == place for codes in (group.made, group.real)]
    by_group = [_rough(codes[rows], other.size) for codes, rows in zip(
        (other.made, other.real), inside, strict=True)]
    overall = [_rough(codes, other.size) for codes in (other.made, other.real)]
    ours, theirs = by_group
    counts = [int(rows.sum()) for rows in inside]
    pooled = np.average(by_group, axis=0, weights=counts)
    error = np.sqrt(pooled * (1 - pooled) * sum(1 / count for count in counts))
    gaps = np.abs(ours - theirs)
    by_chance = 0.4 * float(error.sum())
    excess = 0.5 * (gaps.sum() - np.abs(overall[0] - overall[1]).sum()) - by_chance
    spread = by_chance / math.sqrt(max(2, int(np.count_nonzero(error))))
    size = (excess - AMONG_MANY * spread) / (0.03 if t.labelled and j == len(t.bins) - 1 else 0.06)
    if size < 1:
        return
    size = min(size, MOST_OF_A_GROUP)
    worst = int(np.argmax(gaps))
    text = _rough_name(t, j, worst)
    name = t.name(i, place)
    yield loss("subgroup", (group.column.name, other.column.name),
               (ours[worst], theirs[worst], error[worst]), size,
               (f"among the rows with {name}, {percent(float(ours[worst]))} of the synthetic ones "
                f"and {percent(float(theirs[worst]))} of the real ones have {text}",
                f"check what you conclude on the rows with {name}"))


MOST_TRAINED = 4_000
"""The most rows of a half on which a model of the label is trained."""


def learnt(t: Tables) -> Iterator[Finding]:
    """Yield the small categories within which the label follows less from the other columns.

    A logistic regression of one half of the real rows ranks the other half, and the reverse; both
    rank the synthetic rows. What is lost in all rows together does not count here.
    """
    classes = t.spec.classes
    if not t.labelled or classes != 2:
        return
    y_made, y_real = (cells[:, -1].astype(int) for cells in (t.made, t.real))
    x_made, x_real = (transform.encode(t.spec, cells[:, :-1]) for cells in (t.made, t.real))
    made, real = np.zeros(len(y_made)), np.zeros(len(y_real))
    for a, b in (t.halves[0], t.halves[0][::-1]):
        a = a[:MOST_TRAINED]
        if len(np.unique(y_real[a])) < 2:
            return
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x_real[a], y_real[a])
            real[b] = model.predict_proba(x_real[b])[:, 1]
            made += model.predict_proba(x_made)[:, 1] / 2
    used = np.sort(np.concatenate(t.halves[0]))
    overall = [_ranked(y_made, made), _ranked(y_real[used], real[used])]
    if overall[0] is None or overall[1] is None:
        return
    elsewhere = max(0.0, overall[1][0] - overall[0][0])
    for i in _grouping(t)[:-1]:
        group = t.bins[i]
        for place in _smallest(group, 2 * RAREST)[:MOST_GROUPS]:
            inside = group.made == place
            of_real = np.intersect1d(used, np.flatnonzero(group.real == place))
            ours, theirs = _ranked(y_made[inside], made[inside]), _ranked(
                y_real[of_real], real[of_real])
            if ours is None or theirs is None:
                continue
            noise, name = math.hypot(ours[1], theirs[1]), t.name(i, place)
            label = t.columns[-1].name
            yield loss("subgroup", (group.column.name, label), (ours[0], theirs[0], noise),
                       min((theirs[0] - ours[0] - elsewhere - ERRORS * noise) / 0.03,
                           MOST_OF_A_GROUP), (
                f"among the rows with {name}, {label} follows less from the other columns: a model "
                f"of real rows ranks the synthetic ones with an AUROC of {ours[0]:.2f} and real "
                f"ones with {theirs[0]:.2f}",
                f"check what you conclude on the rows with {name}"))


def _ranked(y: np.ndarray, scores: np.ndarray) -> tuple[float, float] | None:
    """Return an AUROC and its deviation; None with fewer than `RAREST` rows of a class.

    Source:
      Hanley and McNeil, Radiology 1982.
    """
    rest, ones = np.bincount(y, minlength=2).tolist()
    if min(rest, ones) < RAREST:
        return None
    area = float(roc_auc_score(y, scores))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (ones - 1) * (q1 - area**2) + (rest - 1) * (q2 - area**2)
                ) / (ones * rest)
    return area, math.sqrt(max(variance, 0.0))


RAREST = 15
"""The fewest rows of the rarer class by which an AUROC is taken."""


def _rough(codes: np.ndarray, size: int) -> np.ndarray:
    """Return the shares of at most five bins of a column, and null: neighbours are added up."""
    width = -(-(size - 1) // 5)
    return shares_of(np.where(codes == size - 1, 5, codes // width), 6)


def _rough_name(t: Tables, j: int, place: int) -> str:
    """Return the condition of a rough bin, as text."""
    bins, name = t.bins[j], t.columns[j].name
    width = -(-(bins.size - 1) // 5)
    inside = [code for code in range(bins.size - 1) if code // width == place]
    if place == 5 or not inside:
        return f"{name} empty"
    if bins.column.categories:
        names = [bins.column.categories[code] for code in inside]
        return f"{name} = {' or '.join(names[:3])}{' or others' if len(names) > 3 else ''}"
    cells = np.concatenate([of[np.isin(codes, inside), j] for of, codes in (
        (t.real, bins.real), (t.made, bins.made))])
    low, high = written(bins.column, float(cells.min()), float(cells.max()))
    return f"{name} {low} to {high}"


JUDGES: tuple[Callable[[Tables], Iterator[Finding]], ...] = (
    correlations, rules, exclusions, subgroups, learnt)
