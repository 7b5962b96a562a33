"""Stated costs are never below the exact ones: sums of epsilons, deltas and distances, beside
rational arithmetic."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    RenyiEvent,
    add_up,
    left_of,
    round_up,
)

DELTA = 1e-5
EVENTS = {
    "gaussian": ((GaussianEvent(7.3, 3, total_variation=3e-13), 11),),
    "laplace": ((LaplaceEvent(3.7, 1), 2),),
    "renyi": ((RenyiEvent(8.0, 0.013, total_variation=1e-17), 3),),
}
sums = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10**6)), max_size=6)


def exact(terms):
    return sum((Fraction(value) * count for value, count in terms), Fraction())


@given(sums)
def test_sums_are_the_smallest_floats_that_are_not_below(terms):
    found = add_up(terms)
    assert Fraction(found) >= exact(terms)
    assert not found or Fraction(math.nextafter(found, -math.inf)) < exact(terms)


@given(st.floats(1e-12, 1), sums)
def test_what_is_left_is_the_largest_float_that_is_not_above(allowance, terms):
    found = left_of(allowance, terms)
    assert Fraction(found) <= Fraction(allowance) - exact(terms) < Fraction(
        math.nextafter(found, math.inf))


def test_an_infinite_term_is_infinite_unless_it_counts_nothing():
    assert add_up([(math.inf, 1), (1.0, 2)]) == math.inf
    assert add_up([(math.inf, 0), (1.0, 2)]) == 2.0
    assert round_up(Fraction(1, 3)) > Fraction(1, 3)


pure = st.lists(st.tuples(st.builds(EpsilonDeltaEvent, st.floats(1e-9, 1), st.just(0.0)),
                          st.integers(1, 50)), min_size=1, max_size=5, unique_by=lambda p: p[0])


@settings(max_examples=200)
@given(pure)
def test_pure_epsilons_never_add_up_to_less_than_they_are(bought):
    events = tuple(bought)
    stated = Fraction(composition.epsilon_of(events, DELTA))
    assert stated >= exact((event.epsilon, n) for event, n in events)


@settings(max_examples=30)
@given(pure)
@pytest.mark.parametrize("kind", EVENTS)
def test_nor_beside_releases_of_other_kinds(kind, bought):
    beside = EVENTS[kind]
    stated = Fraction(composition.epsilon_of((*beside, *bought), DELTA))
    alone = Fraction(composition.epsilon_of(beside, DELTA))
    if kind == "renyi":  # where everything at one order may be cheaper than a sum
        assert stated >= alone
    else:
        assert stated >= alone + exact((event.epsilon, n) for event, n in bought)


@given(st.lists(st.tuples(st.floats(1e-30, 1e-3), st.integers(1, 10**5)), max_size=6))
def test_distances_add_up_to_no_less(terms):
    events = tuple((GaussianEvent(1.0 + i, 1, total_variation=tau), n)
                   for i, (tau, n) in enumerate(terms))
    assert Fraction(composition.total_variation(events)) >= exact(terms)


def test_floats_that_are_added_as_they_come_are_caught():
    """The planted fault, which was the code before: products and one sum, each to the nearest."""
    def to_the_nearest(terms):
        return Fraction(math.fsum(value * count for value, count in terms))

    bought = [[(0.1 + i / 97, 3), (0.2, i + 1)] for i in range(50)]
    below = [terms for terms in bought if to_the_nearest(terms) < exact(terms)]
    assert below and all(Fraction(add_up(terms)) >= exact(terms) for terms in below)


def test_a_laplace_draws_epsilon_is_not_below_its_ratio():
    for scale in (3.0, 3.7, 0.3, 1e4 / 7):
        assert Fraction(LaplaceEvent(scale, 1).epsilon) >= 1 / Fraction(scale)


def test_the_distance_of_a_renyi_release_is_charged_at_its_own_epsilon():
    """(1 + e^epsilon) tau by the epsilon of the release itself, in whatever way it is counted."""
    ideal, tau = RenyiEvent(8.0, 0.5), 1e-9
    event = RenyiEvent(8.0, 0.5, total_variation=tau)
    stated = composition.epsilon_of(((event, 1),), DELTA)
    assert stated > composition.epsilon_of(((ideal, 1),), DELTA)
    left = DELTA - (1 + math.exp(stated)) * tau
    assert stated >= composition.epsilon_of(((ideal, 1),), left)
    assert composition.epsilon_of(((RenyiEvent(8.0, 0.5, total_variation=DELTA), 1),),
                                  DELTA) == math.inf
