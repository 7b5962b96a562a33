"""Columns beside a class, of which each has at most two parents: evidence is passed up exactly.

Both parents of a column are neighbours of each other, so the columns with their parents and the
class are the cliques of a junction tree, and one pass from the leaves to the roots is exact. A tree
is the case of one parent.

Source: Lauritzen and Spiegelhalter, "Local Computations with Probabilities on Graphical Structures"
(1988).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

PARENTS = ("parent", "second")
"""The arrays of a model that name parents; a tree has the first alone."""


@dataclasses.dataclass(frozen=True)
class Structure:
    """The parents of columns.

    Attributes:
        parent: int [d], -1 for a root.
        second: int [d], the other parent, a neighbour of the first; -1: there is none.
        order: int [d], columns, each behind its parents.
        group_of: int [d, B], the group of each bin.
    """

    parent: np.ndarray
    second: np.ndarray
    order: np.ndarray
    group_of: np.ndarray

    def above(self, node: int) -> tuple[int, int]:
        """Returns both parents of a column."""
        return int(self.parent[node]), int(self.second[node])


def structure(model: Mapping[str, Any]) -> Structure:
    """Returns the structure of a model.

    Args:
        model: arrays of `methods.shared.tree`.
    """
    parent = np.asarray(model["parent"])
    second = np.asarray(model.get("second", np.full_like(parent, -1)))
    return Structure(parent, second, np.asarray(model["order"]), np.asarray(model["group_of"]))


def split(table: np.ndarray, model: Mapping[str, Any]) -> np.ndarray:
    """Returns a model's table with an axis for each parent: [d, C, G, 1 or G, B]."""
    columns, classes, above, bins = table.shape
    groups = round(above**0.5) if "second" in model else above
    return table.reshape(columns, classes, groups, above // groups, bins)


def passed_up(of: Structure, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Passes factors of columns and their parents from the leaves to the roots.

    Args:
        of: the structure.
        factors: float64 [d, C, G, 1 or G, B], not negative: of the bins of a column, by class and
            groups of both parents.

    Returns:
        The sum over all columns of the product of all factors, [C]; and P(bin | class, groups of
        the parents) under that product, in the shape of the factors.
    """
    columns, classes, first, second, _ = factors.shape
    tables, upward = np.empty_like(factors), np.ones(classes)
    below = np.ones((columns, classes, first, second, first))  # of the children, by own group
    for node in of.order[::-1]:
        joint = factors[node] * below[node][..., of.group_of[node]]
        total = joint.sum(-1)  # [C, G, 1 or G]
        tables[node] = joint / np.maximum(total, 1e-300)[..., None]
        parent, other = of.above(node)
        if parent < 0:
            upward = upward * total[:, 0, 0]
        elif other < 0:
            below[parent] *= total[:, None, None, :, 0]
        elif parent in of.above(other):
            below[other] *= _lifted(total, of.above(other)[0] == parent)
        else:
            below[parent] *= _lifted(total.swapaxes(1, 2), of.above(parent)[0] == other)
    return upward, tables


def _lifted(total: np.ndarray, is_first: bool) -> np.ndarray:
    """Returns [C, G, G] of a parent's groups and a column's own as that column has them."""
    return total[:, :, None] if is_first else total[:, None]
