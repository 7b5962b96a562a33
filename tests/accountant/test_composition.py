"""The cost of releases that are not Gaussian, against the true delta of the worst pairs of laws."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.accountant import composition, cross_check
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    NonPrivateEvent,
    RenyiEvent,
)
from dpgen_jax.core.errors import UserError

DELTA = 1e-5
VOTES = GaussianEvent(sigma=5000, squared_sensitivity=4 * 200 * 15)
COUNTS = EpsilonDeltaEvent(0.01, mechanism="class-counts")
BOUGHT = EpsilonDeltaEvent(0.3, 1e-6)


def true_delta(events, epsilon):
    """The delta of the worst pairs: a Gaussian shift; for each (e, d) a coin that tells all with
    chance d and the right bit with odds of e^e otherwise; for each RenyiEvent a Gaussian that has
    its value."""
    mu, losses, revealed = 0.0, {0.0: 1.0}, 0.0
    for event, count in events:
        if isinstance(event, GaussianEvent):
            mu += count * event.mu_squared
        elif isinstance(event, RenyiEvent):
            mu += count * 2 * event.rdp / event.order
        else:
            right = 1 / (1 + math.exp(-event.epsilon))
            for _ in range(count):
                revealed += (1 - revealed) * event.delta
                after = {}
                for loss, p in losses.items():
                    for step, q in ((event.epsilon, right), (-event.epsilon, 1 - right)):
                        after[loss + step] = after.get(loss + step, 0.0) + p * q
                losses = after

    def gaussian_delta(left):
        return composition.gaussian_delta(math.sqrt(mu), left) if mu else max(0.0,
                                                                              1 - math.exp(left))

    rest = sum(p * gaussian_delta(epsilon - loss) for loss, p in losses.items())
    return revealed + (1 - revealed) * rest


MIXED = {
    "votes and counts": ((VOTES, 100), (COUNTS, 1)),
    "votes and a purchase": ((VOTES, 100), (BOUGHT, 2)),
    "purchases only": ((BOUGHT, 2), (COUNTS, 5)),
    "votes and Renyi": ((VOTES, 100), (RenyiEvent(8, 0.01), 3)),
    "all kinds": ((VOTES, 40), (BOUGHT, 1), (COUNTS, 3), (RenyiEvent(20, 0.02), 1)),
    "two orders": ((VOTES, 10), (RenyiEvent(20, 0.02), 1), (RenyiEvent(4, 0.03), 2)),
    "Renyi only": ((RenyiEvent(16, 0.05), 2),),
}


@pytest.mark.parametrize("name", MIXED)
def test_the_guarantee_holds_for_the_worst_pairs(name):
    events = MIXED[name]
    epsilon = composition.epsilon_of(events, DELTA)
    assert 0 < epsilon < math.inf
    assert true_delta(events, epsilon) <= DELTA
    for i, (event, _) in enumerate(events):  # one event forgotten costs visibly less
        if len(events) > 1:
            assert composition.epsilon_of((*events[:i], *events[i + 1:]),
                                          DELTA) < epsilon - 1e-4, event


def test_pure_releases_add_up_to_the_digit():
    assert composition.epsilon_of(((COUNTS, 3),), DELTA) == pytest.approx(0.03, abs=1e-15)
    assert true_delta(((COUNTS, 3),), 0.03 - 1e-6) > 0  # and no less would do at delta 0
    exact = composition.epsilon_of(((VOTES, 100),), DELTA)
    assert composition.epsilon_of(((COUNTS, 1), (VOTES, 100)), DELTA) == exact + 0.01
    less = composition.epsilon_of(((VOTES, 100),), DELTA - 2e-6)
    assert composition.epsilon_of(((VOTES, 100), (BOUGHT, 2)), DELTA) == pytest.approx(less + 0.6)
    assert less > exact


def test_a_forgotten_delta_would_show():
    """The guarantee breaks where (0.3, 1e-6) is charged twice with its deltas ignored."""
    events = ((VOTES, 100), (EpsilonDeltaEvent(0.0, 4e-6), 2))
    assert true_delta(events, composition.epsilon_of(((VOTES, 100),), DELTA)) > DELTA
    assert true_delta(events, composition.epsilon_of(events, DELTA)) <= DELTA


def test_delta_can_run_out():
    assert composition.epsilon_of(((EpsilonDeltaEvent(1, 1e-6), 11),), DELTA) == math.inf
    assert composition.epsilon_of(((EpsilonDeltaEvent(1, 1e-5), 1),), DELTA) == 1
    assert composition.epsilon_of(((EpsilonDeltaEvent(1, 1e-5), 1), (VOTES, 1)), DELTA) == math.inf
    assert composition.epsilon_of(((EpsilonDeltaEvent(1, 1e-5), 1), (RenyiEvent(2, 1), 1)),
                                  DELTA) == math.inf
    assert composition.epsilon_of(((NonPrivateEvent(), 1), (COUNTS, 1)), DELTA) == math.inf


def test_renyi_by_hand():
    """One order: Proposition 12 of Canonne, Kamath and Steinke."""
    def by_hand(rdp, order, delta=DELTA):
        return rdp + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    assert composition.epsilon_of(((RenyiEvent(16, 0.05), 2),),
                                  DELTA) == pytest.approx(by_hand(0.1, 16))
    assert composition.epsilon_of(((RenyiEvent(16, 0.0), 2),), DELTA) == 0
    # together at order 16: a Gaussian adds 16 mu^2 / 2, a pure release min(e, 8 e^2)
    events = ((RenyiEvent(16, 0.05), 1), (VOTES, 20), (COUNTS, 4), (EpsilonDeltaEvent(0.5), 1))
    rdp = 0.05 + 8 * 20 * VOTES.mu_squared + 4 * 8 * 0.01**2 + 0.5
    assert composition.epsilon_of(events, DELTA) == pytest.approx(by_hand(rdp, 16))
    # a huge order is no use to the Gaussians: each kind by itself then
    far = ((RenyiEvent(1e6, 0.001), 1), (VOTES, 100))
    assert composition.epsilon_of(far, DELTA) == pytest.approx(
        composition.epsilon_of(((VOTES, 100),), 0.99 * DELTA) + by_hand(0.001, 1e6, 0.01 * DELTA))


@pytest.mark.parametrize("tau", [1e-20, 1e-9])
def test_the_drawn_noise_is_charged_beside_renyi_too(tau):
    exact_noise = GaussianEvent(5000, 12000, total_variation=tau)
    events = ((RenyiEvent(16, 0.05), 1), (exact_noise, 20))
    epsilon = composition.epsilon_of(events, DELTA)
    ideal = composition.epsilon_of(((RenyiEvent(16, 0.05), 1), (VOTES, 20)), DELTA)
    assert ideal < epsilon < ideal + 0.1
    assert true_delta(events, epsilon) + (1 + math.exp(epsilon)) * 20 * tau <= DELTA
    hopeless = GaussianEvent(5000, 12000, total_variation=1e-5)
    assert composition.epsilon_of(((RenyiEvent(16, 0.05), 1), (hopeless, 1)), DELTA) == math.inf


some_event = st.one_of(
    st.builds(GaussianEvent, st.floats(0.5, 1e4), st.integers(0, 10_000),
              total_variation=st.sampled_from([0.0, 1e-22, 1e-8])),
    st.builds(EpsilonDeltaEvent, st.floats(0, 2), st.sampled_from([0.0, 1e-9, 2e-6])),
    st.builds(RenyiEvent, st.sampled_from([1.5, 4.0, 32.0]), st.floats(0, 2)))
some_events = st.lists(st.tuples(some_event, st.integers(0, 3)), max_size=4).map(tuple)


@settings(max_examples=150)
@given(some_events, st.tuples(some_event, st.integers(1, 2)), st.floats(1e-9, 1e-3))
def test_never_falls_with_an_event_or_a_smaller_delta(events, more, delta):
    before = composition.epsilon_of(events, delta)
    slack = 1 - 1e-9  # each value is rounded up by about that
    assert composition.epsilon_of((*events, more), delta) >= before * slack
    assert composition.epsilon_of(events, delta / 2) >= before * slack
    assert composition.epsilon_of(events[::-1], delta) == pytest.approx(before, rel=1e-12)


def test_a_second_order_never_helps():
    """At order 2.5 alone the whole would be cheaper, but adding an event must not lower epsilon."""
    events = ((RenyiEvent(4, 0.5), 1), (GaussianEvent(100, 320**2), 1))
    before = composition.epsilon_of(events, DELTA)
    assert composition.epsilon_of((*events, (RenyiEvent(2.5, 0), 1)), DELTA) >= before


def test_what_knows_only_gaussians_refuses_other_events():
    for event in (COUNTS, RenyiEvent(2, 1)):
        with pytest.raises(UserError, match="no counterpart"):
            cross_check.pld_epsilon(((VOTES, 1), (event, 1)), DELTA)
        with pytest.raises(UserError, match="not Gaussian"):
            composition.mu_squared(((VOTES, 1), (event, 1)))


@pytest.mark.parametrize("make", [
    lambda: EpsilonDeltaEvent(-0.1), lambda: EpsilonDeltaEvent(math.inf),
    lambda: EpsilonDeltaEvent(math.nan), lambda: EpsilonDeltaEvent(1, 1.0),
    lambda: EpsilonDeltaEvent(1, -1e-9), lambda: RenyiEvent(1, 1), lambda: RenyiEvent(math.inf, 1),
    lambda: RenyiEvent(math.nan, 1), lambda: RenyiEvent(2, -1), lambda: RenyiEvent(2, math.inf)])
def test_impossible_events_are_refused(make):
    with pytest.raises(UserError):
        make()


def test_what_a_statement_says_of_each():
    assert VOTES.statement() == {"mechanism": "rounded-gaussian", "sigma": 5000.0,
                                 "sensitivity": math.sqrt(12000)}
    assert NonPrivateEvent("none").statement() == {"mechanism": "none", "sigma": 0.0,
                                                   "sensitivity": None}
    assert BOUGHT.statement() == {"mechanism": "epsilon-delta", "epsilon": 0.3, "delta": 1e-6}
    assert RenyiEvent(8, 0.5, "x").statement() == {"mechanism": "x", "order": 8.0, "rdp": 0.5}
