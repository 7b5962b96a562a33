"""Gaussians of each class from noisy sums: estimates, a classifier, and images.

Only `classifier_gradient` reads a record: it is an answer, which the mechanism bounds. Everything
else is public, a function of released values and public keys.

Means and covariances are estimated through noise. The eigenvalues of a symmetric [k, k] matrix of
noise, of standard deviation s off its diagonal, lie within 2 sqrt(k) s by the semicircle law
(Wigner 1958). Eigenvalues of a noisy covariance below that edge could be pure noise and are cut;
those above are reduced by what the noise adds to them (Benaych-Georges and Nadakuditi, Advances in
Mathematics 2011).

A linear classifier selects the samples of a mixture. Where classes look alike, as shirts and
pullovers do, Gaussians put the border between them in the wrong place, while the same budget draws
it well in a classifier: logistic regression on oriented gradients, by Newton's method. It starts on
images of the mixture, from which the curvature of the loss is measured too. Both are public, so
only a few gradients are needed of the records, each a noisy sum (`classifier_gradient`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dpgen_jax.aggregation.moments import Sums
from dpgen_jax.core.types import Array, ImageSpec, PyTree, Records
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.nets.frequencies import n_features, oriented, restored
from dpgen_jax.nets.image import WARP_ENTRIES, affine


def edge(size: Array | int, noise: Array | float) -> Array:
    """Returns the largest eigenvalue of a symmetric matrix of noise.

    Args:
        size: k, rows of the matrix.
        noise: Standard deviation of an entry off the diagonal.
    """
    return 2 * jnp.sqrt(jnp.asarray(size, jnp.float32)) * noise


def shrink(matrix: Array, below: Array) -> Array:
    """Returns a noisy symmetric matrix without the eigenvalues that could be pure noise.

    Args:
        matrix: float32 [k, k].
        below: The edge of the noise; eigenvalues w become sign(w) sqrt(w^2 - edge^2), or 0.
    """
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    kept = jnp.sign(values) * jnp.sqrt(jnp.maximum(values**2 - below**2, 0))
    return (vectors * kept) @ vectors.T


def positive(matrix: Array) -> Array:
    """Returns the positive semi-definite matrix that is nearest to a matrix float32 [k, k]."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.maximum(values, 0)) @ vectors.T


def root(matrix: Array) -> Array:
    """Returns R, where R R^T is the nearest positive semi-definite matrix: float32 [k, k]."""
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))


def towards_zero(vectors: Array, noise: Array, size: Array | int) -> Array:
    """Returns noisy vectors, each shortened by the length of pure noise.

    Source: James and Stein, "Estimation with Quadratic Loss" (1961), with the positive part.

    Args:
        vectors: float32 [..., k].
        noise: float32 [...], standard deviation of an entry.
        size: Entries that are no padding.
    """
    squares = jnp.sum(vectors**2, -1)
    share = 1 - jnp.maximum(size - 2.0, 1.0) * noise**2 / jnp.maximum(squares, 1e-30)
    return vectors * jnp.maximum(share, 0)[..., None]


def quantiles(shares: Array, levels: int) -> Array:
    """Returns where a noisy histogram of [0, 1] has its quantiles: float32 [Q], rising.

    The cumulative sum of noisy shares is made to rise, which costs less than to cut each share at
    0. The mass of the first bin lies at 0 and that of the last at 1: background and full ink.

    Args:
        shares: float32 [T], noisy.
        levels: Q quantiles, at (i + 1/2) / Q.
    """
    bins = len(shares)
    total = jnp.clip(jax.lax.cummax(jnp.cumsum(shares)), 0, 1)
    total = jnp.concatenate([jnp.zeros(1), total.at[-1].set(1.0)])
    at = jnp.arange(bins + 1) / bins
    levels_at = (jnp.arange(levels) + 0.5) / levels
    inner = jnp.interp(levels_at, total + 1e-6 * jnp.arange(bins + 1), at)
    inner = jnp.where(levels_at <= total[1], 0.0, inner)
    return jnp.where(levels_at > total[-2], 1.0, inner)


def kmeans(key: Array, points: Array, count: int, rounds: int = 20) -> Array:
    """Returns the centres of k-means with Lloyd's iterations, started by k-means++.

    Source: Arthur and Vassilvitskii, "k-means++" (SODA 2007).

    Args:
        points: float32 [n, k], public.

    Returns:
        float32 [count, k].
    """
    def seed(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        centres, nearest = carry
        chosen = jax.random.categorical(jax.random.fold_in(key, i), jnp.log(nearest + 1e-30))
        centres = centres.at[i].set(points[chosen])
        return centres, jnp.minimum(nearest, jnp.sum((points - points[chosen])**2, 1))

    def lloyd(_: Array, centres: Array) -> Array:
        of_cell = jax.nn.one_hot(nearest_centre(points, centres), count)
        sums, sizes = of_cell.T @ points, of_cell.sum(0)[:, None]
        return jnp.where(sizes > 0, sums / jnp.maximum(sizes, 1), centres)

    start = jnp.zeros((count, points.shape[1])), jnp.ones(len(points))
    centres = jax.lax.fori_loop(0, count, seed, start)[0]
    return jax.lax.fori_loop(0, rounds, lloyd, centres)


def nearest_centre(points: Array, centres: Array) -> Array:
    """Returns int [n], the centre [count, k] that is nearest to each point [n, k]."""
    return jnp.argmin(jnp.sum(centres**2, 1) - 2 * points @ centres.T, 1)


SAMPLES = 5000
"""Images of the mixture that the classifier starts on, and that curvature is measured on."""
MOST_NUMBERS = 10**6
"""Numbers of the images that are made at once, at most."""
START_STEPS, START_DAMPING = 12, 1e-4
"""Newton steps on public images, and what is added to the diagonal of their Hessians."""
START_RATE, RATE = 0.5, 0.7
"""The parts of a Newton step that are taken, on public images and at first on noisy gradients."""
LEAST_DAMPING = 1e-4
"""The least that is added to the diagonal at noisy gradients; else it is their noise."""
CANDIDATES = 4
"""Samples for each label, of which one is kept."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Classifier:
    """The classifier so far: a function of only released values and public keys.

    Attributes:
        rounds: int32 [], noisy gradients so far.
        mean: float32 [F], of the features of the mixture's images.
        weights: float32 [F, C].
    """

    rounds: Array
    mean: Array
    weights: Array


def no_classifier(spec: ImageSpec) -> Classifier:
    """Returns a classifier before its start: all arrays are zeros."""
    weights = jnp.zeros((n_features(spec), spec.classes))
    return Classifier(jnp.zeros((), jnp.int32), weights[:, 0], weights)


def classifier_calls(spec: ImageSpec) -> tuple[int, int]:
    """Returns how many public images are made at once, and how often."""
    at_once = max(1, min(SAMPLES, MOST_NUMBERS // math.prod(spec.shape)))
    return at_once, -(-SAMPLES // at_once)


def started_classifier(spec: ImageSpec, raw: Array, labels: Array) -> Classifier:
    """Returns the classifier of public images.

    Args:
        raw: float32 [N, F], the features of images of the mixture.
        labels: int32 [N].
    """
    empty, mean = no_classifier(spec), raw.mean(0)
    at, target = _placed(raw, mean), jax.nn.one_hot(labels, spec.classes)

    def step(_: int, weights: Array) -> Array:
        wrong = jax.nn.softmax(at @ weights) - target
        gradient = at.T @ wrong / len(at) + START_DAMPING * weights
        return weights - START_RATE * _solved(at, weights, gradient, START_DAMPING)

    weights = jax.lax.fori_loop(0, START_STEPS, step, empty.weights)
    return dataclasses.replace(empty, mean=mean, weights=weights)


def classifier_gradient(spec: ImageSpec, key: Array, unit: Array, records: Records,
                        query: Classifier) -> Array:
    """Answers with a record's gradient, of norm 1 at most: [1, 1 + F C], in block 0.

    The features have norm 1, and the error of the classifier is shortened to norm 1.
    """
    del key, unit
    at = _placed(oriented(values(records, spec)[:1].reshape(1, *spec.shape)), query.mean)[0]
    wrong = jax.nn.softmax(at @ query.weights) - jax.nn.one_hot(records.y[0], spec.classes)
    wrong = wrong / jnp.maximum(jnp.linalg.norm(wrong), 1)
    return jnp.concatenate([jnp.zeros(1), jnp.outer(at, wrong).reshape(-1)])[None]


def moved_classifier(query: Classifier, raw: Array, mean_gradient: Array, noise: float, rounds: int
                     ) -> Classifier:
    """Returns the classifier after a Newton step; steps grow shorter, so that noise averages out.

    Args:
        query: The classifier before it, at which the gradients are.
        raw: float32 [N, F], features of images of the mixture, for the curvature.
        mean_gradient: float32 [F C], noisy.
        noise: Standard deviation of an entry of it, by which the curvature is damped.
        rounds: Noisy gradients in all; after them no step is taken.
    """
    rate = RATE * jnp.maximum(1 - query.rounds / rounds, 0)
    step = _solved(_placed(raw, query.mean), query.weights,
                   mean_gradient.reshape(query.weights.shape), max(noise, LEAST_DAMPING))
    return dataclasses.replace(query, rounds=query.rounds + 1, weights=query.weights - rate * step)


def kept_samples(mean: Array, weights: Array, key: Array, labels: Array,
                 draw: Callable[[Array, Array], Array]) -> Array:
    """Samples some images for each label, and keeps one that is classified as it.

    Args:
        mean: float32 [F].
        weights: float32 [F, C].
        labels: int32 [N].
        draw: From a key and labels to images.

    Returns:
        float32 [N, H, W, ch]: of each label the first image that is classified so, or where none
        is, the one that is most like it.
    """
    wanted = jax.nn.one_hot(labels, weights.shape[1], dtype=bool)

    def better(i: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        images = draw(jax.random.fold_in(key, i), labels)
        logits = _placed(oriented(images), mean) @ weights
        ahead = (jnp.max(jnp.where(wanted, logits, -jnp.inf), 1)
                 - jnp.max(jnp.where(wanted, -jnp.inf, logits), 1))
        ahead = jnp.minimum(ahead, 0)  # all that are classified so are alike
        taken = ((ahead > best[1]) | (i == 0))[:, None, None, None]
        return jnp.where(taken, images, best[0]), jnp.maximum(ahead, best[1])

    like = jax.eval_shape(draw, key, labels)
    nothing_yet = jnp.zeros(like.shape, like.dtype), jnp.full(len(labels), -jnp.inf)
    return jax.lax.fori_loop(0, CANDIDATES, better, nothing_yet)[0]


def _placed(raw: Array, mean: Array) -> Array:
    """Returns features [N, F] about the mean, of norm 1."""
    about = raw - mean
    return about / jnp.maximum(jnp.linalg.norm(about, axis=-1, keepdims=True), 1e-6)


def _solved(at: Array, weights: Array, gradient: Array, damping: float) -> Array:
    """Returns the Newton step [F, C] of a gradient, class by class, by curvature at features."""
    likely = jax.nn.softmax(at @ weights)

    def one(slope: Array, column: Array) -> Array:
        curved = (at * slope[:, None]).T @ at / len(at) + damping * jnp.eye(at.shape[1])
        return jax.scipy.linalg.solve(curved, column, assume_a="pos")

    return jax.lax.map(lambda pair: one(*pair), ((likely * (1 - likely)).T, gradient.T)).T


POINTS_PER_CLASS = 1500
"""Points of a class on which its cells are found."""
LEAST = 4
"""Directions that are kept whatever the noise."""
ENERGY = 0.3
"""The factor of the square of a length relative to the vector itself."""
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
        means: Rounds that release only means of cells.
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
    """The public state: a function of only released values and public keys.

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
    """Returns the public state before the first round."""
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
    """Returns the class shares, shrunk towards uniform by the noise."""
    mean = jnp.maximum(jnp.mean(count), 1e-6)
    real = jnp.maximum(jnp.var(count) - noise**2, 0)
    leaning = mean + (count - mean) * real / (real + noise**2 + 1e-9)
    share = jnp.maximum(leaning, 1e-3 * mean)
    return share / share.sum()


def _safe(s: Sizes, count: Array, noise: Noise) -> Array:
    """Returns counts of classes by which sums may be divided."""
    return jnp.maximum(count, max(3 * noise[1], 0.02 * s.records / s.classes, 1.0))


def _sizes(energy: Array, noise: Array) -> Array:
    """Returns the relative sizes of the classes' mean squares, [C]; 1 where all is noise."""
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
    kept = public.spectrum > 0  # other directions have only noise
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
    # Directions that are not kept have only noise.
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


KNOTS = 512
"""Quantiles by which shades are set."""


def toned(s: Sizes, key: Array, public: Public, parts: tuple[Array, Array, Array],
          spec: ImageSpec, shade_noise: float) -> PyTree:
    """Returns the model: the mixture of frequencies, and the map of shades.

    Intensities of sampled images get the released histogram: `raw` are quantiles of what is sampled
    and `shade` of what was released. A histogram that is mostly noise is left out.

    Args:
        public: After the last round.
        parts: As `mixture` returns them.
        shade_noise: Standard deviation of the noise of a sum of shares.
    """
    means, roots, weight = parts
    model = {"centre": s.norm * public.centre, "basis": s.norm * public.basis, "mean": means,
             "root": roots, "weight": weight, "share": public.size}
    k_labels, k_draw = jax.random.split(key)
    n = int(np.clip(10**6 // math.prod(spec.shape), 100, 1500))
    labels = jax.random.choice(k_labels, s.classes, (n,), p=public.size)
    ranked = jnp.sort(unshaded(s, model, k_draw, labels, spec).reshape(-1))
    at = ((np.arange(KNOTS) + 0.5) / KNOTS * ranked.shape[0]).astype(np.int32)
    raw = ranked[at]
    known = shade_noise * math.sqrt(s.shades) < 0.15 * s.records
    shade = quantiles(public.shades, KNOTS) if known else jnp.clip(raw, 0, 1)
    return model | {"raw": raw, "shade": shade}


def unshaded(s: Sizes, model: PyTree, key: Array, labels: Array, spec: ImageSpec) -> Array:
    """Draws images [N, H, W, ch] of the mixture, before their shades are set."""
    return s.grey + restored(low(model, key, labels), spec, s.frequencies)


def low(model: PyTree, key: Array, labels: Array) -> Array:
    """Draws the frequencies [N, M] of images."""
    k_cell, k_place = jax.random.split(key)
    cell = jax.random.categorical(k_cell, jnp.log(model["weight"][labels]))
    normal = jax.random.normal(k_place, (len(labels), model["basis"].shape[1]))
    place = model["mean"][labels, cell] + jnp.einsum("nij,nj->ni", model["root"][labels, cell],
                                                     normal)
    return model["centre"] + place @ model["basis"].T


def sample_images(s: Sizes, model: PyTree, key: Array, labels: Array, spec: ImageSpec, warp: float
                  ) -> Array:
    """Draws images: float32 [N, H, W, ch] in [0, 1].

    Args:
        model: As `toned` returns it.
        labels: int32 [N].
    """
    k_draw, k_warp = jax.random.split(key)
    images = jnp.interp(unshaded(s, model, k_draw, labels, spec), model["raw"], model["shade"])
    if warp:
        entries = jax.random.uniform(k_warp, (len(labels), WARP_ENTRIES), minval=-warp, maxval=warp)
        images = affine(images, entries, "nearest" if s.grey else "constant")
    return jnp.clip(images, 0, 1)
