"""DP-GAN-DPAC: GS-WGAN with a dual-purpose auxiliary classifier.

Source: Chen, Liu, Ma, Nepal and Xu, "Private Image Generation with Dual-Purpose Auxiliary
Classifier", CVPR 2023, Algorithm 1. A new classifier is trained at every generator step, on fakes
and then on a critic's records; the generator follows beta D + (1 - beta) C.

The published code sanitises D and C separately and charges once. From the step at which C comes in
it queries 1,000 fakes and charges 32. Here the two gradients are one message, clipped once
and charged once, and B is the number of fakes that are queried. Fakes are public, so the training
on them is done once for all critics, and each critic adds only the training on its records.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dpgen_jax.accountant.published import Published
from dpgen_jax.core.config import Runtime, require_not_negative, require_positive, require_share
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import Array, ImageSpec, Method, PyTree, Spec, UserError
from dpgen_jax.methods import gswgan
from dpgen_jax.methods.gswgan import GENDER
from dpgen_jax.methods.shared import photographs
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
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, stated
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
    """generator step at which the classifier starts"""
    fake_steps: int = 10
    """classifier steps on fakes; 0: it learns only from records (ablation "w/o g2r")"""
    real_steps: int = 10
    """classifier steps on records; 0: it learns only from fakes (ablation "w/o r2g")"""
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
        fake_steps = 0 if self.order == "parallel" else self.fake_steps  # parallel: in real_steps
        if not fake_steps + self.real_steps:
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
            joined = [] if sequential else [fakes_of(k_fake, material)]
            return step(k_real, state, [records_of(k_real, x, y), *joined])

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
    """Returns the accounting of the paper's code (chenchen-usyd/DP-GAN-DPAC): GS-WGAN's script.

    It counts one batch size and one sanitised gradient a round, where the code turns to batches of
    1,000 and sanitises the critic's and the classifier's gradient.
    """
    return gswgan.sampled(config, delta, "DP-GAN-DPAC's privacy_analysis.py")


# Presets of DP-GAN-DPAC, each with its source: those of GS-WGAN with a classifier.
#
# The published settings (t_c 6,000 of 20,000 steps, CelebA 1,000; beta 0.8; 10 steps on fakes and
# 10 on records) are the defaults of `Config`. In the presets named by an epsilon the classifier
# comes in after a fifth of the steps. `-long` presets are GS-WGAN's: more critics, and more
# steps.

PUBLISHED = "Chen et al. 2023, section 5.1; defaults of the authors' code"
OURS = ("this library: classifier and networks chosen on glyphs (benchmarks/images.py), the "
        "slope and at epsilon 1 the class weight as GS-WGAN has them for MNIST")
AT_10 = ("this library: networks, slope and critics as GS-WGAN has them for MNIST; with fewer "
         "steps of the classifier the best of three trainings on MNIST, tested on a sixth of its "
         "training images; benchmarks/results/sweep-dpac-mnist-eps10-class.json")
WARPED = "{}; that images are moved from two more, of half of the critics and steps; " \
    "benchmarks/results/sweep-dpac-mnist-eps10-warp.json"
AT_1 = ("this library: GS-WGAN's of the same name, the better of two trainings on MNIST, tested on "
        "a sixth of its training images; benchmarks/results/sweep-dpac-mnist-eps1.json")
VALIDATED = ("this library: GS-WGAN's of the same name, the better of two trainings on MNIST, "
             "tested on a sixth of its training images; "
             "benchmarks/results/sweep-dpac-mnist-eps10-critics.json")


def with_classifier(config: gswgan.Config, **fields: Any) -> Config:
    """Returns the configuration of GS-WGAN with the fields that DPAC adds to it."""
    return Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)} | fields)


def small(config: gswgan.Config, real_steps: int = 4) -> Config:
    """Returns it with a classifier of the critic's size, which learns fast and from few records."""
    return with_classifier(config, t_c=(config.steps or 0) // 5, real_steps=real_steps,
                           fake_batch=80, c_penalty=0.0, c_optimiser=Adam(5e-3, 0.5, 0.9),
                           classifier=CriticNet(8))


ORIGINAL = with_classifier(gswgan.ORIGINAL)
ORIGINAL_GENDER = with_classifier(gswgan.ORIGINAL_GENDER, t_c=1000)
ROTATING = with_classifier(gswgan.rotating(gswgan.ORIGINAL))
ROTATING_GENDER = with_classifier(gswgan.rotating(gswgan.ORIGINAL_GENDER), t_c=1000)
SMALL, LONG = small(gswgan.SMALL), small(gswgan.LONG)
MANY, DIGITS, TIGHT, LARGE_TIGHT = (small(config, real_steps=2) for config in (
    gswgan.MANY, gswgan.of_digits(gswgan.MANY), gswgan.TIGHT, gswgan.LARGE_TIGHT))

MESSAGE = (
    "the critic's and the classifier's gradients are one message, clipped and charged once; the "
    "authors' code sanitises both and charges once",
    "a query is of 32 fakes in all steps; once the classifier is in, the authors' code queries "
    "1,000 and charges 32")
IN_TURN = gswgan.ROTATION[:1] + (
    "the critics of a step and its classifier share one pool of 1,000 fakes for all their steps",)

PRESETS = stated({
    "glyphs": Preset(dataclasses.replace(SMALL, critics=200), GLYPHS, 10.0, 1e-5, 30000, OURS),
    "mnist-eps10": Preset(DIGITS, MNIST, 10.0, 1e-5, 60000, WARPED.format(AT_10)),
    "mnist-eps1": Preset(TIGHT, MNIST, 1.0, 1e-5, 60000, AT_1),
    "fashion-eps10": Preset(MANY, MNIST, 10.0, 1e-5, 60000, AT_10),
    "fashion-eps1": Preset(TIGHT, MNIST, 1.0, 1e-5, 60000, AT_1),
    "mnist-eps10-long": Preset(LONG, MNIST, 10.0, 1e-5, 60000, VALIDATED),
    "fashion-eps10-long": Preset(LONG, MNIST, 10.0, 1e-5, 60000, VALIDATED),
    **gswgan.of_photographs(MANY, TIGHT, LARGE_TIGHT),
    "mnist-eps10-rotation": Preset(dataclasses.replace(ROTATING, pool=100), MNIST, 10.0, 1e-5,
                                   60000, PUBLISHED, differs=IN_TURN),
    "gender-eps10-rotation": photographs.preset(
        dataclasses.replace(ROTATING_GENDER, pool=500), GENDER, 10.0, PUBLISHED, *IN_TURN),
    "mnist-published": Preset(ORIGINAL, MNIST, math.inf, 1e-5, 60000, PUBLISHED,
                              differs=gswgan.NOTHING),
    "fashion-published": Preset(ORIGINAL, MNIST, math.inf, 1e-5, 60000, PUBLISHED,
                                differs=gswgan.NOTHING),
    "gender-published": dataclasses.replace(
        photographs.preset(ORIGINAL_GENDER, GENDER, math.inf, PUBLISHED), delta=1e-5,
        differs=gswgan.NOTHING),
}, {PUBLISHED: (*gswgan.PROVEN, *MESSAGE)})
PRESETS = gswgan.serving_images(PRESETS)
