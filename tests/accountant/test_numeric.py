"""Poisson draws and Laplace noise in the ledger's epsilon: against the package, exact numbers,
Renyi bounds and far finer grids."""

import itertools
import math

import cpu_limit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgen_jax.accountant import composition, cross_check, ledger, pld
from dpgen_jax.accountant.composition import max_steps, sigma_for
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    RenyiEvent,
    SampledGaussianEvent,
    from_json,
    merge,
    to_json,
)
from dpgen_jax.core.errors import UserError

DELTA = 1e-5
RELATIONS = ("replace-one", "zero-out")


def draw(multiplier, rate, relation="replace-one", **more):
    """Noise of multiplier times the norm of a message, on a grid of 1/100 of that."""
    return PoissonGaussianEvent(GaussianEvent(100 * multiplier, 100**2, **more), rate, relation)


def cost(event, count=1, delta=DELTA):
    return composition.epsilon_of(((event, count),), delta)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("multiplier, rate, steps", [(1.0, 0.01, 1000), (1.5, 1e-3, 300),
                                                     (5.0, 0.3, 100), (2.0, 0.02, 5000)])
def test_the_package_agrees(relation, multiplier, rate, steps):
    events = ((draw(multiplier, rate, relation), steps),)
    package = cross_check.pld_epsilon(events, DELTA)
    assert package * 0.998 < composition.epsilon_of(events, DELTA) < package * 1.002


@pytest.mark.slow
def test_the_package_agrees_on_mixtures():
    events = ((draw(1.5, 0.01, "zero-out"), 50), (draw(2.0, 0.1, "zero-out"), 20),
              (GaussianEvent(300.0, 10_000), 3), (LaplaceEvent(20.0, 1), 30))
    package = cross_check.pld_epsilon(events, DELTA)
    assert package * 0.998 < composition.epsilon_of(events, DELTA) < package * 1.002
    replaced = ((draw(2.0, 0.1), 50), (GaussianEvent(300.0, 10_000), 3))
    package = cross_check.pld_epsilon(replaced, DELTA)
    assert package * 0.998 < composition.epsilon_of(replaced, DELTA) < package * 1.002


@pytest.mark.parametrize("scale, sensitivity, count", [(100.0, 1, 1000), (10.0, 2, 5),
                                                       (3.0, 1, 40)])
def test_the_package_agrees_on_laplace(scale, sensitivity, count):
    events = ((LaplaceEvent(scale, sensitivity), count),)
    package = cross_check.pld_epsilon(events, DELTA)
    assert package * 0.998 < composition.epsilon_of(events, DELTA) < package * 1.004


@pytest.mark.slow
@pytest.mark.parametrize("multiplier, rate, steps, delta", [
    (0.3, 1e-5, 1000, 1e-5), (0.5, 1e-4, 20_000, 1e-8), (1.0, 0.01, 1, 1e-5), (100, 0.5, 200_000,
                                                                               1e-8)])
def test_a_far_finer_grid_says_the_same(multiplier, rate, steps, delta, monkeypatch):
    events = ((draw(multiplier, rate), steps),)
    usual = pld.epsilon(events, delta)
    monkeypatch.setattr(pld, "_PART", 64)
    monkeypatch.setattr(pld, "_PER_OCTAVE", 128)
    monkeypatch.setattr(pld, "_LARGEST", 2**22)
    pld.gaussian_loss.cache_clear()
    fine = pld.epsilon.__wrapped__(events, delta)
    pld.gaussian_loss.cache_clear()
    assert fine * (1 - 1e-7) <= usual <= fine * 1.01


def test_one_step_by_hand():
    """delta(eps) of the antipodal pair in closed form, at the epsilon that is returned."""
    from scipy.special import ndtr
    for rate, multiplier, delta in ((0.01, 1.0, 1e-4), (0.3, 2.0, 1e-3), (1e-3, 0.5, 1e-5)):
        eps, c = cost(draw(multiplier, rate), 1, delta), 1 / multiplier
        x0 = pld._antipodal(rate, c)[1](eps)
        true = ((1 - rate) * (1 - math.exp(eps)) * ndtr(-x0) + rate * ndtr(c - x0)
                - math.exp(eps) * rate * ndtr(-c - x0))
        assert 0.97 * delta < true <= delta


@pytest.mark.parametrize("relation", RELATIONS)
def test_everybody_drawn_is_the_plain_gaussian(relation):
    event = draw(20.0, 1.0, relation)
    plain = GaussianEvent(event.gaussian.sigma, round(event.sensitivity**2))
    for count in (1, 100, 10_000):
        exact = cost(plain, count)
        assert exact * (1 - 1e-9) <= cost(event, count) < exact * 1.001
        assert cost(draw(20.0, 1 - 1e-9, relation), count) == pytest.approx(exact, rel=1e-3)


@settings(max_examples=20)
@given(st.floats(0.5, 20), st.floats(-3, -0.5).map(lambda e: 10**e), st.integers(1, 3000))
def test_never_above_renyi(multiplier, rate, steps):
    from dp_accounting.rdp import RdpAccountant
    event = draw(multiplier, rate, "zero-out")
    bound = RdpAccountant().compose(cross_check.to_dp_event(((event, steps),)))
    assert cost(event, steps) <= bound.get_epsilon(DELTA) * 1.001
    # replace-one: the draw without replacement of the same share has only its Renyi bound
    replaced = GaussianEvent(event.gaussian.sigma, 4 * event.squared_norm)
    fixed = SampledGaussianEvent(replaced, 10_000, round(1e4 * rate))
    assert cost(event, steps) <= cost(fixed, steps) * 1.05


def test_replace_one_is_dearer_and_a_mixture_is_zero_out():
    zeroed, replaced = draw(1.0, 0.01, "zero-out"), draw(1.0, 0.01)
    assert 1.5 * cost(zeroed, 1000) < cost(replaced, 1000) < 2.5 * cost(zeroed, 1000)
    both = composition.epsilon_of(((zeroed, 500), (replaced, 500)), DELTA)
    assert cost(zeroed, 1000) < both < cost(replaced, 1000)


def test_published_runs_with_the_draws_that_they_should_have_made():
    """DP-CGAN with its true noise, 600 of 55,000 a step: 75.70 is Renyi. GS-WGAN's settings, a
    critic drawn with chance 1/1000 and heard with all its 32 gradients: sigma in units of 2 C."""
    from dp_accounting.rdp import RdpAccountant
    event = draw(0.56, 600 / 55_000, "zero-out")
    renyi = RdpAccountant().compose(cross_check.to_dp_event(((event, 30_000),)))
    assert renyi.get_epsilon(DELTA) == pytest.approx(75.70, abs=5e-3)
    assert cost(event, 30_000) == pytest.approx(65.49, rel=2e-3)
    for target, sigma in ((10, 1.317), (1, 3.145)):
        found = sigma_for(lambda s: draw(2 * s / math.sqrt(32), 1e-3), 20_000, target, DELTA)
        assert found == pytest.approx(sigma, rel=2e-3)


def test_speed():
    """20,000 steps of rate .01: a ledger asks after every block, a calibration 40 times."""
    cost(draw(1.01, 0.01), 20_000)
    with cpu_limit.at_most(5):  # 0.1 s where nothing else runs
        for count in range(20_001, 20_011):
            cost(draw(1.01, 0.01), count)
    assert pld.epsilon.cache_info().currsize > 10


@pytest.mark.parametrize("tau", [1e-22, 1e-13])
def test_the_drawn_noise_is_charged(tau):
    steps, ideal = 1000, cost(draw(1.0, 0.01), 1000)
    epsilon = cost(draw(1.0, 0.01, total_variation=tau), steps)
    left = DELTA - (1 + math.exp(epsilon)) * steps * tau
    assert ideal <= epsilon
    assert epsilon == pytest.approx(cost(draw(1.0, 0.01), steps, left), rel=1e-6)
    assert cost(draw(1.0, 0.01, total_variation=DELTA)) == math.inf
    assert cost(draw(1.0, 0.0, total_variation=4e-6)) == 0
    assert cost(draw(1.0, 0.0, total_variation=6e-6)) == math.inf
    noisy = cost(LaplaceEvent(1.0, 1, total_variation=1e-6))
    assert 1 <= noisy < 1.1 and cost(LaplaceEvent(1.0, 1, total_variation=4e-6)) == math.inf


def test_few_laplace_draws_are_pure_and_many_are_not():
    event = LaplaceEvent(10.0, 1)
    assert cost(event) == cost(event, delta=1e-12) == pytest.approx(0.1, rel=1e-12)
    assert cost(event, 3) <= 0.3 + 1e-12
    assert cost(event, 1000) < 0.3 * 100
    # beside other events too
    assert composition.epsilon_of(((draw(1.0, 0.01), 100), (event, 1)), DELTA) < (
        cost(draw(1.0, 0.01), 100) + 0.1 + 1e-12)


def test_beside_the_other_kinds():
    poisson, others = (draw(1.0, 0.01), 1000), {
        "pure": (EpsilonDeltaEvent(0.01), 2), "loose": (EpsilonDeltaEvent(0.2, 1e-6), 1),
        "renyi": (RenyiEvent(16, 0.02), 1),
        "fixed": (SampledGaussianEvent(GaussianEvent(9.0, 32), 1000, 1), 100)}
    alone = composition.epsilon_of((poisson,), DELTA)
    for name, other in others.items():
        together = composition.epsilon_of((poisson, other), DELTA)
        assert max(alone, composition.epsilon_of((other,), DELTA)) < together, name
        assert together < alone + composition.epsilon_of((other,), DELTA / 10) + 0.2, name
    assert composition.epsilon_of((poisson, others["pure"]), DELTA) == pytest.approx(alone + 0.02)
    less = composition.epsilon_of((poisson,), DELTA - 1e-6)
    assert composition.epsilon_of((poisson, others["loose"]), DELTA) == pytest.approx(less + 0.2)
    assert composition.epsilon_of((poisson, (NonPrivateEvent(), 1)), DELTA) == math.inf
    assert composition.epsilon_of((poisson, (EpsilonDeltaEvent(0.1, DELTA), 1)), DELTA) == math.inf


def test_without_the_new_kinds_nothing_changes():
    events = ((GaussianEvent(5000, 12_000), 149), (EpsilonDeltaEvent(0.01), 1))
    before = pld.epsilon.cache_info()
    assert composition.epsilon_of(events, DELTA) == pytest.approx(1.00746, abs=1e-5)
    assert pld.epsilon.cache_info() == before


some_event = st.one_of(
    st.builds(draw, st.floats(0.3, 50), st.floats(-4, 0).map(lambda e: 10**e),
              st.sampled_from(RELATIONS), total_variation=st.sampled_from([0.0, 1e-22, 1e-9])),
    st.builds(LaplaceEvent, st.floats(0.3, 300), st.integers(0, 3)),
    st.builds(GaussianEvent, st.floats(1, 1e3), st.integers(0, 300)),
    st.builds(EpsilonDeltaEvent, st.floats(0.1, 2), st.sampled_from([0.0, 2e-6])))


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.tuples(some_event, st.integers(1, 300)), min_size=1, max_size=2).map(tuple),
       st.tuples(some_event, st.integers(1, 2)), st.floats(1e-9, 1e-3))
def test_never_falls_with_an_event_a_step_or_a_smaller_delta(events, more, delta):
    before = composition.epsilon_of(events, delta)
    one_more = tuple((event, count + 1) for event, count in events)
    for after in (composition.epsilon_of((*events, more), delta),
                  composition.epsilon_of(one_more, delta),
                  composition.epsilon_of(events, delta / 2)):
        assert after >= before * (1 - 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("multiplier, rate, count, delta", [
    (1e-4, 1e-9, 200_000, 1e-12), (1e6, 1e-9, 1, 0.5), (1e-3, 1.0, 200_000, 1e-30),
    (0.01, 0.9999, 7, 1e-10), (1e4, 1.0, 200_000, 1e-15), (30, 0.5, 10**9, 1e-6),
    (1e-11, 0.1, 5, 1e-6), (1e-150, 0.1, 5, 1e-6)])
@pytest.mark.parametrize("relation", RELATIONS)
def test_extremes_give_a_bound(multiplier, rate, count, delta, relation):
    with np.errstate(all="raise", under="ignore"):
        epsilon = cost(draw(multiplier, rate, relation), count, delta)
    assert epsilon >= 0 and not math.isnan(epsilon)


def test_it_calibrates():
    sigma = sigma_for(lambda s: draw(s, 0.01), 1000, 2.0, DELTA)
    assert cost(draw(sigma, 0.01), 1000) <= 2 < cost(draw(sigma * 0.998, 0.01), 1000)
    steps = max_steps(draw(1.0, 0.01), 3.0, DELTA)
    assert cost(draw(1.0, 0.01), steps) <= 3 < cost(draw(1.0, 0.01), steps + 1)


def test_in_a_ledger_and_a_statement(tmp_path):
    event = draw(1.0, 0.01, grid=0.5, total_variation=1e-25)
    noise = LaplaceEvent(20, 1)
    events = merge(((event, 20), (event, 5), (noise, 3)))
    assert from_json(to_json(events)) == events == ((event, 25), (noise, 3))
    assert [row["kind"] for row in to_json(events)] == ["poisson-gaussian", "laplace"]
    assert event.statement() == {"mechanism": "rounded-gaussian, poisson draw", "sigma": 100.0,
                                 "sensitivity": 200.0, "rate": 0.01}
    assert draw(1.0, 0.01, "zero-out").statement()["sensitivity"] == 100.0
    assert noise.statement() == {"mechanism": "discrete-laplace", "scale": 20.0, "sensitivity": 1}
    path = tmp_path / "ledger.jsonl"
    with ledger.Ledger.create(path, {"epsilon": 10.0, "delta": DELTA}) as book:
        book.reserve(((event, 20), (noise, 1)), 20)
        assert book.epsilon() == composition.epsilon_of(((event, 20), (noise, 1)), DELTA)
    assert ledger.account(ledger.read(path)).spent() == ((event, 20), (noise, 1))


@pytest.mark.parametrize("slip", [
    {"rate": -0.1}, {"rate": 1.1}, {"rate": math.nan}, {"relation": "add-remove"},
    {"gaussian": LaplaceEvent(1, 1)}])
def test_impossible_draws_are_refused(slip):
    with pytest.raises(UserError) as caught:
        PoissonGaussianEvent(**{"gaussian": GaussianEvent(1, 1), "rate": 0.1,
                                "relation": "zero-out", **slip})
    assert "\n" not in str(caught.value)


def test_files_hold_the_fields_of_both_events_side_by_side():
    """As in ledgers of before the events were nested."""
    row = {"kind": "poisson-gaussian", "count": 2, "sigma": 2.5, "squared_norm": 9, "rate": 0.1,
           "relation": "replace-one", "grid": 0.5, "total_variation": 1e-17,
           "mechanism": "rounded-gaussian, poisson draw"}
    event = PoissonGaussianEvent(GaussianEvent(2.5, 9, 0.5, 1e-17, "named"), 0.1, "replace-one")
    assert from_json([row]) == ((event, 2),) and to_json(((event, 2),)) == [row]
    assert event.gaussian.mechanism == "rounded-gaussian"  # a ledger has no second name
    with pytest.raises(TypeError):
        from_json([row | {"squared_sensitivity": 9}])


@pytest.mark.parametrize("fields", list(itertools.chain(
    ((scale, 1) for scale in (0, -1, math.nan, math.inf)), ((1, -1), (1, 2**21), (1, 1, -1)))))
def test_impossible_laplace_noise_is_refused(fields):
    with pytest.raises(UserError):
        LaplaceEvent(*fields)
