"""The parts that GS-WGAN and DP-GAN-DPAC share: configuration, mechanism, fakes and training.

Critics learn from their own records and public fakes, and answer with their gradient at each
queried fake. The generator follows the released mean of the clipped gradients. The part in which
the systems differ is an `Extra`, see `build_gan`.

The fakes that critics and classifiers learn from are a pool that is generated once for all units of
a round. Without one (`pool` 0) a query holds the public generator itself, and each unit draws fakes
of its own records' labels for each of its steps, as Algorithm 1 of GS-WGAN and of DP-GAN-DPAC has
it. Either way fakes are a function of public values and of labels that stay with the unit.

Departures from the published codes, required for the guarantee: the queried fakes are not those
that critics learn from, so the generator never sees a private label; critics answer by a schedule
with a proof; a step's B gradients are one message, charged as one. One more departure serves
utility: the critics that answer are averaged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, Self, cast

import jax
import jax.numpy as jnp
import optax

from dpgen_jax.aggregation.clip import MOST_COLUMNS, GridMean, RowL2, row_levels
from dpgen_jax.aggregation.mechanism import LocalMechanism, SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import (
    FixedSizeSampling,
    FullParticipation,
    PublishedSampling,
    RoundRobin,
    Schedule,
)
from dpgen_jax.core.config import (
    Runtime,
    require_decay,
    require_not_negative,
    require_positive,
    require_share,
)
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import (
    Array,
    ImageSpec,
    Method,
    Metrics,
    Pretraining,
    PyTree,
    Records,
    Spec,
    UserError,
)
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.methods.shared.dpsgd import values
from dpgen_jax.nets import losses
from dpgen_jax.nets.adam import Adam, descend, moving_average
from dpgen_jax.nets.losses import LogitSlope, critic_loss
from dpgen_jax.nets.resnet import (
    Critic,
    CriticNet,
    ResNet,
    ResNetNet,
    at_label,
    class_score,
    spectral_normalise,
)

PUBLISHED_ADAM = Adam(1e-4, 0.5, 0.9)


@dataclasses.dataclass(frozen=True)
class CriticConfig(MethodConfig):
    """The fields of both systems. `steps` or `sigma` may be None: it is found from the budget."""

    critics: int = 1000
    """disjoint parts of the records, each with its own critic; clients, where federated"""
    critics_per_step: int = 0
    """the most critics that answer in a step, in a public rotation of turns of equal size: 600 of
    1,000 take turns of 500; 0: all of them"""
    schedule: Literal["rotation", "secret-draw"] = "rotation"
    """secret-draw: all critics learn, and critics_per_step of them, sampled in secret, count"""
    accounting: Literal["proven", "as-published"] = "proven"
    """as-published: the paper's schedule, for which no guarantee is known; needs --epsilon inf"""
    federated: bool = False
    """critics are clients, who add the noise themselves; the promise is for all data of a client"""
    client_records: int = 512
    """records of a client from which its critic learns; a larger client leaves some out"""
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
    """critic steps each time that a critic is queried"""
    critic_steps_first: int = 5
    """critic steps the first time that a critic is queried"""
    records_per_step: int = 32
    """the most real records in one critic step"""
    pool: int = 32
    """fakes of each class that the critics of a step learn from; 0: each critic draws its own anew
    for each of its steps, as in Algorithm 1, which is quick where few critics answer"""
    penalty: float = 10.0
    """weight of the gradient penalty; 0: none"""
    drift: float = 1e-3
    """weight of the squared scores of real records"""
    class_weight: float = 0.0
    """weight, in a critic's answer at a fake, of the gradient of its class score (the score under
    the fake's label less the mean of those under the others), added to the gradient of its score;
    0: none, as published"""
    warm_steps: int = 2000
    """steps of the warm start, in which each critic has its own generator"""
    g_final_rate: float = 1.0
    """the generator's learning rate falls linearly to this share of itself; 1: constant"""
    logit_slope: LogitSlope = "sigmoid"
    """how what is released for pixels reaches the generator's logits: sigmoid: by the chain rule,
    as published; straight-through: as it is, less what moves a black or white pixel further out"""
    ema: float = 0.999
    """the released generator is a moving average of the weights; 0: the last weights"""
    generator: ResNetNet = ResNetNet()
    critic: CriticNet = CriticNet()
    warm_generator: ResNetNet = ResNetNet()
    d_optimiser: Adam = PUBLISHED_ADAM
    g_optimiser: Adam = PUBLISHED_ADAM

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            critics=self.critics, client_records=self.client_records, batch=self.batch,
            clip=self.clip, critic_steps=self.critic_steps,
            critic_steps_first=self.critic_steps_first, records_per_step=self.records_per_step)
        require_not_negative(critics_per_step=self.critics_per_step, warm_steps=self.warm_steps,
                             pool=self.pool, penalty=self.penalty, drift=self.drift,
                             class_weight=self.class_weight)
        require_share(g_final_rate=self.g_final_rate)
        require_decay(ema=self.ema)

    @property
    def n_clients(self) -> int:
        """The number of critics, each of which is a client where federated."""
        return self.critics

    def with_clients(self, clients: int) -> Self:
        """Returns the configuration with this number of critics."""
        return dataclasses.replace(self, critics=clients)


def images_only(spec: Spec) -> ImageSpec:
    """Returns the schema of images.

    Raises:
        UserError: for a table, and for images that are too large.
    """
    if not isinstance(spec, ImageSpec):
        raise UserError("this method's networks are for images; for a table use marginals")
    if (values := math.prod(spec.shape)) > MOST_COLUMNS:
        raise UserError(f"images of {spec.height} x {spec.width} x {spec.channels} have {values:,} "
                        f"values; this method releases a gradient of {MOST_COLUMNS:,} at most: "
                        f"load them smaller, a folder with {option('image_size')}")
    return spec


def schedule(config: CriticConfig) -> Schedule:
    """Returns the schedule by which critics answer.

    Raises:
        UserError: for more critics in a step than there are, and for sampling that the accounting
            does not know.
    """
    total, answering = config.critics, config.critics_per_step or config.critics
    if answering > total:
        raise UserError(f"critics_per_step is {answering}, of {total} critics; it must be {total} "
                        "or fewer, or 0 for all")
    if config.accounting == "as-published":
        if answering != 1 or config.federated:
            raise UserError(f"{option('accounting', 'as-published')} is for one critic a step in "
                            f"one process; pass {option('critics_per_step', 1)}, without "
                            f"{option('federated')}")
        return PublishedSampling(total)
    if config.schedule == "secret-draw":
        return FixedSizeSampling(total, answering)
    return FullParticipation() if answering == total else RoundRobin(-(-total // answering))


def mechanism(config: CriticConfig, spec: Spec) -> SumMechanism | LocalMechanism:
    """Returns the mechanism: the noisy mean of the clipped gradients of one step.

    Guarantee:
        Unit: a record through its critic, or a client where federated. Relation: replace-one.
        A message is a gradient of norm up to C at each of B fakes, whatever the records of the unit
        are, so its sensitivity is 2 C sqrt(B). The noise has a standard deviation of 2 C sigma per
        coordinate of the sum, or of one client's message where federated. One participation is one
        Gaussian release with mu = sqrt(B) / sigma.

    Raises:
        UserError: for a table, and for a sigma that is too large for the noise's integers.
    """
    columns, sigma = math.prod(images_only(spec).shape), config.sigma or 0.0
    levels = row_levels(columns, sigma)
    bound = RowL2(config.clip, columns, config.batch, levels)
    noise, rounds = gaussian(2 * levels * sigma), schedule(config)
    shape, decode = (config.batch, columns), GridMean(bound.grid)
    if config.federated:
        public = cast(FullParticipation | RoundRobin, rounds)  # it refuses all others itself
        return LocalMechanism(bound=bound, noise=noise, schedule=public, n_units=config.critics,
                              shape=shape, decode=decode)
    return SumMechanism(bound=bound, noise=noise, schedule=rounds, n_units=config.critics,
                        shape=shape, decode=decode)


@dataclasses.dataclass(frozen=True)
class Fakes:
    """Three functions of the fakes of a round.

    Attributes:
        of_round: `of_round(pool, model)` -> what a query holds of these two, of the fakes of each
            class float32 [C, P, H, W, ch] and the generator's normalised weights.
        of_labels: `of_labels(key, kept, labels)` -> fakes [m, H, W, ch] of the labels int [m], from
            what the query holds.
        of_any: `of_any(key, kept, most)` -> (fakes, labels), at most so many of all classes.
    """

    of_round: Callable[[Array, PyTree], PyTree]
    of_labels: Callable[[Array, PyTree, Array], Array]
    of_any: Callable[[Array, PyTree, int], tuple[Array, Array]]


def fakes(config: CriticConfig, spec: ImageSpec) -> Fakes:
    """Returns the fakes of the configuration: from a pool, or drawn anew where `pool` is 0."""
    return _pooled() if config.pool else _fresh(ResNet(config.generator, spec))


def minibatch(key: Array, n: int, most: int) -> Array:
    """Draws indices of min(n, most) of n records, without replacement."""
    return jnp.arange(n) if n <= most else jax.random.permutation(key, n)[:most]


def _pooled() -> Fakes:
    """Fakes from a pool of equally many of each class."""
    def of_labels(key: Array, pool: PyTree, labels: Array) -> Array:
        return pool[labels, jax.random.randint(key, labels.shape, 0, pool.shape[1])]

    def of_any(key: Array, pool: PyTree, most: int) -> tuple[Array, Array]:
        classes, size = pool.shape[:2]
        rows = minibatch(key, classes * size, most)
        return pool.reshape(-1, *pool.shape[2:])[rows], rows // size

    return Fakes(lambda pool, model: pool, of_labels, of_any)


def _fresh(net: ResNet) -> Fakes:
    """Fakes of latents that are drawn anew whenever fakes are needed."""
    def of_labels(key: Array, model: PyTree, labels: Array) -> Array:
        return net.sample(model, net.latents(key, len(labels)), labels)

    def of_any(key: Array, model: PyTree, most: int) -> tuple[Array, Array]:
        k_z, k_labels = jax.random.split(key)
        labels = jax.random.randint(k_labels, (most,), 0, net.spec.classes)
        return of_labels(k_z, model, labels), labels

    return Fakes(lambda pool, model: model, of_labels, of_any)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

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
        material: source of the fakes that critics learn from (`Fakes.of_round`): float32
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
        init: `init(key)` -> the state that a unit keeps in addition to its critic.
        learn: `learn(key, state, x, y, query)` -> state, of x float32 [m, H, W, ch] and y [m].
        direction: `direction(key, state, x, y, query, slope)` -> the answer [B, H, W, ch]; slope is
            the gradient at each fake of the critic's score and of its weighted class score.
    """

    ask: Callable[[Array, PyTree, Array], PyTree] = lambda key, material, step: ()
    init: Callable[[Array], PyTree] = lambda key: ()
    learn: Callable[..., PyTree] = lambda key, state, x, y, query: state
    direction: Callable[..., Array] = lambda key, state, x, y, query, slope: slope


def build_gan(config: CriticConfig, spec: ImageSpec, runtime: Runtime, extra: Extra) -> Method:
    """Returns the method for images of this schema."""
    released_by, public_fakes = mechanism(config, spec), fakes(config, spec)
    net_g, net_d = ResNet(config.generator, spec), Critic(config.critic, spec)
    to_logits = losses.LOGIT_SLOPES[config.logit_slope]
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
        model = spectral_normalise(public.weights, public.vectors)[0]
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
        x, y = values(records, spec), records.y

        def fakes_of(key: Array, labels: Array) -> Array:
            return public_fakes.of_labels(key, query.material, labels)

        # A client takes no more steps than its terms allow, whatever a server sends.
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
        message = extra.direction(key, state, values(records, spec), records.y, query, slope)
        return message.reshape(config.batch, -1)

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        # The gradient of the generator's loss, -mean score, at the fakes is -released / B: it is
        # pulled back through the maps that moved them and through the generator, and nothing else
        # reaches its weights.
        del key

        def logits_of(weights: PyTree) -> Array:
            model = spectral_normalise(weights, public.vectors)[0]
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

    Source: the published pretrain.py, where each of 1,000 critics is a separate run.
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
        x, y = values(records, spec), records.y
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
