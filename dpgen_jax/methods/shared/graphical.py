"""A graphical model beyond a tree, fitted to the released counts by private-PGM (package `mbi`).

Public, on released counts alone: it asks for no table of its own. A column of a tree gets a second
parent, a neighbour of its first, where the coarse table of that pair stands out of its noise from
what the tree says of it. All tables together (columns beside the class, the tree's edges, coarse
pairs) are then fitted by least squares in a model of the most entropy, over groups of bins; inside
a group a column's bins are those of the tree. Cliques have three columns and the class at most, so
the junction tree's size is known before anything is released.

Source: McKenna, Sheldon and Miklau, "Graphical-model based estimation and inference for
differential privacy" (2019, arXiv 1901.09136), whose code `mbi` is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from dpgen_jax.core.types import UserError
from dpgen_jax.methods.shared import junction
from dpgen_jax.methods.shared.junction import Structure
from dpgen_jax.methods.shared.table_facts import Facts
from dpgen_jax.methods.shared.table_plan import COARSE, Plan
from dpgen_jax.methods.shared.tree import Model
from dpgen_jax.methods.shared.tree_fit import Fit

DEVIATIONS = 3.0
"""Standard deviations of noise that a pair must stand out by for a second parent."""
STEPS, PRECISE = 1000, 1e-5
"""Steps of mirror descent, at most, and the relative gain below which it ends."""
COPIES = 8
"""Copies of the junction tree's tables, float64, while it is fitted."""
SECONDS_A_CELL, SECONDS_A_COLUMN = 3e-8, 0.5
"""CPU seconds of a step for a cell, and of compilation for a column, as measured on one core."""
MOST_SECONDS = 1800
"""The most CPU seconds of a fit that is begun."""


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Lets mbi count in float64, as it asks for when it is imported."""
    with jax.enable_x64(True), warnings.catch_warnings(action="ignore"):
        yield


@dataclasses.dataclass(frozen=True)
class Size:
    """Memory and time that a fit takes at most, by the plan alone.

    Attributes:
        megabytes: of memory, beside what the library takes.
        seconds: of one core.
    """

    megabytes: float
    seconds: float


def size(plan: Plan) -> Size:
    """Returns what a fit takes at most: a clique for each column, of three columns and the class.

    Args:
        plan: the plan of the tables.
    """
    cells = plan.d * plan.classes * plan.groups**3
    table = plan.d * plan.classes * plan.groups**2 * plan.bins
    return Size((8 * COPIES * cells + 16 * table) / 2**20,
                SECONDS_A_COLUMN * plan.d + SECONDS_A_CELL * STEPS * cells)


def check(plan: Plan, most_megabytes: float) -> str:
    """Returns what a fit will take, as a line for the user.

    Args:
        plan: the plan of the tables.
        most_megabytes: that it may take.

    Raises:
        UserError: Where it takes more, and without the package.
    """
    if importlib.util.find_spec("mbi") is None:
        raise UserError('--model graphical needs mbi; pip install "dpgen_jax[graphical]", or use '
                        "--model tree")
    needed = size(plan)
    taken = (f"a junction tree of {plan.d:,} columns takes up to {needed.megabytes:,.1f} MB and "
             f"{needed.seconds:,.0f} s of one core")
    if needed.megabytes > most_megabytes or needed.seconds > MOST_SECONDS:
        raise UserError(f"{taken}, of {most_megabytes:,g} MB and {MOST_SECONDS:,} s that it may "
                        "take: choose fewer --groups, leave columns out, raise --junction-mb, or "
                        "use --model tree")
    return taken


def with_second(plan: Plan, model: Model) -> Model:
    """Returns the arrays of a tree as those of a graphical model without second parents."""
    return model | {"second": jax.numpy.full(plan.d, -1, jax.numpy.int32),
                    "table": jax.numpy.repeat(model["table"], plan.groups, 2)}


def refined(fit: Fit, public: Any, model: Model) -> Model:
    """Returns the graphical model in place of a tree.

    Args:
        fit: the estimates of the plan.
        public: `table_state.Public` after the last release, with the tables of pairs; of NumPy.
        model: arrays of `with_second`, of NumPy.

    Returns:
        Arrays of the same names and shapes.
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
    _, tables = junction.passed_up(of, factors)
    inside = np.take_along_axis(tables, public.group_of[:, None, None, None], 4)
    table = inside * facts.within[:, :, None, None]
    return model | {"second": second.astype(np.int32), "table": (
        table / np.maximum(table.sum(-1, keepdims=True), 1e-300)).astype(np.float32).reshape(
            model["table"].shape)}


def second_parents(facts: Facts) -> np.ndarray:
    """Returns the second parent of each column, int [d], or -1.

    Of a column's first parent the parent and the earlier children are tried, which are neighbours
    of it; the one whose coarse table is furthest from what the tree says, beyond noise, is taken.
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
    # A column without a table beside the class is modelled alone: nothing is known of the two.
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
        plan: the plan of the tables.
        measured: as `measurements` returns them.
    """
    import mbi
    domain = mbi.Domain([*range(plan.d + 1)], [*[plan.groups] * plan.d, plan.classes])
    return mbi.estimation.MirrorDescent().estimate(
        domain, measured, known_total=1.0, iters=STEPS, tol=PRECISE)


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

