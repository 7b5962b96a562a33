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
from dpgen_jax.types import Private, UserError, unseal

_WORDS = 64  # drawn from the source at once


class Coins:
    """Uniform numbers of any range, one at a time, from a source of bits."""

    def __init__(self, source: BitSource):
        self._source, self._held, self._left = source, 0, 0

    def bits(self, n: int) -> int:
        """n new bits, as a number in 0..2^n - 1."""
        while self._left < n:
            words = self._source.draw((1, _WORDS))
            self._held |= int.from_bytes(words.tobytes(), "little") << self._left
            self._left += 32 * words.size
        value = self._held & ((1 << n) - 1)
        self._held >>= n
        self._left -= n
        return value

    def below(self, n: int) -> int:
        """Uniform in 0..n - 1, by rejection."""
        while (value := self.bits((n - 1).bit_length())) >= n:
            pass
        return value

    def exp_minus(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(-numerator / denominator), for a quotient in [0, 1]: Canonne,
        Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Alg. 1.
        """
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1


def sample(scale: Fraction, draws: int, bits: BitSource) -> list[int]:
    """Independent integers x with P(x) proportional to exp(-|x| / scale), exactly.

    Canonne, Kamath and Steinke 2020, Algorithm 2. How long it takes depends on the noise (not on
    what it is added to). Raises UserError for a scale that is not positive.
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
    """The scale that makes counts of this L1 sensitivity epsilon-private, epsilon read as the
    decimal number that it prints as. Raises UserError unless 0 < epsilon < inf."""
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon must be a positive, finite number, got {epsilon}")
    return l1_sensitivity / Fraction(repr(float(epsilon)))


def class_counts(labels: Private[np.ndarray], classes: int, epsilon: float, bits: BitSource
                 ) -> np.ndarray:
    """Noisy number of records of each class: int64 [classes], may be negative; labels: int [n].

    Guarantee: epsilon-private for one record under replace-one, n public. A replaced label lowers
    one count by one and raises another: L1 sensitivity 2, noise of scale 2 / epsilon on each. Of
    two classes only one count is drawn, with sensitivity 1 and scale 1 / epsilon, and the other is
    n minus it: post-processing, as n is public. With x counts and k what is released, P(x -> k) is
    proportional to exp(-||k - x||_1 / scale) and ||x - x'||_1 <= sensitivity.

    A label outside 0..classes - 1, as of an empty slot, is in no count. Of two classes it is in the
    first: how many are empty is private, and one count less is drawn for half the noise. Raises
    UserError for a bad epsilon.
    """
    y = unseal(labels)
    if classes == 2:
        noise, = sample(scale_for(epsilon, 1), 1, bits)
        ones = int(np.sum(y == 1)) + noise
        return np.array([len(y) - ones, ones], np.int64)
    noise = sample(scale_for(epsilon, 2), classes, bits)
    return np.array([int(np.sum(y == c)) + noise[c] for c in range(classes)], np.int64)


def class_counts_event(epsilon: float) -> EpsilonDeltaEvent:
    """What `class_counts` costs."""
    return EpsilonDeltaEvent(epsilon, mechanism="discrete-laplace class counts")


def class_prior(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Shares float64 [classes] that sum to 1, from noisy counts: each counts as at least one
    record, so that no class is lost to its noise."""
    floored = np.maximum(np.asarray(counts, np.float64), 1.0)
    return floored / floored.sum()
