"""Confident-GNMax against Algorithm 3 in plain Python, what it costs, and that a run which is
charged by what was answered never spends more than its budget."""

import bisect
import dataclasses
import functools
import math
import sys
import types
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from dpgen_jax import loop
from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.histogram import OneHot
from dpgen_jax.aggregation.mechanism import release
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian, thresholds
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.private import teachers
from dpgen_jax.types import Private, UserError


def queries(cls=ConfidentGNMax, **fields):
    """A step of 2 x 3 queries of 4 bins, of 40 teachers."""
    default = {"bound": OneHot(4, 3, 2, 1.0), "noise": RoundedGaussian(4.0),
               "test_noise": RoundedGaussian(12.0), "schedule": Everyone(), "n_units": 40,
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


def drawn(sigma, words):
    """round(sigma Z) of three words: how many thresholds are at most the 95 bits, with a sign."""
    first, second, third = map(int, words)
    size = bisect.bisect_right(thresholds(sigma), (first & 2**31 - 1) << 64 | second << 32 | third)
    return -size if first >> 31 else size


def algorithm_3(mechanism, counts, bits):
    """Algorithm 3 for each query, in integers."""
    values, answered = [], []
    needed = Fraction(repr(mechanism.threshold)) * mechanism.n_units
    for row, words in zip(counts.tolist(), bits, strict=True):
        answers = max(row) + drawn(mechanism.test_noise.sigma, words[0]) >= needed
        noisy = [c + drawn(mechanism.noise.sigma, w) for c, w in zip(row, words[1:], strict=True)]
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


# What it costs.

def moves(bound):
    """(largest move of a histogram's largest count, largest squared L2 move of its counts) when
    one teacher of many changes its vote in it, by brute force over its votes and abstention."""
    choices = np.concatenate([np.eye(bound.bins, dtype=int), np.zeros((1, bound.bins), int)])
    others = np.random.default_rng(0).multinomial(9, np.full(bound.bins, 1 / bound.bins), 100)
    counts = others[:, None] + choices
    largest = counts.max(-1)
    squared = ((counts[:, :, None] - counts[:, None]) ** 2).sum(-1)
    return int((largest.max(1) - largest.min(1)).max()), int(squared.max())


def check_events(mechanism):
    """The events against the sensitivities measured here: mu^2 of a step, and of what was met."""
    of_test, of_counts = moves(mechanism.bound)
    test = of_test**2 / mechanism.test_noise.sigma**2
    answer = of_counts / mechanism.noise.sigma**2
    per_step = mechanism.queries
    for steps in (1, 7):
        assert gaussian.mu_squared(mechanism.events(steps)) == pytest.approx(
            steps * per_step * (test + answer), rel=1e-12)
        for share in (0, 0.3, 1):
            answered = np.random.default_rng(steps).random((steps, per_step)) < share
            settled = mechanism.settled(answered.astype(np.int32), ())
            assert gaussian.mu_squared(settled) == pytest.approx(
                steps * per_step * test + answered.sum() * answer, rel=1e-12)
            allowed = dict(mechanism.events(steps))
            assert all(count <= allowed[event] for event, count in settled)


@pytest.mark.parametrize("mechanism", [SMALL, PRESET], ids=["small", "preset"])
def test_events_are_tests_of_all_and_releases_of_the_answered(mechanism):
    check_events(mechanism)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SqrtTwo(ConfidentGNMax):
    """The mutant: an arg max as if one vote were added or removed."""

    def _events(self, tests, answers):
        return (self.test_noise.event(1, 1), tests), (self.noise.event(1, 4), answers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreeTests(ConfidentGNMax):
    """The mutant: tests are not charged."""

    def _events(self, tests, answers):
        return ((self.noise.event(2, 4), answers),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerFake(ConfidentGNMax):
    """The mutant: answers are counted by fakes, not by queries."""

    def settled(self, answered, charged):
        return self._events(answered.size, int((answered > 0).any(-1).sum()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweredTests(ConfidentGNMax):
    """The mutant: a test is charged where it was passed."""

    def settled(self, answered, charged):
        return self._events(int(answered.sum()), int(answered.sum()))


@pytest.mark.parametrize("mutant", [SqrtTwo, FreeTests, PerFake, AnsweredTests])
def test_charging_too_little_is_caught(mutant):
    with pytest.raises(AssertionError):
        check_events(queries(mutant))


def by_hand(mu_squared, epsilon):
    """delta of Gaussian releases (Balle and Wang 2018, Theorem 8)."""
    mu = math.sqrt(mu_squared)
    return (norm.cdf(mu / 2 - epsilon / mu)
            - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


STEP = 150 * (1 / 3000**2 + 2 / 1000**2)
UNANSWERED = 150 / 3000**2


def test_epsilon_1_allows_226_steps_of_the_preset():
    assert gaussian.mu_squared(PRESET.events(1)) == pytest.approx(STEP, rel=1e-14)
    assert by_hand(226 * STEP, 1) <= 1e-5 < by_hand(227 * STEP, 1)
    assert gaussian.epsilon(PRESET.events(226), 1e-5) <= 1
    assert gaussian.epsilon(PRESET.events(227), 1e-5) > 1


def test_what_a_statement_says():
    ((test, n_tests), (answer, n_answers)) = PRESET.events(2)
    assert n_tests == n_answers == 300 and isinstance(test, GaussianEvent)
    assert test.statement() == {"mechanism": "rounded-gaussian", "sigma": 3000.0, "sensitivity": 1}
    assert answer.statement() == {"mechanism": "rounded-gaussian", "sigma": 1000.0,
                                  "sensitivity": math.sqrt(2)}
    # In proportion to mu^2, 1/3000^2 and 2/1000^2: the test's is that of its draw, the answer's
    # above that of its ten.
    assert test.total_variation == PRESET.test_noise.total_variation(1)
    assert answer.total_variation == pytest.approx(18 * test.total_variation, rel=1e-15)
    assert answer.total_variation > 5 * PRESET.noise.total_variation(10)


def test_no_noise_is_never_private():
    assert gaussian.epsilon(SILENT.events(1), 1e-5) == math.inf
    nothing = SILENT.settled(np.zeros((1, 2, 3), np.int32), ())
    assert isinstance(nothing[0][0], NonPrivateEvent)
    assert gaussian.epsilon(nothing, 1e-5) == math.inf


# The filter: charged by what was answered, stopped before the worst case exceeds the budget.

class Zeros:
    def draw(self, shape):
        return np.zeros(shape, np.uint32)


PATTERNS = {
    "all": lambda rng, step: 1, "none": lambda rng, step: 0,
    "steps": lambda rng, step: step % 2, "rarely": lambda rng, step: step % 40 == 39,
    "random": lambda rng, step: rng.random((15, 10)) < 0.4}


def simulate(path, monkeypatch, pattern, mechanism=PRESET, longest=64):
    """The real loop and ledger on given outcomes: (steps, charged events, mu^2 of what was met)."""
    rng, met = np.random.default_rng(0), []

    def given(method, layout):
        def block(public, units, records, secrets, noise, groups, key, step, n):
            answered = np.zeros((longest, 15, 10), np.int32)
            for i in range(n):
                answered[i] = pattern(rng, step + i)
            met.extend([len(noise[0]), int(a.sum())] for a in answered[:n])
            return public, units, {}, answered, None
        return block

    def check(state, metrics):
        tests, answers = np.sum(met, 0)
        spent = gaussian.mu_squared(ledger.spent())
        assert spent == pytest.approx(tests / 3000**2 + 2 * answers / 1000**2, rel=1e-12)
        assert ledger.epsilon() <= ledger.target and len(met) == state.step

    monkeypatch.setattr(loop, "compile_block", given)
    with Ledger.create(path, {"epsilon": 1.0, "delta": 1e-5}) as ledger:
        method = types.SimpleNamespace(mechanism=mechanism)
        where = teachers.Layout(mechanism.n_units, 1, tuple(jax.devices()[:1]))
        state = loop.train(method, None, loop.State(None, None, None), where, ledger, Zeros(),
                           steps=sys.maxsize, steps_per_call=longest, on_block=check)
        tests, answers = np.sum(met, 0)
        return state.step, ledger.spent(), float(tests / 3000**2 + 2 * answers / 1000**2)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_of_answers_exceeds_the_budget(tmp_path, monkeypatch, name):
    steps, spent, met = simulate(tmp_path / "ledger", monkeypatch, PATTERNS[name])
    assert by_hand(met, 1) <= 1e-5 < by_hand(met + STEP, 1)  # all that can be spent is
    assert gaussian.epsilon(spent, 1e-5) <= 1
    assert steps == 226 if name == "all" else steps > 226
    if name == "none":
        assert steps == next(n for n in range(4000, 5000)
                             if by_hand(n * UNANSWERED + STEP, 1) > 1e-5)
        assert 18.5 < steps / 226 < 19.5


def test_undercounted_answers_are_caught(tmp_path, monkeypatch):
    mutant = queries(PerFake, **{f.name: getattr(PRESET, f.name)
                                 for f in dataclasses.fields(PRESET)})
    with pytest.raises(AssertionError):
        simulate(tmp_path / "ledger", monkeypatch, PATTERNS["random"], mutant)


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
