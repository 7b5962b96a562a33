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

from dpgen_jax.core.types import Array, ImageSpec, Spec, TableSpec, UserError


@dataclasses.dataclass(frozen=True)
class RandomFeatures:
    """The random features phi(x) of a record x, a vector of Euclidean norm 1.

    It consists of a constant, so that a mean of phi tells how many records there were; the places
    of all one-hots of a table; and cosines and sines.

    Attributes:
        spec: schema of the records.
        count: cosines and sines.
        windows: sides in pixels, or numbers of columns, that features take in turn; 0: the whole
            record.
        bandwidths: likewise, per pixel or column read: the kernel on a window of k of them is
            exp(-|x - x'|^2 / (2 bandwidth k)).
        constant: share of the constant in the squared norm.
        onehots: share of the one-hots; a table without categories gives it to the cosines and
            sines.

    Raises:
        UserError: for fields that are out of range.
    """

    spec: Spec
    count: int
    windows: tuple[int, ...]
    bandwidths: tuple[float, ...]
    constant: float
    onehots: float

    def __post_init__(self) -> None:
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
        onehots = [np.arange(a, b) for a, b in _blocks(self.spec) if b - a > 1]
        return np.concatenate([np.zeros(0, int), *onehots])

    @property
    def columns(self) -> int:
        """D, the length of phi(x)."""
        return 1 + len(self._categories) + self.count

    def draw(self, key: Array) -> Array:
        """Draws the frequencies [F, count / 2], F the numbers of a record."""
        k_normal, k_window = jax.random.split(key)
        n = self.count // 2
        which = np.arange(n) % len(self.windows)
        window = np.array(self.windows)[which]
        bandwidth = np.array(self.bandwidths)[which % len(self.bandwidths)]
        if isinstance(self.spec, ImageSpec):
            mask, read = _squares(k_window, window, self.spec)
        else:
            mask, read = _columns(k_window, window, self.spec)
        normal = jax.random.normal(k_normal, (math.prod(self.spec.shape), n))
        return mask * normal / np.sqrt(bandwidth * read)

    def embed(self, frequencies: Array, x: Array) -> Array:
        """Maps x [N, *spec.shape] in [0, 1] to phi(x) [N, D]."""
        x = x.reshape(len(x), -1)
        phase = x @ frequencies
        categories = self._categories
        parts = [jnp.full((len(x), 1), math.sqrt(self.constant))]
        left = 1 - self.constant
        if categories.size:
            n_onehots = sum(b - a > 1 for a, b in _blocks(self.spec))
            parts.append(math.sqrt(self.onehots / n_onehots) * x[:, categories])
            left -= self.onehots
        scale = math.sqrt(left / phase.shape[1])
        return jnp.concatenate([*parts, scale * jnp.cos(phase), scale * jnp.sin(phase)], 1)


def _blocks(spec: Spec) -> tuple[tuple[int, int], ...]:
    """The blocks of a table's features; an image has none."""
    return spec.blocks if isinstance(spec, TableSpec) else ()


def _squares(key: Array, window: np.ndarray, spec: ImageSpec) -> tuple[Array, np.ndarray]:
    """A mask bool [F, n] of squares at random places, and how many numbers each holds."""
    inside, sizes = [], []
    for k, length in zip(jax.random.split(key), (spec.height, spec.width), strict=True):
        size = np.where((window == 0) | (window > length), length, window)
        first = jax.random.randint(k, size.shape, 0, length - size + 1)
        place = np.arange(length)[:, None]
        inside.append(jnp.asarray((place >= first) & (place < first + size)))
        sizes.append(size)
    channels = np.ones((spec.channels, 1), bool)
    mask: Array = inside[0][:, None, None] & inside[1][None, :, None] & channels
    return mask.reshape(-1, len(window)), sizes[0] * sizes[1] * spec.channels


def _columns(key: Array, window: np.ndarray, spec: TableSpec) -> tuple[Array, np.ndarray]:
    """A mask bool [F, n] of random columns, and how many each reads; a one-hot is one."""
    blocks = spec.blocks
    read = np.where((window == 0) | (window > len(blocks)), len(blocks), window)
    order = jnp.argsort(jax.random.uniform(key, (len(blocks), len(window))), axis=0)
    # The rank of a random order: those below k are k columns without replacement.
    rank = jnp.argsort(order, axis=0)
    return jnp.repeat(rank < read, np.array([b - a for a, b in blocks]), axis=0), read
