"""Noisy marginals with a rare class: its records vote for columns beside the class alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import people_table
import pytest
from test_graphical import needs_mbi
from test_marginals_method import CONFIG, SPEC, N, counts, everybody, verbs
from test_marginals_method import states as states_of

from dpgen_jax.core.types import UserError
from dpgen_jax.data.table import transform
from dpgen_jax.methods import marginals
from dpgen_jax.methods.shared import table_models
from dpgen_jax.methods.shared.table_tree import Fit

RARE = dataclasses.replace(CONFIG, rare_share=0.05)
KEEPS_PAIRS = dataclasses.replace(RARE, model="graphical")


def records():
    """The table, with one record in fifty in class 2, who are all old; others are of 0 and 1."""
    x, y = people_table.table(N, spec=SPEC)
    is_rare = np.arange(N) % 50 == 0
    codes = transform.decode(SPEC, x)
    codes[is_rare, 0] = 100
    return (transform.encode(SPEC, codes).astype(np.float32),
            np.where(is_rare, 2, np.minimum(y, 1)).astype(np.int32))


@pytest.fixture(scope="module")
def states():
    """The public state before each step, and after the last one, with the tables of pairs."""
    return states_of(KEEPS_PAIRS, records=records)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 3])
def test_no_record_moves_more_than_is_declared_whatever_its_class(states, step):
    """By brute force over records of all extremes, rare ones among them; rare ones reach it."""
    p, method, answers, _, _ = verbs(RARE)
    x, y = everybody()
    pairs = np.asarray(answers(x, y, states[step]))
    rows = np.stack([counts(method, one[None])[0] for one in pairs])
    apart = ((rows[:, None] - rows)**2).sum(-1)
    declared = method.mechanism.bound.squared_sensitivity()
    assert 0.99 * declared < apart[y == 2].max() <= apart.max() <= declared
    assert (rows**2).sum(1).max() <= p.limit


@pytest.mark.slow
def test_rare_records_vote_for_columns_beside_the_class_alone(states):
    """The others vote as they would without rare ones; which is rare is read off a release."""
    p, method, answers, _, _ = verbs(RARE)
    _, _, plain, _, _ = verbs()
    x, y = everybody()
    np.testing.assert_array_equal(np.asarray(Fit(p).rare(states[2])), [False, False, True])
    pairs = np.asarray(answers(x, y, states[2]))
    assert (pairs[y == 2][:, 1, :p.d] == p.rare_weight).all()
    assert not pairs[y == 2][:, 1, p.d:].any()
    state = dataclasses.replace(states[2], rare_precision=None)
    np.testing.assert_array_equal(pairs[y < 2], np.asarray(plain(x, y, state))[y < 2])
    nobody = dataclasses.replace(states[2], label=jnp.float32([1, 1, 1]) * states[2].label.sum())
    assert np.asarray(answers(x, y, nobody))[y == 2][:, 1, p.d:].any()


def test_the_largest_class_is_never_rare():
    """Whatever the share, and how sums of shares are rounded: somebody votes for pairs."""
    fit = Fit(dataclasses.replace(verbs(RARE)[0], rare_share=1 - 1e-12))
    start = jax.jit(verbs(RARE)[1].init)(jax.random.key(0))
    for label in ([1e9, 0, 0], [1e9, 1e9, 1e9], [0, 0, 0]):
        state = dataclasses.replace(start, label=jnp.float32(label))
        assert 0 < np.asarray(fit.rare(state)).sum() < 3
        share, voters = fit.paired(state, jnp.full(3, 1 / 3))
        assert np.isfinite(share).all() and voters > 0.3


@pytest.mark.slow
def test_the_precision_of_a_rare_class_is_that_of_its_votes(states):
    p, method, answers, _, finalize = verbs(RARE)
    x, y = records()
    last, fit = states[-1], Fit(p)
    precision = np.asarray(fit.precision(last))
    assert (precision[:, 2] == 3 * p.rare_weight**2).all()
    assert (precision[:, 2] > precision[:, 0]).all()
    masses = np.asarray(fit.masses(last.joint, fit.precision(last)))
    true = np.bincount(y, minlength=3) / N
    np.testing.assert_allclose(masses.sum(2), np.broadcast_to(true, (p.d, 3)), atol=0.01)
    model = {name: np.asarray(array) for name, array in finalize(last).items()}
    np.testing.assert_allclose(model["share"], true, atol=0.01)
    rows = np.asarray(jax.jit(method.sample)(model, jax.random.key(1), np.full(2000, 2, np.int32)))
    assert np.median(transform.decode(SPEC, rows)[:, 0]) > 85
    # What pairs hold of the others is not less for the rare ones that are left out of them.
    mean = fit.edge_masses(last, model["share"], np.zeros((p.d, 3, p.groups, p.groups)))
    at = int(np.argmax(np.asarray(last.parent) >= 0))
    assert float(mean[at].sum()) == pytest.approx(1 if p.edge_classes == 1 else true[:2].sum(),
                                                  abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param("graphical", marks=needs_mbi), "network"])
def test_a_model_beyond_a_tree_knows_a_rare_class_by_its_own_votes(states, model, monkeypatch):
    """Its edges, of which a rare class says nothing, do not make it like the others."""
    monkeypatch.setattr(table_models, "NETWORK_STEPS", 300)
    _, method, _, _, finalize = verbs(dataclasses.replace(RARE, model=model))
    last = jax.device_get(states[-1])
    model = method.refinement.apply(last, jax.device_get(finalize(last)))
    x, y = records()
    np.testing.assert_allclose(model["share"], np.bincount(y, minlength=3) / N, atol=0.01)
    for label in range(3):
        rows = np.asarray(jax.jit(method.sample)(model, jax.random.key(1), np.full(2000, label)))
        ages, true = (transform.decode(SPEC, some)[:, 0] for some in (rows, x[y == label]))
        assert np.median(ages) == pytest.approx(np.median(true), abs=15)


@pytest.mark.slow
def test_the_list_of_tables_says_that_rare_classes_are_in_no_pair(states):
    p, method, _, _, finalize = verbs(RARE)
    model = jax.device_get(finalize(states[-1]))
    names = [table.name for table in method.tables(model, p.steps)]
    of_pairs = [name for name in names if name.endswith(", without rare classes")]
    assert of_pairs[0].startswith("all 6 pairs of columns")
    assert len(of_pairs) == 1 + (model["parent"] >= 0).sum()


def test_a_share_is_below_one_and_needs_pairs_and_a_label():
    with pytest.raises(UserError, match="rare_share is 1; it is a share, below 1"):
        dataclasses.replace(CONFIG, rare_share=1.0)
    assert marginals.plan(RARE, SPEC).with_rare
    for fields in ({"weight_label": 0.0}, {"sigma": 60.0}, {"rare_share": 0.0}):
        assert not marginals.plan(dataclasses.replace(RARE, **fields), SPEC).with_rare
