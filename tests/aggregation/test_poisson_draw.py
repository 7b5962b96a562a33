"""Poisson draws: each unit on its own, at exactly the charged rate, padded, truncated fairly."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent
from dpgen_jax.aggregation.clip import GradientL2
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.aggregation.schedule import OVERFLOW, PoissonSampling
from dpgen_jax.core.types import UserError

DRAW = PoissonSampling(40, 5)
STEPS = 5_000
BOUND = GradientL2(1.0, 10, 100)
VISIT = GaussianEvent(30.0, BOUND.squared_sensitivity(), 0.01, 1e-9)


def included(participation, units):
    """bool [units, n] of shares [places, n]."""
    return (participation[:, None] == np.arange(units)[:, None]).any(0)


def check_independent(participation, schedule, steps):
    """Units are drawn at the charged rate, independently of each other and of the step before."""
    units, rate = schedule.units, schedule.rate
    sampled = included(participation, units)
    wide = 6 * math.sqrt(steps * rate * (1 - rate))
    assert np.abs(sampled.sum(1) - steps * rate).max() < wide
    pairs = sampled.astype(int) @ sampled.T - np.diag(sampled.sum(1))
    expected = steps * rate**2 * (1 - np.eye(units))
    assert np.abs(pairs - expected).max() < 6.5 * math.sqrt(steps * rate**2)
    after = sampled[:, :-1].astype(int) @ sampled[:, 1:].T
    assert np.abs(after - steps * rate**2).max() < 6.5 * math.sqrt(steps * rate**2)
    sizes = np.bincount(sampled.sum(0), minlength=units + 1)
    law = steps * binom.pmf(np.arange(units + 1), units, rate)
    likely = law > 10
    assert chisquare(sizes[likely], law[likely] * sizes[likely].sum() / law[likely].sum()
                     ).pvalue > 1e-6


def test_each_unit_is_sampled_by_itself_at_the_charged_rate():
    participation = DRAW.participation(SeededBits(0), 40, 0, STEPS)
    assert participation.dtype == np.int32 and participation.shape == (DRAW.batch_capacity, STEPS)
    for column in participation.T[:200]:
        own = column[column >= 0]
        assert len(set(own)) == len(own) and np.all(column[len(own):] == -1)
    check_independent(participation, DRAW, STEPS)


@pytest.mark.parametrize("mutant", ["fixed size", "same every step", "higher rate"])
def test_other_draws_are_caught(mutant):
    rng = np.random.default_rng(0)
    participation = DRAW.participation(SeededBits(0), 40, 0, STEPS)
    if mutant == "fixed size":
        participation = np.argsort(rng.random((40, STEPS)), 0)[:5].astype(np.int32)
    elif mutant == "same every step":
        participation = np.repeat(participation[:, ::2], 2, 1)
    else:
        participation = PoissonSampling(40, 6).participation(SeededBits(0), 40, 0, STEPS)
    with pytest.raises(AssertionError):
        check_independent(participation, DRAW, STEPS)


def test_the_rate_is_a_multiple_of_two_to_the_minus_32_and_never_below_the_request():
    for units, expected in ((3, 1), (60_000, 600), (7, 0.5), (10**6, 1)):
        schedule = PoissonSampling(units, expected)
        assert schedule.rate * 2**32 == schedule.chances
        assert 0 <= schedule.rate - expected / units <= 2**-32
        assert schedule.expected_answers(units) == pytest.approx(
            expected, rel=1e-6 * units / expected)


def test_an_overflow_is_rarer_than_its_charge_and_charged():
    for units, expected in ((60_000, 600), (1_437, 200), (40, 5), (10, 9.9)):
        schedule = PoissonSampling(units, expected)
        chance = binom.sf(schedule.batch_capacity, units, schedule.rate)
        assert chance <= OVERFLOW
        assert schedule.batch_capacity == units or binom.sf(
            schedule.batch_capacity - 1, units, schedule.rate) > OVERFLOW
        event = schedule.event(VISIT, BOUND)
        assert event.total_variation == VISIT.total_variation + chance
        assert event.rate == schedule.rate and event.squared_norm == BOUND.levels**2


def test_what_does_not_fit_is_left_out_at_random(monkeypatch):
    """With places for 3 of some 20, everybody is as likely to be kept."""
    monkeypatch.setattr(PoissonSampling, "batch_capacity", 3)
    participation = PoissonSampling(40, 20).participation(SeededBits(1), 40, 0, STEPS)
    assert participation.shape == (3, STEPS) and np.all(participation >= 0)
    counts = included(participation, 40).sum(1)
    assert chisquare(counts).pvalue > 1e-6


def test_operating_system_bits_do():
    first, second = (DRAW.participation(OsBits(), 40, 0, 50) for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("expected", [0, 40, 41, -1, math.nan])
def test_rates_that_draw_nobody_or_everybody_are_refused(expected):
    with pytest.raises(UserError, match="records are drawn a step"):
        PoissonSampling(40, expected)


def test_both_relations_are_charged_as_such():
    assert DRAW.event(VISIT, BOUND).relation == "replace-one"
    zero_out = dataclasses.replace(BOUND, relation="zero-out")
    assert DRAW.event(VISIT, zero_out).relation == "zero-out"
    assert DRAW.event(NonPrivateEvent(), BOUND) == NonPrivateEvent()
