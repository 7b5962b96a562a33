"""Moments by blocks: what one record can move, by brute force over all integers, and what is left
of a vector once it is on its grid."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.moments import SHIFT, Moments, PhaseShares, alike
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import UserError

UNIT = 2**SHIFT
SMALL = Moments(blocks=2, square_blocks=2, length=2, shades=2, levels=3, first=200 * UNIT,
                square=250 * UNIT, count=150, tint=100, columns=20, limit=10**9)
# The term that decides, each in turn: counts, the turn of a vector whose square moves too, its
# opposite, products that all blocks share, one block alone; and factors that are no whole numbers,
# so small that rounding is a third of the distance.
SETTINGS = {
    "counts": {"count": 2000}, "turned": {"first": 950 * UNIT, "count": 0, "levels": 5},
    "opposite": {"square_blocks": 0, "first": 450 * UNIT},
    "pooled": {"square_blocks": 1, "count": 600},
    "one block": {"blocks": 1, "square_blocks": 1, "first": 950 * UNIT, "levels": 5},
    "shades": {"tint": 450, "shades": 3},
    "zero-out": {"relation": Relation.ZERO_OUT, "count": 350},
    "rounded": {"square_blocks": 0, "first": UNIT * 11 // 20, "count": 0, "tint": 0},
    "rounded products": {"first": UNIT // 2, "square": UNIT // 2 - 7, "count": 0, "tint": 0},
}


def setting(name):
    return dataclasses.replace(SMALL, **SETTINGS[name])


def alone(bound, message):
    """The integers that one message adds: int32 [D]."""
    return bound.added(jnp.zeros((1, bound.columns), jnp.int32), message[None])[0]


def added(bound):
    """The integers of all messages that the bound lets through, and a dropped one: int64 [n, D]."""
    steps = range(-bound.levels, bound.levels + 1)
    vectors = [v for v in itertools.product(steps, repeat=bound.length)
               if sum(e * e for e in v) <= bound.levels**2]
    shares = [tuple(bound.tint * (i == j) for j in range(bound.shades))
              for i in range(bound.shades)]
    messages = np.array([(1, block, *v, *h) for block in range(bound.blocks) for v in vectors
                         for h in shares], np.int32)[:, None]
    assert np.asarray(jax.vmap(bound.holds)(messages)).all()
    found = jax.jit(jax.vmap(lambda m: alone(bound, m)))(messages)
    return np.concatenate([np.asarray(found, np.int64), np.zeros((1, bound.columns), np.int64)])


def farthest(bound):
    """The largest squared distance that neighbours can make."""
    points = added(bound)
    if bound.relation == Relation.ZERO_OUT:
        return int((points**2).sum(1).max())
    gram = points @ points.T
    return int((np.diag(gram)[:, None] + np.diag(gram) - 2 * gram).max())


@pytest.mark.parametrize("name", SETTINGS)
def test_the_declared_distance_is_reached_and_not_exceeded(name):
    bound = setting(name)
    reached = 0.5 if "rounded" in name else 0.97  # no pair is off by half in every entry
    assert reached * bound.exact <= farthest(bound) <= bound.exact


@pytest.mark.parametrize(("name", "fault"), [
    ("counts", lambda b: b.exact - 2 * b.count**2),
    ("turned", lambda b: b.exact - b.first**4 // b.square**2 // UNIT**2 // 2),
    ("opposite", lambda b: b.exact // 2), ("shades", lambda b: b.exact - b.tint**2),
    ("pooled", lambda b: b.exact - (b.square // UNIT)**2 * b.levels**4),
    ("zero-out", lambda b: b.exact - b.count**2)])
def test_a_constant_that_is_too_small_is_caught(name, fault):
    """The planted faults: one part of five with half of its square, or without its extra."""
    assert farthest(setting(name)) > fault(setting(name))


def test_rounding_that_is_not_counted_is_caught():
    """The planted fault: the distance before rounding."""
    bound = setting("rounded")
    assert farthest(bound) > 4 * (bound.first / UNIT * bound.levels)**2


def test_products_that_weigh_too_much_are_caught(monkeypatch):
    """The planted fault: an off-diagonal factor that is above sqrt 2 times the diagonal's."""
    monkeypatch.setattr(Moments, "product", property(lambda bound: bound.square * 8 // 5))
    bound = dataclasses.replace(SMALL, levels=5, count=0, tint=0, first=UNIT)
    assert farthest(bound) > bound.exact


@pytest.mark.parametrize("factors", [{"square": 2**30 // 8}, {"first": 2**30 // 2}])
def test_factors_that_leave_32_bits_are_refused(factors):
    with pytest.raises(UserError, match="32 bits"):
        dataclasses.replace(SMALL, limit=10**30, **factors)


def test_a_sensitivity_that_is_not_proven_is_refused():
    with pytest.raises(UserError, match="squared sensitivity"):
        dataclasses.replace(SMALL, limit=SMALL.exact - 1)


@pytest.mark.parametrize("relation", list(Relation)[:2])
@pytest.mark.parametrize("sigma", [0.0, 0.3, 8.3, 600.0])
def test_all_phases_cost_the_same_and_waste_little(relation, sigma):
    phases = (PhaseShares(blocks=5, square_blocks=1, length=16, shades=4, first=0.2, second=0.7,
                    count=0.05, tint=0.05),
              PhaseShares(blocks=20, square_blocks=0, length=8, first=0.9, count=0.1),
              PhaseShares(blocks=20, square_blocks=20, length=8, first=0.15, second=0.78,
                          count=0.07))
    bounds = alike(phases, sigma, 60_000, relation)
    assert len({(b.limit, b.columns) for b in bounds}) == 1
    for bound in bounds:
        assert 0.97 * bound.limit < bound.exact <= bound.limit
        assert 60_000 * bound.max_abs < 2**31 - 2**20


BOUND = Moments(blocks=3, square_blocks=3, length=6, shades=4, levels=40, first=11 * UNIT,
                square=5 * UNIT, count=90, tint=60, columns=100, limit=10**9)
COMPACT = jax.jit(jax.vmap(BOUND.compact))
ADD = jax.jit(functools.partial(BOUND.added, np.zeros((1, BOUND.columns), np.int32)))


def random_messages(n, size=1.0):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(n, 6))
    vectors *= size * rng.random((n, 1)) / np.linalg.norm(vectors, axis=1, keepdims=True)
    shares = rng.dirichlet(np.ones(4), n)
    block = rng.integers(0, 3, (n, 1))
    return np.concatenate([block, vectors, shares], 1).astype(np.float32)[:, None]


def test_hostile_messages_keep_the_bound():
    usual = random_messages(64)
    hostile = np.concatenate([1e30 * usual, -usual, np.nan * usual, 1e-30 * usual,
                              np.full_like(usual, np.inf), random_messages(64, 300.0)])
    keys = jax.random.split(jax.random.key(0), len(hostile))
    sent = np.asarray(COMPACT(keys, hostile))
    assert np.asarray(jax.vmap(BOUND.holds)(sent)).all()
    each = np.asarray(jax.jit(jax.vmap(lambda m: alone(BOUND, m)))(sent), np.int64)
    assert (each**2).sum(1).max() <= BOUND.squared_norm and np.abs(each).max() <= BOUND.max_abs
    there = sent.reshape(-1, 64, sent.shape[-1])[:, :, 0].mean(1)
    assert there[2] == there[4] == 0 and min(there[0], there[1], there[5]) > 0.9


def test_sums_are_the_moments_that_were_sent_in_any_chunks():
    n = 4000
    messages = random_messages(n)
    sent = COMPACT(jax.random.split(jax.random.key(1), n), messages)
    whole = np.asarray(ADD(sent))
    parts = sum(np.asarray(ADD(sent[i:i + 800])) for i in range(0, n, 800))
    np.testing.assert_array_equal(whole, parts)
    sums = jax.jit(BOUND.sums)(jnp.asarray(whole, jnp.float32))
    block, vectors, shares = messages[:, 0, 0], messages[:, 0, 1:7], messages[:, 0, 7:]
    np.testing.assert_allclose(sums.shades, shares.sum(0), rtol=0.02)
    for b in range(3):
        own = vectors[block == b]
        assert float(sums.count[b]) == len(own)
        # Dither is unbiased: a step of the grid is 1 / 36, and its square adds to the diagonal.
        np.testing.assert_allclose(sums.first[b], own.sum(0), atol=4 * np.sqrt(len(own)) / 72)
        off = ~np.eye(6, dtype=bool)
        np.testing.assert_allclose(sums.second[b][off], (own.T @ own)[off], atol=4)
        np.testing.assert_allclose(np.diag(sums.second[b]), (own**2).sum(0), atol=4)
