"""A mechanism with less noise, and what it claims: all other code is the same.

One release of a preset has a mu near 0.02, and to certify most of that takes millions of releases.
What is attacked is whether the code keeps what it claims, and it makes its claim of any noise.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dpgen_jax.accountant import gaussian
from dpgen_jax.accountant.events import Events, GaussianEvent
from dpgen_jax.aggregation.confident_gnmax import ConfidentGNMax
from dpgen_jax.aggregation.laplace import MIN_SCALE, DiscreteLaplace
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import MIN_SIGMA, NoNoise
from dpgen_jax.aggregation.sampling import FixedSizeSampling, PoissonSampling
from dpgen_jax.aggregation.schedule import FullParticipation

MU = 3.0
"""of one release after its noise was lowered: the fewest draws certify nine tenths of it"""
LAPLACE_MU = 1.2
"""The same of Laplace noise, about: what is certified of it is epsilon, which grows faster."""
DELTAS = (0.1, 0.01, 0.001)
"""at which epsilon is certified: the smaller, the more releases it takes"""
UNITS, SAMPLED = 64, 16
"""of a schedule with secret draws, when several of its rounds are attacked"""


def with_noise(mechanism: Mechanism, noise: Any, **fields: Any) -> Any:
    """Returns the mechanism with another noise, and its schedule's draws not secret."""
    schedule = mechanism.schedule
    if isinstance(schedule, PoissonSampling | FixedSizeSampling):
        fields["schedule"] = FullParticipation()
    return dataclasses.replace(mechanism, noise=noise, **fields)  # type: ignore[type-var]


def single(mechanism: Any, mu: float = MU) -> Any:
    """Returns the mechanism with so much noise that one release has this mu.

    Args:
        mechanism: One with Gaussian or discrete Laplace noise, and no test before its answers.
        mu: Of one Gaussian release.
    """
    sensitivity = math.sqrt(mechanism.bound.squared_sensitivity())
    if isinstance(mechanism.noise, DiscreteLaplace):
        scale = max(sensitivity / LAPLACE_MU, MIN_SCALE)
        return with_noise(mechanism, dataclasses.replace(mechanism.noise, scale=scale))
    return with_noise(mechanism, gaussian_noise(mechanism.noise, sensitivity / mu))


def gaussian_noise(noise: Any, sigma: float) -> Any:
    """Returns a Gaussian noise of the same type, faults of it included, with another sigma."""
    return dataclasses.replace(noise, sigma=max(sigma, MIN_SIGMA))


def tests(mechanism: ConfidentGNMax, mu: float = MU) -> ConfidentGNMax:
    """Returns Confident-GNMax whose tests alone have about this mu in a round."""
    return dataclasses.replace(mechanism, test_noise=gaussian_noise(
        mechanism.test_noise, math.sqrt(mechanism.queries) / mu))


def answers(mechanism: ConfidentGNMax, mu: float = MU) -> ConfidentGNMax:
    """Returns Confident-GNMax whose answers alone have about this mu, and are always given.

    The threshold is lowered where two bins with half of the votes each would not reach it.
    """
    test_sigma = getattr(mechanism.test_noise, "sigma", 0.0)
    reached = (mechanism.n_units // 2 - 6 * test_sigma) / mechanism.n_units
    noise = gaussian_noise(mechanism.noise, math.sqrt(2 * mechanism.queries) / mu)
    return dataclasses.replace(mechanism, noise=noise,
                               threshold=max(min(mechanism.threshold, reached), 1e-9))


def drawn(mechanism: Any, mu: float = 2.5) -> Any:
    """Returns the mechanism with a schedule of `UNITS` units, a quarter of them drawn in secret.

    Messages have a column for each unit: further ones are noise that tells nothing, and cost time.

    Args:
        mechanism: One whose schedule draws units in secret, and whose bound clips rows.
        mu: Of a release in which the unit is known to be drawn.
    """
    rows, columns = mechanism.shape[0], UNITS
    bound = dataclasses.replace(mechanism.bound, columns=columns)
    sensitivity = math.sqrt(bound.squared_sensitivity())
    schedule = type(mechanism.schedule)(UNITS, SAMPLED)
    return dataclasses.replace(
        mechanism, noise=gaussian_noise(mechanism.noise, sensitivity / mu), schedule=schedule,
        n_units=UNITS, bound=bound, shape=(rows, columns))


def mu_of(events: Events) -> float | None:
    """Returns the mu of events that are all Gaussian, else None."""
    if not all(isinstance(event, GaussianEvent) for event, _ in events):
        return None
    return math.sqrt(gaussian.mu_squared(events))


def silent(mechanism: Any) -> bool:
    """Returns whether the mechanism has no noise, and promises nothing."""
    return isinstance(mechanism.noise, NoNoise)
