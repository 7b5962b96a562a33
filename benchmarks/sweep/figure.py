"""The figure of `benchmarks.sweep`: measured values beside those that papers print."""

import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import common
from benchmarks.sweep.cells import VARIANT, label

CLAIMED: dict[str, dict[str, dict[float, float]]] = {
    data: {system: {float(epsilon): float(value) for epsilon, value in points.items()}
           for system, points in systems.items()}
    for data, systems in common.read_yaml(__file__, "claimed.yaml").items()}
"""Accuracies that papers print, by data set, system and epsilon."""
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
