"""Drawing of the report's figures by matplotlib, without a display or global plotting state.

Letters are drawn as outlines.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing

WIDTH = 7.9
"""Width of a figure in inches."""
SYNTHETIC, REAL, LIMIT = "#1f4e79", "#9a9a9a", "#a32020"
STYLE: dict[Any, Any] = {
    "font.size": 8.5, "axes.titlesize": 9, "axes.spines.top": False, "axes.grid": True,
    "axes.spines.right": False, "grid.alpha": 0.25, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "svg.hashsalt": "dpgen_jax", "svg.fonttype": "path"}
"""Settings of matplotlib; the fixed salt makes the names in an SVG reproducible."""


def svg(height: float, draw: Callable[[Drawing], None]) -> bytes:
    """Draw a figure; the same drawing gives the same bytes.

    Args:
      height: Height in inches.
      draw: A function that draws on the empty figure.

    Returns:
      An SVG file.
    """
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
