"""The judge: a classifier trained here on real images, whose features and probabilities measure
fidelity. It is no release: it has seen real images, and nothing it says is covered by epsilon.

Three 3x3 convolutions, each normalised and halved by its largest values, and one hidden layer,
which are the features. Written for CPUs: small maps early, convolutions as matrix products.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from dpgen_jax.evaluation.networks import Schedule, fit_classifier, predict
from dpgen_jax.evaluation.scores import Images, checked
from dpgen_jax.nets.blocks import convolve3
from dpgen_jax.nets.classifiers import max_pool
from dpgen_jax.types import Array, UserError

FEATURES = 128
WIDTHS = (32, 48, 96)
SHIFT = 1
"""Pixels by which a training image is moved at most along each axis: right for digits as for
clothing, where a mirror image may be another class."""
MIN_SIDE = 2 ** len(WIDTHS)


@dataclasses.dataclass(frozen=True)
class Course:
    """How a judge is trained: on at most `images` real ones (None: all) by a fixed schedule."""

    schedule: Schedule
    images: int | None = None


SMOOTHING = 0.05
"""Of the labels in training; `see` takes it out of the probabilities again."""
FAST = Course(Schedule("judge, fast", epochs=2, min_steps=90, optimiser="muon",
                       learning_rate=0.03, decay="warm", smoothing=SMOOTHING), images=6_000)
FULL = Course(Schedule("judge", epochs=7, min_steps=1000, optimiser="muon", learning_rate=0.03,
                       decay="warm", smoothing=SMOOTHING))
COURSES = {"fast": FAST, "full": FULL}


class Trunk(nn.Module):
    """All but the last layer."""

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """x float [n, H, W, ch] in [0, 1] -> features [n, 128], never negative.

        With `train`, each image is moved and features are dropped, by the key 'dropout'. Errors:
        UserError below 8x8 pixels.
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
    """The 3x3 convolution of `nets.blocks`, with a bias."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [n, H, W, ch] -> [n, H, W, features]."""
        shape = (9 * x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape)
        return convolve3(x, kernel) + self.param("bias", nn.initializers.zeros, shape[-1:])


class Classifier(nn.Module):
    """The trunk and a linear layer."""

    classes: int

    def setup(self) -> None:
        self.trunk = Trunk()
        self.head = nn.Dense(self.classes)

    def __call__(self, x: Array, train: bool) -> Array:
        """x float [n, H, W, ch] in [0, 1] -> logits [n, classes]."""
        return self.head(self.trunk(x, train))


def shifted(key: Array, x: Array, most: int) -> Array:
    """Each image of x [n, H, W, ch] moved by 0 to `most` pixels along each axis, either way; what
    comes in from outside is black."""
    padded = jnp.pad(x, ((0, 0), (most, most), (most, most), (0, 0)))
    starts = jax.random.randint(key, (len(x), 2), 0, 2 * most + 1)
    return jax.vmap(lambda image, start: jax.lax.dynamic_slice(
        image, (*start, 0), x.shape[1:]))(padded, starts)


@dataclasses.dataclass(frozen=True)
class Judge:
    """A trained classifier; test_accuracy, in [0, 1], is that on held-out real images; smoothing:
    of the labels that it learned from."""

    params: Any
    test_accuracy: float
    epochs: int
    smoothing: float = 0.0

    def see(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images [n, H, W, ch] -> features float32 [n, 128], probabilities float64 [n, classes]."""
        return _see(self.params, x, self.smoothing)

    def info(self) -> dict[str, Any]:
        """What metrics.json says of the judge."""
        return {"net": f"3 convolutions ({', '.join(map(str, WIDTHS))}) and {FEATURES} features",
                "test_accuracy": self.test_accuracy, "features": FEATURES, "epochs": self.epochs}


def train(real: Images, test: Images, course: Course = FULL, seed: int = 0,
          say: Callable[[str], None] = lambda _: None) -> Judge:
    """A judge trained on real training images and tested on held-out ones.

    Classes are those of both parts. The same arguments give the same judge. Errors: UserError for
    images or labels that are malformed, not finite or out of range, for images of two shapes or
    below 8x8 pixels, and for fewer than 2 training images or no test image.
    """
    x, y = checked("training", *real, at_least=2)
    x_test, y_test = checked("test", *test, at_least=1)
    if x.shape[1:] != x_test.shape[1:]:
        raise UserError(f"training images are {x.shape[1:]}, test images {x_test.shape[1:]}; both "
                        "need the same height, width and channels")
    some = np.random.default_rng(seed).permutation(len(y))[:course.images]
    net, schedule = Classifier(int(max(y.max(), y_test.max())) + 1), course.schedule
    epochs = schedule.epochs_for(net, max(1, len(some) // schedule.batch))
    say(f"judge: {epochs} epochs of {len(some)} real images")
    params = fit_classifier(net, x[some], y[some], schedule, seed)
    seen = _see(params, x_test, schedule.smoothing)[1]
    accuracy = float(np.mean(seen.argmax(1) == y_test))
    say(f"judge: accuracy {accuracy:.4f} on {len(y_test)} held-out images")
    return Judge(params, accuracy, epochs, schedule.smoothing)


def _see(params: Any, x: np.ndarray, smoothing: float) -> tuple[np.ndarray, np.ndarray]:
    """The last layer is linear, so that one pass gives features and probabilities.

    A network that learned from smoothed labels says (1 - s) p + s / K where it means p.
    """
    head = params["params"]["head"]
    features = predict(Trunk(), {"params": params["params"]["trunk"]}, x)
    logits = features.astype(np.float64) @ np.asarray(head["kernel"], np.float64)
    smoothed = softmax(logits + np.asarray(head["bias"], np.float64), 1)
    meant = np.maximum(smoothed - smoothing / smoothed.shape[1], 0)
    return features, meant / meant.sum(1, keepdims=True)
