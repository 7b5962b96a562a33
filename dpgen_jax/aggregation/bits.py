"""Sources of the bits that noise and samples are made of.

The operating system's bits are used once and never kept, but for a keyed digest of those of a round
(`run.noise_digests`). The protection is that of its generator:
computational. There is no key that could leak, be used twice, or get into a checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from typing import ClassVar, Protocol

import numpy as np


class BitSource(Protocol):
    """A source of the secret bits that noise and samples are made of."""

    @property
    def label(self) -> str:
        """The name of the source, as every statement prints it."""

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits: uint32 of the shape, read-only.

        Args:
            shape: The leading axis counts rounds.
        """

    def draw_for(self, units: np.ndarray, first_round: int, shape: tuple[int, ...]) -> np.ndarray:
        """Returns new bits for each unit in each round: uint32 [R, n, *shape], read-only.

        Args:
            units: int [R, n], the units that n rounds query.
            first_round: The number of the first of these rounds.
            shape: Of the bits of one unit in one round.
        """


def draw_bits(shape: tuple[int, ...]) -> np.ndarray:
    """Returns fresh bits from the operating system: uint32 of the shape, read-only.

    Args:
        shape: Of the array.

    Raises:
        OSError: The system's generator fails.
        NotImplementedError: The system has no generator.
    """
    return _array(os.urandom(4 * math.prod(shape)), shape)


@dataclasses.dataclass(frozen=True)
class OsBits:
    """The generator of the operating system; it keeps nothing, so bits cannot be drawn again."""

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

    Whoever knows the seed can remove the noise: such a run has no privacy claim. The bits of a
    round do not depend on how many rounds are drawn at once. A resumed run is a new incarnation.

    Attributes:
        seed: Any number; it is not shown in the repr.
        incarnation: How often the run was resumed.
        step: Rounds whose bits were drawn.
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
        """Returns bits that are a function of seed, round and unit, wherever the unit is.

        The bits of a unit in a federation are those of the same unit in one process.

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
    """Returns the bytes as a read-only uint32 array of the shape."""
    if len(data) != 4 * math.prod(shape):
        raise OSError(f"{len(data)} random bytes for a shape of {shape}: the generator failed")
    return np.frombuffer(data, "<u4").astype(np.uint32, copy=False).reshape(shape)
