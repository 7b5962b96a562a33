"""DP-GAN-DPAC: GS-WGAN with a dual-purpose auxiliary classifier.

Source: Chen, Liu, Ma, Nepal and Xu, "Private Image Generation with Dual-Purpose Auxiliary
Classifier", CVPR 2023, Algorithm 1. A new classifier is trained at every generator step, on fakes
and then on a critic's records; the generator follows beta D + (1 - beta) C.

The published code sanitises D and C separately and charges once, and asks about 1,000 fakes from
the step on at which C comes in and charges 32. Here the two gradients are one message, clipped once
and charged once, and B is the number of fakes that are queried. Fakes are public, so the training
on them is done once for all critics, and each critic adds only the training on its records.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from dpgen_jax.accountant import published as formulas
from dpgen_jax.accountant.published import Published
from dpgen_jax.core.config import Runtime, require_not_negative, require_positive, require_share
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import Array, ImageSpec, Method, PyTree, Spec, UserError
from dpgen_jax.methods.shared.critics import (
    PUBLISHED_ADAM,
    CriticConfig,
    Extra,
    Query,
    build_gan,
    fakes,
    images_only,
    mechanism,
    minibatch,
)
from dpgen_jax.nets.adam import Adam, descend
from dpgen_jax.nets.losses import classifier_loss
from dpgen_jax.nets.resnet import Classifier, CriticNet, class_score

__all__ = ["Config", "build", "mechanism"]


@dataclasses.dataclass(frozen=True)
class Config(CriticConfig):
    """The configuration of DP-GAN-DPAC; the defaults are the published networks and optimisers."""

    beta: float = 0.8
    """share of the critic in the answer, the classifier's being 1 - beta"""
    t_c: int = 6000
    """generator step at which the classifier comes in"""
    fake_steps: int = 10
    """classifier steps on fakes; 0: it learns from records alone (ablation "w/o g2r")"""
    real_steps: int = 10
    """classifier steps on records; 0: it learns from fakes alone (ablation "w/o r2g")"""
    fake_batch: int = 1000
    """the most fakes in one classifier step; so many, drawn anew, where pool is 0"""
    order: Literal["sequential", "parallel"] = "sequential"
    """parallel: fakes and records in the same steps (ablation "w/o seq")"""
    renewed: bool = True
    """a new classifier at every generator step; else each critic keeps one (ablation "w/o init")"""
    classifier: CriticNet = CriticNet()
    c_penalty: float = 10.0
    """weight of the classifier's gradient penalty; 0: none"""
    c_optimiser: Adam = PUBLISHED_ADAM

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(fake_batch=self.fake_batch)
        require_not_negative(t_c=self.t_c, fake_steps=self.fake_steps, real_steps=self.real_steps,
                             c_penalty=self.c_penalty)
        require_share(beta=self.beta)
        alone = 0 if self.order == "parallel" else self.fake_steps  # parallel: in real_steps
        if not alone + self.real_steps:
            raise UserError("the classifier has no steps to learn in; raise real_steps, or use "
                            "gswgan to do without it")
        if self.steps is not None and self.t_c >= self.steps:
            raise UserError(f"t_c is {self.t_c}, but there are only {self.steps} steps: the "
                            f"classifier would never come in; lower {option('t_c')}, or use gswgan")


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for images of this schema.

    Raises:
        UserError: for a table.
    """
    spec = images_only(spec)
    return build_gan(config, spec, runtime, _classifier(config, spec))


def _classifier(config: Config, spec: ImageSpec) -> Extra:
    """The auxiliary classifier that joins the critics."""
    adam, public_fakes = config.c_optimiser.transformation(), fakes(config, spec)
    net, sequential = Classifier(config.classifier, spec), config.order == "sequential"
    fakes_first = config.fake_steps if sequential else 0

    def init(key: Array) -> PyTree:
        weights, vectors = net.init(key)
        return weights, vectors, adam.init(weights)

    def step(key: Array, state: PyTree, batches: list[tuple[Array, Array]]) -> PyTree:
        """One step on the mean of the losses of the batches (x, y)."""
        weights, vectors, optimiser = state

        def loss(weights: PyTree) -> tuple[Array, PyTree]:
            normalised, moved = net.normalise(weights, vectors)

            def score(x: Array, labels: Array) -> Array:
                return class_score(net.apply(normalised, x), labels)

            losses = [classifier_loss(score, x, y, config.c_penalty, config.drift)
                      for x, y in batches]
            return sum(losses, start=jnp.zeros(())) / len(losses), moved

        grads, moved = jax.grad(loss, has_aux=True)(weights)
        weights, optimiser = descend(adam, weights, grads, optimiser)
        return weights, moved, optimiser

    def fakes_of(key: Array, material: PyTree) -> tuple[Array, Array]:
        return public_fakes.of_any(key, material, config.fake_batch)

    def records_of(key: Array, x: Array, y: Array) -> tuple[Array, Array]:
        rows = minibatch(key, len(y), config.records_per_step)
        return x[rows], y[rows]

    def on_fakes(key: Array, state: PyTree, material: PyTree) -> PyTree:
        def one(i: Array, state: PyTree) -> PyTree:
            k = jax.random.fold_in(key, i)
            return step(k, state, [fakes_of(k, material)])

        return jax.lax.fori_loop(0, fakes_first, one, state) if fakes_first else state

    def on_records(key: Array, state: PyTree, x: Array, y: Array, material: PyTree) -> PyTree:
        def one(i: Array, state: PyTree) -> PyTree:
            k_real, k_fake = jax.random.split(jax.random.fold_in(key, i))
            beside = [] if sequential else [fakes_of(k_fake, material)]
            return step(k_real, state, [records_of(k_real, x, y), *beside])

        return jax.lax.fori_loop(0, config.real_steps, one, state)

    def ask(key: Array, material: PyTree, now: Array) -> PyTree:
        """A new classifier, trained on the fakes: a function of public values."""
        k_init, k_fakes = jax.random.split(key)

        def train(state: PyTree) -> PyTree:
            return on_fakes(k_fakes, state, material)

        fresh = init(k_init)
        return jax.lax.cond(now >= config.t_c, train, lambda state: state, fresh) \
            if config.renewed else ()

    def learn(key: Array, state: PyTree, x: Array, y: Array, query: Query) -> PyTree:
        if config.renewed:
            return state
        k_fakes, k_real = jax.random.split(key)

        def train(state: PyTree) -> PyTree:
            trained = on_fakes(k_fakes, state, query.material)
            return on_records(k_real, trained, x, y, query.material)

        return jax.lax.cond(query.step >= config.t_c, train, lambda state: state, state)

    def direction(key: Array, state: PyTree, x: Array, y: Array, query: Query, slope: Array
                  ) -> Array:
        """The critic's direction D; once the classifier has come in, beta D + (1 - beta) C."""
        def both(slope: Array) -> Array:
            trained = (on_records(key, query.extra, x, y, query.material) if config.renewed
                       else state)
            normalised, _ = net.normalise(*trained[:2])

            def score(fakes: Array) -> Array:
                return jnp.sum(class_score(net.apply(normalised, fakes), query.labels))

            return config.beta * slope + (1 - config.beta) * jax.grad(score)(query.fakes)

        return jax.lax.cond(query.step >= config.t_c, both, lambda slope: slope, slope)

    return Extra(ask, (lambda key: ()) if config.renewed else init, learn, direction)


def published(config: Config, delta: float) -> Published | None:
    """Returns the paper's own accounting; None for more than one critic in a step."""
    if config.critics_per_step != 1:  # 0: all of them
        return None
    return formulas.dpac(config.critics, config.batch, config.sigma or 0.0, delta)
