"""Classifiers as networks: trained with a fixed schedule, and tested after the last epoch.

Images are uint8 or float in [0, 1], [n, H, W, ch]; labels are int32 from 0.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jax import lax

from dpgen_jax.core.types import Array, PyTree
from dpgen_jax.evaluation.results import pick
from dpgen_jax.nets import classifiers as nets

CHUNK = 256
"""Images that a trained network classifies at once."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long and how a classifier is trained; nothing in it depends on what is measured.

    It runs whole epochs: `epochs`, or as many as are needed to make `min_steps` steps. The MLP,
    which learns more slowly and costs a thirtieth of the CNN, runs `mlp_times` as many.
    """

    name: str
    epochs: int
    min_steps: int
    mlp_times: int = 4
    batch: int = 128
    optimiser: str = "adam"
    """'adam', 'sgd' with momentum 0.9, or 'muon' (Jordan et al., 2024), which needs fewer epochs:
    weight matrices move along orthogonalised directions, all else by Adam at a tenth of the rate.
    """
    learning_rate: float = 3e-3
    decay: str = "cosine"
    """'cosine' to zero over all steps; 'warm', cosine after a rise over the first tenth of them; or
    'constant'."""
    smoothing: float = 0.0
    """Share of each label that is spread over all classes (Szegedy et al., 2016, section 7)."""

    def epochs_for(self, net: nn.Module, steps_per_epoch: int) -> int:
        """Return the number of epochs that a network is trained for."""
        epochs = max(self.epochs, math.ceil(self.min_steps / steps_per_epoch))
        return epochs * (self.mlp_times if isinstance(net, nets.MLP) else 1)

    def build(self, steps: int) -> optax.GradientTransformation:
        """Build the optimiser, with its learning rate decayed over `steps` steps.

        Raises:
          UserError: There is no such `optimiser` or `decay`.
        """
        peak, rise = self.learning_rate, max(1, steps // 10)
        rates = {"cosine": lambda: optax.cosine_decay_schedule(peak, steps),
                 "warm": lambda: optax.warmup_cosine_decay_schedule(peak / 5, peak, rise, steps,
                                                                    peak / 100),
                 "constant": lambda: optax.constant_schedule(peak)}
        optimisers = {"adam": optax.adam, "sgd": functools.partial(optax.sgd, momentum=0.9),
                      "muon": _muon}
        rate = pick("decay", rates, self.decay)()
        return pick("optimiser", optimisers, self.optimiser)(rate)


def _muon(rate: optax.Schedule) -> optax.GradientTransformation:
    return optax.contrib.muon(rate, weight_decay=0.01,
                              adam_learning_rate=lambda step: rate(step) / 10)


FAST = Schedule("fast", epochs=2, min_steps=140)
FULL = Schedule("full", epochs=4, min_steps=1200, mlp_times=3, learning_rate=2e-3)


def fit_classifier(net: nn.Module, x: np.ndarray, y: np.ndarray, schedule: Schedule, seed: int
                   ) -> Any:
    """Train a network from scratch, and return its variables after the last epoch.

    The same arguments give the same weights. Images are [n, H, W, ch], uint8 or float in [0, 1];
    labels int32 [n] in 0..net.classes-1. The seed is that of the weights, of the order of the
    images and of dropout. The network is called as net(pixels, train=...).
    """
    batch = min(schedule.batch, len(y))
    steps_per_epoch = len(y) // batch
    epochs = schedule.epochs_for(net, steps_per_epoch)
    epoch, init = _training(net, schedule, epochs * steps_per_epoch, batch)
    # This generator is several times faster than the default one at dropout's masks on CPUs.
    key = jax.random.key(seed % 2**32, impl="rbg")
    images, labels = jnp.asarray(x), jnp.asarray(y)
    state = init(jax.random.fold_in(key, epochs), images[:1])
    for i in range(epochs):
        state = epoch(state, jax.random.fold_in(key, i), images, labels)
    return state[0]


@functools.lru_cache(maxsize=8)
def _training(net: nn.Module, schedule: Schedule, steps: int, batch: int
              ) -> tuple[Callable, Callable]:
    """Return the compiled functions (epoch, init), the same for all seeds."""
    optimiser = schedule.build(steps)

    @jax.jit
    def init(key: Array, x: Array) -> tuple[PyTree, optax.OptState]:
        params = net.init(key, _pixels(x), train=False)
        return params, optimiser.init(params)

    def loss(params: PyTree, key: Array, x: Array, y: Array) -> Array:
        logits = cast(Array, net.apply(params, _pixels(x), train=True, rngs={"dropout": key}))
        labels = optax.smooth_labels(jax.nn.one_hot(y, logits.shape[-1]), schedule.smoothing)
        return jnp.mean(optax.softmax_cross_entropy(logits, labels))

    @jax.jit
    def epoch(state: tuple[PyTree, optax.OptState], key: Array, x: Array, y: Array
              ) -> tuple[PyTree, optax.OptState]:
        k_order, k_dropout = jax.random.split(key)
        steps = len(y) // batch
        order = jax.random.permutation(k_order, len(y))[:steps * batch].reshape(steps, batch)

        def step(state: tuple[PyTree, optax.OptState], inputs: tuple[Array, Array]
                 ) -> tuple[tuple[PyTree, optax.OptState], None]:
            params, moments = state
            rows, key = inputs
            grads = jax.grad(loss)(params, key, x[rows], y[rows])
            updates, moments = optimiser.update(grads, moments, params)
            return (optax.apply_updates(params, updates), moments), None

        return lax.scan(step, state, (order, jax.random.split(k_dropout, steps)))[0]

    return epoch, init


def predict(net: nn.Module, params: PyTree, x: np.ndarray) -> np.ndarray:
    """Return the outputs float32 [n, ...] of a trained network of images [n, H, W, ch].

    It is compiled once for a shape of image, whatever n.
    """
    pad = -len(x) % CHUNK
    chunks = np.pad(x, ((0, pad), *[(0, 0)] * 3)).reshape(-1, CHUNK, *x.shape[1:])
    return np.concatenate([np.asarray(_applied(net, params, chunk)) for chunk in chunks])[:len(x)]


@functools.partial(jax.jit, static_argnums=0)
def _applied(net: nn.Module, params: PyTree, x: Array) -> Array:
    return cast(Array, net.apply(params, _pixels(x), train=False))


def _pixels(x: Array) -> Array:
    """Return images as float32 in [0, 1]."""
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x
