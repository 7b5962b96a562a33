"""From a row to the method and the preset that it trains."""

from __future__ import annotations

from benchmarks import epochs
from benchmarks.papers.rows import Command, Training, Work
from benchmarks.sweep.published import SWEEPS

DEFAULTS = {"images": "datalens", "topagg_bound": "datalens", "table_presets": "gpate",
            "aggregation": "gpate"}
"""The method of a benchmark that is named none."""


def preset_of(work: Work) -> tuple[str, str] | None:
    """Return the method and the preset of a row, of a sweep those that its cells begin from.

    Args:
      work: How the row is run.

    Returns:
      Their names; None for a row that trains no named preset, or several.
    """
    if isinstance(work, Training):
        return (work.method, work.preset) if work.known() else None
    if not isinstance(work, Command):
        return None
    words = list(work.argv)
    if work.module == "sweep" and words[0] in SWEEPS:
        return SWEEPS[words[0]].method, SWEEPS[words[0]].settings["preset"]
    if work.module == "steps":
        timed = epochs.ROWS[words[words.index("--epochs") + 1]]
        return timed.method, timed.preset
    if "--presets" in words:  # METHOD=PRESET
        method, _, name = words[words.index("--presets") + 1].partition("=")
        return method, name
    if "--preset" not in words or "--teachers" in words:  # which makes it another one
        return None
    method = (words[words.index("--method") + 1] if "--method" in words
              else words[0] if work.module == "sweep" else DEFAULTS[work.module])
    return method, words[words.index("--preset") + 1]
