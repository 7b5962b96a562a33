"""The measures of a table for subgroups of its rows, since a rare group is what a budget loses.

A group is a value of a column, or a combination of values of several; of a number it is a quarter
of the held-out rows. Where the held-out rows of a group are too few nothing is said of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data import forms
from dpgen_jax.data.base import listed
from dpgen_jax.evaluation import marginals
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import Log, silent, summary
from dpgen_jax.evaluation.targets import MIN_ROWS as MIN_CLASS
from dpgen_jax.evaluation.targets import Target

MIN_ROWS = 30
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


def named(spec: TableSpec, texts: Sequence[str]) -> list[Grouping]:
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
                raise UserError(f"--by {text}: no such column {name!r}{nearest(name, columns)}; "
                                f"known: {listed(columns)}")
        if len(set(names)) < len(names):
            raise UserError(f"--by {text}: a column is named twice; name each once")
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
      numbers of rows;
      "metric", "gen2real" and "real2real", the score on the group's held-out rows of `MODEL`
      trained on all rows, and "n_rarest", how many of them are of the rarest class; and "note"
      where something is left out, and why.
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
        texts = forms.texts(column, edges)
        for i, (low, high) in enumerate(zip(edges, edges[1:], strict=False), 1):
            last = high if i == len(edges) - 1 else np.nextafter(high, -np.inf)
            yield f"{column.name} {texts[i - 1]} to {texts[i]}", (low, last)
    for value, text in zip(column.special, forms.texts(column, np.array(column.special)),
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
        if (counts >= MIN_CLASS).sum() < (2 if self.target.column.categories else 1):
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
    if len(held_out[1]) < MIN_ROWS:
        return result | {"note": f"too few held-out rows to say anything: {MIN_ROWS} are needed"}
    result |= {"synthetic_share": summary(shares), "real_share": len(held_out[1]) / len(test[1])}
    result |= {} if predicted is None else predicted.scores(held_out)
    training = None if real is None else _only(real, group.rows(grouping, real))
    if training is not None and len(training[1]) < MIN_ROWS:
        training = None
    if result["n_synthetic"] < MIN_ROWS:
        note = f"too few synthetic rows to compare columns: {MIN_ROWS} are needed"
        return result | {"note": note}
    n = min(result["n_synthetic"], len(held_out[1] if training is None else training[1]))
    cut = [(x[:n], y[:n]) for x, y in parts]
    floor = None if training is None else (training[0][:n], training[1][:n])
    return (result | marginals.column_distances(cut, held_out, floor, grouping.spec)
            | {"query_error": marginals.query_errors(cut, held_out, floor, grouping.spec)})


def _only(rows: Rows, kept: np.ndarray) -> Rows:
    """Return the rows that are kept, bool [n]."""
    return rows[0][kept], rows[1][kept]
