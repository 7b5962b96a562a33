"""Privacy events of releases of units that are sampled in secret: each holds a Gaussian event.

The Gaussian event is the release that it would be if the sample were known.
"""

from __future__ import annotations

import dataclasses
import operator

from dpgen_jax.accountant.plain_events import GaussianEvent, to_floats
from dpgen_jax.core.errors import UserError
from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.terms import Relation


@dataclasses.dataclass(frozen=True)
class SampledGaussianEvent:
    """One Gaussian release of the messages of units that are sampled for it alone.

    Units are sampled uniformly, without replacement and in secret. The event is one round, whatever
    its batch: the sensitivity covers all of it. The guarantee is replace-one of one unit's whole
    data. It holds where a unit's message depends on its own data and on earlier releases only, and
    not on who was sampled before.

    Attributes:
        gaussian: The release with the sample known. Its `squared_sensitivity` is the squared L2
            distance of the sum of the sampled units' messages when one of them is replaced by any
            other message, of the same unit or of another (for messages of norm at most C in each
            of B rows: 4 C^2 B). Its `total_variation` also covers how far the sampling is from a
            uniform one.
        population: Units that are sampled from, K.
        sample_size: Units of one round, m.
        mechanism: Name of the mechanism in a privacy statement.

    Raises:
        UserError: A sample that is empty or larger than the population.
    """

    gaussian: GaussianEvent
    population: int
    sample_size: int
    mechanism: str = "rounded-gaussian, secret draw"

    def __post_init__(self) -> None:
        _hold_gaussian(self)
        for name in ("population", "sample_size"):
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        if not 1 <= self.sample_size <= self.population:
            raise UserError(f"sample_size must be between 1 and the population of "
                            f"{self.population} units, got {self.sample_size}")

    @property
    def total_variation(self) -> float:
        """Distance between the law that is sampled and the ideal one."""
        return self.gaussian.total_variation

    @property
    def rate(self) -> float:
        """The chance of one unit to be sampled, m / K."""
        return self.sample_size / self.population

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {**self.gaussian.statement(), "mechanism": self.mechanism,
                "population": self.population, "drawn": self.sample_size}


@dataclasses.dataclass(frozen=True)
class PoissonGaussianEvent:
    """One Gaussian release of the sum of the messages of Poisson-sampled units.

    Units are sampled independently of each other, each with the chance `rate`, in secret and
    afresh; a unit that is not sampled counts 0. Each message is an integer vector, a function of
    the unit's own data and of earlier releases only. `loss.gaussian` has the dominating pairs of
    laws, and the proofs.

    Attributes:
        gaussian: The release of one message against the message 0, the sample being known: its
            `squared_sensitivity` is the squared L2 norm that no message exceeds. Its
            `total_variation` also covers the chance that a round departs from such sampling in any
            other way (a sample that exceeds the batch's capacity and is cut).
        rate: The chance, 0 to 1.
        relation: "replace-one" (a unit's data are replaced, the number of units is public) or
            "zero-out" (a unit's message becomes 0).
        mechanism: Name of the mechanism in a privacy statement.

    Raises:
        UserError: A rate or a relation that no mechanism can have.
    """

    gaussian: GaussianEvent
    rate: float
    relation: Relation
    mechanism: str = "rounded-gaussian, poisson draw"

    def __post_init__(self) -> None:
        _hold_gaussian(self)
        to_floats(self, "rate")
        if not 0 <= self.rate <= 1:
            raise UserError(f"rate must be in [0, 1], got {self.rate}")
        if self.relation not in (Relation.REPLACE_ONE, Relation.ZERO_OUT):
            raise UserError(f"relation must be 'replace-one' or 'zero-out', got {self.relation!r}")
        object.__setattr__(self, "relation", Relation(self.relation))  # a file has the word

    @property
    def total_variation(self) -> float:
        """Distance between the law that is sampled and the ideal one."""
        return self.gaussian.total_variation

    @property
    def squared_norm(self) -> int:
        """Squared L2 norm that no message exceeds, in squared grid units."""
        return self.gaussian.squared_sensitivity

    @property
    def sensitivity(self) -> float:
        """L2 distance between neighbouring messages, in grid units."""
        return self.gaussian.sensitivity * (2 if self.relation == Relation.REPLACE_ONE else 1)

    def statement(self) -> Json:
        """Returns what a privacy statement says about the event."""
        return {"mechanism": self.mechanism, "sigma": self.gaussian.sigma,
                "sensitivity": self.sensitivity, "rate": self.rate}


def _hold_gaussian(event: SampledGaussianEvent | PoissonGaussianEvent) -> None:
    """Requires a Gaussian event and takes its name away: a ledger has one name for both."""
    if not isinstance(event.gaussian, GaussianEvent):
        raise UserError(f"only a GaussianEvent can be sampled, got {event.gaussian!r}")
    unnamed = dataclasses.replace(event.gaussian, mechanism=GaussianEvent.mechanism)
    object.__setattr__(event, "gaussian", unnamed)
