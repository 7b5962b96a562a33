import math
from decimal import Decimal

import pytest

from dpgen_jax.accountant import composition
from dpgen_jax.accountant.composition import check_budget, max_steps, sigma_for
from dpgen_jax.accountant.events import EpsilonDeltaEvent, GaussianEvent, NonPrivateEvent
from dpgen_jax.core.errors import BudgetExceeded, UserError

DELTA = 1e-5
DATALENS = GaussianEvent(sigma=5000, squared_sensitivity=4 * 200 * 15)


def votes(k, sigma, batch):
    return GaussianEvent(sigma, 4 * k * batch)


@pytest.mark.parametrize("event, epsilon, steps", [
    (DATALENS, 1, 149), (votes(700, 9000, 30), 1, 69), (votes(300, 800, 15), 10, 142),
    (votes(200, 5000, 1), 1, 2245)])
def test_max_steps(event, epsilon, steps):
    assert max_steps(event, epsilon, DELTA) == steps
    # the defining property, and an independent count from the scalar vector c
    assert composition.epsilon_of(((event, steps),), DELTA) <= epsilon
    assert composition.epsilon_of(((event, steps + 1),), DELTA) > epsilon
    assert steps == int(2 * composition.zcdp_for(epsilon, DELTA) / event.mu_squared)


def test_max_steps_mutants_differ():
    for slip in (votes(200, 5000, 14), GaussianEvent(5000, 3000), GaussianEvent(5000, 6000)):
        assert max_steps(slip, 1, DELTA) != 149


def test_max_steps_after_others():
    assert max_steps(DATALENS, 1, DELTA, spent=((DATALENS, 100),)) == 49
    other = votes(700, 9000, 30)
    steps = max_steps(DATALENS, 1, DELTA, spent=((other, 30),))
    assert composition.epsilon_of(((other, 30), (DATALENS, steps)), DELTA) <= 1
    assert composition.epsilon_of(((other, 30), (DATALENS, steps + 1)), DELTA) > 1


def test_a_schedule_that_does_not_charge_every_step():
    def every_fourth(steps):
        return ((DATALENS, -(-steps // 4)),)

    assert max_steps(every_fourth, 1, DELTA) == 4 * 149
    assert max_steps(every_fourth, 1, DELTA, spent=((DATALENS, 100),)) == 4 * 49


def test_no_step_names_the_smallest_epsilon():
    event = votes(200, 100, 15)
    with pytest.raises(BudgetExceeded, match="smallest that does is 4.8661") as caught:
        max_steps(event, 1, DELTA)
    named = float(str(caught.value).split()[-1])
    assert max_steps(event, named, DELTA) == 1
    with pytest.raises(BudgetExceeded):
        max_steps(DATALENS, 1, DELTA, spent=((DATALENS, 149),))
    with pytest.raises(BudgetExceeded):
        max_steps(DATALENS, math.nan, DELTA)
    with pytest.raises(BudgetExceeded, match="no epsilon"):
        max_steps(NonPrivateEvent(), 10, DELTA)


def test_a_budget_that_bounds_nothing():
    with pytest.raises(UserError, match="does not bound"):
        max_steps(GaussianEvent(1, 0), 1, DELTA)
    with pytest.raises(UserError, match="does not bound"):
        max_steps(NonPrivateEvent(), math.inf, DELTA)


@pytest.mark.parametrize("steps, epsilon, squared", [
    (149, 1, 12000), (1, 0.1, 1), (640, 10, 4), (10**6, 3, 10**12), (1, 500, 1)])
def test_sigma_for(steps, epsilon, squared):
    def event(sigma):
        return GaussianEvent(sigma, squared)

    sigma = sigma_for(event, steps, epsilon, DELTA)
    digits = Decimal(repr(sigma)).normalize().as_tuple()
    assert len(digits.digits) <= 4
    assert composition.epsilon_of(((event(sigma), steps),), DELTA) <= epsilon
    one_less = sigma - 10.0 ** (math.floor(math.log10(sigma)) - 3)
    assert composition.epsilon_of(((event(one_less), steps),), DELTA) > epsilon


def test_sigma_vectors():
    # 12.646 exact for 20 visits of 32 fakes at epsilon 10, in units of one fake's sensitivity
    assert sigma_for(lambda s: GaussianEvent(s, 32), 20, 10, DELTA) == 12.65
    assert sigma_for(lambda s: GaussianEvent(s, 12000), 149, 1, DELTA) == 4989
    assert sigma_for(lambda s: ((GaussianEvent(s, 6000), 2),), 149, 1, DELTA) == 4989


def test_sigma_after_others():
    def event(sigma):
        return GaussianEvent(sigma, 12000)

    bought = ((EpsilonDeltaEvent(0.01), 1), (EpsilonDeltaEvent(0.1, 1e-6), 1))
    sigma = sigma_for(event, 149, 1, DELTA, spent=bought)
    assert sigma == sigma_for(event, 149, 1 - 0.11, DELTA - 1e-6) > 4989
    assert sigma_for(event, 100, 1, DELTA, spent=((event(4989), 49),)) == 4989
    with pytest.raises(BudgetExceeded, match="no epsilon|smallest that does is 1.1"):
        sigma_for(event, 149, 1, DELTA, spent=((EpsilonDeltaEvent(1.1), 1),))


def test_max_steps_after_what_is_not_gaussian():
    steps = max_steps(DATALENS, 1, DELTA, spent=((EpsilonDeltaEvent(0.01), 1),))
    assert steps == max_steps(DATALENS, 0.99, DELTA) < 149


def test_noise_that_can_be_drawn_is_found_below_the_first_that_cannot():
    """Sigma is first looked for in powers of two, of which the one above it may be too large."""
    def up_to(largest):
        def event(sigma):
            if sigma > largest:
                raise BudgetExceeded(f"at most {largest} can be drawn")
            return GaussianEvent(sigma, 12000)
        return event

    assert sigma_for(up_to(5000), 149, 1, DELTA) == 4989
    for largest in (4900, 3000, 100):
        with pytest.raises(BudgetExceeded, match=f"at most {largest}"):
            sigma_for(up_to(largest), 149, 1, DELTA)


def test_sigma_that_cannot_be():
    def coarse(sigma):
        return GaussianEvent(sigma, 1, total_variation=1e-5)

    with pytest.raises(BudgetExceeded, match="no epsilon"):
        sigma_for(coarse, 1, 1, DELTA)
    with pytest.raises(UserError, match="no noise"):
        sigma_for(lambda s: GaussianEvent(s, 0), 1, 1, DELTA)
    for epsilon in (0, math.nan, math.inf):
        with pytest.raises(UserError, match="epsilon"):
            sigma_for(lambda s: GaussianEvent(s, 1), 1, epsilon, DELTA)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    with pytest.raises(UserError, match="epsilon") as caught:
        check_budget(epsilon, DELTA)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan])
def test_bad_delta(delta):
    with pytest.raises(UserError, match="delta"):
        check_budget(1, delta)


def test_delta_and_the_number_of_records():
    assert check_budget(1, 1e-5) == []
    assert check_budget(1, 1e-6, 60_000) == []
    warning, = check_budget(1, 1e-5, 60_000)
    assert "1e-06" in warning
    with pytest.raises(UserError, match="below 1/n = 0.01, better 1e-03"):
        check_budget(1, 0.01, 100)
    with pytest.raises(UserError, match="records"):
        check_budget(1, 1e-5, 0)
