"""Noise on integer sums, and the random bits from which it is made.

The secret bits come from the operating system, are used once and are never stored, except as a
keyed digest for each round (`run.loop`). The protection is computational, that of the system's
generator. There is no key that could leak, be used twice, or get into a checkpoint.

Gaussian noise is rounded. For an integer vector v, round(v + sigma Z) = v + round(sigma Z): adding
`RoundedGaussian` draws to integer votes is post-processing of the Gaussian mechanism, and exact
Gaussian accounting holds. Draws use no floating-point numbers, so the release shows neither float
rounding nor a truncated tail (float32 normals end at 5.42 sigma).

`DiscreteLaplace` draws its noise inside a compiled release, exact to 2^-96 a bit: a compiled step
needs a number of random bits that is known beforehand. `single_releases` draws from the same
distribution on the host, without error.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar, Protocol

import chex
import jax.numpy as jnp
import mpmath
import numpy as np
from jax import lax
from scipy.special import log_ndtr

from dpgen_jax.accountant.events import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    round_up,
)
from dpgen_jax.core.types import Array, UserError


class BitSource(Protocol):
    """A source of the secret bits for noise and samples."""

    @property
    def label(self) -> str:
        """The name of the source in statements."""

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits: uint32 of this shape, read-only.

        Args:
            shape: The leading axis counts rounds.
        """

    def draw_for(self, units: np.ndarray, first_round: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits for each unit in each round: uint32 [R, n, *shape], read-only.

        Args:
            units: int [R, n], the units that n rounds query.
            shape: Shape of the bits of one unit in one round.
        """


def draw_bits(shape: tuple[int, ...]) -> np.ndarray:
    """Returns fresh bits from the operating system: uint32 of the shape, read-only.

    Raises:
        OSError: The system's generator fails.
        NotImplementedError: The system has no generator.
    """
    return _array(os.urandom(4 * math.prod(shape)), shape)


@dataclasses.dataclass(frozen=True)
class OsBits:
    """The generator of the operating system; it stores nothing, so bits cannot be drawn again."""

    label: ClassVar[str] = "os-entropy"

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns fresh bits: uint32 of the shape, read-only."""
        return draw_bits(shape)

    def draw_for(self, units: np.ndarray, first_round: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns fresh bits for each unit in each round: uint32 [R, n, *shape], read-only."""
        return draw_bits((*units.shape, *shape))


@dataclasses.dataclass
class SeededBits:
    """Bits that are a function of (seed, incarnation, step), for runs that can be repeated.

    Anyone with the seed can remove the noise, so such a run has no privacy claim. The bits of a
    round do not depend on how many rounds are drawn at once. A resumed run is a new incarnation.

    Attributes:
        seed: Any number; it is not shown in the repr.
        incarnation: How often the run was resumed.
        step: Number of rounds whose bits were drawn.
    """

    seed: int = dataclasses.field(repr=False)
    incarnation: int = 0
    step: int = 0

    label: ClassVar[str] = "seeded: no privacy claim"

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns the bits of the next rounds: uint32 of the shape, read-only."""
        steps = range(self.step, self.step + shape[0])
        self.step += shape[0]
        size = 4 * math.prod(shape[1:])
        return _array(b"".join(self._bytes(f"{step}", size) for step in steps), shape)

    def draw_for(self, units: np.ndarray, first_round: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns bits that are a function of seed, round and unit only.

        So a unit has the same bits in a federation and in one process.

        Returns:
            uint32 [R, n, *shape], read-only.
        """
        size = 4 * math.prod(shape)
        data = (self._bytes(f"{first_round + i} unit {unit}", size)
                for row in units for i, unit in enumerate(row))
        return _array(b"".join(data), (*units.shape, *shape))

    def _bytes(self, purpose: str, size: int) -> bytes:
        name = f"dpgen_jax noise {self.seed} {self.incarnation} {purpose}"
        return hashlib.shake_256(name.encode()).digest(size)


def _array(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    if len(data) != 4 * math.prod(shape):
        raise OSError(f"{len(data)} random bytes for a shape of {shape}: the generator failed")
    return np.frombuffer(data, "<u4").astype(np.uint32, copy=False).reshape(shape)


ONE = 1 << 95
"""A probability of 1, in units of 2^-95."""
FIXED = 192
"""Fractional bits of the arithmetic for tables."""
TERMS = 7
"""J: terms of the series of `_recurrence`."""


@functools.lru_cache(maxsize=8)
def padded_table(sigma: float) -> np.ndarray:
    """Returns uint32 [2^n - 1, 3]: thresholds, padded with a number above every draw."""
    values = thresholds(sigma)
    size = (1 << len(values).bit_length()) - 1
    return _words((*values, *[2**96 - 1] * (size - len(values))))


def _words(values: tuple[int, ...]) -> np.ndarray:
    """Returns 96-bit numbers as uint32 [n, 3], the highest word first; read-only."""
    data = b"".join(value.to_bytes(12, "big") for value in values)
    table = np.frombuffer(data, ">u4").astype(np.uint32).reshape(len(values), 3)
    table.setflags(write=False)
    return table


@functools.lru_cache(maxsize=8)
def thresholds(sigma: float) -> tuple[int, ...]:
    """Returns T_m = P(|round(sigma Z)| <= m) for m = 0, 1, ... up to the last below 1.

    They are in units of 2^-95. Each is within one unit of its ideal value, and they do not fall.
    |X| is the number of thresholds that are at most W, for W uniform in 0..2^95 - 1.

    Args:
        sigma: In steps of the integer grid.
    """
    cumulated = _recurrence(sigma) if sigma >= 64 else (
        _inside(sigma, m) for m in range(int(14 * sigma) + 2))
    values: list[int] = []
    for value in cumulated:
        rounded = _threshold(value)
        if rounded >= ONE:
            return tuple(values)
        values.append(rounded)
    raise AssertionError("a cumulative distribution that does not reach 1")


def _threshold(value: int) -> int:
    """Returns a fixed-point number in units of 2^-95."""
    return (value + (1 << (FIXED - 96))) >> (FIXED - 95)


def _inside(sigma: float, m: int) -> int:
    """Returns P(|X| <= m) as a fixed-point integer, by mpmath."""
    with mpmath.workprec(FIXED + 64):
        inside = mpmath.erf((m + mpmath.mpf(0.5)) / (mpmath.mpf(sigma) * mpmath.sqrt(2)))
        return int(mpmath.floor(mpmath.ldexp(inside, FIXED)))


def _recurrence(sigma: float) -> Iterator[int]:
    """Yields P(|X| <= m) as fixed-point integers for sigma >= 64, summed up from P(X = m).

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

        def fixed(value: mpmath.mpf) -> int:
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


def threshold(sigma: float, m: int) -> int:
    """Returns T_m, by mpmath.

    Args:
        sigma: In steps of the integer grid.
        m: At least 0.
    """
    return _threshold(_inside(sigma, m))


MIN_SIGMA, MAX_SIGMA = 0.3, 65536.0


class Noise(Protocol):
    """Integer noise, as a function of given bits."""

    @property
    def max_abs(self) -> int:
        """The largest possible magnitude of a draw."""

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the uint32 bits for draws of this shape."""

    def sample(self, bits: Array) -> Array:
        """Returns draws int32 of the shape for which the bits are.

        Args:
            bits: uint32 of the shape from `bits_shape`.
        """

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> Event:
        """Returns the cost of one release.

        Args:
            grid: The value of one step of the integers.
        """


@dataclasses.dataclass(frozen=True)
class RoundedGaussian:
    """round(sigma Z), with Z standard normal.

    96 random bits give one draw: a sign, and a 95-bit number that is looked up in the table of
    P(|X| <= m).

    Attributes:
        sigma: The standard deviation of sigma Z in steps of the integer grid, 0.3 to 65536.

    Guarantee:
        A release with this noise is post-processing of a Gaussian mechanism, except for
        `total_variation`: mu-GDP with mu the L2 sensitivity over sigma, for the unit and the
        relation of the bound.

    Source:
        Dong, Roth and Su, "Gaussian Differential Privacy" (arXiv 1905.02383); the rounded draw is
        from this library.

    Raises:
        UserError: Sigma is out of range.
    """

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", float(self.sigma))
        if not MIN_SIGMA <= self.sigma <= MAX_SIGMA:
            raise UserError(f"sigma is {self.sigma}; rounded Gaussian noise is available from "
                            f"{MIN_SIGMA} to {MAX_SIGMA:.0f}")

    @property
    def max_abs(self) -> int:
        """Upper bound on the magnitude of a draw: the table reaches 1 before 11.5 sigma.

        It is a bound and not the length of the table, so calibration needs no tables.
        """
        return largest(self.sigma)

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the uint32 bits for draws of this shape: three words for each."""
        return (*shape, 3)

    def sample(self, bits: Array) -> Array:
        """Returns draws from uniform bits; a pure function: int32 [...]."""
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
        """Returns the same draws as `sample`, on the host.

        From `words` uint32 [n, 3] to int64 [n].
        """
        table = thresholds(self.sigma)
        sizes = [bisect.bisect_right(table, (first & 0x7FFFFFFF) << 64 | second << 32 | third)
                 for first, second, third in words.tolist()]
        return np.where(words[:, 0] >> 31 == 1, -1, 1) * np.array(sizes, np.int64)

    def log_tail(self, k: np.ndarray) -> np.ndarray:
        """Returns ln P(X >= k) of the ideal distribution; round(x) >= k if x > k - 1/2.

        Args:
            k: Whole numbers, any shape.
        """
        return log_ndtr((0.5 - k) / self.sigma)

    def total_variation(self, draws: int) -> float:
        """Returns an upper bound on the total variation between draws and the ideal distribution.

        With M = max_abs and a unit of 2^-95: the ideal |X| exceeds M with probability at most one
        unit (thresholds end where they round to 1); larger values are drawn as M. For the
        distribution with its tail moved in this way, P(|X| = m) is a difference of two of the M
        thresholds, each within a unit of its ideal value, so half the sum of the differences of the
        two distributions is at most M units. The sign is exact and independent. Distances of
        independent draws add up: draws (M + 1) 2^-95.
        """
        return distance(self.sigma, draws)

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> GaussianEvent:
        """Returns the cost of one release."""
        return GaussianEvent(self.sigma, squared_sensitivity, grid, self.total_variation(draws))


@dataclasses.dataclass(frozen=True)
class NoNoise:
    """No noise, for ablations: it has the methods of `Noise` and takes no bits.

    Guarantee:
        None: epsilon is infinite.
    """

    sigma: ClassVar[float] = 0.0

    @property
    def max_abs(self) -> int:
        """The largest possible magnitude of a draw."""
        return 0

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of no bits."""
        return (*shape, 0)

    def sample(self, bits: Array) -> Array:
        """Returns zeros int32 [...]."""
        return jnp.zeros(bits.shape[:-1], jnp.int32)

    def total_variation(self, draws: int) -> float:
        """Returns 0."""
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
    """
    return min(1.0, round_up(Fraction(draws * (largest(sigma) + 1), ONE)))


def draw_one(sigma: float, words: np.ndarray) -> int:
    """Returns round(sigma Z), on the host, without a table.

    The distribution is that of `RoundedGaussian`, for any sigma from 0.3 on, which may be private.

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


MIN_SCALE, MAX_SCALE = 0.1, 65536.0
TAIL = 67
"""scales beyond which a geometric distribution has less than 2^-96 of its mass: 96 ln 2 < 67"""


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace:
    """Discrete Laplace noise: P(X = k) proportional to exp(-|k| / scale).

    X is the difference of two geometric numbers of ratio r = exp(-1 / scale), and the binary digits
    of a geometric number are independent: r^k is the product of r^(2^i) over the digits i of k that
    are 1. So digit i is 1 with probability r^(2^i) / (1 + r^(2^i)), for which a 96-bit number is
    compared with a threshold. Draws use no floating-point numbers.

    Attributes:
        scale: In steps of the integer grid, 0.1 to 65536.

    Guarantee:
        The release of one integer is (sensitivity / scale)-private, except for `total_variation`,
        for the unit and the relation of the bound.

    Source:
        Ghosh, Roughgarden and Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms"
        (STOC 2009): the geometric mechanism.

    Raises:
        UserError: The scale is out of range.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", float(self.scale))
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise UserError(f"scale is {self.scale}; discrete Laplace noise is available from "
                            f"{MIN_SCALE} to {MAX_SCALE:.0f}")

    @property
    def digits(self) -> int:
        """J: the number of binary digits drawn for a geometric number; r^(2^J) < 2^-96."""
        return math.ceil(TAIL * self.scale).bit_length()

    @property
    def max_abs(self) -> int:
        """The largest possible magnitude of a draw."""
        return 2**self.digits - 1

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the uint32 bits: three words for every digit."""
        return (*shape, 2, self.digits, 3)

    def sample(self, bits: Array) -> Array:
        """Returns draws from uniform bits; a pure function: int32 [...]."""
        chex.assert_shape(bits, (..., 2, self.digits, 3))
        chex.assert_type(bits, jnp.uint32)
        entry = tuple(jnp.asarray(thresholds_as_words(self.scale, self.digits)).T)
        zero = at_most(entry, tuple(jnp.moveaxis(bits, -1, 0)))
        geometric = jnp.sum(jnp.where(zero, 0, 1 << jnp.arange(self.digits)), -1)
        return geometric[..., 0] - geometric[..., 1]

    def log_tail(self, k: np.ndarray) -> np.ndarray:
        """Returns ln P(X >= k) of the ideal distribution.

        It is r^k / (1 + r) for k >= 1, and for k <= 0, by symmetry, 1 - P(X >= 1 - k).

        Args:
            k: Whole numbers, any shape.
        """
        beyond = -np.maximum(k, 1 - k) / self.scale - math.log1p(math.exp(-1 / self.scale))
        return np.where(k >= 1, beyond, np.log1p(-np.exp(beyond)))

    def total_variation(self, draws: int) -> float:
        """Returns an upper bound on the total variation between draws and the ideal distribution.

        A digit's threshold is within 2^-97 of its ideal value, and the J drawn digits are those of
        a geometric number given that it is below 2^J, which fails with probability r^(2^J) < 2^-96.
        Distances of independent draws add up: draws x 2 x (J 2^-97 + 2^-96).
        """
        return min(1.0, round_up(Fraction(draws * (self.digits + 2), 2**96)))

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> LaplaceEvent:
        """Returns the cost of the release of ONE entry.

        Laplace noise protects the change of one entry, not the L2 norm of many entries.

        Raises:
            ValueError: There is more than one draw.
        """
        if draws != 1:
            raise ValueError(f"{draws} entries at once; discrete Laplace noise is charged for each")
        return LaplaceEvent(self.scale, math.isqrt(squared_sensitivity - 1) + 1,
                            self.total_variation(1))


def laplace_thresholds(scale: float, digits: int) -> tuple[int, ...]:
    """Returns P(digit i is 1) in units of 2^-96, each rounded to the nearest.

    Args:
        scale: In steps of the integer grid.
    """
    with mpmath.workprec(256):
        odds = [mpmath.exp(-mpmath.mpf(2)**i / mpmath.mpf(scale)) for i in range(digits)]
        return tuple(int(mpmath.nint(mpmath.ldexp(p / (1 + p), 96))) for p in odds)


@functools.lru_cache(maxsize=8)
def thresholds_as_words(scale: float, digits: int) -> np.ndarray:
    """Returns `laplace_thresholds` as uint32 [J, 3], the highest word first.

    Args:
        scale: In steps of the integer grid.
    """
    return _words(laplace_thresholds(scale, digits))
