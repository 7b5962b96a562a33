"""The rows of `benchmarks.systems` as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import common, scenes
from dpgen_jax.release import plots
from dpgen_jax.release.bundle import load

DATA_SETS = ("mnist", "fashion", "cifar", *scenes.SETS)
"""In the order of their columns."""


def half_width(values: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t distribution."""
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def shown_name(method: str) -> str:
    """Return a row's name in tables: the method, and for prototypes what teachers answer."""
    name, _, answer = method.partition("-")
    return f"`{name}` by {answer}" if answer else f"`{name}`"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown.

    Cells are the accuracy of the classifiers, mean over seeds, with * where a run took fewer steps
    than its preset, and behind it the Inception Score and FID where they were measured; over
    several trainings, the mean with its 95 % interval. The last column has the seconds that a
    system's runs trained.
    """
    def cell(method, data, epsilon):
        r, = [r for r in rows if (r["method"], r["dataset"], r["epsilon"]) == (
            method, data, epsilon)] or [None]
        if r is None or "error" in r:
            return "failed" if r else ""
        scores = " / ".join(f"{s['accuracy']['mean']:.3f}" + (
            f" ± {half_width(s['accuracy']['values']):.3f}" if "repeats" in r else "")
            for s in r["gen2real"].values())
        likeness = [f"{name} {r['fidelity'][key]['mean']:.2f}" for name, key in (
            ("IS", "inception_score"), ("FID", "fid")) if key in r.get("fidelity", {})]
        return ", ".join([scores + "*" * (r["steps"] < (r["preset_steps"] or 0)), *likeness])

    def seconds(method):
        took = [r["training_seconds"] for r in rows if r["method"] == method and "steps" in r]
        return " to ".join(dict.fromkeys(f"{f(took):,.0f}" for f in (min, max))) if took else ""

    private = [r for r in rows if r["epsilon"] != "inf"]
    columns = sorted({(r["dataset"], r["epsilon"]) for r in private},
                     key=lambda c: (DATA_SETS.index(c[0]), c[1]))
    head = ["system", *(f"{data}, epsilon {epsilon:g}" for data, epsilon in columns), "training, s"]
    lines = [head, ["---"] * len(head)]
    for method in dict.fromkeys(r["method"] for r in private):
        lines.append([shown_name(method), *(cell(method, *column) for column in columns),
                      seconds(method)])
    without = [f"{shown_name(r['method'])} without privacy, {r['dataset']}: "
               f"{cell(r['method'], r['dataset'], 'inf')}" for r in rows if r not in private]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *without])


def picture(rows: list[dict[str, Any]], data: str, epsilon: float, run: Callable[[str], Path]
            ) -> Path:
    """Draw a row of 20 images of each private system, of ten classes at most, beside its accuracy.

    Args:
      rows: The rows.
      data: The name of the data set.
      epsilon: The budget.
      run: The run folder of a method.

    Returns:
      The file of the picture.
    """
    shown = [r for r in rows if (r["dataset"], r["epsilon"]) == (data, epsilon) and "steps" in r]
    images = []
    for r in shown:
        release = load(run(r["method"]))
        # Without labels some systems draw classes as often as the records have them.
        x, y = release.sample(20, labels=range(min(10, release.spec.classes)), seed=0)
        images.append(x[np.argsort(y, kind="stable")])
    labels = [f"{r['method']} {r['gen2real']['cnn']['accuracy']['mean']:.2f}" for r in shown]
    return plots.samples_grid(np.concatenate(images), common.RESULTS /
                              f"systems-{data}-eps{epsilon:g}.png", len(shown), labels)
