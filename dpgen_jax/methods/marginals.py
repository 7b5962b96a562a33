"""Noisy marginals and a tree: a model of a table, fitted to noisy counts of small tables.

Unit: a record. Each step is one Gaussian release of integer counts: a record votes for its cell in
every table of the step, with a weight for each table. Cells strictly increase, as
`aggregation.moments.CellVotes` demands, because the tables lie one behind the other.

The first step counts the histogram of each column, from which bins of equal noisy mass are made.
The second counts coarse tables of all pairs of columns, and each column together with the class.
From them a tree is chosen, by how much more the pairs show than the model so far. All later steps
count each column together with the class, and the edges of the tree. Tables that noise would drown
are left out: a decision of public numbers. Everything else reads released counts only, also which
classes are rare: their records vote for columns with the class, and for no pair.

Source: the select, measure, generate of McKenna, Miklau and Sheldon, "Winning the NIST Contest"
(2021, arXiv 2108.04978), whose tree is chosen so; Friedman, Geiger and Goldszmidt, "Bayesian
Network Classifiers" (1997), for a tree given the class; McKenna et al., "AIM" (2022, arXiv
2201.12677), for rounds that count what the model so far gets wrong.

Departures from both: no exponential mechanism, as pairs are chosen by noisy tables that are
released; a closed form in place of a fitted graphical model or network, unless one is wanted;
and the replace-one relation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.moments import CellVotes
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.core.config import Runtime, later, require_not_negative, require_positive
from dpgen_jax.core.types import (
    Array,
    Method,
    Metrics,
    Records,
    Refinement,
    Spec,
    TableSpec,
    UserError,
)
from dpgen_jax.methods.shared import table_models, table_plan, table_rounds, table_tree
from dpgen_jax.methods.shared.config import RecordUnits
from dpgen_jax.methods.shared.presets import Preset, numbers, serving
from dpgen_jax.methods.shared.table_plan import COARSE, Plan, Public
from dpgen_jax.methods.shared.table_tree import Fit


def voted(p: Plan, cells: Array, weight: Array) -> Array:
    """Returns cells and weights float32 [2, V], padded with votes for no cell."""
    spare = p.columns + jnp.arange(p.votes - len(cells))
    weight = jnp.concatenate([weight, jnp.zeros(len(spare), weight.dtype)])
    return jnp.stack([jnp.concatenate([cells, spare]), weight]).astype(jnp.float32)


def votes_of_histograms(p: Plan, code: Array, label: Array) -> Array:
    """The cell of each column, and the class."""
    if not p.histograms:
        return voted(p, jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))
    cells = jnp.arange(p.d + 1) * p.widest + jnp.concatenate([code, label[None]])
    return voted(p, cells, jnp.full(p.d + 1, p.first_weight).at[-1].set(p.first_class_weight))


def votes_of_pairs(p: Plan, code: Array, label: Array, query: Public) -> Array:
    """The coarse groups of each pair of columns; then the bin of each column with the class."""
    if not p.pairs:
        return voted(p, jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))
    columns = np.arange(p.d)
    at = jnp.append(query.coarse_of[columns, code], query.label_of[label])[p.couples]
    number = len(p.couples)
    cells = (jnp.arange(number) * COARSE + at[:, 0]) * COARSE + at[:, 1]
    weight = jnp.full(number, p.weight(p.pair_share, number))
    if p.with_label:
        return voted(p, cells, weight)
    joint = number * COARSE**2 + joint_cells(p, code, label, query)
    weight = jnp.concatenate([weight, jnp.full(p.d, p.weight(1 - p.pair_share, p.d))])
    return voted(p, jnp.concatenate([cells, joint]), votes_of_class(
        p, label, query, weight, jnp.where(jnp.arange(len(weight)) < number, 0, p.rare_weight)))


def votes_of_class(p: Plan, label: Array, query: Public, weight: Array, rare: Array) -> Array:
    """Returns the weights of a record: those of its class, if that is rare by the first release."""
    return jnp.where(Fit(p).rare(query)[label], rare, weight) if p.with_rare else weight


def joint_cells(p: Plan, code: Array, label: Array, query: Public) -> Array:
    """Returns the cell of each column with the class, int32 [d]."""
    columns = jnp.arange(p.d)
    return (columns * p.classes + label) * p.bins + query.bin_of[columns, code]


def votes_of_tables(p: Plan, code: Array, label: Array, query: Public) -> Array:
    """The bin of each column with the class; then its group with that of its parent."""
    columns, cells = np.arange(p.d), joint_cells(p, code, label, query)
    if not p.pairs:
        return voted(p, cells, query.weights[:p.d])
    group = query.group_of[columns, query.bin_of[columns, code]]
    row = columns * p.edge_classes + (label if p.edge_classes > 1 else 0)
    edges = (row * p.groups + group[query.parent]) * p.groups + group
    return voted(p, jnp.concatenate([cells, p.d * p.classes * p.bins + edges]), votes_of_class(
        p, label, query, query.weights, jnp.where(np.arange(2 * p.d) < p.d, p.rare_weight, 0)))


@dataclasses.dataclass(frozen=True)
class Config(RecordUnits):
    """The configuration of noisy marginals. `sigma` may be None: it is found from the budget."""

    protects_subjects = True

    weight_label: float = 1.0
    """what tables that hold the label weigh beside the others, in squared weights; 0: the label is
    a column like any other, and only the tree's columns are counted beside it"""
    cells: int = 256
    """most cells between the declared bounds of a number"""
    bins: int = 32
    """most bins of a column beside the label"""
    groups: int = 24
    """most groups of bins, a side, of an edge of the tree"""
    sigma: float | None = None
    """noise multiplier of a step; found from the budget if left out; 0: no noise, epsilon is
    infinite"""
    steps: int | None = 5
    """releases"""
    label_part: float = later(0.0)
    """of the first step, what the histogram of the label gets at least, so that a rare class is
    not lost in noise; below 1"""
    rare_share: float = later(0.0)
    """the share of records up to which the rarest classes together get all votes of theirs for
    columns beside the class, and none for pairs of columns; below 1"""
    model: Literal["tree", "graphical", "network"] = later("tree")
    """the model of the counts: a tree beside the label, in closed form; a graphical model
    with a second parent for columns, by private-PGM (needs the extra `graphical`); or a mixture
    that a small network makes, for columns that all hang together"""
    junction_mb: float = later(256.0)
    """megabytes that the junction tree of a graphical model may take"""
    follows: bool = later(False)
    """cells and bins of numbers follow the counts of the first step, so that bounds far wider than
    the data cost little; classes of few records lose by it"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(cells=self.cells, bins=self.bins - 1, groups=self.groups - 1)
        require_not_negative(weight_label=self.weight_label, label_part=self.label_part,
                             rare_share=self.rare_share, junction_mb=self.junction_mb)
        for name in ("label_part", "rare_share"):
            if (share := getattr(self, name)) >= 1:
                raise UserError(f"{name} is {share:g}; it is a share, below 1")


def plan(config: Config, spec: Spec) -> Plan:
    """Returns the plan of tables, from public numbers only.

    Raises:
        UserError: for images.
    """
    if not isinstance(spec, TableSpec):
        raise UserError("this method is for tables; for images use dpmerf or dpgan")
    return Plan(table_plan.learned(spec), config.n_records, config.sigma or 0.0, config.steps or 5,
                config.cells, config.bins, config.groups, config.weight_label, config.label_part,
                config.rare_share, config.follows)


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: noisy counts.

    Guarantee:
        Unit: a record. Relation: replace-one. A record's message is votes for cells, none twice,
        whose squared weights add up to at most `limit`: replacing the record moves the sum by at
        most sqrt(2 limit), as no vote is negative. The noise has a standard deviation of
        sigma sqrt(2 limit) per cell, so a step is one Gaussian mechanism with mu = 1 / sigma.

    Source:
        `aggregation.moments.CellVotes`.
    """
    p = plan(config, spec)
    bound = CellVotes(p.votes, p.columns, p.limit)
    return SumMechanism(
        bound=bound,
        noise=gaussian((2 * p.limit)**0.5 * p.sigma),
        schedule=FullParticipation(),
        n_units=config.n_records,
        shape=(1, p.columns),
        decode=noisy_sum,
    )


def noisy_sum(noised: Array, n_units: float) -> Array:
    """Returns the noisy sum as it is: float32 of int32 [1, D]."""
    del n_units
    return noised.astype(jnp.float32)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for rows of this schema."""
    del runtime
    p = plan(config, spec)
    assert isinstance(spec, TableSpec)
    fit = Fit(p)
    kinds, counts_model = jnp.array(p.kinds), _model(config, fit)

    def init(key: Array) -> Public:
        del key
        return table_rounds.start_rounds(fit, keeps_pairs=counts_model.refinement is not None)

    def ask(key: Array, public: Public) -> Public:
        del key
        return public

    def answer(key: Array, unit: Array, records: Records, query: Public) -> Array:
        """The cells of the record in the tables of the step, and their weights: [1, 2 V].

        A subject of several rows answers for one of them, in turn, so that it votes as one record.
        """
        del key, unit
        row = query.step % len(records.y)
        code = p.grid.codes(table_plan.learned_features(spec, records.x[row]), query.start)
        label = jnp.clip(records.y[row], 0, p.classes - 1)
        votes = jax.lax.switch(kinds[jnp.minimum(query.step, p.steps - 1)], [
            lambda: votes_of_histograms(p, code, label),
            lambda: votes_of_pairs(p, code, label, query),
            lambda: votes_of_tables(p, code, label, query)])
        return votes.reshape(1, -1)

    def absorb(key: Array, public: Public, query: Public, released: Array
               ) -> tuple[Public, Metrics]:
        del key, query
        counts = released[0]
        new = jax.lax.switch(kinds[jnp.minimum(public.step, p.steps - 1)], [
            lambda: table_rounds.after_histograms(fit, public, counts),
            lambda: table_rounds.after_pairs(fit, public, counts),
            lambda: table_rounds.after_tables(fit, public, counts)])
        return (dataclasses.replace(new, step=public.step + 1),
                {"edges": jnp.sum(new.parent >= 0).astype(jnp.float32)})

    def finalize(key: Array, public: Public) -> table_tree.Model:
        del key
        return counts_model.finalize(public)

    def sample(model: table_tree.Model, key: Array, labels: Array) -> Array:
        return table_plan.whole_features(spec, counts_model.sample(p.grid, model, key, labels))

    return Method(mechanism=mechanism(config, spec), init=init, ask=ask, answer=answer,
                  absorb=absorb, finalize=finalize, sample=sample,
                  decomposes=True, at_once=1024, refinement=counts_model.refinement,
                  class_shares=lambda model: model["share"],
                  conditional=lambda model, wanted: counts_model.conditional(p.grid, model, wanted),
                  tables=lambda model, steps: table_rounds.count_tables(p, model, steps))


def for_numpy(config: Config, spec: Spec, model: table_tree.Model) -> dict[str, np.ndarray]:
    """Returns the arrays by which `release.numpy_samplers` draws what `Method.sample` draws."""
    assert isinstance(spec, TableSpec)
    return {name: np.asarray(array) for name, array in model.items()} | table_plan.layout(
        plan(config, spec).grid, spec)


@dataclasses.dataclass(frozen=True)
class _Model:
    """A model of the counts: how it is made, sampled and given conditions.

    Attributes:
        finalize: from the public state to the model's arrays.
        refinement: the estimate on the host that follows `finalize`, or None.
        sample: as `table_tree.sample`.
        conditional: as `table_tree.conditional`.
    """

    finalize: Callable[[Public], table_tree.Model]
    refinement: Refinement | None = None
    sample: Callable[..., Array] = table_tree.sample
    conditional: Callable[..., tuple[table_tree.Model, float]] = table_tree.conditional


def _model(config: Config, fit: Fit) -> _Model:
    """Returns the model of a configuration."""
    p = fit.plan
    if config.model == "graphical":
        return _Model(lambda public: table_models.with_second(p, fit.model(public)), Refinement(
            check=lambda: table_models.check_graphical(p, config.junction_mb),
            apply=lambda public, model: table_models.refined_graphical(fit, public, model)))
    if config.model == "network":
        return _Model(lambda public: table_models.independent(fit, public), Refinement(
            check=lambda: table_models.check_network(p),
            apply=lambda public, model: table_models.refined_network(fit, public, model)),
            table_models.sample_products, table_models.conditional_products)
    return _Model(fit.model)


# Presets of noisy marginals.

OURS = ("this library: chosen on a validation part of the training rows of Adult and "
        "breast_cancer; rare_share on those of two tables with rare classes")
CONFIG = Config(label_part=0.2, rare_share=0.05)
PRESETS = {
    "table": Preset(CONFIG, numbers(29), 1.0, 1e-5, 45569, OURS, dataset="table"),
    "breast_cancer": Preset(CONFIG, numbers(30), 1.0, 1e-5, 455, OURS, dataset="breast_cancer"),
    "adult": Preset(CONFIG, numbers(108), 1.0, 1e-5, 32561, OURS, dataset="adult"),
}
PRESETS = serving(PRESETS, (), {"table-few": "breast_cancer"})
