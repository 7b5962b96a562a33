"""The training that G-PATE and DataLens share.

Teachers learn from their own records and a public pool of fakes, and answer how queried fakes
should change; the generator is fitted to its fakes after that change. Three functions give the part
in which the systems differ, see `build_gan`.

Departures from both published codes, required for the guarantee: the teachers' fakes come from one
public pool, so the generator never sees a private label; and each teacher keeps its own optimiser
state. The generator's statistics for sampling are those of one large public batch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.clip import RowL2
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.config import Runtime, require_decay, require_positive, require_share
from dpgen_jax.core.types import Array, Method, Metrics, PyTree, Records, Spec
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.nets.adam import Adam, descend, moving_average
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.losses import discriminator_loss, generator_loss
from dpgen_jax.nets.pair import pair


@dataclasses.dataclass(frozen=True)
class TeacherConfig(MethodConfig):
    """The fields of both systems. `steps` or `sigma` may be None: it is found from the budget."""

    protects_subjects = True

    teachers: int = 4000
    """disjoint parts of the records, each with its own discriminator"""
    batch: int = 15
    """fakes in one query; also the most real records in one discriminator step"""
    sigma: float | None = None
    """standard deviation of the noise, in votes; found from the budget and steps if left out; 0: no
    noise, epsilon is infinite"""
    steps: int | None = None
    """generator steps; found from the budget and sigma if left out"""
    d_steps: int = 2
    """discriminator steps before each answer"""
    d_steps_first: int = 10
    """discriminator steps before the first answer"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.0
    """the released generator is a moving average of the weights; 0: the last weights"""
    abstain: bool = False
    """teachers do not vote on fakes of a class of which they have no record"""
    layers: Literal["published", "paper"] = "published"
    """images: networks of the published code, or as the G-PATE paper prints them; tables: this
    library's, or PATE-GAN's, which that paper names"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: DiscriminatorNet = DiscriminatorNet()
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(teachers=self.teachers, batch=self.batch, d_steps=self.d_steps,
                         d_steps_first=self.d_steps_first)
        require_share(g_final_rate=self.g_final_rate)
        require_decay(ema=self.ema)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

    Attributes:
        params: of the generator.
        average: moving average of the parameters, shaped as they are.
        optimiser: state of optax's Adam.
        step: int32 [], the queries so far.
    """

    params: PyTree
    average: PyTree
    optimiser: PyTree
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        pool: [C, B, ...], fakes of each class to learn from, as the discriminator reads them.
        fakes: float32 [B, *spec.shape], the queried fakes.
        labels: int32 [B], of the queried fakes.
        latents: float32 [C * B + B, latent], of the pool and of the queried fakes.
        all_labels: int32 [C * B + B], likewise.
        d_steps: int32 [], steps that a discriminator takes before it answers.
        question: public values that a system adds, pytree.
    """

    pool: Array
    fakes: Array
    labels: Array
    latents: Array
    all_labels: Array
    d_steps: Array
    question: PyTree


def nothing(key: Array) -> tuple[()]:
    """Returns the question of a system that adds none to the fakes."""
    del key
    return ()


@dataclasses.dataclass(frozen=True)
class Messages:
    """How gradients become a message, and a release becomes a move of the fakes.

    Attributes:
        message: `message(question, gradients [B, D])` -> the message [B, M] of a teacher, D the
            features of a record.
        direction: `direction(question, released)` -> [B, D], by how much each fake is moved.
        question: `question(key)` -> public values, drawn anew for every query.
    """

    message: Callable[[PyTree, Array], Array]
    direction: Callable[[PyTree, Array], Array]
    question: Callable[[Array], PyTree] = nothing


def unchanged(step_size: float = 1.0) -> Messages:
    """Returns messages that are the gradients; a release moves fakes by `step_size` of itself."""
    return Messages(lambda _, gradients: gradients, lambda _, released: step_size * released)


LEVELS = 32
"""The least number of levels of the grid of clipped gradients; its step is a unit of sigma."""


def clipped(clip: float, columns: int, rows: int) -> RowL2:
    """Returns the bound of gradients of L2 norm `clip`, whose grid is too fine to lose anything."""
    return RowL2(clip, columns, rows, max(LEVELS, math.ceil(8 * math.sqrt(columns))))


SOUND = (
    "teachers learn from one public pool of fakes, so that no private label reaches the generator",
    "each teacher keeps its own optimiser state, and records are dealt to teachers at random")
"""Differences from the published code of both systems that the guarantee needs."""


def build_gan(config: TeacherConfig, spec: Spec, runtime: Runtime, mechanism: Mechanism,
              messages: Messages) -> Method:
    """Returns the method for records of this schema."""
    net_g, net_d = pair(spec, config.generator, config.discriminator, config.layers)
    g_adam = config.g_optimiser.scheduled(config.g_final_rate, config.steps or 1)
    d_adam = config.d_optimiser.transformation(runtime.moments)
    n_pool = spec.classes * config.batch

    def init(key: Array) -> Public:
        params = net_g.init(key)
        return Public(params, params, g_adam.init(params), jnp.zeros((), jnp.int32))

    def init_unit(key: Array) -> PyTree:
        params = net_d.init(key)
        return params, d_adam.init(params)

    def ask(key: Array, public: Public) -> Query:
        k_z, k_labels, k_question = jax.random.split(key, 3)
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        each_class = jnp.repeat(jnp.arange(spec.classes), config.batch)
        all_labels = jnp.concatenate([each_class, labels])
        z = net_g.latents(k_z, len(all_labels))
        fakes = net_g.generate(public.params, z, all_labels)
        pool = net_d.patches(fakes[:n_pool])
        # Where both are 1 the compiler would unroll the loop in `learn`, and then copy the state of
        # all units whenever one is queried: the barrier keeps the number from it.
        d_steps = jax.lax.optimization_barrier(
            jnp.where(public.step == 0, config.d_steps_first, config.d_steps))
        return Query(pool.reshape(spec.classes, config.batch, *pool.shape[1:]), fakes[n_pool:],
                     labels, z, all_labels, d_steps, messages.question(k_question))

    def learn(key: Array, unit: PyTree, records: Records, query: Query) -> PyTree:
        n = len(records.y)
        m = min(config.batch, n)
        real = net_d.features(records.x)

        def step(i: Array, unit: PyTree) -> PyTree:
            params, state = unit
            rows = (jnp.arange(m) if m == n else
                    jax.random.permutation(jax.random.fold_in(key, i), n)[:m])
            labels = records.y[rows]
            both = jnp.stack([real[rows], query.pool[labels, jnp.arange(m)]])

            def loss(params: PyTree) -> Array:
                logits = net_d.apply_patches(params, both, jnp.stack([labels, labels]))
                return discriminator_loss(logits[0], logits[1])

            return descend(d_adam, params, jax.grad(loss)(params), state)

        return jax.lax.fori_loop(0, query.d_steps, step, unit)

    def answer(key: Array, unit: PyTree, records: Records, query: Query) -> Array:
        del key
        params, _ = unit

        def loss(fakes: Array) -> Array:  # the mean, as published: the clip bounds gradients over B
            return jnp.mean(generator_loss(net_d.apply(params, fakes[None], query.labels[None])))

        gradients = -jax.grad(loss)(query.fakes).reshape(config.batch, -1)
        votes = jnp.any(records.y[:, None] == query.labels, 0) | (not config.abstain)
        # Every bound takes a row of NaN for no vote at all.
        return messages.message(query.question, jnp.where(votes[:, None], gradients, jnp.nan))

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        del key
        moved = messages.direction(query.question, released).reshape(query.fakes.shape)
        target = query.fakes + moved

        def loss(params: PyTree) -> Array:
            fakes = net_g.generate(params, query.latents, query.all_labels)[n_pool:]
            return jnp.sum((fakes - target) ** 2)

        value, grads = jax.value_and_grad(loss)(public.params)
        params, optimiser = descend(g_adam, public.params, grads, public.optimiser)
        average = moving_average(public.average, params, config.ema, public.step + 1)
        metrics = {"generator_loss": value, "released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "released_share": jnp.mean(released != 0)}
        return Public(params, average, optimiser, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        return net_g.settle(public.average, key, spec.classes)

    return Method(
        mechanism=mechanism, init=init, init_unit=init_unit, ask=ask, learn=learn, answer=answer,
        absorb=absorb, finalize=finalize, sample=net_g.draw)


def features(spec: Spec) -> int:
    """Returns D, the features of one record."""
    return math.prod(spec.shape)
