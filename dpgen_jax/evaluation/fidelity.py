"""How near synthetic images are to real ones: distances between clouds of features.

Generated images are compared with HELD-OUT real ones. The literature compares with the training
images, which rewards a generator that repeats them; under a privacy guarantee that would be a fault
and not a merit. Each score has a `floor` beside it: the same score of real training images in the
generated ones' place and number, which is what a perfect generator would get.

The features are those of a classifier trained on real images of the data set (`judge`), because
Inception-v3 knows photographs, and not digits; with a file of its weights the usual FID is
measured too. All scores are computed from real images: epsilon covers none of them.
Features are float [n, d]; sums are in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import rel_entr

from dpgen_jax.evaluation.judge import Judge
from dpgen_jax.evaluation.scores import Images, Synthetic, checked, draw, summary
from dpgen_jax.types import UserError

NEIGHBOURS = 5
NEIGHBOUR_IMAGES = 10_000
"""Most images of a part that precision, recall, density and coverage look at."""
INCEPTION_IMAGES = 2_500
"""Images of a part that pass Inception, for which a CPU needs minutes."""
CHUNK = 1_000
"""Rows at once: 1,000 x 10,000 distances take 80 MB."""

Moments = tuple[np.ndarray, np.ndarray]
Features = Callable[[np.ndarray], np.ndarray]


def inception_score(probabilities: np.ndarray) -> float:
    """exp of the mean of KL(p(y|x) || p(y)), p(y) being the mean: from 1 to the number of classes.

    probabilities [n, classes], rows summing to 1. Source: Salimans et al., NeurIPS 2016. All images
    are one split: the customary ten show a spread that the seeds show here, and smaller splits
    lower the score.
    """
    p = np.asarray(probabilities, np.float64)
    return float(np.exp(rel_entr(p, p.mean(0)).sum(1).mean()))


def moments(features: np.ndarray) -> Moments:
    """Mean [d] and covariance [d, d] (of a sample, n - 1). Errors: UserError for n < 2."""
    if len(features) < 2:
        raise UserError(f"{len(features)} images have no covariance; at least 2 needed")
    mean = np.mean(features, 0, dtype=np.float64)
    total = sum((rows - mean).T @ (rows - mean) for rows in _chunks(features))
    return mean, total / (len(features) - 1)


def frechet_distance(a: Moments, b: Moments) -> float:
    """|m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2): the squared Wasserstein-2 distance of
    the Gaussians with these means [d] and covariances [d, d], which may be singular.

    Source: Heusel et al., NeurIPS 2017, after Dowson and Landau 1982. The trace of the root is
    the sum of the singular values of S1^1/2 S2^1/2, which needs no root of a rounded product.
    """
    (mean_a, cov_a), (mean_b, cov_b) = a, b
    cross = np.linalg.svd(_root(cov_a) @ _root(cov_b), compute_uv=False).sum()
    distance = np.sum((mean_a - mean_b)**2) + np.trace(cov_a) + np.trace(cov_b) - 2 * cross
    return max(0.0, float(distance))


def _root(cov: np.ndarray) -> np.ndarray:
    """The symmetric square root; what rounding made negative counts as 0."""
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def neighbour_scores(real: np.ndarray, fake: np.ndarray, k: int = NEIGHBOURS) -> dict[str, float]:
    """{"precision", "recall", "density", "coverage"} of fake [m, d] against real [n, d].

    Each point has a closed ball, as large as the distance to its k-th neighbour among its own kind.
    precision: share of fakes in some real ball; recall: share of reals in some fake ball
    (Kynkaanniemi et al., NeurIPS 2019); density: real balls around a fake, over k, about 1 for
    fakes like the reals and (k + 1) / k for exact copies; coverage: share of reals with a fake in
    their ball (Naeem et al., ICML 2020). Errors: UserError unless n and m exceed k.
    """
    middle = real.mean(0, dtype=np.float64)  # distances do not change, and lose fewer digits
    real, fake = real - middle, fake - middle
    real_radii, fake_radii = _radii(real, k), _radii(fake, k)
    in_fake_ball, covered = np.zeros(len(real), bool), np.zeros(len(real), bool)
    around = np.zeros(len(fake), int)
    for i, distances in enumerate(_distances(real, fake)):
        rows = slice(i * CHUNK, i * CHUNK + len(distances))
        inside = distances <= real_radii[rows, None]
        around += inside.sum(0)
        covered[rows] = inside.any(1)
        in_fake_ball[rows] = (distances <= fake_radii).any(1)
    return {"precision": float(np.mean(around > 0)), "recall": float(in_fake_ball.mean()),
            "density": float(around.mean() / k), "coverage": float(covered.mean())}


def _radii(x: np.ndarray, k: int) -> np.ndarray:
    """Squared radius of each ball, with room for the rounding of `_distances`."""
    if len(x) <= k:
        raise UserError(f"{len(x)} images; more than {k} needed for {k} neighbours")
    # A point is its own nearest one, so that the k-th neighbour has place k.
    radii = np.concatenate([np.partition(d, k, axis=1)[:, k] for d in _distances(x, x)])
    return radii + 1e-12 * np.max(np.sum(x * x, 1))


def _distances(a: np.ndarray, b: np.ndarray) -> Iterator[np.ndarray]:
    """Squared distances of float64 points [n, d] and [m, d], in pieces [CHUNK or fewer, m]."""
    squares = np.sum(b * b, 1)
    for rows in _chunks(a):
        d = rows @ (-2 * b.T)
        d += squares + np.sum(rows * rows, 1)[:, None]
        yield np.maximum(d, 0, out=d)


def _chunks(x: np.ndarray) -> Iterator[np.ndarray]:
    return (x[i:i + CHUNK].astype(np.float64) for i in range(0, len(x), CHUNK))


def _some(x: np.ndarray, n: int) -> np.ndarray:
    """n random rows, or all in their order: images may be sorted by class or difficulty."""
    return x if n >= len(x) else x[np.random.default_rng(0).permutation(len(x))[:n]]


def fidelity(synthetic: Synthetic, test: Images, real: Images | None, judge: Judge, seeds: int = 3,
             *, inception: Features | None = None, n_samples: int = 10_000,
             n_inception: int = INCEPTION_IMAGES, say: Callable[[str], None] = lambda _: None
             ) -> dict[str, Any]:
    """What metrics.json says of the fidelity of images.

    synthetic: arrays, all of which are used, or a function, which draws `n_samples` new images for
    each seed; test: real images that are in no training set; real: training images for the floors;
    None: no floors. Of both as many are used as there are synthetic ones and no more, because a
    Frechet distance falls with the number of images. The judge was trained on `real`, which raises
    the floors a little. inception: images [n, H, W, ch] -> features, such as
    `inception.features`, on at most `n_inception` images of each part. say: gets progress.

    Returns `fidelity`: {inception_score, fid_features, precision, recall, density, coverage, and
    with `inception` fid: each a `summary` over the seeds and a floor (a number or None)}, `judge`
    (see `Judge.info`), and `samples`, the number of images behind the scores; and
    `not_covered_by_epsilon`, its keys. Errors: UserError for images that are malformed or not
    finite, of another shape than the test images, or too few for the neighbours.
    """
    if seeds < 1:
        raise UserError(f"seeds must be at least 1, got {seeds}")
    x_test, _ = checked("test", *test, at_least=NEIGHBOURS + 1)
    n_samples = n_samples if callable(synthetic) else len(synthetic[1])
    x_test = _some(x_test, n_samples)
    compare = _comparison(x_test, judge, inception, n_inception)
    found = []
    for seed in range(seeds):
        say(f"fidelity: seed {seed + 1} of {seeds}")
        found.append(compare("synthetic", draw(synthetic, n_samples, seed)))
    floor = {}
    if real is not None:
        say("fidelity: real images against real ones")
        floor = compare("real", tuple(_some(np.asarray(a), n_samples) for a in real))
    scores = {name: summary([one[name] for one in found]) | {"floor": floor.get(name)}
              for name in found[0]}
    n_pairs, n_real = min(n_samples, len(x_test)), 0 if real is None else len(real[1])
    samples = {"synthetic": n_samples, "test": len(x_test), "real": min(n_samples, n_real),
               "neighbours": min(NEIGHBOUR_IMAGES, n_pairs), "k": NEIGHBOURS,
               "inception": min(n_inception, n_pairs) if inception else None}
    return {"fidelity": scores | {"judge": judge.info(), "samples": samples},
            "not_covered_by_epsilon": [f"fidelity.{name}" for name in (*scores, "judge")]}


def _comparison(x_test: np.ndarray, judge: Judge, inception: Features | None, n_inception: int
                ) -> Callable[[str, Images], dict[str, float]]:
    """A function that scores images against the test images, which are looked at once."""
    seen_test, _ = judge.see(x_test)
    test_moments = moments(seen_test)
    pool_moments = moments(inception(_some(x_test, n_inception))) if inception else None

    def compare(part: str, images: Images) -> dict[str, float]:
        x, _ = checked(part, *images, at_least=NEIGHBOURS + 1)
        if x.shape[1:] != x_test.shape[1:]:
            raise UserError(f"{part} images are {x.shape[1:]}, test images {x_test.shape[1:]}; "
                            "both need the same height, width and channels")
        seen, probabilities = judge.see(x)
        near = min(NEIGHBOUR_IMAGES, len(x), len(x_test))
        scores = {"inception_score": inception_score(probabilities),
                  "fid_features": frechet_distance(moments(seen), test_moments)}
        scores |= neighbour_scores(_some(seen_test, near), _some(seen, near))
        if inception:
            pool = moments(inception(_some(x, n_inception)))
            scores["fid"] = frechet_distance(pool, pool_moments)
        return scores

    return compare
