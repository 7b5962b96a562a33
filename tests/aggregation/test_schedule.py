"""Whose turn it is: visits are counted, draws are uniform and secret, and events say so."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent, SampledGaussianEvent
from dpgen_jax.aggregation.bits import OsBits, SeededBits
from dpgen_jax.aggregation.schedule import Everyone, PublishedDraw, Rotation, SecretDraw
from dpgen_jax.types import UserError

VISIT = GaussianEvent(30.0, 4 * 32, 0.5, 1e-9)
SECRET, PUBLISHED = SecretDraw(10, 3), PublishedDraw(10)
ALL = [Everyone(), Rotation(3), SECRET, PUBLISHED]
some = st.integers(1, 40)


def visited(schedule, turns, units, first=0, bits=None):
    """bool [turns, U]: the units of the groups that are visited, from turn `first` on."""
    groups = schedule.turns(bits, first, turns)
    assert groups.dtype == np.int32 and groups.shape == (turns,)
    assert np.all((groups >= 0) & (groups < schedule.groups))
    return groups[:, None] == np.arange(units) % schedule.groups


# Rotation.

@given(some, some, st.integers(0, 100), st.integers(0, 10**6))
def test_no_unit_is_visited_more_often_than_is_charged(units, groups, turns, first):
    schedule = Rotation(groups)
    times = visited(schedule, turns, units, first).sum(0)
    assert times.max() <= schedule.visits(turns)
    assert times.max() - times.min() <= 1
    if first % groups == 0:  # and for somebody it is all of that
        assert times[0] == schedule.visits(turns)


@given(some, some, st.integers(0, 5))
def test_a_round_visits_every_unit_once(units, groups, round_):
    assert np.all(visited(Rotation(groups), groups, units, round_ * groups).sum(0) == 1)


@given(some, some)
def test_groups_are_equal_up_to_one_and_the_mean_is_the_number_of_answers(units, groups):
    schedule = Rotation(groups)
    sizes = visited(schedule, groups, units).sum(1)
    assert sizes.max() - sizes.min() <= 1
    assert schedule.answering(units) == pytest.approx(sizes.mean())


@given(some, st.integers(0, 60), st.integers(1, 60), st.integers(0, 60))
def test_turns_do_not_depend_on_how_many_are_asked_for(groups, first, n, more):
    schedule = Rotation(groups)
    one = np.concatenate([schedule.turns(None, first, n), schedule.turns(None, first + n, more)])
    np.testing.assert_array_equal(one, schedule.turns(None, first, n + more))


def test_one_group_is_everyone():
    one, everyone = Rotation(1), Everyone()
    for turns in (0, 1, 7):
        assert one.visits(turns) == everyone.visits(turns) == turns
        np.testing.assert_array_equal(one.turns(None, 3, turns), everyone.turns(None, 3, turns))
    assert one.answering(11) == everyone.answering(11) == 11
    assert one.groups == everyone.groups


def test_public_schedules_draw_nothing():
    for schedule in (Everyone(), Rotation(3)):
        assert schedule.shares(None, 10, 0, 5) is None
        assert schedule.event(VISIT, None) is VISIT


# SecretDraw.

DRAWS = 20_000


def test_exactly_as_many_are_heard_as_are_charged():
    shares = SECRET.shares(SeededBits(0), 10, 0, 500)
    assert shares.dtype == np.int32 and shares.shape == (10, 500)
    assert set(np.unique(shares)) == {0, 1} and np.all(shares.sum(0) == SECRET.drawn)
    assert SECRET.answering(10) == SECRET.drawn == SECRET.event(VISIT, None).drawn
    assert np.all(visited(SECRET, 5, 10)) and SECRET.visits(7) == 7


def check_uniform(shares, drawn):
    """Every set of units is as likely as any other, whatever was drawn in the step before."""
    units, draws = shares.shape
    sets = (shares * 2 ** np.arange(units)[:, None]).sum(0)
    _, counts = np.unique(sets, return_counts=True)
    ways = math.comb(units, drawn)
    assert len(counts) == ways and stats.chisquare(counts).pvalue > 1e-6
    pairs = np.zeros((units, units))
    for before, after in zip(shares.T[:-1], shares.T[1:], strict=True):
        pairs += np.outer(before, after)
    mean, rate = (draws - 1) * (drawn / units) ** 2, (drawn / units) ** 2
    assert np.abs(pairs - mean).max() < 6 * math.sqrt(draws * rate * (1 - rate))


def test_every_set_of_units_is_equally_likely():
    check_uniform(SecretDraw(6, 2).shares(SeededBits(1), 6, 0, DRAWS), 2)


@pytest.mark.parametrize("shares", [
    lambda s: np.tile(np.array([[1], [1], [0], [0], [0], [0]]), DRAWS),
    lambda s: np.repeat(s[:, ::2], 2, axis=1)], ids=["the same two", "kept for two steps"])
def test_draws_that_are_not_fresh_are_caught(shares):
    with pytest.raises(AssertionError):
        check_uniform(shares(SecretDraw(6, 2).shares(SeededBits(1), 6, 0, DRAWS)), 2)


def test_draws_are_those_of_the_bits():
    """A function of the bits alone: seeded ones give the same draws, one by one or all at once."""
    whole = SECRET.shares(SeededBits(3), 10, 5, 8)
    parts = [SECRET.shares(SeededBits(3), 10, first, n) for first, n in ((5, 1), (6, 4), (10, 3))]
    np.testing.assert_array_equal(whole, np.concatenate(parts, 1))
    for other in (SECRET.shares(SeededBits(4), 10, 5, 8), SECRET.shares(SeededBits(3, 1), 10, 5, 8),
                  SECRET.shares(OsBits(), 10, 5, 8)):
        assert np.any(whole != other)


def test_the_system_draws_anew_each_time():
    assert len({SECRET.shares(OsBits(), 10, 0, 50).tobytes() for _ in range(20)}) == 20


def test_every_word_of_the_bits_counts():
    """The smallest numbers are heard, and of equal ones those of the lower units."""
    class Given:
        def __init__(self, word):
            self.word = word

        def draw_for(self, units, first, shape):
            bits = np.zeros((*units.shape, *shape), np.uint32)
            bits[0, 1, self.word] = 1
            return bits

    for word in range(3):
        shares = SecretDraw(4, 2).shares(Given(word), 4, 0, 2)
        assert shares.T.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]


def test_a_secret_draw_is_one_amplified_event_of_its_whole_message():
    apart = Fraction(1e-9) + Fraction(45, 2**96)  # the noise's, and a tie of two of 10 numbers
    event = SECRET.event(VISIT, None)
    assert event.total_variation - 2**-80 < apart <= event.total_variation
    assert event == SampledGaussianEvent(30.0, 4 * 32, 10, 3, 0.5, event.total_variation)
    assert SECRET.event(NonPrivateEvent(), None) == NonPrivateEvent()


@pytest.mark.parametrize(("make", "text"), [
    (lambda: Rotation(0), "0 groups of units"), (lambda: Rotation(-2), "-2 groups"),
    (lambda: SecretDraw(10, 0), "0 of 10 units"), (lambda: SecretDraw(10, 10), "10 of 10 units"),
    (lambda: SecretDraw(1, 1), "1 of 1 units"), (lambda: SecretDraw(3, 5), "fewer than there are")])
def test_what_means_nothing_is_refused(make, text):
    with pytest.raises(UserError, match=text) as caught:
        make()
    assert "\n" not in str(caught.value)


# PublishedDraw.

def test_the_published_draw_is_uniform_and_costs_everything():
    groups = PUBLISHED.turns(SeededBits(2), 0, DRAWS)
    assert stats.chisquare(np.bincount(groups, minlength=10)).pvalue > 1e-6
    np.testing.assert_array_equal(
        groups[:9], np.concatenate([PUBLISHED.turns(SeededBits(2), t, 3) for t in (0, 3, 6)]))
    assert np.all(visited(PUBLISHED, 50, 10, bits=SeededBits(0)).sum(1) == 1)
    assert PUBLISHED.answering(10) == 1 and PUBLISHED.shares(None, 10, 0, 5) is None
    event = PUBLISHED.event(VISIT, None)
    assert isinstance(event, NonPrivateEvent) and PUBLISHED.visits(3) == 3
    assert gaussian.epsilon(((event, 1),), 1e-5) == math.inf


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_schedules_are_plain_values(schedule):
    again = type(schedule)(**vars(schedule))
    assert again == schedule and hash(again) == hash(schedule)
