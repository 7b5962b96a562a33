"""Privacy events of releases whose units are all known: no sampling amplifies them.

`statement()` of each event is what a privacy statement says about it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from fractions import Fraction
from typing import ClassVar

from dpgen_jax.accountant.rounding import add_up, round_up
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.strict_json import Json


@dataclasses.dataclass(frozen=True)
class GaussianEvent:
    """One release of an integer vector plus rounded Gaussian noise.

    round(v + sigma Z) = v + round(sigma Z) for integer v, so the release is post-processing of the
    Gaussian mechanism and exactly mu-GDP with mu = sensitivity / sigma.

    Attributes:
        sigma: Standard deviation of the noise, in units of the integer grid.
        squared_sensitivity: Squared L2 sensitivity of the WHOLE message of one round, an integer in
            squared grid units (all fakes times all coordinates).
        grid: Value of one grid unit (a public scale; 1 for votes).
        total_variation: Distance between the law that is sampled (a finite table) and the ideal
            one, for one round; it is charged to delta.
        mechanism: Name of the mechanism in a privacy statement.

    Raises:
        UserError: A sigma, grid, sensitivity or distance that no mechanism can have.
    """

    sigma: float
    squared_sensitivity: int
    grid: float = 1.0
    total_variation: float = 0.0
    mechanism: str = "rounded-gaussian"

    def __post_init__(self) -> None:
        to_floats(self, "sigma", "grid", "total_variation")
        squared = operator.index(self.squared_sensitivity)
        object.__setattr__(self, "squared_sensitivity", squared)
        _require_positive("sigma", self.sigma)
        _require_positive("grid", self.grid)
        if squared < 0:
            raise UserError(f"squared_sensitivity must not be negative, got {squared}")
        _require_distance(self.total_variation)

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity, in grid units."""
        return math.sqrt(self.squared_sensitivity)

    @property
    def mu_squared(self) -> float:
        """Square of the mu of Gaussian differential privacy."""
        return self.squared_sensitivity / self.sigma**2

    def with_further_distance(self, distance: float) -> GaussianEvent:
        """Returns the event of a law that is `distance` further from the ideal one."""
        total = add_up([(self.total_variation, 1), (distance, 1)])
        return dataclasses.replace(self, total_variation=total)

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {"mechanism": self.mechanism, "sigma": self.sigma, "sensitivity": self.sensitivity}


@dataclasses.dataclass(frozen=True)
class LaplaceEvent:
    """One integer plus discrete Laplace noise, P(k) proportional to e^(-|k| / scale).

    The log-density is concave, so the most powerful tests are half-lines, and the shift by
    `sensitivity` dominates all smaller ones. sensitivity / scale is the epsilon of one release
    alone.

    Attributes:
        scale: Scale of the noise.
        sensitivity: The most by which the integer changes between neighbours, at most 2^20.
        total_variation: As in `GaussianEvent`.
        mechanism: Name of the mechanism in a privacy statement.

    Raises:
        UserError: A scale, sensitivity or distance that no mechanism can have.
    """

    scale: float
    sensitivity: int
    total_variation: float = 0.0
    mechanism: str = "discrete-laplace"

    def __post_init__(self) -> None:
        to_floats(self, "scale", "total_variation")
        object.__setattr__(self, "sensitivity", operator.index(self.sensitivity))
        _require_positive("scale", self.scale)
        if not 0 <= self.sensitivity <= 2**20:
            raise UserError(f"sensitivity must be in 0..2^20, got {self.sensitivity}")
        _require_distance(self.total_variation)

    @property
    def epsilon(self) -> float:
        """The epsilon of one release, rounded up."""
        return round_up(self.sensitivity / Fraction(self.scale))

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {"mechanism": self.mechanism, "scale": self.scale, "sensitivity": self.sensitivity}


@dataclasses.dataclass(frozen=True)
class EpsilonDeltaEvent:
    """One release that is (epsilon, delta)-private; purely epsilon-private where delta is 0.

    Raises:
        UserError: Unless 0 <= epsilon < inf and 0 <= delta < 1.
    """

    epsilon: float
    delta: float = 0.0
    mechanism: str = "epsilon-delta"
    total_variation: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        to_floats(self, "epsilon", "delta")
        _require_cost("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise UserError(f"delta must be in [0, 1), got {self.delta}")

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {"mechanism": self.mechanism, "epsilon": self.epsilon, "delta": self.delta}


@dataclasses.dataclass(frozen=True)
class RenyiEvent:
    """One release with a bound on the Renyi divergence of one order, both ways, of neighbours.

    Source: Mironov, "Renyi Differential Privacy", CSF 2017.

    Attributes:
        order: The order, 1 < order < inf.
        rdp: The bound on the divergence, 0 <= rdp < inf.
        mechanism: Name of the mechanism in a privacy statement.
        total_variation: As in `GaussianEvent`.

    Raises:
        UserError: An order, divergence or distance outside of its range.
    """

    order: float
    rdp: float
    mechanism: str = "renyi"
    total_variation: float = 0.0

    def __post_init__(self) -> None:
        to_floats(self, "order", "rdp", "total_variation")
        _require_distance(self.total_variation)
        if not 1 < self.order < math.inf:
            raise UserError(f"order must be finite and above 1, got {self.order}")
        _require_cost("rdp", self.rdp)

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {"mechanism": self.mechanism, "order": self.order, "rdp": self.rdp}


@dataclasses.dataclass(frozen=True)
class NonPrivateEvent:
    """A release without noise: its epsilon is infinite, never 0."""

    mechanism: str = "none"
    total_variation: ClassVar[float] = 0.0

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {"mechanism": self.mechanism, "sigma": 0.0, "sensitivity": None}


def to_floats(event: object, *names: str) -> None:
    """Makes fields plain Python floats, so that equal events are equal in the ledger too."""
    for name in names:
        object.__setattr__(event, name, float(getattr(event, name)))


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"{name} must be positive and finite, got {value}")


def _require_cost(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise UserError(f"{name} must be finite and not negative, got {value}")


def _require_distance(value: float) -> None:
    if not 0 <= value <= 1:
        raise UserError(f"total_variation must be in [0, 1], got {value}")
