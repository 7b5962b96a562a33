"""DP-SGD on records, and the GAN that DP-GAN and DP-CGAN share.

Unit: a record. Each sampled record answers with the gradient of the loss on itself with respect to
ALL parameters, clipped as one vector; the sum is released with noise (Abadi et al., "Deep Learning
with Differential Privacy", CCS 2016). The discriminator is therefore public, and so is all that is
computed from it: its gradient on fakes, which needs no noise, and the generator. Labels of fakes
are drawn uniformly, never from the records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from dpgen_jax.aggregation.clip import GradientL2, GridMean, gradient_levels
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation, PoissonSampling, Schedule
from dpgen_jax.core.config import require_decay, require_not_negative, require_positive
from dpgen_jax.core.terms import Relation
from dpgen_jax.core.types import Array, Method, Metrics, PyTree, Records, Spec, UserError
from dpgen_jax.methods.shared.config import RecordUnits
from dpgen_jax.nets.adam import descend, moving_average
from dpgen_jax.nets.pair import Generator

FAKES_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class DpSgd(RecordUnits):
    """The fields of every method that takes noisy gradients of records.

    `steps` or `sigma` may be None: it is found from the budget.
    """

    protects_subjects = True

    batch: int = 600
    """records of a step on average: each is sampled in secret with probability batch / records; as
    many as there are: all of them in every step, without sampling"""
    clip: float = 1.0
    """largest L2 norm of the gradient of one record, over all parameters"""
    relation: Literal["replace-one", "zero-out"] = "replace-one"
    """how neighbouring data sets differ: one record's content is replaced, or its influence is
    removed, which needs about half the noise and promises less accordingly"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise on the sum of gradients over clip; found
    from the budget and steps if left out; 0: no noise, epsilon is infinite"""
    steps: int | None = None
    """releases of a noisy gradient; found from the budget and sigma if left out"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(batch=self.batch, clip=self.clip)
        if self.records is not None and self.batch > self.records:
            raise UserError(f"batch is {self.batch}, and there are {self.records} records; it must "
                            f"be {self.records} or fewer, better a tenth of that")


def dpsgd(config: DpSgd, columns: int, norm: float | None = None) -> SumMechanism:
    """Returns the mechanism of DP-SGD: the noisy mean of the clipped gradients of one step.

    Guarantee:
        Unit: a record. Relation: replace-one, or zero-out. A sampled record adds a vector of L2
        norm at most clip (`norm`, where the method proves less), whatever it is, so replacing it
        moves the sum by at most twice that. The noise has a standard deviation of sigma times that
        norm for each entry. A record is sampled with probability batch / records, anew and in
        secret for each step: one Poisson-subsampled Gaussian release (`accountant.events`); with
        batch = records one Gaussian release.

    Source:
        Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1.

    Args:
        norm: the largest norm of a message, where it is not `config.clip`.
    """
    sigma, records = config.sigma or 0.0, config.n_records
    schedule: Schedule = (FullParticipation() if config.batch == records
                          else PoissonSampling(records, config.batch))
    levels = gradient_levels(sigma, columns, schedule.batch_capacity or records)
    bound = GradientL2(norm or config.clip, columns, levels, Relation(config.relation))
    return SumMechanism(bound=bound, noise=gaussian(levels * sigma), schedule=schedule,
                        n_units=records, shape=(1, columns), decode=GridMean(bound.grid),
                        relation=Relation(config.relation))


class Network(Protocol):
    """A network with parameters."""

    def init(self, key: Array) -> PyTree:
        """Draws the parameters."""


class Scorer(Network, Protocol):
    """A discriminator that sees one record at a time (`nets.pair`)."""

    def apply(self, params: PyTree, x: Array, labels: Array) -> Array:
        """Scores x [m, *spec.shape] in [0, 1] with labels int [m]: [m]."""


def length(net: Network) -> int:
    """Returns the number of parameters of a network."""
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def unraveller(net: Network) -> Callable[[Array], PyTree]:
    """Returns the map from a flat vector of all parameters to their tree."""
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return ravel_pytree(jax.tree.map(lambda a: jnp.zeros(a.shape), shapes))[1]


@dataclasses.dataclass(frozen=True)
class GanConfig(DpSgd):
    """The fields of both GANs."""

    loss: Literal["non-saturating", "wasserstein"] = "non-saturating"
    fakes: int = 600
    """fakes in a discriminator step"""
    g_batch: int = 600
    """fakes in a generator step"""
    d_steps: int = 1
    """discriminator steps for each step of the generator"""
    diversity: float = 0.0
    """weight of a loss on fakes of one class that are alike (mode seeking: Mao et al., CVPR 2019);
    a discriminator that sees one record at a time cannot tell"""
    ema: float = 0.0
    """the released generator is a moving average of the weights; 0: the last weights"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(fakes=self.fakes, g_batch=self.g_batch, d_steps=self.d_steps)
        require_not_negative(diversity=self.diversity)
        require_decay(ema=self.ema)


Loss = Callable[[Array], Array]
"""from scores to losses, each of its own score"""

LOSSES: dict[str, tuple[Loss, Loss, Loss]] = {
    "non-saturating": (lambda s: jax.nn.softplus(-s), jax.nn.softplus,
                       lambda s: jax.nn.softplus(-s)),
    "wasserstein": (lambda s: -s, lambda s: s, lambda s: -s),
}
"""The discriminator's loss on records and on fakes, and the generator's loss on fakes."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

    Attributes:
        d: parameters of the discriminator.
        d_optimiser: state of its optimiser.
        g: parameters of the generator.
        g_optimiser: state of its optimiser.
        average: moving average of the generator, shaped like g.
        step: int32 [], the discriminator steps so far.
    """

    d: PyTree
    d_optimiser: PyTree
    g: PyTree
    g_optimiser: PyTree
    average: PyTree
    step: Array


def values(records: Records, spec: Spec) -> Array:
    """Returns the records as networks take them: float32 [m, *spec.shape] in [0, 1]."""
    return records.x.astype(jnp.float32) / (255 if spec.dtype == "uint8" else 1)


@dataclasses.dataclass(frozen=True)
class Players:
    """The two networks, and how each learns.

    Attributes:
        generator: the generator.
        discriminator: the discriminator.
        d_optimiser: of the discriminator.
        g_optimiser: of the generator.
    """

    generator: Generator
    discriminator: Scorer
    d_optimiser: optax.GradientTransformation
    g_optimiser: optax.GradientTransformation


def build_gan(config: GanConfig, spec: Spec, players: Players,
              constrain: Callable[[PyTree], PyTree] = lambda d: d) -> Method:
    """Returns the GAN for records of this schema; `constrain` maps D's weights after each step."""
    record_loss, fake_loss, generator_loss = LOSSES[config.loss]
    net_g, net_d = players.generator, players.discriminator
    d_optimiser, g_optimiser = players.d_optimiser, players.g_optimiser
    unravel = unraveller(net_d)

    def init(key: Array) -> Public:
        k_d, k_g = jax.random.split(key)
        d, g = net_d.init(k_d), net_g.init(k_g)
        return Public(d, d_optimiser.init(d), g, g_optimiser.init(g), g, jnp.zeros((), jnp.int32))

    def answer(key: Array, unit: Array, records: Records, d: PyTree) -> Array:
        """The gradient of the discriminator's loss on the record: [1, D]."""
        del key, unit

        def loss(d: PyTree) -> Array:
            return jnp.mean(record_loss(net_d.apply(d, values(records, spec), records.y)))

        return ravel_pytree(jax.grad(loss)(d))[0][None]

    def clipped_share(d: PyTree, fakes: Array, labels: Array) -> Array:
        """The share [n] that clipping would leave of each fake's gradient.

        Fakes are public and clipping them protects nothing; without it they would outweigh the
        records, which are clipped.
        """
        def norm(fake_and_label: tuple[Array, Array]) -> Array:
            x, y = fake_and_label
            grads = jax.grad(lambda d: fake_loss(net_d.apply(d, x[None], y[None]))[0])(d)
            return jnp.sqrt(sum((jnp.sum(g * g) for g in jax.tree.leaves(grads)),
                                start=jnp.zeros(())))

        norms = jax.lax.map(norm, (fakes, labels), batch_size=min(FAKES_AT_ONCE, len(fakes)))
        return jnp.minimum(1, config.clip / jnp.maximum(norms, 1e-12))

    def generator_step(key: Array, public: Public) -> tuple[PyTree, PyTree, PyTree, Array]:
        k_z, k_labels = jax.random.split(key)
        half = max(1, config.g_batch // 2)
        # Two halves with the same labels and other latents: how far they lie apart is rewarded.
        labels = jnp.tile(jax.random.randint(k_labels, (half,), 0, spec.classes), 2)
        z = net_g.latents(k_z, 2 * half)

        def loss(g: PyTree) -> Array:
            fakes = net_g.generate(g, z, labels)
            apart = jnp.mean(jnp.abs(fakes[:half] - fakes[half:]))
            return (jnp.mean(generator_loss(net_d.apply(public.d, fakes, labels)))
                    + config.diversity * jnp.mean(jnp.abs(z[:half] - z[half:])) / (apart + 1e-3))

        value, grads = jax.value_and_grad(loss)(public.g)
        g, state = descend(g_optimiser, public.g, grads, public.g_optimiser)
        count = (public.step + 1) // config.d_steps
        return g, state, moving_average(public.average, g, config.ema, count), value

    def absorb(key: Array, public: Public, d: PyTree, released: Array) -> tuple[Public, Metrics]:
        k_fakes, k_g = jax.random.split(key)
        fakes, labels = net_g.fakes(public.g, k_fakes, config.fakes, spec.classes)
        share = clipped_share(d, fakes, labels)

        def loss(d: PyTree) -> tuple[Array, Array]:
            scores = net_d.apply(d, fakes, labels)
            return jnp.mean(share * fake_loss(scores)), scores

        (value, scores), grads = jax.value_and_grad(loss, has_aux=True)(d)
        grads = jax.tree.map(jnp.add, grads, unravel(released[0]))
        d, d_state = descend(d_optimiser, d, grads, public.d_optimiser)
        public = dataclasses.replace(public, d=constrain(d), d_optimiser=d_state)
        # Both branches are public, so the choice costs nothing and reveals nothing.
        g, g_state, average, g_loss = jax.lax.cond(
            (public.step + 1) % config.d_steps == 0, generator_step,
            lambda key, public: (public.g, public.g_optimiser, public.average, jnp.zeros(())),
            k_g, public)
        metrics = {"discriminator_loss_on_fakes": value, "fakes_told": jnp.mean(scores < 0),
                   "released_norm": jnp.linalg.norm(released), "generator_loss": g_loss}
        return Public(public.d, d_state, g, g_state, average, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        return net_g.settle(public.average, key, spec.classes)

    return Method(
        mechanism=dpsgd(config, length(net_d)), init=init, ask=lambda key, public: public.d,
        answer=answer, absorb=absorb, finalize=finalize, sample=net_g.draw)
