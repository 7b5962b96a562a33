"""Metrics that `benchmarks.sweep` compares: names in metrics.json of an evaluation."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from benchmarks.sweep.cells import Sweep
from benchmarks.systems import CLASSIFIERS as RELEASED_CLASSIFIERS
from dpgen_jax import presets
from dpgen_jax.core.config import METRICS
from dpgen_jax.core.errors import UserError, nearest
from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import tables, utility
from dpgen_jax.evaluation.scores import summary

FID = "fidelity.fid"
SCORES = {"gen2real": ("accuracy", "validation_accuracy", "calibrated_accuracy"),
          "real2gen": ("accuracy",), "real2real": ("accuracy",)}
IMAGES = (*(f"{task}.{name}.{score}" for task, scores in SCORES.items()
            for name in utility.ALL_CLASSIFIERS for score in scores),
          *(f"average.{task}.{score}" for task, scores in SCORES.items() for score in scores
            if score != "validation_accuracy"),
          *(f"fidelity.{score}" for score in ("inception_score", "fid_features", "precision",
                                              "recall", "density", "coverage", "fid")))
TABLES = tuple(f"{task}.{name}.{score}" for task in utility.TASKS
               for name in tables.CLASSIFIERS for score in ("auroc", "auprc", "accuracy"))
OPEN = ("membership", "fidelity", "average")
"""Parts whose names depend on the data: of tables, and of attacks."""


def names(args: argparse.Namespace, sweep: Sweep, method: str, preset: str) -> list[str]:
    """Return the metrics of a sweep: those of the command line, of the sweep, or the usual one.

    Args:
      args: The command line.
      sweep: The sweep.
      method: The method of its first cell.
      preset: The preset of its first cell.

    Returns:
      The names; without Inception's weights a published sweep is measured without its FID.

    Raises:
      UserError: There is no such metric, or its weights are missing.
    """
    if method in RELEASED_CLASSIFIERS:
        known: tuple[str, ...] = ("accuracy",)
        usual, is_open = "accuracy", ()
    elif isinstance(presets.get(method, preset)[1].spec, TableSpec):
        known, usual, is_open = TABLES, "gen2real.lr.auroc", OPEN
    else:
        known, usual, is_open = IMAGES, "gen2real.cnn.accuracy", OPEN[:1]
    for name in args.metric:
        if name not in known and name.partition(".")[0] not in is_open:
            raise UserError(f"unknown metric {name!r}{nearest(name, known)}; such are: "
                            f"{', '.join(known[:4])}")
    if FID in args.metric and args.inception_weights is None:
        raise UserError(f"{FID} needs --inception-weights FILE (see "
                        "dpgen_jax/evaluation/inception.py); fidelity.fid_features needs none")
    if args.metric:
        return list(dict.fromkeys(args.metric))
    chosen = [name for name in sweep.metrics if name != FID or args.inception_weights]
    return chosen or [usual]


def words(args: argparse.Namespace, method: str, chosen: Sequence[str], first: bool) -> list[str]:
    """Return the flags of the evaluation that measures these metrics.

    Args:
      args: The command line of the sweep.
      method: The method.
      chosen: The metrics.
      first: Whether classifiers are also trained on real records.

    Returns:
      The flags.
    """
    if method in RELEASED_CLASSIFIERS:
        return []
    paths = [name.split(".") for name in chosen]
    parts = {path[1] if path[0] == "average" else path[0] for path in paths}
    if any(path[-1] == "calibrated_accuracy" for path in paths) or (
            first and parts & {"gen2real"}):
        parts.add("real2real")
    classifiers = dict.fromkeys(path[1] for path in paths if path[0] in utility.TASKS)
    result = ["--metrics", *(part for part in METRICS if part in parts)]
    if classifiers and not any(path[0] == "average" for path in paths):
        result += ["--classifiers", *classifiers]
    result += ["--seeds", str(args.seeds), *([] if args.full else ["--fast"])]
    if args.samples is not None:
        result += ["--samples", str(args.samples)]
    if FID in chosen:
        result += ["--inception-weights", str(args.inception_weights)]
    return result


def leaf(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a metric of one run over the seeds of its evaluation.

    Args:
      document: metrics.json.
      name: The metric.

    Returns:
      {"mean", "std", "values"}.

    Raises:
      UserError: metrics.json has no such number.
    """
    try:
        value = functools.reduce(lambda part, key: part[key], name.split("."), document)
    except (KeyError, TypeError):
        raise UserError(f"the evaluation has no metric {name!r}; its parts are: "
                        f"{', '.join(document)}") from None
    if isinstance(value, dict) and "mean" in value:
        return {key: value[key] for key in ("mean", "std", "values") if key in value}
    if isinstance(value, int | float):
        return summary([float(value)])
    raise UserError(f"the metric {name!r} is no number but has parts: {', '.join(value)}")


def over_runs(leaves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a metric over the training runs; of a single run, over its evaluation's seeds."""
    return leaves[0] if len(leaves) == 1 else summary([each["mean"] for each in leaves])


def real(document: dict[str, Any], chosen: Sequence[str]) -> dict[str, float]:
    """Return what real records get in place of synthetic ones, for those metrics that have it."""
    result = {}
    for name in chosen:
        head, *rest = name.split(".")
        if head == "fidelity" and document["fidelity"][rest[0]].get("floor") is not None:
            result[name] = document["fidelity"][rest[0]]["floor"]
        if head == "gen2real" and rest[0] in document.get("real2real", {}):
            scores = document["real2real"][rest[0]]
            if rest[-1] in scores:
                result[name] = scores[rest[-1]]["mean"]
    return result
