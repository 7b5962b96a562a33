"""The figures of the report, which repeat its tables, or show what no number does.

Each is an SVG, drawn by `drawing`, or a PNG of pixels. Each function returns None where it has
nothing to draw.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpgen_jax.core.strict_json import Json
from dpgen_jax.evaluation.report.drawing import LIMIT, REAL, SYNTHETIC, Drawing, axes_in, svg
from dpgen_jax.release import plots
from dpgen_jax.release.render import Figure, is_leaf, label, number, title

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
    """Draw the public metrics of metrics.jsonl, a panel each.

    Args:
      rows: The rows of metrics.jsonl.
      not_covered: Whether the statement names something that epsilon does not cover: records of the
        run's own may have judged it.

    Returns:
      The figure; None where there are no metrics.
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

    Args:
      rows: The rows of metrics.jsonl.
      privacy: A statement that `explain.checked` returned.

    Returns:
      The figure; None where none is promised, and where no finite epsilon was recorded.
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

    Returns:
      The figure.
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


def utility_bars(metrics: Json) -> Figure | None:
    """Draw the main score of each classifier, trained on synthetic and on real records.

    Args:
      metrics: The content of metrics.json.

    Returns:
      The figure; None where no classifier was trained.
    """
    tasks = [task for task in ("gen2real", "real2real") if metrics.get(task)]
    if not tasks:
        return None
    first = next(iter(metrics[tasks[0]].values()))
    metric = next((m for m in ("auroc", "accuracy") if m in first), next(iter(first)))
    names = [name for name, scores in metrics[tasks[0]].items() if metric in scores]

    def draw(drawing: Drawing) -> None:
        axes, high = drawing.subplots(), 0.8 / len(tasks)
        for i, (task, colour) in enumerate(zip(tasks, (SYNTHETIC, REAL), strict=False)):
            scores = [metrics[task].get(name, {}).get(metric, {}) for name in names]
            heights = np.arange(len(names)) + (i - (len(tasks) - 1) / 2) * high
            axes.barh(heights, [leaf.get("mean", math.nan) for leaf in scores], high,
                      xerr=[leaf.get("std", 0.0) for leaf in scores], color=colour,
                      error_kw={"elinewidth": 0.9, "capsize": 2},
                      label={"gen2real": "trained on synthetic", "real2real": "trained on real"
                             }[task] + " records")
        axes.set_yticks(range(len(names)), [_label(name) for name in names])
        axes.invert_yaxis()
        axes.set(xlabel=f"{_label(metric)} on real held-out records", xlim=(0, 1))
        axes.grid(False, axis="y")
        drawing.legend(loc="outside upper left", ncols=2, frameon=False)

    return Figure(f"{title(metric)}: synthetic beside real training records", "Bars are means over "
                  "seeds, lines one standard deviation. The grey bar is what as many real records "
                  "give.", svg(0.9 + 0.34 * len(names), draw), from_real=True)


def attacks(membership: Json) -> Figure | None:
    """Draw what membership attacks reached, beside what the guarantee allows and chance.

    Args:
      membership: The part `membership` of metrics.json.

    Returns:
      The figure; None where there was no attack.
    """
    by_attack = membership.get("attacks") or {}
    measures = list(dict.fromkeys(name for scores in by_attack.values()
                                  for name, leaf in scores.items() if is_leaf(leaf)))
    if not measures:
        return None
    allowed, chance = (membership.get(key) or {} for key in ("allowed", "chance"))

    def draw(drawing: Drawing) -> None:
        for axes, measure in zip(axes_in(drawing, len(measures), len(measures)), measures,
                                 strict=True):
            reached = [scores.get(measure, {}) for scores in by_attack.values()]
            axes.errorbar([leaf.get("mean", math.nan) for leaf in reached], range(len(reached)),
                          xerr=[leaf.get("std", 0.0) for leaf in reached], fmt="o",
                          color=SYNTHETIC, markersize=4, elinewidth=1, capsize=2, label="reached")
            for limits, colour, style, text in ((allowed, LIMIT, "--", "allowed at most"),
                                                (chance, REAL, "-", "chance")):
                if isinstance(limits.get(measure), int | float):
                    axes.axvline(limits[measure], color=colour, linestyle=style, linewidth=1.2,
                                 label=text)
            axes.set(xlim=(-0.03, 1.03), ylim=(len(reached) - 0.5, -0.5), xticks=(0, 0.5, 1))
            axes.set_title(_label(measure), fontsize=8)
            axes.set_yticks(range(len(reached)), [] if axes.get_subplotspec().colspan.start else
                            [_label(name) for name in by_attack])
        handles, texts = axes.get_legend_handles_labels()
        drawing.legend(handles, texts, loc="outside upper left", ncols=3, frameon=False)

    shown = "; ".join(f"{label(m)} {number(allowed[m])}" for m in measures if m in allowed)
    return Figure("Attacks beside the bound", "Points: what an attack reached, with one standard "
                  "deviation. " + (f"Allowed at most: {shown}." if shown else
                                   "The guarantee bounds nothing here."),
                  svg(1.1 + 0.3 * len(by_attack), draw), from_real=True)


def scatter(points: Sequence[Point]) -> Figure | None:
    """Draw the scores of runs against their epsilon.

    Args:
      points: The runs; those with another metric than the first are left out, and named.

    Returns:
      The figure; None where no run has both a finite epsilon and a score.
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
