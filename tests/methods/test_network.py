"""A mixture of products: against enumeration, and fitted to released counts by a network."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest
from test_graphical import chained
from test_marginals_method import CONFIG, SPEC, N, counts, states, verbs
from test_marginals_rare import records as with_rare

from dpgen_jax.core.types import Column, TableSpec, UserError, Wanted
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_models
from dpgen_jax.methods.shared.table_models import Facts
from dpgen_jax.methods.shared.table_plan import Grid
from dpgen_jax.methods.shared.table_tree import Fit

D, C, K, G, B = 3, 2, 4, 2, 3
NETWORK = dataclasses.replace(CONFIG, model="network")
LETTERS = ("a", "b", "c")


def mixture(seed=0) -> dict[str, np.ndarray]:
    """A random mixture over three columns of three categories."""
    rng = np.random.default_rng(seed)
    group_of = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 1]])
    within = rng.uniform(0.1, 2, (D, C, B))
    return {"share": np.float32([0.3, 0.7]), "mix": rng.dirichlet(np.ones(K), C),
            "table": rng.dirichlet(np.ones(G), (D, C, K)), "within": within, "group_of": group_of,
            "bin_of": np.tile(np.arange(B), (D, 1)), "fine": np.ones((D, B), np.float32),
            "start": np.zeros((D, B)), "width": np.zeros((D, B)), "parent": np.full(D, -1)}


def exact(model) -> np.ndarray:
    """P(class, bins) of a mixture, by enumeration: [C, B, ..., B]."""
    joint = np.zeros((C, *[B] * D))
    for label, one, *bins in itertools.product(range(C), range(K), *[range(B)] * D):
        p = model["share"][label] * model["mix"][label, one]
        for i, place in enumerate(bins):
            of = model["table"][i, label, one][model["group_of"][i]] * model["within"][i, label]
            p *= of[place] / of.sum() if of.sum() else 0
        joint[label, *bins] += p
    return joint


def grid():
    """The cells of the three columns."""
    columns = tuple(Column(f"c{i}", "categorical", categories=LETTERS) for i in range(D))
    return Grid(TableSpec(columns, Column("y", "categorical", categories=("n", "p")), B * D), B)


@pytest.mark.parametrize("wanted", [
    {"c0": Wanted((1.0, 2.0)), "c2": Wanted((0.0,))}, {"c1": Wanted((2.0,)), "y": Wanted((1.0,))}])
def test_conditions_are_those_of_enumeration(wanted):
    whole = exact(mixture())
    new, probability = table_models.conditional_products(grid(), mixture(), wanted)
    at = np.indices(whole.shape)
    axes = {"y": 0} | {f"c{i}": i + 1 for i in range(D)}
    met = np.prod([np.isin(at[axes[name]], of.codes) for name, of in wanted.items()], 0) * whole
    assert probability == pytest.approx(met.sum(), rel=1e-6)
    np.testing.assert_allclose(exact(new), met / met.sum(), atol=1e-6)


def test_what_a_mixture_rules_out_is_refused():
    model = mixture()
    model["within"][0, :, 1] = 0
    with pytest.raises(UserError, match="makes no record with c0 as given; loosen"):
        table_models.conditional_products(grid(), model, {"c0": Wanted((1.0,))})
    with pytest.raises(UserError, match="'c9' is not a column"):
        table_models.conditional_products(grid(), model, {"c9": Wanted((1.0,))})


def test_samples_are_of_the_distribution_that_is_enumerated():
    labels = np.repeat(np.arange(C), 20_000).astype(np.int32)
    model = {name: jnp.asarray(array, jnp.int32 if array.dtype.kind == "i" else jnp.float32)
             for name, array in mixture().items()}
    rows = np.asarray(table_models.sample_products(grid(), model, jax.random.key(0), labels))
    codes = rows.reshape(-1, D, B).argmax(2)
    made = np.zeros((C, *[B] * D))
    np.add.at(made, (labels, *codes.T), 1 / 20_000)
    assert (rows.reshape(-1, D, B).sum(2) == 1).all()
    expected = exact(mixture()) / mixture()["share"].reshape(C, *[1] * D)
    np.testing.assert_allclose(made, expected, atol=0.015)


def targets(config, records):
    """The targets of a release without noise to speak of, and its facts."""
    fit, last = Fit(marginals.plan(config, SPEC)), jax.device_get(states(config, 0, records)[-1])
    facts = Facts.of(fit, last, jax.device_get(jax.jit(fit.model)(last)))
    return table_models.Targets.of(facts), facts


def everyone():
    """Records of whom none is of a rare class."""
    return people_table.table(N, spec=SPEC)


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "records"), [
    ({"weight_label": 0.0}, everyone), ({}, everyone), ({"rare_share": 0.05}, with_rare),
    ({"rare_share": 0.05, "groups": 2}, with_rare)],
    ids=["the class is a column", "edges by class", "rare", "rare, edges of all classes"])
def test_the_misfit_is_that_of_all_tables_one_by_one(fields, records):
    """With loops in place of products of matrices, of a random mixture."""
    of, facts = targets(dataclasses.replace(NETWORK, **fields), records)
    p, rng = facts.fit.plan, np.random.default_rng(0)
    table = rng.dirichlet(np.ones(p.groups), (p.d, p.classes, 5))
    share, total, terms = facts.grouped[0].sum(1), 0.0, 0
    votes = np.where(np.asarray(facts.fit.rare(facts.public)) & p.with_rare, 0, share)
    assert (votes.sum() < 0.999) == p.with_rare and (p.edge_classes == 1) == (
        "groups" in fields or p.with_label)
    votes /= votes.sum()
    for i in range(p.d):
        off = np.einsum("c,ckg->cg", share / 5, table[i]) - facts.grouped[i]
        off = off if facts.public.joint_precision[i] > 0 else off.sum(0)
        total += (off**2).sum() / facts.grouped_noise[i]**2
        terms += off.size
        if (above := int(facts.public.parent[i])) >= 0:
            both = np.einsum("ckg,ckh->cgh", table[above], table[i]) / 5
            both = (share[:, None, None] * both if p.edge_classes > 1 else
                    np.einsum("c,cgh->gh", votes, both)[None])
            total += ((both - facts.edge_masses[i])**2).sum() / facts.edge_noise[i]**2
            terms += both.size
    for (i, j), counted in facts.pairs.items():
        right = (np.eye(4)[facts.public.label_of][:, None].repeat(5, 1) if j == p.d
                 else table[j] @ facts.coarse[j])
        both = np.einsum("c,cka,ckb->ab", votes / 5, table[i] @ facts.coarse[i], right)
        total += ((both - counted)**2).sum() / facts.pair_noise**2
        terms += counted.size
    assert (p.d in np.unique(p.couples)) == p.with_label
    assert float(of.misfit(jnp.float32(table))) == pytest.approx(total / terms, rel=1e-3)


def test_a_run_that_ended_before_pairs_were_released_fits_none():
    """Zeros stand in their place, which are no counts."""
    method = verbs(NETWORK)[1]
    for public in jax.device_get(states(NETWORK)[:2]):
        model = jax.device_get(jax.jit(method.finalize)(None, public))
        assert method.refinement.apply(public, model) is model


def fitted_chain():
    """Records that hang together, a tree of their counts and a mixture, and how each is sampled."""
    made = {}
    for name in ("tree", "network"):
        p, method, answers, absorb, finalize = verbs(dataclasses.replace(CONFIG, model=name))
        x, y = chained(N)
        public = jax.jit(method.init)(jax.random.key(0))
        for _ in range(p.steps):
            public = absorb(public, jnp.float32(counts(method, answers(x, y, public))))
        model = jax.device_get(finalize(public))
        if method.refinement:
            model = method.refinement.apply(jax.device_get(public), model)
        made[name] = method, model
    return x, made


@pytest.mark.slow
def test_the_pair_that_a_tree_misses_comes_closer_and_no_other_goes_far(monkeypatch):
    monkeypatch.setattr(table_models, "NETWORK_STEPS", 400)
    x, made = fitted_chain()
    labels = np.resize(np.arange(3), 20_000).astype(np.int32)

    def missed(name):
        """Total variation distances of the pairs of age, sex and pay; the first is no edge."""
        rows = np.asarray(jax.jit(made[name][0].sample)(made[name][1], jax.random.key(1), labels))
        tables = [[np.histogramdd(some[:, pair], [np.linspace(0, 1, 5)] * 2)[0] / len(some)
                   for pair in ([0, 2], [0, 3], [2, 3])] for some in (rows, x)]
        return np.abs(np.subtract(*tables)).sum((1, 2)) / 2

    of_tree, of_network = missed("tree"), missed("network")
    assert of_network[0] < 0.4 * of_tree[0] and (of_network[1:] < 1.2 * of_tree[1:]).all()


def test_where_no_pair_is_asked_for_columns_are_independent_given_the_class():
    config = dataclasses.replace(NETWORK, sigma=8.0, records=300)
    p, method, *_ = verbs(config)
    assert not p.pairs and "no network is fitted" in table_models.check_network(p)
    public = jax.device_get(jax.jit(method.init)(jax.random.key(0)))
    assert all(leaf.size for leaf in jax.tree.leaves(public))
    model = jax.device_get(jax.jit(method.finalize)(None, public))
    assert method.refinement.apply(public, model) is model
    assert model["table"].shape == (p.d, p.classes, 1, p.groups) and (model["mix"] == 1).all()
    of_bins = np.take_along_axis(model["table"][:, :, 0], np.broadcast_to(
        model["group_of"][:, None], model["within"].shape), 2) * model["within"]
    tree = jax.device_get(jax.jit(verbs(dataclasses.replace(config, model="tree"))[1].finalize)(
        None, public))
    np.testing.assert_allclose(of_bins, tree["table"][:, :, 0], atol=1e-6)


def test_the_time_that_a_fit_takes_is_said_and_bounded(monkeypatch):
    plan = marginals.plan(NETWORK, SPEC)
    assert f"up to {table_models.seconds(plan):,.0f} s" in table_models.check_network(plan)
    monkeypatch.setattr(table_models, "MOST_SECONDS", 1)
    with pytest.raises(UserError, match="use --model tree"):
        table_models.check_network(plan)


def test_each_class_has_components_however_many_classes_there_are():
    for classes in (1, 2, 10, 1000):
        plan = dataclasses.replace(marginals.plan(NETWORK, SPEC), spec=dataclasses.replace(
            SPEC, label=Column("y", "categorical", categories=tuple(map(str, range(classes))))))
        assert table_models.components(plan) >= table_models.FEWEST
        assert table_models.components(plan) * classes > table_models.COMPONENTS - classes
