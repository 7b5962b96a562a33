"""Discrete Laplace noise on integer counts inside a compiled release, exact to 2^-96 a bit.

`discrete_laplace` draws the same law on the host, without any error; a compiled step needs a number
of random bits that is known beforehand.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

import chex
import jax.numpy as jnp
import mpmath
import numpy as np

from dpgen_jax.accountant.events import LaplaceEvent
from dpgen_jax.accountant.rounding import round_up
from dpgen_jax.aggregation.noise import at_most
from dpgen_jax.core.types import Array, UserError

MIN_SCALE, MAX_SCALE = 0.1, 65536.0
TAIL = 67
"""scales beyond which a geometric number has less than 2^-96 of its weight: 96 ln 2 < 67"""


@dataclasses.dataclass(frozen=True)
class DiscreteLaplace:
    """Discrete Laplace noise: P(X = k) proportional to exp(-|k| / scale).

    X is the difference of two geometric numbers of ratio r = exp(-1 / scale), and the binary digits
    of a geometric number are independent: r^k is the product of r^(2^i) over the digits i of k that
    are 1. So digit i is 1 with probability r^(2^i) / (1 + r^(2^i)), for which a 96-bit number is
    compared with a threshold; no floating-point number is involved in a draw.

    Attributes:
        scale: In steps of the integer grid, 0.1 to 65536.

    Guarantee:
        The release of one integer is (sensitivity / scale)-private, but for `total_variation`, for
        the unit and the relation of the bound.

    Source:
        Ghosh, Roughgarden and Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms"
        (STOC 2009): the geometric mechanism.

    Raises:
        UserError: There is no such noise for this scale.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", float(self.scale))
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise UserError(f"scale is {self.scale}; discrete Laplace noise is available from "
                            f"{MIN_SCALE} to {MAX_SCALE:.0f}")

    @property
    def digits(self) -> int:
        """J: the binary digits that are drawn of a geometric number; r^(2^J) < 2^-96."""
        return math.ceil(TAIL * self.scale).bit_length()

    @property
    def max_abs(self) -> int:
        """The largest magnitude that is drawn."""
        return 2**self.digits - 1

    def bits_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the uint32 bits: three words for every digit."""
        return (*shape, 2, self.digits, 3)

    def sample(self, bits: Array) -> Array:
        """Returns draws made of uniform bits; it is pure.

        Returns:
            int32 [...].
        """
        chex.assert_shape(bits, (..., 2, self.digits, 3))
        chex.assert_type(bits, jnp.uint32)
        entry = tuple(jnp.asarray(thresholds_as_words(self.scale, self.digits)).T)
        zero = at_most(entry, tuple(jnp.moveaxis(bits, -1, 0)))
        geometric = jnp.sum(jnp.where(zero, 0, 1 << jnp.arange(self.digits)), -1)
        return geometric[..., 0] - geometric[..., 1]

    def log_tail(self, k: np.ndarray) -> np.ndarray:
        """Returns ln P(X >= k) of the ideal law.

        It is r^k / (1 + r) for k >= 1, and for k <= 0, by symmetry, 1 - P(X >= 1 - k).

        Args:
            k: Whole numbers, any shape.
        """
        beyond = -np.maximum(k, 1 - k) / self.scale - math.log1p(math.exp(-1 / self.scale))
        return np.where(k >= 1, beyond, np.log1p(-np.exp(beyond)))

    def total_variation(self, draws: int) -> float:
        """Returns an upper bound on the distance between the law of draws and the ideal one.

        A digit's threshold is within 2^-97 of its ideal value, and the J digits that are drawn are
        those of a geometric number given that it is below 2^J, which it is but for r^(2^J) < 2^-96.
        Distances of independent draws add up: draws x 2 x (J 2^-97 + 2^-96).

        Args:
            draws: The number of independent draws.
        """
        return min(1.0, round_up(Fraction(draws * (self.digits + 2), 2**96)))

    def event(self, squared_sensitivity: int, draws: int, grid: float = 1.0) -> LaplaceEvent:
        """Returns the cost of the release of ONE entry.

        Laplace noise protects what an entry moves by, not the L2 norm of many entries.

        Raises:
            ValueError: There is more than one draw.
        """
        if draws != 1:
            raise ValueError(f"{draws} entries at once; discrete Laplace noise is charged for each")
        return LaplaceEvent(self.scale, math.isqrt(squared_sensitivity - 1) + 1,
                            self.total_variation(1))


def thresholds(scale: float, digits: int) -> tuple[int, ...]:
    """Returns P(digit i is 1) in units of 2^-96, each rounded to the nearest.

    Args:
        scale: In steps of the integer grid.
        digits: J.
    """
    with mpmath.workprec(256):
        odds = [mpmath.exp(-mpmath.mpf(2)**i / mpmath.mpf(scale)) for i in range(digits)]
        return tuple(int(mpmath.nint(mpmath.ldexp(p / (1 + p), 96))) for p in odds)


@functools.lru_cache(maxsize=8)
def thresholds_as_words(scale: float, digits: int) -> np.ndarray:
    """Returns `thresholds` as uint32 [J, 3], the highest word first.

    Args:
        scale: In steps of the integer grid.
        digits: J.
    """
    data = b"".join(value.to_bytes(12, "big") for value in thresholds(scale, digits))
    table = np.frombuffer(data, ">u4").astype(np.uint32).reshape(digits, 3)
    table.setflags(write=False)
    return table
