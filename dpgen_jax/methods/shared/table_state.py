"""The public state of noisy tables: what was released so far, and what is asked for next."""

from __future__ import annotations

import dataclasses

import jax

from dpgen_jax.core.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: what was released, and what is asked for next.

    Attributes:
        step: int32 [], releases so far.
        label: float32 [C], noisy counts of the classes times their precision.
        label_precision: float32 [], their precision, as below.
        fine: float32 [d, W], masses of the cells, of sum 1.
        bin_of: int32 [d, W], the bin of a cell.
        coarse_of: int32 [d, W], its group in the pairs' tables.
        label_of: int32 [C], the group of a class in the pairs' tables.
        group_of: int32 [d, B], the group of a bin.
        parent: int32 [d], in the tree, or -1.
        order: int32 [d], columns, each behind its parent.
        beside: float32 [d], 1 where the table of a column and the class is asked for.
        weights: int32 [2 d], of the votes for columns beside the class, and for edges.
        joint: float32 [d, C, B], sums of noisy counts times their precision.
        joint_precision: float32 [d], the sums of their precisions: squared weights of votes.
        edge: float32 [d, E, G, G], as `joint`, of the parent's and the column's groups.
        edge_precision: float32 [d].
        rare_precision: float32 [], in place of `joint_precision` for rare classes; None: no class
            is treated as rare.
        pairs: float32 [P, 4, 4], noisy masses of all pairs, for models beyond a tree; None: not
            kept.
    """

    step: Array
    label: Array
    label_precision: Array
    fine: Array
    bin_of: Array
    coarse_of: Array
    label_of: Array
    group_of: Array
    parent: Array
    order: Array
    beside: Array
    weights: Array
    joint: Array
    joint_precision: Array
    edge: Array
    edge_precision: Array
    rare_precision: Array | None = None
    pairs: Array | None = None
