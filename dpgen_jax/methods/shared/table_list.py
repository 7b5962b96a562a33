"""The list of the noisy tables that a release was made of: a function of public values alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import CountTable
from dpgen_jax.methods.shared import table_rounds
from dpgen_jax.methods.shared.table_plan import COARSE, Plan


def count_tables(plan: Plan, model: Mapping[str, Any], steps: int) -> tuple[CountTable, ...]:
    """Returns the tables that were asked for, and how noisy their counts came.

    Where the class is a column like any other, the model does not say which columns without a
    parent have a table beside it: they are one row, and the noise of what follows from how many
    there are is what it is at most. So is that of a column beside the class, of whose rare classes
    the counts come less noisy; rare classes are in no table of a pair.

    Args:
        plan: the plan of the run.
        model: the released arrays, of which `parent` is read.
        steps: releases that were made.
    """
    return tuple(_listed(plan, np.asarray(model["parent"]), plan.kinds[:steps]))


def _listed(plan: Plan, parent: np.ndarray, kinds: tuple[int, ...]) -> Iterator[CountTable]:
    """Yields the tables, in the order of the steps."""
    names = [column.name for column in plan.spec.columns]
    without = ", without rare classes" if plan.with_rare else ""
    label = [plan.spec.label.name] if plan.spec.labelled else []
    unit, sizes = math.sqrt(2 * plan.limit) * plan.sigma, plan.grid.sizes.tolist()
    if 0 in kinds:
        for name, size in zip(names, sizes, strict=True):
            yield CountTable(name, size, 1, unit / plan.first_weight)
        for name in label:
            yield CountTable(name, plan.classes, 1, unit / plan.first_class_weight)
    precision = np.zeros(2 * plan.d)
    if 1 in kinds:
        number = len(plan.couples)
        yield CountTable(f"all {number:,} pairs of columns, coarse{without}", COARSE**2, 1,
                         unit / plan.weight(plan.pair_share, number))
        if not plan.with_label:
            precision[:plan.d] = plan.weight(1 - plan.pair_share, plan.d)**2
    edges, rounds = parent >= 0, kinds.count(2)
    beside = ~edges if plan.with_label else np.ones(plan.d, bool)
    weights = np.asarray(table_rounds.weights(
        plan, jnp.asarray(beside, jnp.float32), jnp.asarray(edges, jnp.float32)), np.float64)
    precision += rounds * weights**2
    noise = [unit / math.sqrt(one) if one else math.inf for one in precision]
    earlier = int(1 in kinds and not plan.with_label)
    if plan.with_label:
        if label and rounds and beside.any():
            yield CountTable(f"{label[0]} beside columns of no parent", plan.classes * plan.bins,
                             rounds, noise[int(np.argmax(beside))])
        beside &= False
    for i in np.flatnonzero(beside & (precision[:plan.d] > 0)):
        yield CountTable(", ".join([names[i], *label]), plan.classes * min(plan.bins, sizes[i]),
                         rounds + earlier, noise[i])
    for i in np.flatnonzero(edges & (precision[plan.d:] > 0)):
        apart = label if plan.edge_classes > 1 else []
        yield CountTable(", ".join([names[parent[i]], names[i], *apart]) + without,
                         plan.edge_classes * plan.groups**2, rounds, noise[plan.d + i])
