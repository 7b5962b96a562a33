"""The cost of Confident-GNMax: tests of all queries, and releases of those that are answered."""

import dataclasses
import math
import sys
import types

import jax
import loops
import numpy as np
import pytest
from scipy.stats import norm
from test_confident_gnmax import PRESET, SILENT, SMALL, queries

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.private import teachers
from dpgen_jax.run import loop

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
        assert composition.mu_squared(mechanism.events(steps)) == pytest.approx(
            steps * per_step * (test + answer), rel=1e-12)
        for share in (0, 0.3, 1):
            answered = np.random.default_rng(steps).random((steps, per_step)) < share
            settled = mechanism.actual_charge(answered.astype(np.int32), ())
            assert composition.mu_squared(settled) == pytest.approx(
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

    def actual_charge(self, answered, charged):
        return self._events(answered.size, int((answered > 0).any(-1).sum()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweredTests(ConfidentGNMax):
    """The mutant: a test is charged where it was passed."""

    def actual_charge(self, answered, charged):
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
    assert composition.mu_squared(PRESET.events(1)) == pytest.approx(STEP, rel=1e-14)
    assert by_hand(226 * STEP, 1) <= 1e-5 < by_hand(227 * STEP, 1)
    assert composition.epsilon_of(PRESET.events(226), 1e-5) <= 1
    assert composition.epsilon_of(PRESET.events(227), 1e-5) > 1


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
    assert composition.epsilon_of(SILENT.events(1), 1e-5) == math.inf
    nothing = SILENT.actual_charge(np.zeros((1, 2, 3), np.int32), ())
    assert isinstance(nothing[0][0], NonPrivateEvent)
    assert composition.epsilon_of(nothing, 1e-5) == math.inf


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

    def with_block(method, layout):
        def block(public, units, records, secrets, noise, groups, key, step, n):
            answered = np.zeros((longest, 15, 10), np.int32)
            for i in range(n):
                answered[i] = pattern(rng, step + i)
            met.extend([len(noise[0]), int(a.sum())] for a in answered[:n])
            return public, units, {}, answered, None
        return block

    def check(state, metrics):
        tests, answers = np.sum(met, 0)
        spent = composition.mu_squared(ledger.spent())
        assert spent == pytest.approx(tests / 3000**2 + 2 * answers / 1000**2, rel=1e-12)
        assert ledger.epsilon() <= ledger.target and len(met) == state.step

    monkeypatch.setattr(loop, "compile_block", with_block)
    with Ledger.create(path, {"epsilon": 1.0, "delta": 1e-5}) as ledger:
        method = types.SimpleNamespace(mechanism=mechanism)
        method.at = lambda step: (method, math.inf)
        where = teachers.Layout(mechanism.n_units, 1, tuple(jax.devices()[:1]))
        state = loops.train(method, None, loop.State(None, None, None), where, ledger, Zeros(),
                            steps=sys.maxsize, steps_per_call=longest, on_block=check)
        tests, answers = np.sum(met, 0)
        return state.step, ledger.spent(), float(tests / 3000**2 + 2 * answers / 1000**2)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_of_answers_exceeds_the_budget(tmp_path, monkeypatch, name):
    steps, spent, met = simulate(tmp_path / "ledger", monkeypatch, PATTERNS[name])
    assert by_hand(met, 1) <= 1e-5 < by_hand(met + STEP, 1)  # all that can be spent is
    assert composition.epsilon_of(spent, 1e-5) <= 1
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
