"""The memory that a run needs, from shapes alone, as a line before it begins."""

from __future__ import annotations

import math

import numpy as np

from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Method, Spec
from dpgen_jax.private import teachers
from dpgen_jax.run import capacity
from dpgen_jax.run.planning import Plan

DEALT = "records as dealt"
COPIES = 2
"""of records of which it is not known whether they lie in mapped files: as read and as dealt"""
SMALLEST = 5e4
"""The fewest bytes of a part that is named: what is shown as 0.0 MB tells nobody anything."""
BESIDE = "a gigabyte or so of programs, reading and writing"
"""The memory that shapes do not say; `benchmarks.large_table` measures it for `marginals`."""


def memory(plan: Plan) -> str:
    """Returns what lies in memory in a run; what a compiled step takes beside it comes on top.

    Args:
        plan: The plan of the run.
    """
    where = plan.request.runtime.state
    state = capacity.state_bytes(plan.method)
    slabs = capacity.SLABS * plan.layout.slab * teachers.unit_bytes(plan.method)
    in_memory = {"device": {"the state of units": state},
                 "host": {"the state of units, of the host's": state,
                          "the units that are read, computed and written": slabs},
                 "disk": {"the units that are read, computed and written": slabs}}[where]
    parts = {**in_memory,
             "a sum with its noise": capacity.sum_bytes(plan.method),
             "the public side": capacity.public_bytes(plan.method)}
    if plan.protected.unit == Unit.RECORD:  # of others the number of records is private
        parts |= {"records as read": plan.in_memory.read, DEALT: plan.in_memory.dealt,
                  "records on each device": plan.in_memory.on_device}
    listed = ", ".join(f"{_size(count)} for {name}" for name, count in parts.items()
                       if count >= SMALLEST or name == DEALT)
    return (f"memory: {listed or 'less than 0.1 MB'}, beside {BESIDE}, of "
            f"{_size(capacity.memory())}{_saved(plan)}")


def supposed(method: Method, spec: Spec, records: int) -> str:
    """Returns what lies in memory in a run whose plan is not known yet, in all.

    Args:
        method: The method, built.
        spec: The schema of the records.
        records: Their number.
    """
    return _size(capacity.state_bytes(method) + capacity.sum_bytes(method)
                 + capacity.public_bytes(method) + COPIES * _records(spec, records))


def _records(spec: Spec, n: int) -> int:
    """The bytes of n records."""
    return n * math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


def _saved(plan: Plan) -> str:
    """Says what checkpoints take, and the state where it lies on the disk."""
    where, waits = plan.request.runtime.state, "; the training waits for its checkpoints"
    if where == "device" and capacity.copy_fits(plan.method):
        return ", and as much as the state while a checkpoint is written beside the training"
    if where == "device":
        return f"{waits}, as a copy of the state does not fit"
    on_disk = (f"; disk: {_size(capacity.state_bytes(plan.method))} for the state of units, and as "
               f"much for each checkpoint, of {_size(capacity.disk(plan.files.root))}")
    return on_disk * (where == "disk") + waits


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 1) / 1e6:.1f} MB"
