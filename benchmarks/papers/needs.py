"""The memory that a row needs for what its teachers, critics or clients keep, by shapes alone."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from benchmarks import epochs
from benchmarks.papers.chosen import preset_of
from benchmarks.papers.rows import Command, Row
from benchmarks.sweep.published import SWEEPS
from dpgen_jax import methods, presets
from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import Spec
from dpgen_jax.run import capacity

MOMENTS = "bfloat16"
"""The precision of teachers' and critics' moments; sweeps come to it where float32 is too large."""
UNITS = ("teachers", "critics")
"""Fields that say how many units there are, of methods whose units keep anything."""
LEAST = 5e8
"""The fewest bytes that are worth a word."""


def state_bytes(row: Row) -> int:
    """Return the bytes of the state of all units of a row at once, of its largest run.

    Args:
      row: The row.

    Returns:
      The bytes; 0 where units keep nothing, where the row trains no single preset or times a
      part of a step, and of federations, whose clients are chosen by the data.
    """
    work, chosen = row.work, preset_of(row.work)
    module = work.module if isinstance(work, Command) else ""
    if chosen is None or module in ("federated", "aggregation"):
        return 0
    fields, share = dict(getattr(work, "fields", {})), 1.0
    if module == "steps":
        fields |= epochs.ROWS[work.argv[1]].fields
        share = float(work.argv[3])
    if module == "sweep":
        cells = SWEEPS[work.argv[0]].cells if work.argv[0] in SWEEPS else ()
        for field in UNITS:
            counts = [int(cell.settings[field]) for cell in cells if field in cell.settings]
            fields |= {field: max(counts)} if counts else {}
    method, name = chosen
    preset = presets.get(method, name)[1]
    config = dataclasses.replace(preset.config, **fields)
    if not any(hasattr(config, field) for field in UNITS):
        return 0  # units are records, or clients that keep nothing
    # What is found from the budget decides nothing of what units keep.
    config = dataclasses.replace(config, sigma=config.sigma or 1.0, steps=config.steps or 1)
    return int(share * _state_bytes(method, config, preset.spec))


@functools.cache
def _state_bytes(method: str, config: Any, spec: Spec) -> int:
    """Return the bytes of the state of a configuration's units, which is built and not run."""
    built = methods.get(method).build(config, spec, Runtime(moments=MOMENTS))
    return capacity.state_bytes(built) if capacity.keeps_state(built) else 0


def text(row: Row, memory: float = math.inf) -> str:
    """Return what a row needs in words, as "18 GB"; "52 GB: disk" where the memory is smaller.

    Args:
      row: The row.
      memory: The bytes of memory that there are; nothing is marked if left out.
    """
    needed = state_bytes(row)
    if needed < LEAST:
        return ""
    return f"{needed / 1e9:.0f} GB" + ": disk" * (needed > memory)


def explained(memory: float) -> str:
    """Return the line below a list that says what `text` means.

    Args:
      memory: The bytes of memory that there are.
    """
    return ("memory: what teachers or critics keep, with records and a step on top; the disk holds "
            f"up to two checkpoints of as much. disk: more than the {memory / 1e9:.0f} GB here, so "
            "run it with --state disk, which keeps it on the disk too")
