"""The published bound on a data-dependent cost is the formula, from bits that are used once."""

import dataclasses
import functools
import itertools
import math

import jax
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import toy as adversary

from dpgen_jax.accountant import smooth_sensitivity as smooth
from dpgen_jax.accountant.events import RenyiEvent
from dpgen_jax.accountant.smooth_sensitivity import Sanitiser
from dpgen_jax.aggregation import teacher_votes
from dpgen_jax.aggregation.noise import RoundedGaussian, SeededBits, draw_one
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax, OneHot
from dpgen_jax.core.types import Private, UserError, unseal
from dpgen_jax.private.kept_votes import Votes
from dpgen_jax.run import loop

SANITISER = Sanitiser(8.0, 0.025, 10.0, 12.0, 3.0)


def mechanism(sigma=40.0, bins=4):
    return ConfidentGNMax(
        bound=OneHot(bins, 3, 2, 1.0), noise=RoundedGaussian(sigma), schedule=FullParticipation(),
        test_noise=RoundedGaussian(2 * sigma), n_units=300, threshold=0.55)


def some_votes(bins=4):
    rng = np.random.default_rng(0)
    counts = rng.multinomial(300, rng.dirichlet(np.full(bins, 0.1), 60)).astype(np.int32)
    return Votes(counts, counts.max(1) + rng.normal(0, 80, 60) > 165, 10)


def test_totals_are_those_of_the_accountant_and_stay_sealed():
    votes = some_votes()
    sealed = teacher_votes.sanitised_totals(Private(votes), mechanism(), SANITISER, votes.steps)
    args = (votes.counts, votes.answered, 165, 80.0, 40.0, 8.0)
    total = smooth.total_rdp(*args)
    sensitivity = smooth.smooth_sensitivity(*args, 0.025, 300)
    most = 8 * (60 / (2 * 80**2) + votes.answered.sum() / 40**2)
    assert 0 < sensitivity < total < most and "Placed" in repr(sealed) and "=" not in repr(sealed)
    assert unseal(sealed) == SANITISER.place(total, sensitivity, most)


def test_where_the_conditions_fail_nothing_is_computed():
    with pytest.raises(UserError, match="C6"):
        teacher_votes.sanitised_totals(Private(some_votes(10)), mechanism(20.0, 10), Sanitiser(
            25.0, 0.01, 10.0, 12.0, 3.0), some_votes(10).steps)


def test_votes_that_are_missing_are_refused():
    votes = some_votes()
    with pytest.raises(UserError, match="a bound on all of them"):
        teacher_votes.sanitised_totals(Private(votes), mechanism(), SANITISER, votes.steps + 1)


def by_thresholds(sigma, words):
    """round(sigma Z) by mpmath: how many m have P(|X| <= m) at most the 95 bits, with a sign."""
    first, second, third = map(int, words)
    at = mpmath.mpf((first & 2**31 - 1) << 64 | second << 32 | third) / 2**95
    size = 0
    with mpmath.workprec(160):
        near = mpmath.erfinv(at) * mpmath.sqrt(2) * sigma  # |X| rounds |sigma Z| to the nearest
        size = int(mpmath.floor(near + mpmath.mpf(1) / 2))
    return -size if first >> 31 else size


def by_hand(placed, words, s=SANITISER):
    total = placed.total + by_thresholds(placed.sigma, words[0])
    log = placed.log + by_thresholds(s.log_sigma * 1024, words[1])
    spread = math.exp(s.beta / 1024 * (log + 1 + s.z * s.log_sigma * 1024))
    return math.ceil((placed.step * (total + 1) + s.z * s.sigma_ss * spread) * 1000) / 1000


class FixedBits:
    """Bits of the test; notes what was asked for."""

    def __init__(self, words):
        self.words, self.requests = words, []

    def draw(self, shape):
        self.requests.append(shape)
        return self.words.reshape(shape)


PLACED = SANITISER.place(0.7, 1e-3, 2.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_the_formula_on_one_draw(seed):
    words = SeededBits(seed).draw((1, 2, 3))[0]
    bits = FixedBits(words)
    released = teacher_votes.upper_bound(Private(PLACED), SANITISER, bits)
    assert released == by_hand(PLACED, words) > 0.7
    assert bits.requests == [(1, 2, 3)]
    assert released == round(released, 3)


@pytest.mark.parametrize("draw", [0, 1])
def test_the_two_noises_are_made_of_bits_of_their_own(draw):
    words = np.zeros((2, 3), np.uint32)
    placed = SANITISER.place(0.7, 1e-2, 2.0)
    before = teacher_votes.upper_bound(Private(placed), SANITISER, FixedBits(words))
    words[draw] = [2**30 + 2**29, 0, 0]
    after = teacher_votes.upper_bound(Private(placed), SANITISER, FixedBits(words))
    assert after == by_hand(placed, words) > before + 0.01


def check_whole_steps(monkeypatch, upper_bound):
    """All that a release is made of: whole steps of public grids, whatever was private. Float noise
    times a private scale would tell of that scale, however much of it there is."""
    made_of = []
    monkeypatch.setattr(smooth.Sanitiser, "upper_bound", lambda self, total, log, step: (
        made_of.append((total, log, step)), 1.0)[1])
    for seed, (total, sensitivity) in enumerate([(0.7, 1e-3), (0.70004, 1.02e-3), (1.3, 0.4)]):
        placed = SANITISER.place(total, sensitivity, 2.0)
        upper_bound(Private(placed), SANITISER, SeededBits(seed))
    assert all(type(total) is type(log) is int for total, log, _ in made_of)
    assert {step for *_, step in made_of} == {2.0**-19}


def test_noise_is_added_to_whole_steps_of_a_public_grid(monkeypatch):
    check_whole_steps(monkeypatch, teacher_votes.upper_bound)


def test_a_private_multiple_of_a_draw_is_caught(monkeypatch):
    """The planted fault, which was the code before: a draw over 2^14 is taken for a normal number,
    and multiplied by the private scale."""
    def multiple(sealed, sanitiser, bits):
        placed = unseal(sealed)
        first, second = (draw_one(2.0**14, words) / 2**14 for words in bits.draw((1, 2, 3))[0])
        total = placed.total + placed.sigma * first
        return sanitiser.upper_bound(total, placed.log + sanitiser.sigmas[1] * second, placed.step)

    with pytest.raises(AssertionError):
        check_whole_steps(monkeypatch, multiple)


def test_what_it_costs_is_stated():
    event = teacher_votes.sanitised_event(SANITISER)
    cost = smooth.gnss_rdp(0.025, 10.0, 8.0) + 8 / (2 * 12.0**2)
    assert event.rdp == SANITISER.rdp() == pytest.approx(cost, rel=1e-12)
    # of one draw of each noise, the first as large as it can be: 10 times 2^20 + 2 steps
    largest = [math.ceil(11.5 * sigma) + 2 for sigma in (10 * (2**20 + 2), 12 * 1024)]
    assert event.total_variation == pytest.approx(sum(largest) / 2**95, rel=1e-15)
    assert event == RenyiEvent(8.0, event.rdp, "smooth-sensitivity", event.total_variation)
    loudest = SANITISER.place(5.0, 5.0, 4.0)
    assert loudest.sigma <= SANITISER.sigmas[0]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1), st.floats(1e-6, 1e4))
def test_neighbours_are_as_close_on_the_grids_as_the_cost_says(total, ss, moved, changed, most):
    check_neighbours(lambda t, s, most: SANITISER.place(t, s, most), total, ss, moved, changed,
                     most)


def check_neighbours(place, total, ss, moved, changed, most):
    """Two totals that differ by no more than both sensitivities, which differ by e^beta."""
    beta, other = SANITISER.beta, ss * math.exp(SANITISER.beta * changed)
    there = total + moved * min(ss, other)
    one = place(total * most, ss * most, most)
    two = place(max(0.0, there) * most, other * most, most)
    assert abs(one.total - two.total) * SANITISER.sigma_ss <= min(one.sigma, two.sigma)
    assert abs(math.log(one.sigma / two.sigma)) <= beta
    assert abs(one.log - two.log) <= 1024  # of which the noise has log_sigma


UNITS, BETA = 12, 0.1
LOOSE = Sanitiser(1.5, BETA, 10.0, 12.0, 3.0)


@functools.cache
def loops():
    """The mechanism of twelve teachers, and a run of the real loop from records, a dealing and a
    forced transcript to its transcript, votes and answers."""
    close = ConfidentGNMax(
        bound=OneHot(3, 8, adversary.ROWS, 0.3), noise=RoundedGaussian(1.0), n_units=UNITS,
        schedule=FullParticipation(), test_noise=RoundedGaussian(1.0), threshold=0.6)
    method, where = dataclasses.replace(adversary.build(), mechanism=close), adversary.layout(
        units=UNITS)
    block, state = loop.compile_block(method, where), loop.initial_state(
        method, jax.random.key(0), where)
    units = jax.device_get(unseal(state.units))
    bits = SeededBits(0).draw((adversary.STEPS, *close.bits_shape))

    def run(data, planted=None, deal=None):
        public = jax.device_put(adversary.transcript(planted), where.replicated)
        start = loop.State(public, Private(jax.device_put(units, where.by_unit)), state.key)
        after, _, _, answered, votes = adversary.call(
            block, start, adversary.placed(data, where, deal), where, bits, adversary.STEPS)[:5]
        return (np.asarray(after.seen), np.asarray(unseal(votes)).reshape(-1, 3),
                np.asarray(answered).ravel() == 1)

    return close, run


def neighbours():
    """Twelve records, and all data sets in which the content and label of one are the worst."""
    y = adversary.neighbours()[0][1]
    x = np.random.default_rng(0).integers(64, 192, (12, *adversary.SPEC.shape)).astype(np.uint8)
    others = []
    for record, value in itertools.product(range(12), (255, 0)):
        other, labels = x.copy(), y.copy()
        other[record], labels[record] = value, 1 - y[record]
        others.append((other, labels))
    return (x, y), others


@pytest.mark.slow
def test_a_record_moves_what_is_published_as_far_as_the_noise_covers():
    """Each record of a run of the real loop is replaced by the worst ones, on the same transcript:
    a vote of each query moves at most, and total and sensitivity as the proof of `place` has it."""
    mechanism, run = loops()
    data, others = neighbours()
    seen, votes, answered = run(data)

    def numbers(counts):
        args = (counts, answered, mechanism.votes_needed, 1.0, 1.0, LOOSE.order)
        return smooth.total_rdp(*args), smooth.smooth_sensitivity(*args, BETA, UNITS)

    total, sensitivity = numbers(votes)
    moved, shifts, turns = set(), [], []
    for other in others:
        _, theirs, _ = run(other, seen)
        moved |= {*np.abs(votes - theirs).sum(1).tolist()}
        after, there = numbers(theirs)
        shifts.append(abs(after - total) / min(there, sensitivity))
        turns.append(abs(math.log(there / sensitivity)) / BETA)
    assert moved == {0, 2} and 0 < max(shifts) <= 1
    assert 0.99 < max(turns) <= 1 + 1e-9  # the sensitivity itself moves by all of beta
    assert total < 0.6 * LOOSE.order * (len(votes) / 2 + answered.sum())  # worth publishing


@pytest.mark.slow
def test_a_record_that_two_teachers_have_is_caught():
    """The planted fault: the sensitivity moves further than its noise covers."""
    _, run = loops()
    deal = adversary.dealt(UNITS)
    index = deal.index.copy()
    index[(adversary.owner(UNITS) + 1) % UNITS] = adversary.CANARY
    shared = dataclasses.replace(deal, index=index)
    data, others = neighbours()
    seen, votes, _ = run(data, deal=shared)
    moved = {*np.abs(votes - run(others[2 * adversary.CANARY], seen, shared)[1]).sum(1).tolist()}
    assert 4 in moved


def test_a_scale_without_the_grids_own_share_is_caught():
    def bare(total, ss, most):
        placed = SANITISER.place(total, ss, most)
        return dataclasses.replace(placed, sigma=SANITISER.sigma_ss * ss / placed.step)

    with pytest.raises(AssertionError):
        for total in np.linspace(0.1, 0.2, 50):
            check_neighbours(bare, total, 2.3e-6, 1.0, 0.0, 1.0)
