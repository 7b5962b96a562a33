"""A tree over columns beside a class, as arrays: made of noisy tables, sampled, conditioned.

The model is P(class) times, for each column, P(bin | class, group of the parent's bin), and inside
a bin the histogram of its cells. A root has no parent, and its rows are the same for every group.

  share     float32 [C]           of the classes
  table     float32 [d, C, G, B]  P(bin | class, group of the parent)
  parent    int32 [d]             the parent of each column, -1 for a root
  second    int32 [d]             of a graphical model (`methods.shared.graphical`) alone: another
                                  parent, or -1; `table` is then [d, C, G^2, B], by both groups
  order     int32 [d]             columns, each behind its parent
  bin_of    int32 [d, W]          the bin of each cell
  group_of  int32 [d, B]          the group of each bin
  fine      float32 [d, W]        masses of the cells; only their shares in a bin count
  start, width  float32 [d, W]    of the encoded values in a cell
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array, UserError
from dpgen_jax.methods.shared.grid import Grid, Wanted
from dpgen_jax.methods.shared.junction import PARENTS, passed_up, split, structure

Model = dict[str, Any]


def sample(grid: Grid, model: Model, key: Array, labels: Array) -> Array:
    """Draws encoded rows, each from its own label and draws.

    Args:
        grid: the cells of the columns.
        model: arrays as above.
        key: random key.
        labels: int32 [N].

    Returns:
        float32 [N, F].
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
    """Draws the cells of a column and the values in them.

    Args:
        model: arrays as above.
        node: the column.
        bins: int32 [N], the bins that were drawn.
        of_cell: [N], uniform, for the cells.
        within: [N], uniform, for the places in the cells.

    Returns:
        int32 [N] and float32 [N].
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
        grid: the cells of the columns.
        model: arrays as above, of NumPy or JAX.
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
        grid: the cells of the columns.
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
            weight[i], model["start"][i], model["width"][i] = grid.within(i, values)
        else:
            raise UserError(f"{name!r} is no column; use one of {', '.join(names)} or the label "
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
        raise UserError("the generator makes no record with "
                        f"{' and '.join(map(str, wanted))} as given; loosen the condition")
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
