"""DataLens (Wang et al., CCS 2021, arXiv 2103.11109), Algorithms 1 to 3.

Unit: a teacher discriminator. It learns to tell its own records from public fakes, and answers
with the top-k stochastic signs of the direction in which each queried fake would look more real.
The votes are summed with Gaussian noise, thresholded, and the generator is fitted to its fakes
moved by the result.

Departures from the published code, both required for the guarantee: the teachers' fakes come from
one public pool, so the generator never sees a private label; and each teacher keeps its own
optimiser state. The generator's statistics for sampling are those of one large public batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import NoNoise, RoundedGaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.aggregation.threshold import Mean, Threshold
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.config import Runtime
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.image import (
    Discriminator,
    DiscriminatorNet,
    Generator,
    GeneratorNet,
    latents,
)
from dpgen_jax.nets.losses import discriminator_loss, generator_loss
from dpgen_jax.types import Array, ImageSpec, Method, Records, UserError

REFINE_BATCH = 2000


@dataclasses.dataclass(frozen=True)
class Config:
    """What DataLens computes. `steps` or `sigma` may be None: found from the budget."""

    teachers: int = 4000
    """disjoint parts of the records, each with a discriminator of its own"""
    batch: int = 15
    """fakes in one query; also the most real records in one discriminator step"""
    top_k: int = 200
    """votes of a teacher on one fake"""
    clip: float = 1e-5
    """gradients are clipped to +- this before they are scaled to signs; inf: not clipped"""
    sigma: float | None = None
    """standard deviation of the noise on each vote count; found from the budget and steps if left
    out; 0: none, epsilon is infinite"""
    steps: int | None = None
    """generator steps; found from the budget and sigma if left out"""
    decode: Literal["threshold", "mean"] = "threshold"
    """what is made of the noisy votes: the paper's threshold, or the votes over teachers"""
    threshold: float = 0.7
    """share of the teachers that must agree"""
    step_size: float = 1e-3
    """how far a fake is moved"""
    d_steps: int = 2
    d_steps_first: int = 10
    """discriminator steps in each iteration, and in the first one"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    ema: float = 0.0
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: DiscriminatorNet = DiscriminatorNet()
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    def __post_init__(self):
        for name in ("teachers", "batch", "top_k", "d_steps", "d_steps_first", "step_size", "clip"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.g_final_rate <= 1:
            raise UserError(f"g_final_rate is {self.g_final_rate}; it must lie between 0 and 1")
        if not 0 <= self.ema < 1:
            raise UserError(f"ema is {self.ema}; it must lie in 0 <= ema < 1")
        if self.sigma is not None and not self.sigma >= 0:
            raise UserError(f"sigma is {self.sigma}; it must be 0 or above")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"steps is {self.steps}; at least 1 is needed")


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
    """pool [C, batch, ...]: fakes to learn from, as discriminator patches; images [B, H, W, ch]
    with labels [B]: fakes to ask about; latents [C * batch + B] and all_labels: of both."""

    pool: Array
    images: Array
    labels: Array
    latents: Array
    all_labels: Array
    d_steps: Array


def mechanism(config: Config, spec: ImageSpec) -> Mechanism:
    """The top-k sign vote. Unit: a record, through its teacher; replace-one; 2 sqrt(k B)."""
    return Mechanism(
        bound=TopKSign(config.top_k, rows=config.batch, clip=config.clip),
        noise=RoundedGaussian(config.sigma) if config.sigma else NoNoise(),
        schedule=Everyone(), n_units=config.teachers,
        shape=(config.batch, spec.height * spec.width * spec.channels),
        decode=Threshold(config.threshold) if config.decode == "threshold" else Mean())


def build(config: Config, spec: ImageSpec, runtime: Runtime = Runtime()) -> Method:
    """The method for images of this schema."""
    net_g, net_d = Generator(config.generator, spec), Discriminator(config.discriminator, spec)
    g = config.g_optimiser
    rate = optax.linear_schedule(g.learning_rate, g.learning_rate * config.g_final_rate,
                                 config.steps or 1)
    g_adam = optax.adam(rate, g.beta1, g.beta2, g.epsilon)
    n_pool = spec.classes * config.batch

    def generate(params: Any, z: Array, labels: Array) -> Array:
        """Images, with the statistics of the call."""
        return net_g.apply({"params": params}, z, labels, train=True, mutable=["batch_stats"])[0]

    def init(key: Array) -> Public:
        shapes = latents(key, 1, config.generator), jnp.zeros(1, jnp.int32)
        params = net_g.init(key, *shapes, train=True)["params"]
        return Public(params, params, g_adam.init(params), jnp.zeros((), jnp.int32))

    def init_unit(key: Array) -> Any:
        params = net_d.init(key)
        return params, config.d_optimiser.init(params, runtime.moments)

    def ask(key: Array, public: Public) -> Query:
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        each_class = jnp.repeat(jnp.arange(spec.classes), config.batch)
        all_labels = jnp.concatenate([each_class, labels])
        z = latents(k_z, len(all_labels), config.generator)
        images = generate(public.params, z, all_labels)
        pool = net_d.patches(images[:n_pool])
        d_steps = jnp.where(public.step == 0, config.d_steps_first, config.d_steps)
        return Query(pool.reshape(spec.classes, config.batch, *pool.shape[1:]), images[n_pool:],
                     labels, z, all_labels, d_steps)

    def learn(key: Array, unit: Any, records: Records, query: Query) -> Any:
        held = len(records.y)
        m = min(config.batch, held)
        real = net_d.patches(records.x.astype(jnp.float32) / 255)

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
        del key, records
        params, _ = unit

        def loss(images):  # the mean, as published: the clip is a bound on gradients over B
            return jnp.mean(generator_loss(net_d.apply(params, images[None], query.labels[None])))

        return -jax.grad(loss)(query.images).reshape(config.batch, -1)

    def absorb(key: Array, public: Public, query: Query, released: Array):
        del key
        target = query.images + config.step_size * released.reshape(query.images.shape)

        def loss(params):
            images = generate(params, query.latents, query.all_labels)[n_pool:]
            return jnp.sum((images - target) ** 2)

        value, grads = jax.value_and_grad(loss)(public.params)
        updates, optimiser = g_adam.update(grads, public.optimiser)
        params = optax.apply_updates(public.params, updates)
        keep = jnp.minimum(config.ema, 1 - 1 / (public.step + 1))
        average = jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, public.average, params)
        metrics = {"generator_loss": value, "released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "released_share": jnp.mean(released != 0)}
        return Public(params, average, optimiser, public.step + 1), metrics

    def refine(key: Array, public: Public) -> Any:
        """Fixes the normalisation statistics to those of one large public batch."""
        labels = jnp.arange(REFINE_BATCH) % spec.classes
        z = latents(key, REFINE_BATCH, config.generator)
        _, updated = net_g.apply({"params": public.average}, z, labels, train=True,
                                 mutable=["batch_stats"])
        return {"params": public.average, "batch_stats": updated["batch_stats"]}

    def sample(model: Any, key: Array, labels: Array) -> Array:
        return net_g.apply(model, latents(key, len(labels), config.generator), labels, train=False)

    return Method(mechanism(config, spec), init, init_unit, ask, learn, answer, absorb, refine,
                  sample)
