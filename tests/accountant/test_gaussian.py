"""The exact accountant against 60-digit arithmetic, published vectors and dp_accounting."""

import ast
import math
import sys
from pathlib import Path

import mpmath
import pytest
from renyi import rdp_epsilon

import dpgen_jax.accountant
from dpgen_jax.accountant import composition, cross_check
from dpgen_jax.accountant.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    NonPrivateEvent,
    RenyiEvent,
    from_json,
    merge,
    to_json,
)
from dpgen_jax.core.errors import BudgetExceeded, UserError

DELTA = 1e-5
DATALENS = GaussianEvent(sigma=5000, squared_sensitivity=4 * 200 * 15)


def exact_delta(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        first = mpmath.ncdf(-epsilon / mu + mu / 2)
        return first - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.parametrize("mu, epsilon", [
    (1, 0), (1, 1), (0.27, 1), (2, 10), (30, 500), (30, 100), (30, 900), (5, 0), (0.499, 2),
    (0.5, 2), (1e-3, 0), (1e-3, 5e-3), (1e-2, 0.07), (1e-6, 1e-6), (1e-9, 1e-9), (1e-9, 0),
    (1, 7), (0.1, 0.9), (100, 6000)])
def test_delta_agrees_with_sixty_digits(mu, epsilon):
    exact = float(exact_delta(mu, epsilon))
    assert composition.gaussian_delta(mu, epsilon) == pytest.approx(exact, rel=1e-10, abs=0)


def test_delta_at_the_edges():
    assert composition.gaussian_delta(0, 1) == 0
    assert composition.gaussian_delta(math.inf, 1) == 1
    assert composition.gaussian_delta(0.01, 500) == 0
    assert composition.gaussian_delta(1e3, 0) == 1


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-12])
@pytest.mark.parametrize("count", [1, 40, 149, 5000, 3_000_000])
def test_epsilon_holds_and_is_the_smallest(count, delta):
    epsilon = composition.epsilon_of(((DATALENS, count),), delta)
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(count * DATALENS.squared_sensitivity) / 5000**2)
    if epsilon == 0:
        assert exact_delta(mu, 0) <= delta
    else:
        assert exact_delta(mu, epsilon) <= delta < exact_delta(mu, epsilon * (1 - 1e-8))


def test_total_zcdp_vectors():
    got = [composition.zcdp_for(epsilon, DELTA) for epsilon in (.2, .5, 1, 10)]
    assert got == pytest.approx((.001881, .010112, .035926, 2.00089), rel=1e-5, abs=5.1e-7)


def test_gswgan_parallel_vectors():
    events = ((GaussianEvent(sigma=107, squared_sensitivity=100**2), 20 * 32),)
    assert composition.epsilon_of(events, DELTA) == pytest.approx(379.417, abs=1e-3)
    assert rdp_epsilon(events, DELTA, "classic") == pytest.approx(392.953, abs=1e-3)
    assert rdp_epsilon(events, DELTA) == pytest.approx(390.259, abs=1e-3)


def test_accountants_are_ordered():
    events = ((DATALENS, 100), (GaussianEvent(700, 90_000), 3))
    improved = rdp_epsilon(events, DELTA)
    assert composition.epsilon_of(events, DELTA) < improved
    assert improved < rdp_epsilon(events, DELTA, "classic")


@pytest.mark.parametrize("events", [
    ((DATALENS, 149),), ((GaussianEvent(1, 1), 1),),
    ((GaussianEvent(30, 400), 10), (DATALENS, 50))])
def test_the_package_agrees(events):
    exact = composition.epsilon_of(events, DELTA)
    # pessimistic by its discretisation, so never below; a doubled sensitivity would be far off
    assert exact * (1 - 1e-9) <= cross_check.pld_epsilon(events, DELTA) <= exact * 1.002 + 1e-4
    rdp = rdp_epsilon(events, DELTA)
    assert rdp * (1 - 1e-9) <= cross_check.dp_accounting_rdp_epsilon(events, DELTA) <= rdp * 1.01
    some = [2, 5, 20]
    assert cross_check.dp_accounting_rdp_epsilon(events, DELTA, some) == pytest.approx(
        rdp_epsilon(events, DELTA, orders=some))


def test_epsilon_of_nothing_and_of_no_noise():
    free = ((GaussianEvent(1, 0), 7),)
    for accountant in (composition.epsilon_of, rdp_epsilon, cross_check.pld_epsilon,
                       cross_check.dp_accounting_rdp_epsilon):
        assert accountant((), DELTA) == 0
        assert accountant(((DATALENS, 0), (NonPrivateEvent(), 0)), DELTA) == 0
        assert accountant(free, DELTA) == 0
        assert accountant(((DATALENS, 1), (NonPrivateEvent(), 1)), DELTA) == math.inf


@pytest.mark.parametrize("tau", [1e-16, 1e-9, 1e-7])
def test_total_variation_is_charged_exactly(tau):
    event = GaussianEvent(5000, DATALENS.squared_sensitivity, total_variation=tau)
    epsilon = composition.epsilon_of(((event, 20),), DELTA)
    assert epsilon >= composition.epsilon_of(((DATALENS, 20),), DELTA)

    def left(eps):
        with mpmath.workdps(60):
            mu = mpmath.sqrt(20 * mpmath.mpf(12000)) / 5000
            return exact_delta(mu, eps) + (1 + mpmath.exp(eps)) * 20 * mpmath.mpf(tau)

    assert left(epsilon) <= DELTA < left(epsilon * (1 - 1e-7))


def test_total_variation_can_make_delta_unreachable():
    def with_tau(tau, count=1, squared=12000):
        event = GaussianEvent(5000, squared, total_variation=tau)
        return composition.epsilon_of(((event, count),), DELTA)

    assert with_tau(1e-5) == math.inf
    assert with_tau(4.9e-6, squared=0) == 0
    assert with_tau(5.1e-6, squared=0) == math.inf
    assert with_tau(1.0) == math.inf
    assert with_tau(1e-9, count=1490) == math.inf
    assert with_tau(2.0**-96 * 11_760, count=149) == pytest.approx(.99746, abs=1e-5)


def test_a_wrong_event_gives_a_wrong_number():
    """Each slip that an accountant could make is far outside the tolerance of the vectors."""
    right = composition.epsilon_of(((DATALENS, 149),), DELTA)
    for slip in (((DATALENS, 1),),                                     # count forgotten
                 ((GaussianEvent(5000, 200 * 15), 149),),              # sensitivity halved
                 ((GaussianEvent(5000, 2 * 200 * 15), 149),),          # one-sided: off by sqrt 2
                 ((GaussianEvent(5000, 4 * 200), 149),),               # the batch left out
                 ((GaussianEvent(5000**0.5, 12000), 149),)):           # sigma for sigma^2
        assert abs(composition.epsilon_of(slip, DELTA) / right - 1) > 0.2


def test_composition_does_not_depend_on_grouping():
    other = GaussianEvent(4000, 12000)
    together = composition.epsilon_of(((DATALENS, 100), (other, 9)), DELTA)
    assert composition.epsilon_of(((other, 4), (DATALENS, 100), (other, 5)), DELTA) == together


@pytest.mark.parametrize("delta", [0, 1, -1, 2, math.nan])
def test_bad_delta(delta):
    for accountant in (composition.epsilon_of, rdp_epsilon, cross_check.pld_epsilon):
        with pytest.raises(UserError, match="delta"):
            accountant(((DATALENS, 1),), delta)


def test_bad_arguments():
    for epsilon in (0, -1, math.inf, math.nan):
        with pytest.raises(UserError, match="epsilon"):
            composition.zcdp_for(epsilon, DELTA)


@pytest.mark.parametrize("fields", [
    {"sigma": 0}, {"sigma": -1}, {"sigma": math.nan}, {"sigma": math.inf}, {"grid": 0},
    {"squared_sensitivity": -1}, {"total_variation": -1e-9}, {"total_variation": math.nan}])
def test_impossible_events_are_refused(fields):
    with pytest.raises(UserError):
        GaussianEvent(**{"sigma": 1, "squared_sensitivity": 1, **fields})


@pytest.mark.parametrize("pair", [(DATALENS, -1), (DATALENS, True), ("gaussian", 1)])
def test_bad_counts_and_events_are_refused(pair):
    with pytest.raises(UserError):
        merge((pair,))


def test_events_survive_json():
    events = ((GaussianEvent(0.1, 2**70, 1 / 3, 2.0**-96, "x"), 3), (NonPrivateEvent("dcgan"), 2),
              (EpsilonDeltaEvent(0.1, 1e-7, "categories"), 4), (RenyiEvent(8, 1 / 3, "y"), 1))
    assert from_json(to_json(events)) == events
    assert merge((*events, *events)) == tuple((event, 2 * count) for event, count in events)


def test_the_accountant_is_host_only():
    """It may import numbers and files, and of this package parts of `core` without JAX."""
    allowed = {"numpy", "scipy", "mpmath", "dp_accounting", "filelock"}
    files = list(Path(dpgen_jax.accountant.__file__).parent.glob("*.py"))
    package = Path(dpgen_jax.accountant.__file__).parents[1]
    core = ("errors", "files", "terms")
    files += [package / f"core/{name}.py" for name in core]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                inside = name.startswith("dpgen_jax.accountant") or name in (
                    "dpgen_jax.core", *(f"dpgen_jax.core.{part}" for part in core))
                top = name.split(".")[0]
                assert inside or top in allowed | sys.stdlib_module_names, (file.name, name)


def test_errors_carry_exit_codes():
    assert (UserError.exit_code, BudgetExceeded.exit_code) == (2, 3)
    assert issubclass(BudgetExceeded, UserError) and issubclass(UserError, ValueError)
