"""Evaluation of synthetic tables: what can be learned from them, and how like real ones they are.

Rows are float [n, F] in [0, 1], hard (a one-hot has a single 1); labels are integers 0..classes-1,
where of two classes class 1 is the positive one. A table without a label has a single class: its
use is that of the columns that are named as targets, if any.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpgen_jax.core import checks
from dpgen_jax.core.config import Evaluation
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import TableSpec, UserError
from dpgen_jax.evaluation import detection, deviations, marginals, subgroups, targets
from dpgen_jax.evaluation.marginals import Rows
from dpgen_jax.evaluation.scores import Log, silent, summary
from dpgen_jax.evaluation.settings import TASKS
from dpgen_jax.evaluation.table_models import CLASSIFIERS, Scores, fit, judge


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
      {task: {classifier: {metric: a `summary` over the seeds}}} of `table_models.Scores`, none
      without a label; `targets`, see `targets.utility`; `fidelity`, see `marginals.fidelity`,
      `detection.fidelity` and `deviations`; `label_shares` and `subgroups`, see there;
      `schema_violations`, the fraction of synthetic cells that break the schema; setting,
      n_samples, n_test, n_real (of the rows used), seeds; seconds, of each part; `notes`, on
      classes that a part lacks; and `not_covered_by_epsilon`: the keys that were computed from real
      rows, which the privacy statement does not cover and which nobody may use to choose between
      models.

    Raises:
      UserError: Rows are malformed or not finite, or there is no such classifier or column.
    """
    setting = _setting(options, spec)
    goals = targets.named(spec, options.targets or spec.targets)
    groupings = subgroups.named(spec, options.by)
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
        of_targets = targets.utility(goals, parts.draws, parts.test, real_too, log)
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
        scores["subgroups"] = subgroups.subgroups(
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
    """Return the setting that options ask for: a fast one of a wide table has fewer rows."""
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
                | detection.fidelity(alike, parts.test, parts.real, parts.spec.classes, log))
    cells = [marginals.cells(parts.spec, draw) for draw in alike]
    far = deviations.far_off(cells, marginals.cells(parts.spec, parts.test),
                             marginals.columns(parts.spec), likeness["one_way_tvd"]["columns"])
    if not parts.spec.labelled:
        return {"fidelity": likeness | {"far_off": far}}
    return {"fidelity": likeness | {"far_off": far},
            "label_shares": deviations.label_shares(alike, parts.test, parts.spec)}


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
                    models[key] = fit(name, train, classes, seed)
                scores.setdefault(task, []).append(judge(models[key], test, classes))
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
    checks.labels(part, y, len(x), spec.classes)
    if not np.isfinite(x).all():
        mend = ("the generator diverged: lower its learning rate and train again"
                if part == "synthetic" else "leave them out")
        raise UserError(f"{part} rows hold NaN or infinite values; {mend}")
    return x, y
