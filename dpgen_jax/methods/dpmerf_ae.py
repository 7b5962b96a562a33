"""DP-MERF on codes: an autoencoder by DP-SGD, then the mean embedding of its codes.

Source: the autoencoder variant of Harder, Adamczewski and Park (arXiv 2002.11603, first version),
whose code is gone. Unit: a record. The first steps release clipped gradients of the autoencoder's
loss; the last `embedding_steps` release random features of the sampled records' codes, each in the
block of its class. Both are vectors of norm 1 at most, padded to equal lengths, sampled and noised
alike: all steps are the same event, and a run has one mechanism. The embedding is the mean over its
steps. A generator of codes is fitted to it, and what is released is that and the decoder; both are
functions of released values.

Codes are normalised to one length each, so no bandwidth is read from them, and the autoencoder has
no batch normalisation, so that a record's gradient is its own.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpgen_jax.accountant.published import Published, without_replacement
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.core.config import Runtime, require_decay, require_positive
from dpgen_jax.core.types import Array, ImageSpec, Method, Metrics, PyTree, Records, Spec, UserError
from dpgen_jax.methods.dpmerf import Fit, fitting, keys, of_each_class
from dpgen_jax.methods.shared.dpsgd import DpSgd, dpsgd, length, unraveller, values
from dpgen_jax.methods.shared.presets import GLYPHS, MNIST, Preset, serving
from dpgen_jax.nets import merf, table
from dpgen_jax.nets.adam import Adam, descend
from dpgen_jax.nets.image import GeneratorNet
from dpgen_jax.nets.merf import RandomFeatures
from dpgen_jax.nets.pair import Generator


@dataclasses.dataclass(frozen=True)
class Config(DpSgd):
    """The configuration of DP-MERF on codes."""

    fakes_of_all_classes = "fakes"

    embedding_steps: int = 50
    """the last of the steps, which release the embedding and not gradients"""
    hidden: int = 64
    """units of the encoder's hidden layer, and of the decoder's"""
    code: int = 8
    """numbers of a code"""
    features: int = 500
    """cosines and sines that embed a code"""
    bandwidth: float = 0.25
    """bandwidth of the Gaussian kernel on codes, squared and per number of a code; the mean square
    of these is 1"""
    constant: float = 0.05
    """share of the constant, from which class sizes are read, in the squared norm of phi"""
    fakes: int = 500
    """fakes in a training step of the generator, of each class equally many"""
    generator_steps: int = 1000
    """training steps of the generator, after all releases"""
    ema: float = 0.95
    """the released generator is a moving average of the weights; 0: the last weights"""
    generator: GeneratorNet = GeneratorNet(latent=8, hidden=100)
    ae_optimiser: Adam = Adam(3e-3, 0.9)
    g_optimiser: Adam = Adam(5e-3)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(embedding_steps=self.embedding_steps, hidden=self.hidden, code=self.code,
                         fakes=self.fakes, generator_steps=self.generator_steps,
                         bandwidth=self.bandwidth)
        require_decay(ema=self.ema)
        if self.steps is not None and self.steps <= self.embedding_steps:
            raise UserError(f"embedding_steps is {self.embedding_steps}, of {self.steps} steps; "
                            "leave some for the autoencoder")
        if self.generator.warp:
            raise UserError(f"warp is {self.generator.warp}, which moves images; this generator "
                            "makes codes; set it to 0")


def parts(config: Config, spec: Spec) -> tuple[merf.Autoencoder, RandomFeatures]:
    """Returns the autoencoder, and the features that embed its codes."""
    net = merf.Autoencoder(config.hidden, config.code, spec)
    return net, RandomFeatures(net.code_spec, config.features, (0,), (config.bandwidth,),
                               config.constant, 0.0)


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: the noisy mean of one step's messages, of both sorts.

    Guarantee:
        That of `shared.dpsgd.dpsgd` with norm 1; the unit is a record. Gradients are divided by
        `clip` and features have norm 1, and the bound clips either to norm 1, whichever it is and
        whatever the record.
    """
    net, features = parts(config, spec)
    return dpsgd(config, max(length(net), spec.classes * features.columns), 1.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

    Attributes:
        net: parameters of the autoencoder.
        adam: state of its optimiser.
        frequencies: float32 [code, features / 2], of the features.
        embedding: float32 [C, D], the mean of the embeddings released so far, times their share of
            all that will be released.
        step: int32 [], the releases so far.
    """

    net: PyTree
    adam: PyTree
    frequencies: Array
    embedding: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        net: parameters of the autoencoder.
        frequencies: float32 [code, features / 2], of the features.
        embeds: bool [], whether this step asks for features instead of a gradient.
    """

    net: PyTree
    frequencies: Array
    embeds: Array


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    del runtime
    net, features = parts(config, spec)
    net_g = Generator(merf.CodeGenerator(config.generator, config.code, spec.classes),
                      lambda key, codes: codes, config.generator.latent_distribution)
    released_by, adam = mechanism(config, spec), config.ae_optimiser.transformation()
    columns, blocks = released_by.shape[1], spec.classes * features.columns
    unravel = unraveller(net)
    of_class = of_each_class("fakes", config.fakes, spec.classes)
    ae_steps = (config.steps or config.embedding_steps + 1) - config.embedding_steps

    def init(key: Array) -> Public:
        k_net, k_frequencies = jax.random.split(key)
        params = net.init(k_net)
        return Public(params, adam.init(params), features.draw(k_frequencies),
                      jnp.zeros((spec.classes, features.columns)), jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        del key
        return Query(public.net, public.frequencies, public.step >= ae_steps)

    def answer(key: Array, unit: Array, records: Records, query: Query) -> Array:
        """A gradient or features [1, columns], padded with zeros."""
        del key, unit
        x = values(records, spec)

        def gradient() -> Array:
            flat = ravel_pytree(jax.grad(net.loss)(query.net, x))[0] / config.clip
            return jnp.pad(flat, (0, columns - len(flat)))

        def embedding() -> Array:
            onehot = jax.nn.one_hot(records.y, spec.classes)
            phi = features.embed(query.frequencies, net.encode(query.net, x))
            message = jnp.mean(onehot[:, :, None] * phi[:, None], 0).reshape(-1)
            return jnp.pad(message, (0, columns - blocks))

        return jax.lax.cond(query.embeds, embedding, gradient)[None]

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        del key
        trained = descend(adam, public.net, unravel(released[0, :length(net)]), public.adam)
        params, state = jax.tree.map(lambda new, old: jnp.where(query.embeds, old, new),
                                     trained, (public.net, public.adam))
        share = released[0, :blocks].reshape(public.embedding.shape) / config.embedding_steps
        embedding = public.embedding + jnp.where(query.embeds, share, 0)
        metrics = {"released_norm": jnp.linalg.norm(released),
                   "embedding_norm": jnp.linalg.norm(embedding)}
        return Public(params, state, public.frequencies, embedding, public.step + 1), metrics

    def finalize(key: Array, fit: Fit) -> PyTree:
        """The generator of codes, and the decoder."""
        model = net_g.settle(fit.average, keys(key)[2], spec.classes)
        return {"generator": model, "decoder": {
            name: fit.public.net[name] for name in ("w2", "b2", "w3", "b3")}}

    def sample(model: PyTree, key: Array, labels: Array) -> Array:
        fakes = net.decode(model["decoder"], net_g.draw(model["generator"], key, labels))
        if isinstance(spec, ImageSpec):
            return fakes
        return table.hard_rows(jax.random.split(key)[1], fakes, spec)

    noise = (config.sigma or 0.0) / (config.batch * math.sqrt(config.embedding_steps))
    return Method(
        mechanism=released_by, init=init, ask=ask, answer=answer, absorb=absorb, finalize=finalize,
        sample=sample, post_training=fitting(net_g, features, noise, of_class, config))


def published(config: Config, delta: float) -> Published | None:
    """Returns the accounting of GS-WGAN; None while the number of records is not known.

    Each round is a Gaussian release over records sampled without replacement.
    """
    if not config.records:
        return None
    batch, records, sigma = config.batch, config.records, config.sigma or 0.0
    return Published(
        formula=f"T Gaussians of multiplier sigma, amplified by B/n, B={batch}, n={records}, "
                f"sigma={sigma:g}, delta={delta:g} (GS-WGAN)",
        event=without_replacement(records, batch, sigma), delta=delta)


# Presets of DP-MERF on codes.
#
# The paper's first version prints only noise and steps, and its code is gone: all settings are
# this library's.

OURS = ("this library, for the autoencoder variant of Harder, Adamczewski and Park, "
        "arXiv 2002.11603v1, whose settings are lost")

_config = Config(batch=600, steps=350, embedding_steps=50)
_eps10 = Preset(_config, MNIST, 10.0, 1e-5, 60000, OURS)

PRESETS = {
    "glyphs": dataclasses.replace(_eps10, spec=GLYPHS, records=30000, dataset="glyphs"),
    "mnist-eps10": _eps10,
    "mnist-eps1": dataclasses.replace(_eps10, epsilon=1.0),
}
PRESETS = serving(PRESETS, ("mnist-eps10", "mnist-eps1"),
                  {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1"})
