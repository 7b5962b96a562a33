"""DP-GAN with projected, discretised gradients: G-PATE without its teachers.

Source: Long et al., NeurIPS 2021, arXiv 1906.09338, section 6.2, "Ablation Study on the Use of
PATE".

Unit: a record. There is one discriminator, and it is public: a function of released values. Each
record answers with the gradient of the discriminator's loss on itself, with respect to all weights,
projected by a public random matrix that is drawn anew for every step. Each projected coordinate is
a vote for one of a few bins, as in G-PATE; the noisy histograms are released, and their means,
projected back, move the discriminator. The generator is trained against it (post-processing).
Nothing is sampled, so no amplification is claimed: every record answers in every step.

The paper says no more than "gradient discretization and random projection applied to DPSGD". This
implementation adds: the whole noisy histogram, which costs no more than its arg max; no batch
normalisation in the discriminator, which would couple records; and the same projection and bins for
the discriminator's loss on fakes, which is public, as for the records, so that what both halves
have in common cancels in the projection instead of becoming its noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.teacher_votes import HistogramMean, OneHot
from dpgen_jax.core.config import Runtime, require_decay, require_positive
from dpgen_jax.core.types import Array, Method, Metrics, PyTree, Records, Spec
from dpgen_jax.methods.shared.config import RecordUnits
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, serving
from dpgen_jax.methods.shared.teachers import features
from dpgen_jax.nets.adam import Adam, descend, moving_average
from dpgen_jax.nets.convolution import leaky_relu
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.losses import generator_loss
from dpgen_jax.nets.pair import pair


@dataclasses.dataclass(frozen=True)
class Config(RecordUnits):
    """The configuration of projected DP-GAN.

    `steps` or `sigma` may be None: it is found from the budget.
    """

    protects_subjects = True

    batch: int = 500
    """fakes in a discriminator step, and in the generator step after it"""
    projection: int = 1000
    """k: coordinates to which a gradient is projected"""
    bins: int = 3
    """B: of each coordinate's histogram"""
    clip: float = 0.1
    """c: projected gradients are clipped to +- this"""
    sigma: float | None = None
    """standard deviation of the noise, in votes; found from the budget and steps if left out; 0: no
    noise, epsilon is infinite"""
    steps: int | None = None
    """discriminator steps; found from the budget and sigma if left out"""
    hidden: int = 64
    """units of each of the discriminator's two hidden layers"""
    ema: float = 0.0
    """the released generator is a moving average of the weights; 0: the last weights"""
    generator: GeneratorNet = GeneratorNet()
    d_optimiser: Adam = Adam()
    g_optimiser: Adam = Adam()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(batch=self.batch, projection=self.projection, clip=self.clip,
                         hidden=self.hidden)
        require_decay(ema=self.ema)


def votes(config: Config) -> OneHot:
    """Returns the bound: one vote on each of the k histograms."""
    return OneHot(config.bins, config.projection, 1, config.clip)


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: the noisy histograms of one step.

    Guarantee:
        Unit: a record. Relation: replace-one. A record casts one vote on each of the k histograms,
        whatever it is; replacing it takes one vote from each and gives one, so the squared
        sensitivity is 2 k. One step is one Gaussian release.
    """
    bound = votes(config)
    return SumMechanism(bound=bound, noise=gaussian(config.sigma), schedule=FullParticipation(),
                        n_units=config.n_records, shape=(1, config.projection * config.bins),
                        decode=HistogramMean(bound))


Weights = Sequence[Array]
"""One matrix [in + C + 1, out] a layer: it reads its input, the one-hot label and a constant 1."""


def initial_weights(key: Array, spec: Spec, hidden: int) -> list[Array]:
    """Draws Glorot normal weights: fully connected, two hidden layers, one logit."""
    widths = (features(spec), hidden, hidden, 1)
    draw = jax.nn.initializers.glorot_normal()
    return [draw(jax.random.fold_in(key, i), (widths[i] + spec.classes + 1, widths[i + 1]))
            for i in range(len(widths) - 1)]


def forward(weights: Weights, x: Array, onehot: Array,
            shifts: Sequence[Array | float] = (0, 0, 0)) -> tuple[Array, list[Array]]:
    """Runs the discriminator (leaky ReLU 0.2).

    Args:
        x: [m, F].
        onehot: [m, C].
        shifts: added before the activations, by layer.

    Returns:
        Logits [m], and the input [m, in + C + 1] of each layer.
    """
    inputs, h = [], x
    joined = jnp.concatenate([onehot, jnp.ones((len(x), 1))], 1)
    for w, shift in zip(weights, shifts, strict=True):
        inputs.append(jnp.concatenate([h, joined], 1))
        z = inputs[-1] @ w + shift
        h = leaky_relu(z)
    return z[:, 0], inputs


Gradients = Sequence[tuple[Array, Array]]
"""One pair (a [m, in], d [m, out]) a layer: record i's gradient is the outer product of a_i and
d_i, and is never written out."""


def gradients(weights: Weights, x: Array, onehot: Array, loss: Callable[[Array], Array]
              ) -> Gradients:
    """Returns each record's gradient of loss(logit) with respect to all weights."""
    def total(shifts: Sequence[Array]) -> tuple[Array, list[Array]]:
        z, inputs = forward(weights, x, onehot, shifts)
        return jnp.sum(loss(z)), inputs

    zeros = [jnp.zeros((len(x), w.shape[1])) for w in weights]
    deltas, inputs = jax.grad(total, has_aux=True)(zeros)
    return list(zip(inputs, deltas, strict=True))


Projection = Sequence[tuple[Array, Array]]
"""One pair of signs (r [in, k], s [out, k]) a layer. Column j of R is the outer product of r_j and
s_j over sqrt k: entries +-1 / sqrt k, E[R R^T] = 1. Source: the Khatri-Rao product of Sun, Guo,
Tropp and Udell, "Tensor Random Projection for Low Memory Dimension Reduction" (2021). A gradient
that is an outer product is projected at the cost of its two sides, and R is never written out
either."""


def draw_projection(key: Array, weights: Weights, k: int) -> Projection:
    """Draws a projection, in public and anew for every step: projecting costs no privacy."""
    def signs(i: int, w: Array) -> tuple[Array, Array]:
        both = jax.random.rademacher(jax.random.fold_in(key, i), (sum(w.shape), k), jnp.float32)
        return both[:len(w)], both[len(w):]

    return [signs(i, w) for i, w in enumerate(weights)]


def project(projection: Projection, per_record: Gradients) -> Array:
    """Returns R^T g of each record: [m, k]."""
    k = projection[0][0].shape[1]
    parts = [(a @ r) * (d @ s) for (r, s), (a, d) in zip(projection, per_record, strict=True)]
    return sum(parts, start=jnp.zeros(())) / math.sqrt(k)


def reconstruct(projection: Projection, u: Array) -> list[Array]:
    """Returns R u, shaped as the weights, of u [k]: the transpose, not the inverse."""
    return [(r * u) @ s.T / math.sqrt(len(u)) for r, s in projection]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

    Attributes:
        d: the discriminator, one matrix a layer.
        d_adam: state of its optimiser.
        g: parameters of the generator.
        g_adam: state of its optimiser.
        average: moving average of the generator, shaped like g.
        step: int32 [], the steps so far.
    """

    d: PyTree
    d_adam: PyTree
    g: PyTree
    g_adam: PyTree
    average: PyTree
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        d: the discriminator, one matrix a layer.
        signs: the projection, one pair of signs a layer.
        fakes: float32 [B, F].
        labels: int32 [B].
    """

    d: PyTree
    signs: PyTree
    fakes: Array
    labels: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    del runtime
    net_g, _ = pair(spec, config.generator, DiscriminatorNet())
    released_by, bound = mechanism(config, spec), votes(config)
    d_adam, g_adam = config.d_optimiser.transformation(), config.g_optimiser.transformation()

    def onehot(labels: Array) -> Array:
        return jax.nn.one_hot(labels, spec.classes)

    def fakes_of(params: PyTree, key: Array) -> tuple[Array, Array]:
        fakes, labels = net_g.fakes(params, key, config.batch, spec.classes)
        return fakes.reshape(config.batch, -1), labels

    def init(key: Array) -> Public:
        k_d, k_g = jax.random.split(key)
        d, g = initial_weights(k_d, spec, config.hidden), net_g.init(k_g)
        return Public(d, d_adam.init(d), g, g_adam.init(g), g,
                      jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        k_projection, k_fakes = jax.random.split(key)
        projection = draw_projection(k_projection, public.d, config.projection)
        return Query(public.d, projection, *fakes_of(public.g, k_fakes))

    def answer(key: Array, unit: Array, records: Records, query: Query) -> Array:
        """The projected gradient of the discriminator's loss on the record: [1, k]."""
        del key, unit
        x = values(records, spec).reshape(len(records.y), -1)
        # BCE(., 1) is the discriminator's loss on a record as well as the generator's on a fake.
        per_record = gradients(query.d, x, onehot(records.y), generator_loss)
        return jnp.mean(project(query.signs, per_record), 0, keepdims=True)

    def of_fakes(key: Array, query: Query) -> Array:
        """The mean [1, k] that the votes would have if these fakes were all the records."""
        bce_0 = jax.nn.softplus
        per_fake = gradients(query.d, query.fakes, onehot(query.labels), bce_0)
        counts = bound.project(key, project(query.signs, per_fake)).sum(0, keepdims=True)
        return released_by.decode(counts, config.batch)

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        both = released + of_fakes(key, query)
        d, d_state = descend(d_adam, public.d, reconstruct(query.signs, both[0]), public.d_adam)

        def loss(g: PyTree) -> Array:
            fakes, labels = fakes_of(g, key)
            return jnp.mean(generator_loss(forward(d, fakes, onehot(labels))[0]))

        value, grads = jax.value_and_grad(loss)(public.g)
        g, g_state = descend(g_adam, public.g, grads, public.g_adam)
        average = moving_average(public.average, g, config.ema, public.step + 1)
        metrics = {"generator_loss": value, "released_rms": jnp.sqrt(jnp.mean(released**2))}
        return Public(d, d_state, g, g_state, average, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        return net_g.settle(public.average, key, spec.classes)

    return Method(
        mechanism=released_by, init=init, ask=ask, answer=answer, absorb=absorb, finalize=finalize,
        sample=net_g.draw)


# Presets of projected DP-GAN, each with its source.
#
# The paper prints accuracies (0.2026 at epsilon 1 and 0.5602 at epsilon 10, with its accounting)
# and no settings, so all are this library's. Steps and k are what a few minutes on two CPU cores
# allow. Three bins: the noise of a histogram's mean, sigma c sqrt((B - 1 / B) / 3) / n, grows
# with their number B. The clip is about one standard deviation of a projected gradient at the
# start. The generator learns more slowly than the discriminator, of whose weight space a step
# sees a few per cent.

OURS = ("this library, for the ablation on PATE of Long et al. 2021, section 6.2, which prints no "
        "settings")

_config = Config(batch=200, projection=1000, bins=3, clip=0.1, steps=500, ema=0.95,
                 generator=GeneratorNet(10, 256, 32), d_optimiser=Adam(2e-3),
                 g_optimiser=Adam(5e-4))
_eps1 = Preset(_config, MNIST, 1.0, 1e-5, 60000, OURS)
_eps10 = dataclasses.replace(
    _eps1, epsilon=10.0, config=dataclasses.replace(_config, projection=1500, clip=0.08))

PRESETS = {
    "mnist-eps1": _eps1,
    "mnist-eps10": _eps10,
    "glyphs": dataclasses.replace(
        _eps10, spec=GLYPHS, records=30000, dataset="glyphs",
        config=dataclasses.replace(_eps10.config, steps=250)),
}
PRESETS = serving(PRESETS, ("mnist-eps10", "mnist-eps1"),
                  {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1"})
