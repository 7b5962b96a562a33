"""Sweeps and curves that the papers print, by name: PAPER:TABLE:WHAT.

`python -m benchmarks.sweep NAME` runs one. Cells have the paper's values of what is compared and
the settings that go with them; everything else is the preset's. An epsilon that a preset promises
is proven, so that it may allow fewer steps than the paper took; `-published` presets of GS-WGAN
and DPAC promise nothing, and their runs are stamped so. What a paper prints for a cell stands
beside it.

Of DataLens (Wang et al. 2021), a threshold or clip of 1e-30 stands for a single vote, or for signs
without chance. Tables 8 to 10 have the settings of its Table 11. In Table 10 clip and noise are
those of k 0.8 for all, and the steps those that GM-DP and TopAgg can afford; noise is relative to
the bound, which is smaller by sqrt(0.8) where a part is left out. In Table 4 of G-PATE, projection
0 is the column "N/A". Figures 4 and A2 of GS-WGAN print no values: the ones compared are ours. At
fixed noise the budget decides how many iterations there are, as in the paper; at fixed iterations,
those of the setting that it prints, the noise follows from the budget.
"""

from typing import Any

from benchmarks import common
from benchmarks.sweep.cells import VARIANT, Cell, Sweep


def _cell(entry: dict[str, Any]) -> Cell:
    point = entry["point"]
    settings = entry.get("settings", {name: text for name, text in point.items()
                                      if name != VARIANT})
    return Cell(point, settings, {metric: float(value)
                                  for metric, value in entry.get("printed", {}).items()})


SWEEPS = {name: Sweep(entry["method"], entry["source"], entry["settings"],
                      tuple(map(_cell, entry["cells"])), tuple(entry["metrics"]))
          for name, entry in common.read_yaml(__file__, "published.yaml").items()}
