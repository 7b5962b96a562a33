"""The conversation that GS-WGAN and DP-GAN-DPAC share: critics learn from their own records and a
public pool of fakes, and answer with their gradient at each queried fake; the generator follows
the released mean of the clipped gradients. What differs is said by `Extra`, see `converse`.

Departures from the published codes, required for the guarantee: the critics' fakes come from one
public pool, so the generator never sees a private label; whose turn it is follows a schedule with
a proof; a step's B gradients are one message, charged as one. And for use: the critics that answer
are averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.config import Runtime
from dpgen_jax.methods._critic_config import CriticConfig, mechanism
from dpgen_jax.nets.adam import moving_average
from dpgen_jax.nets.critic import Critic
from dpgen_jax.nets.resnet import ResNet
from dpgen_jax.nets.wasserstein import critic_loss
from dpgen_jax.types import Array, ImageSpec, Method, Records, Warm


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The generator, the moving average of its weights and its optimiser: a function of released
    values and public keys alone."""

    weights: Any
    vectors: Any
    average: Any
    optimiser: Any
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """pool [C, P, H, W, ch]: fakes to learn from; fakes [B, H, W, ch] with labels [B] and latents:
    those asked about; step: how many there were before; extra: what else is asked, public."""

    pool: Array
    fakes: Array
    labels: Array
    latents: Array
    step: Array
    critic_steps: Array
    extra: Any


@dataclasses.dataclass(frozen=True)
class Extra:
    """What a system adds to a critic's answer.

    ask(key, pool, step): public; init(key): what a unit keeps beside its critic;
    learn(key, kept, x float [m, H, W, ch], y [m], query) -> kept;
    direction(key, kept, x, y, query, slope) -> [B, H, W, ch]: the answer, slope being the gradient
    of the critic's score at each fake.
    """

    ask: Callable[[Array, Array, Array], Any] = lambda key, pool, step: ()
    init: Callable[[Array], Any] = lambda key: ()
    learn: Callable[..., Any] = lambda key, kept, x, y, query: kept
    direction: Callable[..., Array] = lambda key, kept, x, y, query, slope: slope


def pixels(records: Records) -> Array:
    """The records' images as float32 in [0, 1]."""
    return records.x.astype(jnp.float32) / 255


def minibatch(key: Array, held: int, most: int) -> Array:
    """Indices of min(held, most) records, drawn without replacement."""
    return jnp.arange(held) if held <= most else jax.random.permutation(key, held)[:most]


def converse(config: CriticConfig, spec: ImageSpec, runtime: Runtime, extra: Extra) -> Method:
    """The method for records of this schema."""
    held = mechanism(config, spec)
    net_g, net_d = ResNet(config.generator, spec), Critic(config.critic, spec)
    g = config.g_optimiser
    rate = optax.linear_schedule(g.learning_rate, g.learning_rate * config.g_final_rate,
                                 config.steps or 1)
    g_adam = optax.adam(rate, g.beta1, g.beta2, g.epsilon)

    def init(key: Array) -> Public:
        params = net_g.init(key)
        weights = params["weights"]
        return Public(weights, params["vectors"], weights, g_adam.init(weights),
                      jnp.zeros((), jnp.int32))

    def init_critic(key: Array) -> Any:
        weights, vectors = net_d.init(key)
        return weights, vectors, config.d_optimiser.init(weights, runtime.moments)

    def init_unit(key: Array) -> Any:
        k_critic, k_extra = jax.random.split(key)
        return init_critic(k_critic), extra.init(k_extra)

    def critic_step(key: Array, critic: Any, x: Array, y: Array, fakes_of: Callable) -> Any:
        """One step on a batch of records and as many fakes of the same labels."""
        weights, vectors, adam = critic
        k_records, k_fakes, k_penalty = jax.random.split(key, 3)
        chosen = minibatch(k_records, len(y), config.records_per_step)
        real, labels = x[chosen], y[chosen]
        fake = fakes_of(k_fakes, labels)

        def loss(weights):
            normalised, moved = net_d.normalise(weights, vectors)

            def score(x, labels):
                return net_d.score(normalised, x, labels)

            return critic_loss(score, k_penalty, real, fake, labels, config.penalty,
                               config.drift), moved

        grads, moved = jax.grad(loss, has_aux=True)(weights)
        weights, adam = config.d_optimiser.update(weights, grads, adam)
        return weights, moved, adam

    def ask(key: Array, public: Public) -> Query:
        k_z, k_labels, k_extra = jax.random.split(key, 3)
        n_pool = spec.classes * config.pool
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        all_labels = jnp.concatenate([jnp.repeat(jnp.arange(spec.classes), config.pool), labels])
        z = net_g.latents(k_z, len(all_labels))
        fakes = net_g.generate(public.weights, public.vectors, z, all_labels)
        pool = fakes[:n_pool].reshape(spec.classes, config.pool, *spec.shape)
        # Keeps the compiler from unrolling the loop in `learn`, see `_skeleton`.
        critic_steps = jax.lax.optimization_barrier(
            jnp.where(public.step < held.schedule.groups, config.critic_steps_first,
                      config.critic_steps))
        return Query(pool, fakes[n_pool:], labels, z[n_pool:], public.step, critic_steps,
                     extra.ask(k_extra, pool, public.step))

    def learn(key: Array, unit: Any, records: Records, query: Query) -> Any:
        critic, kept = unit
        k_critic, k_extra = jax.random.split(key)
        x, y = pixels(records), records.y

        def from_pool(key, labels):
            return query.pool[labels, jax.random.randint(key, labels.shape, 0, config.pool)]

        # A client works for no longer than was agreed, whatever a server asks.
        most = max(config.critic_steps, config.critic_steps_first)
        critic = jax.lax.fori_loop(
            0, jnp.minimum(query.critic_steps, most),
            lambda i, c: critic_step(jax.random.fold_in(k_critic, i), c, x, y, from_pool), critic)
        return critic, extra.learn(k_extra, kept, x, y, query)

    def answer(key: Array, unit: Any, records: Records, query: Query) -> Array:
        (weights, vectors, _), kept = unit
        normalised, _ = net_d.normalise(weights, vectors)
        slope = jax.grad(lambda x: jnp.sum(net_d.score(normalised, x, query.labels)))(query.fakes)
        asked = extra.direction(key, kept, pixels(records), records.y, query, slope)
        return asked.reshape(config.batch, -1)

    def absorb(key: Array, public: Public, query: Query, released: Array):
        """The gradient of the generator's loss, -mean score, at the fakes is -released / B: it is
        pulled back through the generator, and nothing else reaches its weights."""
        del key

        def generate(weights):
            return net_g.generate(weights, public.vectors, query.latents, query.labels)

        _, pull = jax.vjp(generate, public.weights)
        (grads,) = pull(-released.reshape(query.fakes.shape) / config.batch)
        updates, optimiser = g_adam.update(grads, public.optimiser)
        weights = optax.apply_updates(public.weights, updates)
        average = moving_average(public.average, weights, config.ema, public.step + 1)
        vectors = net_g.iterate(weights, public.vectors)
        metrics = {"released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "generator_gradient": optax.tree.norm(grads)}
        return Public(weights, vectors, average, optimiser, public.step + 1), metrics

    def refine(key: Array, public: Public) -> Any:
        del key
        return net_g.freeze(public.average, public.vectors)

    def sample(model: Any, key: Array, labels: Array) -> Array:
        return net_g.sample(model, net_g.latents(key, len(labels)), labels)

    return Method(held, init, init_unit, ask, learn, answer, absorb, refine, sample,
                  _warm_start(config, spec, net_d, init_unit, critic_step))


def _warm_start(config: CriticConfig, spec: ImageSpec, net_d: Critic, init_unit: Callable,
                critic_step: Callable) -> Warm | None:
    """A plain WGAN on the unit's own records; its generator is thrown away.

    Source: the published pretrain.py, where each of 1,000 critics is a run of its own.
    """
    if not config.warm_steps:
        return None
    net_g, g = ResNet(config.warm_generator, spec), config.g_optimiser

    def init(key: Array) -> Any:
        k_unit, k_g = jax.random.split(key)
        params = net_g.init(k_g)
        return init_unit(k_unit), params, g.init(params["weights"])

    def step(key: Array, state: Any, records: Records) -> Any:
        (critic, kept), params, adam = state
        x, y = pixels(records), records.y
        weights, vectors = params["weights"], params["vectors"]

        def fakes_of(key, labels):
            return net_g.generate(weights, vectors, net_g.latents(key, len(labels)), labels)

        critic = jax.lax.fori_loop(
            0, config.critic_steps,
            lambda i, c: critic_step(jax.random.fold_in(key, i), c, x, y, fakes_of), critic)
        k_z, k_labels = jax.random.split(jax.random.fold_in(key, config.critic_steps))
        labels = jax.random.randint(k_labels, (min(config.batch, 32),), 0, spec.classes)
        z = net_g.latents(k_z, len(labels))
        normalised, _ = net_d.normalise(*critic[:2])

        def loss(weights):
            return -jnp.mean(net_d.score(normalised, net_g.generate(weights, vectors, z, labels),
                                         labels))

        weights, adam = g.update(weights, jax.grad(loss)(weights), adam)
        params = {"weights": weights, "vectors": net_g.iterate(weights, vectors)}
        return (critic, kept), params, adam

    return Warm(config.warm_steps, init, step, lambda state: state[0])
