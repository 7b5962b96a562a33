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
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.clip import GridMean, RowL2, coarsest
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import MAX_SIGMA, gaussian
from dpgen_jax.aggregation.schedule import Everyone, PublishedDraw, Rotation, Schedule, SecretDraw
from dpgen_jax.config import Runtime
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import Critic, CriticNet
from dpgen_jax.nets.resnet import ResNet, ResNetNet
from dpgen_jax.nets.wasserstein import critic_loss
from dpgen_jax.types import Array, ImageSpec, Method, Records, Spec, UserError, Warm

PUBLISHED_ADAM = Adam(1e-4, 0.5, 0.9)


@dataclasses.dataclass(frozen=True)
class CriticConfig:
    """The fields of both systems. `steps` or `sigma` may be None: found from the budget."""

    critics: int = 1000
    """disjoint parts of the records, each with a critic of its own; clients, where federated"""
    critics_per_step: int = 0
    """critics that answer in a step, in a public rotation; 0: all"""
    schedule: Literal["rotation", "secret-draw"] = "rotation"
    """secret-draw: all critics learn, critics_per_step of them are heard"""
    accounting: Literal["proven", "as-published"] = "proven"
    """as-published: the paper's schedule, for which no guarantee is known; needs --epsilon inf"""
    federated: bool = False
    """critics are clients, who add noise themselves; the promise is for a client's whole data"""
    client_records: int = 512
    """records of a client that its critic learns from; of a larger client's some are left out"""
    batch: int = 32
    """fakes in one query"""
    clip: float = 1.0
    """largest L2 norm of a critic's gradient at one fake"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise on the sum of gradients over 2 clip, the
    most that one critic can move it; found from the budget and steps if left out; 0: no noise"""
    steps: int | None = None
    """generator steps; found from the budget and sigma if left out"""
    critic_steps: int = 5
    critic_steps_first: int = 5
    """critic steps at a visit, and at the first one"""
    records_per_step: int = 32
    """the most real records in one critic step"""
    pool: int = 32
    """fakes of each class that the critics of a step learn from"""
    penalty: float = 10.0
    """weight of the gradient penalty; 0: none"""
    drift: float = 1e-3
    """weight of the squared scores of real records"""
    warm_steps: int = 2000
    """steps of the warm start, in which each critic has a generator of its own"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.999
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: ResNetNet = ResNetNet()
    critic: CriticNet = CriticNet()
    warm_generator: ResNetNet = ResNetNet()
    d_optimiser: Adam = PUBLISHED_ADAM
    g_optimiser: Adam = PUBLISHED_ADAM

    def __post_init__(self):
        for name, least in (("critics", 1), ("critics_per_step", 0), ("batch", 1), ("pool", 1),
                            ("critic_steps", 1), ("critic_steps_first", 1), ("warm_steps", 0),
                            ("records_per_step", 1), ("client_records", 1), ("penalty", 0),
                            ("drift", 0)):
            if not getattr(self, name) >= least:
                raise UserError(f"{name} is {getattr(self, name)}; it must be {least} or above")
        if not self.clip > 0:
            raise UserError(f"clip is {self.clip}; it must be above 0")
        if not 0 <= self.g_final_rate <= 1:
            raise UserError(f"g_final_rate is {self.g_final_rate}; it must lie between 0 and 1")
        if not 0 <= self.ema < 1:
            raise UserError(f"ema is {self.ema}; it must lie in 0 <= ema < 1")
        if self.sigma is not None and not self.sigma >= 0:
            raise UserError(f"sigma is {self.sigma}; it must be 0 or above")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps is {self.steps}; at least 1 is needed")


def schedule(config: CriticConfig) -> Schedule:
    """Whose turn it is. Errors: UserError for more critics a step than there are, and for draws
    that the accounting does not know."""
    total, heard = config.critics, config.critics_per_step or config.critics
    if heard > total:
        raise UserError(f"critics_per_step is {heard}, of {total} critics; it must be {total} or "
                        "fewer, or 0 for all")
    if config.accounting == "as-published":
        if heard != 1 or config.federated:
            raise UserError("--accounting as-published is for one critic a step in one process; "
                            "pass --critics-per-step 1, without --federated")
        return PublishedDraw(total)
    if config.schedule == "secret-draw":
        return SecretDraw(total, heard)
    return Everyone() if heard == total else Rotation(-(-total // heard))


def mechanism(config: CriticConfig, spec: Spec) -> Mechanism | LocalMechanism:
    """The noisy mean of the clipped gradients of one step.

    Guarantee: replace-one. A unit's message is a gradient of norm up to C at each of B fakes,
    whatever the unit holds, so it moves by at most 2 C sqrt(B); the noise has a standard deviation
    of 2 C sigma per coordinate of the sum, or of one client's message where federated. One visit
    is one Gaussian release with mu = sqrt(B) / sigma.
    """
    if not isinstance(spec, ImageSpec):
        raise UserError("this method's networks are for images; for a table use gpate")
    columns, sigma = math.prod(spec.shape), config.sigma or 0.0
    # So fine that rounding costs nothing, or as fine as the table of a large noise allows.
    levels = math.ceil(8 * math.sqrt(columns))
    levels = min(levels, int(MAX_SIGMA / (2 * sigma))) if sigma else levels
    if levels < coarsest(columns):
        raise UserError(f"sigma is {sigma:g}; for images of {columns} values at most "
                        f"{MAX_SIGMA / (2 * coarsest(columns)):g} can be drawn")
    bound = RowL2(config.clip, columns, config.batch, levels)
    kind = LocalMechanism if config.federated else Mechanism
    return kind(bound=bound, noise=gaussian(2 * levels * sigma), schedule=schedule(config),
                n_units=config.critics, shape=(config.batch, columns), decode=GridMean(bound.grid))


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
        keep = jnp.minimum(config.ema, 1 - 1 / (public.step + 1))
        average = jax.tree.map(lambda a, w: keep * a + (1 - keep) * w, public.average, weights)
        vectors = net_g.iterate(weights, public.vectors)
        metrics = {"released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "generator_gradient": optax.global_norm(grads)}
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
