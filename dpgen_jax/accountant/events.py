"""Privacy events, which mechanisms report about their rounds, and sums that round upwards.

Everywhere in this package `events` is a tuple of pairs (event, count): a release that happened, or
may happen, `count` times.

Most events describe a release whose units are all known: no sampling amplifies it. The event of a
release whose units are sampled in secret contains a Gaussian event: the release as it would be if
the sample were known. `statement()` of an event is its text in a privacy statement.

Sums of charges are never below the exact ones: floats are added as fractions and rounded up once.
The remainder of an allowance is rounded down.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable
from fractions import Fraction
from typing import ClassVar, TypeVar

from dpgen_jax.core.errors import UserError
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import Relation

Terms = Iterable[tuple[float, int]]
"""Pairs (value, count)."""


def round_up(exact: Fraction) -> float:
    """The smallest float at or above an exact number."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def as_written(value: float) -> Fraction:
    """The decimal number that is printed for a float, as an exact fraction: 3 times 0.1 is 0.3.

    Args:
        value: A finite number.

    Returns:
        The number, which can be added and compared without rounding.
    """
    return Fraction(repr(float(value)))


def add_up(terms: Terms) -> float:
    """The sum of value * count, rounded up.

    Args:
        terms: Pairs (value, count), in any order.

    Returns:
        The sum; inf if a value that counts is infinite.
    """
    pairs = [(value, count) for value, count in terms if count and value]
    if any(value == math.inf for value, _ in pairs):
        return math.inf
    return round_up(_exact(pairs))


def left_of(allowance: float, terms: Terms) -> float:
    """The allowance minus the sum of value * count, rounded down.

    Args:
        allowance: A finite number, such as delta.
        terms: Pairs (value, count) of finite values.

    Returns:
        The remainder; below 0 if the sum exceeds the allowance.
    """
    return -round_up(_exact(terms) - Fraction(allowance))


def _exact(terms: Terms) -> Fraction:
    return sum((Fraction(value) * count for value, count in terms), Fraction())


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
        total_variation: Distance between the sampled distribution (a finite table) and the ideal
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
        """mu^2 of Gaussian differential privacy."""
        return self.squared_sensitivity / self.sigma**2

    def with_further_distance(self, distance: float) -> GaussianEvent:
        """Returns the event with `distance` added to its total variation."""
        total = add_up([(self.total_variation, 1), (distance, 1)])
        return dataclasses.replace(self, total_variation=total)

    def statement(self) -> Json:
        """Returns the text of the event in a privacy statement."""
        return {"mechanism": self.mechanism, "sigma": self.sigma, "sensitivity": self.sensitivity}


@dataclasses.dataclass(frozen=True)
class LaplaceEvent:
    """One integer plus discrete Laplace noise, P(k) proportional to e^(-|k| / scale).

    The log-density is concave, so the most powerful tests are half-lines, and the shift by
    `sensitivity` dominates all smaller shifts. sensitivity / scale is the epsilon of a single
    release.

    Attributes:
        sensitivity: The largest change of the integer between neighbours, at most 2^20.
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
        """Returns the text of the event in a privacy statement."""
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
        """Returns the text of the event in a privacy statement."""
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
        """Returns the text of the event in a privacy statement."""
        return {"mechanism": self.mechanism, "order": self.order, "rdp": self.rdp}


@dataclasses.dataclass(frozen=True)
class NonPrivateEvent:
    """A release without noise: its epsilon is infinite, never 0."""

    mechanism: str = "none"
    total_variation: ClassVar[float] = 0.0

    def statement(self) -> Json:
        """Returns the text of the event in a privacy statement."""
        return {"mechanism": self.mechanism, "sigma": 0.0, "sensitivity": None}


def to_floats(event: object, *names: str) -> None:
    """Converts fields to Python floats, so that equal events are also equal in the ledger."""
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


@dataclasses.dataclass(frozen=True)
class SampledGaussianEvent:
    """One Gaussian release of the messages of units sampled for this release only.

    Units are sampled uniformly, without replacement and in secret. The event is one round: the
    sensitivity covers its whole batch. The guarantee is replace-one of one unit's whole data. It
    holds if a unit's message depends only on its own data and on earlier releases, and not on which
    units were sampled before.

    Attributes:
        gaussian: The release if the sample were known. Its `squared_sensitivity` is the squared L2
            distance of the sum of the sampled units' messages when one of them is replaced by any
            other message, of the same unit or of another (for messages of norm at most C in each of
            B rows: 4 C^2 B). Its `total_variation` also covers the distance of the sampling from a
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
        """Distance between the sampled distribution and the ideal one."""
        return self.gaussian.total_variation

    @property
    def rate(self) -> float:
        """The probability that a unit is sampled, m / K."""
        return self.sample_size / self.population

    def statement(self) -> Json:
        """Returns the text of the event in a privacy statement."""
        return {**self.gaussian.statement(), "mechanism": self.mechanism,
                "population": self.population, "drawn": self.sample_size}


@dataclasses.dataclass(frozen=True)
class PoissonGaussianEvent:
    """One Gaussian release of the sum of the messages of Poisson-sampled units.

    Units are sampled independently of each other, each with probability `rate`, in secret and anew;
    a unit that is not sampled contributes 0. Each message is an integer vector, a function of the
    unit's own data and of earlier releases only. `pld.gaussian_loss` has the dominating pairs of
    distributions, and the proofs.

    Attributes:
        gaussian: The release of one message against the message 0 if the sample were known: its
            `squared_sensitivity` is the largest squared L2 norm of a message. Its `total_variation`
            also covers the probability that a round departs from such sampling in another way (a
            sample that exceeds the batch's capacity and is truncated).
        rate: The probability, 0 to 1.
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
        """Distance between the sampled distribution and the ideal one."""
        return self.gaussian.total_variation

    @property
    def squared_norm(self) -> int:
        """Largest squared L2 norm of a message, in squared grid units."""
        return self.gaussian.squared_sensitivity

    @property
    def sensitivity(self) -> float:
        """L2 distance between neighbouring messages, in grid units."""
        return self.gaussian.sensitivity * (2 if self.relation == Relation.REPLACE_ONE else 1)

    def statement(self) -> Json:
        """Returns the text of the event in a privacy statement."""
        return {"mechanism": self.mechanism, "sigma": self.gaussian.sigma,
                "sensitivity": self.sensitivity, "rate": self.rate}


def _hold_gaussian(event: SampledGaussianEvent | PoissonGaussianEvent) -> None:
    """Requires a Gaussian event and removes its name: a ledger has one name for both."""
    if not isinstance(event.gaussian, GaussianEvent):
        raise UserError(f"only a GaussianEvent can be sampled, got {event.gaussian!r}")
    unnamed = dataclasses.replace(event.gaussian, mechanism=GaussianEvent.mechanism)
    object.__setattr__(event, "gaussian", unnamed)


Event = (GaussianEvent | SampledGaussianEvent | PoissonGaussianEvent | LaplaceEvent
         | EpsilonDeltaEvent | RenyiEvent | NonPrivateEvent)
Events = tuple[tuple[Event, int], ...]
Kind = TypeVar("Kind", bound=Event)

_KINDS: dict[str, type[Event]] = {
    "gaussian": GaussianEvent, "sampled-gaussian": SampledGaussianEvent,
    "poisson-gaussian": PoissonGaussianEvent, "laplace": LaplaceEvent,
    "epsilon-delta": EpsilonDeltaEvent, "renyi": RenyiEvent, "non-private": NonPrivateEvent}

# In files a sampled event has its own fields and those of its Gaussian event, without nesting, and
# some have another name there.
_GAUSSIAN_FIELDS = ("sigma", "squared_sensitivity", "grid", "total_variation")
_NAMES_IN_FILES: dict[type[Event], dict[str, str]] = {
    SampledGaussianEvent: {"sample_size": "drawn"},
    PoissonGaussianEvent: {"squared_sensitivity": "squared_norm"}}


def of_kind(kind: type[Kind], events: Events) -> tuple[tuple[Kind, int], ...]:
    """Returns the pairs (event, count) whose event is of one kind, in their order."""
    return tuple((event, count) for event, count in events if isinstance(event, kind))


def merge(events: Events) -> Events:
    """Adds up the counts of equal events and drops those of count 0.

    Returns:
        One pair for each different event, in the order of first appearance.

    Raises:
        UserError: A count that is not a whole number >= 0, or an object that is not an event.
    """
    counts: dict[Event, int] = {}
    for event, count in events:
        if not isinstance(event, tuple(_KINDS.values())):
            raise UserError(f"{event!r} is not a privacy event")
        # bool is an int to Python, but "True rounds" is a slip
        if isinstance(count, bool) or (count := operator.index(count)) < 0:
            raise UserError(f"the count of an event must be a whole number >= 0, got {count!r}")
        counts[event] = counts.get(event, 0) + count
    return tuple((event, count) for event, count in counts.items() if count)


def ideal_noise(events: Events) -> Events:
    """Returns the events as if their noise were ideal.

    For comparisons only; no run has such noise.

    Returns:
        The same pairs with every `total_variation` set to 0.
    """
    return tuple((_ideal(event), count) for event, count in events)


def _ideal(event: Event) -> Event:
    match event:
        case SampledGaussianEvent() | PoissonGaussianEvent():
            ideal = dataclasses.replace(event.gaussian, total_variation=0.0)
            return dataclasses.replace(event, gaussian=ideal)
        case GaussianEvent() | LaplaceEvent() | RenyiEvent():
            return dataclasses.replace(event, total_variation=0.0)
    return event


def to_json(events: Events) -> list[Json]:
    """Returns the events as plain dicts, for ledgers and schema files.

    Returns:
        One dict per different event: `kind`, `count` and the fields, without nesting.

    Raises:
        UserError: As `merge` does.
    """
    kinds = {cls: kind for kind, cls in _KINDS.items()}
    return [{"kind": kinds[type(event)], "count": count, **_flat(event)}
            for event, count in merge(events)]


def _flat(event: Event) -> Json:
    fields = dataclasses.asdict(event)
    if gaussian := fields.pop("gaussian", None):
        fields = {name: gaussian[name] for name in _GAUSSIAN_FIELDS} | fields
    names = _NAMES_IN_FILES.get(type(event), {})
    return {names.get(name, name): value for name, value in fields.items()}


def from_json(rows: list[Json]) -> Events:
    """Returns the events of dicts that `to_json` made.

    Args:
        rows: Dicts from `to_json`, read from a file.

    Raises:
        ValueError: A value that no event can have.
        KeyError: An unknown kind, or no kind or count.
        TypeError: A field that the kind does not have, or a missing one.
    """
    pairs = []
    for row in rows:
        fields = dict(row)
        cls, count = _KINDS[fields.pop("kind")], fields.pop("count")
        pairs.append((_nested(cls, fields), count))
    return merge(tuple(pairs))


def _nested(cls: type[Event], fields: Json) -> Event:
    """Returns the event of fields as `_flat` returns them."""
    names = {in_file: name for name, in_file in _NAMES_IN_FILES.get(cls, {}).items()}
    if unknown := fields.keys() & {"gaussian", *names.values()}:
        raise TypeError(f"{cls.__name__} has no field {unknown} in files")
    fields = {names.get(name, name): value for name, value in fields.items()}
    if cls in _NAMES_IN_FILES:
        gaussian = {name: fields.pop(name) for name in _GAUSSIAN_FIELDS if name in fields}
        fields = {**fields, "gaussian": GaussianEvent(**gaussian)}
    return cls(**fields)
