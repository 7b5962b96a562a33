"""The training that GS-WGAN and DP-GAN-DPAC share.

Critics learn from their own records and public fakes, and answer with their gradient at each
queried fake; the generator follows the released mean of the clipped gradients. The part in
which the systems differ is an `Extra`, see `build_gan`.

Departures from the published codes, required for the guarantee: the queried fakes are not those
that critics learn from (`shared.fakes`), so the generator never sees a private label; critics
answer by a schedule with a proof; a step's B gradients are one message, charged as one. And for
use: the critics that answer are averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.core.config import Runtime
from dpgen_jax.core.types import (
    Array,
    ImageSpec,
    Method,
    Metrics,
    Pretraining,
    PyTree,
    Records,
)
from dpgen_jax.methods.shared.critic_config import CriticConfig, mechanism
from dpgen_jax.methods.shared.fakes import fakes, minibatch
from dpgen_jax.nets import logit_slope
from dpgen_jax.nets.adam import descend, moving_average
from dpgen_jax.nets.critic import Critic, at_label, class_score
from dpgen_jax.nets.resnet import ResNet
from dpgen_jax.nets.spectral import normalise
from dpgen_jax.nets.wasserstein import critic_loss


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of released values and public keys alone.

    Attributes:
        weights: of the generator, arrays by name (`ResNet.init`).
        vectors: of its power iteration, [out] by name.
        average: moving average of the weights, shaped as they are.
        optimiser: state of optax's Adam.
        step: int32 [], the queries so far.
    """

    weights: PyTree
    vectors: PyTree
    average: PyTree
    optimiser: PyTree
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        material: what critics draw the fakes from that they learn from (`Fakes.of_round`): float32
            [C, P, H, W, ch], or the generator's weights.
        fakes: float32 [B, H, W, ch], the queried fakes.
        labels: int32 [B], of the queried fakes.
        latents: float32 [B, latent], of the queried fakes.
        step: int32 [], the queries before this one.
        critic_steps: int32 [], steps that a critic takes before it answers.
        extra: public values that a system adds (`Extra.ask`).
    """

    material: PyTree
    fakes: Array
    labels: Array
    latents: Array
    step: Array
    critic_steps: Array
    extra: PyTree


@dataclasses.dataclass(frozen=True)
class Extra:
    """The part that a system adds to the critics.

    Attributes:
        ask: `ask(key, material, step)` -> public values of the query.
        init: `init(key)` -> the state that a unit keeps beside its critic.
        learn: `learn(key, state, x, y, query)` -> state, of x float32 [m, H, W, ch] and y [m].
        direction: `direction(key, state, x, y, query, slope)` -> the answer [B, H, W, ch]; slope is
            the gradient at each fake of the critic's score and of its weighted class score.
    """

    ask: Callable[[Array, PyTree, Array], PyTree] = lambda key, material, step: ()
    init: Callable[[Array], PyTree] = lambda key: ()
    learn: Callable[..., PyTree] = lambda key, state, x, y, query: state
    direction: Callable[..., Array] = lambda key, state, x, y, query, slope: slope


def pixels(records: Records) -> Array:
    """Returns the records' images as float32 in [0, 1]."""
    return records.x.astype(jnp.float32) / 255


def build_gan(config: CriticConfig, spec: ImageSpec, runtime: Runtime, extra: Extra) -> Method:
    """Returns the method for images of this schema.

    Args:
        config: the configuration.
        spec: the schema.
        runtime: precision of the critics' moments.
        extra: the part in which systems differ.
    """
    released_by, public_fakes = mechanism(config, spec), fakes(config, spec)
    net_g, net_d = ResNet(config.generator, spec), Critic(config.critic, spec)
    to_logits = logit_slope.BY_NAME[config.logit_slope]
    g_adam = config.g_optimiser.scheduled(config.g_final_rate, config.steps or 1)
    d_adam = config.d_optimiser.transformation(runtime.moments)

    def init(key: Array) -> Public:
        params = net_g.init(key)
        weights = params["weights"]
        return Public(weights, params["vectors"], weights, g_adam.init(weights),
                      jnp.zeros((), jnp.int32))

    def init_critic(key: Array) -> PyTree:
        weights, vectors = net_d.init(key)
        return weights, vectors, d_adam.init(weights)

    def init_unit(key: Array) -> PyTree:
        k_critic, k_extra = jax.random.split(key)
        return init_critic(k_critic), extra.init(k_extra)

    def critic_step(key: Array, critic: PyTree, x: Array, y: Array,
                    fakes_of: Callable[[Array, Array], Array]) -> PyTree:
        """One step on a batch of records and as many fakes of the same labels."""
        weights, vectors, state = critic
        k_records, k_fakes, k_penalty = jax.random.split(key, 3)
        rows = minibatch(k_records, len(y), config.records_per_step)
        real, labels = x[rows], y[rows]
        fake = fakes_of(k_fakes, labels)

        def loss(weights: PyTree) -> tuple[Array, PyTree]:
            normalised, moved = net_d.normalise(weights, vectors)

            def score(x: Array, labels: Array) -> Array:
                return net_d.apply(normalised, x, labels)

            return critic_loss(score, k_penalty, real, fake, labels, config.penalty,
                               config.drift), moved

        grads, moved = jax.grad(loss, has_aux=True)(weights)
        weights, state = descend(d_adam, weights, grads, state)
        return weights, moved, state

    def ask(key: Array, public: Public) -> Query:
        k_z, k_labels, k_extra = jax.random.split(key, 3)
        n_pool = spec.classes * config.pool
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        all_labels = jnp.concatenate([jnp.repeat(jnp.arange(spec.classes), config.pool), labels])
        z = net_g.latents(k_z, len(all_labels))
        model = normalise(public.weights, public.vectors)[0]
        images = net_g.sample(model, z, all_labels)
        pool = images[:n_pool].reshape(spec.classes, config.pool, *spec.shape)
        material = public_fakes.of_round(pool, model)
        # Keeps the compiler from unrolling the loop in `learn`, see `methods.shared.teachers`.
        critic_steps = jax.lax.optimization_barrier(
            jnp.where(public.step < released_by.schedule.n_cohorts, config.critic_steps_first,
                      config.critic_steps))
        return Query(material, images[n_pool:], labels, z[n_pool:], public.step, critic_steps,
                     extra.ask(k_extra, material, public.step))

    def learn(key: Array, unit: PyTree, records: Records, query: Query) -> PyTree:
        critic, state = unit
        k_critic, k_extra = jax.random.split(key)
        x, y = pixels(records), records.y

        def fakes_of(key: Array, labels: Array) -> Array:
            return public_fakes.of_labels(key, query.material, labels)

        # A client works for no longer than was agreed, whatever a server asks.
        limit = max(config.critic_steps, config.critic_steps_first)
        critic = jax.lax.fori_loop(
            0, jnp.minimum(query.critic_steps, limit),
            lambda i, c: critic_step(jax.random.fold_in(k_critic, i), c, x, y, fakes_of), critic)
        return critic, extra.learn(k_extra, state, x, y, query)

    def answer(key: Array, unit: PyTree, records: Records, query: Query) -> Array:
        (weights, vectors, _), state = unit
        normalised, _ = net_d.normalise(weights, vectors)

        def weighted(x: Array) -> Array:
            scores, labels = net_d.scores(normalised, x), query.labels
            return jnp.sum(at_label(scores, labels)
                           + config.class_weight * class_score(scores, labels))

        slope = jax.grad(weighted)(query.fakes)
        message = extra.direction(key, state, pixels(records), records.y, query, slope)
        return message.reshape(config.batch, -1)

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        # The gradient of the generator's loss, -mean score, at the fakes is -released / B: it is
        # pulled back through the maps that moved them and through the generator, and nothing else
        # reaches its weights.
        del key

        def logits_of(weights: PyTree) -> Array:
            model = normalise(weights, public.vectors)[0]
            return net_g.logits(model, query.latents, query.labels)

        logits, pull = jax.vjp(logits_of, public.weights)
        unmoved = jax.nn.sigmoid(logits)
        _, pull_unmoved = jax.vjp(lambda images: net_g.moved(images, query.latents), unmoved)
        (direction,) = pull_unmoved(released.reshape(logits.shape) / config.batch)
        (grads,) = pull(-to_logits(unmoved, direction))
        weights, optimiser = descend(g_adam, public.weights, grads, public.optimiser)
        average = moving_average(public.average, weights, config.ema, public.step + 1)
        vectors = net_g.iterate(weights, public.vectors)
        metrics = {"released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "generator_gradient": optax.tree.norm(grads)}
        return Public(weights, vectors, average, optimiser, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        del key
        return net_g.freeze(public.average, public.vectors)

    def sample(model: PyTree, key: Array, labels: Array) -> Array:
        return net_g.sample(model, net_g.latents(key, len(labels)), labels)

    return Method(
        mechanism=released_by, init=init, init_unit=init_unit, ask=ask, learn=learn, answer=answer,
        absorb=absorb, finalize=finalize, sample=sample,
        pretraining=_warm_start(config, spec, net_d, init_unit, critic_step))


def _warm_start(config: CriticConfig, spec: ImageSpec, net_d: Critic,
                init_unit: Callable[[Array], PyTree],
                critic_step: Callable[..., PyTree]) -> Pretraining | None:
    """A plain WGAN on the unit's own records, whose generator is not kept.

    Source: the published pretrain.py, where each of 1,000 critics is a run of its own.
    """
    if not config.warm_steps:
        return None
    net_g, g_adam = ResNet(config.warm_generator, spec), config.g_optimiser.transformation()

    def init(key: Array) -> PyTree:
        k_unit, k_g = jax.random.split(key)
        params = net_g.init(k_g)
        return init_unit(k_unit), params, g_adam.init(params["weights"])

    def step(key: Array, state: PyTree, records: Records) -> PyTree:
        (critic, extra), params, optimiser = state
        x, y = pixels(records), records.y
        weights, vectors = params["weights"], params["vectors"]

        def fakes_of(key: Array, labels: Array) -> Array:
            return net_g.generate(weights, vectors, net_g.latents(key, len(labels)), labels)

        critic = jax.lax.fori_loop(
            0, config.critic_steps,
            lambda i, c: critic_step(jax.random.fold_in(key, i), c, x, y, fakes_of), critic)
        k_z, k_labels = jax.random.split(jax.random.fold_in(key, config.critic_steps))
        labels = jax.random.randint(k_labels, (min(config.batch, 32),), 0, spec.classes)
        z = net_g.latents(k_z, len(labels))
        normalised, _ = net_d.normalise(*critic[:2])

        def loss(weights: PyTree) -> Array:
            fakes = net_g.generate(weights, vectors, z, labels)
            return -jnp.mean(net_d.apply(normalised, fakes, labels))

        weights, optimiser = descend(g_adam, weights, jax.grad(loss)(weights), optimiser)
        params = {"weights": weights, "vectors": net_g.iterate(weights, vectors)}
        return (critic, extra), params, optimiser

    return Pretraining(config.warm_steps, init, step, lambda state: state[0])
