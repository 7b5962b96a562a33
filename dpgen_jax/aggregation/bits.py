"""Where the bits come from that noise is made of: the operating system, drawn once, never kept.

The protection is that of the operating system's generator: computational. There is no key that
could leak, be used twice, or get into a checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from typing import ClassVar, Protocol

import numpy as np


class BitSource(Protocol):
    """draw(shape): new bits, a read-only uint32 array; the leading axis counts steps.
    draw_for(units int [R, n], first, shape): bits of `shape` for each unit at each of n turns from
    `first` on: [R, n, *shape].
    label: what may be said of a run that uses it, printed in every statement."""

    label: str

    def draw(self, shape: tuple[int, ...]) -> np.ndarray: ...

    def draw_for(self, units: np.ndarray, first: int, shape: tuple[int, ...]) -> np.ndarray: ...


def draw_bits(shape: tuple[int, ...]) -> np.ndarray:
    """Fresh bits from the operating system: uint32 of the shape, read-only.

    Raises OSError or NotImplementedError, and returns nothing, where the system's generator fails.
    """
    return _array(os.urandom(4 * math.prod(shape)), shape)


@dataclasses.dataclass(frozen=True)
class OsBits:
    """The operating system's generator. Holds nothing: no bits can be drawn from it again."""

    label: ClassVar[str] = "os-entropy"

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        return draw_bits(shape)

    def draw_for(self, units: np.ndarray, first: int, shape: tuple[int, ...]) -> np.ndarray:
        return draw_bits((*units.shape, *shape))


@dataclasses.dataclass
class SeededBits:
    """Bits that are a function of (seed, incarnation, step), for runs that can be repeated.

    Whoever knows the seed can remove the noise: such a run has no privacy claim. The bits of a step
    do not depend on how many steps are drawn at once. A resumed run is a new incarnation.
    """

    seed: int = dataclasses.field(repr=False)
    incarnation: int = 0
    step: int = 0

    label: ClassVar[str] = "seeded: no privacy claim"

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        steps = range(self.step, self.step + shape[0])
        self.step += shape[0]
        size = 4 * math.prod(shape[1:])
        return _array(b"".join(self._bytes(f"{step}", size) for step in steps), shape)

    def draw_for(self, units: np.ndarray, first: int, shape: tuple[int, ...]) -> np.ndarray:
        """A function of seed, turn and unit, wherever the unit is: the bits of a unit in a
        federation are those of the same unit in one process."""
        size = 4 * math.prod(shape)
        data = (self._bytes(f"{first + i} unit {unit}", size)
                for row in units for i, unit in enumerate(row))
        return _array(b"".join(data), (*units.shape, *shape))

    def _bytes(self, what: str, size: int) -> bytes:
        name = f"dpgen_jax noise {self.seed} {self.incarnation} {what}"
        return hashlib.shake_256(name.encode()).digest(size)


def _array(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    if len(data) != 4 * math.prod(shape):
        raise OSError(f"{len(data)} random bytes for a shape of {shape}: the generator failed")
    return np.frombuffer(data, "<u4").astype(np.uint32, copy=False).reshape(shape)
