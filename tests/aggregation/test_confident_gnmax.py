"""Confident-GNMax against Algorithm 3 in plain Python, what it costs, and that a run which is
charged by what was answered never spends more than its budget."""

import bisect
import dataclasses
import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian, thresholds
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, OneHot
from dpgen_jax.core.types import Private, UserError


def queries(cls=ConfidentGNMax, **fields):
    """A step of 2 x 3 queries of 4 bins, of 40 teachers."""
    default = {"bound": OneHot(4, 3, 2, 1.0), "noise": RoundedGaussian(4.0),
               "test_noise": RoundedGaussian(12.0), "schedule": FullParticipation(), "n_units": 40,
               "threshold": 0.5}
    return cls(**default | fields)


SMALL = queries()
PRESET = queries(bound=OneHot(10, 10, 15, 1e-4), noise=RoundedGaussian(1000.0),
                 test_noise=RoundedGaussian(3000.0), n_units=4000)


@functools.cache
def decider(mechanism):
    return jax.jit(lambda votes, bits: release(mechanism, bits, Private(votes)))


def decide(mechanism, counts, bits):
    """counts int [queries, bins] -> (values, answered), each [B, k]."""
    votes = np.reshape(counts, mechanism.shape).astype(np.int32)
    outcome = decider(mechanism)(votes, bits)
    assert outcome.answered.dtype == jnp.int32 and outcome.value.dtype == jnp.float32
    return np.asarray(outcome.value), np.asarray(outcome.answered)


def rounded(sigma, words):
    """round(sigma Z) of three words: how many thresholds are at most the 95 bits, with a sign."""
    first, second, third = map(int, words)
    size = bisect.bisect_right(thresholds(sigma), (first & 2**31 - 1) << 64 | second << 32 | third)
    return -size if first >> 31 else size


def algorithm_3(mechanism, counts, bits):
    """Algorithm 3 for each query, in integers."""
    values, answered = [], []
    needed = Fraction(repr(mechanism.threshold)) * mechanism.n_units
    for row, words in zip(counts.tolist(), bits, strict=True):
        answers = max(row) + rounded(mechanism.test_noise.sigma, words[0]) >= needed
        noisy = [c + rounded(mechanism.noise.sigma, w) for c, w in zip(row, words[1:], strict=True)]
        winner = noisy.index(max(noisy))
        middle = -1 + (2 * winner + 1) / len(row)
        values.append(middle * mechanism.bound.clip if answers else 0.0)
        answered.append(int(answers))
    return np.reshape(values, (2, 3)), np.reshape(answered, (2, 3))


def test_decisions_are_those_of_algorithm_3_on_the_same_noise(rng):
    seen = set()
    for _ in range(40):
        counts = rng.multinomial(40, rng.dirichlet(np.full(4, 0.5)), 6)
        bits = rng.integers(2**32, size=SMALL.bits_shape, dtype=np.uint32)
        value, answered = decide(SMALL, counts, bits)
        expected, expected_answered = algorithm_3(SMALL, counts, bits)
        np.testing.assert_array_equal(answered, expected_answered)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert not np.any(value[answered == 0])
        seen.update(zip(answered.ravel(), value.ravel(), strict=True))
    assert len(seen) == 5  # no answer, and every bin


SILENT = queries(noise=NoNoise(), test_noise=NoNoise())


def test_ties_go_to_the_lowest_bin():
    counts = np.array([[20, 20, 0, 0], [0, 20, 20, 0], [0, 0, 20, 20], [10, 10, 10, 10],
                       [0, 0, 0, 40], [21, 0, 0, 19]])
    value, answered = decide(SILENT, counts, np.zeros(SILENT.bits_shape, np.uint32))
    np.testing.assert_allclose(value, [[-0.75, -0.25, 0.25], [0, 0.75, -0.75]])
    np.testing.assert_array_equal(answered, [[1, 1, 1], [0, 1, 1]])


@pytest.mark.parametrize(("threshold", "units", "needed"), [
    (0.07, 100, 7), (0.5, 7, 4), (1.0, 5, 5), (0.001, 10, 1), (0.55, 100, 55), (0.29, 100, 29)])
def test_the_threshold_is_a_decimal_share_in_whole_votes(threshold, units, needed):
    """0.07 of 100 is 7, although the float 0.07 * 100 is above that."""
    mechanism = queries(noise=NoNoise(), test_noise=NoNoise(), threshold=threshold, n_units=units)
    assert mechanism.votes_needed == needed
    largest = needed + np.array([-2, -1, 0, 1, 2, 3])
    counts = np.maximum(largest, 0)[:, None] * np.eye(4, dtype=int)[0]
    outcome = mechanism.decide(jnp.asarray(counts.reshape(2, 12), jnp.int32),
                               jnp.zeros(mechanism.bits_shape, jnp.uint32))
    np.testing.assert_array_equal(outcome.answered.ravel(), largest >= needed)


def extremes(rng):
    """Bits, and the same with one draw made as large as it can be: for every draw."""
    bits = rng.integers(2**32, size=SMALL.bits_shape, dtype=np.uint32)
    bits[:, 0] = 0  # the tests add nothing
    bits[..., 0] &= 2**29 - 1  # small counts' noise
    for query, draw in np.ndindex(SMALL.bits_shape[:2]):
        changed = bits.copy()
        changed[query, draw] = [2**31 - 1, 2**32 - 1, 2**32 - 1]
        yield bits, changed, query, draw


def check_bits(mechanism, rng):
    """Each draw of the bits moves its own query: the first the test, the others one count each."""
    counts = np.tile([5, 5, 5, 5], (6, 1))
    answering = np.tile([25, 25, 25, 25], (6, 1))
    for bits, changed, query, draw in extremes(rng):
        rest = np.arange(6) != query
        (_, before), (_, after) = (decide(mechanism, counts, b) for b in (bits, changed))
        assert not before.any() and after.ravel()[query] == (draw == 0), "the test"
        assert not after.ravel()[rest].any(), "the tests of other queries"
        (value, _), (moved, _) = (decide(mechanism, answering, b) for b in (bits, changed))
        np.testing.assert_array_equal(value.ravel()[rest], moved.ravel()[rest])
        expected = value.ravel()[query] if draw == 0 else -1 + (2 * draw - 1) / 4
        assert moved.ravel()[query] == pytest.approx(expected), "the count"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedBits(ConfidentGNMax):
    """The mutant: the test's noise is made of the bits of the first count's."""

    def decide(self, votes, bits):
        return super().decide(votes, bits.at[:, 0].set(bits[:, 1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneDraw(ConfidentGNMax):
    """The mutant: every count of a query gets the same noise, as if there were none."""

    def decide(self, votes, bits):
        return super().decide(votes, bits.at[:, 2:].set(bits[:, 1:2]))


def test_every_draw_of_the_bits_is_used_once(rng):
    check_bits(SMALL, rng)


@pytest.mark.parametrize("mutant", [SharedBits, OneDraw])
def test_bits_that_are_used_twice_are_caught(rng, mutant):
    with pytest.raises(AssertionError):
        check_bits(queries(mutant), rng)


def test_bits_of_another_shape_are_refused():
    assert SMALL.bits_shape == (6, 5, 3)
    votes = Private(jnp.zeros(SMALL.shape, jnp.int32))
    with pytest.raises(ValueError, match="noise bits"):
        release(SMALL, jnp.zeros((6, 4, 3), jnp.uint32), votes)




# Refused.

@pytest.mark.parametrize(("fields", "text"), [
    ({"threshold": 0.0}, "threshold is 0"), ({"threshold": 1.01}, "threshold is 1.01"),
    ({"threshold": math.nan}, "threshold is nan"), ({"n_units": 3}, "4 bins for 3 votes"),
    ({"noise": NoNoise()}, "both noises"), ({"test_noise": NoNoise()}, "both noises"),
    ({"n_units": 2**31 - 40}, "32-bit")])
def test_what_means_nothing_is_refused(fields, text):
    with pytest.raises(UserError, match=text):
        queries(**fields)


def test_bins_may_be_as_many_as_votes():
    assert queries(n_units=4).votes_needed == 2
