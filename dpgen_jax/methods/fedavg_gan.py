"""Fed-Avg GAN: clients train the discriminator, the server trains the generator.

Source: Augenstein et al., "Generative Models for Effective ML on Private, Decentralized Datasets",
ICLR 2020, Algorithm 1, arXiv 1911.06679. In a round each client trains the broadcast discriminator
on its own records and fakes, and answers with how its weights moved, clipped as one vector; the
server adds the noisy mean of that to the weights and trains the generator against them, which
touches no record.

Unit: a client, with all its records. Different here: networks without normalisation by batch, whose
statistics would have to be released as well; labels, by which fakes are asked for; one public pool
of fakes for all clients of a round, instead of the generator itself; Adam for the generator; and
noise that is accounted (the published run has a hundredth of the clip, an epsilon of millions).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpgen_jax.aggregation.clip import GradientL2, GridMean, gradient_levels
from dpgen_jax.aggregation.local import LocalMechanism
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.noise import gaussian
from dpgen_jax.aggregation.schedule import Everyone, PoissonDraw, Rotation
from dpgen_jax.config import Runtime
from dpgen_jax.methods._config import MethodConfig
from dpgen_jax.methods._dpsgd import Scorer, length, stateless, values
from dpgen_jax.nets.adam import Adam, moving_average
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import pair
from dpgen_jax.nets.plain import Conv, ConvNet, Mlp
from dpgen_jax.nets.wasserstein import critic_loss
from dpgen_jax.types import Array, ImageSpec, Method, Records, Spec, UserError


@dataclasses.dataclass(frozen=True)
class Config(MethodConfig):
    """What Fed-Avg GAN does. `steps` or `sigma` may be None: found from the budget."""

    critics: int = 1000
    """clients, each with a discriminator of its own for a round; a public number. Of a data set
    that does not name its clients the records are split over so many"""
    clients_per_round: int = 0
    """clients of a round: on average, drawn in secret; in a public rotation where federated;
    0: all of them"""
    federated: bool = False
    """clients add the noise themselves and trust no server; else it is added to their sum"""
    client_records: int = 64
    """records of a client that it learns from; of a larger client's some are left out"""
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
    """by which the mean answer is multiplied before it is added to the weights"""
    g_steps: int = 6
    g_batch: int = 32
    """steps of the generator in a round, and their fakes"""
    ema: float = 0.0
    """the generator that is released is a moving average, over rounds; 0: the last one"""
    generator: GeneratorNet = GeneratorNet()
    discriminator: ConvNet = ConvNet()
    """of images"""
    hidden: tuple[int, ...] = (128, 64)
    """hidden layers of the discriminator of tables"""
    g_optimiser: Adam = Adam()

    positive = ("critics", "client_records", "client_steps", "client_batch", "client_rate", "pool",
                "clip", "server_rate", "g_steps", "g_batch")
    not_negative, decays = ("clients_per_round", "penalty"), ("ema",)
    of_clients = True


def scorer(config: Config, spec: Spec) -> Scorer:
    """The discriminator."""
    return (Conv(config.discriminator, spec) if isinstance(spec, ImageSpec)
            else Mlp(config.hidden, spec))


def mechanism(config: Config, spec: Spec) -> Mechanism | LocalMechanism:
    """The noisy mean of how far clients moved the weights, in one round.

    Guarantee: unit: a client; replace-one: all its records change, their number too. A client's
    answer is a vector of L2 norm at most clip, whatever it holds, a function of its own records and
    of the public query alone; replaced, it moves the sum by at most 2 clip. The noise has a
    standard deviation of sigma clip for each weight. With an aggregator that is trusted, a client
    is drawn with chance clients_per_round / critics, in secret and anew for each round: one
    Poisson-subsampled Gaussian release. Where federated the noise is each client's own, and a
    public rotation says whose turn it is: a Gaussian release for each visit, without amplification.
    """
    clients, heard = config.critics, config.clients_per_round or config.critics
    if heard > clients:
        raise UserError(f"clients_per_round is {heard}, of {clients} clients; it must be {clients} "
                        "or fewer, or 0 for all")
    columns, sigma = length(scorer(config, spec)), config.sigma or 0.0
    if heard == clients:
        schedule = Everyone()
    elif config.federated:
        schedule = Rotation(-(-clients // heard))
    else:
        schedule = PoissonDraw(clients, heard)
    # Each client's noise takes its room in the sum, where it is the client's own.
    room = math.ceil(clients * (1 + 12 * sigma)) if config.federated else clients
    levels = gradient_levels(sigma, columns, room)
    bound = GradientL2(config.clip, columns, levels, unit="client")
    shared = {"bound": bound, "noise": gaussian(levels * sigma), "schedule": schedule,
              "n_units": clients, "shape": (1, columns), "decode": GridMean(bound.grid)}
    return LocalMechanism(**shared) if config.federated else Mechanism(**shared, unit="client")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """Both networks, the generator's optimiser and its moving average: a function of released
    values and public keys alone."""

    d: Any
    g: Any
    g_optimiser: Any
    average: Any
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """d: the discriminator's weights; pool [C, P, *spec.shape]: fakes of each class; key uint32:
    that of all clients' draws, so that an answer does not depend on who else is asked."""

    d: Any
    pool: Array
    key: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    net_g, net_d = pair(spec, config.generator, DiscriminatorNet())[0], scorer(config, spec)
    held = mechanism(config, spec)

    def init(key: Array) -> Public:
        k_d, k_g = jax.random.split(key)
        g = net_g.init(k_g)
        return Public(net_d.init(k_d), g, config.g_optimiser.init(g), g, jnp.zeros((), jnp.int32))

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

        def step(i, d):
            k_fakes, k_penalty = jax.random.split(jax.random.fold_in(key, i))
            own = order[(i * batch + jnp.arange(batch)) % n]  # one pass after the other
            chosen = jax.tree.map(lambda a: a[own], records)
            real, labels = values(chosen, spec), chosen.y
            fake = query.pool[labels, jax.random.randint(k_fakes, (batch,), 0, config.pool)]

            def loss(d):
                return critic_loss(lambda x, y: net_d.score(d, x, y), k_penalty, real, fake, labels,
                                   config.penalty, drift=0.0)

            return jax.tree.map(lambda w, g: w - config.client_rate * g, d, jax.grad(loss)(d))

        d = jax.lax.fori_loop(0, config.client_steps, step, query.d)
        return ravel_pytree(jax.tree.map(jnp.subtract, d, query.d))[0][None]

    def absorb(key: Array, public: Public, query: Query, released: Array):
        flat, unravel = ravel_pytree(query.d)
        d = unravel(flat + config.server_rate * released[0])

        def g_step(i, state):
            g, adam, _ = state
            key_i = jax.random.fold_in(key, i)

            def loss(g):
                return -jnp.mean(net_d.score(d, *net_g.fakes(g, key_i, config.g_batch,
                                                             spec.classes)))

            value, grads = jax.value_and_grad(loss)(g)
            return *config.g_optimiser.update(g, grads, adam), value

        g, adam, value = jax.lax.fori_loop(0, config.g_steps, g_step,
                                           (public.g, public.g_optimiser, jnp.zeros(())))
        average = moving_average(public.average, g, config.ema, public.step + 1)
        metrics = {"generator_loss": value, "released_norm": jnp.linalg.norm(released)}
        return Public(d, g, adam, average, public.step + 1), metrics

    def refine(key: Array, public: Public) -> Any:
        return net_g.settle(public.average, key, spec.classes)

    return Method(held, init, stateless, ask, lambda key, unit, records, query: unit, answer,
                  absorb, refine, net_g.draw)
