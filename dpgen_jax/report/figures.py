"""The figures of the report. They repeat what its tables say, or show what no number does.

Each is an SVG, drawn as `drawing` says, or a PNG of pixels.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpgen_jax.evaluation import marginals as tables
from dpgen_jax.report.drawing import LIMIT, REAL, SYNTHETIC, Drawing, axes_in, svg
from dpgen_jax.report.render import Figure, is_leaf, number, title, words
from dpgen_jax.run import plots
from dpgen_jax.types import TableSpec

MAX_POINTS, MAX_CURVES, MAX_PANELS, MAX_NAMES = 400, 12, 30, 24
MAX_CLASSES, MAX_COLUMNS, MAX_BYTES = 40, 12, 2 << 20
MAX_PAIRED = 60
"""Columns whose pairs are drawn."""


def _words(name: str) -> str:
    """`words` in a drawing."""
    return plots.drawn(words(name))


def _thinned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most `MAX_POINTS` of them, first and last among them."""
    picked = np.unique(np.linspace(0, len(rows) - 1, MAX_POINTS).round().astype(int))
    return [rows[i] for i in picked] if len(rows) > MAX_POINTS else list(rows)


def learning_curves(rows: Sequence[dict[str, Any]]) -> Figure | None:
    """The public metrics of metrics.jsonl, a panel each; None where there are none."""
    rows = _thinned([row for row in rows if "step" in row])
    names = plots.scalar_names(rows)
    shown = names[:MAX_CURVES]
    if not shown:
        return None
    steps = [row["step"] for row in rows]

    def draw(drawing: Drawing) -> None:
        panels = axes_in(drawing, len(shown), min(2, len(shown)))
        for axes, name in zip(panels, shown, strict=True):
            values = plots.series(rows, name)
            at, points = plots.joined(steps, values)
            axes.plot(at, points, color=SYNTHETIC, linewidth=1.2,
                      marker="o" if len(at) < 40 else None, markersize=2.5)
            axes.set_title(_words(name), loc="left")
            axes.set_yscale("log" if plots.spans_decades([values]) else "linear")
        for axes in panels[-2:]:
            axes.set_xlabel("step")

    rest = f" {len(shown)} of {len(names)} are drawn." if len(shown) < len(names) else ""
    return Figure("Learning curves", "Public metrics of the training over its steps, computed from "
                  f"what had been released, and not from records.{rest}",
                  svg(0.4 + 1.7 * math.ceil(len(shown) / 2), draw))


def epsilon_curve(rows: Sequence[dict[str, Any]], privacy: dict[str, Any]) -> Figure | None:
    """Epsilon spent over the steps, and the promised one; None without rows."""
    rows = _thinned([row for row in rows if "step" in row and "epsilon" in row])
    promised = float(privacy["epsilon"])
    spent = plots.series(rows, "epsilon")
    if not np.isfinite(spent).any():
        return None

    def draw(drawing: Drawing) -> None:
        axes = drawing.subplots()
        axes.plot([row["step"] for row in rows], spent, color=SYNTHETIC, label="spent",
                  drawstyle="steps-post")
        if math.isfinite(promised):
            axes.axhline(promised, color=LIMIT, linestyle="--", linewidth=1, label="promised")
        axes.set_ylim(bottom=0)
        axes.set(xlabel="step", ylabel="epsilon")
        axes.legend(frameon=False, loc="lower right")

    return Figure("Epsilon over the steps", "What the accountant had charged after each step, and "
                  "the budget that was fixed before the first.", svg(2.6, draw))


def sample_grid(images: np.ndarray, labels: np.ndarray, names: Sequence[str] | None = None
                ) -> Figure:
    """Synthetic images uint8 [n, H, W, ch] with labels int [n], a row for each class.

    Rows are as long as the rarest class fills, at most `MAX_COLUMNS`; at most `MAX_CLASSES` classes
    are shown, and fewer images where they would take more than `MAX_BYTES`; the caption says so.
    names: of the classes; by default their numbers."""
    present = np.unique(labels)
    classes = present[:MAX_CLASSES]
    fits = max(1, MAX_BYTES // (images[0].nbytes * len(classes)))
    columns = min(MAX_COLUMNS, fits, *(int((labels == c).sum()) for c in classes))
    picked = np.concatenate([images[labels == c][:columns] for c in classes])
    texts = [str(c) if names is None else str(names[c])[:24] for c in classes]
    file = io.BytesIO()
    plots.grid(picked, len(classes), texts).save(file, "PNG")
    part = ("" if len(classes) == len(present)
            else f" The first {len(classes)} of {len(present)} classes are shown.")
    return Figure("Synthetic images, a row for each class",
                  f"Made by the generator, and not chosen by hand.{part}",
                  file.getvalue())


def utility_bars(metrics: dict[str, Any]) -> Figure | None:
    """The main score of each classifier trained on synthetic beside one trained on real records."""
    tasks = [task for task in ("gen2real", "real2real") if metrics.get(task)]
    if not tasks:
        return None
    first = next(iter(metrics[tasks[0]].values()))
    metric = next((m for m in ("auroc", "accuracy") if m in first), next(iter(first)))
    names = [name for name, scores in metrics[tasks[0]].items() if metric in scores]

    def draw(drawing: Drawing) -> None:
        axes, high = drawing.subplots(), 0.8 / len(tasks)
        for i, (task, colour) in enumerate(zip(tasks, (SYNTHETIC, REAL), strict=False)):
            found = [metrics[task].get(name, {}).get(metric, {}) for name in names]
            places = np.arange(len(names)) + (i - (len(tasks) - 1) / 2) * high
            axes.barh(places, [leaf.get("mean", math.nan) for leaf in found], high,
                      xerr=[leaf.get("std", 0.0) for leaf in found], color=colour,
                      error_kw={"elinewidth": 0.9, "capsize": 2},
                      label={"gen2real": "trained on synthetic", "real2real": "trained on real"
                             }[task] + " records")
        axes.set_yticks(range(len(names)), [_words(name) for name in names])
        axes.invert_yaxis()
        axes.set(xlabel=f"{_words(metric)} on real held-out records", xlim=(0, 1))
        axes.grid(False, axis="y")
        drawing.legend(loc="outside upper left", ncols=2, frameon=False)

    return Figure(f"{title(metric)}: synthetic beside real training records", "Bars are means over "
                  "seeds, lines one standard deviation. The grey bar is what as many real records "
                  "give.", svg(0.9 + 0.34 * len(names), draw), from_real=True)


def marginals(spec: TableSpec, synthetic: np.ndarray, held: np.ndarray) -> Figure:
    """The histogram of each column of synthetic cells beside that of held-out real ones, the label
    first. Cells float64 [n, K], as `evaluation.marginals` defines them."""
    columns = tables.columns(spec)
    order = [len(columns) - 1, *range(len(columns) - 1)][:MAX_PANELS]

    def draw(drawing: Drawing) -> None:
        for axes, i in zip(axes_in(drawing, len(order), min(4, len(order))), order, strict=True):
            plots.marginal(axes, columns[i], synthetic[:, i])
            own = len(axes.containers)
            plots.marginal(axes, columns[i], held[:, i])
            for k, bars in enumerate(axes.containers):
                for bar in bars:
                    bar.set(**({"facecolor": SYNTHETIC, "alpha": 0.55} if k < own else
                               {"facecolor": "none", "edgecolor": "black", "linewidth": 0.7}))
            axes.grid(False)

    part = ("" if len(order) == len(columns)
            else f" {len(order)} of {len(columns)} columns are drawn.")
    return Figure("Columns: synthetic and held-out real records", "Share of rows in %. Filled: "
                  f"synthetic; outlined: held-out real records.{part}",
                  svg(0.3 + 1.55 * math.ceil(len(order) / min(4, len(order))), draw),
                  from_real=True)


def correlations(spec: TableSpec, synthetic: np.ndarray, held: np.ndarray) -> Figure | None:
    """Heat maps of the correlations of columns whose order means something: synthetic, held-out,
    and their difference; None for fewer than two such columns. Cells as in `marginals`."""
    columns = tables.columns(spec)
    kept = [i for i, column in enumerate(columns)
            if column.kind != "categorical" or len(column.categories) == 2][-MAX_PAIRED:]
    if len(kept) < 2:
        return None
    ours, theirs = (tables.correlations(_filled(cells[:, kept])) for cells in (synthetic, held))
    maps = {"synthetic": ours, "held-out real": theirs, "difference": ours - theirs}
    return Figure("Correlations of columns", "Pearson correlations from -1 (blue) to 1 (red). "
                  f"{len(kept)} of {len(columns)} columns: numbers, ordered and two-valued ones; a "
                  "null counts as the column's mean.",
                  _heat(maps, [columns[i].name for i in kept], -1, "RdBu_r"), from_real=True)


def distances(spec: TableSpec, synthetic: np.ndarray, real: np.ndarray, held: np.ndarray) -> Figure:
    """Heat maps of the total variation distances of pairs of columns, and of single columns on the
    diagonal: of synthetic cells, and of real training ones, from held-out ones. Cells as in
    `marginals`, as many synthetic as real ones."""
    columns = tables.columns(spec)[-MAX_PAIRED:]
    maps = {name: tables.pairwise(cells[:, -MAX_PAIRED:], held[:, -MAX_PAIRED:], columns)
            for name, cells in (("synthetic", synthetic), ("real training records", real))}
    part = ("" if len(columns) == len(tables.columns(spec))
            else f" The last {len(columns)} of {len(tables.columns(spec))} columns.")
    return Figure("Distances of pairs of columns", "Total variation distance from held-out real "
                  "records, from 0 (white) to 1 (dark), of pairs of columns and on the diagonal of "
                  "single ones. Real training records show what the number of rows alone "
                  f"explains.{part}",
                  _heat(maps, [column.name for column in columns], 0, "Blues"), from_real=True)


def _heat(maps: dict[str, np.ndarray], names: Sequence[str], low: float, colours: str) -> bytes:
    """Maps [K, K] in [low, 1] side by side; columns are named where they are at most `MAX_NAMES`.
    """
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
    """With the mean of its column in place of each null."""
    known = ~np.isnan(cells)
    means = np.where(known, cells, 0).sum(0) / np.maximum(known.sum(0), 1)
    return np.where(known, cells, means)


def attacks(membership: dict[str, Any]) -> Figure | None:
    """What membership attacks reached, beside what the guarantee allows and chance."""
    found = membership.get("attacks") or {}
    measures = list(dict.fromkeys(name for scores in found.values() for name, leaf in scores.items()
                                  if is_leaf(leaf)))
    if not measures:
        return None
    allowed, chance = (membership.get(key) or {} for key in ("allowed", "chance"))

    def draw(drawing: Drawing) -> None:
        for axes, measure in zip(axes_in(drawing, len(measures), len(measures)), measures,
                                 strict=True):
            held = [scores.get(measure, {}) for scores in found.values()]
            axes.errorbar([leaf.get("mean", math.nan) for leaf in held], range(len(held)),
                          xerr=[leaf.get("std", 0.0) for leaf in held], fmt="o", color=SYNTHETIC,
                          markersize=4, elinewidth=1, capsize=2, label="reached")
            for limits, colour, style, text in ((allowed, LIMIT, "--", "allowed at most"),
                                                (chance, REAL, "-", "chance")):
                if isinstance(limits.get(measure), int | float):
                    axes.axvline(limits[measure], color=colour, linestyle=style, linewidth=1.2,
                                 label=text)
            axes.set(xlim=(-0.03, 1.03), ylim=(len(held) - 0.5, -0.5), xticks=(0, 0.5, 1))
            axes.set_title(_words(measure), fontsize=8)
            axes.set_yticks(range(len(held)), [] if axes.get_subplotspec().colspan.start else
                            [_words(name) for name in found])
        handles, texts = axes.get_legend_handles_labels()
        drawing.legend(handles, texts, loc="outside upper left", ncols=3, frameon=False)

    shown = "; ".join(f"{words(m)} {number(allowed[m])}" for m in measures if m in allowed)
    return Figure("Attacks beside the bound", "Points: what an attack reached, with one standard "
                  "deviation. " + (f"Allowed at most: {shown}." if shown else
                                   "The guarantee bounds nothing here."),
                  svg(1.1 + 0.3 * len(found), draw), from_real=True)


def scatter(points: Sequence[tuple[str, float, str, float, bool]]) -> Figure | None:
    """Score against epsilon, of (name of the run, epsilon, name of the score, score, whether the
    guarantee is valid); None where no run has both. Runs with another score than the first are left
    out, and named."""
    known = [p for p in points if math.isfinite(p[1]) and math.isfinite(p[3])]
    if not known:
        return None
    shown = [p for p in known if p[2] == known[0][2]]

    def draw(drawing: Drawing) -> None:
        axes = drawing.subplots()
        for i, (name, epsilon, _, value, valid) in enumerate(shown):
            axes.plot(epsilon, value, "o", color=SYNTHETIC if valid else LIMIT, markersize=6,
                      fillstyle="full" if valid else "none")
            axes.annotate(plots.short(name, 28), (epsilon, value), xytext=(7, 6 - 9 * (i % 3)),
                          textcoords="offset points", fontsize=8)
        epsilons = [p[1] for p in shown]
        axes.set_xscale("log" if plots.spans_decades([np.array(epsilons)]) else "linear")
        axes.margins(0.15)
        axes.set(xlabel="epsilon", ylabel=plots.drawn(shown[0][2]))

    left = [p[0] for p in points if p not in shown]
    rest = f" Not drawn, without a finite epsilon or this score: {', '.join(left)}." if left else ""
    return Figure("Score against epsilon", "Trained on synthetic, tested on held-out real records. "
                  f"Filled: valid guarantee; hollow: none, at the epsilon it claims.{rest}",
                  svg(3.2, draw), from_real=True)
