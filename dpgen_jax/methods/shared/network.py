"""A mixture of products made by a small network, fitted to all released counts of a table.

Public, on released counts alone: it asks for no table of its own. Fixed random points go through a
network, which makes a component of each, for every class: distributions of the groups of columns.
All tables that were released (columns beside the class, the tree's edges, and the coarse tables of
all pairs, of which a tree uses its edges' alone) are fitted by least squares in parts of their
noise, with a penalty on the mutual information of components and columns.

Source: MargNet (2025, arXiv 2511.13893), a network fitted to marginals chosen as AIM does; and
Aydore et al., "Differentially Private Query Release Through Adaptive Projection" (2021, arXiv
2103.06641), mixtures of products fitted to noisy answers. Departures: the tables are those that
`marginals` asks for, each class has components of its own, and information is penalised.
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
from dpgen_jax.methods.shared.table_facts import Facts
from dpgen_jax.methods.shared.table_plan import COARSE, Plan
from dpgen_jax.methods.shared.table_state import Public
from dpgen_jax.methods.shared.tree import Model
from dpgen_jax.methods.shared.tree_fit import Fit

COMPONENTS, FEWEST = 512, 16
"""Components of all classes together, and the fewest of a class."""
POINT, WIDTH = 32, 256
"""Numbers of a point, and units of each of the network's two hidden layers."""
START = 0.1
"""The variance of the weights of the last layer at the start, in parts of the usual one."""
RATE, STEPS = 3e-3, 2000
"""Learning rate of Adam at the start, which falls to 0 by a cosine, and steps."""
PENALTY = 0.3
"""The penalty of a nat of mutual information, in mean squared misfits; the mean is over all places
of the tables, those of groups that a column lacks among them."""
TINY = 1e-9
"""A mass that keeps logarithms finite."""
SECONDS_AT_START, SECONDS_A_PRODUCT = 10.0, 6e-10
"""CPU seconds of compilation, and of a product of two numbers in a step, as measured on one core
and rounded up."""


class Network(nn.Module):
    """Logits of the groups of each column, for every component of each class.

    Attributes:
        columns: d.
        groups: G.
        classes: C.
    """

    columns: int
    groups: int
    classes: int

    @nn.compact
    def __call__(self, points: Array) -> Array:
        """Returns float32 [d, C, K, G] of points [K, POINT], which all classes share."""
        of_class = nn.Embed(self.classes, WIDTH)(jnp.arange(self.classes))
        hidden = nn.gelu(nn.Dense(WIDTH)(points) + of_class[:, None])
        hidden = nn.gelu(nn.Dense(WIDTH)(hidden))
        last = nn.Dense(self.columns * self.groups, kernel_init=nn.initializers.variance_scaling(
            START, "fan_in", "truncated_normal"))
        return jnp.stack(jnp.split(last(hidden), self.columns, -1))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Targets:
    """The released masses that are fitted, and their noise, as arrays.

    Attributes:
        grouped: [d, C, G], masses of a column's groups and the class.
        grouped_noise: [d], standard deviations of the noise of these masses.
        beside: [d], 1 where the table of a column and the class was released; else the column alone
            is known.
        parent: int32 [e], the parent in each edge of the tree.
        child: int32 [e], its column.
        edges: [e, E, G, G], masses of an edge, for each class or all together.
        edge_noise: [e], standard deviations of theirs.
        couples: int32 [P, 2], pairs of columns; the class is column d.
        pairs: [P, 4, 4], masses of a pair.
        pair_noise: [], the standard deviation of theirs.
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
        return cls(**{name: _in_32_bits(array) for name, array in made.items()})

    def misfit(self, table: Array) -> Array:
        """Returns the mean squared misfit, in variances of the noise.

        Args:
            table: [d, C, K, G], P(group | component); those of a class are equally frequent.
        """
        share = self.grouped[0].sum(1)
        grouped = share[:, None] * table.mean(2) - self.grouped
        beside = jnp.where(self.beside > 0, jnp.sum(grouped**2, (1, 2)),
                           jnp.sum(grouped.sum(1)**2, 1))
        measured = jnp.sum(jnp.where(self.beside > 0, grouped[0].size, grouped.shape[2]))
        total = jnp.sum(beside / self.grouped_noise**2) + self._of_edges(table, share)
        return (total + self._of_pairs(table, share)) / (
            measured + self.edges.size + self.pairs.size)

    def _voters(self, share: Array) -> Array:
        """Returns the shares of the classes among the records that vote for pairs."""
        return share * self.paired / jnp.sum(share * self.paired)

    def _of_edges(self, table: Array, share: Array) -> Array:
        @jax.checkpoint
        def one(total: Array, edge: tuple[Array, ...]) -> tuple[Array, None]:
            parent, child, counted, noise = edge
            of_class = table[parent].swapaxes(1, 2) @ table[child] / table.shape[2]  # [C, G, G]
            made = of_class * share[:, None, None]
            if len(counted) < len(made):  # of all classes that vote for pairs together
                made = jnp.einsum("c,cgh->gh", self._voters(share), of_class)[None]
            return total + jnp.sum((made - counted)**2) / noise**2, None

        edges = self.parent, self.child, self.edges, self.edge_noise
        return jax.lax.scan(one, jnp.float32(0), edges)[0]

    def _of_pairs(self, table: Array, share: Array) -> Array:
        nodes, classes, size, groups = table.shape
        coarse = jnp.einsum("dckg,dgs->dsck", table, self.coarse[:nodes, :groups])
        last = jnp.broadcast_to(self.coarse[nodes, :classes].T[None, :, :, None],
                                (1, COARSE, classes, size))
        flat = jnp.concatenate([coarse, last]).reshape((nodes + 1) * COARSE, -1)
        both = (flat * jnp.repeat(self._voters(share) / size, size)) @ flat.T
        blocks = both.reshape(nodes + 1, COARSE, nodes + 1, COARSE).swapaxes(1, 2)
        first, second = self.couples.T
        return jnp.sum((blocks[first, second] - self.pairs)**2) / self.pair_noise**2


def _in_32_bits(array: Any) -> Array:
    """Returns an array as int32, if it holds whole numbers, or else as float32."""
    of = np.asarray(array)
    return jnp.asarray(of, np.int32 if of.dtype.kind == "i" else np.float32)


def seconds(plan: Plan) -> float:
    """Returns the seconds of one core that a fit takes at most, by the plan alone."""
    cells = plan.d * plan.groups * (plan.groups + WIDTH) + (COARSE * (plan.d + 1))**2
    products = plan.classes * components(plan) * (WIDTH**2 + cells)
    return SECONDS_AT_START + SECONDS_A_PRODUCT * STEPS * products


def components(plan: Plan) -> int:
    """Returns K, the components of a class; where no network is fitted all would be the same."""
    return max(COMPONENTS // plan.classes, FEWEST) if plan.pairs else 1


def check(plan: Plan) -> str:
    """Returns what a fit will take, as a line for the user.

    Args:
        plan: the plan of the tables.

    Raises:
        UserError: where it takes longer than `MOST_SECONDS`.
    """
    if not plan.pairs:
        return ("no table of two columns is asked for (too few records, columns or steps, or too "
                "many columns): no network is fitted, columns are independent given the class")
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
    start, width = map(jnp.asarray, p.grid.ends)
    size = components(p)
    return {"share": share, "mix": jnp.full((p.classes, size), 1 / size, jnp.float32),
            "table": jnp.repeat(grouped[:, :, None], size, 2),
            "within": cond / jnp.maximum(jnp.take_along_axis(grouped, place, 2), 1e-12),
            "bin_of": public.bin_of, "group_of": public.group_of, "fine": public.fine,
            "start": start, "width": width, "parent": public.parent}


def refined(fit: Fit, public: Any, model: Model) -> Model:
    """Returns the fitted mixture in place of independent columns.

    Args:
        fit: the estimates of the plan.
        public: `table_state.Public` after the last release, with the tables of pairs; of NumPy.
        model: arrays of `independent`, of NumPy.

    Returns:
        Arrays of the same names and shapes.
    """
    # After a run that ended before the pairs were released, zeros stand in their place.
    if public.pairs is None or int(public.step) <= fit.plan.kinds.index(1):
        return model
    facts = Facts.of(fit, public, jax.tree.map(np.asarray, jax.jit(fit.model)(public)))
    table = fitted(Targets.of(facts), components(fit.plan), STEPS)
    return model | {"table": np.asarray(table)}


@functools.partial(jax.jit, static_argnums=(1, 2))
def fitted(targets: Targets, size: int, steps: int) -> Array:
    """Returns the mixture that is fitted to targets, [d, C, K, G].

    It starts near columns that are independent given the class. Without the penalty, whatever the
    noisy tables leave open, as how rare values of two columns go together, comes out at random.

    Args:
        targets: what is fitted.
        size: K.
        steps: of the optimiser.
    """
    columns, classes, groups = targets.grouped.shape
    share = targets.grouped[0].sum(1)
    network = Network(columns, groups, classes)
    of_points, of_weights = jax.random.split(jax.random.key(0))
    points = jax.random.normal(of_points, (size, POINT))
    alone = jnp.log(targets.grouped / share[:, None])[:, :, None]

    def mixture(weights: Any) -> Array:
        logits: Any = network.apply(weights, points)
        return jax.nn.softmax(logits + alone)

    def loss(weights: Any) -> Array:
        table = mixture(weights)
        beyond = jnp.log(table + TINY) - jnp.log(jnp.exp(alone) + TINY)
        information = jnp.einsum("c,dckg,dckg->", share, table, beyond) / size
        return targets.misfit(table) + PENALTY * information

    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def step(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        weights, moments = state
        change, moments = optimiser.update(jax.grad(loss)(weights), moments)
        return (optax.apply_updates(weights, change), moments), None

    weights = network.init(of_weights, points)
    state, _ = jax.lax.scan(step, (weights, optimiser.init(weights)), length=steps)
    return mixture(state[0])
