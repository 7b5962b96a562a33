"""DP-SGD on records, and the GAN that DP-GAN and DP-CGAN share.

Unit: a record. Each drawn record answers with the gradient of the loss on itself with respect to
ALL parameters, clipped as one vector; the sum is released with noise (Abadi et al., "Deep Learning
with Differential Privacy", CCS 2016). The discriminator is therefore public, and so is all that is
computed from it: its gradient on fakes, which needs no noise, and the generator. Labels of fakes
are drawn uniformly, never from the records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpgen_jax.aggregation.clip import GradientL2, GridMean, gradient_levels
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone, PoissonDraw
from dpgen_jax.methods._config import MethodConfig
from dpgen_jax.nets.adam import moving_average
from dpgen_jax.nets.pair import Generator
from dpgen_jax.types import Array, Method, Records, Spec, UserError

FAKES_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class DpSgd(MethodConfig):
    """The fields of every method that takes noisy gradients of records. `steps` or `sigma` may be
    None: found from the budget."""

    records: int | None = None
    """number of records, which is public; the data set's if left out"""
    batch: int = 600
    """records of a step on average: each is drawn in secret with chance batch / records; as many
    as there are: all of them in every step, without a draw"""
    clip: float = 1.0
    """largest L2 norm of the gradient of one record, over all parameters"""
    relation: Literal["replace-one", "zero-out"] = "replace-one"
    """what neighbouring data sets are: one record's content replaced, or its influence removed,
    which costs about half the noise and promises as much less"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise on the sum of gradients over clip; found
    from the budget and steps if left out; 0: no noise, epsilon is infinite"""
    steps: int | None = None
    """releases of a noisy gradient; found from the budget and sigma if left out"""

    positive = ("batch", "clip")
    of_records = True

    def __post_init__(self):
        super().__post_init__()
        if self.records is not None and self.batch > self.records:
            raise UserError(f"batch is {self.batch}, and there are {self.records} records; it must "
                            f"be {self.records} or fewer, better a tenth of that")


def dpsgd(config: DpSgd, columns: int, norm: float | None = None) -> Mechanism:
    """The noisy mean of clipped gradients with `columns` entries, of one step.

    Guarantee: a record, if it is drawn, adds a vector of L2 norm at most clip (`norm`, where the
    method proves less), whatever it holds: replaced, it moves the sum by at most twice that. The
    noise has a standard deviation of sigma times that norm for each entry. With chance batch /
    records a record is drawn, anew and in secret for each step: one Poisson-subsampled Gaussian
    release (`accountant.events`); with batch = records one Gaussian release.
    """
    sigma, records = config.sigma or 0.0, config.n_records
    schedule = Everyone() if config.batch == records else PoissonDraw(records, config.batch)
    levels = gradient_levels(sigma, columns, schedule.places or records)
    bound = GradientL2(norm or config.clip, columns, levels, config.relation)
    return Mechanism(bound=bound, noise=gaussian(levels * sigma), schedule=schedule,
                     n_units=records, shape=(1, columns), decode=GridMean(bound.grid),
                     relation=config.relation)


class Scorer(Protocol):
    """A discriminator that sees one record at a time (`nets.plain`)."""

    def init(self, key: Array) -> Any: ...

    def score(self, params: Any, x: Array, labels: Array) -> Array: ...


def length(net: Any) -> int:
    """Parameters of a network, from its `init`."""
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@dataclasses.dataclass(frozen=True)
class GanConfig(DpSgd):
    """The fields of both GANs."""

    loss: Literal["non-saturating", "wasserstein"] = "non-saturating"
    fakes: int = 600
    """fakes of a discriminator step"""
    g_batch: int = 600
    """fakes of a generator step"""
    d_steps: int = 1
    """discriminator steps for each step of the generator"""
    diversity: float = 0.0
    """weight of a loss on fakes of one class that are alike (mode seeking: Mao et al., CVPR 2019);
    a discriminator that sees one record at a time cannot tell"""
    ema: float = 0.0
    """the generator that is released is a moving average of the weights; 0: the last ones"""

    positive, decays = (*DpSgd.positive, "fakes", "g_batch", "d_steps"), ("ema",)


# of a record's or fake's score: (on records, on fakes, the generator's on fakes)
LOSSES: dict[str, tuple[Callable, Callable, Callable]] = {
    "non-saturating": (lambda s: jax.nn.softplus(-s), jax.nn.softplus,
                       lambda s: jax.nn.softplus(-s)),
    "wasserstein": (lambda s: -s, lambda s: s, lambda s: -s),
}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """Both networks with their optimisers, and the generator's moving average: a function of
    released values and public keys alone."""

    d: Any
    d_optimiser: Any
    g: Any
    g_optimiser: Any
    average: Any
    step: Array


def values(records: Records, spec: Spec) -> Array:
    """The records as networks take them: float32 in [0, 1]."""
    return records.x.astype(jnp.float32) / (255 if spec.dtype == "uint8" else 1)


def converse(config: GanConfig, spec: Spec, net_g: Generator, net_d: Scorer, d_optimiser: Any,
             g_optimiser: Any, constrain: Callable[[Any], Any] = lambda d: d) -> Method:
    """The GAN for records of this schema.

    d_optimiser, g_optimiser: init(params) -> state, update(params, grads, state) -> both anew, as
    `nets.adam`; constrain: what is done to the discriminator's weights after each step.
    """
    of_record, of_fake, of_generator = LOSSES[config.loss]
    flat = jax.eval_shape(net_d.init, jax.random.key(0))
    unravel = ravel_pytree(jax.tree.map(lambda a: jnp.zeros(a.shape), flat))[1]

    def init(key: Array) -> Public:
        k_d, k_g = jax.random.split(key)
        d, g = net_d.init(k_d), net_g.init(k_g)
        return Public(d, d_optimiser.init(d), g, g_optimiser.init(g), g, jnp.zeros((), jnp.int32))

    def answer(key: Array, unit: Array, records: Records, d: Any) -> Array:
        """The gradient of D's loss on the record: [1, D]."""
        del key, unit

        def loss(d):
            return jnp.mean(of_record(net_d.score(d, values(records, spec), records.y)))

        return ravel_pytree(jax.grad(loss)(d))[0][None]

    def clipped_share(d: Any, fakes: Array, labels: Array) -> Array:
        """[n]: what clipping would leave of each fake's gradient. Fakes are public and clipping
        them protects nothing; without it they would outweigh the records, which are clipped."""
        def norm(fake_and_label):
            x, y = fake_and_label
            grads = jax.grad(lambda d: of_fake(net_d.score(d, x[None], y[None]))[0])(d)
            return jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))

        norms = jax.lax.map(norm, (fakes, labels), batch_size=min(FAKES_AT_ONCE, len(fakes)))
        return jnp.minimum(1, config.clip / jnp.maximum(norms, 1e-12))

    def generator_step(key: Array, public: Public) -> tuple[Any, Any, Any, Array]:
        k_z, k_labels = jax.random.split(key)
        half = max(1, config.g_batch // 2)
        # Two halves with the same labels and other latents: how far they lie apart is rewarded.
        labels = jnp.tile(jax.random.randint(k_labels, (half,), 0, spec.classes), 2)
        z = net_g.latents(k_z, 2 * half)

        def loss(g):
            fakes = net_g.generate(g, z, labels)
            apart = jnp.mean(jnp.abs(fakes[:half] - fakes[half:]))
            return (jnp.mean(of_generator(net_d.score(public.d, fakes, labels)))
                    + config.diversity * jnp.mean(jnp.abs(z[:half] - z[half:])) / (apart + 1e-3))

        value, grads = jax.value_and_grad(loss)(public.g)
        g, optimiser = g_optimiser.update(public.g, grads, public.g_optimiser)
        done = (public.step + 1) // config.d_steps
        return g, optimiser, moving_average(public.average, g, config.ema, done), value

    def absorb(key: Array, public: Public, d: Any, released: Array):
        k_fakes, k_g = jax.random.split(key)
        fakes, labels = net_g.fakes(public.g, k_fakes, config.fakes, spec.classes)
        share = clipped_share(d, fakes, labels)

        def loss(d):
            scores = net_d.score(d, fakes, labels)
            return jnp.mean(share * of_fake(scores)), scores

        (value, scores), grads = jax.value_and_grad(loss, has_aux=True)(d)
        grads = jax.tree.map(jnp.add, grads, unravel(released[0]))
        d, d_state = d_optimiser.update(d, grads, public.d_optimiser)
        public = dataclasses.replace(public, d=constrain(d), d_optimiser=d_state)
        g, g_state, average, g_loss = jax.lax.cond(
            (public.step + 1) % config.d_steps == 0, generator_step,
            lambda key, public: (public.g, public.g_optimiser, public.average, jnp.zeros(())),
            k_g, public)
        metrics = {"discriminator_loss_on_fakes": value, "fakes_told": jnp.mean(scores < 0),
                   "released_norm": jnp.linalg.norm(released), "generator_loss": g_loss}
        return Public(public.d, d_state, g, g_state, average, public.step + 1), metrics

    def refine(key: Array, public: Public) -> Any:
        return net_g.settle(public.average, key, spec.classes)

    return Method(dpsgd(config, length(net_d)), init, stateless, lambda key, public: public.d,
                  lambda key, unit, records, query: unit, answer, absorb, refine, net_g.draw)


def stateless(key: Array) -> Array:
    """A record keeps nothing; a unit's state may not be empty, so it is a 0."""
    del key
    return jnp.zeros((), jnp.int32)
