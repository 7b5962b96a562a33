"""DP-Sinkhorn with teachers: optimal transport decides where a generator's fakes should move.

Cao, Bie, Vahdat, Fidler and Kreis, "Don't Generate Me: Training Differentially Private Generative
Models with Sinkhorn Divergence" (NeurIPS 2021), train a generator without an adversary: the
gradient of an entropic transport loss between fakes and records, with respect to the fakes, is
clipped and released with noise. Here every teacher computes it on its own part of the records, so
that one record moves one message. A teacher has no network and keeps nothing.

Departures from the paper: teachers with disjoint records instead of minibatches drawn from all of
them; each fake's gradient is clipped, instead of all of them as one vector; and the debiasing term
compares two batches of fakes, which are public, so that it needs no noise.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from dpgen_jax.aggregation.clip import GridMean, RowL2, row_levels
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.core.config import Runtime, require_decay, require_not_negative, require_positive
from dpgen_jax.core.types import EMPTY, Array, Method, Metrics, PyTree, Records, Spec
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.methods.shared.presets import GLYPHS, Preset, numbers
from dpgen_jax.nets.adam import Adam, descend, moving_average
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """The fields of DP-Sinkhorn. `steps` or `sigma` may be None: found from the budget."""

    protects_subjects = True

    teachers: int = 200
    """disjoint parts of the records, each of which answers with one transport plan"""
    batch: int = 50
    """fakes in one query"""
    clip: float = 1.0
    """largest L2 norm of the move that a teacher proposes for one fake"""
    entropy: float = 0.02
    """weight of the entropy of a transport plan, in units of its cost; small plans are sharp"""
    iterations: int = 30
    """Sinkhorn iterations of one plan"""
    label_cost: float = 1.0
    """cost of transport between classes, added to the mean squared difference of features"""
    debias: float = 0.3
    """weight of the public term that keeps fakes apart, clipped alike; 0: none"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise over twice the clip; found from the budget
    and steps if left out; 0: no noise, epsilon is infinite"""
    steps: int | None = 300
    """generator steps; found from the budget and sigma if left out"""
    ema: float = 0.99
    """the released generator is a moving average of the weights; 0: the last weights"""
    generator: GeneratorNet = GeneratorNet()
    g_optimiser: Adam = Adam()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(teachers=self.teachers, batch=self.batch, clip=self.clip,
                         entropy=self.entropy, iterations=self.iterations)
        require_not_negative(label_cost=self.label_cost, debias=self.debias)
        require_decay(ema=self.ema)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The generator: a function of only released values and public keys.

    Attributes:
        params: The weights.
        average: The moving average of the weights.
        optimiser: The state of Adam.
        step: int32 [], the number of steps.
    """

    params: PyTree
    average: PyTree
    optimiser: PyTree
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The fakes that teachers propose moves for.

    Attributes:
        fakes: float32 [B, D] in [0, 1].
        labels: int32 [B].
        latents: float32 [B, latent].
    """

    fakes: Array
    labels: Array
    latents: Array


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the noisy mean of the clipped moves of one step.

    Guarantee:
        Unit: a record, through its teacher's message. Relation: replace-one. Sensitivity: a message
        is a vector of norm up to C for each of B fakes, whatever the teacher has, so it moves by at
        most 2 C sqrt(B); the noise has a standard deviation of 2 C sigma for each coordinate of the
        sum. One step is one Gaussian release with mu = sqrt(B) / sigma.

    Raises:
        UserError: Where the noise is larger than can be drawn for D features.
    """
    columns, sigma = math.prod(spec.shape), config.sigma or 0.0
    levels = row_levels(columns, sigma)
    bound = RowL2(config.clip, columns, config.batch, levels)
    return SumMechanism(bound=bound, noise=gaussian(2 * levels * sigma),
                        schedule=FullParticipation(), n_units=config.teachers,
                        shape=(config.batch, columns), decode=GridMean(bound.grid))


def transport_moves(config: Config, x: Array, labels: Array, y: Array, y_labels: Array) -> Array:
    """Returns where an entropic transport plan from x to y would move each row of x.

    The plan P has uniform marginals and is found by Sinkhorn iterations on logarithms (Cuturi,
    "Sinkhorn Distances", NeurIPS 2013). By the envelope theorem the gradient of the transport cost
    with respect to a row is its distance to its barycentre under P.

    Args:
        x: float32 [B, D].
        labels: int32 [B].
        y: float32 [m, D].
        y_labels: int32 [m]; rows with the label EMPTY take no part.

    Returns:
        float32 [B, D]: barycentre of y under each row's plan, minus the row.
    """
    present = y_labels != EMPTY
    cost = (jnp.mean((x[:, None] - y[None]) ** 2, -1)
            + config.label_cost * (labels[:, None] != y_labels[None]))
    kernel = jnp.where(present[None], -cost / config.entropy, -jnp.inf)
    rows = -jnp.log(len(x))
    columns = jnp.where(present, -jnp.log(jnp.sum(present)), -jnp.inf)

    def scale(_: int, g: Array) -> Array:
        f = rows - logsumexp(kernel + g[None], 1)
        return jnp.where(present, columns - logsumexp(kernel + f[:, None], 0), 0.0)

    g = jax.lax.fori_loop(0, config.iterations, scale, jnp.zeros(len(y)))
    # The last scaling is that of the rows: each is a distribution over y.
    return jax.nn.softmax(kernel + g[None], axis=1) @ y - x


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema, images or rows of a table."""
    del runtime  # a teacher keeps nothing
    net, _ = pair(spec, config.generator, DiscriminatorNet())
    adam = config.g_optimiser.transformation()

    def init(key: Array) -> Public:
        params = net.init(key)
        return Public(params, params, adam.init(params), jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        k_latents, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (config.batch,), 0, spec.classes)
        latents = net.latents(k_latents, config.batch)
        fakes = net.generate(public.params, latents, labels)
        return Query(fakes.reshape(config.batch, -1), labels, latents)

    def answer(key: Array, unit: PyTree, records: Records, query: Query) -> Array:
        del key, unit
        x = values(records, spec).reshape(len(records.y), -1)
        return transport_moves(config, query.fakes, query.labels, x, records.y)

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        others, labels = net.fakes(public.params, key, config.batch, spec.classes)
        apart = transport_moves(config, query.fakes, query.labels,
                                others.reshape(config.batch, -1), labels)
        # Teachers' moves are clipped; fakes that keep apart must not outweigh them.
        norm = jnp.linalg.norm(apart, axis=1, keepdims=True)
        apart = apart * jnp.minimum(1, config.clip / jnp.maximum(norm, 1e-12))
        move = released - config.debias * apart

        def generate(params: PyTree) -> Array:
            fakes = net.generate(params, query.latents, query.labels)
            return fakes.reshape(config.batch, -1)

        _, pull_back = jax.vjp(generate, public.params)
        (gradient,) = pull_back(-move / config.batch)
        params, optimiser = descend(adam, public.params, gradient, public.optimiser)
        average = moving_average(public.average, params, config.ema, public.step + 1)
        metrics = {"released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "apart_rms": jnp.sqrt(jnp.mean(apart**2))}
        return Public(params, average, optimiser, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        return net.settle(public.average, key, spec.classes)

    return Method(mechanism=mechanism(config, spec), init=init, ask=ask, answer=answer,
                  absorb=absorb, finalize=finalize, sample=net.draw)


# Presets of DP-Sinkhorn with teachers, the example of `docs/how-to/add-a-method.md`.
#
# They were not tuned: the method is here to show how one is added.

OURS = "this library: not tuned"

PRESETS = {
    "glyphs": Preset(Config(teachers=300, generator=GeneratorNet(16, 64, 32),
                            g_optimiser=Adam(2e-3)),
                     GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "table": Preset(Config(teachers=200, generator=GeneratorNet(latent=16, hidden=128),
                           g_optimiser=Adam(2e-3)),
                    numbers(29), 1.0, 1e-5, 45569, OURS, dataset="table"),
}
