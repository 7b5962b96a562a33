"""A tree over columns and a class: fitted to noisy tables, sampled and conditioned.

The model is P(class) times, for each column, P(bin | class, group of the parent's bin), and inside
a bin the histogram of its cells. A root has no parent, and its rows are the same for every group.
Its arrays:

  share     float32 [C]           of the classes
  table     float32 [d, C, G, B]  P(bin | class, group of the parent)
  parent    int32 [d]             the parent of each column, -1 for a root
  second    int32 [d]             only of a graphical model (`methods.shared.table_models`):
                                  another parent, or -1; `table` is then [d, C, G^2, B], by both
                                  groups
  order     int32 [d]             columns, each behind its parent
  bin_of    int32 [d, W]          the bin of each cell
  group_of  int32 [d, B]          the group of each bin
  fine      float32 [d, W]        masses of the cells; only their shares in a bin count
  start, width  float32 [d, W]    of the encoded values in a cell

Evidence is passed up exactly, also where a column has two parents. Both parents of a column are
neighbours of each other, so the columns with their parents and the class are the cliques of a
junction tree, and one pass from the leaves to the roots is exact. A tree is the case of one parent.
Source: Lauritzen and Spiegelhalter, "Local Computations with Probabilities on Graphical Structures"
(1988).

The fit (`Fit`) is public, on released counts only. Noisy counts are averaged by their precision,
brought to masses that are possible, and shrunk where they show no more than noise, towards what the
tables above them give: columns with the class by an empirical Bayes estimate, edges by the positive
part of James and Stein's factor ("Estimation with Quadratic Loss", 1961).

The empirical Bayes estimate is that of the deviations of a class from all records in a column
(`expected_deviations`). Deviations and noise are taken for Gaussian. In a number the ratio of a
class's density to that of all changes smoothly with the log odds of the rank, which leaves both
tails free; each category has a ratio of its own. How far ratios lie from 1 is a mixture over a grid
of scales.

In addition the ranks of a class in a number may follow one of a few beta distributions
(`shape_cumulative`). The ranks are those of all records, so that a class like all records lies
evenly over them, and the masses of a shape in bins follow from the masses of all records. A class
that keeps to one end of a column, as frauds do, piles up in the first or the last bin, where no
smooth ratio stands out. How well shapes explain the counts is compared with how well a smooth ratio
does. Where noise hides a class in every single column, it is found by what the columns have in
common: all columns of a class share the weights of scales and shapes, which are fitted to them.
Where no column stands out of the noise, all ratios are pulled to 1; a column that does stand out
keeps its deviation.

Sources: empirical Bayes by a mixture of Gaussians of fixed scales, Stephens, "False discovery
rates: a new deal" (Biostatistics 2017), here along the principal axes of a Gaussian process, and
together with shapes; mixtures over a grid with fitted weights, Kiefer and Wolfowitz (1956) as
computed by Koenker and Mizera, "Convex optimization, shape constraints, compound decisions, and
empirical Bayes rules" (JASA 2014).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, UserError, Wanted
from dpgen_jax.methods.shared import table_zoom
from dpgen_jax.methods.shared.table_plan import COARSE, Grid, Plan, Public

PARENTS = ("parent", "second")
"""The arrays of a model that name parents; a tree has only the first."""


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
        model: arrays of `methods.shared.table_tree`.
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


Model = dict[str, Any]


def sample(grid: Grid, model: Model, key: Array, labels: Array) -> Array:
    """Draws encoded rows, each from its own label and draws.

    From `labels` int32 [N] to float32 [N, F].
    """
    columns, n = len(grid.sizes), len(labels)

    def column(bins: Array, at: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        node, key = at
        of_bin, of_cell, within = jax.random.uniform(key, (3, n))
        above = _above(model, node, bins)
        here = sampled_places(jnp.cumsum(model["table"][node], -1)[labels, above], of_bin)
        return bins.at[:, node].set(here), inside(model, node, here, of_cell, within)

    nodes = model["order"], jax.random.split(key, columns)
    _, (cells, values) = jax.lax.scan(column, jnp.zeros((n, columns), jnp.int32), nodes)
    back = jnp.argsort(model["order"])
    return grid.rows(cells[back].T, values[back].T)


def inside(model: Model, node: Array, bins: Array, of_cell: Array, within: Array
           ) -> tuple[Array, Array]:
    """Draws the cells of a column and the values in them: int32 [N] and float32 [N].

    Args:
        bins: int32 [N], the bins that were drawn.
        of_cell: [N], uniform, for the cells.
        within: [N], uniform, for the places in the cells.
    """
    among = model["bin_of"][node] == jnp.arange(model["group_of"].shape[1])[:, None]
    cell = sampled_places(jnp.cumsum(among * model["fine"][node], -1)[bins], of_cell)
    return cell, model["start"][node, cell] + within * model["width"][node, cell]


def _above(model: Model, node: Array, bins: Array) -> Array:
    """Returns the place of the parents' groups in the table of a column, int32 [N]."""
    def group(parent: Array) -> Array:
        return jnp.where(parent < 0, 0, model["group_of"][parent, bins[:, parent]])

    above = [group(model[name][node]) for name in PARENTS if name in model]
    if len(above) == 1:
        return above[0]
    return above[0] * round(model["table"].shape[2]**0.5) + above[1]


def sampled_places(cumulative: Array, uniform: Array) -> Array:
    """Draws one place of each row of cumulative masses [N, K], by uniform [N]: int32 [N]."""
    total = cumulative[:, -1]
    # A product that rounds up to the total would lie behind the last place that has any mass.
    aim = jnp.minimum(uniform * total, jnp.nextafter(total, jnp.zeros_like(total)))
    place = jnp.sum(cumulative <= aim[:, None], -1)
    return jnp.minimum(place, cumulative.shape[1] - 1).astype(jnp.int32)


def simplex(v: Array) -> Array:
    """Returns the nearest masses >= 0 of sum 1, over the last axis; entries of -inf stay 0."""
    high = -jnp.sort(-v, -1)
    over = (jnp.cumsum(jnp.where(jnp.isfinite(high), high, 0), -1) - 1) / (
        1 + jnp.arange(v.shape[-1]))
    last = jnp.maximum(jnp.sum(high > over, -1, keepdims=True) - 1, 0)
    return jnp.maximum(v - jnp.take_along_axis(over, last, -1), 0)


def fitted(tables: Array, rows: Array, columns: Array, rounds: int = 30) -> Array:
    """Returns tables [..., K, M] scaled to margins [..., K] and [..., M] in turns."""
    def once(_: Array, t: Array) -> Array:
        t = t * (rows / jnp.maximum(t.sum(-1), 1e-12))[..., None]
        return t * (columns / jnp.maximum(t.sum(-2), 1e-12))[..., None, :]

    return jax.lax.fori_loop(0, rounds, once, tables)


def spanning(weights: Array) -> tuple[Array, Array]:
    """Returns the heaviest forest whose edges all have a weight above 0, by Prim's algorithm.

    Args:
        weights: float32 [k, k], symmetric; node 0 is the first root.

    Returns:
        Parents int32 [k], -1 for a root; and the nodes in an order with each behind its parent.
    """
    k = len(weights)

    def grow(i: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, ...]:
        best, parent, order, taken = state
        node = jnp.argmax(jnp.where(taken, -jnp.inf, best))
        order, taken = order.at[i].set(node), taken.at[node].set(True)
        better = (weights[node] > best) & ~taken
        return (jnp.where(better, weights[node], best),
                jnp.where(better, node, parent), order, taken)

    # What hangs on nothing by more than 0 becomes a root of its own.
    state = (jnp.zeros(k).at[0].set(jnp.inf), jnp.full(k, -1, jnp.int32), jnp.zeros(k, jnp.int32),
             jnp.zeros(k, bool))
    _, parent, order, _ = jax.lax.fori_loop(0, k, grow, state)
    return parent, order


def conditional(grid: Grid, model: Model, wanted: Mapping[str, Wanted]) -> tuple[Model, float]:
    """Returns the model given that columns have certain values, exactly, and how likely that is.

    It is computed on the tree, in one pass from the leaves to the roots, and no record is drawn.
    What it returns is sampled as any model is: with labels drawn from its `share`.

    Args:
        wanted: what columns or the label may be, by their names.

    Returns:
        The conditional model, arrays of NumPy; and the probability of the condition, where one
        value of a continuous number counts as its cell.

    Raises:
        UserError: for a name that is no column, and for a condition that the model rules out.
    """
    model, share, weight = narrowed(grid, model, wanted)
    upward, model["table"], model["fine"] = _upward(model, weight)
    return given(model, share, upward, wanted)


def narrowed(grid: Grid, model: Model, wanted: Mapping[str, Wanted]
             ) -> tuple[Model, np.ndarray, np.ndarray]:
    """Returns a model whose cells are narrowed to a condition, and the shares that meet it.

    Args:
        model: arrays of NumPy or JAX, `start` and `width` among them.
        wanted: what columns or the label may be, by their names.

    Returns:
        The arrays, copied to NumPy; float64 [C], shares of the classes that are wanted; and
        float64 [d, W], the share of each cell that is wanted.

    Raises:
        UserError: for a name that is no column.
    """
    model = {name: np.array(array) for name, array in model.items()}
    spec = grid.spec
    names = [column.name for column in spec.columns]
    share = model["share"].astype(np.float64)
    weight = grid.real.astype(np.float64)
    for name, values in wanted.items():
        if name == spec.label.name:
            share = share * np.isin(np.arange(spec.classes), values.codes)
        elif name in names:
            i = names.index(name)
            weight[i], model["start"][i], model["width"][i] = grid.within(
                i, values, model["start"][i], model["width"][i])
        else:
            raise UserError(f"{name!r} is not a column; use one of {', '.join(names)} or the label "
                            f"{spec.label.name}")
    return model, share, weight


def given(model: Model, share: np.ndarray, upward: np.ndarray, wanted: Mapping[str, Wanted]
          ) -> tuple[Model, float]:
    """Returns a conditional model with its shares of classes, and the condition's probability.

    Args:
        model: arrays, conditional on the columns given the class.
        share: float64 [C], shares of the classes that are wanted, as they were.
        upward: float64 [C], P(condition on the columns | class).
        wanted: the condition, for the message.

    Raises:
        UserError: where the condition has no probability.
    """
    probability = float(share @ upward / max(model["share"].sum(), 1e-300))
    if not probability > 0:
        raise UserError(f"the generator makes no record with {' and '.join(map(str, wanted))} as "
                        "given; loosen the condition")
    return model | {"share": (share * upward / (share @ upward)).astype(np.float32)}, probability


def kept(model: Model, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the share of each bin that is wanted, and what is left of the cells.

    Args:
        model: arrays of NumPy.
        weight: [d, W], the share of each cell that is wanted.

    Returns:
        float64 [d, B], and float32 [d, W].
    """
    bins = model["group_of"].shape[1]
    fine = model["fine"] * weight
    shares = np.zeros((len(fine), bins))
    for node, bin_of in enumerate(model["bin_of"]):
        mass, left = (np.bincount(bin_of, of[node], bins) for of in (model["fine"], fine))
        shares[node] = left / np.maximum(mass, 1e-30)
    return shares, fine.astype(np.float32)


def _upward(model: Model, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Passes the evidence from the leaves to the roots.

    Args:
        model: arrays of NumPy.
        weight: [d, W], the share of each cell that is wanted.

    Returns:
        P(evidence | class) [C], and `table` and `fine` given the evidence.
    """
    table = split(model["table"].astype(np.float64), model)
    shares, fine = kept(model, weight)
    table *= shares[:, None, None, None]  # in place: it may take hundreds of megabytes
    upward, table = passed_up(structure(model), table)
    return upward, table.reshape(model["table"].shape).astype(np.float32), fine


POWERS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.6, 2.7, 5.0, 10.0)
"""The two parameters of the beta distributions, each with each: 1 and 1 is like all records."""
ENDS, CELLS = 12.0, 480
"""The log odds of ranks between which distributions are tabulated, and in how many cells."""


@functools.cache
def shape_cumulative() -> np.ndarray:
    """Returns the distributions at the log odds of ranks: float32 [K, CELLS + 1], from 0 to 1."""
    odds = np.linspace(-10 * ENDS, 10 * ENDS, 10 * CELLS + 1)
    low, high = (a.reshape(-1, 1) for a in np.meshgrid(POWERS, POWERS))
    density = np.exp(-low * np.logaddexp(0, -odds) - high * np.logaddexp(0, odds))
    middle = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, 1)
    below = np.pad(middle / middle[:, -1:], ((0, 0), (1, 0)))
    inside = slice(9 * CELLS // 2, 11 * CELLS // 2 + 1)
    return below[:, inside].astype(np.float32)


def shape_deviations(total: Array, is_number: Array) -> Array:
    """Returns what a class of each shape has in a bin beyond what it has if it is like all.

    Args:
        total: [d, B], masses of the bins of all records.
        is_number: bool [d, B], whether a bin is a part of a range. Of others a class has its share.

    Returns:
        [K, d, B], in parts of the class.
    """
    mass = total * is_number
    whole = mass.sum(1, keepdims=True)
    rank = jnp.cumsum(mass, 1) / jnp.maximum(whole, 1e-9)
    odds = jnp.log(jnp.maximum(rank, 1e-9)) - jnp.log(jnp.maximum(1 - rank, 1e-9))
    place = (jnp.clip(odds, -ENDS, ENDS) + ENDS) * (CELLS / (2 * ENDS))
    first = jnp.clip(place.astype(jnp.int32), 0, CELLS - 1)
    table = jnp.asarray(shape_cumulative())
    below = table[:, first] + (place - first) * (table[:, first + 1] - table[:, first])
    below = jnp.where(rank <= 0, 0, jnp.where(rank >= 1 - 1e-6, 1, below))
    shaped = jnp.diff(below, axis=2, prepend=0) * whole
    return jnp.where(is_number, shaped - total, 0)


SCALES = np.array([0.0, *np.geomspace(0.05, 12.8, 9)], np.float32)
"""Standard deviations of ratios of densities."""
REACH = 2.0
"""Length scale of the ratios' covariance, in log odds of the rank."""
SLOPE = 0.7
"""The share of the variance of a ratio that is a slope along the log odds; the rest is rough."""
ODDS = np.pi**2 / 3
"""The variance of the log odds of a rank."""
SEEN = 1.0
"""How many columns of a class the prior weights of scales and shapes count for."""
LEAST = 1e-10
"""The least variance along an axis: float32 cannot distinguish a smaller one from 0."""
ROUNDS = 30
"""Rounds in which the mixture is fitted."""
SHAPED = 0.5
"""The prior weight of all shapes together; scales have the rest."""
NEVER = -1e30
"""The log likelihood of what cannot be."""


def alike(total: Array, is_number: Array) -> Array:
    """Returns the covariance of the ratios of two bins, at scale 1.

    Args:
        total: [d, B], masses of the bins of all records.
        is_number: bool [d, B], whether a bin is a part of a range.

    Returns:
        [d, B, B], positive semidefinite.
    """
    mass = total * is_number
    rank = (jnp.cumsum(mass, 1) - mass / 2) / jnp.maximum(mass.sum(1, keepdims=True), 1e-9)
    rank = jnp.clip(rank, 1e-3, 1 - 1e-3)
    odds = jnp.log(rank) - jnp.log1p(-rank)
    near = jnp.exp(-jnp.abs(odds[:, :, None] - odds[:, None]) / REACH)
    line = odds[:, :, None] * odds[:, None] / ODDS
    both = is_number[:, :, None] & is_number[:, None]
    return jnp.where(both, (1 - SLOPE) * near + SLOPE * line, jnp.eye(total.shape[1]))


def expected_deviations(deviation: Array, noise: Array, size: Array, total: Array,
                        is_number: Array) -> Array:
    """Returns the expected deviations, given noisy ones: [d, C, B].

    Args:
        deviation: [d, C, B], noisy masses of a class, less those of all times its share.
        noise: [d, C], their standard deviations.
        size: [C], shares of the classes.
        total: [d, B], masses of the bins of all records.
        is_number: bool [d, B], whether a bin is a part of a range.
    """
    power, axes = jnp.linalg.eigh(total[:, :, None] * alike(total, is_number) * total[:, None])
    along = jnp.einsum("dbk,dcb->dck", axes, deviation)
    scales = SCALES.reshape(-1, 1, 1, 1)
    signal = (scales * size[:, None])**2 * jnp.maximum(power, LEAST)[:, None]  # [S, d, C, B]
    variance = noise**2 + 1e-18
    spread = signal + variance[..., None]
    likely = -0.5 * jnp.sum(along**2 / spread + jnp.log(spread), -1)  # [S, d, C]
    shaped = shape_deviations(total, is_number)
    likely_shaped = _likely(deviation, variance, size, shaped)
    likely_shaped = jnp.where(is_number.any(1)[:, None], likely_shaped, NEVER)
    shares = _shares(jnp.concatenate([likely, likely_shaped]))
    smooth, of_shape = jnp.split(shares, [len(SCALES)])
    part = jnp.sum(smooth[..., None] * signal / spread, 0)
    return (jnp.einsum("dbk,dck->dcb", axes, part * along)
            + jnp.einsum("kdc,kdb->dcb", of_shape, shaped) * size[:, None])


def _likely(deviation: Array, variance: Array, size: Array, shaped: Array) -> Array:
    """Returns the log likelihoods of noisy deviations of classes that have a shape: [K, d, C].

    Args:
        deviation: [d, C, B].
        variance: [d, C], of their noise.
        size: [C].
        shaped: [K, d, B], the deviations of the shapes, in parts of a class.
    """
    explained = size * jnp.einsum("kdb,dcb->kdc", shaped, deviation)
    squares = size**2 * jnp.sum(shaped**2, -1, keepdims=True)
    distance = jnp.sum(deviation**2, -1) - 2 * explained + squares
    return -0.5 * (distance / variance + deviation.shape[-1] * jnp.log(variance))


def _shares(likely: Array) -> Array:
    """Returns how likely each component is: [M, d, C], of sum 1 over the first axis.

    How often each is met in a class is fitted to all of its columns.

    Args:
        likely: [M, d, C], log likelihoods given each: of scales, and then of shapes.
    """
    scales, shapes = len(SCALES), len(likely) - len(SCALES)
    even = jnp.asarray(np.repeat([(1 - SHAPED) / scales, SHAPED / shapes], [scales, shapes]),
                       jnp.float32)

    def given(weights: Array) -> Array:
        return jax.nn.softmax(likely + jnp.log(weights)[:, None], 0)

    def fitted(_: int, weights: Array) -> Array:
        counted = given(weights).sum(1) + SEEN * even[:, None]
        return counted / counted.sum(0)

    weights = jnp.repeat(even[:, None], likely.shape[2], 1)
    return given(jax.lax.fori_loop(0, ROUNDS, fitted, weights))


FLOOR = 1e-9
WITHIN = 0.3
"""The relative error of the mass of a part of a cell, which is not counted but taken for even."""
LEAST_FITTED = 0.02
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

        Of thousands of codes most have less than the noise of a cell, so that noise would choose
        the codes that are ever drawn. Masses of bins and other columns do not change.

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
        """Whether a class is rare, bool [C], by the histogram of the first step only.

        They are the rarest ones, of together at most `rare_share` of the records, and never all.
        """
        label = simplex(self.masses(public.label, public.label_precision))
        order = jnp.argsort(label)
        among = jnp.cumsum(label[order]) <= self.plan.rare_share
        return among.at[-1].set(False)[jnp.argsort(order)]

    def paired(self, public: Public, share: Array) -> tuple[Array, Array | float]:
        """Returns the shares of classes in the tables of pairs, [C], and the share that is in them.

        Args:
            share: [C], the shares of the classes.
        """
        if not self.plan.with_rare:
            return share, 1.0
        share = jnp.where(self.rare(public), 0, share)
        return share / share.sum(), share.sum()

    def precision(self, public: Public) -> Array:
        """Returns the precisions of the tables with the class, [d, C]."""
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
        beyond = expected_deviations((masses - base) * exists, spread, share, total,
                                     self._is_number(public))
        table = jnp.maximum(base + beyond, LEAST_FITTED * base) + FLOOR
        table = fitted(table, jnp.broadcast_to(share, (plan.d, plan.classes)), total)
        return share, total, table / table.sum(2, keepdims=True)

    def _totals(self, public: Public, masses: Array, noise: Array) -> Array:
        """Masses of the bins of each column, [d, B]: of histograms and of tables, by precision."""
        plan = self.plan
        total = self.binned(public.fine, public.bin_of, plan.bins)
        real = (jnp.asarray(plan.grid.real) if public.width is None else
                table_zoom.usable(plan.grid, public.width))
        exists = self.binned(real.astype(jnp.float32), public.bin_of, plan.bins) > 0
        if plan.histograms:
            first, second = self._precisions(public, noise)
            total = (total * first + masses.sum(1) * second) / (first + second)
            if public.width is not None:
                noise_of_total = (first + second)**-0.5
                extent = self.binned(table_zoom.extents(plan.grid, public.width), public.bin_of,
                                     plan.bins)
                exists &= ~table_zoom.thin(total, noise_of_total, extent,
                                           table_zoom.FEW / plan.bins)
        else:
            total = jnp.where((noise < 100).all(1, keepdims=True), masses.sum(1), total)
        total = simplex(jnp.where(exists, total, -jnp.inf)) + FLOOR * exists
        return total / total.sum(1, keepdims=True)

    def _precisions(self, public: Public, noise: Array) -> tuple[Array, Array]:
        """The precisions of bins: by histograms [d, B], and by tables with the class [d, 1]."""
        plan = self.plan
        cells = jnp.asarray(plan.grid.real, jnp.float32)
        inside: Array | float = 0.0
        if public.width is not None:
            cells = jnp.where(table_zoom.follows(plan.grid)[:, None] & (public.width > 0),
                              public.width * plan.grid.most, cells)
            inside = WITHIN * self.binned(public.fine * (cells < 0.99), public.bin_of, plan.bins)
        cells = jnp.maximum(self.binned(cells, public.bin_of, plan.bins), 1)
        inside = inside / cells  # only the cells at the ends of a bin are counted in part
        unit = plan.first_noise / plan.records
        return (1 / (cells * unit**2 + inside**2 + FLOOR**2),
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

    def ends(self, public: Public) -> tuple[Array, Array]:
        """Returns start and width of the cells of a model, [d, W]."""
        if public.start is not None and public.width is not None:
            return public.start, public.width
        start, width = map(jnp.asarray, self.plan.grid.ends)
        return start, width

    def model(self, public: Public) -> Model:
        """Returns the arrays of `methods.shared.table_tree`."""
        share, _, cond = self.columns(public)
        start, width = self.ends(public)
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
        spread: the average of the distance for pure noise.
    """
    return jnp.clip(1 - spread / jnp.maximum(distance, 1e-20), 0, 1)
