"""Who answers in a step, and how often that makes the most visited unit answer.

A schedule splits the units into `groups` of equal size (up to one): unit u belongs to group
u mod groups. A step visits one group, and no other unit learns or answers in it.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import bdtrc

from dpgen_jax.accountant.events import (
    Event,
    NonPrivateEvent,
    PoissonGaussianEvent,
    SampledGaussianEvent,
)
from dpgen_jax.accountant.rounding import add_up, round_up
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.types import Array, UserError


class Schedule(Protocol):
    """turn: the number of steps begun before, in all incarnations of a run, lost ones included.

    places: None, or, where units are drawn, how many a step has room for. Then units keep no state,
    their records lie on every device, and `shares` names who was drawn.
    """

    groups: int
    places: int | None

    def turns(self, source: BitSource, first: int, n: int) -> np.ndarray:
        """int32 [n]: the groups that are visited in n steps from turn `first` on."""

    def shares(self, source: BitSource, n_units: int, first: int, n: int) -> np.ndarray | None:
        """int32 [U, n]: 1 where a visited unit's answer counts, secret; None: all of them. With
        places, int32 [places, n]: the unit that was drawn, or -1 for none."""

    def heard(self, share: Array) -> Array:
        """int32: 1 where the answer to this share counts."""

    def answering(self, n_units: int) -> float:
        """Public number of answers of a step, on average over a round: what a sum is divided by."""

    def visits(self, turns: int) -> int:
        """Visits to the most visited unit in the first `turns` steps."""

    def event(self, visit: Event, bound: Any) -> Event:
        """What one visit costs, from what it would cost were it known that the unit answers, and
        from the bound on its message."""


class _Plain:
    """A public schedule: nothing is secret, and a visit costs what it costs."""

    places: ClassVar[None] = None

    def heard(self, share: Array) -> Array:
        return share

    def shares(self, source: BitSource, n_units: int, first: int, n: int) -> None:
        return None

    def event(self, visit: Event, bound: Any) -> Event:
        return visit


@dataclasses.dataclass(frozen=True)
class Everyone(_Plain):
    """Every unit answers in every step."""

    groups: ClassVar[int] = 1

    def turns(self, source: BitSource, first: int, n: int) -> np.ndarray:
        return np.zeros(n, np.int32)

    def answering(self, n_units: int) -> float:
        return n_units

    def visits(self, turns: int) -> int:
        """All: units are disjoint, so a record is charged for the visits to its own unit only
        (parallel composition)."""
        return turns


@dataclasses.dataclass(frozen=True)
class Rotation(_Plain):
    """A public round-robin: step after step the next of `groups` groups answers.

    Guarantee: the group of a turn is a function of the number of the turn alone. Given what was
    released so far, a step that does not visit a record's unit has the same law on both of two
    neighbouring data sets: it reads neither the record nor anything computed from it. So the run is
    the adaptive composition of the visits to that one unit (parallel composition), at most
    ceil(T / groups) in T turns. Turns count whatever was begun, also steps that a crash lost: a
    unit that was visited in a lost step is not visited again before its next turn.

    With m = U / groups units a step, gradients clipped to C, B of them in a step, and T steps, the
    mean gradient carries noise of 2 C sqrt(T B / (2 c U m)) per coordinate, c = mu^2 / 2 the total
    budget. More units a step are better at equal cost in privacy, and cost time: with all of them
    this is `Everyone`.
    """

    groups: int

    def __post_init__(self):
        if self.groups < 1:
            raise UserError(f"{self.groups} groups of units; at least 1 is needed")

    def turns(self, source: BitSource, first: int, n: int) -> np.ndarray:
        return (np.arange(first, first + n) % self.groups).astype(np.int32)

    def answering(self, n_units: int) -> float:
        return n_units / self.groups

    def visits(self, turns: int) -> int:
        return -(-turns // self.groups)


@dataclasses.dataclass(frozen=True)
class SecretDraw:
    """All units learn in every step; `drawn` of them, drawn in secret and anew, are heard.

    Guarantee: what a unit has learnt is a function of its own records and of what was released, as
    all units learn in every step; who is heard is drawn uniformly without replacement from fresh
    secret bits, shown to nobody; noise is added to the sum whoever is drawn. So a step is one
    subsampled Gaussian release on the U units, of which one differs between neighbours, and its
    whole message, all B gradients, is inside the event that is amplified (Wang, Balle and
    Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical Moments Accountant",
    AISTATS 2019, Theorem 27; `accountant.sampling`). Draws are uniform but where two of the U
    random numbers tie, and that chance, below U^2 2^-97 a step, is part of the event. The published
    GS-WGAN does neither: its critics learn only when drawn, so that their state tells of the draws,
    and it multiplies by B after amplifying.

    It cannot beat `Everyone` at the same work: all units learn here too, and at the published
    20,000 steps of 32 gradients, 1,000 units and epsilon 10 the gradient of the one drawn unit
    needs noise of 5.74 C per coordinate, the mean over all units 0.80 C.
    """

    units: int
    drawn: int
    groups: ClassVar[int] = 1
    places: ClassVar[None] = None

    def __post_init__(self):
        if not 1 <= self.drawn < self.units:
            raise UserError(f"{self.drawn} of {self.units} units are drawn a step; it must be at "
                            "least 1 and fewer than there are")

    def turns(self, source: BitSource, first: int, n: int) -> np.ndarray:
        return np.zeros(n, np.int32)

    def shares(self, source: BitSource, n_units: int, first: int, n: int) -> np.ndarray:
        """The `drawn` smallest of U numbers of 96 bits: uniform but for ties, whose chance is part
        of `event`."""
        units = np.tile(np.arange(n_units)[:, None], n)
        bits = source.draw_for(units, first, (3,))
        order = np.lexsort([bits[..., word] for word in range(3)], axis=0)
        shares = np.zeros((n_units, n), np.int32)
        np.put_along_axis(shares, order[:self.drawn], 1, axis=0)
        return shares

    def heard(self, share: Array) -> Array:
        return share

    def answering(self, n_units: int) -> float:
        return self.drawn

    def visits(self, turns: int) -> int:
        return turns

    def event(self, visit: Event, bound: Any) -> Event:
        if isinstance(visit, NonPrivateEvent):
            return visit
        # Two of U numbers of 96 bits are the same: the lower unit is then preferred.
        ties = round_up(Fraction(math.comb(self.units, 2), 2**96))
        return SampledGaussianEvent(visit.sigma, visit.squared_sensitivity, self.units, self.drawn,
                                    visit.grid, add_up([(visit.total_variation, 1), (ties, 1)]))


OVERFLOW = 1e-18
"""the most that is allowed for the chance that a draw does not fit its places"""


@dataclasses.dataclass(frozen=True)
class PoissonDraw(_Plain):
    """Each of `units` units is drawn on its own, with the same secret chance, anew for every step.

    Guarantee: draws are made of fresh secret bits and shown to nobody, and units keep no state, so
    a step is one Poisson-subsampled Gaussian release (`accountant.events.PoissonGaussianEvent`).
    The chance is exactly `rate`, a multiple of 2^-32: a unit is drawn where its 32 bits are below
    2^32 rate. A step has `places` for the drawn, so that its shape tells nothing; what a draw has
    beyond that is left out, a uniformly random part of it. That changes the law of the step by at
    most the chance that it happens, below 1e-18, whatever the records are, and this chance is part
    of the event (Chua et al., "Scalable DP-SGD: Shuffling vs. Poisson Subsampling", NeurIPS 2024,
    does the same for truncated batches).

    expected: units of a step on average, more than 0 and fewer than there are. Who wants all of
    them in every step takes `Everyone`, which costs what it costs without a draw.
    """

    units: int
    expected: float

    groups: ClassVar[int] = 1

    def __post_init__(self):
        if not 0 < self.expected < self.units:
            raise UserError(f"{self.expected:g} of {self.units} records are drawn a step on "
                            "average; it must be more than 0 and fewer than there are")

    @property
    def chances(self) -> int:
        """Of 2^32."""
        return math.ceil(2**32 * self.expected / self.units)

    @property
    def rate(self) -> float:
        return self.chances / 2**32

    @functools.cached_property
    def places(self) -> int:
        return bisect.bisect_left(range(self.units), True, key=lambda places: bool(
            bdtrc(places, self.units, self.rate) <= OVERFLOW))

    def turns(self, source: BitSource, first: int, n: int) -> np.ndarray:
        return np.zeros(n, np.int32)

    def shares(self, source: BitSource, n_units: int, first: int, n: int) -> np.ndarray:
        """The drawn units of each step, in the order of the bits that drew them: which ones come
        first is uniformly random, and so is who is left out."""
        bits = source.draw((n, n_units))
        drawn = np.full((self.places, n), -1, np.int32)
        for step, row in enumerate(bits):
            found = np.flatnonzero(row < self.chances)
            found = found[np.argsort(row[found], kind="stable")][:len(drawn)]
            drawn[:len(found), step] = found
        return drawn

    def heard(self, share: Array) -> Array:
        return (share >= 0).astype(np.int32)

    def answering(self, n_units: int) -> float:
        """On average: the number of those drawn is secret."""
        return self.rate * n_units

    def visits(self, turns: int) -> int:
        return turns

    def event(self, visit: Event, bound: Any) -> Event:
        if isinstance(visit, NonPrivateEvent):
            return visit
        overflow = float(bdtrc(self.places, self.units, self.rate))
        return PoissonGaussianEvent(visit.sigma, bound.squared_norm(), self.rate, bound.relation,
                                    visit.grid,
                                    add_up([(visit.total_variation, 1), (overflow, 1)]))


@dataclasses.dataclass(frozen=True)
class PublishedDraw(_Plain):
    """GS-WGAN as published: one unit, drawn in secret, learns and answers. NO guarantee.

    The state of a unit tells how often it was drawn, so the steps are no adaptive composition of
    subsampled releases, and no proof is known: every step is charged as if it had no noise.
    """

    units: int

    @property
    def groups(self) -> int:
        return self.units

    def turns(self, source: BitSource, first: int, n: int) -> np.ndarray:
        bits = source.draw_for(np.zeros((1, n), np.int32), first, ())[0]
        return (bits % self.units).astype(np.int32)

    def answering(self, n_units: int) -> float:
        return 1.0

    def visits(self, turns: int) -> int:
        return turns

    def event(self, visit: Event, bound: Any) -> Event:
        return NonPrivateEvent("published draw: no valid guarantee")
