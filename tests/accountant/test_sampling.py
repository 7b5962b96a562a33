"""Secret draws without replacement: against the package, 200 digits and real pairs of data sets."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from renyi import rdp_epsilon

from dpgen_jax.accountant import composition, cross_check, ledger
from dpgen_jax.accountant.composition import max_steps, sigma_for
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    NonPrivateEvent,
    RenyiEvent,
    SampledGaussianEvent,
    from_json,
    merge,
    to_json,
)
from dpgen_jax.core.errors import UserError

DELTA = 1e-5
STEPS, BATCH, UNITS = 20_000, 32, 1000
WHOLE = (2, 3, 4, 5, 8, 16, 33)


def step(sigma, sampled=1, batch=BATCH, **more):
    """sigma in units of 2 C, the distance of two gradients clipped to C: B of them are 4 C^2 B."""
    return SampledGaussianEvent(GaussianEvent(sigma, batch, **more), UNITS, sampled)


def test_vectors_of_one_query():
    """GS-WGAN's query by Wang et al., at orders 2, 3, 4, 5, 8."""
    rdp = composition.without_replacement(1 / UNITS, 1 / 1.07**2, (2, 3, 4, 5, 8))
    expected = [4.790254e-6, 7.199087e-6, 9.617159e-6, 1.204455e-5, 1.938347e-5]
    assert rdp == pytest.approx(expected, rel=1e-6)
    curve = composition.sampled_curve(((step(1.07, batch=1), 1),))
    assert curve[np.isin(composition.SAMPLED_ORDERS, (2, 3, 4, 5, 8))] == pytest.approx(rdp,
                                                                                        rel=2e-9)


@settings(max_examples=15)
@given(st.integers(1, 600), st.floats(0.3, 10))
def test_the_package_agrees_at_every_order(sampled, multiplier):
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = SampledWithoutReplacementDpEvent(UNITS, sampled, GaussianDpEvent(multiplier))
    package = RdpAccountant(WHOLE, NeighboringRelation.REPLACE_ONE).compose(event).rdp
    ours = composition.without_replacement(sampled / UNITS, multiplier**-2, WHOLE)
    assert ours == pytest.approx(package, rel=1e-6)


@pytest.mark.parametrize("sigma", [2.871, 7.565])
def test_epsilon_agrees_with_the_package(sigma):
    events = ((step(sigma), STEPS), (GaussianEvent(300.0, 32), 4))
    package = cross_check.dp_accounting_rdp_epsilon(events, DELTA, orders=list(range(2, 30)))
    assert package * 0.998 < composition.epsilon_of(events, DELTA) <= package * (1 + 1e-8)
    with pytest.raises(UserError, match="without replacement"):
        cross_check.pld_epsilon(events, DELTA)
    free = ((SampledGaussianEvent(GaussianEvent(1.0, 0), 10, 1), 3),)
    assert cross_check.dp_accounting_rdp_epsilon(free, DELTA) == composition.epsilon_of(free,
                                                                                        DELTA) == 0


@pytest.mark.parametrize("t", [1e-3, 0.02, 0.3, 0.99])
def test_even_moments_agree_with_200_digits(t):
    log_moments = composition._even_moments(t)
    with mpmath.workdps(400):
        for power in (2, 4, 10, 64, 128):
            exact = mpmath.fsum((-1) ** k * mpmath.binomial(power, k)
                                * mpmath.exp(k * (k - 1) * mpmath.mpf(t) ** 2 / 2)
                                for k in range(power + 1))
            assert log_moments[power // 2] == pytest.approx(float(mpmath.log(exact)), rel=1e-12)


def divergence(log_p, log_q, order, step):
    return (np.logaddexp.reduce(order * log_p - (order - 1) * log_q) + math.log(step)) / (order - 1)


@pytest.mark.parametrize("t", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("q", [0.001, 0.1, 0.5, 1.0])
def test_the_bound_holds_for_real_pairs(q, t):
    """One unit says a or b, all others c; the three within t of each other."""
    x = np.arange(-60, 140, 0.01)

    def law(own, others):
        parts = [math.log(q) - (x - own) ** 2 / 2]
        if q < 1:
            parts.append(math.log1p(-q) - (x - others) ** 2 / 2)
        return np.logaddexp.reduce(parts) - math.log(2 * math.pi) / 2

    event = SampledGaussianEvent(GaussianEvent(1 / t, 1), 1000, round(1000 * q))
    rdp = composition.sampled_curve(((event, 1),))
    for a, b, c in ((t, 0, 0), (0, t, 0), (t / 2, -t / 2, 0), (t, 0, t / 2), (0, t, t)):
        for order in (1.5, 2, 3, 8, 24):
            true = divergence(law(a, c), law(b, c), order, 0.01)
            bound = rdp[order == composition.SAMPLED_ORDERS].item()
            assert bound >= true * (1 - 1e-9), (a, b, c, order)
            if q == 1 and (a, b) == (t, 0):
                assert bound == pytest.approx(order * t**2 / 2, rel=1e-8)


def test_the_published_runs_settings_at_a_true_epsilon():
    """T = 20,000, B = 32, K = 1,000, one unit drawn: noise in units of 2 C, as the published 1.07
    is; C = 1 / 2 in this test. The base Gaussian has the multiplier sigma / (2 C sqrt(B))."""
    assert sigma_for(step, STEPS, 10, DELTA) == pytest.approx(2.87, abs=0.005)
    assert sigma_for(step, STEPS, 1, DELTA) == pytest.approx(7.56, abs=0.006)
    # a rotation, 20 visits of 32: 12.646
    assert sigma_for(lambda s: GaussianEvent(s, 32), 20, 10, DELTA) == pytest.approx(12.646,
                                                                                     abs=0.005)
    # what is published, counted properly: nothing like 10
    assert composition.epsilon_of(((step(1.07), STEPS),), DELTA) > 500
    steps = max_steps(step(2.871), 10, DELTA)
    assert composition.epsilon_of(((step(2.871), steps),), DELTA) <= 10
    assert composition.epsilon_of(((step(2.871), steps + 1),), DELTA) > 10
    for slip in (step(2.871, batch=1), step(2.871, batch=8), step(2.871, sampled=2)):
        assert abs(composition.epsilon_of(((slip, STEPS),), DELTA) / 10 - 1) > 0.2


@pytest.mark.parametrize("sigma, sampled", [(2.871, 1), (7.565, 1), (86.2, 100)])
def test_never_below_the_pair_whose_others_are_silent(sigma, sampled):
    """Message 1 or 0, others 0: a mixture beside a Gaussian, which the package can do exactly."""
    from dp_accounting import (
        GaussianDpEvent,
        NeighboringRelation,
        PoissonSampledDpEvent,
        SelfComposedDpEvent,
    )
    from dp_accounting.pld import PLDAccountant

    pair = PoissonSampledDpEvent(sampled / UNITS, GaussianDpEvent(sigma / math.sqrt(BATCH)))
    package = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    lower = package.compose(SelfComposedDpEvent(pair, STEPS)).get_epsilon(DELTA)
    assert lower <= composition.epsilon_of(((step(sigma, sampled), STEPS),), DELTA) <= 3 * lower


def test_drawing_helps_and_more_noise_too():
    def cost(event, count=100):
        return composition.epsilon_of(((event, count),), DELTA)

    for sigma in (1.0, 10.0, 100.0):
        costs = [cost(step(sigma, m)) for m in (1, 2, 10, 100, 500, 999, 1000)]
        assert costs == sorted(costs)
        undrawn = rdp_epsilon(((step(sigma).gaussian, 100),), DELTA)
        assert costs[-1] == pytest.approx(undrawn, rel=0.02) and costs[-1] >= undrawn
        assert cost(step(2 * sigma)) < cost(step(sigma)) < cost(step(sigma), 101)


def test_beside_other_events():
    event, votes, counts = (step(8.0), STEPS), (GaussianEvent(400.0, 12_000), 3), (
        EpsilonDeltaEvent(0.01), 1)
    alone, gaussians = (composition.epsilon_of((e,), DELTA) for e in (event, votes))
    both = composition.epsilon_of((event, votes), DELTA)
    assert max(alone, gaussians) < both < alone + gaussians
    assert composition.epsilon_of((event, votes, counts), DELTA) == pytest.approx(both + 0.01,
                                                                                  abs=1e-12)
    less = composition.epsilon_of((event,), DELTA - 1e-6)
    assert composition.epsilon_of((event, (EpsilonDeltaEvent(0.2, 1e-6), 1)),
                                  DELTA) == less + 0.2 > alone
    assert composition.epsilon_of((event, (NonPrivateEvent(), 1)), DELTA) == math.inf
    assert composition.epsilon_of((event, (EpsilonDeltaEvent(0.1, DELTA), 1)), DELTA) == math.inf
    # a draw that costs nothing leaves the exact number
    free = (SampledGaussianEvent(GaussianEvent(1.0, 0), 10, 1), 5)
    assert composition.epsilon_of((votes, free), DELTA) == gaussians
    with pytest.raises(UserError, match="not Gaussian"):
        composition.mu_squared((event,))


def test_beside_renyi_events():
    """At their order where that is one of ours; else each by itself."""
    event = (step(8.0), STEPS)
    rdp = composition.sampled_at_order((event,), 16) + 0.02
    by_hand = rdp + math.log1p(-1 / 16) - math.log(DELTA * 16) / 15
    assert composition.epsilon_of((event, (RenyiEvent(16, 0.02), 1)),
                                  DELTA) == pytest.approx(by_hand)
    assert composition.sampled_at_order((
        event,), 16.2) == math.inf and composition.sampled_at_order((), 16.2) == 0
    apart = composition.epsilon_of((event, (RenyiEvent(16.2, 0.02), 1)), DELTA)
    assert by_hand < apart < math.inf


@pytest.mark.parametrize("tau", [1e-25, 1e-15])
def test_the_drawn_noise_is_charged(tau):
    ideal = composition.epsilon_of(((step(2.871), STEPS),), DELTA)
    epsilon = composition.epsilon_of(((step(2.871, total_variation=tau), STEPS),), DELTA)
    left = DELTA - (1 + math.exp(epsilon)) * STEPS * tau
    assert ideal < epsilon < ideal + 0.5
    assert epsilon >= composition.epsilon_of(((step(2.871), STEPS),), left)
    charged = composition.total_variation(((step(1.0, total_variation=tau), 7),))
    assert math.nextafter(charged, 0) < 7 * Fraction(tau) <= charged  # rounded up, and once
    hopeless = step(2.871, total_variation=DELTA)
    assert composition.epsilon_of(((hopeless, 1),), DELTA) == math.inf
    silent = SampledGaussianEvent(GaussianEvent(1.0, 0, total_variation=DELTA), 10, 1)
    assert composition.epsilon_of(((silent, 1),), DELTA) == math.inf


some_event = st.one_of(
    st.builds(SampledGaussianEvent, st.builds(
        GaussianEvent, st.floats(0.5, 1e3), st.integers(0, 1000),
        total_variation=st.sampled_from([0.0, 1e-22, 1e-8])), st.just(50), st.integers(1, 50)),
    st.builds(GaussianEvent, st.floats(0.5, 1e4), st.integers(0, 10_000)),
    st.builds(EpsilonDeltaEvent, st.floats(0.5, 2), st.sampled_from([0.0, 2e-6])),
    st.builds(RenyiEvent, st.sampled_from([1.4, 4.0, 4.7, 32.0]), st.floats(0, 2)))


@settings(max_examples=100)
@given(st.lists(st.tuples(some_event, st.integers(0, 3)), max_size=4).map(tuple),
       st.tuples(some_event, st.integers(1, 2)), st.floats(1e-9, 1e-3))
def test_never_falls_with_an_event_or_a_smaller_delta(events, more, delta):
    before = composition.epsilon_of(events, delta)
    assert composition.epsilon_of((*events, more), delta) >= before * (1 - 1e-8)
    assert composition.epsilon_of(events, delta / 2) >= before * (1 - 1e-8)


def test_a_curve_is_computed_once():
    event = step(3.125)
    max_steps(event, 10, DELTA, spent=((event, 17),))
    misses = composition._one.cache_info().misses
    assert max_steps(event, 10, DELTA) > 0
    assert composition._one.cache_info().misses == misses
    with pytest.raises(ValueError, match="read-only"):
        composition._one(1 / UNITS, 32 / 3.125**2)[0] = 0


def test_in_a_ledger_and_a_statement(tmp_path):
    event = step(2.871, grid=0.5, total_variation=1e-25)
    events = merge(((event, STEPS), (event, 5), (event.gaussian, 1)))
    assert from_json(to_json(events)) == events == ((event, STEPS + 5), (event.gaussian, 1))
    assert to_json(events)[0]["kind"] == "sampled-gaussian"
    assert event.statement() == {"mechanism": "rounded-gaussian, secret draw", "sigma": 2.871,
                                 "sensitivity": math.sqrt(32), "population": 1000, "drawn": 1}
    path = tmp_path / "ledger.jsonl"
    with ledger.Ledger.create(path, {"epsilon": 10.0, "delta": DELTA}) as book:
        book.reserve(((event, STEPS),), STEPS)
        assert book.epsilon() == composition.epsilon_of(((event, STEPS),), DELTA)
    assert ledger.account(ledger.read(path)).spent() == ((event, STEPS),)


@pytest.mark.parametrize("slip", [
    {"sample_size": 0}, {"sample_size": 11}, {"population": 0},
    {"gaussian": NonPrivateEvent()}, {"gaussian": 3.0}])
def test_impossible_events_are_refused(slip):
    with pytest.raises(UserError):
        SampledGaussianEvent(**{"gaussian": GaussianEvent(1, 1), "population": 10,
                                "sample_size": 1, **slip})
    with pytest.raises(TypeError):
        SampledGaussianEvent(GaussianEvent(1, 1), 10, 1.5)


def test_files_hold_the_fields_of_both_events_side_by_side():
    """As in ledgers of before the events were nested."""
    row = {"kind": "sampled-gaussian", "count": 2, "sigma": 2.5, "squared_sensitivity": 32,
           "population": 1000, "drawn": 3, "grid": 0.5, "total_variation": 1e-25,
           "mechanism": "rounded-gaussian, secret draw"}
    event = SampledGaussianEvent(GaussianEvent(2.5, 32, 0.5, 1e-25), 1000, 3)
    assert from_json([row]) == ((event, 2),) and to_json(((event, 2),)) == [row]
    for slip in ({"sample_size": 3}, {"gaussian": {}}, {"rate": 0.1}):
        with pytest.raises(TypeError):
            from_json([row | slip])
    with pytest.raises(TypeError):
        from_json([{name: value for name, value in row.items() if name != "sigma"}])
