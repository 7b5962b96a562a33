"""The figures of the report, which repeat its tables, or show what no number does.

A figure is an SVG, drawn by matplotlib without a display or global plotting state and with letters
as outlines, or a PNG of pixels. Each function returns None where it has nothing to draw.

The figures of tables compare synthetic and real cells: histograms, correlations, and distances of
columns. Cells are float64 [n, K], as `evaluation.marginals` defines them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing

from dpgen_jax.core.files import Json
from dpgen_jax.core.types import TableSpec
from dpgen_jax.evaluation import marginals as tables
from dpgen_jax.evaluation.assessment import Assessment
from dpgen_jax.evaluation.results import Finding
from dpgen_jax.release import plots
from dpgen_jax.release.render import Figure, label, number, title

WIDTH = 7.9
"""Width of a figure in inches."""
SYNTHETIC, REAL, LIMIT = "#1f4e79", "#9a9a9a", "#a32020"
STYLE: dict[Any, Any] = {
    "font.size": 8.5, "axes.titlesize": 9, "axes.spines.top": False, "axes.grid": True,
    "axes.spines.right": False, "grid.alpha": 0.25, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "svg.hashsalt": "dpgen_jax", "svg.fonttype": "path"}
"""Settings of matplotlib; the fixed salt makes the names in an SVG reproducible."""


def svg(height: float, draw: Callable[[Drawing], None]) -> bytes:
    """Return an SVG of this height in inches; the same drawing gives the same bytes."""
    with matplotlib.rc_context(STYLE):
        drawing = Drawing(figsize=(WIDTH, height), layout="constrained")
        draw(drawing)
        file = io.BytesIO()
        FigureCanvasSVG(drawing).print_svg(file, metadata={"Date": None, "Creator": None})
    return file.getvalue()


def axes_in(drawing: Drawing, count: int, across: int) -> list[Any]:
    """Return `count` axes in rows of `across`."""
    axes = drawing.subplots(math.ceil(count / across), across, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.set_visible(False)
    return list(axes[:count])


MAX_POINTS, MAX_CURVES = 400, 12
"""The most points of a curve, and the most curves."""
MAX_CLASSES, MAX_COLUMNS, MAX_BYTES = 40, 12, 2 << 20
"""The most rows, columns and bytes of a grid of images."""


class Point(NamedTuple):
    """A run in the figure of scores against epsilon."""

    name: str
    epsilon: float
    metric: str
    """The name of the score."""
    score: float
    valid: bool
    """Whether the guarantee is valid."""


def _label(name: str) -> str:
    """Return the label of a name as text that can be drawn."""
    return plots.plain_text(label(name))


def _thinned(rows: Sequence[Json]) -> list[Json]:
    """Return at most `MAX_POINTS` rows, the first and the last among them."""
    picked = np.unique(np.linspace(0, len(rows) - 1, MAX_POINTS).round().astype(int))
    return [rows[i] for i in picked] if len(rows) > MAX_POINTS else list(rows)


def learning_curves(rows: Sequence[Json], not_covered: bool = False) -> Figure | None:
    """Draw the public metrics of metrics.jsonl, a panel each; None where there are none.

    Args:
      rows: The rows of metrics.jsonl.
      not_covered: Whether the statement names something that epsilon does not cover: records of the
        run's own may have judged it.
    """
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
            axes.set_title(_label(name), loc="left")
            axes.set_yscale("log" if plots.spans_decades([values]) else "linear")
        for axes in panels[-2:]:
            axes.set_xlabel("step")

    rest = f" {len(shown)} of {len(names)} are drawn." if len(shown) < len(names) else ""
    source = ("but for what the statement names as not covered" if not_covered
              else "and not from records")
    return Figure("Learning curves", "Public metrics of the training over its steps, computed from "
                  f"what had been released, {source}.{rest}",
                  svg(0.4 + 1.7 * math.ceil(len(shown) / 2), draw))


def epsilon_curve(rows: Sequence[Json], privacy: Json) -> Figure | None:
    """Draw the epsilon spent over the steps, and the promised one.

    None where none is promised, and where no finite epsilon was recorded.
    """
    rows = _thinned([row for row in rows if "step" in row and "epsilon" in row])
    promised = float(privacy["epsilon"])
    spent = plots.series(rows, "epsilon")
    if not (math.isfinite(promised) and np.isfinite(spent).any()):
        return None

    def draw(drawing: Drawing) -> None:
        axes = drawing.subplots()
        axes.plot([row["step"] for row in rows], spent, color=SYNTHETIC, label="spent",
                  drawstyle="steps-post")
        axes.axhline(promised, color=LIMIT, linestyle="--", linewidth=1, label="promised")
        axes.set_ylim(bottom=0)
        axes.set(xlabel="step", ylabel="epsilon")
        axes.legend(frameon=False, loc="lower right")

    return Figure("Epsilon over the steps", "What the accountant had charged after each step, and "
                  "the budget that was fixed before the first.", svg(2.6, draw))


def sample_grid(images: np.ndarray, labels: np.ndarray, names: Sequence[str] | None = None
                ) -> Figure:
    """Draw synthetic images, a row for each class.

    Rows are as long as the rarest class fills, at most `MAX_COLUMNS`; at most `MAX_CLASSES` classes
    are shown, and fewer images where they would take more than `MAX_BYTES`; the caption says so.

    Args:
      images: uint8 [n, H, W, ch].
      labels: int [n].
      names: Names of the classes; by default their numbers.
    """
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


def utility_bars(found: Assessment) -> Figure | None:
    """Draw the main score of each classifier, trained on synthetic and on real records.

    None where no classifier was trained.
    """
    tasks = [task for task in ("gen2real", "real2real") if found.under(task)]
    if not tasks:
        return None
    metrics = found.names(tasks[0], found.names(tasks[0])[0])
    metric = next((name for name in ("auroc", "accuracy") if name in metrics), metrics[0])
    names = [name for name in found.names(tasks[0]) if found.at(tasks[0], name, metric)]

    def draw(drawing: Drawing) -> None:
        axes, high = drawing.subplots(), 0.8 / len(tasks)
        for i, (task, colour) in enumerate(zip(tasks, (SYNTHETIC, REAL), strict=False)):
            heights = np.arange(len(names)) + (i - (len(tasks) - 1) / 2) * high
            means, spreads = _means([found.at(task, name, metric) for name in names])
            axes.barh(heights, means, high, xerr=spreads, color=colour,
                      error_kw={"elinewidth": 0.9, "capsize": 2},
                      label={"gen2real": "trained on synthetic", "real2real": "trained on real"
                             }[task] + " records")
        axes.set_yticks(range(len(names)), [_label(name) for name in names])
        axes.invert_yaxis()
        axes.set(xlabel=f"{_label(metric)} on real held-out records", xlim=(0, 1))
        axes.grid(False, axis="y")
        drawing.legend(loc="outside upper left", ncols=2, frameon=False)

    return Figure(f"{title(metric)}: synthetic and real training records", "Bars are means over "
                  "seeds, lines one standard deviation. The grey bar is what as many real records "
                  "give.", svg(0.9 + 0.34 * len(names), draw), from_real=True)


def _means(findings: Sequence[Finding | None]) -> tuple[list[float], list[float]]:
    """Return means and deviations, NaN and 0 where there is no score."""
    return ([one.value.mean if one else math.nan for one in findings],
            [one.value.std or 0.0 if one else 0.0 for one in findings])


def attacks(found: Assessment) -> Figure | None:
    """Draw what membership attacks reached, with what the guarantee allows, and chance.

    None where there was no attack.
    """
    scores = found.under("membership", "attacks")
    names = found.names("membership", "attacks")
    measures = list(dict.fromkeys(one.name for one in scores))
    if not measures:
        return None
    first = {one.name: one for one in scores}

    def draw(drawing: Drawing) -> None:
        for axes, measure in zip(axes_in(drawing, len(measures), len(measures)), measures,
                                 strict=True):
            means, spreads = _means([found.at("membership", "attacks", name, measure)
                                     for name in names])
            axes.errorbar(means, range(len(names)), xerr=spreads, fmt="o", color=SYNTHETIC,
                          markersize=4, elinewidth=1, capsize=2, label="reached")
            for limit, colour, style, text in (
                    (first[measure].allowed, LIMIT, "--", "allowed at most"),
                    (first[measure].chance, REAL, "-", "chance")):
                if limit is not None:
                    axes.axvline(limit, color=colour, linestyle=style, linewidth=1.2, label=text)
            axes.set(xlim=(-0.03, 1.03), ylim=(len(names) - 0.5, -0.5), xticks=(0, 0.5, 1))
            axes.set_title(_label(measure), fontsize=8)
            axes.set_yticks(range(len(names)), [] if axes.get_subplotspec().colspan.start else
                            [_label(name) for name in names])
        handles, texts = axes.get_legend_handles_labels()
        drawing.legend(handles, texts, loc="outside upper left", ncols=3, frameon=False)

    shown = "; ".join(f"{label(name)} {number(one.allowed)}" for name, one in first.items()
                      if one.allowed is not None)
    return Figure("Attacks and the bound", "Points: what an attack reached, with one standard "
                  "deviation. " + (f"Allowed at most: {shown}." if shown else
                                   "The guarantee bounds nothing here."),
                  svg(1.1 + 0.3 * len(names), draw), from_real=True)


def scatter(points: Sequence[Point]) -> Figure | None:
    """Draw the scores of runs against their epsilon.

    Runs with another metric than the first are left out, and named. None where no run has both a
    finite epsilon and a score.
    """
    finite = [p for p in points if math.isfinite(p.epsilon) and math.isfinite(p.score)]
    if not finite:
        return None
    shown = [p for p in finite if p.metric == finite[0].metric]

    def draw(drawing: Drawing) -> None:
        axes = drawing.subplots()
        for i, p in enumerate(shown):
            axes.plot(p.epsilon, p.score, "o", color=SYNTHETIC if p.valid else LIMIT, markersize=6,
                      fillstyle="full" if p.valid else "none")
            axes.annotate(plots.short(p.name, 28), (p.epsilon, p.score),
                          xytext=(7, 6 - 9 * (i % 3)), textcoords="offset points", fontsize=8)
        epsilons = [p.epsilon for p in shown]
        axes.set_xscale("log" if plots.spans_decades([np.array(epsilons)]) else "linear")
        axes.margins(0.15)
        axes.set(xlabel="epsilon", ylabel=plots.plain_text(shown[0].metric))

    left = [p.name for p in points if p not in shown]
    rest = f" Not drawn, without a finite epsilon or this score: {', '.join(left)}." if left else ""
    return Figure("Score against epsilon", "Trained on synthetic, tested on held-out real records. "
                  f"Filled: valid guarantee; hollow: none, at the epsilon it claims.{rest}",
                  svg(3.2, draw), from_real=True)


MAX_PANELS = 30
"""The most columns whose histograms are drawn."""
MAX_PAIRED, MAX_NAMES = 60, 24
"""The most columns whose pairs are drawn, and the most whose names are written next to them."""


def marginals(spec: TableSpec, synthetic: np.ndarray, test: np.ndarray) -> Figure:
    """Draw the histogram of each column of two tables of cells, the label first, if any."""
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

    The maps are of synthetic and of held-out records, and of their difference; None for fewer than
    two such columns.
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
                  _heat(maps, [columns[i].name for i in kept], (-1, 1), "RdBu_r"), from_real=True)


def distances(spec: TableSpec, synthetic: np.ndarray, real: np.ndarray, test: np.ndarray) -> Figure:
    """Draw heat maps of the total variation distances of pairs of columns from held-out records.

    The maps are of synthetic records, of these with each column shuffled, and of as many training
    records; the diagonals are of single columns.
    """
    columns, rng = tables.columns(spec)[-MAX_PAIRED:], np.random.default_rng(0)
    shuffled = np.stack([rng.permutation(values) for values in synthetic.T], 1)
    maps = {name: tables.pairwise(cells[:, -MAX_PAIRED:], test[:, -MAX_PAIRED:], columns)
            for name, cells in (("synthetic", synthetic), ("independent columns", shuffled),
                                ("real training records", real))}
    most = max(0.1, *(float(values.max()) for values in maps.values()))
    part = ("" if len(columns) == len(tables.columns(spec))
            else f" The last {len(columns)} of {len(tables.columns(spec))} columns.")
    return Figure("Distances of pairs of columns", "Total variation distance from held-out real "
                  f"records, from 0 (white) to {most:.2f} (dark), of pairs of columns and on the "
                  "diagonal of single ones. Independent columns are the synthetic ones, each "
                  "shuffled. Real training records show what the number of rows "
                  f"explains.{part}",
                  _heat(maps, [column.name for column in columns], (0, most), "Blues"),
                  from_real=True)


def _heat(maps: dict[str, np.ndarray], names: Sequence[str], ends: tuple[float, float],
          colours: str) -> bytes:
    """Draw maps [K, K] of values between two ends; at most `MAX_NAMES` columns are named."""
    texts = [plots.short(name, 14) for name in names] if len(names) <= MAX_NAMES else []

    def draw(drawing: Drawing) -> None:
        panels = axes_in(drawing, len(maps), len(maps))
        for axes, (text, values) in zip(panels, maps.items(), strict=True):
            shown = axes.imshow(values, cmap=colours, vmin=ends[0], vmax=ends[1])
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
