"""DP-MERF: a generator fitted to one noisy mean embedding (Harder, Adamczewski and Park, "DP-MERF:
Differentially Private Mean Embeddings with Random Features for Practical Privacy-Preserving Data
Generation", AISTATS 2021, arXiv 2002.11603).

Unit: a record. There is one release. Each record answers with its random features, phi(x) of norm
1, in the block of its class; the noisy mean over the records says where each class lies in feature
space, and how large it is. The generator is then fitted to it as long as one likes: that reads no
record and costs nothing.

Departures from the published code. Bandwidths are constants: the code's are medians of private
distances. Features may read windows (`nets.fourier`). The embedding brings its own class sizes,
where the code releases counts apart. The squared distance between embeddings is estimated without
bias: a fake paired with itself says only that norms are 1, and pulls all fakes of a class together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.clip import GradientL2, GridMean, gradient_levels
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.config import Runtime
from dpgen_jax.methods._dpsgd import stateless, values
from dpgen_jax.methods._skeleton import REFINE_BATCH
from dpgen_jax.nets import merf
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.fourier import RandomFeatures
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import Generator
from dpgen_jax.types import Array, Method, Records, Spec, UserError

FINAL_RATE = 0.02
"""what the generator's learning rate falls to, as a share of itself"""


@dataclasses.dataclass(frozen=True)
class Config:
    """What DP-MERF computes. `sigma` may be None: found from the budget."""

    records: int | None = None
    """number of records, public; the data set's if left out"""
    features: int = 2000
    """cosines and sines that a record is embedded by"""
    windows: tuple[int, ...] = (0,)
    """what features read, in turn: squares of so many pixels a side, or so many columns of a table;
    0: all of a record"""
    bandwidths: tuple[float, ...] = (0.134,)
    """of the Gaussian kernels, squared and per pixel or column that is read; one, or one for each
    window"""
    constant: float = 0.05
    """share of the constant, from which class sizes are read, in the squared norm of phi"""
    onehots: float = 0.4
    """tables: share of the one-hots"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise on the mean embedding over its sensitivity,
    2 / records; found from the budget if left out; 0: none, epsilon is infinite"""
    steps: int = 1
    """releases: one"""
    batch: int = 200
    """fakes of a training step of the generator, of each class equally many"""
    generator_steps: int = 1000
    """training steps after the release, which cost no privacy"""
    ema: float = 0.95
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: GeneratorNet = merf.PUBLISHED
    g_optimiser: Adam = Adam(1e-2)

    def __post_init__(self):
        for name in ("batch", "generator_steps"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.records is not None and self.records < 1:
            raise UserError(f"records is {self.records}; at least 1 is needed")
        if not 0 <= self.ema < 1:
            raise UserError(f"ema is {self.ema}; it must lie in 0 <= ema < 1")
        if self.sigma is not None and not self.sigma >= 0:
            raise UserError(f"sigma is {self.sigma}; it must be 0 or above")
        if self.steps != 1:
            raise UserError(f"steps is {self.steps}; this method releases once, and trains its "
                            "generator for --generator-steps after that")


def random_features(config: Config, spec: Spec) -> RandomFeatures:
    return RandomFeatures(spec, config.features, config.windows, config.bandwidths,
                          config.constant, config.onehots)


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The noisy mean embedding. Unit: a record; replace-one.

    Guarantee: a record's message is its features in the block of its label, a vector of norm at
    most 1 whatever the record is, and clipped to that: replacing the record moves the sum by at
    most 2. The noise has a standard deviation of 2 sigma per coordinate of the sum, so the release
    is one Gaussian mechanism with mu = 1 / sigma.
    """
    if config.records is None:
        raise UserError("records is not set; pass --records N, the public number of records")
    columns, sigma = spec.classes * random_features(config, spec).columns, config.sigma or 0.0
    levels = gradient_levels(2 * sigma, columns, config.records)
    bound = GradientL2(1.0, columns, levels)
    return Mechanism(bound=bound, noise=gaussian(2 * levels * sigma), schedule=Everyone(),
                     n_units=config.records, shape=(1, columns), decode=GridMean(bound.grid))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """frequencies: of the features, drawn before any record is read; embedding float32 [C, D]: of
    each class, as released."""

    frequencies: Array
    embedding: Array


def embedding_loss(features: RandomFeatures, public: Public, fakes: Array, noise: float) -> Array:
    """An unbiased estimate of sum_c |mu_c / p_c - E phi(fakes of c)|^2, but for a constant.

    fakes [m, C, ...]: m of each class; p_c: its size, from the embedding's constant; noise: the
    standard deviation of an entry of the embedding. A class that is smaller than what its size's
    noise may be is taken to be so large, and what is known of it weighs the less.
    """
    m, classes = fakes.shape[:2]
    each = features.embed(public.frequencies, fakes.reshape(-1, *fakes.shape[2:]))
    each = each.reshape(m, classes, -1)
    size = jnp.maximum(public.embedding[:, 0], 0) / math.sqrt(features.constant)
    least = jnp.maximum(size, 3 * noise / math.sqrt(features.constant) + 1e-6)
    aim, share = public.embedding / least[:, None], size / least
    total = each.sum(0)
    pairs = (jnp.sum(total**2, -1) - jnp.sum(each**2, (0, 2))) / (m * (m - 1))
    return jnp.sum(share**2 * pairs - 2 * share * jnp.sum(total / m * aim, -1))


def of_each_class(name: str, fakes: int, classes: int) -> int:
    """Fakes of each class in a training step. Errors: UserError for fewer than a pair."""
    if fakes < 2 * classes:
        raise UserError(f"{name} is {fakes}, less than two fakes for each of {classes} classes; "
                        f"it must be {2 * classes} or above")
    return fakes // classes


def fit(key: Array, params: Any, loss: Callable[[Any, Array], Array], steps: int, optimiser: Adam,
        ema: float) -> Any:
    """The moving average of the weights over `steps` steps down loss(params, key)."""
    rate = optax.cosine_decay_schedule(optimiser.learning_rate, steps, FINAL_RATE)
    adam = optax.adam(rate, optimiser.beta1, optimiser.beta2, optimiser.epsilon)

    def step(i, carry):
        params, state, average = carry
        grads = jax.grad(loss)(params, jax.random.fold_in(key, i))
        updates, state = adam.update(grads, state)
        params = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda a, p: ema * a + (1 - ema) * p, average, params)
        return params, state, average

    return jax.lax.fori_loop(0, steps, step, (params, adam.init(params), params))[2]


def fit_generator(key: Array, net: Generator, features: RandomFeatures, public: Any, noise: float,
                  of_class: int, config: Any) -> Any:
    """Trains a generator of records, or of codes, on the released embedding, and fixes its
    normalisation statistics to those of one large batch: the model that it samples from."""
    k_init, k_fit, k_freeze = jax.random.split(key, 3)
    classes = features.spec.classes
    labels = jnp.tile(jnp.arange(classes), of_class)

    def loss(params, key):
        fakes = net.generate(params, net.latents(key, len(labels)), labels)
        fakes = fakes.reshape(of_class, classes, *features.spec.shape)
        return embedding_loss(features, public, fakes, noise)

    params = fit(k_fit, net.init(k_init), loss, config.generator_steps, config.g_optimiser,
                 config.ema)
    labels = jnp.arange(REFINE_BATCH) % classes
    return net.freeze(params, net.latents(k_freeze, REFINE_BATCH), labels)


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    features, net = random_features(config, spec), merf.generator(config.generator, spec)
    held = mechanism(config, spec)
    of_class = of_each_class("batch", config.batch, spec.classes)
    noise = 2 * (config.sigma or 0.0) / config.records

    def init(key: Array) -> Public:
        return Public(features.draw(key), jnp.zeros((spec.classes, features.columns)))

    def ask(key: Array, public: Public) -> Array:
        del key
        return public.frequencies

    def learn(key: Array, unit: Array, records: Records, query: Array) -> Array:
        del key, records, query
        return unit

    def answer(key: Array, unit: Array, records: Records, query: Array) -> Array:
        """The features in the block of the label; of several records their mean: [1, C D]."""
        del key, unit
        onehot = jax.nn.one_hot(records.y, spec.classes)
        blocks = onehot[:, :, None] * features.embed(query, values(records, spec))[:, None]
        return blocks.mean(0).reshape(1, -1)

    def absorb(key: Array, public: Public, query: Array, released: Array):
        del key, query
        embedding = released.reshape(public.embedding.shape)
        return Public(public.frequencies, embedding), {"norm": jnp.linalg.norm(embedding)}

    def refine(key: Array, public: Public) -> Any:
        return fit_generator(key, net, features, public, noise, of_class, config)

    def sample(model: Any, key: Array, labels: Array) -> Array:
        k_z, k_draw = jax.random.split(key)
        return net.sample(model, k_draw, net.latents(k_z, len(labels)), labels)

    return Method(held, init, stateless, ask, learn, answer, absorb, refine, sample)
