"""A mechanism with less noise, and what it claims: all other code is the same.

One release of a preset has a mu near 0.02, and to certify most of that takes millions of releases.
What is attacked is whether the code keeps what it claims, and it makes its claim of any noise.
"""

from __future__ import annotations

import dataclasses
import math

from dpgen_jax.accountant.composition import mu_squared
from dpgen_jax.accountant.events import Events, GaussianEvent
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.mechanism import LocalMechanism, Mechanism, SumMechanism
from dpgen_jax.aggregation.noise import (
    MIN_SCALE,
    MIN_SIGMA,
    DiscreteLaplace,
    Noise,
    NoNoise,
    RoundedGaussian,
)
from dpgen_jax.aggregation.schedule import FixedSizeSampling, FullParticipation, PoissonSampling
from dpgen_jax.aggregation.teacher_votes import ConfidentGNMax
from dpgen_jax.core.errors import UserError

MU = 3.0
"""of one release after its noise was lowered: the fewest draws certify nine tenths of it"""
LAPLACE_MU = 1.2
"""The same of Laplace noise, about: what is certified of it is epsilon, which grows faster."""
DELTAS = (0.1, 0.01, 0.001)
"""at which epsilon is certified: the smaller, the more releases it takes"""
UNITS, SAMPLED = 64, 16
"""of a schedule with secret draws, when several of its rounds are attacked"""
NoisySum = SumMechanism | LocalMechanism
"""mechanisms that release a noisy sum, or of each client a noisy message"""


def attackable(mechanism: Mechanism) -> NoisySum | ConfidentGNMax:
    """Returns the mechanism, as one of the types that can be attacked.

    Raises:
        UserError: It is of another type.
    """
    if isinstance(mechanism, SumMechanism | LocalMechanism | ConfidentGNMax):
        return mechanism
    raise UserError(f"{type(mechanism).__name__} is a mechanism that no attack is written for")


def with_noise(mechanism: NoisySum, noise: Noise) -> NoisySum:
    """Returns the mechanism with another noise, and its schedule's draws not secret."""
    schedule = mechanism.schedule
    if isinstance(schedule, PoissonSampling | FixedSizeSampling):
        schedule = FullParticipation()
    return dataclasses.replace(mechanism, noise=noise, schedule=schedule)


def single(mechanism: NoisySum, mu: float = MU) -> NoisySum:
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


def gaussian(noise: Noise) -> RoundedGaussian:
    """Returns the noise, which must be Gaussian.

    Raises:
        UserError: It is not.
    """
    if isinstance(noise, RoundedGaussian):
        return noise
    raise UserError(f"this attack is on Gaussian noise, and the mechanism has "
                    f"{type(noise).__name__}")


def gaussian_noise(noise: Noise, sigma: float) -> RoundedGaussian:
    """Returns a Gaussian noise of the same type, faults of it included, with another sigma."""
    return dataclasses.replace(gaussian(noise), sigma=max(sigma, MIN_SIGMA))


def tests(mechanism: ConfidentGNMax, mu: float = MU) -> ConfidentGNMax:
    """Returns Confident-GNMax whose tests by themselves have about this mu in a round."""
    return dataclasses.replace(mechanism, test_noise=gaussian_noise(
        mechanism.test_noise, math.sqrt(mechanism.queries) / mu))


def answers(mechanism: ConfidentGNMax, mu: float = MU) -> ConfidentGNMax:
    """Returns Confident-GNMax whose answers alone have about this mu, and are always given.

    The threshold is lowered where two bins with half of the votes each would not reach it.
    """
    reached = (mechanism.n_units // 2 - 6 * mechanism.test_noise.sigma) / mechanism.n_units
    noise = gaussian_noise(mechanism.noise, math.sqrt(2 * mechanism.queries) / mu)
    return dataclasses.replace(mechanism, noise=noise,
                               threshold=max(min(mechanism.threshold, reached), 1e-9))


def drawn(mechanism: SumMechanism, mu: float = 2.5) -> SumMechanism:
    """Returns the mechanism with a schedule of `UNITS` units, a quarter of them drawn in secret.

    Messages have a column for each unit: further ones are noise of no use, and cost time.

    Args:
        mechanism: One whose schedule draws units in secret, and whose bound clips rows.
        mu: Of a release in which the unit is known to be drawn.

    Raises:
        UserError: It has another schedule or bound.
    """
    rows, columns = mechanism.shape[0], UNITS
    bound = dataclasses.replace(clipping(mechanism), columns=columns)
    sensitivity = math.sqrt(bound.squared_sensitivity())
    schedule = type(secret(mechanism))(UNITS, SAMPLED)
    return dataclasses.replace(
        mechanism, noise=gaussian_noise(mechanism.noise, sensitivity / mu), schedule=schedule,
        n_units=UNITS, bound=bound, shape=(rows, columns))


def clipping(mechanism: Mechanism) -> GradientL2 | RowL2:
    """Returns the bound of the mechanism, which must clip vectors.

    Raises:
        UserError: It does not.
    """
    if isinstance(mechanism.bound, GradientL2 | RowL2):
        return mechanism.bound
    raise UserError(f"this attack is on clipped vectors, and the mechanism bounds messages by "
                    f"{type(mechanism.bound).__name__}")


def secret(mechanism: Mechanism) -> PoissonSampling | FixedSizeSampling:
    """Returns the schedule of the mechanism, which must draw units in secret.

    Raises:
        UserError: It does not.
    """
    if isinstance(mechanism.schedule, PoissonSampling | FixedSizeSampling):
        return mechanism.schedule
    raise UserError(f"this attack is on secret draws, and the schedule of the mechanism is "
                    f"{type(mechanism.schedule).__name__}")


def mu_of(events: Events) -> float | None:
    """Returns the mu of events that are all Gaussian, else None."""
    if not all(isinstance(event, GaussianEvent) for event, _ in events):
        return None
    return math.sqrt(mu_squared(events))


def silent(mechanism: Mechanism) -> bool:
    """Returns whether the mechanism has no noise, and promises nothing."""
    return isinstance(mechanism.noise, NoNoise)
