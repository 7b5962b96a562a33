"""TopAgg for DP-SGD: a classifier, trained on the largest entries of each record's gradient.

Source: Algorithm 4 and Appendix A of DataLens (Wang et al. 2021, arXiv 2103.11109). Unit: a record.
Each drawn record answers with its gradient of the cross-entropy, clipped to C as one vector, of
which NormTopK keeps the largest entries up to a share kappa of the squared norm. What is left is no
longer than sqrt(kappa) C, and so is the noise that it needs. The noisy mean moves the classifier,
which is a function of released values alone: it is what is released.

What departs from the paper: epsilon is that of replace-one, by default, and covers draws that do
not fit their places; the network has fewer parameters than the paper's on MNIST, since each one is
noised.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.aggregation.norm_topk import dimension_topk, norm_topk
from dpgen_jax.config import Runtime
from dpgen_jax.methods._dpsgd import DpSgd, dpsgd, length, stateless, values
from dpgen_jax.nets.classifiers import CNN_MIN_SIDE, Conv3x3, max_pool
from dpgen_jax.types import Array, ImageSpec, Method, Records, Spec, UserError


@dataclasses.dataclass(frozen=True)
class Config(DpSgd):
    """What TopAgg-SGD computes."""

    kappa: float = 0.8
    """share of each gradient that is kept; 1: all of it, which is DP-SGD"""
    keep: Literal["norm", "dimension"] = "norm"
    """what it is a share of: the squared norm, which lowers the noise to sqrt(kappa), or the number
    of entries, which does not"""
    network: Literal["cnn", "mlp"] = "cnn"
    """of images; the mlp for rows of a table and for features laid out as images"""
    channels: tuple[int, ...] = (16, 32)
    """of the two convolutions of the cnn"""
    hidden: tuple[int, ...] = ()
    """hidden layers of the mlp; none: a linear classifier"""
    learning_rate: float = 0.1
    momentum: float = 0.0

    positive, decays = (*DpSgd.positive, "learning_rate"), ("momentum",)

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.kappa <= 1:
            raise UserError(f"kappa is {self.kappa}; it must lie in 0 < kappa <= 1")
        if len(self.channels) != 2 or min(*self.channels, *self.hidden) < 1:
            raise UserError(f"channels are {self.channels} and hidden {self.hidden}; two channels "
                            "and any number of hidden layers, each of 1 or more, are needed")


class Cnn(nn.Module):
    """Two valid 3x3 convolutions, 2x2 maxima (where there are as many) and tanh after each, and a
    linear layer. Bounded activations suit clipped gradients (Papernot et al., "Tempered Sigmoid
    Activations for Deep Learning with Differential Privacy", AAAI 2021)."""

    channels: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [n, H, W, ch] in [0, 1] -> logits [n, classes]."""
        h = 2 * x - 1
        for width in self.channels:
            h = Conv3x3(width)(h)
            h = nn.tanh(max_pool(h) if min(h.shape[1:3]) > 1 else h)
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(h.reshape(len(h), -1))


class Mlp(nn.Module):
    """Linear layers with tanh between them."""

    hidden: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [n, ...] in [0, 1] -> logits [n, classes]."""
        h = 2 * x.reshape(len(x), -1) - 1
        for width in self.hidden:
            h = nn.tanh(nn.Dense(width)(h))
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(h)


@dataclasses.dataclass(frozen=True)
class Classifier:
    """The network of this configuration for records of this schema. Errors: UserError for images
    that are too small for the cnn."""

    config: Config
    spec: Spec

    def __post_init__(self):
        if self.module is Cnn and min(self.spec.shape[:2]) < CNN_MIN_SIDE:
            raise UserError(f"the cnn needs images of at least {CNN_MIN_SIDE} x {CNN_MIN_SIDE} "
                            f"pixels, got {self.spec.height} x {self.spec.width}; pass --network "
                            "mlp")

    @property
    def module(self) -> type[nn.Module]:
        images = isinstance(self.spec, ImageSpec)
        return Cnn if images and self.config.network == "cnn" else Mlp

    @property
    def net(self) -> nn.Module:
        widths = self.config.channels if self.module is Cnn else self.config.hidden
        return self.module(widths, self.spec.classes)

    def init(self, key: Array) -> Any:
        return self.net.init(key, jnp.zeros((1, *self.spec.shape)))["params"]

    def logits(self, params: Any, x: Array) -> Array:
        """x float [n, *spec.shape] in [0, 1] -> [n, classes]."""
        return self.net.apply({"params": params}, x)


def mechanism(config: Config, spec: Spec) -> Mechanism:
    """The noisy mean of the clipped and compressed gradients: `_dpsgd.dpsgd`. Unit: a record.

    Guarantee: a drawn record adds a vector of L2 norm at most sqrt(kappa) clip where a share of the
    squared norm is kept, and at most clip where a share of the entries is, which may hold all of
    it. The bound checks this in integers, whatever the floats of NormTopK did.
    """
    share = math.sqrt(config.kappa) if config.keep == "norm" else 1.0
    return dpsgd(config, length(Classifier(config, spec)), share * config.clip)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The classifier and its momentum: a function of released values and public keys alone."""

    params: Any
    velocity: Any


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """The method for records of this schema."""
    del runtime
    net = Classifier(config, spec)
    flat = jax.eval_shape(net.init, jax.random.key(0))
    unravel = ravel_pytree(jax.tree.map(lambda a: jnp.zeros(a.shape), flat))[1]
    compress = norm_topk if config.keep == "norm" else dimension_topk

    def init(key: Array) -> Public:
        params = net.init(key)
        return Public(params, jax.tree.map(jnp.zeros_like, params))

    def answer(key: Array, unit: Array, records: Records, params: Any) -> Array:
        """What is kept of the clipped gradient of the cross-entropy on the record: [1, D]."""
        del key, unit

        def loss(params):
            logits = jax.nn.log_softmax(net.logits(params, values(records, spec)))
            return -jnp.mean(jnp.take_along_axis(logits, records.y[:, None], 1))

        gradient = ravel_pytree(jax.grad(loss)(params))[0][None]
        norm = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
        return compress(gradient / jnp.maximum(1, norm / config.clip), config.kappa)

    def absorb(key: Array, public: Public, params: Any, released: Array):
        """A step of gradient descent."""
        velocity = jax.tree.map(lambda v, g: config.momentum * v + g, public.velocity,
                                unravel(released[0]))
        params = jax.tree.map(lambda p, v: p - config.learning_rate * v, params, velocity)
        metrics = {"released_norm": jnp.linalg.norm(released),
                   "weights_norm": jnp.linalg.norm(ravel_pytree(params)[0])}
        return Public(params, velocity), metrics

    return Method(mechanism(config, spec), init, stateless, lambda key, public: public.params,
                  lambda key, unit, records, query: unit, answer, absorb,
                  lambda key, public: public.params, predict=net.logits)
