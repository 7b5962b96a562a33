"""Messages of few rows: which rows count, how far a message moves, and what is refused."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.aggregation.bound import FewRows
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.teacher_votes import OneHot
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.audit.pairs import opposites
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import UserError

VOTES, NORM = FewRows(TopKSign(3, 2), 5), FewRows(RowL2(1.0, 8, 2, 100), 5)
bounds = pytest.mark.parametrize("bound", [VOTES, NORM], ids=["votes", "norm"])
PROJECT = jax.jit(FewRows.project, static_argnums=0)


def project(bound, message, seed=0):
    return np.asarray(PROJECT(bound, jax.random.key(seed), np.float32(message)))


def test_rows_that_are_present_keep_their_places(rng):
    message = rng.normal(size=(5, 8))
    message[0], message[2, 3], message[4] = 0, np.nan, np.inf
    votes = project(VOTES, message)
    assert np.abs(votes).sum(1).tolist() == [0, 3, 0, 3, 0]
    order = np.sort(np.abs(message[3]))[-3]
    assert np.array_equal(votes[3] != 0, np.abs(message[3]) >= order)
    # One row alone is not moved, and what is not finite is no row at all.
    alone = np.zeros((5, 8))
    alone[:4, 1], alone[4, 6] = np.nan, -2
    assert project(VOTES, alone).tolist() == [[0] * 8] * 4 + [[0] * 6 + [-1, 0]]
    assert not project(VOTES, np.full((5, 8), np.inf)).any()


def test_no_row_is_preferred(rng):
    """Rows may lie class by class: of five that are present, each is drawn as often."""
    message = rng.normal(size=(5, 8))
    drawn = sum((project(VOTES, message, seed) != 0).any(1) for seed in range(300))
    assert drawn.sum() == 600 and drawn.min() > 80


def test_a_unit_without_records_says_nothing():
    """By a bound, too, that votes on rows of zeros."""
    histograms = FewRows(OneHot(2, 8, 2, 1.0), 5)
    assert not project(histograms, np.full((5, 8), np.nan)).any()
    assert not project(histograms, np.zeros((5, 8))).any()


@bounds
@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(0, 5), st.floats(0.5, 1e3))
def test_no_message_is_longer_than_the_bound(bound, seed, zeros, size):
    rng = np.random.default_rng(seed)
    message = size * rng.normal(size=(5, 8)) * (rng.permutation(5) >= zeros)[:, None]
    entries = project(bound, message, seed)
    assert (entries**2).sum() <= bound.squared_norm
    assert (entries != 0).any(1).sum() == min(2, 5 - zeros)
    assert np.abs(entries).max(initial=0) <= bound.max_abs


def furthest(project, bound):
    """The largest squared distance of pairs of messages, among them opposite rows."""
    rng, found = np.random.default_rng(0), 0
    for seed in range(40):
        a, b = opposites(bound, jax.random.key(seed), (5, 8))
        c = rng.normal(size=(5, 8)) * rng.integers(0, 2, (5, 1))
        for p, q in ((a, b), (a, c), (c, -c), (c, rng.permutation(-c))):
            moved = np.asarray(project(p)).astype(int) - np.asarray(project(q))
            found = max(found, (moved**2).sum())
    return found


@bounds
def test_the_sensitivity_is_that_of_the_furthest_messages(bound):
    found = furthest(lambda message: project(bound, message), bound)
    declared = bound.squared_sensitivity()
    assert declared == 4 * bound.bound.squared_norm
    # Rounding keeps a clipped row slightly short of its norm.
    assert found == declared if bound is VOTES else 0.9 * declared < found <= declared


def test_rows_beyond_the_few_are_caught():
    """The planted fault: all rows are bounded, and the price is that of two."""
    every_row = jax.jit(TopKSign(3, 5).project)
    found = furthest(lambda message: every_row(
        jax.random.key(0), np.nan_to_num(np.float32(message))), VOTES)
    assert found > VOTES.squared_sensitivity()


@pytest.mark.parametrize(("bound", "rows", "text"), [
    (TopKSign(3, 4), 3, "a message has 3 rows, of which 4 may be used"),
    (GradientL2(1.0, 10, 100, Relation.ZERO_OUT), 3, "proven for replace-one, and GradientL2")])
def test_what_is_not_proven_is_refused(bound, rows, text):
    with pytest.raises(UserError, match=text):
        FewRows(bound, rows)
