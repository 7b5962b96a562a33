"""A mixture of products over columns and a class, as arrays: sampled, conditioned.

Each class has components of its own. A record's component is drawn given its class, and then each
column by itself: the group of its bin by the component, the bin in the group by the class, and
inside the bin by the histogram of its cells.

  share     float32 [C]           of the classes
  mix       float32 [C, K]        P(component | class)
  table     float32 [d, C, K, G]  P(group | component)
  within    float32 [d, C, B]     P(bin | class, group); P(bin | component) is proportional to the
                                  `table` of its group times it, also where a condition scaled it
  bin_of, group_of, fine, start, width, parent: as `methods.shared.tree` has them; the last says
                                  which tables were released
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.core.types import Array
from dpgen_jax.methods.shared import tree
from dpgen_jax.methods.shared.grid import Grid, Wanted
from dpgen_jax.methods.shared.tree import Model


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
    keys = jax.random.split(key, columns + 1)
    component = tree.sampled_places(jnp.cumsum(model["mix"], -1)[labels],
                                    jax.random.uniform(keys[0], (n,)))

    def column(_: None, at: tuple[Array, Array]) -> tuple[None, tuple[Array, Array]]:
        node, key = at
        of_bin, of_cell, place = jax.random.uniform(key, (3, n))
        group = model["group_of"][node]
        mass = model["table"][node][labels, component][:, group] * model["within"][node][labels]
        bins = tree.sampled_places(jnp.cumsum(mass, -1), of_bin)
        return None, tree.inside(model, node, bins, of_cell, place)

    _, (cells, values) = jax.lax.scan(column, None, (jnp.arange(columns), keys[1:]))
    return grid.rows(cells.T, values.T)


def conditional(grid: Grid, model: Model, wanted: Mapping[str, Wanted]) -> tuple[Model, float]:
    """Returns the model given that columns have certain values, exactly, and how likely that is.

    Args:
        grid: the cells of the columns.
        model: arrays as above, of NumPy or JAX.
        wanted: what columns or the label may be, by their names.

    Returns:
        As `tree.conditional` does.

    Raises:
        UserError: for a name that is no column, and for a condition that the model rules out.
    """
    model, share, weight = tree.narrowed(grid, model, wanted)
    mix = model["mix"].astype(np.float64)
    kept, fine = tree.kept(model, weight)
    within = model["within"] * kept[:, None]
    for node in range(len(kept)):
        before = masses(model, node, model["within"])
        mix *= masses(model, node, within) / np.maximum(before, 1e-300)
    upward = mix.sum(1)
    made = model | {"mix": (mix / np.maximum(upward, 1e-300)[:, None]).astype(np.float32),
                    "within": within.astype(np.float32), "fine": fine}
    return tree.given(made, share, upward, wanted)


def masses(model: Model, node: int, within: np.ndarray) -> np.ndarray:
    """Returns the sums over the bins of a column of `table` times `within`, [C, K] of float64.

    Args:
        model: arrays as above, of NumPy.
        node: the column.
        within: [d, C, B], in place of the model's.
    """
    grouped = np.zeros((within.shape[1], model["table"].shape[3]))
    np.add.at(grouped.T, model["group_of"][node], within[node].T.astype(np.float64))
    return np.einsum("ckg,cg->ck", model["table"][node], grouped)
