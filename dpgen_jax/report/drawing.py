"""How the report's figures are drawn: with matplotlib, letters as outlines, without a display and
global plotting state."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing

WIDTH = 7.9
"""inches"""
SYNTHETIC, REAL, LIMIT = "#1f4e79", "#9a9a9a", "#a32020"
STYLE = {"font.size": 8.5, "axes.titlesize": 9, "axes.spines.top": False, "axes.grid": True,
         "axes.spines.right": False, "grid.alpha": 0.25, "grid.linewidth": 0.6,
         "axes.axisbelow": True, "svg.hashsalt": "dpgen_jax", "svg.fonttype": "path"}


def svg(height: float, draw: Callable[[Drawing], None]) -> bytes:
    """The same bytes for the same drawing."""
    with matplotlib.rc_context(STYLE):
        drawing = Drawing(figsize=(WIDTH, height), layout="constrained")
        draw(drawing)
        file = io.BytesIO()
        FigureCanvasSVG(drawing).print_svg(file, metadata={"Date": None, "Creator": None})
    return file.getvalue()


def axes_in(drawing: Drawing, count: int, across: int) -> list[Any]:
    """`count` axes, row by row."""
    axes = drawing.subplots(math.ceil(count / across), across, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.set_visible(False)
    return list(axes[:count])
