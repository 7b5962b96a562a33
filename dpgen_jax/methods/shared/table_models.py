"""Models beyond a tree, fitted to released counts: a graphical model, and a mixture of products.

Both are public, on released counts only, and request no table of their own. They are fitted by
least squares to tables that were released: columns with the class, the tree's edges, and coarse
tables of pairs, of which a tree uses only those of its edges. The graphical model takes the pairs
within its cliques, the mixture all pairs.

The graphical model is fitted by private-PGM (package `mbi`). A column of a tree gets a second
parent, a neighbour of its first, where the coarse table of that pair differs from the tree's by
more than its noise. The model is the one of the most entropy, over groups of bins; inside a group
a column's bins are those of the tree. Cliques have three columns and the class at most, so the
junction tree's size is known before anything is released. Source: McKenna, Sheldon and Miklau,
"Graphical-model based estimation and inference for differential privacy" (2019, arXiv 1901.09136),
whose code `mbi` is.

In the mixture of products each class has components of its own. A record's component is drawn given
its class, and then each column by itself: the group of its bin by the component, the bin in the
group by the class, and inside the bin by the histogram of its cells. Its arrays:

  share     float32 [C]           of the classes
  mix       float32 [C, K]        P(component | class)
  table     float32 [d, C, K, G]  P(group | component)
  within    float32 [d, C, B]     P(bin | class, group); P(bin | component) is proportional to the
                                  `table` of its group times it, also where a condition scaled it
  bin_of, group_of, fine, start, width, parent: as `methods.shared.table_tree` has them; `parent`
                                  shows which tables were released

A small network makes the mixture: fixed random points go through it, and each becomes a component,
for every class: distributions of the groups of columns. Misfits are measured in units of the noise,
with a penalty on the mutual information of components and columns. Sources: MargNet (2025, arXiv
2511.13893), a network fitted to marginals chosen as AIM does; and Aydore et al., "Differentially
Private Query Release Through Adaptive Projection" (2021, arXiv 2103.06641), mixtures of products
fitted to noisy answers. Departures: the tables are those of `methods.marginals`, each class has
components of its own, and information is penalised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpgen_jax.core.errors import option
from dpgen_jax.core.types import Array, UserError, Wanted
from dpgen_jax.methods.shared import table_tree
from dpgen_jax.methods.shared.table_plan import COARSE, Grid, Plan, Public
from dpgen_jax.methods.shared.table_tree import Fit, Model, Structure

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
        table = table_tree.split(np.asarray(model["table"], np.float64), model)[:, :, :, 0]
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

        The estimates of columns, of histograms too, are surer than their tables with the class.
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


def sample_products(grid: Grid, model: Model, key: Array, labels: Array) -> Array:
    """Draws encoded rows, each from its own label and draws.

    From `labels` int32 [N] to float32 [N, F].
    """
    columns, n = len(grid.sizes), len(labels)
    keys = jax.random.split(key, columns + 1)
    component = table_tree.sampled_places(jnp.cumsum(model["mix"], -1)[labels],
                                          jax.random.uniform(keys[0], (n,)))

    def column(_: None, at: tuple[Array, Array]) -> tuple[None, tuple[Array, Array]]:
        node, key = at
        of_bin, of_cell, place = jax.random.uniform(key, (3, n))
        group = model["group_of"][node]
        mass = model["table"][node][labels, component][:, group] * model["within"][node][labels]
        bins = table_tree.sampled_places(jnp.cumsum(mass, -1), of_bin)
        return None, table_tree.inside(model, node, bins, of_cell, place)

    _, (cells, values) = jax.lax.scan(column, None, (jnp.arange(columns), keys[1:]))
    return grid.rows(cells.T, values.T)


def conditional_products(grid: Grid, model: Model, wanted: Mapping[str, Wanted]) -> tuple[Model,
                                                                                          float]:
    """Returns the model given that columns have certain values, exactly, and how likely that is.

    Args:
        wanted: what columns or the label may be, by their names.

    Returns:
        As `table_tree.conditional` does.

    Raises:
        UserError: for a name that is no column, and for a condition that the model rules out.
    """
    model, share, weight = table_tree.narrowed(grid, model, wanted)
    mix = model["mix"].astype(np.float64)
    kept, fine = table_tree.kept(model, weight)
    within = model["within"] * kept[:, None]
    for node in range(len(kept)):
        before = product_masses(model, node, model["within"])
        mix *= product_masses(model, node, within) / np.maximum(before, 1e-300)
    upward = mix.sum(1)
    made = model | {"mix": (mix / np.maximum(upward, 1e-300)[:, None]).astype(np.float32),
                    "within": within.astype(np.float32), "fine": fine}
    return table_tree.given(made, share, upward, wanted)


def product_masses(model: Model, node: int, within: np.ndarray) -> np.ndarray:
    """Returns the sums over the bins of a column of `table` times `within`, [C, K] of float64.

    Args:
        within: [d, C, B], in place of the model's.
    """
    grouped = np.zeros((within.shape[1], model["table"].shape[3]))
    np.add.at(grouped.T, model["group_of"][node], within[node].T.astype(np.float64))
    return np.einsum("ckg,cg->ck", model["table"][node], grouped)


DEVIATIONS = 3.0
"""Standard deviations of noise that a pair must stand out by for a second parent."""
GRAPHICAL_STEPS, PRECISE = 1000, 1e-5
"""Steps of mirror descent, at most, and the relative gain below which it ends."""
COPIES = 8
"""Copies of the junction tree's tables, float64, while it is fitted."""
SECONDS_A_CELL, SECONDS_A_COLUMN = 3e-8, 0.5
"""CPU seconds of a step for a cell, and of compilation for a column, as measured on one core."""
MOST_SECONDS = 1800
"""The most CPU seconds of a fit that is begun."""


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Lets mbi count in float64, as its import requires."""
    with jax.enable_x64(True), warnings.catch_warnings(action="ignore"):
        yield


@dataclasses.dataclass(frozen=True)
class Size:
    """Memory and time that a fit takes at most, by the plan only.

    Attributes:
        megabytes: of memory, without that of the library.
        seconds: of one core.
    """

    megabytes: float
    seconds: float


def graphical_size(plan: Plan) -> Size:
    """Returns the most a fit takes: a clique for each column, of three columns and the class."""
    cells = plan.d * plan.classes * plan.groups**3
    table = plan.d * plan.classes * plan.groups**2 * plan.bins
    return Size((8 * COPIES * cells + 16 * table) / 2**20,
                SECONDS_A_COLUMN * plan.d + SECONDS_A_CELL * GRAPHICAL_STEPS * cells)


def check_graphical(plan: Plan, most_megabytes: float) -> str:
    """Returns what a fit will take, as a line for the user.

    Args:
        most_megabytes: that it may take.

    Raises:
        UserError: Where it takes more, and without the package.
    """
    if importlib.util.find_spec("mbi") is None:
        raise UserError(f"{option('model', 'graphical')} needs mbi; "
                        f"pip install dpgen_jax[graphical], or use {option('model', 'tree')}")
    needed = graphical_size(plan)
    taken = (f"a junction tree of {plan.d:,} columns takes up to {needed.megabytes:,.1f} MB and "
             f"{needed.seconds:,.0f} s of one core")
    if needed.megabytes > most_megabytes or needed.seconds > MOST_SECONDS:
        raise UserError(f"{taken}, of {most_megabytes:,g} MB and {MOST_SECONDS:,} s that it may "
                        f"take: choose fewer {option('groups')}, leave columns out, raise "
                        f"{option('junction_mb')}, or use {option('model', 'tree')}")
    return taken


def with_second(plan: Plan, model: Model) -> Model:
    """Returns the arrays of a tree as those of a graphical model without second parents."""
    return model | {"second": jax.numpy.full(plan.d, -1, jax.numpy.int32),
                    "table": jax.numpy.repeat(model["table"], plan.groups, 2)}


def refined_graphical(fit: Fit, public: Any, model: Model) -> Model:
    """Returns the graphical model in place of a tree.

    Args:
        public: `table_plan.Public` after the last release, with the tables of pairs; of NumPy.
        model: arrays of `with_second`, of NumPy.
    """
    if (public.parent < 0).all():
        return model
    facts = Facts.of(fit, public, model)
    second = second_parents(facts)
    of = Structure(public.parent, second, public.order, np.tile(
        np.arange(fit.plan.groups), (fit.plan.d, 1)))
    found = estimated(fit.plan, measurements(facts, second)).potentials
    factors = _factors(of, facts, {
        clique: np.asarray(found[clique].values, np.float64) for clique in found.cliques})
    _, tables = table_tree.passed_up(of, factors)
    inside = np.take_along_axis(tables, public.group_of[:, None, None, None], 4)
    table = inside * facts.within[:, :, None, None]
    return model | {"second": second.astype(np.int32), "table": (
        table / np.maximum(table.sum(-1, keepdims=True), 1e-300)).astype(np.float32).reshape(
            model["table"].shape)}


def second_parents(facts: Facts) -> np.ndarray:
    """Returns the second parent of each column, int [d], or -1.

    Candidates are the neighbours of a column's first parent: its parent and its earlier children.
    The one whose coarse table differs most from the tree's, beyond noise, is taken.
    """
    parent, order = facts.public.parent, facts.public.order
    second, before = np.full(len(parent), -1), list[int]()
    noise = facts.pair_noise**2
    for node in order.tolist():
        first = int(parent[node])
        others = [other for other in before if first >= 0 and (
            other == parent[first] or parent[other] == first)]
        gain = {other: float(np.sum((facts.pair(other, node) - facts.expected(node, other))**2))
                - noise * (COARSE**2 + DEVIATIONS * (2 * COARSE**2)**0.5) for other in others}
        best = max(gain, key=lambda other: gain[other], default=-1)
        if best >= 0 and gain[best] > 0:
            second[node] = best
        before.append(node)
    return second


@dataclasses.dataclass(frozen=True, eq=False)
class _Coarse:
    """A query of mbi: a table of groups as a coarse one of a pair.

    Attributes:
        left: [G, 4], the share of a group of the first column in each of its coarse groups.
        right: [G, 4], likewise of the other column.
    """

    left: np.ndarray
    right: np.ndarray

    def __call__(self, factor: Any) -> Any:
        """Returns the answer, [16]."""
        return (self.left.T @ factor.datavector(flatten=False) @ self.right).ravel()

    def op_norm_sq(self) -> float:
        """Returns its squared operator norm."""
        return float((np.linalg.norm(self.left, 2) * np.linalg.norm(self.right, 2))**2)


@exact()
def measurements(facts: Facts, second: np.ndarray) -> list[Any]:
    """Returns the measurements for mbi: masses, the columns of each, and their noise."""
    import mbi

    p, public = facts.fit.plan, facts.public
    edge, edge_noise, sure = facts.edge_masses, facts.edge_noise, facts.grouped_noise
    # A column without a table with the class is modelled without it: nothing is known of the two.
    measured = [mbi.LinearMeasurement(table.ravel(), (p.d, i), float(sure[i])) if beside else
                mbi.LinearMeasurement(table.sum(0), (i,), float(sure[i]))
                for i, (table, beside) in enumerate(zip(
                    facts.grouped, public.joint_precision > 0, strict=True))]
    for node, parent in enumerate(public.parent.tolist()):
        if parent < 0:
            continue
        clique = (p.d, parent, node) if p.edge_classes > 1 else (parent, node)
        measured.append(mbi.LinearMeasurement(edge[node].ravel(), clique, float(edge_noise[node])))
        for other in {parent, int(second[node])} - {-1}:
            query = _Coarse(facts.coarse[other], facts.coarse[node])
            measured.append(mbi.LinearMeasurement(
                facts.pair(other, node).ravel(), (other, node), facts.pair_noise, query))
    return measured


@exact()
def estimated(plan: Plan, measured: list[Any]) -> Any:
    """Returns the model of mbi that is fitted to measurements; the class is column d.

    Args:
        measured: as `measurements` returns them.
    """
    import mbi
    domain = mbi.Domain([*range(plan.d + 1)], [*[plan.groups] * plan.d, plan.classes])
    return mbi.estimation.MirrorDescent().estimate(
        domain, measured, known_total=1.0, iters=GRAPHICAL_STEPS, tol=PRECISE)


def _factors(of: Structure, facts: Facts, potentials: dict[tuple[int, ...], np.ndarray]
             ) -> np.ndarray:
    """Returns potentials, by their columns, as factors of columns and parents: [d, C, G, G, G]."""
    p = facts.fit.plan
    logs = np.zeros((p.d, p.classes, p.groups, p.groups, p.groups))
    place = {int(node): i for i, node in enumerate(of.order)}
    for clique, values in potentials.items():
        columns = [column for column in clique if column < p.d]
        node = max(columns, key=lambda column: place[column])
        axes = [p.d, *of.above(node), node]  # the class, both parents, the column
        present = sorted(clique, key=axes.index)
        moved = values.transpose([clique.index(column) for column in present])
        sizes = dict(zip(present, moved.shape, strict=True))
        logs[node] += moved.reshape([sizes.get(axis, 1) for axis in axes])
    logs -= logs.max((1, 2, 3, 4), keepdims=True)
    exists = facts.grouped.sum(1) > 0
    return np.exp(logs) * exists[:, None, None, None]


COMPONENTS, FEWEST = 512, 16
"""Components of all classes together, and the fewest of a class."""
POINT, WIDTH = 32, 256
"""Numbers of a point, and units of each of the network's two hidden layers."""
START = 0.1
"""The variance of the weights of the last layer at the start, in parts of the usual one."""
RATE, NETWORK_STEPS = 3e-3, 2000
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
        beside: [d], 1 where the table of a column and the class was released; else only the column
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
    """Returns the seconds of one core that a fit takes at most, by the plan only."""
    cells = plan.d * plan.groups * (plan.groups + WIDTH) + (COARSE * (plan.d + 1))**2
    products = plan.classes * components(plan) * (WIDTH**2 + cells)
    return SECONDS_AT_START + SECONDS_A_PRODUCT * NETWORK_STEPS * products


def components(plan: Plan) -> int:
    """Returns K, the components of a class; 1 without pairs: all would be the same."""
    return max(COMPONENTS // plan.classes, FEWEST) if plan.pairs else 1


def check_network(plan: Plan) -> str:
    """Returns what a fit will take, as a line for the user.

    Raises:
        UserError: where it takes longer than `MOST_SECONDS`.
    """
    if not plan.pairs:
        return ("no table of two columns is measured (too few records, columns or steps, or too "
                "many columns): no network is fitted, columns are independent given the class")
    taken = (f"a network of {plan.d:,} columns is fitted to the released counts in up to "
             f"{seconds(plan):,.0f} s of one core")
    if seconds(plan) > MOST_SECONDS:
        raise UserError(f"{taken}, of {MOST_SECONDS:,} s that it may take: choose fewer "
                        f"{option('groups')}, leave columns out, or use {option('model', 'tree')}")
    return taken


def independent(fit: Fit, public: Public) -> Model:
    """Returns the arrays of a model whose columns are independent given the class."""
    p = fit.plan
    share, _, cond = fit.columns(public)
    grouped = jax.vmap(lambda of: fit.binned(of, public.group_of, p.groups), 1, 1)(cond)
    place = jnp.broadcast_to(public.group_of[:, None], cond.shape)
    start, width = fit.ends(public)
    size = components(p)
    return {"share": share, "mix": jnp.full((p.classes, size), 1 / size, jnp.float32),
            "table": jnp.repeat(grouped[:, :, None], size, 2),
            "within": cond / jnp.maximum(jnp.take_along_axis(grouped, place, 2), 1e-12),
            "bin_of": public.bin_of, "group_of": public.group_of, "fine": public.fine,
            "start": start, "width": width, "parent": public.parent}


def refined_network(fit: Fit, public: Any, model: Model) -> Model:
    """Returns the fitted mixture in place of independent columns.

    Args:
        public: `table_plan.Public` after the last release, with the tables of pairs; of NumPy.
        model: arrays of `independent`, of NumPy.
    """
    # After a run that ended before the pairs were released, zeros stand in their place.
    if public.pairs is None or int(public.step) <= fit.plan.kinds.index(1):
        return model
    facts = Facts.of(fit, public, jax.tree.map(np.asarray, jax.jit(fit.model)(public)))
    table = fitted(Targets.of(facts), components(fit.plan), NETWORK_STEPS)
    return model | {"table": np.asarray(table)}


@functools.partial(jax.jit, static_argnums=(1, 2))
def fitted(targets: Targets, size: int, steps: int) -> Array:
    """Returns the mixture that is fitted to targets, [d, C, K, G].

    It starts near columns that are independent given the class. Without the penalty, whatever the
    noisy tables leave open, as how rare values of two columns go together, comes out at random.
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
