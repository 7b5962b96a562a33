"""Every bound under every schedule: an event that is proven, or an error that names both."""

import itertools

import pytest

from dpgen_jax.accountant.events import (
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
)
from dpgen_jax.aggregation.bound import FewRows, Unbounded
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.compression import CountSketch, KLevels, SketchedSigns
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.moments import CellVotes
from dpgen_jax.aggregation.noise import DiscreteLaplace, NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    PublishedSampling,
    RoundRobin,
)
from dpgen_jax.aggregation.teacher_votes import LabelMechanism, LabelVotes, Majority, OneHot
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import UserError

UNITS, SIGMA = 40, 30.0
ZERO_OUT = GradientL2(1.0, 10, 100, Relation.ZERO_OUT)
BOUNDS = [RowL2(1.0, 9, 2, 30), GradientL2(1.0, 10, 100), ZERO_OUT, OneHot(4, 3, 2, 1.0),
          LabelVotes(2), KLevels(4, 8, 2), TopKSign(3, 2),
          SketchedSigns(TopKSign(3, 2), CountSketch(2, 4, 8)), CellVotes(3, 8, 12),
          FewRows(TopKSign(3, 2), 5)]
SCHEDULES = [FullParticipation(), RoundRobin(4), FixedSizeSampling(UNITS, 5),
             PoissonSampling(UNITS, 5), PublishedSampling(UNITS)]


NOISE = RoundedGaussian(SIGMA)


def mechanism(bound, schedule, noise=NOISE, kind=SumMechanism):
    return kind(bound=bound, noise=noise, schedule=schedule, n_units=UNITS, unit=bound.unit,
                relation=bound.relation, shape=(bound.rows, 8), decode=Majority())


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: type(bound).__name__)
def test_no_message_is_longer_than_its_bound_says_nor_moves_further(bound):
    """A message of the longest norm may at most turn to its opposite."""
    assert 0 < bound.squared_norm <= bound.squared_sensitivity() <= 4 * bound.squared_norm


@pytest.mark.parametrize(("bound", "schedule"), list(itertools.product(BOUNDS, SCHEDULES)),
                         ids=lambda value: type(value).__name__)
def test_an_event_of_the_bound_or_an_error_that_names_both(bound, schedule):
    if bound is ZERO_OUT and isinstance(schedule, FixedSizeSampling):
        with pytest.raises(UserError, match="FixedSizeSampling is proven for replace-one, and "
                                            "GradientL2 bounds messages under zero-out"):
            mechanism(bound, schedule).events(3)
        return
    ((event, _),) = mechanism(bound, schedule).events(3)
    match schedule:
        case PoissonSampling():
            assert isinstance(event, PoissonGaussianEvent)
            assert event.squared_norm == bound.squared_norm and event.relation == bound.relation
        case FixedSizeSampling():
            assert isinstance(event, SampledGaussianEvent)
            assert event.gaussian.squared_sensitivity == bound.squared_sensitivity()
        case PublishedSampling():
            assert isinstance(event, NonPrivateEvent)
        case _:
            assert isinstance(event, GaussianEvent)
            assert event.squared_sensitivity == bound.squared_sensitivity()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda value: type(value).__name__)
def test_laplace_noise_is_amplified_by_no_secret_sample(schedule):
    votes = mechanism(LabelVotes(2), schedule, DiscreteLaplace(2.0), LabelMechanism)
    if isinstance(schedule, FixedSizeSampling | PoissonSampling):
        with pytest.raises(UserError, match=f"{type(schedule).__name__} is proven for Gaussian "
                                            "noise, and LabelVotes is released with discrete-"):
            votes.events(1)
    else:
        assert votes.events(1)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda value: type(value).__name__)
def test_without_noise_nothing_is_private(bound, schedule):
    ((event, _),) = mechanism(bound, schedule, NoNoise()).events(1)
    assert isinstance(event, NonPrivateEvent)


def test_no_bound_no_noise():
    """A message without a bound passes through one unit alone, and carries no noise."""
    with pytest.raises(UserError, match="32-bit"):
        mechanism(Unbounded(2, 8), FullParticipation())
