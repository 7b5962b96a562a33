"""The judge: a classifier trained on real images, whose features and outputs measure fidelity.

It is no release: it has seen real images, and epsilon covers none of its outputs.

Three 3x3 convolutions, each normalised and halved by its largest values, and one hidden layer,
which are the features. Written for CPUs: small maps early, convolutions as matrix products.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from dpgen_jax.core.strict_json import Json
from dpgen_jax.core.types import Array, PyTree, UserError
from dpgen_jax.evaluation.networks import Schedule, fit_classifier, predict
from dpgen_jax.evaluation.scores import Images, Log, checked, silent
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
        """Compute features.

        Args:
          x: Images float [n, H, W, ch] in [0, 1].
          train: Whether each image is moved and features are dropped, by the key 'dropout'.

        Returns:
          Features float32 [n, FEATURES], never negative.

        Raises:
          UserError: The images are smaller than 8 x 8 pixels.
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
    """Move each image at random along both axes; pixels that come in from outside are black.

    Args:
      key: A key of jax.random.
      x: Images [n, H, W, ch].
      max_shift: The most pixels by which an image is moved, either way.

    Returns:
      The moved images [n, H, W, ch].
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
        """Compute features and class probabilities.

        Args:
          x: Images [n, H, W, ch], uint8 or float in [0, 1].

        Returns:
          Features float32 [n, FEATURES], and probabilities float64 [n, classes].
        """
        return _see(self.params, x, self.smoothing)

    def info(self) -> Json:
        """Describe the judge, for metrics.json."""
        return {"net": f"3 convolutions ({', '.join(map(str, WIDTHS))}) and {FEATURES} features",
                "test_accuracy": self.test_accuracy, "features": FEATURES, "epochs": self.epochs}


def train(real: Images, test: Images, course: Course = FULL, seed: int = 0,
          log: Log = silent) -> Judge:
    """Train a judge on real training images, and test it on held-out ones.

    The same arguments give the same judge. Its classes are those of both parts.

    Args:
      real: Training images and labels, at least 2.
      test: Held-out images of the same shape and their labels, at least one.
      course: How it is trained.
      seed: The seed of the choice of images and of the training.
      log: A function that takes lines of progress.

    Returns:
      The trained judge.

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
