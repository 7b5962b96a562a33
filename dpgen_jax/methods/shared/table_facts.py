"""The released counts as arrays of NumPy: what a model beyond a tree is fitted to."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from dpgen_jax.methods.shared import junction
from dpgen_jax.methods.shared.table_plan import COARSE
from dpgen_jax.methods.shared.tree import Model
from dpgen_jax.methods.shared.tree_fit import Fit

LEAST = 3e-4
"""The least standard deviation of a mass in a fit: groups of bins are no more exact."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """The released counts, and the tree's estimates, as arrays of NumPy.

    Attributes:
        fit: the estimates of the plan.
        public: the public state, of NumPy.
        grouped: [d, C, G], P(class, group).
        within: [d, C, B], P(bin | class, group).
        edges: [d, C, G, G], P(group of the parent, group of the column | class), of the tree.
        coarse: [d, G, 4], the share of a group in the groups of the pairs' tables.
        pairs: (i, j) -> [4, 4], the noisy masses of a pair.
        pair_noise: standard deviation of each.
    """

    fit: Fit
    public: Any
    grouped: np.ndarray
    within: np.ndarray
    edges: np.ndarray
    coarse: np.ndarray
    pairs: dict[tuple[int, int], np.ndarray]
    pair_noise: float

    @classmethod
    def of(cls, fit: Fit, public: Any, model: Model) -> Facts:
        """Returns the facts of a public state and its tree."""
        p, rows = fit.plan, np.arange(fit.plan.d)[:, None]
        share, _, cond = map(np.asarray, jax.jit(fit.columns)(public))
        grouped = np.zeros((p.d, p.classes, p.groups))
        np.add.at(grouped, (rows[..., None], np.arange(p.classes)[:, None],
                            public.group_of[:, None]), cond)
        inside = np.take_along_axis(grouped, public.group_of[:, None].repeat(p.classes, 1), 2)
        group = np.take_along_axis(public.group_of, public.bin_of, 1)
        coarse = np.full((p.d, p.groups, COARSE), 1e-12)
        np.add.at(coarse, (rows, group, public.coarse_of), public.fine)
        table = junction.split(np.asarray(model["table"], np.float64), model)[:, :, :, 0]
        below = np.zeros((*table.shape[:3], p.groups))  # P(group | class, parent's group)
        np.add.at(below.transpose(0, 3, 1, 2), (rows, public.group_of), table.transpose(0, 3, 1, 2))
        noise = fit.noise(jax.numpy.float32(p.weight(p.pair_share, len(p.couples))**2))
        both = zip(map(tuple, p.couples.tolist()), np.asarray(public.pairs), strict=True)
        return cls(fit, public, grouped * share[:, None], cond / np.maximum(inside, 1e-12),
                   grouped[public.parent][..., None] * below,
                   coarse / coarse.sum(-1, keepdims=True), dict(both), max(float(noise), LEAST))

    @functools.cached_property
    def grouped_noise(self) -> np.ndarray:
        """Standard deviations of the masses of `grouped`, [d].

        The estimates of columns, of histograms too, are surer than their tables beside the class.
        """
        p = self.fit.plan
        joint = np.maximum(np.asarray(self.fit.noise(self.public.joint_precision), float), LEAST)
        widths = np.array([len(np.unique(row)) for row in self.public.group_of])
        return np.minimum(joint, p.first_noise / p.records + LEAST) * np.sqrt(p.bins / widths)

    @functools.cached_property
    def edge_masses(self) -> np.ndarray:
        """Noisy masses of the tree's edges, [d, E, G, G], as `Fit.edge_masses` has them."""
        share = self.grouped[0].sum(1)
        return np.asarray(self.fit.edge_masses(self.public, share, self.edges), float)

    @functools.cached_property
    def edge_noise(self) -> np.ndarray:
        """Standard deviations of the masses of edges, [d]."""
        return np.maximum(np.asarray(self.fit.noise(self.public.edge_precision), float), LEAST)

    def pair(self, i: int, j: int) -> np.ndarray:
        """Returns the noisy masses of a pair, [4, 4]."""
        return self.pairs[i, j] if i < j else self.pairs[j, i].T

    def expected(self, node: int, other: int) -> np.ndarray:
        """Returns the masses of a column and a neighbour of its parent, by the tree: [4, 4]."""
        parent = self.public.parent[node]
        near = self.edges[node]  # [C, parent, node]
        far = (self.edges[parent].swapaxes(1, 2) if self.public.parent[parent] == other
               else self.edges[other])  # [C, parent, other]
        middle = np.maximum(near.sum(2), 1e-12)
        share = self.grouped[node].sum(1)
        both = np.einsum("c,cpo,cpn->on", share, far / middle[..., None], near)
        return self.coarse[other].T @ both @ self.coarse[node]
