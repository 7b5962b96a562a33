"""Fed-Avg GAN: clients train the discriminator, the server trains the generator.

Source: Augenstein et al., "Generative Models for Effective ML on Private, Decentralized Datasets",
ICLR 2020, Algorithm 1, arXiv 1911.06679. In a round each client trains the broadcast discriminator
on its own records and fakes, and answers with how its weights moved, clipped as one vector. The
server adds the noisy mean of that to the weights and trains the generator against them, which
touches no record.

Unit: a client, with all its records. Departures: networks without normalisation by batch, whose
statistics would have to be released as well; fakes conditional on labels; one public pool of fakes
for all clients of a round, instead of the generator itself; Adam for the generator; and
noise that is accounted (the published run has a hundredth of the clip, an epsilon of millions).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from dpgen_jax.accountant.published import Published, without_replacement
from dpgen_jax.aggregation.clip import GradientL2, GridMean, gradient_levels
from dpgen_jax.aggregation.mechanism import LocalMechanism, SumMechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import FullParticipation, PoissonSampling, RoundRobin
from dpgen_jax.core.config import Runtime, require_decay, require_not_negative, require_positive
from dpgen_jax.core.terms import Unit
from dpgen_jax.core.types import Array, ImageSpec, Method, Metrics, PyTree, Records, Spec, UserError
from dpgen_jax.methods.shared.config import MethodConfig
from dpgen_jax.methods.shared.dpsgd import Scorer, length, values
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, serving, stated
from dpgen_jax.nets.adam import Adam, descend, moving_average
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.losses import critic_loss
from dpgen_jax.nets.pair import Conv, ConvNet, Mlp, pair


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """The configuration of Fed-Avg GAN. `steps` or `sigma` may be None: found from the budget."""

    # Files of runs and releases have this number under its first name.
    clients: int = dataclasses.field(default=1000, metadata={"key": "critics"})
    """clients, each with its own discriminator for a round; a public number. The records of a data
    set that does not name its clients are split over so many"""
    clients_per_round: int = 0
    """clients of a round: on average, sampled in secret; in a public rotation where federated;
    0: all of them"""
    federated: bool = False
    """clients add the noise themselves and trust no server; else it is added to their sum"""
    client_records: int = 64
    """records from which a client learns; a larger client leaves some out"""
    client_steps: int = 6
    """steps of a client in a round"""
    client_batch: int = 32
    """the most records in one step of a client"""
    client_rate: float = 5e-4
    """learning rate of a client's gradient descent"""
    pool: int = 32
    """fakes of each class that the clients of a round learn from"""
    penalty: float = 10.0
    """weight of the gradient penalty; 0: none"""
    clip: float = 0.1
    """largest L2 norm of a client's answer, over all weights"""
    sigma: float | None = None
    """noise multiplier: standard deviation of the noise on the sum of answers, or on one client's
    where federated, over clip; found from the budget and steps if left out; 0: no noise"""
    steps: int | None = None
    """rounds; found from the budget and sigma if left out"""
    server_rate: float = 1.0
    """factor of the mean answer, before it is added to the weights"""
    g_steps: int = 6
    """steps of the generator in a round"""
    g_batch: int = 32
    """fakes in a generator step"""
    ema: float = 0.0
    """the released generator is a moving average over rounds; 0: the last generator"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: ConvNet = ConvNet()
    """the discriminator of images"""
    hidden: tuple[int, ...] = (128, 64)
    """hidden layers of the discriminator of tables"""
    g_optimiser: Adam = Adam()

    units_are_clients = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            clients=self.clients, client_records=self.client_records,
            client_steps=self.client_steps, client_batch=self.client_batch,
            client_rate=self.client_rate, pool=self.pool, clip=self.clip,
            server_rate=self.server_rate, g_steps=self.g_steps, g_batch=self.g_batch)
        require_not_negative(clients_per_round=self.clients_per_round, penalty=self.penalty)
        require_decay(ema=self.ema)

    @property
    def n_clients(self) -> int:
        """The number of clients."""
        return self.clients

    def with_clients(self, clients: int) -> Self:
        """Returns the configuration for this number of clients."""
        return dataclasses.replace(self, clients=clients)


def scorer(config: Config, spec: Spec) -> Scorer:
    """Returns the discriminator for records of this schema."""
    return (Conv(config.discriminator, spec) if isinstance(spec, ImageSpec)
            else Mlp(config.hidden, spec))


def schedule(config: Config) -> FullParticipation | RoundRobin | PoissonSampling:
    """Returns the schedule by which clients answer.

    Raises:
        UserError: for more clients in a round than there are.
    """
    clients, answering = config.clients, config.clients_per_round or config.clients
    if answering > clients:
        raise UserError(f"clients_per_round is {answering}, of {clients} clients; it must be "
                        f"{clients} or fewer, or 0 for all")
    if answering == clients:
        return FullParticipation()
    if config.federated:
        return RoundRobin(-(-clients // answering))
    return PoissonSampling(clients, answering)


def mechanism(config: Config, spec: Spec) -> SumMechanism | LocalMechanism:
    """Returns the mechanism: the noisy mean of how far clients moved the weights, in one round.

    Guarantee:
        Unit: a client. Relation: replace-one: all its records change, their number too. A client's
        answer is a vector of L2 norm at most clip, whatever its records are, a function of these
        and of the public query only; replacing it moves the sum by at most 2 clip. The noise has a
        standard deviation of sigma clip for each weight. With an aggregator that is trusted, a
        client is sampled with probability clients_per_round / clients, in secret and anew for each
        round: one Poisson-subsampled Gaussian release. Where federated the noise is each client's
        own and the schedule is a public rotation: one Gaussian release for each participation,
        without amplification.

    Raises:
        UserError: for more clients in a round than there are.
    """
    columns, sigma = length(scorer(config, spec)), config.sigma or 0.0
    # Where the noise is the clients' own, it takes its room in the sum.
    room = math.ceil(config.clients * (1 + 12 * sigma)) if config.federated else config.clients
    levels = gradient_levels(sigma, columns, room)
    bound = GradientL2(config.clip, columns, levels, unit=Unit.CLIENT)
    noise, rounds = gaussian(levels * sigma), schedule(config)
    shape, decode = (1, columns), GridMean(bound.grid)
    if config.federated and not isinstance(rounds, PoissonSampling):
        return LocalMechanism(bound=bound, noise=noise, schedule=rounds, n_units=config.clients,
                              shape=shape, decode=decode)
    return SumMechanism(bound=bound, noise=noise, schedule=rounds, n_units=config.clients,
                        shape=shape, decode=decode, unit=Unit.CLIENT)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

    Attributes:
        d: parameters of the discriminator.
        g: parameters of the generator.
        g_optimiser: state of its optimiser.
        average: moving average of the generator, shaped like g.
        step: int32 [], the rounds so far.
    """

    d: PyTree
    g: PyTree
    g_optimiser: PyTree
    average: PyTree
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        d: parameters of the discriminator.
        pool: float32 [C, P, *spec.shape], fakes of each class.
        key: uint32 [2], the key of all clients' draws, so that an answer does not depend on which
            other clients are queried.
    """

    d: PyTree
    pool: Array
    key: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    del runtime
    net_g, net_d = pair(spec, config.generator, DiscriminatorNet())[0], scorer(config, spec)
    g_adam, client_descent = config.g_optimiser.transformation(), optax.sgd(config.client_rate)

    def init(key: Array) -> Public:
        k_d, k_g = jax.random.split(key)
        g = net_g.init(k_g)
        return Public(net_d.init(k_d), g, g_adam.init(g), g, jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        k_z, k_clients = jax.random.split(key)
        labels = jnp.repeat(jnp.arange(spec.classes), config.pool)
        fakes = net_g.generate(public.g, net_g.latents(k_z, len(labels)), labels)
        return Query(public.d, fakes.reshape(spec.classes, config.pool, *spec.shape),
                     jax.random.key_data(k_clients))

    def answer(key: Array, unit: Array, records: Records, query: Query) -> Array:
        """How the client's steps move the weights: [1, D]."""
        del key, unit
        key = jax.random.wrap_key_data(query.key)
        n = len(records.y)
        batch = min(config.client_batch, n)
        order = jax.random.permutation(key, n)

        def step(i: Array, d: PyTree) -> PyTree:
            k_fakes, k_penalty = jax.random.split(jax.random.fold_in(key, i))
            rows = order[(i * batch + jnp.arange(batch)) % n]  # one pass after the other
            part = jax.tree.map(lambda a: a[rows], records)
            real, labels = values(part, spec), part.y
            fake = query.pool[labels, jax.random.randint(k_fakes, (batch,), 0, config.pool)]

            def loss(d: PyTree) -> Array:
                return critic_loss(lambda x, y: net_d.apply(d, x, y), k_penalty, real, fake, labels,
                                   config.penalty, drift=0.0)

            return descend(client_descent, d, jax.grad(loss)(d), client_descent.init(d))[0]

        d = jax.lax.fori_loop(0, config.client_steps, step, query.d)
        return ravel_pytree(jax.tree.map(jnp.subtract, d, query.d))[0][None]

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        flat, unravel = ravel_pytree(query.d)
        d = unravel(flat + config.server_rate * released[0])

        def g_step(i: Array, state: PyTree) -> PyTree:
            g, adam, _ = state
            key_i = jax.random.fold_in(key, i)

            def loss(g: PyTree) -> Array:
                return -jnp.mean(net_d.apply(d, *net_g.fakes(g, key_i, config.g_batch,
                                                             spec.classes)))

            value, grads = jax.value_and_grad(loss)(g)
            return *descend(g_adam, g, grads, adam), value

        g, adam, value = jax.lax.fori_loop(0, config.g_steps, g_step,
                                           (public.g, public.g_optimiser, jnp.zeros(())))
        average = moving_average(public.average, g, config.ema, public.step + 1)
        metrics = {"generator_loss": value, "released_norm": jnp.linalg.norm(released)}
        return Public(d, g, adam, average, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        return net_g.settle(public.average, key, spec.classes)

    return Method(
        mechanism=mechanism(config, spec), init=init, ask=ask, answer=answer, absorb=absorb,
        finalize=finalize, sample=net_g.draw)


def published(config: Config, delta: float) -> Published | None:
    """Returns the accounting of GS-WGAN, for clients; None where federated, or where all answer.

    Each round is one Gaussian release over clients that are sampled without replacement.
    """
    if not config.clients_per_round or config.federated:
        return None
    clients, queried, sigma = config.clients, config.clients_per_round, config.sigma or 0.0
    return Published(
        formula=f"T Gaussians of multiplier sigma, amplified by m/K, m={queried}, "
                f"K={clients}, sigma={sigma:g}, delta={delta:g} (GS-WGAN's federated experiment)",
        event=without_replacement(clients, queried, sigma), delta=delta)


# Presets of Fed-Avg GAN, each with its source.
#
# The promise is for all data of a client, so what counts is the number of clients. The presets of
# this library query all of them in every round, for one step on all their records: at a given
# budget the total signal over noise grows with the clients that answer, and not with the rounds.
# `-published` keep the rounds, clients and local steps of Augenstein et al., whose own noise, a
# hundredth of the clip, promises nothing; here it is found from the budget. Where 1,000 clients
# add the noise themselves (`federated`), images at epsilon 10 show nothing: that takes many more
# clients.

AUGENSTEIN = "Augenstein et al. 2020 and its code, with noise found from the budget"
OURS = "this library: chosen on glyphs, whose records are public"
FEMNIST = ImageSpec(28, 28, 1, 62)

SMALL = Config(clients=1000, client_records=30, client_steps=1, client_batch=30, client_rate=0.02,
               pool=8, steps=100, g_batch=64, g_steps=2, ema=0.9,
               generator=GeneratorNet(16, 128, 16), discriminator=ConvNet(8, 16),
               g_optimiser=Adam(2e-3))
MANY = dataclasses.replace(SMALL, clients=2000)
WRITERS = dataclasses.replace(SMALL, clients=3400, client_records=128, client_batch=128)
PUBLISHED = Config(clients=1000, clients_per_round=10, client_records=60, steps=1000,
                   generator=GeneratorNet(128, 1024, 64), discriminator=ConvNet(64, 128),
                   g_optimiser=Adam(1e-4))
CLIENTS = dataclasses.replace(SMALL, federated=True, steps=20, discriminator=ConvNet(4, 8))

DIFFERS = (
    "noise is found from the budget: the paper's, a hundredth of the clip, promises nothing",
    "networks have no batch normalisation, whose statistics would have to be released as well",
    "fakes are conditional on labels, and clients learn from one public pool of them a round",
    "clients are drawn by Poisson sampling, about 10 a round; the paper draws exactly 10",
    "Adam trains the generator")


PRESETS = stated({
    "glyphs": Preset(SMALL, GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "mnist": Preset(MANY, MNIST, 10.0, 1e-5, 60000, OURS),
    "femnist": Preset(WRITERS, FEMNIST, 10.0, 1e-5, 671585, OURS, dataset="femnist"),
    "federated": Preset(CLIENTS, GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="federated"),
    "mnist-published": Preset(PUBLISHED, MNIST, 10.0, 1e-5, 60000, AUGENSTEIN),
    "femnist-published": Preset(dataclasses.replace(PUBLISHED, clients=3400, client_records=256),
                                FEMNIST, 10.0, 1e-5, 671585, AUGENSTEIN),
}, {AUGENSTEIN: DIFFERS})
PRESETS = serving(PRESETS, ("mnist",), {"images": "mnist"})
