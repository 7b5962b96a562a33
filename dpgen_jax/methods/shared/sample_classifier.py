"""A private linear classifier, by which a mixture's samples are kept.

Where classes look alike, as shirts and pullovers do, Gaussians put the border between them in the
wrong place, while the same budget draws it well in a classifier: logistic regression on oriented
gradients, by Newton's method. It starts on images of the mixture, which also say how curved the
loss is: both are public, and of the records only few gradients are needed, each a noisy sum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, ImageSpec, Records
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.nets.oriented import n_features, oriented

SAMPLES = 5000
"""Images of the mixture that the classifier starts on, and that curvature is measured on."""
MOST_NUMBERS = 10**6
"""Numbers of the images that are made at once, at most."""
START_STEPS, START_DAMPING = 12, 1e-4
"""Newton steps on public images, and what is added to the diagonal of their Hessians."""
START_RATE, RATE = 0.5, 0.7
"""The parts of a Newton step that are taken, on public images and at first on noisy gradients."""
LEAST_DAMPING = 1e-4
"""The same at noisy gradients, where their noise is smaller."""
CANDIDATES = 4
"""Samples of which one is kept."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Classifier:
    """The classifier so far: a function of released values and public keys alone.

    Attributes:
        rounds: int32 [], noisy gradients so far.
        mean: float32 [F], of the features of the mixture's images.
        weights: float32 [F, C].
    """

    rounds: Array
    mean: Array
    weights: Array


def nothing(spec: ImageSpec) -> Classifier:
    """Returns a classifier that knows nothing.

    Args:
        spec: The schema of the images.
    """
    weights = jnp.zeros((n_features(spec), spec.classes))
    return Classifier(jnp.zeros((), jnp.int32), weights[:, 0], weights)


def calls(spec: ImageSpec) -> tuple[int, int]:
    """Returns how many public images are made at once, and how often.

    Args:
        spec: The schema of the images.
    """
    at_once = max(1, min(SAMPLES, MOST_NUMBERS // math.prod(spec.shape)))
    return at_once, -(-SAMPLES // at_once)


def started(spec: ImageSpec, raw: Array, labels: Array) -> Classifier:
    """Returns the classifier of public images.

    Args:
        spec: The schema of the images.
        raw: float32 [N, F], the features of images of the mixture.
        labels: int32 [N].
    """
    empty, mean = nothing(spec), raw.mean(0)
    at, target = _placed(raw, mean), jax.nn.one_hot(labels, spec.classes)

    def step(_: int, weights: Array) -> Array:
        wrong = jax.nn.softmax(at @ weights) - target
        gradient = at.T @ wrong / len(at) + START_DAMPING * weights
        return weights - START_RATE * _solved(at, weights, gradient, START_DAMPING)

    weights = jax.lax.fori_loop(0, START_STEPS, step, empty.weights)
    return dataclasses.replace(empty, mean=mean, weights=weights)


def gradient(spec: ImageSpec, key: Array, unit: Array, records: Records, query: Classifier
             ) -> Array:
    """Answers with a record's gradient, of norm 1 at most: [1, 1 + F C], in block 0.

    The features have norm 1, and what the classifier is wrong by is shortened to 1.
    """
    del key, unit
    at = _placed(oriented(values(records, spec)[:1].reshape(1, *spec.shape)), query.mean)[0]
    wrong = jax.nn.softmax(at @ query.weights) - jax.nn.one_hot(records.y[0], spec.classes)
    wrong = wrong / jnp.maximum(jnp.linalg.norm(wrong), 1)
    return jnp.concatenate([jnp.zeros(1), jnp.outer(at, wrong).reshape(-1)])[None]


def moved(query: Classifier, raw: Array, mean_gradient: Array, noise: float, rounds: int
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


def kept(mean: Array, weights: Array, key: Array, labels: Array,
         draw: Callable[[Array, Array], Array]) -> Array:
    """Samples some images for each label, and keeps one that is classified as it.

    Args:
        mean: float32 [F].
        weights: float32 [F, C].
        key: Random key.
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
