"""The picture of `benchmarks.norms`: norms over training, and their distribution at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def draw(variants: dict[str, Any], bins: np.ndarray, path: Path) -> None:
    """Draw one column for each variant: quantiles over training, and the last quarter's histogram.

    Args:
      variants: What `benchmarks.norms` measured, by name.
      bins: The edges of the histograms.
      path: The file.
    """
    figure = Figure(figsize=(2.6 * len(variants), 5), dpi=110, layout="constrained")
    axes = figure.subplots(2, len(variants), sharey="row", squeeze=False)
    for (above, below), (name, variant) in zip(axes.T, variants.items(), strict=True):
        rows, clip = variant["rows"], variant["settings"]["clip"]
        steps = [row["step"] for row in rows]
        q = {key: [row["quantiles"][key] for row in rows] for key in rows[0]["quantiles"]}
        above.fill_between(steps, q["0.05"], q["0.95"], alpha=0.2, linewidth=0)
        above.fill_between(steps, q["0.25"], q["0.75"], alpha=0.4, linewidth=0)
        above.plot(steps, q["0.5"], label="of units (private)")
        if "on_fakes" in rows[0]:
            above.plot(steps, [row["on_fakes"]["quantiles"]["0.5"] for row in rows], color="C1",
                       linewidth=0.9, label="on fakes (public)")
        above.set(yscale="log", xlabel="step")
        above.set_title(name.replace(", ", ",\n"), fontsize=8)
        late = np.sum([row["histogram"] for row in rows[-max(1, len(rows) // 4):]], 0)
        below.stairs(late / max(1, late.sum()), bins, fill=True, alpha=0.5)
        below.set(xscale="log", xlim=(1e-3, 1e3), xlabel="norm before clipping, last quarter")
        last = rows[-1]
        below.text(0.03, 0.97, f"mean {last['before']['mean']:.3g}, clipped "
                   f"{last['after']['mean']:.3g}\nstd {last['before']['std']:.3g}, clipped "
                   f"{last['after']['std']:.3g}", transform=below.transAxes, va="top", fontsize=6)
        above.axhline(clip, color="black", linewidth=0.8, linestyle=":")
        below.axvline(clip, color="black", linewidth=0.8, linestyle=":")
    axes[0, 0].set_ylabel("norm: median, 25 to 75 %, 5 to 95 %")
    axes[0, 0].legend(fontsize=6, frameon=False)
    axes[1, 0].set_ylabel("share of gradients")
    figure.savefig(path)
