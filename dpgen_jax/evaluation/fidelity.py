"""Fidelity of synthetic images: distances between features of a judge.

All scores are computed from real images, so epsilon covers none of them. Features are float [n, d];
sums are in float64.

The judge is a classifier that was trained on real images of the data set; its features and outputs
are compared. Inception-v3 would be no better judge, because it was trained on photographs and not
on digits; with a file of its weights the usual FID is measured too. The judge is not a release: it
has seen real images, and epsilon covers none of its outputs. It has three 3x3 convolutions, each
followed by max-pooling by two and a normalisation, and one hidden layer, which gives the features.
It is written for CPUs: small maps early, and convolutions as matrix products.

Generated images are compared with HELD-OUT real ones. The literature compares with the training
images, which rewards a generator that repeats them; under a privacy guarantee that would be a fault
and not a merit. Each score has a `floor`: the same score of as many real training images in the
place of the generated ones, which is what a perfect generator would get.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import rel_entr, softmax

from dpgen_jax.core.files import Json
from dpgen_jax.core.types import Array, PyTree, UserError
from dpgen_jax.evaluation.networks import Schedule, fit_classifier, predict
from dpgen_jax.evaluation.results import (
    Finding,
    Log,
    Part,
    Real,
    Records,
    Score,
    Setting,
    Synthetic,
    checked,
    silent,
)
from dpgen_jax.nets.classifiers import max_pool
from dpgen_jax.nets.convolution import convolve3

FEATURES = 128
WIDTHS = (32, 48, 96)
SHIFT = 1
"""The most pixels by which a training image is moved along each axis.

Moving suits digits and clothing alike; a mirror image may be of another class.
"""
MIN_SIDE = 2 ** len(WIDTHS)


@dataclasses.dataclass(frozen=True)
class Course:
    """How a judge is trained."""

    schedule: Schedule
    images: int | None = None
    """The most real images that it is trained on; None for all."""


SMOOTHING = 0.05
"""Label smoothing in training; `Judge.see` takes it out of the probabilities again."""
FAST = Course(Schedule("judge, fast", epochs=2, min_steps=90, optimiser="muon",
                       learning_rate=0.03, decay="warm", smoothing=SMOOTHING), images=6_000)
FULL = Course(Schedule("judge", epochs=7, min_steps=1000, optimiser="muon", learning_rate=0.03,
                       decay="warm", smoothing=SMOOTHING))
COURSES = {"fast": FAST, "full": FULL}


class Trunk(nn.Module):
    """The judge without its last layer."""

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Compute features float32 [n, FEATURES], never negative, of float images in [0, 1].

        In training each image is moved and features are dropped, by the key 'dropout'. A UserError
        refuses images of fewer than 8 x 8 pixels.
        """
        if min(x.shape[1:3]) < MIN_SIDE:
            raise UserError(f"the judge needs images of at least {MIN_SIDE} x {MIN_SIDE} pixels, "
                            f"got {x.shape[1]} x {x.shape[2]}")
        if train:
            x = shifted(self.make_rng("dropout"), x, SHIFT)
        h = 2 * x - 1
        for width in WIDTHS:
            h = nn.relu(nn.GroupNorm(num_groups=8)(max_pool(Conv(width)(h))))
        h = nn.relu(nn.Dense(FEATURES)(h.reshape(len(h), -1)))
        return nn.Dropout(0.1, deterministic=not train)(h)


class Conv(nn.Module):
    """The 3x3 convolution of `nets.convolution`, with a bias."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Convolve x float [n, H, W, ch] into float [n, H, W, features]."""
        shape = (9 * x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape)
        return convolve3(x, kernel) + self.param("bias", nn.initializers.zeros, shape[-1:])


class Classifier(nn.Module):
    """The trunk and a linear layer."""

    classes: int

    def setup(self) -> None:
        """Create the layers."""
        self.trunk = Trunk()
        self.head = nn.Dense(self.classes)

    def __call__(self, x: Array, train: bool) -> Array:
        """Compute logits float32 [n, classes] of images x float [n, H, W, ch] in [0, 1]."""
        return self.head(self.trunk(x, train))


def shifted(key: Array, x: Array, max_shift: int) -> Array:
    """Move images [n, H, W, ch] at random along both axes, by `max_shift` pixels at most.

    Pixels that come in from outside are black.
    """
    padded = jnp.pad(x, ((0, 0), (max_shift, max_shift), (max_shift, max_shift), (0, 0)))
    starts = jax.random.randint(key, (len(x), 2), 0, 2 * max_shift + 1)
    return jax.vmap(lambda image, start: jax.lax.dynamic_slice(
        image, (*start, 0), x.shape[1:]))(padded, starts)


@dataclasses.dataclass(frozen=True)
class Judge:
    """A trained classifier."""

    params: PyTree
    """The variables of `Classifier`."""
    test_accuracy: float
    """On held-out real images, in [0, 1]."""
    epochs: int
    smoothing: float = 0.0
    """Smoothing of the labels that it learned from."""

    def see(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute features float32 [n, FEATURES] and probabilities float64 [n, classes]."""
        return _see(self.params, x, self.smoothing)

    def info(self) -> Json:
        """Describe the judge, for metrics.json."""
        return {"net": f"3 convolutions ({', '.join(map(str, WIDTHS))}) and {FEATURES} features",
                "test_accuracy": self.test_accuracy, "features": FEATURES, "epochs": self.epochs}


def train_judge(real: Records, test: Records, course: Course = FULL, seed: int = 0,
                log: Log = silent) -> Judge:
    """Train a judge on real training images, and test it on held-out ones.

    The same arguments give the same judge. Its classes are those of both parts. The seed is that of
    the choice of images and of the training.

    Raises:
      UserError: Images or labels are malformed, not finite or out of range; images have two shapes,
        or are smaller than 8 x 8 pixels; or there are too few.
    """
    x, y = checked("training", *real, at_least=2)
    x_test, y_test = checked("test", *test, at_least=1)
    if x.shape[1:] != x_test.shape[1:]:
        raise UserError(f"training images are {x.shape[1:]}, test images {x_test.shape[1:]}; both "
                        "need the same height, width and channels")
    subset = np.random.default_rng(seed).permutation(len(y))[:course.images]
    net, schedule = Classifier(int(max(y.max(), y_test.max())) + 1), course.schedule
    epochs = schedule.epochs_for(net, max(1, len(subset) // schedule.batch))
    log(f"judge: {epochs} epochs of {len(subset)} real images")
    params = fit_classifier(net, x[subset], y[subset], schedule, seed)
    probabilities = _see(params, x_test, schedule.smoothing)[1]
    accuracy = float(np.mean(probabilities.argmax(1) == y_test))
    log(f"judge: accuracy {accuracy:.4f} on {len(y_test)} held-out images")
    return Judge(params, accuracy, epochs, schedule.smoothing)


def _see(params: PyTree, x: np.ndarray, smoothing: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute features and probabilities in one pass; the last layer is linear.

    A network that learned from labels smoothed by s outputs (1 - s) p + s / K where the probability
    is p.
    """
    head = params["params"]["head"]
    features = predict(Trunk(), {"params": params["params"]["trunk"]}, x)
    logits = features.astype(np.float64) @ np.asarray(head["kernel"], np.float64)
    smoothed = softmax(logits + np.asarray(head["bias"], np.float64), 1)
    probabilities = np.maximum(smoothed - smoothing / smoothed.shape[1], 0)
    return features, probabilities / probabilities.sum(1, keepdims=True)


NEIGHBOURS = 5
"""The number k of neighbours that decides the radius of a ball."""
NEIGHBOUR_IMAGES = 10_000
"""The most images of a part from which precision, recall, density and coverage are computed."""
INCEPTION_IMAGES = 2_500
"""The most images of a part that pass Inception in a fast evaluation: a CPU needs minutes."""
CHUNK = 1_000
"""Rows whose distances are computed at once: 1,000 x 10,000 of them take 80 MB."""

Moments = tuple[np.ndarray, np.ndarray]
"""Mean float64 [d] and covariance float64 [d, d]."""
Features = Callable[[np.ndarray], np.ndarray]
"""A function of images [n, H, W, ch] that returns features float [n, d]."""


def inception_score(probabilities: np.ndarray) -> float:
    """Compute the Inception score, exp of the mean of KL(p(y|x) || p(y)), p(y) being the mean.

    All images are one split: the customary ten show a spread that the seeds show here, and smaller
    splits lower the score. Probabilities are float [n, classes]; the score is between 1 and the
    number of classes, higher is better.

    Source:
      Salimans et al., NeurIPS 2016.
    """
    p = np.asarray(probabilities, np.float64)
    return float(np.exp(rel_entr(p, p.mean(0)).sum(1).mean()))


def moments(features: np.ndarray) -> Moments:
    """Compute the mean and the covariance (of a sample, n - 1) of features float [n, d].

    A UserError refuses fewer than 2.
    """
    if len(features) < 2:
        raise UserError(f"{len(features)} images have no covariance; at least 2 needed")
    mean = np.asarray(np.mean(features, 0, dtype=np.float64))
    total = sum((rows - mean).T @ (rows - mean) for rows in _chunks(features))
    return mean, np.asarray(total / (len(features) - 1))


def frechet_distance(a: Moments, b: Moments) -> float:
    """Compute the Frechet distance, the squared Wasserstein-2 distance of two Gaussians.

    It is |m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2); covariances may be singular.

    Source:
      Heusel et al., NeurIPS 2017, after Dowson and Landau 1982.
    """
    (mean_a, cov_a), (mean_b, cov_b) = a, b
    # The trace of the root is the sum of the singular values of S1^1/2 S2^1/2, which needs no root
    # of a product that rounding has made unsymmetric.
    cross = np.linalg.svd(_root(cov_a) @ _root(cov_b), compute_uv=False).sum()
    distance = np.sum((mean_a - mean_b)**2) + np.trace(cov_a) + np.trace(cov_b) - 2 * cross
    return max(0.0, float(distance))


def _root(cov: np.ndarray) -> np.ndarray:
    """Return the symmetric square root; eigenvalues that rounding made negative count as 0."""
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def neighbour_scores(real: np.ndarray, fake: np.ndarray, k: int = NEIGHBOURS) -> dict[str, float]:
    """Compute precision, recall, density and coverage of fakes [m, d] among reals [n, d].

    Each point has a closed ball whose radius is the distance to its k-th neighbour among its own
    kind. precision is the share of fakes in some real ball, recall the share of reals in some fake
    ball; density is the number of real balls around a fake, over k, which is about 1 for fakes like
    the reals and (k + 1) / k for exact copies; coverage is the share of reals with a fake in their
    ball. A UserError refuses n or m that does not exceed k.

    Source:
      Kynkaanniemi et al., NeurIPS 2019 (precision and recall); Naeem et al., ICML 2020 (density and
      coverage).
    """
    middle = real.mean(0, dtype=np.float64)  # centred points lose fewer digits in distances
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
    """Return the squared radius of each ball, with room for the rounding of `_distances`."""
    if len(x) <= k:
        raise UserError(f"{len(x)} images; more than {k} needed for {k} neighbours")
    # A point is its own nearest one, so that its k-th neighbour has index k.
    radii = np.concatenate([np.partition(d, k, axis=1)[:, k] for d in _distances(x, x)])
    return radii + 1e-12 * np.max(np.sum(x * x, 1))


def _distances(a: np.ndarray, b: np.ndarray) -> Iterator[np.ndarray]:
    """Yield squared distances of float64 points [n, d] and [m, d], as [CHUNK or fewer, m]."""
    squares = np.sum(b * b, 1)
    for rows in _chunks(a):
        d = rows @ (-2 * b.T)
        d += squares + np.sum(rows * rows, 1)[:, None]
        yield np.maximum(d, 0, out=d)


def _chunks(x: np.ndarray) -> Iterator[np.ndarray]:
    return (x[i:i + CHUNK].astype(np.float64) for i in range(0, len(x), CHUNK))


def _subset(x: np.ndarray, n: int) -> np.ndarray:
    """Return n random rows, or all in their order: images may be sorted by class."""
    return x if n >= len(x) else x[np.random.default_rng(0).permutation(len(x))[:n]]


@dataclasses.dataclass(frozen=True)
class Inception:
    """The network behind `fid`, and how many images it gets."""

    features: Features
    """A function that returns Inception's features, such as `pretrained.INCEPTION.features`."""
    most_images: int | None = None
    """The most images of each part that it gets; None for all, as the literature has it. The
    Frechet distance of fewer images is larger."""


def likeness(real: Real, synthetic: Synthetic, setting: Setting, features: Features | None = None
             ) -> Part:
    """Measure how close images are to real ones, as a `results.Measure`: see `fidelity`.

    A judge is trained on the real training images. `features` is a function that returns
    Inception's features; without it there is no `fid`.
    """
    full, test = setting.name == "full", real.test
    draws = setting.draws(synthetic, max(setting.compared, len(test[1])) if full
                          else setting.compared)
    judge = train_judge(real.train or test, test, COURSES[setting.name], log=setting.log)
    network = features and Inception(features, None if full else INCEPTION_IMAGES)
    return fidelity(draws, real, judge, network, setting.log)


def fidelity(draws: Sequence[Records], real: Real, judge: Judge,
             inception: Inception | None = None, log: Log = silent) -> Part:
    """Compare synthetic images with held-out real ones.

    Of real images as many are used as a draw has and no more, because a Frechet distance falls with
    the number of images. The judge was trained on real.train, which raises the floors a little.

    Args:
      draws: Synthetic images [n, H, W, ch] and labels, one draw a seed, all of the same length.
      real: Real images; without a training part there are no floors.
      judge: The classifier whose features are compared.
      inception: None for no `fid`.
      log: A function that takes lines of progress.

    Returns:
      Findings ("fidelity", name): inception_score, fid_features, precision, recall, density,
      coverage, and with `inception` fid; without it also ("baselines", "independent", name), the
      same of independent pixels (`_independent`); and the facts `judge` (see `Judge.info`) and
      `samples`, the numbers of images behind the scores.

    Raises:
      UserError: There is no draw; or images are malformed or not finite, of another shape than the
        test images, or too few for the neighbours.
    """
    if not draws:
        raise UserError("seeds must be at least 1, got 0")
    n_samples = len(draws[0][1])
    x_test, _ = checked("test", *real.test, at_least=NEIGHBOURS + 1)
    x_test = _subset(x_test, n_samples)
    n_pairs = min(n_samples, len(x_test))
    most = inception.most_images if inception else None
    n_inception = n_pairs if most is None else min(most, n_pairs)
    compare = _comparison(x_test, judge, inception.features if inception else None, n_inception)
    by_draw = []
    for i, images in enumerate(draws, 1):
        log(f"fidelity: seed {i} of {len(draws)}")
        by_draw.append(compare("synthetic", images))
    floor: dict[str, Score] = {}
    if real.train is not None:
        log("fidelity: real images against real ones")
        x_real, y_real = (_subset(np.asarray(part), n_samples) for part in real.train)
        floor = {name: Score(value) for name, value in compare("real", (x_real, y_real)).items()}
    apart = compare("shuffled", _independent(draws[0])) if inception is None else {}
    n_real = 0 if real.train is None else min(n_samples, len(real.train[1]))
    return Part((
        *(Finding(("fidelity", name), Score.of([one[name] for one in by_draw]), floor.get(name))
          for name in by_draw[0]),
        *(Finding(("baselines", "independent", name), Score(value))
          for name, value in apart.items())),
        {"fidelity": {"judge": judge.info(), "samples": {
            "synthetic": n_samples, "test": len(x_test), "real": n_real,
            "neighbours": min(NEIGHBOUR_IMAGES, n_pairs), "k": NEIGHBOURS,
            "inception": n_inception if inception else None}}},
        ("fidelity.judge", "fidelity.samples"))


def _independent(images: Records) -> Records:
    """Return images whose pixels are shuffled one by one among the images of a class."""
    x, y = images
    shuffled, rng = np.empty_like(x), np.random.default_rng(0)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        shuffled[rows] = rng.permuted(x[rows].reshape(len(rows), -1), axis=0).reshape(
            x[rows].shape)
    return shuffled, y


def _comparison(x_test: np.ndarray, judge: Judge, inception: Features | None, n_inception: int
                ) -> Callable[[str, Records], dict[str, float]]:
    """Return a function that scores images against the test images, whose features are kept."""
    test_features, _ = judge.see(x_test)
    test_moments = moments(test_features)
    inception_moments = (moments(inception(_subset(x_test, n_inception)))
                         if inception else None)

    def compare(part: str, images: Records) -> dict[str, float]:
        x, _ = checked(part, *images, at_least=NEIGHBOURS + 1)
        if x.shape[1:] != x_test.shape[1:]:
            raise UserError(f"{part} images are {x.shape[1:]}, test images {x_test.shape[1:]}; "
                            "both need the same height, width and channels")
        features, probabilities = judge.see(x)
        n = min(NEIGHBOUR_IMAGES, len(x), len(x_test))
        scores = {"inception_score": inception_score(probabilities),
                  "fid_features": frechet_distance(moments(features), test_moments)}
        scores |= neighbour_scores(_subset(test_features, n), _subset(features, n))
        if inception and inception_moments:
            pool = moments(inception(_subset(x, n_inception)))
            scores["fid"] = frechet_distance(pool, inception_moments)
        return scores

    return compare
