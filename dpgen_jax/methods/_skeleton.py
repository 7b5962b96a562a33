"""The conversation that G-PATE and DataLens share: teachers learn from their own records and a
public pool of fakes, and answer how queried fakes should change; the generator is fitted to its
fakes so changed. What differs is said by three functions, see `converse`.

Departures from both published codes, required for the guarantee: the teachers' fakes come from one
public pool, so the generator never sees a private label; and each teacher keeps its own optimiser
state. The generator's statistics for sampling are those of one large public batch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.mechanism import Releases
from dpgen_jax.config import Runtime
from dpgen_jax.methods._config import MethodConfig
from dpgen_jax.nets.adam import Adam, moving_average
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.losses import discriminator_loss, generator_loss
from dpgen_jax.nets.pair import pair
from dpgen_jax.types import Array, Method, Records, Spec


@dataclasses.dataclass(frozen=True)
class TeacherConfig(MethodConfig):
    """The fields of both systems. `steps` or `sigma` may be None: found from the budget."""

    teachers: int = 4000
    """disjoint parts of the records, each with a discriminator of its own"""
    batch: int = 15
    """fakes in one query; also the most real records in one discriminator step"""
    sigma: float | None = None
    """standard deviation of the noise, in votes; found from the budget and steps if left out; 0:
    none, epsilon is infinite"""
    steps: int | None = None
    """generator steps; found from the budget and sigma if left out"""
    d_steps: int = 2
    d_steps_first: int = 10
    """discriminator steps in each iteration, and in the first one"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.0
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    abstain: bool = False
    """teachers have no say on fakes of a class of which they hold no record"""
    layers: Literal["published", "paper"] = "published"
    """networks of the published code, or as the G-PATE paper prints them"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: DiscriminatorNet = DiscriminatorNet()
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    positive = ("teachers", "batch", "d_steps", "d_steps_first")
    shares, decays = ("g_final_rate",), ("ema",)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The generator, its moving average and its optimiser: a function of released values and
    public keys alone."""

    params: Any
    average: Any
    optimiser: Any
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """pool [C, batch, ...]: fakes to learn from, in the discriminator's form; fakes [B, ...] with
    labels [B]: those asked about; latents [C * batch + B] and all_labels: of both; question: what
    else belongs to the query, public."""

    pool: Array
    fakes: Array
    labels: Array
    latents: Array
    all_labels: Array
    d_steps: Array
    question: Any


def nothing(key: Array) -> tuple:
    """No question beyond the fakes."""
    return ()


def converse(config: TeacherConfig, spec: Spec, runtime: Runtime, mechanism: Releases, *,
             message: Callable[[Any, Array], Array], direction: Callable[[Any, Array], Array],
             question: Callable[[Array], Any] = nothing) -> Method:
    """The method for records of this schema.

    question(key): public, drawn anew for every query; message(question, gradients [B, D]) ->
    [B, M]: what a teacher answers, D the features of a record; direction(question, released) ->
    [B, D]: by how much each fake is moved.
    """
    net_g, net_d = pair(spec, config.generator, config.discriminator, config.layers)
    g = config.g_optimiser
    rate = optax.linear_schedule(g.learning_rate, g.learning_rate * config.g_final_rate,
                                 config.steps or 1)
    g_adam = optax.adam(rate, g.beta1, g.beta2, g.epsilon)
    n_pool = spec.classes * config.batch

    def init(key: Array) -> Public:
        params = net_g.init(key)
        return Public(params, params, g_adam.init(params), jnp.zeros((), jnp.int32))

    def init_unit(key: Array) -> Any:
        params = net_d.init(key)
        return params, config.d_optimiser.init(params, runtime.moments)

    def ask(key: Array, public: Public) -> Query:
        k_z, k_labels, k_question = jax.random.split(key, 3)
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        each_class = jnp.repeat(jnp.arange(spec.classes), config.batch)
        all_labels = jnp.concatenate([each_class, labels])
        z = net_g.latents(k_z, len(all_labels))
        fakes = net_g.generate(public.params, z, all_labels)
        pool = net_d.patches(fakes[:n_pool])
        # Where both are 1 the compiler would unroll the loop in `learn`, and then copy the state of
        # all units at every visit: the barrier keeps the number from it.
        d_steps = jax.lax.optimization_barrier(
            jnp.where(public.step == 0, config.d_steps_first, config.d_steps))
        return Query(pool.reshape(spec.classes, config.batch, *pool.shape[1:]), fakes[n_pool:],
                     labels, z, all_labels, d_steps, question(k_question))

    def learn(key: Array, unit: Any, records: Records, query: Query) -> Any:
        held = len(records.y)
        m = min(config.batch, held)
        real = net_d.features(records.x)

        def step(i, unit):
            params, adam = unit
            chosen = (jnp.arange(m) if m == held else
                      jax.random.permutation(jax.random.fold_in(key, i), held)[:m])
            labels = records.y[chosen]
            both = jnp.stack([real[chosen], query.pool[labels, jnp.arange(m)]])

            def loss(params):
                logits = net_d.apply_patches(params, both, jnp.stack([labels, labels]))
                return discriminator_loss(logits[0], logits[1])

            return config.d_optimiser.update(params, jax.grad(loss)(params), adam)

        return jax.lax.fori_loop(0, query.d_steps, step, unit)

    def answer(key: Array, unit: Any, records: Records, query: Query) -> Array:
        del key
        params, _ = unit

        def loss(fakes):  # the mean, as published: the clip is a bound on gradients over B
            return jnp.mean(generator_loss(net_d.apply(params, fakes[None], query.labels[None])))

        gradients = -jax.grad(loss)(query.fakes).reshape(config.batch, -1)
        holds = jnp.any(records.y[:, None] == query.labels, 0) | (not config.abstain)
        # Every bound takes a row of NaN for no vote at all.
        return message(query.question, jnp.where(holds[:, None], gradients, jnp.nan))

    def absorb(key: Array, public: Public, query: Query, released: Array):
        del key
        moved = direction(query.question, released).reshape(query.fakes.shape)
        target = query.fakes + moved

        def loss(params):
            fakes = net_g.generate(params, query.latents, query.all_labels)[n_pool:]
            return jnp.sum((fakes - target) ** 2)

        value, grads = jax.value_and_grad(loss)(public.params)
        updates, optimiser = g_adam.update(grads, public.optimiser)
        params = optax.apply_updates(public.params, updates)
        average = moving_average(public.average, params, config.ema, public.step + 1)
        metrics = {"generator_loss": value, "released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "released_share": jnp.mean(released != 0)}
        return Public(params, average, optimiser, public.step + 1), metrics

    def refine(key: Array, public: Public) -> Any:
        return net_g.settle(public.average, key, spec.classes)

    return Method(mechanism, init, init_unit, ask, learn, answer, absorb, refine, net_g.draw)


def features(spec: Spec) -> int:
    """D: the features of one record."""
    return math.prod(spec.shape)
