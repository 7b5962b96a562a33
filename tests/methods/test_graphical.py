"""Columns with two parents, against enumeration; and the fit of private-PGM, if it is there.

What holds of every model beyond a tree is tested here of the network's too.
"""

import dataclasses
import functools
import importlib.util
import json
import sys
from types import SimpleNamespace

import jax
import numpy as np
import people_table
import pytest
import seeded
from test_marginals_method import CONFIG, SPEC, N, counts, verbs

from dpgen_jax.core.types import Column, TableSpec, UserError, Wanted
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_models, table_tree
from dpgen_jax.methods.shared.table_plan import Grid
from dpgen_jax.release import standalone

needs_mbi = pytest.mark.skipif(importlib.util.find_spec("mbi") is None,
                               reason='pip install "dpgen_jax[graphical]"')
D, C, G, B = 5, 2, 2, 3
# A chain of triangles, one of them on a column and its sibling, behind a root; and a second root.
PARENT, SECOND = np.array([-1, 0, 1, 1, -1]), np.array([-1, -1, 0, 2, -1])
ORDER, GROUP_OF = np.array([4, 0, 1, 2, 3]), np.array([[0, 1, 1]] * D)


def factors(seed=0):
    """Random factors, constant along the groups of parents that are not there."""
    made = np.random.default_rng(seed).uniform(0.1, 2, (D, C, G, G, B))
    made[PARENT < 0] = made[PARENT < 0][:, :, :1]
    made[SECOND < 0] = made[SECOND < 0][:, :, :, :1]
    return made


def product(tables) -> np.ndarray:
    """The product of all factors, by enumeration: [C, B, ..., B]."""
    at = np.indices((C, *[B] * D))
    bins = at[1:]

    def group(parent):
        return 0 if parent < 0 else GROUP_OF[parent][bins[parent]]

    return np.prod([tables[i][at[0], group(PARENT[i]), group(SECOND[i]), bins[i]]
                    for i in range(D)], 0)


def test_sums_and_conditional_tables_are_those_of_enumeration():
    of = table_tree.Structure(PARENT, SECOND, ORDER, GROUP_OF)
    whole = product(factors())
    upward, tables = table_tree.passed_up(of, factors())
    np.testing.assert_allclose(upward, whole.reshape(C, -1).sum(1), rtol=1e-12)
    again = product(tables) * upward.reshape(C, *[1] * D)
    np.testing.assert_allclose(again, whole, rtol=1e-12)
    # Messages along the wrong axis would be seen: the factors are not symmetric.
    turned = table_tree.Structure(PARENT, SECOND[[0, 1, 2, 3, 4]], ORDER, 1 - GROUP_OF)
    assert not np.allclose(table_tree.passed_up(turned, factors())[0], upward)


def test_conditions_on_two_parents_are_those_of_enumeration():
    letters = ("a", "b", "c")
    spec = TableSpec(tuple(Column(f"c{i}", "categorical", categories=letters) for i in range(D)),
                     Column("y", "categorical", categories=("n", "p")), 3 * D)
    of = table_tree.Structure(PARENT, SECOND, ORDER, GROUP_OF)
    _, tables = table_tree.passed_up(of, factors())
    grid, share = Grid(spec, 3), np.array([0.3, 0.7])
    model = {"share": share, "table": tables.reshape(D, C, G * G, B), "parent": PARENT,
             "second": SECOND, "order": ORDER, "bin_of": np.tile(np.arange(B), (D, 1)),
             "group_of": GROUP_OF, "fine": np.ones((D, B)), "start": np.zeros((D, B)),
             "width": np.zeros((D, B))}
    wanted = {"c0": Wanted((1.0, 2.0)), "c3": Wanted((0.0,))}
    new, probability = table_tree.conditional(grid, model, wanted)
    whole = product(tables) * share.reshape(C, *[1] * D)
    met = whole[:, 1:, :, :, :1].sum()
    assert probability == pytest.approx(met, rel=1e-6)
    again = product(table_tree.split(new["table"], new)) * new["share"].reshape(C, *[1] * D)
    expected = np.zeros_like(whole)
    expected[:, 1:, :, :, 0] = whole[:, 1:, :, :, 0] / met
    np.testing.assert_allclose(again, expected, atol=1e-6)


def test_where_no_pair_is_asked_for_no_empty_array_is_kept():
    """A checkpoint refuses one, and the run ended as if it had failed."""
    config = dataclasses.replace(CONFIG, model="graphical", sigma=8.0, records=300)
    assert not marginals.plan(config, SPEC).pairs
    public = jax.eval_shape(marginals.build(config, SPEC).init, jax.random.key(0))
    assert all(leaf.size for leaf in jax.tree.leaves(public))
    kept = jax.eval_shape(marginals.build(dataclasses.replace(
        CONFIG, model="graphical"), SPEC).init, jax.random.key(0))
    assert kept.pairs.size


def test_what_a_fit_takes_is_said_and_bounded(monkeypatch):
    config = dataclasses.replace(CONFIG, model="graphical")
    plan = marginals.plan(config, SPEC)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    line = table_models.check_graphical(plan, 1.0)
    needed = table_models.graphical_size(plan)
    assert f"{needed.megabytes:,.1f} MB" in line and f"{needed.seconds:,.0f} s" in line
    with pytest.raises(UserError, match="of 0.01 MB .* fewer --groups"):
        table_models.check_graphical(plan, 0.01)
    monkeypatch.setattr(table_models, "MOST_SECONDS", 1)
    with pytest.raises(UserError, match="use --model tree"):
        table_models.check_graphical(plan, 1.0)


def test_without_the_package_it_is_named_before_anything_is_spent(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install dpgen_jax\[graphical\]'):
        seeded.train(GRAPHICAL, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@needs_mbi
def test_the_size_is_at_least_that_of_the_junction_tree():
    """The widest structure is all columns in one chain of triangles, beside the class."""
    from mbi import Domain
    from mbi.junction_tree import hypothetical_model_size

    plan = SimpleNamespace(d=9, classes=3, groups=4, bins=4)
    domain = Domain([*range(10)], [*[4] * 9, 3])
    cliques = [(9, i, i + 1) for i in range(8)] + [(i, i + 2) for i in range(7)]
    found = hypothetical_model_size(domain, cliques)
    assert found * table_models.COPIES <= table_models.graphical_size(plan).megabytes


TREE = seeded.SLOW["marginals table"]
GRAPHICAL, NETWORK = (dataclasses.replace(TREE, fields=TREE.fields | {"model": name})
                      for name in ("graphical", "network"))


@pytest.fixture(scope="module")
def of_tree(tmp_path_factory):
    """The folder and the release of a seeded run with a tree."""
    root = tmp_path_factory.mktemp("tree") / "run"
    return root, seeded.train(TREE, root)


@pytest.fixture(scope="module", params=[pytest.param(GRAPHICAL, marks=needs_mbi), NETWORK],
                ids=["graphical", "network"])
def beyond(request, tmp_path_factory):
    """The same of the same run with a model beyond a tree."""
    root = tmp_path_factory.mktemp("beyond") / "run"
    return root, seeded.train(request.param, root)


@pytest.mark.slow
def test_the_ledger_and_the_released_counts_are_those_of_a_tree(beyond, of_tree):
    """The model is made after the release: nothing that is charged or drawn moves."""
    def charged(root):
        lines = map(json.loads, (root / "ledger.jsonl").read_text().splitlines())
        return [{name: line[name] for name in ("events", "actual", "count") if name in line}
                for line in lines]

    (ours, new), (theirs, old) = beyond, of_tree
    assert charged(ours) == charged(theirs) and any(charged(ours))
    for name in ("epsilon", "delta", "steps", "events"):
        assert new.privacy[name] == old.privacy[name]
    for name in ("share", "fine", "parent", "bin_of", "group_of"):
        np.testing.assert_array_equal(new.model[name], old.model[name])
    assert new.model["table"].shape != old.model["table"].shape
    np.testing.assert_allclose(new.model["table"].sum(-1), 1, atol=1e-4)


@pytest.mark.slow
def test_its_release_is_conditioned_and_exported(beyond):
    """Without the package: a condition is met by the model, and NumPy alone draws the records."""
    _, release = beyond
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "mbi", None)
        sampler = release.stream(300, seed=1, where="age>=60")
        codes = np.concatenate([x for x, _ in sampler])
        assert (codes[:, 0] >= 60).all() and sampler.tries <= 1000
        assert any("exact, by the model" in line for line in sampler.report())
        assert standalone.generator(release).arrays


def chained(n, seed=0):
    """Rows of which `pay` follows `age` and `sex`, which follow one another but loosely."""
    x, y = people_table.table(n, seed, signal=0.0, spec=SPEC)
    rng = np.random.default_rng(seed)
    age = rng.uniform(size=n)
    sex = rng.random(n) < 0.25 + 0.5 * age
    x[:, 0] = age
    x[:, 1], x[:, 2] = ~sex, sex
    x[:, 3] = np.clip(0.5 * age + 0.45 * sex + 0.05 * rng.normal(size=n), 0, 1)
    x[:, 4] = 0
    return x.astype(np.float32), y


@functools.cache
def fitted_chain():
    """A tree and a graphical model of the same sums, without noise to speak of."""
    import jax
    import jax.numpy as jnp

    config = dataclasses.replace(CONFIG, model="graphical")
    p, method, answers, absorb, finalize = verbs(config)
    x, y = chained(N)
    public = jax.jit(method.init)(jax.random.key(0))
    for _ in range(p.steps):
        public = absorb(public, jnp.float32(counts(method, answers(x, y, public))))
    public = jax.device_get(public)
    model = jax.device_get(finalize(public))
    return method, x, model, method.refinement.apply(public, model)


@needs_mbi
@pytest.mark.slow
def test_a_second_parent_brings_the_pairs_that_a_tree_misses_closer():
    import jax

    method, x, before, after = fitted_chain()
    assert (before["second"] == -1).all() and (after["second"] >= 0).any()
    labels = np.resize(np.arange(3), 20_000).astype(np.int32)
    features = np.array([0, 2, 3, 4])  # of the four columns

    def missed(model):
        """The total variation distance of the pairs that have got a second parent."""
        made = np.asarray(jax.jit(method.sample)(model, jax.random.key(1), labels))
        pairs = [features[[node, other]] for node, other in enumerate(after["second"])
                 if other >= 0]
        tables = [[np.histogramdd(rows[:, pair], [np.linspace(0, 1, 5)] * 2)[0] / len(rows)
                   for pair in pairs] for rows in (made, x)]
        return np.abs(np.subtract(*tables)).sum() / 2

    assert missed(after) < 0.6 * missed(before)
