"""The figure of `benchmarks.sweep`: measured values beside those that papers print."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.sweep.cells import VARIANT, label

# Accuracies that papers print, to be drawn beside measured ones and always marked "claimed".
#
# Gen2real accuracy of a CNN at delta 1e-5, by data set, system and epsilon. Source: DataLens (Wang
# et al., 2021), tables 1 and 2, which also quotes the others; G-PATE (Long et al., 2021), tables 1c
# and 2, for its own rows; GS-WGAN (Chen et al., 2020), table 1, and DP-GAN-DPAC (2023), table 2,
# for theirs at 10. The protocols differ (best epoch on the test images, one seed), and the epsilon
# of GS-WGAN and DPAC is not what their code spends (`benchmarks.claimed`).

EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 10.0)


def _row(*values: float) -> dict[float, float]:
    return dict(zip(EPSILONS, values, strict=True))


CLAIMED: dict[str, dict[str, dict[float, float]]] = {
    "mnist": {
        "datalens": _row(0.2344, 0.2919, 0.4201, 0.6485, 0.7123, 0.8066),
        "gpate": _row(0.2230, 0.2478, 0.4184, 0.5377, 0.5880, 0.8092),
        "pategan": _row(0.2176, 0.2399, 0.3484, 0.3571, 0.4168, 0.6667),
        "dpgan": _row(0.1104, 0.1524, 0.1022, 0.3732, 0.4046, 0.8011),
        "gswgan": _row(0.0972, 0.1029, 0.1044, 0.1170, 0.1432, 0.80),
        "dpac": {10.0: 0.88},
    },
    "fashion_mnist": {
        "datalens": _row(0.2226, 0.3863, 0.4314, 0.5534, 0.6478, 0.7061),
        "gpate": _row(0.1874, 0.3020, 0.4283, 0.5258, 0.5812, 0.6934),
        "pategan": _row(0.1605, 0.2977, 0.3698, 0.3659, 0.4222, 0.6218),
        "dpgan": _row(0.1021, 0.1302, 0.0998, 0.1210, 0.1053, 0.6098),
        "gswgan": _row(0.1000, 0.1001, 0.1144, 0.1242, 0.1661, 0.65),
        "dpac": {10.0: 0.73},
    },
}


CNN = "gen2real.cnn.accuracy"
Rows = list[dict[str, Any]]


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw a sweep: a panel for each metric.

    The first field whose values are numbers is the horizontal axis, with a curve for each
    combination of the others; without one there is a point for each cell. A value that the paper
    prints for a cell has a hollow marker of the same colour.
    """
    rows, metrics = results["rows"], results["metrics"]
    figure = Figure(figsize=(1.5 + 5 * len(metrics), 4.4), dpi=120, layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics,
                            strict=True):
        _panel(axes, results, rows, metric)
    handles = {text: handle for axes in figure.axes for handle, text in zip(
        *axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=7,
                  frameon=False, ncols=3)
    stamps = dict.fromkeys(run["privacy"]["guarantee"].partition(":")[0] for row in rows
                           for run in row.get("runs", ()))
    figure.suptitle(f"{results['sweep']}; guarantee: {' / '.join(stamps)}; hollow: printed by the "
                    "paper", fontsize=8)
    FigureCanvasAgg(figure).print_png(str(path))


def _panel(axes: Axes, results: dict[str, Any], rows: Rows, metric: str) -> None:
    """Draw one metric."""
    field = across([row["point"] for row in rows])
    series: dict[str, Rows] = {}
    for row in rows:
        rest = {name: value for name, value in row["point"].items() if name != field}
        series.setdefault(label(rest) if field else row["label"], []).append(row)
    values = (placed([float(row["point"][field]) for row in rows]) if field
              else list(map(float, range(len(rows)))))
    places = {id(row): value for row, value in zip(rows, values, strict=True)}
    for number, (name, some) in enumerate(series.items()):
        _series(axes, name or "measured", [row for row in some if "metrics" in row], metric,
                places, f"C{number % 10}")
        _printed(axes, some, metric, places, f"C{number % 10}")
    if real := next((row["real"] for row in rows if row.get("real")), {}).get(metric):
        axes.axhline(real, color="0.4", linewidth=0.8, linestyle=":", label="real records")
    if field == "epsilon" and metric == CNN:
        _claimed(axes, next((row["dataset"] for row in rows if "dataset" in row), ""))
    axes.set(xlabel=field or "", title=metric)
    axes.title.set_fontsize(8)
    if field is None:
        axes.set_xticks(range(len(rows)), [row["label"] for row in rows], rotation=40, ha="right",
                        fontsize=7)
    elif min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_xscale("log")
        ticks = {place: row["point"][field] for place, row in zip(values, rows, strict=True)}
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def across(points: list[dict[str, str]]) -> str | None:
    """Return the first field of all points whose values are different numbers."""
    def number(text: str) -> bool:
        try:
            return not math.isnan(float(text))
        except ValueError:
            return False

    for field in points[0]:
        texts = [point.get(field, "") for point in points]
        if field != VARIANT and all(map(number, texts)) and len(set(texts)) > 1:
            return field
    return None


def placed(values: list[float]) -> list[float]:
    """Return where values stand on the axis: infinity at twice the largest finite one."""
    beyond = 2 * max((abs(value) for value in values if math.isfinite(value)), default=1.0)
    return [min(value, beyond) for value in values]


def _series(axes: Axes, name: str, rows: Rows, metric: str, places: dict[int, float],
            colour: str) -> None:
    """Draw measured values, with the standard deviation over runs or seeds."""
    if rows:
        scores = [row["metrics"][metric] for row in rows]
        axes.errorbar([places[id(row)] for row in rows], [score["mean"] for score in scores],
                      [score.get("std", 0.0) for score in scores], marker="o", markersize=4,
                      capsize=2, color=colour, label=name)


def _printed(axes: Axes, rows: Rows, metric: str, places: dict[int, float], colour: str) -> None:
    """Draw what the paper prints for these cells."""
    known = [row for row in rows if metric in row["printed"]]
    if known:
        axes.plot([places[id(row)] for row in known], [row["printed"][metric] for row in known],
                  marker="s", markersize=6, fillstyle="none", color=colour, linestyle="--",
                  linewidth=0.7)


def _claimed(axes: Axes, dataset: str) -> None:
    """Draw what papers claim for all systems on these data; their protocols differ."""
    for number, (system, points) in enumerate(CLAIMED.get(dataset, {}).items()):
        axes.plot(points.keys(), points.values(), marker="xv^sd+"[number], markersize=4,
                  linestyle="--", linewidth=0.6, color="0.6",
                  label=f"{system}, CNN: claimed by the paper")
