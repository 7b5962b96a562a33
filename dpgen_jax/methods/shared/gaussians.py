"""Gaussians of each class from noisy sums: what `mixture` makes of its releases. All is public."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.moments import Sums
from dpgen_jax.core.types import Array, ImageSpec, PyTree
from dpgen_jax.nets.noisy_moments import (
    edge,
    kmeans,
    positive,
    quantiles,
    root,
    shrink,
    towards_zero,
)
from dpgen_jax.nets.warp import ENTRIES, affine

POINTS_PER_CLASS = 1500
"""Points of a class on which its cells are found."""
KNOTS = 512
"""Quantiles by which shades are set."""
LEAST = 4
"""Directions that are kept whatever the noise."""
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
        norm: Longest image that counts in full.
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
    means: int
    whitening: float
    trust: float
    prune: float


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of released values and public keys alone.

    Attributes:
        step: int32 [], rounds so far.
        shades: float32 [T], noisy shares.
        centre: float32 [M].
        basis: float32 [M, k]; columns that are not kept are 0.
        spectrum: float32 [k], variances in the basis; 0 where not kept.
        size: float32 [C], shares of the classes.
        within: float32 [k, k], the covariance within classes.
        centres: float32 [C, K, k].
        count: float32 [C, K], summed over rounds, as the two below.
        first: float32 [C, K, k].
        second: float32 [C, K, k, k].
    """

    step: Array
    shades: Array
    centre: Array
    basis: Array
    spectrum: Array
    size: Array
    within: Array
    centres: Array
    count: Array
    first: Array
    second: Array


def nothing(s: Sizes) -> Public:
    """Returns the public state before the first round."""
    c, cells, k = s.classes, s.cells, s.dimensions
    shapes = ((s.shades,), (s.length,), (s.length, k), (k,), (c,), (k, k), (c, cells, k),
              (c, cells), (c, cells, k), (c, cells, k, k))
    return Public(jnp.zeros((), jnp.int32), *(jnp.zeros(shape) for shape in shapes))


def begun(s: Sizes, key: Array, public: Public, sums: Sums, noise: Noise) -> Public:
    """Returns the state after the first round: centre, basis, classes, and their first cells."""
    n = s.records
    least = max(3 * noise[1], 0.02 * n / s.classes, 1.0)
    safe = jnp.maximum(sums.count, least)
    share = jnp.maximum(sums.count, 0) + 1e-6 * n
    share = share / share.sum()
    centre = sums.first.sum(0) / n
    values, vectors = jnp.linalg.eigh(sums.second[0] / n - jnp.outer(centre, centre))
    values, vectors = values[::-1][:s.dimensions], vectors[:, ::-1][:, :s.dimensions]
    below = s.trust * edge(s.length, noise[3] / n)
    kept = (values > below) | (jnp.arange(s.dimensions) < LEAST)
    spectrum = jnp.sqrt(jnp.maximum(values**2 - below**2, (0.05 * below + 1e-6)**2))
    spectrum, basis = jnp.where(kept, spectrum, 0), jnp.where(kept, vectors, 0)
    means = towards_zero((sums.first / safe[:, None] - centre) @ basis, noise[2] / safe, kept.sum())
    within = positive(jnp.diag(spectrum) - (share[:, None] * means).T @ means)
    k_points, k_cells = jax.random.split(key)
    points = jax.random.normal(k_points, (s.classes, POINTS_PER_CLASS, s.dimensions))
    points = points @ root(within).T
    centres = jax.vmap(lambda k, x: kmeans(k, x, s.cells))(
        jax.random.split(k_cells, s.classes), means[:, None] + points)
    return dataclasses.replace(
        public, step=public.step + 1, shades=sums.shades / n, centre=centre, basis=basis,
        spectrum=spectrum, size=share, within=within, centres=centres)


def scale(s: Sizes, public: Public, white: float) -> Array:
    """Returns what a record's distance to its cell's centre is multiplied by, [k].

    It then has a length that is seldom above 1.

    Args:
        s: The sizes.
        public: After the first round.
        white: Power of the variance by which a direction is divided.
    """
    kept = public.spectrum > 0
    stretch = jnp.where(kept, jnp.where(kept, public.spectrum, 1) ** -white, 0)
    radius = 0.9 * jnp.sqrt(jnp.sum(jnp.diag(public.within) * stretch**2))
    return stretch / jnp.maximum(radius, 1e-6)


def moved(s: Sizes, public: Public, sums: Sums, noise: Noise, stretch: Array) -> Public:
    """Returns the state after a round of means: each cell's centre is where its records are."""
    safe = jnp.maximum(sums.count, max(2 * noise[1], s.records / (6 * s.classes * s.cells)))
    kept = public.spectrum > 0  # in other directions there is noise alone
    shift = towards_zero(sums.first * kept / safe[:, None], noise[2] / safe, kept.sum())
    shift = shift.reshape(public.centres.shape) * _inverse(stretch)
    return dataclasses.replace(public, step=public.step + 1, centres=public.centres + shift)


def added(public: Public, sums: Sums) -> Public:
    """Returns the state after a round of cells."""
    return dataclasses.replace(
        public, step=public.step + 1,
        count=public.count + sums.count.reshape(public.count.shape),
        first=public.first + sums.first.reshape(public.first.shape),
        second=public.second + sums.second.reshape(public.second.shape))


def mixture(s: Sizes, public: Public, noise: Noise) -> tuple[Array, Array, Array]:
    """Returns means [C, K, k], roots of covariances [C, K, k, k] and weights [C, K].

    A covariance is that of all cells, moved towards that of its class's and then towards its own,
    each by what stands out of the noise.
    """
    rounds = jnp.maximum(public.step - 1 - s.means, 0)
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
    # Before any round of cells: what is left within a class, taken to be two thirds within cells.
    guess = public.within * stretch[:, None] * stretch * 2 / 3
    scatter = jnp.where(rounds > 0, scatter, safe[..., None, None] * guess)

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
    means = public.centres + jnp.where(dropped, 0, shift) * back
    return means, roots * back[:, None], weight


def _inverse(stretch: Array) -> Array:
    """1 over entries that are not 0."""
    return jnp.where(stretch > 0, 1 / jnp.where(stretch > 0, stretch, 1), 0)


def toned(s: Sizes, key: Array, public: Public, parts: tuple[Array, Array, Array],
          basis: np.ndarray, shade_noise: float) -> PyTree:
    """Returns the model: the mixture in pixels, and the map of shades.

    Intensities of sampled images get the released histogram: `raw` are quantiles of what is sampled
    and `shade` of what was released. A histogram that is mostly noise is left out.

    Args:
        s: The sizes.
        key: Random key of the draw that `raw` is read off.
        public: After the last round.
        parts: As `mixture` returns them.
        basis: [P, M], from frequencies to pixels.
        shade_noise: Standard deviation of the noise of a sum of shares.
    """
    means, roots, weight = parts
    model = {"centre": s.grey + s.norm * (basis @ public.centre),
             "basis": s.norm * (basis @ public.basis), "mean": means, "root": roots,
             "weight": weight}
    k_labels, k_draw = jax.random.split(key)
    n = int(np.clip(10**6 // len(basis), 100, 1500))
    labels = jax.random.choice(k_labels, s.classes, (n,), p=public.size)
    ranked = jnp.sort(unshaded(model, k_draw, labels).reshape(-1))
    at = ((np.arange(KNOTS) + 0.5) / KNOTS * ranked.shape[0]).astype(np.int32)
    raw = ranked[at]
    known = shade_noise * math.sqrt(s.shades) < 0.15 * s.records
    shade = quantiles(public.shades, KNOTS) if known else jnp.clip(raw, 0, 1)
    return model | {"raw": raw, "shade": shade}


def unshaded(model: PyTree, key: Array, labels: Array) -> Array:
    """Draws images [N, P] of the mixture, before their shades are set."""
    k_cell, k_place = jax.random.split(key)
    cell = jax.random.categorical(k_cell, jnp.log(model["weight"][labels]))
    normal = jax.random.normal(k_place, (len(labels), model["basis"].shape[1]))
    place = model["mean"][labels, cell] + jnp.einsum("nij,nj->ni", model["root"][labels, cell],
                                                     normal)
    return model["centre"] + place @ model["basis"].T


def sample(model: PyTree, key: Array, labels: Array, spec: ImageSpec, warp: float) -> Array:
    """Draws images.

    Args:
        model: As `toned` returns it.
        key: Random key.
        labels: int32 [N].
        spec: The schema of the images.
        warp: As in `mixture.Config`.

    Returns:
        float32 [N, H, W, ch] in [0, 1].
    """
    k_draw, k_warp = jax.random.split(key)
    images = jnp.interp(unshaded(model, k_draw, labels), model["raw"], model["shade"])
    images = images.reshape(len(labels), *spec.shape)
    if warp:
        entries = jax.random.uniform(k_warp, (len(labels), ENTRIES), minval=-warp, maxval=warp)
        images = affine(images, entries)
    return jnp.clip(images, 0, 1)
