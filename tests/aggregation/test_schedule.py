"""Whose turn it is: visits are counted, draws are uniform and secret, and events say so."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent, SampledGaussianEvent
from dpgen_jax.aggregation.noise import OsBits, SeededBits
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.types import UserError

VISIT = GaussianEvent(30.0, 4 * 32, 0.5, 1e-9)
BOUND = TopKSign(32, 1)
SECRET, PUBLISHED = FixedSizeSampling(10, 3), PublishedSampling(10)
ALL = [FullParticipation(), RoundRobin(3), SECRET, PUBLISHED]
some = st.integers(1, 40)


def visited(schedule, turns, units, first=0, bits=None):
    """bool [turns, U]: the units of the groups that are visited, from turn `first` on."""
    groups = schedule.cohorts(bits, first, turns)
    assert groups.dtype == np.int32 and groups.shape == (turns,)
    assert np.all((groups >= 0) & (groups < schedule.n_cohorts))
    return groups[:, None] == np.arange(units) % schedule.n_cohorts


# Rotation.

@given(some, some, st.integers(0, 100), st.integers(0, 10**6))
def test_no_unit_is_visited_more_often_than_is_charged(units, groups, turns, first):
    schedule = RoundRobin(groups)
    times = visited(schedule, turns, units, first).sum(0)
    assert times.max() <= schedule.max_participations(turns)
    assert times.max() - times.min() <= 1
    if first % groups == 0:  # and for somebody it is all of that
        assert times[0] == schedule.max_participations(turns)


@given(some, some, st.integers(0, 5))
def test_a_round_visits_every_unit_once(units, groups, round_):
    assert np.all(visited(RoundRobin(groups), groups, units, round_ * groups).sum(0) == 1)


@given(some, some)
def test_groups_are_equal_up_to_one_and_the_mean_is_the_number_of_answers(units, groups):
    schedule = RoundRobin(groups)
    sizes = visited(schedule, groups, units).sum(1)
    assert sizes.max() - sizes.min() <= 1
    assert schedule.expected_answers(units) == pytest.approx(sizes.mean())


@given(some, st.integers(0, 60), st.integers(1, 60), st.integers(0, 60))
def test_rounds_do_not_depend_on_how_many_are_requested(groups, first, n, more):
    schedule = RoundRobin(groups)
    one = np.concatenate(
        [schedule.cohorts(None, first, n), schedule.cohorts(None, first + n, more)]
    )
    np.testing.assert_array_equal(one, schedule.cohorts(None, first, n + more))


def test_one_group_is_everyone():
    one, everyone = RoundRobin(1), FullParticipation()
    for turns in (0, 1, 7):
        assert one.max_participations(turns) == everyone.max_participations(turns) == turns
        np.testing.assert_array_equal(one.cohorts(None, 3, turns), everyone.cohorts(None, 3, turns))
    assert one.expected_answers(11) == everyone.expected_answers(11) == 11
    assert one.n_cohorts == everyone.n_cohorts


def test_public_schedules_draw_nothing():
    for schedule in (FullParticipation(), RoundRobin(3)):
        assert schedule.participation(None, 10, 0, 5) is None
        assert schedule.event(VISIT, None) is VISIT


# SecretDraw.

DRAWS = 20_000


def test_exactly_as_many_are_counted_as_are_charged():
    shares = SECRET.participation(SeededBits(0), 10, 0, 500)
    assert shares.dtype == np.int32 and shares.shape == (10, 500)
    assert set(np.unique(shares)) == {0, 1} and np.all(shares.sum(0) == SECRET.sampled)
    assert SECRET.expected_answers(10) == SECRET.sampled == SECRET.event(VISIT, BOUND).sample_size
    assert np.all(visited(SECRET, 5, 10)) and SECRET.max_participations(7) == 7


def check_uniform(shares, previous):
    """Every set of units is as likely as any other, whatever was drawn in the step before."""
    units, draws = shares.shape
    sets = (shares * 2 ** np.arange(units)[:, None]).sum(0)
    _, counts = np.unique(sets, return_counts=True)
    ways = math.comb(units, previous)
    assert len(counts) == ways and stats.chisquare(counts).pvalue > 1e-6
    pairs = np.zeros((units, units))
    for before, after in zip(shares.T[:-1], shares.T[1:], strict=True):
        pairs += np.outer(before, after)
    mean, rate = (draws - 1) * (previous / units) ** 2, (previous / units) ** 2
    assert np.abs(pairs - mean).max() < 6 * math.sqrt(draws * rate * (1 - rate))


def test_every_set_of_units_is_equally_likely():
    check_uniform(FixedSizeSampling(6, 2).participation(SeededBits(1), 6, 0, DRAWS), 2)


@pytest.mark.parametrize("shares", [
    lambda s: np.tile(np.array([[1], [1], [0], [0], [0], [0]]), DRAWS),
    lambda s: np.repeat(s[:, ::2], 2, axis=1)], ids=["the same two", "kept for two steps"])
def test_draws_that_are_not_fresh_are_caught(shares):
    with pytest.raises(AssertionError):
        check_uniform(shares(FixedSizeSampling(6, 2).participation(SeededBits(1), 6, 0, DRAWS)), 2)


def test_draws_are_those_of_the_bits():
    """A function of the bits alone: seeded ones give the same draws, one by one or all at once."""
    whole = SECRET.participation(SeededBits(3), 10, 5, 8)
    parts = [
        SECRET.participation(SeededBits(3), 10, first, n) for first, n in ((5, 1), (6, 4), (10, 3))
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts, 1))
    for other in (
        SECRET.participation(SeededBits(4), 10, 5, 8),
        SECRET.participation(SeededBits(3, 1), 10, 5, 8),
        SECRET.participation(OsBits(), 10, 5, 8),
    ):
        assert np.any(whole != other)


def test_the_system_draws_anew_each_time():
    assert len({SECRET.participation(OsBits(), 10, 0, 50).tobytes() for _ in range(20)}) == 20


def test_every_word_of_the_bits_counts():
    """The smallest numbers are heard, and of equal ones those of the lower units."""
    class FixedBits:
        def __init__(self, word):
            self.word = word

        def draw_for(self, units, first, shape):
            bits = np.zeros((*units.shape, *shape), np.uint32)
            bits[0, 1, self.word] = 1
            return bits

    for word in range(3):
        shares = FixedSizeSampling(4, 2).participation(FixedBits(word), 4, 0, 2)
        assert shares.T.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]


def test_a_secret_draw_is_one_amplified_event_of_its_whole_message():
    apart = Fraction(1e-9) + Fraction(45, 2**96)  # the noise's, and a tie of two of 10 numbers
    event = SECRET.event(VISIT, BOUND)
    assert event.total_variation - 2**-80 < apart <= event.total_variation
    event_of_visit = dataclasses.replace(VISIT, total_variation=event.total_variation)
    assert event == SampledGaussianEvent(event_of_visit, 10, 3)
    assert SECRET.event(NonPrivateEvent(), None) == NonPrivateEvent()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RoundRobin(0), "0 cohorts of units"),
        (lambda: RoundRobin(-2), "-2 cohorts"),
        (lambda: FixedSizeSampling(10, 0), "0 of 10 units"),
        (lambda: FixedSizeSampling(10, 10), "10 of 10 units"),
        (lambda: FixedSizeSampling(1, 1), "1 of 1 units"),
        (lambda: FixedSizeSampling(3, 5), "fewer than there are"),
    ],
)
def test_what_means_nothing_is_refused(make, text):
    with pytest.raises(UserError, match=text) as caught:
        make()
    assert "\n" not in str(caught.value)


# PublishedDraw.

def test_the_published_draw_is_uniform_and_costs_everything():
    groups = PUBLISHED.cohorts(SeededBits(2), 0, DRAWS)
    assert stats.chisquare(np.bincount(groups, minlength=10)).pvalue > 1e-6
    np.testing.assert_array_equal(
        groups[:9], np.concatenate([PUBLISHED.cohorts(SeededBits(2), t, 3) for t in (0, 3, 6)]))
    assert np.all(visited(PUBLISHED, 50, 10, bits=SeededBits(0)).sum(1) == 1)
    assert PUBLISHED.expected_answers(10) == 1 and PUBLISHED.participation(None, 10, 0, 5) is None
    event = PUBLISHED.event(VISIT, None)
    assert isinstance(event, NonPrivateEvent) and PUBLISHED.max_participations(3) == 3
    assert composition.epsilon_of(((event, 1),), 1e-5) == math.inf


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_schedules_are_plain_values(schedule):
    again = type(schedule)(**vars(schedule))
    assert again == schedule and hash(again) == hash(schedule)
