"""The memory that a run needs, from shapes alone, as a line before it begins."""

from __future__ import annotations

import math

import numpy as np

from dpgen_jax.core.terms import Unit
from dpgen_jax.run import capacity
from dpgen_jax.run.planning import Plan


def memory(plan: Plan) -> str:
    """Returns what lies in memory in a run; what a compiled step takes beside it comes on top.

    Args:
        plan: The plan of the run.
    """
    spec, counts = plan.spec, plan.protected.counts
    parts = {"the state of units": capacity.state_bytes(plan.method),
             "a sum with its noise": capacity.sum_bytes(plan.method),
             "the public side": capacity.public_bytes(plan.method)}
    if plan.protected.unit == Unit.RECORD:  # of others the number of records is private
        parts["records"] = counts["records"] * math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    listed = ", ".join(f"{_size(count)} for {name}" for name, count in parts.items())
    return f"memory: {listed}, of {_size(capacity.memory())}"


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 1) / 1e6:.1f} MB"
