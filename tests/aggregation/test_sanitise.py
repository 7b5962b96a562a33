"""The published bound on a data-dependent cost is the formula, from bits that are used once."""

import bisect
import math

import numpy as np
import pytest

from dpgen_jax.accountant import smooth_sensitivity as smooth
from dpgen_jax.accountant.events import RenyiEvent
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import sanitise
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.histogram import OneHot
from dpgen_jax.aggregation.noise import RoundedGaussian, thresholds
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.private.votes import Votes
from dpgen_jax.types import Private, UserError, unseal

SANITISER = Sanitiser(8.0, 0.025, 10.0, 12.0, 3.0)


def mechanism(sigma=40.0, bins=4):
    return ConfidentGNMax(
        bound=OneHot(bins, 3, 2, 1.0), noise=RoundedGaussian(sigma), schedule=Everyone(),
        test_noise=RoundedGaussian(2 * sigma), n_units=300, threshold=0.55)


def some_votes(bins=4):
    rng = np.random.default_rng(0)
    counts = rng.multinomial(300, rng.dirichlet(np.full(bins, 0.1), 60)).astype(np.int32)
    return Votes(counts, counts.max(1) + rng.normal(0, 80, 60) > 165, 10)


def test_totals_are_those_of_the_accountant_and_stay_sealed():
    held = some_votes()
    sealed = sanitise.totals(Private(held), mechanism(), SANITISER, held.steps)
    given = (held.counts, held.answered, 165, 80.0, 40.0, 8.0)
    total = smooth.total_rdp(*given)
    sensitivity = smooth.smooth_sensitivity(*given, 0.025, 300)
    np.testing.assert_array_equal(unseal(sealed), [total, sensitivity])
    assert 0 < sensitivity < total and repr(sealed) == "Private(float64[2])"


def test_where_the_conditions_fail_nothing_is_computed():
    with pytest.raises(UserError, match="C6"):
        sanitise.totals(Private(some_votes(10)), mechanism(20.0, 10), Sanitiser(
            25.0, 0.01, 10.0, 12.0, 3.0), some_votes(10).steps)


def test_votes_that_are_missing_are_refused():
    held = some_votes()
    with pytest.raises(UserError, match="a bound on all of them"):
        sanitise.totals(Private(held), mechanism(), SANITISER, held.steps + 1)


def normal(words):
    """A standard normal number from three words: a draw over 2^14."""
    first, second, third = map(int, words)
    size = bisect.bisect_right(thresholds(2.0**14),
                               (first & 2**31 - 1) << 64 | second << 32 | third)
    return (-size if first >> 31 else size) / 2**14


def by_hand(total, sensitivity, words, s=SANITISER):
    spread = math.exp(math.log(sensitivity) + s.beta * s.log_sigma * (normal(words[1]) + s.z))
    noised = total + s.sigma_ss * sensitivity * normal(words[0])
    return math.ceil((noised + s.z * s.sigma_ss * spread) * 1000) / 1000


class Given:
    """Bits of the test; notes what was asked for."""

    def __init__(self, words):
        self.words, self.asked = words, []

    def draw(self, shape):
        self.asked.append(shape)
        return self.words.reshape(shape)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_the_formula_on_one_draw(seed):
    words = SeededBits(seed).draw((1, 2, 3))[0]
    sealed, bits = Private(np.array([0.7, 1e-3])), Given(words)
    released = sanitise.upper_bound(sealed, SANITISER, bits)
    assert released == by_hand(0.7, 1e-3, words) > 0.7
    assert bits.asked == [(1, 2, 3)]
    assert released == round(released, 3)


@pytest.mark.parametrize("draw", [0, 1])
def test_the_two_noises_are_made_of_bits_of_their_own(draw):
    words = np.zeros((2, 3), np.uint32)
    sealed = Private(np.array([0.7, 1e-2]))
    before = sanitise.upper_bound(sealed, SANITISER, Given(words))
    words[draw] = [2**30 + 2**29, 0, 0]
    assert normal(words[draw]) == pytest.approx(1.15, abs=0.01)  # half of 3/4: the upper eighth
    after = sanitise.upper_bound(sealed, SANITISER, Given(words))
    assert after == by_hand(0.7, 1e-2, words) > before + 0.01


def test_digits_are_rounded_up_to_a_public_grid():
    words = np.zeros((2, 3), np.uint32)
    for total in (0.5, 0.50049, 0.50051, 0.5 + 2**-40):
        exact = SANITISER.upper_bound(total, 1e-9, 0.0, 0.0)
        given = sanitise.upper_bound(Private(np.array([total, 1e-9])), SANITISER, Given(words))
        assert 0 <= given - exact <= 1e-3 and given == math.ceil(exact * 1000) / 1000


def test_what_it_costs_is_stated():
    event = sanitise.event(SANITISER)
    assert event == RenyiEvent(8.0, SANITISER.rdp(), "smooth-sensitivity")
    cost = smooth.gnss_rdp(0.025, 10.0, 8.0) + 8 / (2 * 12.0**2)
    assert event.rdp == pytest.approx(cost, rel=1e-12)
