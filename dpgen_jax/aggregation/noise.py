"""Noise on integer sums: the rounded Gaussian, exact to 2^-95, and none.

For an integer vector v, round(v + sigma Z) = v + round(sigma Z): adding `RoundedGaussian` draws to
integer votes is post-processing of the Gaussian mechanism, and exact Gaussian accounting holds.
No floating-point number is involved in a draw: neither a fingerprint of float rounding nor a
truncated tail (float32 normals end at 5.42 sigma) is left in what is released.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from fractions import Fraction
from typing import ClassVar, Protocol

import chex
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import log_ndtr

from dpgen_jax.accountant.events import Event, GaussianEvent, NonPrivateEvent
from dpgen_jax.accountant.rounding import round_up
from dpgen_jax.aggregation.gaussian_table import ONE, padded_table, threshold, thresholds
from dpgen_jax.core.types import Array, UserError

MIN_SIGMA, MAX_SIGMA = 0.3, 65536.0


class Noise(Protocol):
    """Integer noise that is drawn from given bits."""

    @property
    def max_abs(self) -> int:
        """No larger magnitude is drawn."""

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the uint32 bits for draws of this shape.

        Args:
            shape: Of the draws.
        """

    def sample(self, bits: Array) -> Array:
        """Returns draws int32 of the shape that the bits are for.

        Args:
            bits: uint32, of the shape that `bits_shape` returns.
        """

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> Event:
        """Returns the cost of one release.

        Args:
            squared_sensitivity: Squared L2 sensitivity of the release, in integers.
            draws: The number of entries.
            grid: The value of one step of the integers.
        """


@dataclasses.dataclass(frozen=True)
class RoundedGaussian:
    """round(sigma Z), with Z standard normal.

    96 random bits make one draw: a sign, and a 95-bit number that is looked up in the table of
    P(|X| <= m).

    Attributes:
        sigma: The standard deviation of sigma Z in steps of the integer grid, 0.3 to 65536.

    Guarantee:
        A release with this noise is post-processing of a Gaussian mechanism, but for
        `total_variation`: mu-GDP with mu the L2 sensitivity over sigma, for the unit and the
        relation of the bound.

    Source:
        Dong, Roth and Su, "Gaussian Differential Privacy" (arXiv 1905.02383); the rounded draw is
        this library's.

    Raises:
        UserError: There is no such noise for this sigma.
    """

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", float(self.sigma))
        if not MIN_SIGMA <= self.sigma <= MAX_SIGMA:
            raise UserError(f"sigma is {self.sigma}; rounded Gaussian noise is available from "
                            f"{MIN_SIGMA} to {MAX_SIGMA:.0f}")

    @property
    def max_abs(self) -> int:
        """No larger magnitude is drawn: the table ends before 11.5 sigma, at 1.

        It is a bound, and not the length of the table, so that calibration builds no tables.
        """
        return largest(self.sigma)

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the uint32 bits for draws of this shape: three words for each."""
        return (*shape, 3)

    def sample(self, bits: Array) -> Array:
        """Returns draws made of uniform bits; it is pure.

        Returns:
            int32 [...].
        """
        chex.assert_axis_dimension(bits, -1, 3)
        chex.assert_type(bits, jnp.uint32)
        table = jnp.asarray(padded_table(self.sigma))
        columns = table[:, 0], table[:, 1], table[:, 2]
        # One bit is the sign; the other 95 are the number that is compared with the thresholds.
        words = bits[..., 0] & 0x7FFFFFFF, bits[..., 1], bits[..., 2]
        passes = len(table).bit_length()

        # Bisection: `below` counts the thresholds that are at most the drawn number. They are
        # compared as integers, in as many passes whatever was drawn.
        def descend(i: Array, below: Array) -> Array:
            candidate = below + (1 << (passes - 1 - i))
            # In bounds: the table has 2^passes - 1 rows, and a candidate is below 2^passes.
            entry = (c.at[candidate - 1].get(mode="promise_in_bounds") for c in columns)
            return jnp.where(at_most(tuple(entry), words), candidate, below)

        zero = jnp.zeros(bits.shape[:-1], jnp.int32)
        magnitude = lax.fori_loop(0, passes, descend, zero)
        return jnp.where(bits[..., 0] >> 31 == 1, -magnitude, magnitude)

    def draw(self, words: np.ndarray) -> np.ndarray:
        """Returns draws made of uniform bits, on the host: those that `sample` returns.

        Args:
            words: uint32 [n, 3].

        Returns:
            int64 [n].
        """
        table = thresholds(self.sigma)
        sizes = [bisect.bisect_right(table, (first & 0x7FFFFFFF) << 64 | second << 32 | third)
                 for first, second, third in words.tolist()]
        return np.where(words[:, 0] >> 31 == 1, -1, 1) * np.array(sizes, np.int64)

    def log_tail(self, k: np.ndarray) -> np.ndarray:
        """Returns ln P(X >= k) of the ideal law; round(x) >= k where x > k - 1/2.

        Args:
            k: Whole numbers, any shape.
        """
        return log_ndtr((0.5 - k) / self.sigma)

    def total_variation(self, draws: int) -> float:
        """Returns an upper bound on the distance between the law of draws and the ideal one.

        With M = max_abs and a unit of 2^-95: the ideal |X| exceeds M with probability of at most
        one unit (thresholds end where they round to 1); what lies beyond is drawn as M. For the
        law with its tail so moved, P(|X| = m) is a difference of two of the M thresholds, each
        drawn within a unit of its ideal value, so half the sum of the differences of the two laws
        is at most M units. The sign is exact and independent. Distances of independent draws
        add up: draws (M + 1) 2^-95.

        Args:
            draws: The number of independent draws.
        """
        return distance(self.sigma, draws)

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> GaussianEvent:
        """Returns the cost of one release."""
        return GaussianEvent(self.sigma, squared_sensitivity, grid, self.total_variation(draws))


@dataclasses.dataclass(frozen=True)
class NoNoise:
    """No noise, for ablations: it has the methods of a noise, and takes no bits.

    Guarantee:
        None: epsilon is infinite.
    """

    sigma: ClassVar[float] = 0.0

    @property
    def max_abs(self) -> int:
        """No larger magnitude is drawn."""
        return 0

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of no bits."""
        return (*shape, 0)

    def sample(self, bits: Array) -> Array:
        """Returns zeros int32 [...]."""
        return jnp.zeros(bits.shape[:-1], jnp.int32)

    def total_variation(self, draws: int) -> float:
        """Returns 0.

        Args:
            draws: The number of draws.
        """
        return 0.0

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> NonPrivateEvent:
        """Returns the cost of a release without noise."""
        return NonPrivateEvent()


def largest(sigma: float) -> int:
    """Returns `RoundedGaussian.max_abs`, for a sigma of any size.

    Args:
        sigma: In steps of the integer grid.
    """
    return math.ceil(11.5 * sigma) + 1


def distance(sigma: float, draws: int) -> float:
    """Returns `RoundedGaussian.total_variation`, for a sigma of any size; rounded up.

    Args:
        sigma: In steps of the integer grid.
        draws: The number of independent draws.
    """
    return min(1.0, round_up(Fraction(draws * (largest(sigma) + 1), ONE)))


def draw_one(sigma: float, words: np.ndarray) -> int:
    """Returns round(sigma Z), on the host, without a table.

    It is the law of `RoundedGaussian` for a sigma of any size from 0.3 on, which may be private.

    Args:
        sigma: In steps of the integer grid.
        words: Uniform uint32 [3].
    """
    first, second, third = map(int, words)
    below = (first & 0x7FFFFFFF) << 64 | second << 32 | third
    magnitude = bisect.bisect_right(range(largest(sigma)), below, key=lambda m: threshold(sigma, m))
    return -magnitude if first >> 31 else magnitude


def gaussian(sigma: float | None) -> RoundedGaussian | NoNoise:
    """Returns the noise of a configuration.

    Args:
        sigma: In steps of the integer grid; None or 0 means no noise.
    """
    return RoundedGaussian(sigma) if sigma else NoNoise()


def at_most(entry: tuple[Array, ...], words: tuple[Array, ...]) -> Array:
    """Compares 96-bit numbers of three words each, the highest first.

    Args:
        entry: Three arrays uint32.
        words: Three arrays uint32 that broadcast with them.

    Returns:
        bool: entry <= words.
    """
    (a, b, c), (x, y, z) = entry, words
    return (a < x) | ((a == x) & ((b < y) | ((b == y) & (c <= z))))
