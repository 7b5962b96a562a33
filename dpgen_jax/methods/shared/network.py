"""A mixture of products made by a small network, fitted to all released counts of a table.

Public, on released counts alone: it asks for no table of its own. Fixed random points go through a
network, which makes of each the distributions of a component: of the class, and of the groups of
every column. All tables that were released (columns beside the class, the tree's edges, and the
coarse tables of all pairs, of which a tree uses its edges' alone) are fitted by weighted least
squares, until what is left is what noise would leave.

Source: "MargNet" (2025, arXiv 2511.13893), a network fitted to marginals chosen as AIM does; and
Aydore et al., "Differentially Private Query Release Through Adaptive Projection" (2021, arXiv
2103.06641), mixtures of products fitted to noisy answers. Departures: the tables are those that
`marginals` asks for, and the fit ends by the noise's size.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpgen_jax.core.types import Array, UserError
from dpgen_jax.methods.shared.graphical import MOST_SECONDS
from dpgen_jax.methods.shared.products import masses
from dpgen_jax.methods.shared.table_facts import Facts
from dpgen_jax.methods.shared.table_plan import COARSE, Plan
from dpgen_jax.methods.shared.table_state import Public
from dpgen_jax.methods.shared.tree import Model
from dpgen_jax.methods.shared.tree_fit import Fit

COMPONENTS = 512
"""Components of a mixture, which are as many as classes where there are more of these."""
POINT, WIDTH = 32, 256
"""Numbers of a point, and units of each of the network's two hidden layers."""
RATE, STEPS = 3e-3, 2000
"""Learning rate of Adam, and steps at most."""
ENOUGH = 0.75
"""The mean squared misfit, in variances of the noise, at which a fit ends."""
RAKED = 30
"""Rounds in which a rare class is scaled to the estimates of its columns."""
SECONDS_A_PRODUCT = 1e-10
"""CPU seconds of a step for a product of a cell and a component, as measured on one core."""


class Network(nn.Module):
    """Logits of the groups of each column, and of the class, of every component.

    Attributes:
        columns: d.
        groups: G.
        classes: C.
    """

    columns: int
    groups: int
    classes: int

    @nn.compact
    def __call__(self, points: Array) -> tuple[Array, Array]:
        """Returns float32 [K, d, G] and [K, C] of points [K, POINT]."""
        hidden = points
        for _ in range(2):
            hidden = nn.gelu(nn.Dense(WIDTH)(hidden))
        groups = nn.Dense(self.columns * self.groups)(hidden)
        return groups.reshape(-1, self.columns, self.groups), nn.Dense(self.classes)(hidden)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Targets:
    """What is fitted: released masses and their noise, arrays of float32.

    Attributes:
        grouped: [d, C, G], masses of a column's groups and the class.
        grouped_noise: [d].
        beside: bool [d], whether the table of a column and the class was released, or the column
            alone is known.
        parent: int32 [e], of each edge of the tree, and
        child: int32 [e], the column.
        edges: [e, E, G, G], masses of an edge, for each class or all together.
        edge_noise: [e].
        couples: int32 [P, 2], pairs of columns; the class is column d.
        pairs: [P, 4, 4], masses of a pair.
        pair_noise: [].
        coarse: [d + 1, max(G, C), 4], the share of a group, or a class, in each coarse group.
        paired: [C], 1 where a class votes for pairs.
    """

    grouped: Array
    grouped_noise: Array
    beside: Array
    parent: Array
    child: Array
    edges: Array
    edge_noise: Array
    couples: Array
    pairs: Array
    pair_noise: Array
    coarse: Array
    paired: Array

    @classmethod
    def of(cls, facts: Facts) -> Targets:
        """Returns the targets of released counts."""
        p, public = facts.fit.plan, facts.public
        child = np.flatnonzero(public.parent >= 0)
        widest = max(p.groups, p.classes)
        coarse = np.zeros((p.d + 1, widest, COARSE))
        coarse[:p.d, :p.groups] = facts.coarse
        coarse[p.d, np.arange(p.classes), public.label_of] = 1
        share = jnp.asarray(facts.grouped[0].sum(1))
        paired = np.asarray(facts.fit.paired(public, share)[0]) > 0
        made = {
            "grouped": facts.grouped, "grouped_noise": facts.grouped_noise,
            "beside": public.joint_precision > 0, "parent": public.parent[child], "child": child,
            "edges": facts.edge_masses[child], "edge_noise": facts.edge_noise[child],
            "couples": p.couples, "pairs": public.pairs, "pair_noise": facts.pair_noise,
            "coarse": coarse, "paired": paired}
        return cls(**{name: _narrow(array) for name, array in made.items()})

    def misfit(self, table: Array, label: Array) -> Array:
        """Returns the mean squared misfit, in variances of the noise.

        Args:
            table: [d, K, G], P(group | component).
            label: [K, C], P(class | component); components are equally frequent.
        """
        weighted = label / len(label)
        grouped = jnp.einsum("kc,dkg->dcg", weighted, table) - self.grouped
        beside = self.beside[:, None, None] * grouped**2
        alone = (1 - self.beside)[:, None] * grouped.sum(1)**2
        of_columns = (beside.sum((1, 2)) + alone.sum(1)) / self.grouped_noise**2
        measured = jnp.sum(jnp.where(self.beside > 0, grouped[0].size, grouped.shape[2]))
        total = of_columns.sum() + self._of_edges(table, weighted) + self._of_pairs(table, label)
        return total / (measured + self.edges.size + self.pairs.size)

    def _of_edges(self, table: Array, weighted: Array) -> Array:
        of_class = weighted if self.edges.shape[1] > 1 else weighted.sum(1, keepdims=True)

        @jax.checkpoint
        def one(total: Array, edge: tuple[Array, ...]) -> tuple[Array, None]:
            parent, child, counted, noise = edge
            above = (of_class.T[:, :, None] * table[parent]).swapaxes(1, 2)  # [E, G, K]
            return total + jnp.sum((above @ table[child] - counted)**2) / noise**2, None

        edges = self.parent, self.child, self.edges, self.edge_noise
        return jax.lax.scan(one, jnp.float32(0), edges)[0]

    def _of_pairs(self, table: Array, label: Array) -> Array:
        nodes = len(table)
        coarse = jnp.einsum("dkg,dgs->dsk", table, self.coarse[:nodes, :table.shape[2]])
        last = (label @ self.coarse[nodes, :label.shape[1]]).T[None]
        flat = jnp.concatenate([coarse, last]).reshape(-1, len(label))
        voters = label @ self.paired
        both = (flat * (voters / voters.sum())) @ flat.T
        blocks = both.reshape(nodes + 1, COARSE, nodes + 1, COARSE).swapaxes(1, 2)
        first, second = self.couples.T
        return jnp.sum((blocks[first, second] - self.pairs)**2) / self.pair_noise**2


def _narrow(array: Any) -> Array:
    """Returns an array as int32, if it holds whole numbers, or else as float32."""
    of = np.asarray(array)
    return jnp.asarray(of, np.int32 if of.dtype.kind == "i" else np.float32)


def seconds(plan: Plan) -> float:
    """Returns the seconds of one core that a fit takes at most, by the plan alone."""
    cells = plan.d * (plan.classes * plan.groups + plan.edge_classes * plan.groups**2 + WIDTH
                      * plan.groups) + (COARSE * (plan.d + 1))**2
    return SECONDS_A_PRODUCT * STEPS * components(plan) * cells


def components(plan: Plan) -> int:
    """Returns K."""
    return max(COMPONENTS, plan.classes)


def check(plan: Plan) -> str:
    """Returns what a fit will take, as a line for the user.

    Args:
        plan: the plan of the tables.

    Raises:
        UserError: where it takes too long.
    """
    taken = (f"a network of {plan.d:,} columns is fitted to the released counts in up to "
             f"{seconds(plan):,.0f} s of one core")
    if seconds(plan) > MOST_SECONDS:
        raise UserError(f"{taken}, of {MOST_SECONDS:,} s that it may take: choose fewer --groups, "
                        "leave columns out, or use --model tree")
    return taken


def independent(fit: Fit, public: Public) -> Model:
    """Returns the arrays of `methods.shared.products` with columns independent given the class."""
    p = fit.plan
    share, _, cond = fit.columns(public)
    grouped = jax.vmap(lambda of: fit.binned(of, public.group_of, p.groups), 1, 1)(cond)
    place = jnp.broadcast_to(public.group_of[:, None], cond.shape)
    class_of = np.arange(components(p)) % p.classes
    chosen = jnp.asarray(class_of == np.arange(p.classes)[:, None], jnp.float32)
    start, width = map(jnp.asarray, p.grid.ends)
    return {"share": share, "mix": chosen / chosen.sum(1, keepdims=True),
            "table": grouped[:, class_of],
            "within": cond / jnp.maximum(jnp.take_along_axis(grouped, place, 2), 1e-12),
            "bin_of": public.bin_of, "group_of": public.group_of, "fine": public.fine,
            "start": start, "width": width}


def refined(fit: Fit, public: Any, model: Model) -> Model:
    """Returns the fitted mixture in place of independent columns.

    Args:
        fit: the estimates of the plan.
        public: `table_state.Public` after the last release, with the tables of pairs; of NumPy.
        model: arrays of `independent`, of NumPy.

    Returns:
        Arrays of the same names and shapes.
    """
    if public.pairs is None:
        return model
    facts = Facts.of(fit, public, jax.tree.map(np.asarray, jax.jit(fit.model)(public)))
    table, label = map(np.asarray, fitted(Targets.of(facts), components(fit.plan)))
    mix = label.T / label.sum(0)[:, None]
    new = model | {"table": table, "mix": mix.astype(np.float32)}
    rare = np.asarray(fit.rare(public)) & fit.plan.with_rare
    return new | {"within": raked(new, np.flatnonzero(rare), facts.grouped)}


@functools.partial(jax.jit, static_argnums=1)
def fitted(targets: Targets, size: int) -> tuple[Array, Array]:
    """Returns the mixture that is fitted to targets.

    Args:
        targets: what is fitted.
        size: K.

    Returns:
        [d, K, G], P(group | component); and [K, C], P(class | component).
    """
    columns, classes, groups = targets.grouped.shape
    network = Network(columns, groups, classes)
    of_points, of_weights = jax.random.split(jax.random.key(0))
    points = jax.random.normal(of_points, (size, POINT))
    alone = jnp.log(targets.grouped.sum(1)), jnp.log(targets.grouped[0].sum(1))

    def logits(weights: Any) -> tuple[Array, Array]:
        made: Any = network.apply(weights, points)
        return made

    def mixture(weights: Any) -> tuple[Array, Array]:
        of_columns, of_class = logits(weights)
        table = jax.nn.softmax(of_columns.swapaxes(0, 1) + alone[0][:, None])
        return table, jax.nn.softmax(of_class + alone[1])

    optimiser = optax.adam(RATE)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        weights, moments, done, _ = state
        misfit, slope = jax.value_and_grad(lambda w: targets.misfit(*mixture(w)))(weights)
        change, moments = optimiser.update(slope, moments)
        return optax.apply_updates(weights, change), moments, done + 1, misfit

    weights = network.init(of_weights, points)
    weights, *_ = jax.lax.while_loop(
        lambda state: (state[2] < STEPS) & (state[3] > ENOUGH), step,
        (weights, optimiser.init(weights), 0, jnp.float32(jnp.inf)))
    return mixture(weights)


def raked(model: Model, classes: np.ndarray, grouped: np.ndarray) -> np.ndarray:
    """Returns `within` with the columns of classes scaled to what is estimated of them.

    Args:
        model: arrays of `methods.shared.products`, of NumPy.
        classes: int [r], the classes.
        grouped: [d, C, G], their masses.
    """
    within = model["within"].astype(np.float64)
    for node, group in enumerate(model["group_of"]):
        wanted = grouped[node] / grouped[node].sum(1, keepdims=True)
        for _ in range(RAKED if len(classes) else 0):
            # Of each class and group, what the mixture has of it with `within` as it is so far.
            total = np.maximum(masses(model, node, within), 1e-300)
            inside = np.zeros_like(wanted)
            np.add.at(inside.T, group, within[node].T)
            found = inside * ((model["mix"] / total) @ model["table"][node])
            factor = np.where(found > 0, wanted / np.maximum(found, 1e-300), 1)
            within[node, classes] *= factor[classes][:, group]
    return within.astype(np.float32)
