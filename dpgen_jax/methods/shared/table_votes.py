"""The votes of a record in each step of noisy marginals: cells of tables, and their weights.

Cells strictly increase, as `aggregation.counts.CellVotes` demands: table lies behind table.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array
from dpgen_jax.methods.shared.table_plan import COARSE, Plan
from dpgen_jax.methods.shared.table_state import Public
from dpgen_jax.methods.shared.tree_fit import Fit


def voted(p: Plan, cells: Array, weight: Array) -> Array:
    """Returns cells and weights float32 [2, V], with votes for no cell behind those that count."""
    spare = p.columns + jnp.arange(p.votes - len(cells))
    weight = jnp.concatenate([weight, jnp.zeros(len(spare), weight.dtype)])
    return jnp.stack([jnp.concatenate([cells, spare]), weight]).astype(jnp.float32)


def of_histograms(p: Plan, code: Array, label: Array) -> Array:
    """The cell of each column, and the class."""
    if not p.histograms:
        return voted(p, jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))
    cells = jnp.arange(p.d + 1) * p.widest + jnp.concatenate([code, label[None]])
    return voted(p, cells, jnp.full(p.d + 1, p.first_weight).at[-1].set(p.first_class_weight))


def of_pairs(p: Plan, code: Array, label: Array, query: Public) -> Array:
    """The coarse groups of each pair of columns; then the bin of each column beside the class."""
    if not p.pairs:
        return voted(p, jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))
    columns = np.arange(p.d)
    at = jnp.append(query.coarse_of[columns, code], query.label_of[label])[p.couples]
    number = len(p.couples)
    cells = (jnp.arange(number) * COARSE + at[:, 0]) * COARSE + at[:, 1]
    weight = jnp.full(number, p.weight(p.pair_share, number))
    if p.with_label:
        return voted(p, cells, weight)
    joint = number * COARSE**2 + joint_cells(p, code, label, query)
    weight = jnp.concatenate([weight, jnp.full(p.d, p.weight(1 - p.pair_share, p.d))])
    return voted(p, jnp.concatenate([cells, joint]), of_class(
        p, label, query, weight, jnp.where(jnp.arange(len(weight)) < number, 0, p.rare_weight)))


def of_class(p: Plan, label: Array, query: Public, weight: Array, rare: Array) -> Array:
    """Returns the weights of a record: those of its class, if that is rare by the first release."""
    return jnp.where(Fit(p).rare(query)[label], rare, weight) if p.with_rare else weight


def joint_cells(p: Plan, code: Array, label: Array, query: Public) -> Array:
    """Returns the cell of each column beside the class, int32 [d]."""
    columns = jnp.arange(p.d)
    return (columns * p.classes + label) * p.bins + query.bin_of[columns, code]


def of_tables(p: Plan, code: Array, label: Array, query: Public) -> Array:
    """The bin of each column beside the class; then its group beside that of its parent."""
    columns, cells = np.arange(p.d), joint_cells(p, code, label, query)
    if not p.pairs:
        return voted(p, cells, query.weights[:p.d])
    group = query.group_of[columns, query.bin_of[columns, code]]
    row = columns * p.edge_classes + (label if p.edge_classes > 1 else 0)
    edges = (row * p.groups + group[query.parent]) * p.groups + group
    return voted(p, jnp.concatenate([cells, p.d * p.classes * p.bins + edges]), of_class(
        p, label, query, query.weights, jnp.where(np.arange(2 * p.d) < p.d, p.rare_weight, 0)))
