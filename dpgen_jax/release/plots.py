"""Pictures of a run: grids of samples, marginals of tables, curves of public metrics, as PNG files.

Grids are drawn pixel by pixel with Pillow, each image pixel a square of whole screen pixels; all
else with matplotlib's Agg canvas. Neither needs a display nor touches global plotting state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image, ImageDraw, ImageFont

from dpgen_jax.core import arrays, run_folder
from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Column, TableSpec, UserError
from dpgen_jax.data.table import transform
from dpgen_jax.release.render import visible

TILE = 56
"""The longer side of an image in a grid has at least so many screen pixels."""
GAP = 4
SAMPLES = "samples"
BACKGROUND, INK = (255, 255, 255), (60, 60, 60)
BUDGET_COLOUR = "#c1440e"
MAX_PANELS, PANELS_IN_ROW = 30, 5
MAX_BARS = 200
"""in a panel; of more categories neighbours share a bar"""
LARGEST_SHOWN = 1e100
"""in size: no axis can reach from one end of all floats to the other"""
NULL_COLOUR = "#9a9a9a"


def samples_grid(images: np.ndarray, path: str | Path, rows: int,
                 labels: Sequence[str] | None = None) -> Path:
    """Writes `grid` as a PNG file.

    Returns the path.

    Raises:
        UserError: As `grid`.
    """
    grid(images, rows, labels).save(path, "PNG")
    return Path(path)


def grid(images: np.ndarray, rows: int, labels: Sequence[str] | None = None) -> Image.Image:
    """Draws `rows` rows of images, each with its label on the left.

    images [rows * columns, H, W] or [..., ch] with 1 or 3 channels, row by row; uint8, or float,
    where values outside [0, 1] are clipped and NaN is black. labels: 0, 1, ... by default.

    Raises:
        UserError: For another shape or number of labels.
    """
    pixels = _pixels(images)
    labels = [str(i) if labels is None else visible(str(labels[i])).replace("\n", " ")
              for i in range(rows if labels is None else len(labels))]
    if rows < 1 or not len(pixels) or len(pixels) % rows or len(labels) != rows:
        raise UserError(f"{len(pixels)} images and {len(labels)} labels do not fill {rows} rows of "
                        "one length; give each row as many images, and one label")
    pixels = pixels.reshape(rows, -1, *pixels.shape[1:])
    _, columns, *sides = pixels.shape[:4]
    scale = max(1, math.ceil(TILE / max(sides)))
    height, width = (scale * side + GAP for side in sides)
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 18)  # matplotlib ships it
    margin = math.ceil(max(font.getlength(label) for label in labels)) + 3 * GAP
    canvas = Image.new("RGB", (margin + columns * width, rows * height + GAP), BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    for i, label in enumerate(labels):
        top = GAP + i * height
        draw.text((margin - 2 * GAP, top + (height - GAP) // 2), label, INK, font, anchor="rm")
        for j, image in enumerate(pixels[i].repeat(scale, 1).repeat(scale, 2)):
            canvas.paste(Image.fromarray(image), (margin + j * width, top))
    return canvas


def curves(rows: Sequence[Json] | str | Path, path: str | Path) -> Path:
    """Draws the metrics of a run over its steps: its samples, other public scalars, epsilon.

    rows: those of metrics.jsonl, or its path, with keys step, epsilon, seconds and others; a value
    that is absent or null is a gap. Returns the path.

    Raises:
        UserError: Without rows.
    """
    rows = run_folder.read(rows) if isinstance(rows, str | Path) else rows
    if not rows:
        raise UserError("there are no metrics to draw, since the run has made no step")
    groups = _panels(rows)
    figure = Figure(figsize=(8, 6 if len(groups) < 2 else 8), dpi=120, layout="constrained")
    *panels, below = figure.subplots(1 + len(groups), 1, sharex=True, squeeze=False,
                                      height_ratios=(*[3] * len(groups), 2))[:, 0]
    steps = [row["step"] for row in rows]
    style = {"linewidth": 1.5} | ({"marker": "o", "markersize": 3} if len(rows) < 40 else {})
    for axes, (title, group) in zip(panels, groups.items(), strict=True):
        for name, values in group.items():
            axes.plot(*joined(steps, values), label=plain_text(name.replace("_", " ")), **style)
        axes.legend(frameon=False, fontsize=8, ncols=min(4, len(group)), loc="best")
        if title != SAMPLES and spans_decades(group.values()):
            axes.set_yscale("log")
        axes.set_ylabel(title)
    # One row that promises nothing is enough: a client's seed came late, or an older version began.
    promised = not any(run_folder.BUDGET_EPSILON in row for row in rows)
    charged = np.fmax(series(rows, run_folder.EPSILON), series(rows, run_folder.BUDGET_EPSILON))
    below.plot(steps, charged, color=BUDGET_COLOUR, **style)
    below.set_ylim(bottom=0)
    below.set(xlabel="step", ylabel="epsilon spent" if promised else "of the budget; none promised",
              xlim=(0, 1.02 * max(1, *steps)))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (*panels, below):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    path = Path(path)
    FigureCanvasAgg(figure).print_png(str(path))
    return path


def _panels(rows: Sequence[Json]) -> dict[str, dict[str, np.ndarray]]:
    """The metrics that are drawn together, by the title of their panel."""
    scalars = {name: series(rows, name) for name in scalar_names(rows)}
    groups = {title: {name: values for name, values in scalars.items()
                      if (name in run_folder.OF_SAMPLES) == (title == SAMPLES)}
              for title in (SAMPLES, "public metrics")}
    return {title: group for title, group in groups.items() if group}


def marginals(spec: TableSpec, x: np.ndarray, y: np.ndarray, path: str | Path) -> Path:
    """Draws the histogram of each column of a SYNTHETIC table, a small panel each, the label first.

    x: float64 [n, columns], a number as it is, a category as its index, NaN for null, which has a
    grey bar of its own, as a special value; y: classes int [n]. A number has 20 bins between its
    declared bounds, on its scale. Of more than `MAX_PANELS` columns the first are drawn, and the
    title says so. Returns the path.

    Raises:
        UserError: For another shape or no rows.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y)
    if x.shape != (len(y), len(spec.columns)) or not len(y):
        raise UserError(f"the table has shape {x.shape} and {len(y)} labels, expected [n, "
                        f"{len(spec.columns)}] and n, at least 1")
    codes, columns = x, spec.columns
    if spec.labelled:
        codes, columns = np.column_stack([y, x]), (spec.label, *spec.columns)
    shown = columns[:MAX_PANELS]
    across = min(PANELS_IN_ROW, len(shown))
    down = math.ceil(len(shown) / across)
    figure = Figure(figsize=(max(4.5, 2.6 * across), 0.5 + 2.1 * down), dpi=120,
                    layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, column, values in zip(panels, shown, codes.T, strict=False):
        marginal(axes, column, values)
    for axes in panels[len(shown):]:
        axes.set_visible(False)
    part = f", {len(shown)} of {len(columns)} columns" if len(shown) < len(columns) else ""
    figure.suptitle(f"{len(codes):,} synthetic rows{part}: share of rows in %", fontsize=10)
    FigureCanvasAgg(figure).print_png(str(path))
    return Path(path)


def marginal(axes: Axes, column: Column, values: np.ndarray) -> None:
    """One panel: bars of percentages; those of special values and of null apart on the right."""
    null = np.isnan(values)
    known = values[~null & ~np.isin(values, column.special)]
    if column.categories:
        count = len(column.categories)
        edges = np.linspace(0, count, min(count, MAX_BARS) + 1).round() - 0.5
        places = np.unique(np.linspace(0, count - 1, min(8, count)).round())
        names = [short(column.categories[int(place)]) for place in places]
    else:
        known, edges = transform.unit(column, known), np.linspace(0, 1, 21)
        places = np.array([0, 0.5, 1])
        names = _numbers(column, transform.from_unit(column, places))
    counts = np.histogram(known, edges)[0] * 100 / len(values)
    widths = np.diff(edges) * (0.9 if column.categories else 1)
    axes.bar((edges[:-1] + edges[1:]) / 2, counts, widths)
    apart = dict(zip(_numbers(column, np.array(column.special)),
                     [values == value for value in column.special], strict=True))
    span = edges[-1] - edges[0]
    wide = max(widths[0], 0.06 * span)
    for i, (name, rows) in enumerate((apart | ({"null": null} if column.nullable else {})).items()):
        place = edges[-1] + 0.2 * span * (i + 1) + wide / 2
        axes.bar(place, 100 * rows.mean(), wide, color=NULL_COLOUR)
        places, names = np.append(places, place), [*names, name]
    crowded = len(column.categories) > 0 and max(map(len, names)) * len(names) > 26
    axes.set_xticks(places, names, rotation=90 if crowded else 0, fontsize=7)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.tick_params(axis="y", labelsize=7)
    axes.set_title(short(column.name, 24), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _numbers(column: Column, values: np.ndarray) -> list[str]:
    """Short texts of numbers, dates or times."""
    if column.written != "plain" or column.unit:
        return [short(text) for text in transform.texts(column, values)]
    return [f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.4g}"
            for value in values.tolist()]


def short(text: str, most: int = 12) -> str:
    """`plain_text`, cut to `most` letters."""
    return plain_text(text if len(text) <= most else text[:most - 1] + "\u2026")


def plain_text(text: str) -> str:
    """A text for matplotlib: one line, and no formula, which a dollar would start."""
    return visible(text).replace("\n", " ").replace("$", r"\$")


def scalar_names(rows: Sequence[Json]) -> list[str]:
    """The public scalars of metrics.jsonl, in the order of their first line."""
    return list(dict.fromkeys(
        name for row in rows for name, value in row.items()
        if name not in run_folder.NO_METRICS and isinstance(value, int | float)))


def series(rows: Sequence[Json], name: str) -> np.ndarray:
    """One metric, NaN where a row has none that can be drawn."""
    values = (row.get(name) for row in rows)
    return np.array([v if isinstance(v, int | float) and abs(v) < LARGEST_SHOWN else math.nan
                     for v in values], float)


def joined(steps: Sequence[int], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps and values to draw, float [n] each.

    Those of a metric that is measured now and then follow each other, while elsewhere a gap stays a
    gap.
    """
    known = np.isfinite(values)
    shown = known if known.mean() < 0.5 else np.ones_like(known)
    return np.asarray(steps)[shown], values[shown]


def spans_decades(columns: Iterable[np.ndarray]) -> bool:
    """Whether values are all positive and so far apart that a linear scale would flatten some."""
    values = np.concatenate([*columns, []])
    values = values[np.isfinite(values)]
    return bool(len(values)) and values.min() > 0 and values.max() / values.min() > 50


def _pixels(images: np.ndarray) -> np.ndarray:
    """uint8 [N, H, W, 3]."""
    images = np.asarray(images)
    images = arrays.check_images("grid", images)
    if images.dtype != np.uint8:
        finite = np.nan_to_num(images.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0)
        images = np.round(np.clip(finite, 0, 1) * 255).astype(np.uint8)
    return np.broadcast_to(images, (*images.shape[:3], 3))
