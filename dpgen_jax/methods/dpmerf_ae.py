"""DP-MERF on codes: an autoencoder by DP-SGD, then the mean embedding of its codes.

Source: the autoencoder variant of Harder, Adamczewski and Park (arXiv 2002.11603, first version),
whose code is gone. Unit: a record. The first steps release clipped gradients of the autoencoder's
loss; the last `embedding_steps` release random features of the drawn records' codes, each in the
block of its class. Both are vectors of norm 1 at most, filled up to equal lengths, drawn and noised
alike: all steps are the same event, and a run has one mechanism. The embedding is the mean over its
steps. A generator of codes is fitted to it, and what is released is that and the decoder; both are
functions of released values.

Codes are normalised to one length each, so no bandwidth is read from them, and the autoencoder has
no batch normalisation, so that a record's gradient is its own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.config import Runtime
from dpgen_jax.methods._dpsgd import DpSgd, dpsgd, length, stateless, values
from dpgen_jax.methods.dpmerf import Fit, fitting, keys, of_each_class
from dpgen_jax.nets import merf, table
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.fourier import RandomFeatures
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.pair import Generator
from dpgen_jax.types import Array, ImageSpec, Method, Records, Spec, UserError


@dataclasses.dataclass(frozen=True)
class Config(DpSgd):
    """What DP-MERF on codes computes."""

    embedding_steps: int = 50
    """of the steps: the last ones, which release the embedding and not gradients"""
    hidden: int = 64
    """units of the encoder's hidden layer, and of the decoder's"""
    code: int = 8
    """numbers of a code"""
    features: int = 500
    """cosines and sines that a code is embedded by"""
    bandwidth: float = 0.25
    """of the Gaussian kernel on codes, squared and per number of a code, whose mean square is 1"""
    constant: float = 0.05
    """share of the constant, from which class sizes are read, in the squared norm of phi"""
    fakes: int = 500
    """fakes of a training step of the generator, of each class equally many"""
    generator_steps: int = 1000
    """training steps of the generator, after all releases"""
    ema: float = 0.95
    """the generator that is released is a moving average of the weights; 0: the last ones"""
    generator: GeneratorNet = GeneratorNet(latent=8, hidden=100)
    ae_optimiser: Adam = Adam(3e-3, 0.9)
    g_optimiser: Adam = Adam(5e-3)

    positive = (*DpSgd.positive, "embedding_steps", "hidden", "code", "fakes", "generator_steps")
    decays = ("ema",)

    def __post_init__(self):
        super().__post_init__()
        if self.steps is not None and self.steps <= self.embedding_steps:
            raise UserError(f"embedding_steps is {self.embedding_steps}, of {self.steps} steps; "
                            "leave some for the autoencoder")
        if self.generator.warp:
            raise UserError(f"warp is {self.generator.warp}, which moves images; this generator "
                            "makes codes; set it to 0")


def parts(config: Config, spec: Spec) -> tuple[merf.Autoencoder, RandomFeatures]:
    net = merf.Autoencoder(config.hidden, config.code, spec)
    return net, RandomFeatures(net.code_spec, config.features, (0,), (config.bandwidth,),
                               config.constant, 0.0)


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The noisy mean of one step's messages, of both sorts: `_dpsgd.dpsgd` with norm 1.

    Guarantee: gradients are divided by `clip` and features have norm 1, and the bound clips either
    to norm 1, whichever it is and whatever the record.
    """
    net, features = parts(config, spec)
    return dpsgd(config, max(length(net), spec.classes * features.columns), 1.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """net: the autoencoder; embedding [C, D]: the mean of those released so far, times their share
    of all that will be."""

    net: Any
    adam: Any
    frequencies: Array
    embedding: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """embeds: whether this step asks for features instead of a gradient."""

    net: Any
    frequencies: Array
    embeds: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    net, features = parts(config, spec)
    net_g = Generator(merf.CodeGenerator(config.generator, config.code, spec.classes),
                      lambda key, codes: codes)
    held = mechanism(config, spec)
    columns, blocks = held.shape[1], spec.classes * features.columns
    unravel = ravel_pytree(jax.tree.map(
        lambda a: jnp.zeros(a.shape), jax.eval_shape(net.init, jax.random.key(0))))[1]
    of_class = of_each_class("fakes", config.fakes, spec.classes)
    ae_steps = (config.steps or config.embedding_steps + 1) - config.embedding_steps

    def init(key: Array) -> Public:
        k_net, k_frequencies = jax.random.split(key)
        params = net.init(k_net)
        return Public(params, config.ae_optimiser.init(params), features.draw(k_frequencies),
                      jnp.zeros((spec.classes, features.columns)), jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        del key
        return Query(public.net, public.frequencies, public.step >= ae_steps)

    def answer(key: Array, unit: Array, records: Records, query: Query) -> Array:
        """[1, columns], filled up with zeros."""
        del key, unit
        x = values(records, spec)

        def gradient():
            flat = ravel_pytree(jax.grad(net.loss)(query.net, x))[0] / config.clip
            return jnp.pad(flat, (0, columns - len(flat)))

        def embedding():
            onehot = jax.nn.one_hot(records.y, spec.classes)
            phi = features.embed(query.frequencies, net.encode(query.net, x))
            message = jnp.mean(onehot[:, :, None] * phi[:, None], 0).reshape(-1)
            return jnp.pad(message, (0, columns - blocks))

        return jax.lax.cond(query.embeds, embedding, gradient)[None]

    def absorb(key: Array, public: Public, query: Query, released: Array):
        del key
        params, adam = config.ae_optimiser.update(
            public.net, unravel(released[0, :length(net)]), public.adam)
        params, adam = jax.tree.map(lambda new, old: jnp.where(query.embeds, old, new),
                                    (params, adam), (public.net, public.adam))
        heard = released[0, :blocks].reshape(public.embedding.shape) / config.embedding_steps
        embedding = public.embedding + jnp.where(query.embeds, heard, 0)
        metrics = {"released_norm": jnp.linalg.norm(released),
                   "embedding_norm": jnp.linalg.norm(embedding)}
        return Public(params, adam, public.frequencies, embedding, public.step + 1), metrics

    def refine(key: Array, fit: Fit) -> Any:
        """The generator of codes, and the decoder."""
        model = net_g.settle(fit.average, keys(key)[2], spec.classes)
        return {"generator": model, "decoder": {
            name: fit.public.net[name] for name in ("w2", "b2", "w3", "b3")}}

    def sample(model: Any, key: Array, labels: Array) -> Array:
        made = net.decode(model["decoder"], net_g.draw(model["generator"], key, labels))
        k_draw = jax.random.split(key)[1]
        return made if isinstance(spec, ImageSpec) else table.hard_rows(k_draw, made, spec)

    noise = (config.sigma or 0.0) / (config.batch * math.sqrt(config.embedding_steps))
    return Method(held, init, stateless, ask, lambda key, unit, records, query: unit, answer,
                  absorb, refine, sample, polish=fitting(net_g, features, noise, of_class, config))
