"""From noisy tables to the arrays of a tree: public, on released counts alone.

Noisy counts are averaged by their precision, brought to masses that are possible, and shrunk where
they say no more than noise does, towards what the tables above them say: columns beside the class
as `table_prior` has it, edges by the positive part of James and Stein's factor ("Estimation with
Quadratic Loss", 1961).
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array
from dpgen_jax.methods.shared import table_prior
from dpgen_jax.methods.shared.table_plan import COARSE, Plan
from dpgen_jax.methods.shared.table_state import Public
from dpgen_jax.methods.shared.tree import Model, fitted, simplex

FLOOR = 1e-9
LEAST = 0.02
"""The least mass of a class in a bin, in parts of what it has if it is like all."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """The estimates of a plan, as functions of the public state."""

    plan: Plan

    def noise(self, precision: Array) -> Array:
        """Standard deviation of a mass, from the squared weights behind it."""
        plan = self.plan
        unit = math.sqrt(2 * plan.limit) * plan.sigma / plan.records
        return jnp.where(precision > 0, unit / jnp.sqrt(jnp.maximum(precision, 1e-6)), 1e3)

    def masses(self, total: Array, precision: Array) -> Array:
        """Averages noisy counts, as shares of all records."""
        precision = precision.reshape(precision.shape + (1,) * (total.ndim - precision.ndim))
        return total / jnp.maximum(precision, 1e-6) / self.plan.records

    def binned(self, masses: Array, bin_of: Array, size: int) -> Array:
        """Sums masses [d, W] over bins: [d, size]."""
        rows = jnp.arange(len(masses))[:, None]
        return jnp.zeros((len(masses), size)).at[rows, bin_of].add(masses)

    def parts(self, masses: Array, most: int) -> Array:
        """Returns the bin of each cell, int32 [d, W] < most.

        Adjacent cells of about equal mass together, null and special values apart where there is
        room; of categories the largest apart and the rest together. Few cells are kept.
        """
        grid = self.plan.grid
        number = jnp.where(grid.is_apart, 0, masses)
        middle = jnp.cumsum(number, 1) - number / 2
        room = np.maximum(most - grid.apart, 1)[:, None]
        equal = jnp.floor(middle / (number.sum(1, keepdims=True) + FLOOR) * room)
        few = (grid.sizes <= most)[:, None]
        cells = np.arange(grid.widest)
        behind = cells - grid.inside[:, None] + room
        equal = jnp.where(grid.is_apart, behind, jnp.clip(equal, 0, room - 1))
        rank = jnp.argsort(jnp.argsort(-jnp.where(grid.real, masses, -1), 1), 1)
        whole = jnp.where(grid.category[:, None], jnp.minimum(rank, most - 1), equal)
        return jnp.minimum(jnp.where(few, cells, whole), most - 1).astype(jnp.int32)

    def inside(self, masses: Array, noisy: Array, bin_of: Array) -> Array:
        """Returns the masses of cells, with neighbours of one bin alike where noise hides them.

        Of thousands of codes most have less than the noise of a cell, which alone would choose
        those that are ever drawn. Masses of bins stay, and other columns are as they were.

        Args:
            masses: [d, W], of sum 1.
            noisy: [d, W], the noisy masses that they are made of.
            bin_of: int32 [d, W].
        """
        plan = self.plan
        codes = np.array([column.written == "codes" for column in plan.spec.columns])
        if not codes.any():
            return masses
        rows, real = np.arange(plan.d)[:, None], jnp.asarray(plan.grid.real, jnp.float32)

        def summed(cells: Array) -> Array:
            return self.binned(cells * real, bin_of, plan.bins)[rows, bin_of]

        cells = jnp.maximum(summed(jnp.ones_like(masses)), 1)
        beyond = noisy - summed(noisy) / cells
        kept = shrunk(summed(beyond**2), (cells - 1) * (plan.first_noise / plan.records)**2)
        total = summed(masses)
        alike = jnp.maximum(total / cells + kept * beyond, 0) * real + FLOOR * real
        return jnp.where(codes[:, None], alike * total / summed(alike), masses)

    def group_of(self, masses: Array, bin_of: Array) -> Array:
        """Returns the group of each bin, int32 [d, B]: that of its first cell."""
        rows = jnp.arange(len(masses))[:, None]
        real, least = self.plan.grid.real, self.parts(masses, self.plan.groups)
        first = jnp.full((len(masses), self.plan.bins), self.plan.groups - 1)
        return first.at[rows, bin_of].min(jnp.where(real, least, self.plan.groups - 1))

    def rare(self, public: Public) -> Array:
        """Whether a class is rare, bool [C], by the histogram of the first step alone.

        They are the rarest ones, of together at most `rare_share` of the records, and never all.
        """
        label = simplex(self.masses(public.label, public.label_precision))
        order = jnp.argsort(label)
        among = jnp.cumsum(label[order]) <= self.plan.rare_share
        return among.at[-1].set(False)[jnp.argsort(order)]

    def paired(self, public: Public, share: Array) -> tuple[Array, Array | float]:
        """Returns the shares of classes in the tables of pairs, [C], and the share that is in them.

        Args:
            public: the public state.
            share: [C], the shares of the classes.
        """
        if not self.plan.with_rare:
            return share, 1.0
        share = jnp.where(self.rare(public), 0, share)
        return share / share.sum(), share.sum()

    def precision(self, public: Public) -> Array:
        """Returns the precisions of the tables beside the classes, [d, C]."""
        precision = jnp.broadcast_to(public.joint_precision[:, None], public.joint.shape[:2])
        if public.rare_precision is None:
            return precision
        return jnp.where(self.rare(public), public.rare_precision, precision)

    def shares(self, public: Public) -> Array:
        """Returns the shares of the classes, [C], none of them below half a record."""
        plan, of_joint = self.plan, self.precision(public)
        precision = 1 / (plan.bins * self.noise(of_joint)**2 + FLOOR)
        of_label = 1 / (self.noise(public.label_precision)**2 + FLOOR)
        label = self.masses(public.label, public.label_precision)
        masses = self.masses(public.joint, of_joint).sum(2)
        total = of_label * label + (precision * masses).sum(0)
        share = simplex(total / (of_label + precision.sum(0)))
        share = jnp.maximum(share, 0.5 / plan.records)
        return share / share.sum()

    def columns(self, public: Public) -> tuple[Array, Array, Array]:
        """Returns the shares of the classes [C], and the bins of columns: [d, B] and [d, C, B].

        The last are conditional on the class, and agree with both others.
        """
        plan = self.plan
        precision = self.precision(public)
        share, masses = self.shares(public), self.masses(public.joint, precision)
        noise = self.noise(precision)
        total = self._totals(public, masses, noise)

        base = share[:, None] * total[:, None]
        exists, spread = (total > 0)[:, None], self._spread(public, noise, share)
        beyond = table_prior.expected((masses - base) * exists, spread, share, total,
                                      self._is_number(public))
        table = jnp.maximum(base + beyond, LEAST * base) + FLOOR
        table = fitted(table, jnp.broadcast_to(share, (plan.d, plan.classes)), total)
        return share, total, table / table.sum(2, keepdims=True)

    def _totals(self, public: Public, masses: Array, noise: Array) -> Array:
        """Masses of the bins of each column, [d, B]: of histograms and of tables, by precision."""
        plan = self.plan
        total = self.binned(public.fine, public.bin_of, plan.bins)
        if plan.histograms:
            first, second = self._precisions(public, noise)
            total = (total * first + masses.sum(1) * second) / (first + second)
        else:
            total = jnp.where((noise < 100).all(1, keepdims=True), masses.sum(1), total)
        exists = self.binned(jnp.asarray(plan.grid.real, jnp.float32), public.bin_of, plan.bins) > 0
        total = simplex(jnp.where(exists, total, -jnp.inf)) + FLOOR * exists
        return total / total.sum(1, keepdims=True)

    def _precisions(self, public: Public, noise: Array) -> tuple[Array, Array]:
        """The precisions of bins: by histograms [d, B], and by tables beside the class [d, 1]."""
        plan = self.plan
        cells = self.binned(jnp.asarray(plan.grid.real, jnp.float32), public.bin_of, plan.bins)
        unit = plan.first_noise / plan.records
        return (1 / (jnp.maximum(cells, 1) * unit**2 + FLOOR**2),
                1 / (jnp.sum(noise**2, 1, keepdims=True) + FLOOR**2))

    def _spread(self, public: Public, noise: Array, share: Array) -> Array:
        """Standard deviation of a mass of a class less its share of all, [d, C].

        The masses of all are partly the sum over classes, whose noise is taken off with them.
        """
        part = jnp.ones((self.plan.d, 1))
        if self.plan.histograms:
            first, second = self._precisions(public, noise)
            part = jnp.mean(second / (first + second), 1, keepdims=True)
        taken, variance = share * part, noise**2
        others = taken**2 * (variance.sum(1, keepdims=True) - variance)
        return jnp.sqrt((1 - taken)**2 * variance + others)

    def _is_number(self, public: Public) -> Array:
        """Whether a bin is a part of a range, bool [d, B]: no category, null or special value."""
        grid = self.plan.grid
        ranges = grid.real & ~grid.is_apart & ~grid.category[:, None]
        counted = [self.binned(jnp.asarray(cells, jnp.float32), public.bin_of, self.plan.bins)
                   for cells in (ranges, grid.is_apart)]
        return (counted[0] > 0) & (counted[1] == 0)

    def edges(self, public: Public, share: Array, cond: Array) -> Array:
        """Returns, of a column's bins given class and group of the parent, [d, C, G, B]."""
        plan = self.plan
        size = plan.groups
        grouped = jax.vmap(lambda c: self.binned(c, public.group_of, size), 1, 1)(cond)
        rows = grouped[public.parent]
        free = rows[..., None] * grouped[:, :, None]  # independent, given the class
        paired, voters = self.paired(public, share)
        counted = self.masses(public.edge, public.edge_precision) / voters
        noise = self.noise(public.edge_precision)[:, None, None, None] / voters
        pooled = self._pooled(counted, free, paired, noise[:, 0], rows, grouped)
        if plan.edge_classes > 1:
            wide = jnp.maximum(paired, FLOOR)[:, None, None]
            sized = counted / wide
            spread = (noise / wide)**2 * size**2
            factor = shrunk(jnp.sum((sized - pooled)**2, (2, 3), keepdims=True), spread)
            factor = jnp.where(paired[:, None, None] > 0, factor, 0)
            flat = jax.vmap(jax.vmap(simplex))(sized.reshape(*sized.shape[:2], -1))
            pooled = factor * flat.reshape(sized.shape) + (1 - factor) * pooled
        t = fitted(0.99 * pooled + 0.01 * free + FLOOR, rows, grouped)
        t = t / jnp.maximum(t.sum(3, keepdims=True), 1e-12)  # P(group | class, parent's group)
        inside = jnp.take_along_axis(grouped, public.group_of[:, None].repeat(plan.classes, 1), 2)
        within = cond / jnp.maximum(inside, 1e-12)  # P(bin | class, group)
        place = public.group_of[:, None, None].repeat(plan.classes, 1).repeat(size, 2)
        table = jnp.take_along_axis(t, place, 3) * within[:, :, None]
        alone = jnp.broadcast_to(cond[:, :, None], table.shape)
        return jnp.where((public.parent < 0)[:, None, None, None], alone, table)

    def edge_masses(self, public: Public, share: np.ndarray, expected: np.ndarray) -> Array:
        """Returns noisy masses of the tree's edges, [d, E, G, G], of all records.

        Args:
            public: the public state.
            share: [C], the shares of the classes.
            expected: [d, C, G, G], masses in parts of a class: they stand for those of rare
                classes, which do not vote for edges.
        """
        counted = self.masses(public.edge, public.edge_precision)
        paired, voters = self.paired(public, jnp.asarray(share))
        if self.plan.edge_classes == 1:
            return counted / voters
        return jnp.where(paired[:, None, None] > 0, counted, share[:, None, None] * expected)

    def _pooled(self, counted: Array, free: Array, share: Array, noise: Array, rows: Array,
                grouped: Array) -> Array:
        """The table of an edge over all classes, shrunk, with the margins of each class."""
        over = jnp.einsum("c,dcgh->dgh", share, free)
        both = counted.sum(1)
        spread = self.plan.edge_classes * self.plan.groups**2 * noise**2
        factor = shrunk(jnp.sum((both - over)**2, (1, 2), keepdims=True), spread)
        flat = simplex(both.reshape(len(both), -1)).reshape(both.shape)
        mixed = factor * flat + (1 - factor) * over
        # Of each class what it would have of its own margins, times what the pair is beyond them.
        beyond = (mixed + FLOOR) / (over + FLOOR)
        return fitted(free * beyond[:, None] + FLOOR, rows, grouped)

    def model(self, public: Public) -> Model:
        """Returns the arrays of `methods.shared.tree`."""
        share, _, cond = self.columns(public)
        start, width = map(jnp.asarray, self.plan.grid.ends)
        return {"share": share, "table": self.edges(public, share, cond), "parent": public.parent,
                "order": public.order, "bin_of": public.bin_of, "group_of": public.group_of,
                "fine": public.fine, "start": start, "width": width}

    def coarse(self, public: Public, cond: Array) -> Array:
        """Returns bins given the class as the groups of the pairs' tables: [d, C, 4]."""
        nodes = jnp.arange(self.plan.d)[:, None]
        mass = self.binned(public.fine, public.bin_of, self.plan.bins)
        inside = public.fine / jnp.maximum(mass[nodes, public.bin_of], 1e-12)
        cells = jnp.take_along_axis(cond, public.bin_of[:, None].repeat(self.plan.classes, 1), 2)
        return jax.vmap(lambda of: self.binned(of * inside, public.coarse_of, COARSE), 1, 1)(cells)


def shrunk(distance: Array, spread: Array) -> Array:
    """Returns the share of a noisy deviation that is kept.

    Args:
        distance: squared distance of noisy masses from what they are shrunk to.
        spread: what noise alone would make of it, on average.
    """
    return jnp.clip(1 - spread / jnp.maximum(distance, 1e-20), 0, 1)
