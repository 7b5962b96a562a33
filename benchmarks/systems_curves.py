"""Accuracy by epsilon, of the systems that `benchmarks.systems` ran at more than two of them.

    python -m benchmarks.systems --epsilon 0.2 3 --methods mixture gpate   # more epsilons
    python -m benchmarks.systems_curves    # draws results/systems-curves.png

All rows are of the fast evaluation and of replaced records.
"""

import math
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import common, systems
from benchmarks.common import DATA_NAMES, markdown
from benchmarks.systems import half_width, shown_name, system_rows

Curves = dict[str, dict[float, dict[str, Any]]]


def curves(data: str) -> Curves:
    found: Curves = {}
    for row in system_rows():
        if row["dataset"] == data and math.isfinite(epsilon := float(row["epsilon"])):
            score = row["gen2real"]["cnn"]["accuracy"]
            found.setdefault(row["method"], {})[epsilon] = {
                "mean": score["mean"], "fewer": row["steps"] < (row["preset_steps"] or 0),
                "half": half_width(score["values"]) if "repeats" in row else 0.0}
    return {method: points for method, points in found.items() if len(points) > 2}


def curves_table() -> str:
    """Returns the accuracies behind the curves."""
    rows = [(DATA_NAMES[data], method, points) for data in systems.DATA
            for method, points in curves(data).items()]
    epsilons = sorted({epsilon for _, _, points in rows for epsilon in points})


    def cell(point: dict[str, Any] | None) -> str:
        if point is None:
            return ""
        spread = f" ± {point['half']:.3f}" if point["half"] else ""
        return f"{point['mean']:.3f}{spread}" + "\\*" * point["fewer"]

    return markdown(("data", "system", *(f"epsilon {epsilon:g}" for epsilon in epsilons)),
                    ([data, shown_name(method),
                      *(cell(points.get(epsilon)) for epsilon in epsilons)]
                     for data, method, points in rows))


def draw(path: Path) -> Path:
    figure = Figure(figsize=(5.5 * len(systems.DATA), 3.8), dpi=120, layout="constrained")
    for axes, data in zip(figure.subplots(1, len(systems.DATA), squeeze=False)[0], systems.DATA,
                          strict=True):
        found = curves(data)
        for method, points in found.items():
            where = sorted(points)
            axes.errorbar(where, [points[e]["mean"] for e in where],
                          [points[e]["half"] for e in where], marker="o", markersize=4, capsize=3,
                          label=method)
        axes.set(xscale="log", title=DATA_NAMES[data], xlabel="epsilon, replace-one",
                 ylabel="gen2real, CNN")
        ticks = sorted({epsilon for points in found.values() for epsilon in points})
        axes.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        if found:
            axes.legend(frameon=False)
    FigureCanvasAgg(figure).print_png(str(path))
    return path


if __name__ == "__main__":
    print(draw(common.RESULTS / "systems-curves.png"))
