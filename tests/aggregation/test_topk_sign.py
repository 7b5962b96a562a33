"""Top-k stochastic signs against Algorithm 2 written out literally, and their sensitivity."""

import functools
import itertools
import math

import hostile
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.topagg import TopKSign, magnitude_bits, select_top_k, topk_sign

TINY = np.finfo(np.float32).tiny
VOTES = jax.jit(topk_sign, static_argnums=(2, 3))


def oracle_sets(message, k):
    """Algorithm 2, line 2, row by row: the k largest magnitudes, ties to the lowest index."""
    chosen = np.zeros(message.shape, bool)
    for row, out in zip(message, chosen, strict=True):
        if not np.isfinite(row).all():
            continue
        ranked = sorted(range(len(row)), key=lambda j, row=row: (-abs(row[j]), j))[:k]
        out[[j for j in ranked if abs(row[j]) >= TINY]] = True
    return chosen


def check_votes(project, k, message, key=0):
    """The selected sets are those of the oracle, hence never more than k a row; a clear sign of
    the largest entry; nothing but -1, 0 and 1."""
    votes = np.asarray(project(jax.random.key(key), jnp.asarray(message)))
    assert votes.dtype == np.int32 and votes.shape == message.shape
    assert (np.abs(votes).sum(-1) <= k).all()
    assert np.isin(votes, (-1, 0, 1)).all()
    np.testing.assert_array_equal(votes != 0, oracle_sets(message, k))
    largest = (votes != 0) & (np.abs(message) == np.abs(message).max(-1, keepdims=True))
    np.testing.assert_array_equal(votes[largest], np.sign(message[largest]))


@pytest.mark.parametrize("d,k,clip", [
    (1, 1, math.inf), (1, 3, 1e-5), (7, 3, math.inf), (7, 7, 1e-5), (64, 1, math.inf),
    (64, 63, math.inf), (64, 200, 1e-5), (784, 200, 1e-5), (784, 200, math.inf)])
def test_rows_of_every_kind_vote_as_algorithm_2_says(d, k, clip):
    message = hostile.rows(np.random.default_rng([d, k]), d)
    check_votes(lambda key, m: VOTES(key, m, k, clip), k, message)


def test_hundreds_of_random_tied_rows():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        message = rng.integers(-4, 5, size=(40, 33)).astype(np.float32) / 8
        check_votes(lambda key, m: VOTES(key, m, 9, math.inf), 9, message, seed)


def by_threshold_alone(key, message, k):
    """The mutant: everything at or above the k-th largest votes."""
    order = magnitude_bits(message)
    kth = jnp.sort(order, -1)[..., -k][..., None]
    return jnp.where((order >= kth) & (order > 0), jnp.sign(message), 0).astype(jnp.int32)


@pytest.mark.parametrize("row", [np.full(784, 0.5), np.repeat([1.0, 0.5], [199, 585])])
def test_voting_by_a_threshold_alone_is_caught(row):
    message = np.float32(row)[None]
    check_votes(lambda key, m: VOTES(key, m, 200, math.inf), 200, message)
    with pytest.raises(AssertionError):
        check_votes(functools.partial(by_threshold_alone, k=200), 200, message)


def test_ties_go_to_the_lowest_index():
    order = jnp.array([[5, 3, 3, 9, 3, 3], [0, 0, 4, 4, 4, 4], [0, 0, 0, 0, 0, 7]], jnp.int32)
    np.testing.assert_array_equal(select_top_k(order, 3), np.array(
        [[1, 1, 0, 1, 0, 0], [0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1]], bool))


def test_vmapped_votes_are_those_of_each_unit():
    rng = np.random.default_rng(5)
    message = np.stack([hostile.rows(rng, 50) for _ in range(6)])
    keys = jax.random.split(jax.random.key(1), 6)
    bound = TopKSign(11, rows=message.shape[1], clip=0.5)
    together = jax.jit(jax.vmap(bound.project))(keys, message)
    alone = jax.jit(bound.project)
    for key, one, votes in zip(keys, message, together, strict=True):
        np.testing.assert_array_equal(alone(key, one), votes)


@pytest.mark.parametrize("clip,row", [
    (math.inf, [1.0, -0.8, 0.5, -0.1, 1e-3, 0.0]),
    (0.5, [1.0, -0.8, 0.5, -0.1, 1e-3, 0.0]),
    (1e-5, [3e-5, -9e-6, 4e-6, -1e-7, 0.0, 0.0])])
def test_the_mean_vote_is_the_clipped_and_scaled_entry(clip, row):
    draws, row = 200_000, np.float32(row)
    votes = np.asarray(VOTES(jax.random.key(3), jnp.tile(row, (draws, 1)), 6, clip))
    clipped = np.clip(row.astype(float), -clip, clip)
    expected = clipped / np.abs(clipped).max()
    # alpha 1e-6 over six coordinates: 5.4 standard errors
    np.testing.assert_array_less(
        np.abs(votes.mean(0) - expected), 5.4 * np.sqrt((1 - expected**2) / draws) + 2**-23)


def brute_force(k, rows, alphabet, columns, keys=4):
    """The largest ||project(v) - project(v')||^2 over all pairs of messages and of keys."""
    bound = TopKSign(k, rows=rows)
    messages = jnp.array(list(itertools.product(alphabet, repeat=rows * columns)), jnp.float32)
    messages = messages.reshape(-1, rows, columns)
    project = jax.jit(jax.vmap(jax.vmap(bound.project, (None, 0)), (0, None)))
    votes = np.asarray(project(jax.random.split(jax.random.key(0), keys), messages))
    return hostile.furthest(votes.reshape(-1, rows * columns))


ALPHABET = (-1.0, -0.5, 0.0, 0.5, 1.0)
CASES = [(1, 1, ALPHABET, 4), (2, 1, ALPHABET, 4), (1, 2, (-1.0, 0.0, 1.0), 3),
         (2, 2, (-1.0, 0.0, 1.0), 3), (2, 1, (*ALPHABET, math.nan), 3)]


@pytest.mark.parametrize("k,rows,alphabet,columns", CASES)
def test_the_declared_sensitivity_is_attained_and_never_exceeded(k, rows, alphabet, columns):
    assert brute_force(k, rows, alphabet, columns) == TopKSign(k, rows).squared_sensitivity()


def test_adversarial_pairs_of_full_size():
    bound = TopKSign(200, rows=15, clip=1e-5)
    key = jax.random.key(0)
    same = np.zeros((15, 784), np.float32)
    same[:, :200] = 1
    disjoint = np.roll(same, 200, axis=1)
    every = np.ones((15, 784), np.float32)

    project = jax.jit(bound.project)

    def distance(v, w):
        a, b = np.asarray(project(key, v)), np.asarray(project(key, w))
        return int(((a - b) ** 2).sum())

    assert distance(same, -same) == bound.squared_sensitivity() == 12_000
    assert distance(every, -every) == bound.squared_sensitivity()
    assert distance(same, disjoint) == bound.squared_sensitivity() // 2
    assert distance(same, np.full_like(same, np.nan)) == bound.squared_sensitivity() // 4


@pytest.mark.parametrize("fields", [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, -1.0),
                                    (1, 1, math.nan), (1, 1, 1e-40)])
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValueError):
        TopKSign(*fields)
