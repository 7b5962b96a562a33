"""Exact discrete Laplace noise, drawn on the host in integer arithmetic, and noisy class counts.

Only random bits and integers take part in a draw, so the law is the stated one for every output and
a guarantee may be purely epsilon: no table ends, and no floating-point number is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpgen_jax.accountant.events import EpsilonDeltaEvent
from dpgen_jax.aggregation.bits import BitSource
from dpgen_jax.core.types import Private, UserError, unseal

_WORDS = 64
"""Words that are drawn from the source at once."""


class Coins:
    """Uniform numbers of any range, one at a time, from a source of bits."""

    def __init__(self, source: BitSource):
        self._source, self._pool, self._left = source, 0, 0

    def bits(self, n: int) -> int:
        """Returns n new bits, as a number in 0..2^n - 1.

        Args:
            n: The number of bits.
        """
        while self._left < n:
            words = self._source.draw((1, _WORDS))
            self._pool |= int.from_bytes(words.tobytes(), "little") << self._left
            self._left += 32 * words.size
        value = self._pool & ((1 << n) - 1)
        self._pool >>= n
        self._left -= n
        return value

    def below(self, n: int) -> int:
        """Returns a uniform number in 0..n - 1, by rejection.

        Args:
            n: At least 1.
        """
        while (value := self.bits((n - 1).bit_length())) >= n:
            pass
        return value

    def exp_minus(self, numerator: int, denominator: int) -> bool:
        """Returns True with probability exp(-numerator / denominator).

        Args:
            numerator: At least 0.
            denominator: At least the numerator.

        Source:
            Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS
            2020, Algorithm 1.
        """
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1


def sample(scale: Fraction, draws: int, bits: BitSource) -> list[int]:
    """Draws independent integers x with P(x) proportional to exp(-|x| / scale), exactly.

    How long it takes depends on the noise (not on what it is added to).

    Args:
        scale: In steps of the integers.
        draws: How many.
        bits: The source of randomness.

    Source:
        Canonne, Kamath and Steinke, NeurIPS 2020, Algorithm 2.

    Raises:
        UserError: The scale is not positive.
    """
    if scale <= 0:
        raise UserError(f"the scale of discrete Laplace noise must be positive, got {scale}")
    coins = Coins(bits)
    return [_draw(scale.numerator, scale.denominator, coins) for _ in range(draws)]


def _draw(t: int, s: int, coins: Coins) -> int:
    while True:
        remainder = coins.below(t)
        if not coins.exp_minus(remainder, t):
            continue
        quotient = 0
        while coins.exp_minus(1, 1):
            quotient += 1
        # remainder + t * quotient is geometric with ratio exp(-1 / t)
        magnitude = (remainder + t * quotient) // s
        negative = coins.bits(1) == 1
        if not (negative and magnitude == 0):  # else 0 would be drawn twice as often
            return -magnitude if negative else magnitude


def scale_for(epsilon: float, l1_sensitivity: int) -> Fraction:
    """Returns the scale that makes counts of this L1 sensitivity epsilon-private.

    Args:
        epsilon: Read as the decimal number that it prints as.
        l1_sensitivity: Of the counts together.

    Raises:
        UserError: Epsilon is not positive and finite.
    """
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}")
    return l1_sensitivity / Fraction(repr(float(epsilon)))


def class_counts(labels: Private[np.ndarray], classes: int, epsilon: float, bits: BitSource,
                 rows_per_unit: int = 0) -> np.ndarray:
    """Releases the noisy number of records of each class.

    A label outside 0..C - 1, as of an empty slot, is in no count. Of two classes it is in the
    first: how many slots are empty is private, and one count less is drawn for half the noise.

    Args:
        labels: Sealed labels int [n].
        classes: C.
        epsilon: The price.
        bits: The source of the noise.
        rows_per_unit: k, where the unit is a subject, of whom at most k labels are there; else 0.

    Returns:
        int64 [C], may be negative.

    Guarantee:
        Unit: a record. Relation: replace-one, n public. Epsilon-private. A replaced label lowers
        one count by one and raises another: L1 sensitivity 2, noise of scale 2 / epsilon on each.
        Of two classes only one count is drawn, with sensitivity 1 and scale 1 / epsilon, and the
        other is n minus it: post-processing, as n is public. Unit: a subject, n private. At most k
        labels leave the counts and at most k others enter, L1 sensitivity 2 k, and every count is
        drawn, since none follows from the others. With x counts and k what is released,
        P(x -> k) is proportional to exp(-||k - x||_1 / scale) and ||x - x'||_1 <= sensitivity.

    Source:
        Dwork, McSherry, Nissim and Smith, "Calibrating Noise to Sensitivity in Private Data
        Analysis" (TCC 2006), with discrete noise.

    Raises:
        UserError: Epsilon is not positive and finite.
    """
    y = unseal(labels)
    sensitivity = class_counts_sensitivity(classes, rows_per_unit)
    if sensitivity == 1:
        ones = int(np.sum(y == 1)) + sample(scale_for(epsilon, sensitivity), 1, bits)[0]
        return np.array([len(y) - ones, ones], np.int64)
    noise = sample(scale_for(epsilon, sensitivity), classes, bits)
    return np.array([int(np.sum(y == c)) + noise[c] for c in range(classes)], np.int64)


def class_counts_sensitivity(classes: int, rows_per_unit: int = 0) -> int:
    """Returns the L1 sensitivity of the counts that `class_counts` draws.

    Args:
        classes: C.
        rows_per_unit: As `class_counts` takes it.
    """
    return 2 * rows_per_unit or (1 if classes == 2 else 2)


def class_counts_event(epsilon: float) -> EpsilonDeltaEvent:
    """Returns the cost of `class_counts`.

    Args:
        epsilon: The price.
    """
    return EpsilonDeltaEvent(epsilon, mechanism="discrete-laplace class counts")


def class_prior(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns shares of the classes that sum to 1, from noisy counts.

    Each class counts as at least one record, so that none is lost to its noise.

    Args:
        counts: Noisy counts [C].

    Returns:
        float64 [C].
    """
    floored = np.maximum(np.asarray(counts, np.float64), 1.0)
    return floored / floored.sum()
