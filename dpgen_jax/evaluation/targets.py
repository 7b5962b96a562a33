"""How well columns of a table are predicted: any column from all others, the label among them.

A column of categories is a problem of classes, scored by `table_models.Scores`; a number is one of
regression, scored by R2. Rows in which the target is null, or a special value, are left out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgen_jax.core.errors import nearest
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data import transform
from dpgen_jax.data.base import listed
from dpgen_jax.evaluation import table_models
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import Log, silent, summary

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
        return tuple(table_models.COMMON if self.column.categories else table_models.REGRESSIONS)

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
            return table_models.fit(model, train, len(self.column.categories), seed)
        return table_models.fit_regression(model, train, seed)

    def judge(self, trained: Any, test: Rows) -> dict[str, float]:
        """Return the scores of a trained model, by name.

        Args:
          trained: A model that `fit` returned.
          test: The result of `problem` on the rows to test on, two at least.
        """
        if self.column.categories:
            return dataclasses.asdict(table_models.judge(
                trained, test, len(self.column.categories)))
        return {"r2": table_models.r2(trained, test)}


def named(spec: TableSpec, names: Sequence[str]) -> list[Target]:
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
            raise UserError(f"--targets {name}: no such column{nearest(name, columns)}; known: "
                            f"{listed(columns)}")
    targets = [Target(spec, columns[name]) for name in dict.fromkeys(names)]
    return [target for target in targets if not target.is_label]


def utility(targets: Sequence[Target], draws: Sequence[Rows], test: Rows, real: Rows | None,
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
