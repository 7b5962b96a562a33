"""DP-GAN-DPAC: GS-WGAN with a dual-purpose auxiliary classifier.

Source: Chen, Liu, Ma, Nepal and Xu, "Private Image Generation with Dual-Purpose Auxiliary
Classifier", CVPR 2023, Algorithm 1. A classifier is made anew at every generator step, trained on
fakes and then on a critic's records; the generator follows beta D + (1 - beta) C.

The published code sanitises D and C separately and charges once, and asks about 1,000 fakes from
the step on at which C comes in and charges 32. Here the two gradients are one message, clipped once
and charged once, and B is the B that is drawn. Fakes are public, so what the classifier learns from
them is computed once for all critics, and only its records' part at each.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dpgen_jax.config import Runtime
from dpgen_jax.methods._critic_config import PUBLISHED_ADAM, CriticConfig, mechanism
from dpgen_jax.methods._critics import Extra, Query, converse, minibatch
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import Classifier, CriticNet, class_score
from dpgen_jax.nets.wasserstein import classifier_loss
from dpgen_jax.types import Array, ImageSpec, Method, Spec, UserError

__all__ = ["Config", "build", "mechanism"]


@dataclasses.dataclass(frozen=True)
class Config(CriticConfig):
    """What DP-GAN-DPAC does; the defaults are the published networks and optimisers."""

    beta: float = 0.8
    """share of the critic in the answer, the classifier's being 1 - beta"""
    t_c: int = 6000
    """generator step at which the classifier comes in"""
    fake_steps: int = 10
    """classifier steps on fakes; 0: it learns from records alone (ablation "w/o g2r")"""
    real_steps: int = 10
    """classifier steps on records; 0: it learns from fakes alone (ablation "w/o r2g")"""
    fake_batch: int = 1000
    """the most fakes in one classifier step"""
    order: Literal["sequential", "parallel"] = "sequential"
    """parallel: fakes and records in the same steps (ablation "w/o seq")"""
    renewed: bool = True
    """a new classifier at every generator step; else each critic keeps its own ("w/o init")"""
    classifier: CriticNet = CriticNet()
    c_penalty: float = 10.0
    """weight of the classifier's gradient penalty; 0: none"""
    c_optimiser: Adam = PUBLISHED_ADAM

    positive = (*CriticConfig.positive, "fake_batch")
    not_negative = (*CriticConfig.not_negative, "t_c", "fake_steps", "real_steps", "c_penalty")
    shares = (*CriticConfig.shares, "beta")

    def __post_init__(self):
        super().__post_init__()
        alone = 0 if self.order == "parallel" else self.fake_steps  # parallel: in real_steps
        if not alone + self.real_steps:
            raise UserError("the classifier has no steps to learn in; raise real_steps, or use "
                            "gswgan to do without it")
        if self.steps is not None and self.t_c >= self.steps:
            raise UserError(f"t_c is {self.t_c}, but there are only {self.steps} steps: the "
                            "classifier would never come in; lower --t-c, or use gswgan")


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for images of this schema. Errors: UserError for a table."""
    mechanism(config, spec)
    return converse(config, spec, runtime, _classifier(config, spec))


def _classifier(config: Config, spec: ImageSpec) -> Extra:
    net, sequential = Classifier(config.classifier, spec), config.order == "sequential"
    fakes_first = config.fake_steps if sequential else 0

    def init(key: Array) -> Any:
        weights, vectors = net.init(key)
        return weights, vectors, config.c_optimiser.init(weights)

    def step(key: Array, state: Any, batches: list[tuple[Array, Array]]) -> Any:
        """One step on the mean of the losses of the batches (x, y)."""
        weights, vectors, adam = state

        def loss(weights):
            normalised, moved = net.normalise(weights, vectors)

            def score(x, labels):
                return class_score(net.logits(normalised, x), labels)

            losses = [classifier_loss(score, x, y, config.c_penalty, config.drift)
                      for x, y in batches]
            return sum(losses) / len(losses), moved

        grads, moved = jax.grad(loss, has_aux=True)(weights)
        weights, adam = config.c_optimiser.update(weights, grads, adam)
        return weights, moved, adam

    def fakes_of(key: Array, pool: Array) -> tuple[Array, Array]:
        classes, size = pool.shape[:2]
        chosen = minibatch(key, classes * size, config.fake_batch)
        return pool.reshape(-1, *pool.shape[2:])[chosen], chosen // size

    def records_of(key: Array, x: Array, y: Array) -> tuple[Array, Array]:
        chosen = minibatch(key, len(y), config.records_per_step)
        return x[chosen], y[chosen]

    def on_fakes(key: Array, state: Any, pool: Array) -> Any:
        def one(i, state):
            k = jax.random.fold_in(key, i)
            return step(k, state, [fakes_of(k, pool)])

        return jax.lax.fori_loop(0, fakes_first, one, state) if fakes_first else state

    def on_records(key: Array, state: Any, x: Array, y: Array, pool: Array) -> Any:
        def one(i, state):
            k_real, k_fake = jax.random.split(jax.random.fold_in(key, i))
            beside = [] if sequential else [fakes_of(k_fake, pool)]
            return step(k_real, state, [records_of(k_real, x, y), *beside])

        return jax.lax.fori_loop(0, config.real_steps, one, state)

    def ask(key: Array, pool: Array, now: Array) -> Any:
        """A new classifier that has seen the fakes: a function of public values."""
        k_init, k_fakes = jax.random.split(key)

        def train(state):
            return on_fakes(k_fakes, state, pool)

        fresh = init(k_init)
        return jax.lax.cond(now >= config.t_c, train, lambda state: state, fresh) \
            if config.renewed else ()

    def learn(key: Array, kept: Any, x: Array, y: Array, query: Query) -> Any:
        if config.renewed:
            return kept
        k_fakes, k_real = jax.random.split(key)

        def train(state):
            return on_records(k_real, on_fakes(k_fakes, state, query.pool), x, y, query.pool)

        return jax.lax.cond(query.step >= config.t_c, train, lambda state: state, kept)

    def direction(key: Array, kept: Any, x: Array, y: Array, query: Query, slope: Array) -> Array:
        """beta D + (1 - beta) C, one message, once C has come in; D before."""
        def both(_):
            state = (on_records(key, query.extra, x, y, query.pool) if config.renewed else kept)
            normalised, _ = net.normalise(*state[:2])

            def score(fakes):
                return jnp.sum(class_score(net.logits(normalised, fakes), query.labels))

            return config.beta * slope + (1 - config.beta) * jax.grad(score)(query.fakes)

        return jax.lax.cond(query.step >= config.t_c, both, lambda _: slope, None)

    return Extra(ask, (lambda key: ()) if config.renewed else init, learn, direction)
