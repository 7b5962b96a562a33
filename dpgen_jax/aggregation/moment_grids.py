"""Grids for the moments of several phases, such that each phase costs the same."""

from __future__ import annotations

import dataclasses
import math

from dpgen_jax.aggregation.moment_sums import SHIFT, entries_rounded
from dpgen_jax.aggregation.moments import MOST_LEVELS, MOST_SHADES, Moments
from dpgen_jax.aggregation.noise import MAX_SIGMA
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import UserError

MOST_ROUNDING = 0.5
"""The largest part of a sensitivity that may be for rounding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseShares:
    """The parts of one phase's message, and their shares of its squared norm.

    Attributes:
        blocks: Blocks of counts and sums.
        square_blocks: Blocks of products: 0, 1 or `blocks`.
        length: M, of the vector.
        shades: T, how many shares of intensities.
        first: Share of the vector.
        second: Share of the products.
        count: Share of the count, at least.
        tint: Share of the shades.
        mend: The advice to a user whose messages are too long.
    """

    blocks: int
    square_blocks: int
    length: int
    first: float
    second: float = 0.0
    count: float = 0.0
    shades: int = 0
    tint: float = 0.0
    mend: str = "name fewer --frequencies or --dimensions"

    def in_real_numbers(self, relation: Relation) -> float:
        """Returns `Moments.exact` in real numbers, where the shares are the squared norms."""
        if relation == Relation.ZERO_OUT:
            return self.first + self.second + self.count + self.tint
        far = 2 * self.first + 2 * self.second
        turned = (2 * self.first - 2 * self.second if self.first > 2 * self.second
                  else self.first**2 / (2 * self.second))
        return 2 * self.tint + far + max(turned, 2 * self.count)

    def on_grid(self, limit: int, relation: Relation) -> tuple[int, int, int, int]:
        """Returns first, square, count and tint for a squared sensitivity of at most `limit`.

        Args:
            limit: The squared sensitivity, in integers, of which rounding takes its part.
            relation: Replace-one or zero-out.
        """
        zero_out = relation == Relation.ZERO_OUT
        rounding = math.sqrt(self.rounded) / (2 if zero_out else 1)
        left = int((math.sqrt(limit) - rounding)**2) - 2
        size = math.sqrt(max(left, 0) / self.in_real_numbers(relation))
        first = int(2**SHIFT * size * math.sqrt(self.first) / MOST_LEVELS)
        square = int(2**SHIFT * size * math.sqrt(self.second) / MOST_LEVELS**2)
        tint = min(int(size * math.sqrt(self.tint)), MOST_SHADES)
        # What rounding down left over is for the count.
        moving = (first * MOST_LEVELS)**2 + square**2 * MOST_LEVELS**4
        left = left // (1 if zero_out else 2) - -(-moving >> 2 * SHIFT) - tint**2
        return first, square, max(int(size * math.sqrt(self.count)), math.isqrt(max(left, 0))), tint

    @property
    def rounded(self) -> int:
        """The entries of a message that are rounded."""
        return entries_rounded(self.length, self.square_blocks > 0)


def alike(phases: tuple[PhaseShares, ...], sigma: float, records: int, relation: Relation
          ) -> tuple[Moments, ...]:
    """Returns the bound of each phase, all of one declared sensitivity and one number of columns.

    A round of any phase is then the same event. The integers are as large as the table of the noise
    and 32-bit sums allow.

    Args:
        phases: What each phase asks.
        sigma: The noise of a round over the square root of the squared sensitivity; 0 for none.
        records: n, public.
        relation: Replace-one or zero-out.

    Raises:
        UserError: Messages are too long for the integers that can be summed and noised.
    """
    relation = Relation(relation)
    largest = min((2**31 - 2**20) // records, 2**18)
    # A count may take all that is left: its square is the sensitivity, or half of it.
    limit = int(min(largest, MAX_SIGMA / sigma if sigma else largest))**2
    columns = max(_columns(phase) for phase in phases)
    bounds = []
    for phase in phases:
        too_long = math.isqrt(phase.rounded) > MOST_ROUNDING * math.isqrt(limit)
        first, square, count, tint = phase.on_grid(limit, relation)
        if too_long or first < 1 or square < min(phase.square_blocks, 1):
            raise UserError(f"sigma is {sigma:g} for {records:,} records: the integers that can be "
                            f"summed and noised are too small for vectors of {phase.length} "
                            f"entries; raise --epsilon, or {phase.mend}")
        bounds.append(Moments(
            blocks=phase.blocks, square_blocks=phase.square_blocks, length=phase.length,
            shades=phase.shades, levels=MOST_LEVELS, first=first, square=square, count=count,
            tint=tint, columns=columns, limit=limit, relation=relation))
    return tuple(bounds)


def _columns(phase: PhaseShares) -> int:
    """The integers of a phase's sum."""
    triangle = phase.length * (phase.length + 1) // 2
    return phase.shades + phase.blocks * (1 + phase.length) + phase.square_blocks * triangle
