"""Random features of norm 1, of which DP-MERF's embedding is the mean.

Source: Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007: cosines
and sines of random projections, whose inner product is a Gaussian kernel on average. Each feature
reads all of a record, or a window of it: a square of an image, a few columns of a table. The kernel
is then a mean of kernels on windows, which sees what a stroke or a pair of columns looks like,
where a kernel on whole records sees little more than means and coarse shapes.

Everything here is a function of the declared schema and a public key, and of no record.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.types import Array, Spec, TableSpec, UserError


@dataclasses.dataclass(frozen=True)
class RandomFeatures:
    """phi(x) of a record x, of Euclidean norm 1: a constant, so that a mean of phi tells how many
    records there were; the places of all one-hots of a table; and `count` cosines and sines.

    windows, bandwidths: features take these in turn. A window is a side in pixels, or a number of
    columns; 0: the whole record. A bandwidth is per pixel or column read: the kernel on a window of
    k of them is exp(-|x - x'|^2 / (2 bandwidth k)). constant, onehots: their shares of the squared
    norm; a table without categories gives that of the one-hots to the cosines and sines.
    """

    spec: Spec
    count: int
    windows: tuple[int, ...]
    bandwidths: tuple[float, ...]
    constant: float
    onehots: float

    def __post_init__(self):
        if self.count < 2 or self.count % 2:
            raise UserError(f"features is {self.count}; it must be an even number of 2 or above")
        if not self.windows or min(self.windows) < 0:
            raise UserError(f"windows is {self.windows}; give one or more, each 0 or above")
        if len(self.bandwidths) not in (1, len(self.windows)) or not min(self.bandwidths) > 0:
            raise UserError(f"bandwidths is {self.bandwidths}; give one above 0, or one for each "
                            f"of {len(self.windows)} windows")
        if not (self.constant > 0 and self.onehots >= 0 and self.constant + self.onehots < 1):
            raise UserError(f"constant is {self.constant} and onehots {self.onehots}; they are "
                            "shares of 1, of which something must be left")

    @property
    def _categories(self) -> np.ndarray:
        """Places of one-hots among the features of a row."""
        if not isinstance(self.spec, TableSpec):
            return np.zeros(0, int)
        return np.concatenate([np.zeros(0, int), *(
            np.arange(a, b) for a, b in self.spec.blocks if b - a > 1)])

    @property
    def columns(self) -> int:
        """D: of phi(x)."""
        return 1 + len(self._categories) + self.count

    def draw(self, key: Array) -> Array:
        """The frequencies [F, count / 2], F the numbers of a record."""
        k_normal, k_window = jax.random.split(key)
        n = self.count // 2
        which = np.arange(n) % len(self.windows)
        window = np.array(self.windows)[which]
        bandwidth = np.array(self.bandwidths)[which % len(self.bandwidths)]
        of = self._columns if isinstance(self.spec, TableSpec) else self._squares
        mask, read = of(k_window, window)
        normal = jax.random.normal(k_normal, (math.prod(self.spec.shape), n))
        return mask * normal / np.sqrt(bandwidth * read)

    def _squares(self, key: Array, window: np.ndarray) -> tuple[Array, np.ndarray]:
        """bool [F, n] of squares at random places, and the numbers in each."""
        height, width, channels = self.spec.shape
        inside, sizes = [], []
        for k, length in zip(jax.random.split(key), (height, width), strict=True):
            size = np.where((window == 0) | (window > length), length, window)
            first = jax.random.randint(k, size.shape, 0, length - size + 1)
            place = np.arange(length)[:, None]
            inside.append((place >= first) & (place < first + size))
            sizes.append(size)
        mask = inside[0][:, None, None] & inside[1][None, :, None] & np.ones((channels, 1), bool)
        return mask.reshape(-1, len(window)), sizes[0] * sizes[1] * channels

    def _columns(self, key: Array, window: np.ndarray) -> tuple[Array, np.ndarray]:
        """bool [F, n] of random columns, and how many each reads: a one-hot is one."""
        blocks = self.spec.blocks
        read = np.where((window == 0) | (window > len(blocks)), len(blocks), window)
        order = jnp.argsort(jax.random.uniform(key, (len(blocks), len(window))), axis=0)
        rank = jnp.argsort(order, axis=0)
        return jnp.repeat(rank < read, np.array([b - a for a, b in blocks]), axis=0), read

    def embed(self, frequencies: Array, x: Array) -> Array:
        """x [N, *spec.shape] in [0, 1] -> phi(x) [N, D]."""
        x = x.reshape(len(x), -1)
        phase = x @ frequencies
        categories = self._categories
        parts = [jnp.full((len(x), 1), math.sqrt(self.constant))]
        left = 1 - self.constant
        if categories.size:
            held = sum(b - a > 1 for a, b in self.spec.blocks)
            parts.append(math.sqrt(self.onehots / held) * x[:, categories])
            left -= self.onehots
        scale = math.sqrt(left / phase.shape[1])
        return jnp.concatenate([*parts, scale * jnp.cos(phase), scale * jnp.sin(phase)], 1)
