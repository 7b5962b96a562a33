"""DP-GAN with projected, discretised gradients: G-PATE without its teachers (Long et al., NeurIPS
2021, arXiv 1906.09338, section 6.2, "Ablation Study on the Use of PATE").

Unit: a record. There is one discriminator, and it is public: a function of released values. Each
record answers with the gradient of the discriminator's loss on itself, with respect to all weights,
projected by a public random matrix that is drawn anew for every step. Each projected coordinate is
a vote for one of a few bins, as in G-PATE; the noisy histograms are released, and their means,
projected back, move the discriminator. The generator is trained against it (post-processing).
Nothing is sampled, so no amplification is claimed: every record answers in every step.

The paper says no more than "gradient discretization and random projection applied to DPSGD". What
is filled in here: the whole noisy histogram, which costs no more than its arg max; no batch
normalisation in the discriminator, which would couple records; and the discriminator's loss on
fakes, which is public, goes through the same projection and bins as the records, so that what both
halves have in common cancels in the projection instead of becoming its noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.histogram import HistogramMean, OneHot
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone
from dpgen_jax.config import Runtime
from dpgen_jax.methods._config import MethodConfig
from dpgen_jax.methods._dpsgd import stateless, values
from dpgen_jax.methods._skeleton import features
from dpgen_jax.nets.adam import Adam, moving_average
from dpgen_jax.nets.blocks import leaky_relu
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.losses import generator_loss
from dpgen_jax.nets.pair import pair
from dpgen_jax.types import Array, Method, Records, Spec


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """What projected DP-GAN computes. `steps` or `sigma` may be None: found from the budget."""

    records: int | None = None
    """number of records, which is public; the data set's if left out"""
    batch: int = 500
    """fakes of a discriminator step, and of the generator step after it"""
    projection: int = 1000
    """k: coordinates that a gradient is projected to"""
    bins: int = 3
    """B: of each coordinate's histogram"""
    clip: float = 0.1
    """c: projected gradients are clipped to +- this"""
    sigma: float | None = None
    """standard deviation of the noise, in votes; found from the budget and steps if left out; 0:
    none, epsilon is infinite"""
    steps: int | None = None
    """discriminator steps; found from the budget and sigma if left out"""
    hidden: int = 64
    """units of each of the discriminator's two hidden layers"""
    ema: float = 0.0
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: GeneratorNet = GeneratorNet()
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    positive, decays = ("batch", "projection", "clip", "hidden"), ("ema",)
    of_records = True


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The noisy histograms of one step. Unit: a record; replace-one.

    Guarantee: a record casts one vote on each of the k histograms, whatever it is; replacing it
    takes one vote from each and gives one: squared sensitivity 2 k.
    """
    bound = OneHot(config.bins, config.projection, 1, config.clip)
    return Mechanism(bound=bound, noise=gaussian(config.sigma), schedule=Everyone(),
                     n_units=config.n_records, shape=(1, config.projection * config.bins),
                     decode=HistogramMean(bound))


Weights = Sequence[Array]
"""Of each layer [in + C + 1, out]: it acts on its input, the one-hot label and a constant 1."""


def initial_weights(key: Array, spec: Spec, hidden: int) -> list[Array]:
    """Glorot normal: fully connected, two hidden layers, one logit."""
    widths = (features(spec), hidden, hidden, 1)
    draw = jax.nn.initializers.glorot_normal()
    return [draw(jax.random.fold_in(key, i), (widths[i] + spec.classes + 1, widths[i + 1]))
            for i in range(len(widths) - 1)]


def forward(weights: Weights, x: Array, onehot: Array,
            shifts: Sequence[Any] = (0, 0, 0)) -> tuple[Array, list[Array]]:
    """x [m, F], onehot [m, C] -> logits [m], and the input [m, in + C + 1] of each layer; shifts
    are added before the activations (leaky ReLU 0.2)."""
    inputs, h = [], x
    joined = jnp.concatenate([onehot, jnp.ones((len(x), 1))], 1)
    for w, shift in zip(weights, shifts, strict=True):
        inputs.append(jnp.concatenate([h, joined], 1))
        z = inputs[-1] @ w + shift
        h = leaky_relu(z)
    return z[:, 0], inputs


Gradients = Sequence[tuple[Array, Array]]
"""Of each layer (a [m, in], d [m, out]): record i's gradient is the outer product of a_i and d_i,
and is never written out."""


def gradients(weights: Weights, x: Array, onehot: Array, loss: Callable) -> Gradients:
    """Each record's gradient of loss(logit) with respect to all weights."""
    def total(shifts):
        z, inputs = forward(weights, x, onehot, shifts)
        return jnp.sum(loss(z)), inputs

    zeros = [jnp.zeros((len(x), w.shape[1])) for w in weights]
    deltas, inputs = jax.grad(total, has_aux=True)(zeros)
    return list(zip(inputs, deltas, strict=True))


Projection = Sequence[tuple[Array, Array]]
"""Of each layer signs (r [in, k], s [out, k]). Column j of R is the outer product of r_j and s_j
over sqrt k: entries +-1 / sqrt k, E[R R^T] = 1. Source: the Khatri-Rao product of Sun, Guo, Tropp
and Udell, "Tensor Random Projection for Low Memory Dimension Reduction" (2021). A gradient that is
an outer product is projected at the cost of its two sides, and R is never written out either."""


def draw_projection(key: Array, weights: Weights, k: int) -> Projection:
    """Public, and drawn anew for every step: projecting costs no privacy."""
    def signs(i, w):
        drawn = jax.random.rademacher(jax.random.fold_in(key, i), (sum(w.shape), k), jnp.float32)
        return drawn[:len(w)], drawn[len(w):]

    return [signs(i, w) for i, w in enumerate(weights)]


def project(drawn: Projection, of_records: Gradients) -> Array:
    """R^T g of each record: [m, k]."""
    k = drawn[0][0].shape[1]
    return sum((a @ r) * (d @ s) for (r, s), (a, d) in zip(drawn, of_records, strict=True)
               ) / math.sqrt(k)


def reconstruct(drawn: Projection, u: Array) -> list[Array]:
    """R u, shaped as the weights, of u [k]: the transpose, not the inverse."""
    return [(r * u) @ s.T / math.sqrt(len(u)) for r, s in drawn]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """Both networks with their optimisers, and the generator's moving average: a function of
    released values and public keys alone."""

    d: Any
    d_adam: Any
    g: Any
    g_adam: Any
    average: Any
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The discriminator, the projection, and fakes [B, F] with their labels."""

    d: Any
    drawn: Any
    fakes: Array
    labels: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    net_g, _ = pair(spec, config.generator, DiscriminatorNet())
    held = mechanism(config, spec)

    def onehot(labels):
        return jax.nn.one_hot(labels, spec.classes)

    def fakes_of(params, key):
        fakes, labels = net_g.fakes(params, key, config.batch, spec.classes)
        return fakes.reshape(config.batch, -1), labels

    def init(key: Array) -> Public:
        k_d, k_g = jax.random.split(key)
        d, g = initial_weights(k_d, spec, config.hidden), net_g.init(k_g)
        return Public(d, config.d_optimiser.init(d), g, config.g_optimiser.init(g), g,
                      jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        k_drawn, k_fakes = jax.random.split(key)
        drawn = draw_projection(k_drawn, public.d, config.projection)
        return Query(public.d, drawn, *fakes_of(public.g, k_fakes))

    def learn(key: Array, unit: Array, records: Records, query: Query) -> Array:
        del key, records, query
        return unit

    def answer(key: Array, unit: Array, records: Records, query: Query) -> Array:
        """The projected gradient of D's loss on the record: [1, k]."""
        del key, unit
        x = values(records, spec).reshape(len(records.y), -1)
        # BCE(., 1) is the discriminator's loss on a record as well as the generator's on a fake.
        of_each = gradients(query.d, x, onehot(records.y), generator_loss)
        return jnp.mean(project(query.drawn, of_each), 0, keepdims=True)

    def of_fakes(key: Array, query: Query) -> Array:
        """[1, k]: what the records' votes would come to if these fakes were all the records."""
        bce_0 = jax.nn.softplus
        of_each = gradients(query.d, query.fakes, onehot(query.labels), bce_0)
        votes = held.bound.project(key, project(query.drawn, of_each)).sum(0, keepdims=True)
        return held.decode(votes, config.batch)

    def absorb(key: Array, public: Public, query: Query, released: Array):
        both = released + of_fakes(key, query)
        d, d_adam = config.d_optimiser.update(public.d, reconstruct(query.drawn, both[0]),
                                              public.d_adam)

        def loss(g):
            fakes, labels = fakes_of(g, key)
            return jnp.mean(generator_loss(forward(d, fakes, onehot(labels))[0]))

        value, grads = jax.value_and_grad(loss)(public.g)
        g, g_adam = config.g_optimiser.update(public.g, grads, public.g_adam)
        average = moving_average(public.average, g, config.ema, public.step + 1)
        metrics = {"generator_loss": value, "released_rms": jnp.sqrt(jnp.mean(released**2))}
        return Public(d, d_adam, g, g_adam, average, public.step + 1), metrics

    def refine(key: Array, public: Public) -> Any:
        return net_g.settle(public.average, key, spec.classes)

    return Method(held, init, stateless, ask, learn, answer, absorb, refine, net_g.draw)
