"""Losses of single columns and of rows: repeats, nulls, shares, tails, categories and values.

Each judge yields findings as `comparison` measures them. `relations` has the judges of more than
one column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column
from dpgen_jax.data.table import transform
from dpgen_jax.evaluation import relations
from dpgen_jax.evaluation.comparison import (
    EPSILON,
    ERRORS,
    LEAST,
    Tables,
    loss,
    shares_of,
    tables,
    written,
)
from dpgen_jax.evaluation.results import Finding, Part, Real, Setting, Synthetic, percent

NAMED = 5
"""The findings of a kind that are written down, the worst first; the others are counted."""


def losses(real: Real, synthetic: Synthetic, setting: Setting) -> Part:
    """Return the fact `losses`, the worst first, as a `results.Measure`.

    Each is {"kind", "columns", "synthetic", "real", "noise", "size", "of_kind", "text", "advice"};
    `of_kind` is how many of the kind there are, of which `NAMED` are written down.
    """
    compared = tables(real, synthetic, setting)
    if len(compared.real) < LEAST or len(compared.made) < LEAST:
        return Part(facts={"losses": []}, real_facts=("losses",))
    found = [one for judge in JUDGES for one in judge(compared)
             if one.size >= 1]
    return Part(facts={"losses": listed(found)}, real_facts=("losses",))


def listed(found: list[Finding]) -> list[Json]:
    """Return findings as metrics.json has them, the largest first."""
    found = sorted(found, key=lambda one: -one.size)
    by_kind: dict[str, list[Finding]] = {}
    for one in found:
        by_kind.setdefault(str(one.key[1]), []).append(one)
    return [{"kind": kind, "columns": [*map(str, one.key[2:])], "synthetic": one.value.mean,
             "real": one.real.mean if one.real else None, "noise": one.chance, "size": one.size,
             "of_kind": len(by_kind[kind]), "text": one.text, "advice": one.advice}
            for one in found if one in by_kind[kind := str(one.key[1])][:NAMED]]


def repeats(t: Tables) -> Iterator[Finding]:
    """Yield whether rows stand there more than once, more often than real ones do."""
    n = min(len(t.made), len(t.real) // 2)

    def repeated(cells: np.ndarray) -> float:
        return 1 - len(np.unique(np.nan_to_num(cells, nan=np.inf), axis=0)) / len(cells)

    ours = repeated(t.made[:n])
    theirs = [repeated(t.real[rows[:n]]) for pair in t.halves for rows in pair]
    noise = max(float(np.std(theirs)), 1 / n)
    mean = float(np.mean(theirs))
    yield loss("repeated rows", (), (ours, mean, noise), (ours - mean - ERRORS * noise) / 0.05,
               (f"{percent(ours)} of the synthetic rows repeat another synthetic row exactly; of "
                f"as many real rows {percent(mean)} do",
                "train again with another seed: the generator makes the same rows again and again"))


def nulls(t: Tables) -> Iterator[Finding]:
    """Yield the columns whose share of empty cells is wrong."""
    ours, theirs = (np.isnan(cells).mean(0) for cells in (t.made, t.real))
    noise = t.noise(lambda rows: np.isnan(t.real[rows]).mean(0))
    for i, column in enumerate(t.columns):
        yield loss("empty cells", (column.name,), (ours[i], theirs[i], noise[i]),
                   (abs(ours[i] - theirs[i]) - ERRORS * noise[i]) / 0.02,
                   (f"{column.name} is empty in {percent(ours[i])} of the synthetic rows and in "
                    f"{percent(theirs[i])} of the real ones",
                    "train with a larger epsilon" if theirs[i] else
                    f"declare nullable: false for {column.name} in the schema"))


def shares(t: Tables) -> Iterator[Finding]:
    """Yield the columns whose values have the wrong shares: of the label, and of the others."""
    for i, bins in enumerate(t.bins):
        is_label = t.labelled and i == len(t.bins) - 1
        ours, theirs = _known(shares_of(bins.made, bins.size)), _known(bins.shares())
        distance = 0.5 * np.abs(ours - theirs).sum()
        filled = np.count_nonzero(theirs)
        by_chance = t.scale * float(np.mean([0.5 * np.abs(
            _known(bins.shares(a)) - _known(bins.shares(b))).sum() for a, b in t.halves]))
        by_chance = max(by_chance, 0.4 * float(np.sqrt(theirs * (1 - theirs) * (
            1 / len(t.made) + 1 / len(t.real))).sum()))
        limit = by_chance * (1 + ERRORS / math.sqrt(max(2, int(filled))))
        order = np.argsort(-np.abs(ours - theirs) / (np.maximum(theirs, 1e-3)
                                                     if distance < limit else 1), kind="stable")
        place = next((int(one) for one in order if theirs[one] > 0 or bins.column.categories), 0)
        name = t.name(i, place)
        size = (distance - limit) / (0.02 if is_label else 0.04)
        if is_label:  # a class may be rare
            size = max(size, _by_factor(ours[theirs > 0], theirs[theirs > 0], t))
        yield loss("classes" if is_label else "shares", (bins.column.name,),
                   (distance, 0.0, by_chance), size,
                   (f"{name} makes up {percent(ours[place])} of the synthetic rows and "
                    f"{percent(theirs[place])} of the real ones; {percent(distance)} of the rows "
                    f"would need another value of {bins.column.name}",
                    "draw records of the labels that you need, in the shares that you need"
                    if is_label else EPSILON))


def _by_factor(ours: np.ndarray, theirs: np.ndarray, t: Tables) -> float:
    """Return the size of the largest relative difference of shares: half of a share counts 1."""
    error = np.sqrt(theirs * (1 / len(t.made) + 1 / len(t.real)))
    return float(((np.abs(ours - theirs) - ERRORS * error) / (0.5 * theirs)).max())


def _known(shares_of_bins: np.ndarray) -> np.ndarray:
    """Return the shares of bins among the cells that are not empty."""
    present = shares_of_bins[:-1]
    return np.asarray(present / (present.sum() or 1.0))


def tails(t: Tables) -> Iterator[Finding]:
    """Yield the columns of numbers whose high or low values are lost, or too far out."""
    for i, column in enumerate(t.columns):
        ours, theirs = (cells[~np.isnan(cells[:, i]), i] for cells in (t.made, t.real))
        if column.categories or len(np.unique(theirs)) < 20 or len(ours) < LEAST:
            continue
        pairs = [[t.real[rows, i][~np.isnan(t.real[rows, i])] for rows in pair]
                 for pair in t.halves]
        found = [one for sign in (1.0, -1.0) if (one := _tail(
            column, sign * ours, sign * theirs, [[sign * half for half in pair] for pair in pairs],
            t.scale)) is not None]
        yield from sorted(found, key=lambda one: -one.size)[:1]


def _tail(column: Column, ours: np.ndarray, theirs: np.ndarray, halves: list[list[np.ndarray]],
          scale: float) -> Finding | None:
    """Return how much of the upper tail is lost; None where there is none."""
    middle, far, end = np.quantile(theirs, (0.5, 0.99, 0.975))
    if far <= middle:
        return None
    high = np.quantile(ours, 0.99)
    reach = math.sqrt(0.01 * 0.99 * (1 / len(ours) + 1 / len(theirs)))
    low, top = np.quantile(theirs, (0.99 - reach, min(1.0, 0.99 + reach)))
    gaps = [float(np.quantile(a, 0.99) - np.quantile(b, 0.99)) for a, b in halves]
    noise = max(scale * math.sqrt(np.mean(np.square(gaps))), float(top - low) / 2)
    by_quantile = (abs(high - far) - ERRORS * noise) / (0.1 * (far - middle))
    beyond = [float(np.mean(values > end)) for values in (ours, theirs)]
    error = math.sqrt(max(beyond[1], 0.01) * (1 / len(ours) + 1 / len(theirs)))
    by_share = (abs(beyond[0] - beyond[1]) - ERRORS * error) / (0.2 * max(beyond[1], 0.01))
    at_end = [float(np.mean(values == ours.max())) for values in (ours, theirs)]
    error = math.sqrt(max(at_end[1], 1 / len(theirs)) * (1 / len(ours) + 1 / len(theirs)))
    by_spike = ((at_end[0] - at_end[1] - ERRORS * error) / 0.005
                if ours.max() < theirs.max() else 0.0)
    size = max(min(by_quantile, 10.0), min(by_share, 10.0), by_spike)
    sign = 1.0 if theirs.mean() == abs(theirs).mean() or middle > 0 else -1.0
    return _tail_said(column, ours, theirs, (size, by_spike, noise), sign)


def _tail_said(column: Column, ours: np.ndarray, theirs: np.ndarray,
               known: tuple[float, float, float], sign: float) -> Finding:
    """Return the finding of a tail."""
    size, by_spike, noise = known
    top = [float(values.max()) for values in (ours, theirs)]
    far = [float(np.quantile(values, 0.99)) for values in (ours, theirs)]
    names = written(column, *(sign * value for value in (*top, *far)))
    side = ("99th percentile", "maximum") if sign > 0 else ("first percentile", "minimum")
    text = (f"the {side[0]} of {column.name} is {names[2]} in synthetic rows and {names[3]} in "
            f"real ones, the {side[1]} {names[0]} and {names[1]}")
    advice = EPSILON
    if by_spike >= 1:
        text = (f"{column.name} is cut at {names[0]}: "
                f"{percent(float(np.mean(ours == ours.max())))} of the synthetic rows have exactly "
                f"this value, and {percent(float(np.mean(theirs == ours.max())))} of the real "
                f"ones, whose {side[1]} is {names[1]} and {side[0]} {names[3]}")
        advice = (f"declare wider bounds of {column.name} if those of the schema end at "
                  f"{names[0]}; otherwise {EPSILON}")
    return loss("tails", (column.name,), (far[0] * sign, far[1] * sign, noise), size,
                (text, advice))


def categories(t: Tables) -> Iterator[Finding]:
    """Yield the columns that lack categories which real rows have."""
    n = min(len(t.made), len(t.real) // 2)
    for bins in t.bins:
        if not bins.column.categories:
            continue
        lost, by_chance = [], []
        for pair in t.halves:
            for a, b in (pair, pair[::-1]):
                present = shares_of(bins.real[a[:n]], bins.size)[:-1]
                lost.append(_lacking(present, bins.made[:n]))
                by_chance.append(_lacking(present, bins.real[b[:n]]))
        (number, mass), (few, little) = (np.mean(of, 0) for of in (lost, by_chance))
        kinds = max(1, int(np.count_nonzero(bins.shares()[:-1])))
        noise = np.maximum(np.std(by_chance, 0), (1 / (3 * kinds), 2 / n))
        size = max((mass - little - ERRORS * noise[1]) / 0.01,
                   (number - few - ERRORS * noise[0]) / 0.05)
        present = bins.shares()[:-1]
        absent = np.flatnonzero((present > 0) & (np.bincount(bins.made, minlength=bins.size)[:-1]
                                                 == 0))
        rarest = sorted(absent.tolist(), key=lambda one: -present[one])
        if not rarest:
            continue
        named = ", ".join(bins.column.categories[one] for one in rarest[:3])
        yield loss("lost categories", (bins.column.name,), (
            1 - len(absent) / kinds, 1.0, noise[0]), size,
            (f"{len(absent)} of {kinds} categories of {bins.column.name} "
             f"{'is' if len(absent) == 1 else 'are'} lost ({named}"
             f"{', and more' if len(rarest) > 3 else ''}): "
             f"{percent(float(present[absent].sum()))} of the real rows have "
             f"{'it' if len(absent) == 1 else 'them'}",
             "train with a larger epsilon, or merge rare categories before"))


def _lacking(present: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    """Return the share of the categories that codes lack, and the share of rows that have them."""
    lacking = (present > 0) & (np.bincount(codes, minlength=len(present) + 1)[:-1] == 0)
    return float(lacking.sum() / max(1, np.count_nonzero(present))), float(present[lacking].sum())


def values(t: Tables) -> Iterator[Finding]:
    """Yield the columns of numbers that take too few or too many values, or lack a common one."""
    n = min(len(t.made), len(t.real) // 2)
    for i, column in enumerate(t.columns):
        if column.categories:
            continue
        ours, rows = t.made[:n, i], [rows[:n] for pair in t.halves for rows in pair]
        count = max(1, len(np.unique(ours[~np.isnan(ours)])))
        counts = [max(1, len(np.unique(t.real[one, i][~np.isnan(t.real[one, i])])))
                  for one in rows]
        theirs, noise = float(np.mean(counts)), float(np.std(np.log2(counts)))
        size = (abs(math.log2(count / theirs)) - ERRORS * noise - 0.2) / 0.3
        few = count < theirs
        yield loss("rounding", (column.name,), (count, theirs, noise), size * (max(
            count, theirs) >= 10), (
            f"{column.name} takes {count:,} different values in {n:,} synthetic rows and "
            f"{theirs:,.0f} in as many real ones",
            f"declare the decimals of {column.name} in the schema"
            if not few and column.kind == "continuous" and column.written == "plain" else EPSILON))
        yield from _common(t, i)


def _common(t: Tables, i: int) -> Iterator[Finding]:
    """Yield whether the most common number of a column is too rare."""
    column, cells = t.columns[i], t.real[:, i]
    known, counts = np.unique(cells[~np.isnan(cells)], return_counts=True)
    if len(known) < 20:
        return
    top = known[counts.argmax()]
    ours, theirs = (float(np.mean(part == top)) for part in (t.made[:, i], cells))
    noise = float(t.noise(lambda rows: np.mean(cells[rows] == top)))
    yield loss("rounding", (column.name,), (ours, theirs, noise),
               (abs(ours - theirs) - ERRORS * noise) / 0.04,
               (f"{column.name} is {written(column, float(top))[0]} in {percent(ours)} of the "
                f"synthetic rows and in {percent(theirs)} of the real ones",
                f"declare {written(column, float(top))[0]} as a special value of {column.name} in "
                "the schema"))


OTHER = "other"
"""The category that a purchase gives to texts that it does not know."""


def clipped(t: Tables) -> Iterator[Finding]:
    """Yield the columns whose schema loses real values.

    Bounds cut some off, as their pile-up shows; or they are no categories that were bought.
    Without a release there is no schema but that of the records.
    """
    if t.bought is None:
        return
    for i, column in enumerate(t.columns):
        cells = t.real[:, i]
        if OTHER in column.categories and column.name in t.bought:
            share = float(np.mean(cells == column.categories.index(OTHER)))
            yield loss("clipped", (column.name,), (share, 0.0, 0.0), share / 0.05, (
                f"{percent(share)} of the real values of {column.name} count as `{OTHER}`, since "
                "the schema was bought and does not have them",
                f"declare the categories of {column.name} in the schema"))
        if column.kind != "continuous" or len(np.unique(cells[~np.isnan(cells)])) < 20:
            continue
        units = transform.unit(column, cells)
        for end, near in ((1.0, units > 0.95), (0.0, units < 0.05)):
            share = float(np.mean(units == end))
            around = float(np.mean(near)) - share
            if end == 0.0 and column.low == 0.0:
                continue  # zeros, as of money
            name = written(column, column.high if end else column.low)[0]
            error = math.sqrt(share / len(cells))
            yield loss("clipped", (column.name,), (share, 0.0, error),
                       (share - ERRORS * error) / 0.01 * (share > around), (
                f"{percent(share)} of the real values of {column.name} lie exactly on the bound "
                f"{name} of the schema, which cuts off what lies beyond",
                f"declare wider bounds of {column.name} in the schema"))


JUDGES: tuple[Callable[[Tables], Iterator[Finding]], ...] = (
    repeats, nulls, shares, tails, categories, values, clipped, *relations.JUDGES)
