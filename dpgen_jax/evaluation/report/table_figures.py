"""Figures of synthetic and real tables: histograms, correlations, and distances of columns.

Cells are float64 [n, K], as `evaluation.marginals` defines them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import marginals as tables
from dpgen_jax.evaluation.report.drawing import SYNTHETIC, Drawing, axes_in, svg
from dpgen_jax.release import plots
from dpgen_jax.release.render import Figure

MAX_PANELS = 30
"""The most columns whose histograms are drawn."""
MAX_PAIRED, MAX_NAMES = 60, 24
"""The most columns whose pairs are drawn, and the most whose names are written beside them."""


def marginals(spec: TableSpec, synthetic: np.ndarray, test: np.ndarray) -> Figure:
    """Draw the histogram of each column, the label first, if there is one.

    Args:
      spec: The schema.
      synthetic: Synthetic cells float64 [n, K], as `evaluation.marginals` defines them.
      test: Held-out real cells float64 [n', K].

    Returns:
      The figure.
    """
    columns = tables.columns(spec)
    order = list(range(len(columns)))
    order = order[-1:] + order[:-1] if spec.labelled else order
    if len(order) > MAX_PANELS:
        distances = tables.one_way_tvd(synthetic, test, columns)
        order = np.sort(np.argsort(-distances, kind="stable")[:MAX_PANELS]).tolist()

    def draw(drawing: Drawing) -> None:
        for axes, i in zip(axes_in(drawing, len(order), min(4, len(order))), order, strict=True):
            plots.marginal(axes, columns[i], synthetic[:, i])
            n_synthetic = len(axes.containers)
            plots.marginal(axes, columns[i], test[:, i])
            for k, bars in enumerate(axes.containers):
                for bar in bars:
                    bar.set(**({"facecolor": SYNTHETIC, "alpha": 0.55} if k < n_synthetic else
                               {"facecolor": "none", "edgecolor": "black", "linewidth": 0.7}))
            axes.grid(False)

    part = ("" if len(order) == len(columns)
            else f" {len(order)} of {len(columns)} columns are drawn, those that are farthest off.")
    return Figure("Columns: synthetic and held-out real records", "Share of rows in %. Filled: "
                  f"synthetic; outlined: held-out real records.{part}",
                  svg(0.3 + 1.55 * math.ceil(len(order) / min(4, len(order))), draw),
                  from_real=True)


def correlations(spec: TableSpec, synthetic: np.ndarray, test: np.ndarray) -> Figure | None:
    """Draw heat maps of the correlations of columns whose values have an order.

    Args:
      spec: The schema.
      synthetic: Synthetic cells float64 [n, K].
      test: Held-out real cells float64 [n', K].

    Returns:
      Maps of synthetic and of held-out records, and of their difference; None for fewer than two
      such columns.
    """
    columns = tables.columns(spec)
    kept = [i for i, column in enumerate(columns)
            if column.kind != "categorical" or len(column.categories) == 2][-MAX_PAIRED:]
    if len(kept) < 2:
        return None
    ours, theirs = (tables.correlations(_filled(cells[:, kept])) for cells in (synthetic, test))
    maps = {"synthetic": ours, "held-out real": theirs, "difference": ours - theirs}
    return Figure("Correlations of columns", "Pearson correlations from -1 (blue) to 1 (red). "
                  f"{len(kept)} of {len(columns)} columns: numbers, ordered and two-valued ones; a "
                  "null counts as the column's mean.",
                  _heat(maps, [columns[i].name for i in kept], -1, "RdBu_r"), from_real=True)


def distances(spec: TableSpec, synthetic: np.ndarray, real: np.ndarray, test: np.ndarray) -> Figure:
    """Draw heat maps of the total variation distances of pairs of columns from held-out records.

    Args:
      spec: The schema.
      synthetic: Synthetic cells float64 [n, K].
      real: Real training cells float64 [n, K], as many.
      test: Held-out real cells float64 [n', K].

    Returns:
      Maps of synthetic and of training records; the diagonals are of single columns.
    """
    columns = tables.columns(spec)[-MAX_PAIRED:]
    maps = {name: tables.pairwise(cells[:, -MAX_PAIRED:], test[:, -MAX_PAIRED:], columns)
            for name, cells in (("synthetic", synthetic), ("real training records", real))}
    part = ("" if len(columns) == len(tables.columns(spec))
            else f" The last {len(columns)} of {len(tables.columns(spec))} columns.")
    return Figure("Distances of pairs of columns", "Total variation distance from held-out real "
                  "records, from 0 (white) to 1 (dark), of pairs of columns and on the diagonal of "
                  "single ones. Real training records show what the number of rows alone "
                  f"explains.{part}",
                  _heat(maps, [column.name for column in columns], 0, "Blues"), from_real=True)


def _heat(maps: dict[str, np.ndarray], names: Sequence[str], low: float, colours: str) -> bytes:
    """Draw maps [K, K] in [low, 1] side by side; at most `MAX_NAMES` columns are named."""
    texts = [plots.short(name, 14) for name in names] if len(names) <= MAX_NAMES else []

    def draw(drawing: Drawing) -> None:
        panels = axes_in(drawing, len(maps), len(maps))
        for axes, (text, values) in zip(panels, maps.items(), strict=True):
            shown = axes.imshow(values, cmap=colours, vmin=low, vmax=1)
            axes.set_title(text)
            axes.grid(False)
            axes.set_xticks(range(len(texts)), texts, rotation=90, fontsize=6)
            axes.set_yticks([])
        panels[0].set_yticks(range(len(texts)), texts, fontsize=6)
        drawing.colorbar(shown, ax=panels, shrink=0.6, pad=0.01)

    return svg(3.3 if texts else 2.6, draw)


def _filled(cells: np.ndarray) -> np.ndarray:
    """Return cells with the mean of its column in place of each null."""
    present = ~np.isnan(cells)
    means = np.where(present, cells, 0).sum(0) / np.maximum(present.sum(0), 1)
    return np.where(present, cells, means)
