"""Noise on integer sums: the rounded Gaussian, exact to 2^-95, and none.

For an integer vector v, round(v + sigma Z) = v + round(sigma Z): adding `RoundedGaussian` draws to
integer votes is post-processing of the Gaussian mechanism, and exact Gaussian accounting holds.
No floating-point number is involved in a draw: neither a fingerprint of float rounding nor a
truncated tail (float32 normals end at 5.42 sigma) is left in what is released.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from fractions import Fraction

import jax.numpy as jnp
import mpmath
import numpy as np
from jax import lax
from scipy.special import log_ndtr

from dpgen_jax.accountant.events import GaussianEvent, NonPrivateEvent
from dpgen_jax.accountant.rounding import round_up
from dpgen_jax.types import Array, UserError

MIN_SIGMA, MAX_SIGMA = 0.3, 65536.0
ONE = 1 << 95
FIXED = 192
"""fractional bits of the arithmetic that builds a table"""
TERMS = 7


@dataclasses.dataclass(frozen=True)
class RoundedGaussian:
    """round(sigma Z), Z standard normal: sigma in units of the integer grid, 0.3 to 65536.

    96 random bits make one draw: a sign, and a 95-bit number that is looked up in the table of
    P(|X| <= m). Raises UserError (a ValueError) for another sigma.
    """

    sigma: float

    def __post_init__(self):
        object.__setattr__(self, "sigma", float(self.sigma))
        if not MIN_SIGMA <= self.sigma <= MAX_SIGMA:
            raise UserError(f"sigma is {self.sigma}; rounded Gaussian noise is available from "
                            f"{MIN_SIGMA} to {MAX_SIGMA:.0f}")

    @property
    def max_abs(self) -> int:
        """No larger magnitude is drawn: the table ends where its entries round to 1, before
        11.5 sigma. A bound, and not the table's length, so that calibration builds no tables."""
        return largest(self.sigma)

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the uint32 bits for draws of this shape."""
        return (*shape, 3)

    def sample(self, bits: Array) -> Array:
        """Draws int32 [...] from uniform bits uint32 [..., 3]; pure, one draw for three words."""
        table = jnp.asarray(_padded_table(self.sigma))
        columns = table[:, 0], table[:, 1], table[:, 2]
        words = bits[..., 0] & 0x7FFFFFFF, bits[..., 1], bits[..., 2]
        passes = len(table).bit_length()

        def descend(i, below):
            candidate = below + (1 << (passes - 1 - i))
            entry = (c.at[candidate - 1].get(mode="promise_in_bounds") for c in columns)
            return jnp.where(at_most(tuple(entry), words), candidate, below)

        zero = jnp.zeros(bits.shape[:-1], jnp.int32)
        magnitude = lax.fori_loop(0, passes, descend, zero)
        return jnp.where(bits[..., 0] >> 31 == 1, -magnitude, magnitude)

    def log_tail(self, k: np.ndarray) -> np.ndarray:
        """ln P(X >= k) of the ideal law, for whole numbers k: round(x) >= k where x > k - 1/2."""
        return log_ndtr((0.5 - k) / self.sigma)

    def total_variation(self, draws: int) -> float:
        """Upper bound on the distance between `draws` draws and as many ideal ones.

        With M = max_abs and a unit of 2^-95: the ideal |X| exceeds M with probability of at most
        one unit (thresholds end where they round to 1); what lies beyond is drawn as M. For the
        law with its tail so moved, P(|X| = m) is a difference of two of the M thresholds, each
        drawn within a unit of its ideal value, so half the sum of the differences of the two laws
        is at most M units. The sign is exact and independent. Distances of independent draws
        add up: draws (M + 1) 2^-95.
        """
        return distance(self.sigma, draws)

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> GaussianEvent:
        """What one release of `draws` entries of this squared L2 sensitivity costs."""
        return GaussianEvent(self.sigma, squared_sensitivity, grid, self.total_variation(draws))


@dataclasses.dataclass(frozen=True)
class NoNoise:
    """No noise, for ablations: no privacy, epsilon is infinite. Same methods, and no bits."""

    @property
    def max_abs(self) -> int:
        return 0

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape, 0)

    def sample(self, bits: Array) -> Array:
        """Zeros int32 [...] for bits uint32 [..., 0]."""
        return jnp.zeros(bits.shape[:-1], jnp.int32)

    def total_variation(self, draws: int) -> float:
        return 0.0

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> NonPrivateEvent:
        return NonPrivateEvent()


def largest(sigma: float) -> int:
    """`RoundedGaussian.max_abs`, for a sigma of any size."""
    return math.ceil(11.5 * sigma) + 1


def distance(sigma: float, draws: int) -> float:
    """`RoundedGaussian.total_variation`, for a sigma of any size; rounded up."""
    return min(1.0, round_up(Fraction(draws * (largest(sigma) + 1), ONE)))


def draw_one(sigma: float, words: np.ndarray) -> int:
    """round(sigma Z) from three uniform words uint32 [3], on the host: the law of `RoundedGaussian`
    for a sigma of any size from 0.3 on, which may be private, as no table is made."""
    first, second, third = map(int, words)
    below = (first & 0x7FFFFFFF) << 64 | second << 32 | third
    magnitude = bisect.bisect_right(range(largest(sigma)), below, key=lambda m: _threshold(
        _inside(sigma, m)))
    return -magnitude if first >> 31 else magnitude


def gaussian(sigma: float | None) -> RoundedGaussian | NoNoise:
    """The noise of a configuration: sigma None or 0 means none."""
    return RoundedGaussian(sigma) if sigma else NoNoise()


def at_most(entry: tuple[Array, ...], words: tuple[Array, ...]) -> Array:
    """entry <= words, as 96-bit numbers of three words, the highest first."""
    (a, b, c), (x, y, z) = entry, words
    return (a < x) | ((a == x) & ((b < y) | ((b == y) & (c <= z))))


@functools.lru_cache(maxsize=8)
def _padded_table(sigma: float) -> np.ndarray:
    """uint32 [2^n - 1, 3], the thresholds filled up with a number that is above every draw."""
    values = thresholds(sigma)
    size = (1 << len(values).bit_length()) - 1
    data = b"".join(v.to_bytes(12, "big") for v in values) + b"\xff" * 12 * (size - len(values))
    table = np.frombuffer(data, ">u4").astype(np.uint32).reshape(size, 3)
    table.setflags(write=False)
    return table


@functools.lru_cache(maxsize=8)
def thresholds(sigma: float) -> tuple[int, ...]:
    """T_m = P(|round(sigma Z)| <= m) in units of 2^-95, m = 0, 1, ... up to the last below 1.

    Each is within one unit of its ideal value, and none is below the one before. |X| is the number
    of thresholds that are at most W, for W uniform in 0..2^95 - 1.
    """
    cumulated = _recurrence(sigma) if sigma >= 64 else _reference(sigma)
    values = []
    for value in cumulated:
        rounded = _threshold(value)
        if rounded >= ONE:
            return tuple(values)
        values.append(rounded)
    raise AssertionError("a cumulative distribution that does not reach 1")


def _threshold(value: int) -> int:
    """A fixed-point number in units of 2^-95."""
    return (value + (1 << (FIXED - 96))) >> (FIXED - 95)


def _inside(sigma: float, m: int) -> int:
    """P(|X| <= m) as a fixed-point integer, by mpmath: 60 microseconds."""
    with mpmath.workprec(FIXED + 64):
        inside = mpmath.erf((m + mpmath.mpf(0.5)) / (mpmath.mpf(sigma) * mpmath.sqrt(2)))
        return int(mpmath.floor(mpmath.ldexp(inside, FIXED)))


def _reference(sigma: float):
    """The same for all m in turn."""
    return (_inside(sigma, m) for m in range(int(14 * sigma) + 2))


def _recurrence(sigma: float):
    """The same for sigma >= 64, summed up from P(X = m); a microsecond an entry.

    With h = 1 / sigma, x = m h and phi the normal density, exp(x t - t^2 / 2) generates the Hermite
    polynomials, and integrating over |t| <= h / 2 gives
        P(X = m) = h phi(x) sum_j He_2j(x) (h / 2)^(2 j) / (2 j + 1)!
    Errors, in P(|X| <= m) for every m below 14 sigma < 2^20:
      - Terms j >= J are left out. phi(x) |He_2j(x)| <= 0.44 sqrt((2 j)!) (Cramer), so all of them
        together, over 2 * 14 / h values, are below 13 (h / 2)^(2 J) / ((2 J + 1) sqrt((2 J)!)),
        which is 2^-115 at h = 1/64 and J = 7 and less for smaller h.
      - Each product loses at most 2^-192, and so does each constant. The ratios carry m of these,
        the densities m^2 / 2, the total m^3 / 6: below 2^-134. In the series they are multiplied by
        powers of x^2 up to the sixth, which the density, a factor of the same product, keeps
        below 2^14; the error of x^2 itself, m^2 of these, is multiplied by h^2 / 24. Again below
        2^-134.
    """
    with mpmath.workprec(FIXED + 64):
        h = 1 / mpmath.mpf(sigma)

        def fixed(value):
            return int(mpmath.nint(mpmath.ldexp(value, FIXED)))

        h_squared, ratio = fixed(h * h), fixed(mpmath.exp(-h * h / 2))
        density, shrink = fixed(h / mpmath.sqrt(2 * mpmath.pi)), fixed(mpmath.exp(-h * h))
        series = [fixed(c) for c in _midpoint_series(h)]
    total = 0
    for m in range(int(14 * sigma)):
        x_squared, factor = m * m * h_squared, 0
        for c in series:
            factor = (factor * x_squared >> FIXED) + c
        mass = density * factor >> FIXED
        total += mass if m == 0 else 2 * mass
        yield total
        density = density * ratio >> FIXED
        ratio = ratio * shrink >> FIXED


def _midpoint_series(h: mpmath.mpf) -> list[mpmath.mpf]:
    """Coefficients, the highest power of x^2 first, of sum_j He_2j(x) (h / 2)^(2 j) / (2 j + 1)!"""
    powers = [mpmath.mpf(0)] * TERMS
    for j in range(TERMS):
        for i in range(j + 1):  # He_n(x) = sum_i (-1)^i n! / (i! (n - 2 i)! 2^i) x^(n - 2 i)
            c = Fraction((-1) ** i, math.factorial(i) * math.factorial(2 * (j - i)) * 2**i
                         * 4**j * (2 * j + 1))
            powers[j - i] += h ** (2 * j) * c.numerator / c.denominator
    return powers[::-1]
