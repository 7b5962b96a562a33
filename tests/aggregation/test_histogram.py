"""Votes for bins against numpy's histogram, and their sensitivity by brute force."""

import dataclasses
import itertools
import math

import hostile
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.teacher_votes import HistogramMean, OneHot, bin_votes
from dpgen_jax.core.types import UserError

VOTES = jax.jit(bin_votes, static_argnums=(1, 2))
NASTY = np.float32([0, -0.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, math.inf, -math.inf, 1, -1])


def histogram(values, clip, bins):
    """One-hot rows [..., bins]: the published bins, in float64."""
    edges = np.linspace(-clip, clip, bins + 1)
    rows = [np.histogram(np.clip(float(v), -clip, clip), edges)[0] for v in np.ravel(values)]
    return np.reshape(rows, (*np.shape(values), bins))


@pytest.mark.parametrize(("clip", "bins"), [(1e-4, 10), (5e-5, 5), (1.0, 2), (0.3, 20)])
def test_votes_are_those_of_an_independent_histogram(rng, clip, bins):
    values = np.float32(rng.normal(0, clip, (50, 10)))
    votes = VOTES(values, clip, bins)
    assert votes.shape == (50, 10, bins) and votes.dtype == jnp.int32
    np.testing.assert_array_equal(votes, histogram(values, clip, bins))


def test_edges_belong_to_the_bin_above_and_the_last_one_to_the_last_bin():
    """Where clip, bins and edges are floats exactly."""
    values = np.float32(np.concatenate([np.arange(-5, 6) / 4, np.arange(-5, 6) / 4 - 2**-22]))
    np.testing.assert_array_equal(VOTES(values, 1.0, 8), histogram(values, 1.0, 8))


@pytest.mark.parametrize("clip", [1e-4, 5e-5, 1e-5, 1.0, 0.7, 2**-126])
@pytest.mark.parametrize("bins", [2, 5, 10, 20])
def test_zero_falls_into_the_middle_bin(clip, bins):
    assert int(bin_votes(jnp.zeros(()), clip, bins).argmax()) == bins // 2


def test_values_beyond_the_clip_fall_into_the_outer_bins():
    votes = VOTES(np.float32([3, 1, 1e38, math.inf, -3, -1, -1e38, -math.inf]), 1.0, 4)
    np.testing.assert_array_equal(votes.argmax(-1), [3] * 4 + [0] * 4)


def test_midpoints_are_the_centres_of_the_bins():
    edges = np.linspace(-1e-4, 1e-4, 11)
    np.testing.assert_allclose(OneHot(10, 1, 1, 1e-4).midpoints, (edges[1:] + edges[:-1]) / 2,
                               rtol=1e-6)
    bound = OneHot(10, 10, 1, 1e-4)
    again = bound.project(None, bound.midpoints[None])
    np.testing.assert_array_equal(again.reshape(10, 10), np.eye(10))


def check_one_vote(project, message):
    """A vote in every histogram, and none where the entry is NaN."""
    votes = np.asarray(project(message))
    assert np.isin(votes, (0, 1)).all()
    np.testing.assert_array_equal(votes.sum(-1), ~np.isnan(message))


def messages_of_every_kind(rng):
    nan = np.where(rng.random(100) < 0.5, math.nan, 1e-4)
    return np.float32(np.concatenate([NASTY, 1e-4 * NASTY, nan, rng.normal(0, 1e-4, 500),
                                      1e-4 * np.arange(-12, 13) / 10]))


def two_sided(message):
    """The mutant: an entry on an edge votes for both of its bins."""
    place = (np.clip(message.astype(float) / 1e-4, -1, 1) + 1) * 5
    return ((place[:, None] >= np.arange(10)) & (place[:, None] <= np.arange(1, 11))).astype(int)


def test_never_more_than_one_vote_in_a_histogram(rng):
    message = messages_of_every_kind(rng)
    check_one_vote(lambda m: VOTES(m, 1e-4, 10), message)
    with pytest.raises(AssertionError):
        check_one_vote(two_sided, message)


# Sensitivity.

def brute_force(bound, alphabet):
    """The largest ||project(v) - project(v')||^2 over all pairs of messages."""
    messages = np.float32(list(itertools.product(alphabet, repeat=bound.rows * bound.columns)))
    messages = messages.reshape(-1, bound.rows, bound.columns)
    project = jax.jit(jax.vmap(lambda message: bound.project(None, message)))
    return hostile.furthest(np.asarray(project(messages)))


CASES = [(3, 2, 1), (3, 1, 2), (2, 2, 2), (4, 3, 1)]


@pytest.mark.parametrize("case", CASES)
def test_the_declared_sensitivity_is_attained_and_never_exceeded(case):
    bound = OneHot(*case, 1.0)
    alphabet = (*(2 * np.arange(bound.bins) + 1 - bound.bins) / bound.bins, math.nan, math.inf)
    assert brute_force(bound, alphabet) == bound.squared_sensitivity()


def test_random_and_adversarial_pairs_of_full_size(rng):
    bound = OneHot(10, 10, 15, 1e-4)
    project = jax.jit(lambda m: bound.project(None, m))

    def distance(v, w):
        return int(((project(v) - project(w)) ** 2).sum())

    high = np.full((15, 10), 1e-4, np.float32)
    assert distance(high, -high) == bound.squared_sensitivity() == 300
    assert distance(high, np.full_like(high, math.nan)) == 150 and distance(high, 9 * high) == 0
    for _ in range(30):
        v, w = (rng.choice(messages_of_every_kind(rng), (15, 10)) for _ in range(2))
        assert distance(v, w) <= bound.squared_sensitivity()


def largest_move(project, rng):
    """How far the largest count of a histogram moves, at most, when one of ten teachers answers
    otherwise: of 200 histograms, over its votes for every bin and its abstentions."""
    def counts(messages):
        return np.asarray(project(np.float32(messages)), int).reshape(200, 4)

    others = sum(counts(rng.choice(messages_of_every_kind(rng), (200, 1))) for _ in range(9))
    answers = (-0.9, -0.3, 0.3, 0.9, math.nan, math.inf)
    largest = np.stack([(others + counts(np.full((200, 1), 1e-4 * answer))).max(1)
                        for answer in answers])
    return (largest.max(0) - largest.min(0)).max()


def test_the_largest_count_moves_by_at_most_one(rng):
    project = jax.jit(lambda message: OneHot(4, 1, 200, 1e-4).project(None, message))
    assert largest_move(project, rng) == 1
    assert largest_move(lambda message: 2 * project(message), rng) == 2  # a mutant with two votes


# Decoding.

def test_the_mean_of_the_noisy_histogram(rng):
    bound = OneHot(5, 3, 2, 0.5)
    noised = rng.integers(-50, 100, (2, 15)).astype(np.int32)
    centres = [-0.4, -0.2, 0, 0.2, 0.4]
    expected = [[sum(c * v for c, v in zip(centres, noised[b, 5 * j:5 * j + 5], strict=True)) / 40
                 for j in range(3)] for b in range(2)]
    decoded = HistogramMean(bound)(jnp.asarray(noised), 40)
    assert decoded.dtype == jnp.float32 and decoded.shape == (2, 3)
    np.testing.assert_allclose(decoded, expected, rtol=1e-5, atol=1e-6)


def test_the_mean_of_the_noisy_histogram_is_unbiased(rng):
    """Its mean over the noise is that of the midpoints voted for."""
    bound, noise, units, draws = OneHot(4, 1, 50_000, 1.0), RoundedGaussian(5.0), 20, 50_000
    counts = np.int32([3, 0, 12, 5])
    bits = rng.integers(2**32, size=(draws, 4, 3), dtype=np.uint32)
    noised = counts + noise.sample(jnp.asarray(bits))
    means = np.asarray(HistogramMean(bound)(noised, units))[:, 0]
    centres = np.array([-0.75, -0.25, 0.25, 0.75])
    spread = math.sqrt(25 + 1 / 12) * np.linalg.norm(centres) / units
    # alpha 10^-6: 4.9 standard errors
    assert abs(means.mean() - centres @ counts / units) < 4.9 * spread / math.sqrt(draws)
    assert means.std() == pytest.approx(spread, rel=0.02)


@pytest.mark.parametrize(("field", "value"), [
    ("bins", 1), ("columns", 0), ("rows", 0), ("clip", 0.0), ("clip", -1.0), ("clip", math.inf),
    ("clip", math.nan), ("clip", 1e-40)])
def test_values_out_of_range_are_refused(field, value):
    with pytest.raises(UserError, match=f"^{field} is"):
        dataclasses.replace(OneHot(10, 10, 15, 1e-4), **{field: value})
