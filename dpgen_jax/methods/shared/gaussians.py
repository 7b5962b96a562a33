"""Gaussians of each class from noisy sums: what `mixture` makes of its releases. All is public."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.moment_sums import Sums
from dpgen_jax.core.types import Array
from dpgen_jax.methods.shared.sample_classifier import Classifier
from dpgen_jax.nets.noisy_moments import (
    edge,
    kmeans,
    nearest_centre,
    positive,
    root,
    shrink,
    towards_zero,
)

POINTS_PER_CLASS = 1500
"""Points of a class on which its cells are found."""
LEAST = 4
"""Directions that are kept whatever the noise."""
ENERGY = 0.3
"""The factor of the square of a length beside the vector itself."""
Noise = tuple[float, float, float, float]
"""As `Moments.noise` returns it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes and public numbers of a mixture.

    Attributes:
        records: n.
        classes: C.
        cells: K, Gaussians of each class.
        length: M, frequencies of an image.
        dimensions: k, the most principal directions.
        frequencies: Of them, a side.
        shades: T, bins of the histogram of shades.
        grey: Level from which images are counted.
        norm: Longest image, about the grey level, that counts in full.
        spread: Longest difference of an image from the mean of its class that counts in full.
        radius: Longest distance to a cell that counts in full, over the expected root of its mean
            square.
        means: Rounds that release means of cells alone.
        whitening: Power of the variance by which directions are divided.
        trust: Where noise is cut, in units of its edge.
        prune: Share of an average cell, below which one is dropped.
    """

    records: int
    classes: int
    cells: int
    length: int
    dimensions: int
    frequencies: int
    shades: int
    grey: float
    norm: float
    spread: float
    radius: float
    means: int
    whitening: float
    trust: float
    prune: float


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of released values and public keys alone.

    Frequencies are in units of `Sizes.norm`.

    Attributes:
        step: int32 [], rounds so far.
        rounds: int32 [], of cells' covariances among them.
        classifier: The classifier so far.
        shades: float32 [T], noisy shares.
        size: float32 [C], shares of the classes.
        means: float32 [C, M], of the classes.
        centre: float32 [M].
        basis: float32 [M, k]; columns that are not kept are 0.
        spectrum: float32 [k], variances in the basis; 0 where not kept.
        within: float32 [k, k], the covariance within classes.
        scatter: float32 [C], mean square of the distance to the nearest cell over the trace of
            `within`, as cells of a Gaussian of the size of the class have it.
        centres: float32 [C, K, k].
        count: float32 [C, K], summed over rounds, as the two below.
        first: float32 [C, K, k].
        second: float32 [C, K, k, k].
    """

    step: Array
    rounds: Array
    classifier: Classifier
    shades: Array
    size: Array
    means: Array
    centre: Array
    basis: Array
    spectrum: Array
    within: Array
    scatter: Array
    centres: Array
    count: Array
    first: Array
    second: Array


def nothing(s: Sizes, classifier: Classifier) -> Public:
    """Returns the public state before the first round.

    Args:
        s: The sizes.
        classifier: Before its first round.
    """
    c, cells, m, k = s.classes, s.cells, s.length, s.dimensions
    shapes = ((s.shades,), (c,), (c, m), (m,), (m, k), (k,), (k, k), (c,), (c, cells, k),
              (c, cells), (c, cells, k), (c, cells, k, k))
    none = jnp.zeros((), jnp.int32)
    return Public(none, none, classifier, *(jnp.zeros(shape) for shape in shapes))


def begun(s: Sizes, public: Public, sums: Sums, noise: Noise) -> Public:
    """Returns the state after the first round: shades, and the size and mean of each class."""
    n = s.records
    safe = _safe(s, sums.count, noise)
    centre = sums.first.sum(0) / n
    means = centre + towards_zero(sums.first / safe[:, None] - centre, noise[2] / safe, s.length)
    return dataclasses.replace(public, step=public.step + 1, shades=sums.shades / n,
                               size=_shares(sums.count, noise[1]), means=means)


def spread(s: Sizes, key: Array, public: Public, sums: Sums, noise: Noise) -> Public:
    """Returns the state after the second round: the basis, and the first cells of each class."""
    n, m = s.records, s.length
    unit = s.spread / s.norm
    safe = _safe(s, sums.count, noise)
    shift = towards_zero(sums.first[:, :m] / safe[:, None], noise[2] / safe, m)
    means = public.means + unit * shift
    share = public.size[:, None]
    centre = (share * means).sum(0)
    scatter = unit**2 * (sums.second[0, :m, :m] / n - (share * shift).T @ shift)
    between = (share * (means - centre)).T @ (means - centre)
    values, vectors = jnp.linalg.eigh(scatter + between)
    values, vectors = values[::-1][:s.dimensions], vectors[:, ::-1][:, :s.dimensions]
    below = s.trust * edge(m, unit**2 * noise[3] / n)
    kept = (values > below) | (jnp.arange(s.dimensions) < LEAST)
    spectrum = jnp.sqrt(jnp.maximum(values**2 - below**2, (0.05 * below + 1e-6)**2))
    spectrum, basis = jnp.where(kept, spectrum, 0), jnp.where(kept, vectors, 0)
    places = (means - centre) @ basis
    within = positive(jnp.diag(spectrum) - (share * places).T @ places)
    size = _sizes(sums.first[:, m] / safe / ENERGY, noise[2] / safe / ENERGY)
    k_points, k_cells = jax.random.split(key)
    points = jax.random.normal(k_points, (s.classes, POINTS_PER_CLASS, s.dimensions))
    points = places[:, None] + jnp.sqrt(size)[:, None, None] * (points @ root(within).T)
    centres = jax.vmap(lambda k, x: kmeans(k, x, s.cells))(
        jax.random.split(k_cells, s.classes), points)
    return dataclasses.replace(
        public, step=public.step + 1, means=means, centre=centre, basis=basis, spectrum=spectrum,
        within=within, centres=centres,
        scatter=_distances(points, centres) / jnp.maximum(jnp.trace(within), 1e-9))


def _shares(count: Array, noise: float) -> Array:
    """Returns the shares of classes, which lean on equal ones by what noise alone would tell."""
    mean = jnp.maximum(jnp.mean(count), 1e-6)
    real = jnp.maximum(jnp.var(count) - noise**2, 0)
    leaning = mean + (count - mean) * real / (real + noise**2 + 1e-9)
    share = jnp.maximum(leaning, 1e-3 * mean)
    return share / share.sum()


def _safe(s: Sizes, count: Array, noise: Noise) -> Array:
    """Returns counts of classes by which sums may be divided."""
    return jnp.maximum(count, max(3 * noise[1], 0.02 * s.records / s.classes, 1.0))


def _sizes(energy: Array, noise: Array) -> Array:
    """Returns how large the classes' mean squares are beside each other, [C], 1 for all noise."""
    mean = jnp.maximum(jnp.mean(energy), 1e-3)
    off = energy / mean - 1
    noise_share = jnp.mean((noise / mean)**2)
    real = jnp.maximum(jnp.mean(off**2) - noise_share, 0)
    return jnp.clip(1 + off * real / (real + noise_share + 1e-9), 0.2, 5.0)


def _distances(points: Array, centres: Array) -> Array:
    """Returns the mean square of the distance to the nearest centre, [C]."""
    def one(x: Array, c: Array) -> Array:
        return jnp.mean(jnp.sum((x - c[nearest_centre(x, c)])**2, 1))
    return jax.vmap(one)(points, centres)


def scale(s: Sizes, public: Public, white: float) -> Array:
    """Returns what a record's distance to its cell's centre is multiplied by, [C, k].

    It then has a length that is seldom above 1.

    Args:
        s: The sizes.
        public: After the second round.
        white: Power of the variance by which a direction is divided.
    """
    kept = public.spectrum > 0
    stretch = jnp.where(kept, jnp.where(kept, public.spectrum, 1) ** -white, 0)
    total = jnp.sum(jnp.diag(public.within) * stretch**2)
    radius = s.radius * jnp.sqrt(public.scatter * total)
    return stretch / jnp.maximum(radius, 1e-6)[:, None]


def moved(s: Sizes, public: Public, sums: Sums, noise: Noise, stretch: Array) -> Public:
    """Returns the state after a round of means: each cell's centre is where its records are."""
    safe = jnp.maximum(sums.count, max(2 * noise[1], s.records / (6 * s.classes * s.cells)))
    kept = public.spectrum > 0  # in other directions there is noise alone
    shift = towards_zero(sums.first * kept / safe[:, None], noise[2] / safe, kept.sum())
    shift = shift.reshape(public.centres.shape) * _inverse(stretch)[:, None]
    return dataclasses.replace(public, step=public.step + 1, centres=public.centres + shift)


def added(public: Public, sums: Sums) -> Public:
    """Returns the state after a round of cells."""
    return dataclasses.replace(
        public, step=public.step + 1, rounds=public.rounds + 1,
        count=public.count + sums.count.reshape(public.count.shape),
        first=public.first + sums.first.reshape(public.first.shape),
        second=public.second + sums.second.reshape(public.second.shape))


def mixture(s: Sizes, public: Public, noise: Noise) -> tuple[Array, Array, Array]:
    """Returns means [C, K, k], roots of covariances [C, K, k, k] and weights [C, K].

    A covariance is that of all cells, moved towards that of its class's and then towards its own,
    each by what stands out of the noise.
    """
    rounds = public.rounds
    some = jnp.maximum(rounds, 1).astype(jnp.float32)
    _, n_count, n_first, n_second = (std / jnp.sqrt(some) for std in noise)
    stretch, mask = scale(s, public, s.whitening), public.spectrum > 0
    kept = mask.sum()
    average = s.records * public.size[:, None] / s.cells
    count = jnp.where(rounds > 0, public.count / some, jnp.broadcast_to(average,
                                                                       public.count.shape))
    least = jnp.maximum(2 * n_count, s.records / (20 * s.classes * s.cells))
    safe = jnp.maximum(count, least)
    # In directions that are not kept there is noise alone.
    shift = towards_zero(public.first * mask / some / safe[..., None], n_first / safe, kept)
    about = safe[..., None, None] * shift[..., None] * shift[..., None, :]
    scatter = public.second * mask[:, None] * mask / some - about
    # Before any round of cells: what cells of a Gaussian would have.
    guess = public.within * public.scatter[:, None, None] * stretch[:, :, None] * stretch[:, None]
    scatter = jnp.where(rounds > 0, scatter, safe[..., None, None] * guess[:, None])

    def cut(cells: int, size: Array) -> Array:
        return s.trust * edge(kept, n_second * math.sqrt(cells) / size)

    of_class, in_class = scatter.sum(1), safe.sum(1)
    overall = positive(shrink(of_class.sum(0) / in_class.sum(),
                              cut(s.classes * s.cells, in_class.sum())))

    def towards(parent: Array, total: Array, cells: int, size: Array) -> Array:
        return positive(parent + shrink(total / size - parent, cut(cells, size)))

    def one_class(totals: Array, total: Array, sizes: Array, size: Array) -> Array:
        parent = towards(overall, total, s.cells, size)
        return jax.vmap(lambda t, n: root(towards(parent, t, 1, n)))(totals, sizes)

    roots = jax.vmap(one_class)(scatter, of_class, safe, in_class)
    back = _inverse(stretch)
    floor = s.prune * jnp.mean(jnp.maximum(count, 0), 1, keepdims=True)
    weight = jnp.where(count >= floor, jnp.maximum(count, 0), 0)
    weight = jnp.where(weight.sum(1, keepdims=True) > 0, weight, 1.0)
    dropped = (weight == 0)[..., None]
    means = public.centres + jnp.where(dropped, 0, shift) * back[:, None]
    return means, roots * back[:, None, :, None], weight


def _inverse(stretch: Array) -> Array:
    """1 over entries that are not 0."""
    return jnp.where(stretch > 0, 1 / jnp.where(stretch > 0, stretch, 1), 0)
