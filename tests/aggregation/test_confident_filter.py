"""Confident-GNMax is charged by its answers: a filter on mu^2 and on the distance between drawn and
ideal noise together, which an adversary that chooses the answers cannot play against each other."""

import dataclasses
import math

import numpy as np
import pytest
from test_confident_gnmax import queries

from dpgen_jax.accountant import composition
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax


@dataclasses.dataclass(frozen=True)
class Coarse(RoundedGaussian):
    """A table so coarse that its distance counts: 1e-9 a draw."""

    def total_variation(self, draws):
        return 1e-9 * draws


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsDrawn(ConfidentGNMax):
    """The mutant: the distance is charged as it is drawn, whatever the answers."""

    def _events(self, tests, answers):
        return ((self.test_noise.event(1, 1), tests),
                (self.noise.event(2, self.bound.bins), answers))


def paths(mechanism, epsilon=1.0, delta=1e-5):
    """(mu^2, tau that was drawn) at the end of runs whose answers an adversary chooses, each as
    long as the budget allows: all, none, every so often, and none before or after some step."""
    queries, test, answer = mechanism.queries, mechanism.test_noise, mechanism.noise
    patterns = [lambda i, n=n: i % n == 0 for n in (1, 2, 5)]
    patterns += [lambda i: False, lambda i: i < 20, lambda i: i >= 20, lambda i: i >= 100]
    for pattern in patterns:
        steps = answered = 0
        while composition.epsilon_of((*mechanism._events(steps * queries, answered),
                                      *mechanism.events(1)), delta) <= epsilon:
            answered += queries * pattern(steps)
            steps += 1
        yield (steps * queries / test.sigma**2 + 2 * answered / answer.sigma**2,
               steps * queries * test.total_variation(1)
               + answered * answer.total_variation(mechanism.bound.bins))


def check_filter(mechanism):
    """The filter theorem bounds a run by the largest mu^2 and the largest tau of ANY path, as the
    length of a path, and with it how much noise is drawn, is decided by the answers."""
    ends = np.array(list(paths(mechanism)))
    mu, tau = math.sqrt(ends[:, 0].max()), ends[:, 1].max()
    assert ends[:, 1].max() > 2 * ends[:, 1].min() > 0, "the adversary changes nothing"
    assert composition.exact_epsilon(mu, tau, 1e-5) <= 1


COARSE = {"noise": Coarse(60.0), "test_noise": Coarse(150.0), "n_units": 400}


def test_no_answers_buy_more_than_the_filter_was_started_with():
    check_filter(queries(**COARSE))


def test_a_distance_that_is_charged_as_drawn_is_caught():
    with pytest.raises(AssertionError, match="exact_epsilon"):
        check_filter(queries(AsDrawn, **COARSE))
