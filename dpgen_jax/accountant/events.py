"""What a mechanism tells the accountant about one of its steps.

Everywhere in this folder `events` is a tuple of pairs (event, count): a step that happened, or may
happen, `count` times. `statement()` of each event is what a privacy statement says of it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from fractions import Fraction
from typing import Any

from dpgen_jax.accountant.rounding import round_up
from dpgen_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class GaussianEvent:
    """One release of an integer vector plus rounded Gaussian noise.

    round(v + sigma Z) = v + round(sigma Z) for integer v, so the release is post-processing of the
    Gaussian mechanism and exactly mu-GDP with mu = sensitivity / sigma.

    sigma: standard deviation of the noise, in units of the integer grid.
    squared_sensitivity: squared L2 sensitivity of the WHOLE message of one step, an integer in
      squared grid units (all fakes times all coordinates).
    grid: value of one grid unit (a public scale; 1 for votes).
    total_variation: distance between the law that is drawn (a finite table) and the ideal one,
      for one step; charged to delta.

    Raises UserError for a sigma, a grid, a sensitivity or a distance that no mechanism can have.
    """

    sigma: float
    squared_sensitivity: int
    grid: float = 1.0
    total_variation: float = 0.0
    mechanism: str = "rounded-gaussian"

    def __post_init__(self):
        _plain(self, "sigma", "grid", "total_variation")
        squared = operator.index(self.squared_sensitivity)
        object.__setattr__(self, "squared_sensitivity", squared)
        if not 0 < self.sigma < math.inf:
            raise UserError(f"sigma must be positive and finite, got {self.sigma}")
        if not 0 < self.grid < math.inf:
            raise UserError(f"grid must be positive and finite, got {self.grid}")
        if squared < 0:
            raise UserError(f"squared_sensitivity must not be negative, got {squared}")
        if not 0 <= self.total_variation <= 1:
            raise UserError(f"total_variation must be in [0, 1], got {self.total_variation}")

    @property
    def sensitivity(self) -> float:
        return math.sqrt(self.squared_sensitivity)

    @property
    def mu_squared(self) -> float:
        return self.squared_sensitivity / self.sigma**2

    def statement(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "sigma": self.sigma, "sensitivity": self.sensitivity}


@dataclasses.dataclass(frozen=True)
class SampledGaussianEvent:
    """One release of a GaussianEvent's kind of the messages of units drawn for it alone: uniformly,
    without replacement and in secret. One step, whatever its batch: the sensitivity covers it all.

    The guarantee is replace-one of one unit's whole data. It holds where a unit's message depends
    on its own data and on earlier releases only, and not on who was drawn before.

    sigma, grid: as in GaussianEvent.
    total_variation: as in GaussianEvent; also how far the draw is from a uniform one.
    squared_sensitivity: squared L2 distance of the sum of the drawn units' messages when one of
      them is replaced by any other message, of the same unit or of another; an integer in squared
      grid units (for messages of norm at most C in each of B rows: 4 C^2 B).
    population: units that are drawn from, K; drawn: units of one step, m.

    Raises UserError for what no mechanism can have.
    """

    sigma: float
    squared_sensitivity: int
    population: int
    drawn: int
    grid: float = 1.0
    total_variation: float = 0.0
    mechanism: str = "rounded-gaussian, secret draw"

    def __post_init__(self):
        base = self.undrawn  # which checks what the two kinds share
        for name in ("sigma", "squared_sensitivity", "grid", "total_variation"):
            object.__setattr__(self, name, getattr(base, name))
        for name in ("population", "drawn"):
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        if not 1 <= self.drawn <= self.population:
            raise UserError(f"drawn must be between 1 and the population of {self.population} "
                            f"units, got {self.drawn}")

    @property
    def undrawn(self) -> GaussianEvent:
        """The release with the draw known."""
        return GaussianEvent(self.sigma, self.squared_sensitivity, self.grid, self.total_variation)

    def statement(self) -> dict[str, Any]:
        return {**self.undrawn.statement(), "mechanism": self.mechanism,
                "population": self.population, "drawn": self.drawn}


@dataclasses.dataclass(frozen=True)
class PoissonGaussianEvent:
    """One release of a GaussianEvent's kind of the sum of messages of units that are drawn
    independently of each other, each with chance `rate`, in secret and afresh; a unit that is not
    drawn counts 0. Each message is an integer vector, a function of the unit's own data and of
    earlier releases only.

    relation: "replace-one" (a unit's data are replaced, the number of units is public) or
      "zero-out" (a unit's message becomes 0). `loss.gaussian` has the dominating pairs of laws, and
      the proofs.
    sigma, grid: as in GaussianEvent.
    squared_norm: squared L2 norm that no message exceeds (all of one step), an integer in squared
      grid units.
    rate: the chance, 0 to 1.
    total_variation: as in GaussianEvent; also the chance that a step departs from such a draw in
      any other way (a draw that is too long for its places and is cut).

    Raises UserError for what no mechanism can have.
    """

    sigma: float
    squared_norm: int
    rate: float
    relation: str
    grid: float = 1.0
    total_variation: float = 0.0
    mechanism: str = "rounded-gaussian, poisson draw"

    def __post_init__(self):
        base = GaussianEvent(self.sigma, self.squared_norm, self.grid, self.total_variation)
        object.__setattr__(self, "squared_norm", base.squared_sensitivity)
        for name in ("sigma", "grid", "total_variation"):
            object.__setattr__(self, name, getattr(base, name))
        _plain(self, "rate")
        if not 0 <= self.rate <= 1:
            raise UserError(f"rate must be in [0, 1], got {self.rate}")
        if self.relation not in ("replace-one", "zero-out"):
            raise UserError(f"relation must be 'replace-one' or 'zero-out', got {self.relation!r}")

    @property
    def sensitivity(self) -> float:
        norm = math.sqrt(self.squared_norm)
        return 2 * norm if self.relation == "replace-one" else norm

    def statement(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "sigma": self.sigma, "sensitivity": self.sensitivity,
                "rate": self.rate}


@dataclasses.dataclass(frozen=True)
class LaplaceEvent:
    """One integer plus discrete Laplace noise, P(k) proportional to e^(-|k| / scale): one number,
    which changes by at most `sensitivity` between neighbours, at most 2^20.

    The log-density is concave, so the most powerful tests are half-lines, and the shift by
    `sensitivity` dominates all smaller ones. sensitivity / scale is the epsilon of one draw alone.

    total_variation: as in GaussianEvent. Raises UserError for what no mechanism can have.
    """

    scale: float
    sensitivity: int
    total_variation: float = 0.0
    mechanism: str = "discrete-laplace"

    def __post_init__(self):
        _plain(self, "scale", "total_variation")
        object.__setattr__(self, "sensitivity", operator.index(self.sensitivity))
        if not 0 < self.scale < math.inf:
            raise UserError(f"scale must be positive and finite, got {self.scale}")
        if not 0 <= self.sensitivity <= 2**20:
            raise UserError(f"sensitivity must be in 0..2^20, got {self.sensitivity}")
        if not 0 <= self.total_variation <= 1:
            raise UserError(f"total_variation must be in [0, 1], got {self.total_variation}")

    @property
    def epsilon(self) -> float:
        return round_up(self.sensitivity / Fraction(self.scale))

    def statement(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "scale": self.scale, "sensitivity": self.sensitivity}


@dataclasses.dataclass(frozen=True)
class EpsilonDeltaEvent:
    """One release that is (epsilon, delta)-private; purely epsilon-private where delta is 0.

    Raises UserError unless 0 <= epsilon < inf and 0 <= delta < 1.
    """

    epsilon: float
    delta: float = 0.0
    mechanism: str = "epsilon-delta"

    def __post_init__(self):
        _plain(self, "epsilon", "delta")
        if not 0 <= self.epsilon < math.inf:
            raise UserError(f"epsilon must be finite and not negative, got {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise UserError(f"delta must be in [0, 1), got {self.delta}")

    def statement(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "epsilon": self.epsilon, "delta": self.delta}


@dataclasses.dataclass(frozen=True)
class RenyiEvent:
    """One release whose Renyi divergence of one order is at most `rdp`, between neighbours, both
    ways round (Mironov, "Renyi Differential Privacy", CSF 2017).

    total_variation: as in GaussianEvent. Raises UserError unless 1 < order < inf, 0 <= rdp < inf
    and the distance is one.
    """

    order: float
    rdp: float
    mechanism: str = "renyi"
    total_variation: float = 0.0

    def __post_init__(self):
        _plain(self, "order", "rdp", "total_variation")
        if not 0 <= self.total_variation <= 1:
            raise UserError(f"total_variation must be in [0, 1], got {self.total_variation}")
        if not 1 < self.order < math.inf:
            raise UserError(f"order must be finite and above 1, got {self.order}")
        if not 0 <= self.rdp < math.inf:
            raise UserError(f"rdp must be finite and not negative, got {self.rdp}")

    def statement(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "order": self.order, "rdp": self.rdp}


@dataclasses.dataclass(frozen=True)
class NonPrivateEvent:
    """A release without noise: its epsilon is infinite, never 0."""

    mechanism: str = "none"

    def statement(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, "sigma": 0.0, "sensitivity": None}


Event = (GaussianEvent | SampledGaussianEvent | PoissonGaussianEvent | LaplaceEvent
         | EpsilonDeltaEvent | RenyiEvent | NonPrivateEvent)
Events = tuple[tuple[Event, int], ...]

KINDS: dict[str, type] = {"gaussian": GaussianEvent, "sampled-gaussian": SampledGaussianEvent,
                          "poisson-gaussian": PoissonGaussianEvent, "laplace": LaplaceEvent,
                          "epsilon-delta": EpsilonDeltaEvent, "renyi": RenyiEvent,
                          "non-private": NonPrivateEvent}


def _plain(event: Event, *names: str) -> None:
    """Plain Python numbers, so that equal events are equal in the ledger too."""
    for name in names:
        object.__setattr__(event, name, float(getattr(event, name)))


def merge(events: Events) -> Events:
    """Equal events added up, those of count 0 left out. Raises UserError for a bad count."""
    counts: dict[Event, int] = {}
    for event, count in events:
        if not isinstance(event, tuple(KINDS.values())):
            raise UserError(f"{event!r} is no privacy event")
        # bool is an int to Python, but "True steps" is a slip
        if isinstance(count, bool) or (count := operator.index(count)) < 0:
            raise UserError(f"the count of an event must be a whole number >= 0, got {count!r}")
        counts[event] = counts.get(event, 0) + count
    return tuple((event, count) for event, count in counts.items() if count)


def without_distance(events: Events) -> Events:
    """The events as if their noise were ideal. For comparison: no run draws such noise."""
    return tuple((dataclasses.replace(event, total_variation=0.0)
                  if hasattr(event, "total_variation") else event, n) for event, n in events)


def to_json(events: Events) -> list[dict[str, Any]]:
    """Plain dicts, one per (event, count): the fields, `kind` and `count`."""
    names = {cls: kind for kind, cls in KINDS.items()}
    return [{"kind": names[type(event)], "count": count, **dataclasses.asdict(event)}
            for event, count in merge(events)]


def from_json(rows: list[dict[str, Any]]) -> Events:
    """The inverse of `to_json`. Raises ValueError, KeyError or TypeError for anything else."""
    pairs = []
    for row in rows:
        fields = dict(row)
        cls, count = KINDS[fields.pop("kind")], fields.pop("count")
        pairs.append((cls(**fields), count))
    return merge(tuple(pairs))
