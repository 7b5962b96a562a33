"""The public side of noisy tables: it learns from each release, and chooses the next tables.

Noisy histograms of numbers are smoothed to steps: neighbouring cells are alike where noise hides
any difference. Of a range with generous bounds most cells are empty, and the positive noise of
hundreds of them adds up, far from where any record is. So the cells are cut into dyadic pieces of
one height each. The cut is the one of least squares with a price for each piece, found exactly from
the smallest pieces up.

Source: dyadic CART, Donoho, "CART and best-ortho-basis: a connection" (Annals of Statistics 1997).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, CountTable
from dpgen_jax.methods.shared import table_tree, table_zoom
from dpgen_jax.methods.shared.table_plan import COARSE, Plan, Public
from dpgen_jax.methods.shared.table_tree import FLOOR, Fit

PRICE = 4.0
"""The price of a piece, in variances of the noise of a cell: what a cut must explain to be made."""


def of_steps(noisy: Array, is_range: Array, noise: float) -> Array:
    """Returns noisy masses with the cells of a range in pieces of one height; others as they are.

    Args:
        noisy: float32 [d, W], noisy masses of cells.
        is_range: bool [d, W], the cells of ranges, which stand first in their column.
        noise: standard deviation of the noise of a cell.
    """
    width = noisy.shape[1]
    behind = ((0, 0), (0, (1 << (width - 1).bit_length()) - width))
    cells = jnp.pad(is_range.astype(jnp.float32), behind)
    total = jnp.pad(jnp.where(is_range, noisy, 0), behind)
    price = PRICE * noise**2

    def explained(total: Array, cells: Array) -> Array:
        return jnp.where(cells > 0, total**2 / jnp.maximum(cells, 1) - price, 0)

    best, height = explained(total, cells), total[..., None]
    while total.shape[1] > 1:
        total, cells, apart = (a.reshape(len(a), -1, 2).sum(2) for a in (total, cells, best))
        whole = explained(total, cells)
        mean = (total / jnp.maximum(cells, 1))[..., None]
        height = jnp.where((whole >= apart)[..., None], mean, height.reshape(*total.shape, -1))
        best = jnp.maximum(whole, apart)
    return jnp.where(is_range, height[:, 0, :width], noisy)


EXACT = 1 - 1e-5
"""The factor that keeps squared weights of a message within the bound, whatever float32 does."""
EVEN = 0.1
"""The share of the bins of a range that is of equal widths: the empty end of a range is a bin of
its own, which later steps count, and not a part of the last bin with records."""
DEVIATIONS = 1.0
"""Standard deviations of noise that a pair must stand out by to become an edge."""


def start_rounds(fit: Fit, keeps_pairs: bool = False) -> Public:
    """Returns the public state before the first release.

    Args:
        keeps_pairs: whether the tables of all pairs are kept after a tree is chosen.
    """
    p = fit.plan
    d, classes, size = p.d, p.classes, p.groups
    # Behind the barrier it is no constant to the compiler, which would sort it while compiling.
    fine = jax.lax.optimization_barrier(
        jnp.asarray(p.grid.real / p.grid.sizes[:, None], jnp.float32))
    bin_of = fit.parts(fine, p.bins)
    return Public(
        step=jnp.int32(0), label=jnp.zeros(classes), label_precision=jnp.float32(0), fine=fine,
        bin_of=bin_of, coarse_of=fit.parts(fine, COARSE),
        label_of=jnp.minimum(jnp.arange(classes), COARSE - 1).astype(jnp.int32),
        group_of=fit.group_of(fine, bin_of).astype(jnp.int32), parent=jnp.full(d, -1, jnp.int32),
        order=jnp.arange(d, dtype=jnp.int32), beside=jnp.ones(d),
        weights=table_weights(p, jnp.ones(d), jnp.zeros(d)), joint=jnp.zeros((d, classes, p.bins)),
        joint_precision=jnp.zeros(d), edge=jnp.zeros((d, p.edge_classes, size, size)),
        edge_precision=jnp.zeros(d), rare_precision=jnp.float32(0) if p.with_rare else None,
        pairs=jnp.zeros((len(p.couples), COARSE, COARSE)) if keeps_pairs and p.pairs else None,
        **_cells(p))


def _cells(p: Plan) -> dict[str, Array]:
    """Returns the cells before the first release, where they are to follow the counts."""
    if not (p.follows and p.histograms):
        return {}
    return dict(zip(("start", "width"), map(jnp.asarray, p.grid.ends), strict=True))


def table_weights(p: Plan, beside: Array, edges: Array) -> Array:
    """Returns the weights of the votes of a step of tables, int32 [2 d].

    Args:
        beside: [d], what the table of each column and the class gets, in shares of any sum.
        edges: [d], likewise its edge.
    """
    def parts(shares: Array, of_all: float | Array) -> Array:
        return of_all * shares / jnp.maximum(shares.sum(), 1e-9)

    share = jnp.concatenate([beside, edges])
    if p.pairs and not p.with_label:
        joint = jnp.where(edges.sum() > 0, p.joint_share, 1.0)
        share = jnp.concatenate([parts(beside, joint), parts(edges, 1 - joint)])
    share = share / jnp.maximum(share.sum(), 1e-9)
    return jnp.floor(jnp.sqrt(share * (p.limit * EXACT))).astype(jnp.int32)


def after_histograms(fit: Fit, public: Public, counts: Array) -> Public:
    """Takes in the histograms: noise is smoothed, and bins of equal mass are made."""
    p = fit.plan
    if not p.histograms:
        return public
    noisy = counts[:(p.d + 1) * p.widest].reshape(p.d + 1, p.widest) / p.first_weight / p.records
    cells = noisy[:p.d, :p.grid.widest]
    is_range = jnp.asarray(p.grid.is_range)
    smooth = of_steps(cells, is_range, p.first_noise / p.records)
    fine = table_tree.simplex(jnp.where(p.grid.real, smooth, -jnp.inf)) + FLOOR * p.grid.real
    even = is_range / jnp.maximum(is_range.sum(1, keepdims=True), 1)
    if public.start is not None:
        noise = p.first_noise / p.records
        start, width, fine = table_zoom.cut(p.grid, fine, noise)
        fine = table_zoom.without_empty(p.grid, fine, width, noise)
        public = dataclasses.replace(public, start=start, width=width)
        even = jnp.where(table_zoom.follows(p.grid)[:, None], is_range * width, even)
    bin_of = fit.parts((1 - EVEN) * fine + EVEN * even, p.bins)
    precision = jnp.float32(p.first_class_weight**2)
    label = noisy[p.d, :p.classes] * (p.first_weight / p.first_class_weight)
    rank = jnp.argsort(jnp.argsort(-label))
    return dataclasses.replace(
        public, fine=fit.inside(fine, cells, bin_of), bin_of=bin_of,
        coarse_of=fit.parts(fine, COARSE),
        group_of=fit.group_of(fine, bin_of).astype(jnp.int32), label_precision=precision,
        label=label * precision * p.records,
        label_of=jnp.minimum(rank, COARSE - 1).astype(jnp.int32))


def after_pairs(fit: Fit, public: Public, counts: Array) -> Public:
    """Takes in the tables of all pairs: a tree is chosen by what the model lacks so far."""
    p = fit.plan
    if not p.pairs:
        return public
    number = len(p.couples)
    weight = p.weight(p.pair_share, number)
    tables = counts[:number * COARSE**2].reshape(number, COARSE, COARSE) / weight / p.records
    voters: Array | float = 1.0
    if not p.with_label:
        public = with_joint(fit, public, counts[number * COARSE**2:],
                            jnp.full(p.d, p.weight(1 - p.pair_share, p.d)))
        share, _, cond = fit.columns(public)
        share, voters = fit.paired(public, share)
        tables = tables / voters
        coarse = fit.coarse(public, cond)
        first, second = coarse[p.couples[:, 0]], coarse[p.couples[:, 1]]
        known = jnp.einsum("c,pca,pcb->pab", share, first, second)
    else:
        known = tables.sum(2)[:, :, None] * tables.sum(1)[:, None]
    if public.pairs is not None:
        public = dataclasses.replace(public, pairs=tables)
    spread = (fit.noise(jnp.float32(weight**2)) / voters)**2
    score = jnp.sum((tables - known)**2, (1, 2)) - spread * (
        COARSE**2 + DEVIATIONS * (2 * COARSE**2)**0.5)
    nodes = p.d + p.with_label
    scores = jnp.full((nodes, nodes), -jnp.inf).at[p.couples[:, 0], p.couples[:, 1]].set(score)
    return with_tree(p, public, jnp.maximum(scores, scores.T))


def with_tree(p: Plan, public: Public, scores: Array) -> Public:
    """Returns the state with the heaviest forest of these scores."""
    if p.with_label:  # the class is the root of a tree, and a table with it an edge
        turned = jnp.roll(jnp.roll(scores, 1, 0), 1, 1)
        parent, order = (a - 1 for a in table_tree.spanning(turned))
        beside = (parent[1:] == -1).astype(jnp.float32)
        parent, order = jnp.maximum(parent[1:], -1), order[1:]
    else:
        parent, order = table_tree.spanning(scores)
        beside = jnp.ones(p.d)
    edges = (parent >= 0).astype(jnp.float32)
    return dataclasses.replace(public, parent=parent, order=order, beside=beside,
                               weights=table_weights(p, beside, edges))


def with_joint(fit: Fit, public: Public, counts: Array, weight: Array) -> Public:
    """Adds noisy counts of columns with the class; the votes had these weights, int [d]."""
    tables = counts[:public.joint.size].reshape(public.joint.shape)
    weight = weight.astype(jnp.float32)
    of_class, rare_precision = weight[:, None], public.rare_precision
    if rare_precision is not None:
        rare = jnp.float32(fit.plan.rare_weight)
        of_class = jnp.where(fit.rare(public), rare, of_class)
        rare_precision = rare_precision + rare**2
    return dataclasses.replace(public, joint=public.joint + tables * of_class[..., None],
                               joint_precision=public.joint_precision + weight**2,
                               rare_precision=rare_precision)


def after_tables(fit: Fit, public: Public, counts: Array) -> Public:
    """Takes in the tables of columns with the class, and of the tree's edges."""
    p = fit.plan
    weight = public.weights.astype(jnp.float32)
    public = with_joint(fit, public, counts, weight[:p.d])
    if not p.pairs:
        return public
    edges = counts[public.joint.size:][:public.edge.size].reshape(public.edge.shape)
    return dataclasses.replace(
        public, edge=public.edge + edges * weight[p.d:, None, None, None],
        edge_precision=public.edge_precision + weight[p.d:]**2)


def count_tables(plan: Plan, model: Mapping[str, Any], steps: int) -> tuple[CountTable, ...]:
    """Returns the released tables, and how noisy their counts are.

    Where the class is a column like any other, the model does not show which columns without a
    parent have a table with it: they are one row, whose noise is an upper bound, as it depends on
    their number. So is that of a column with the class: the counts of rare classes are less noisy.
    Rare classes are in no table of a pair.

    Args:
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
    weights = np.asarray(table_weights(
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
