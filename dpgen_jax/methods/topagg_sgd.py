"""TopAgg for DP-SGD: a classifier, trained on the largest entries of each record's gradient.

Source: Algorithm 4 and Appendix A of DataLens (Wang et al. 2021, arXiv 2103.11109). Unit: a record.
Each sampled record answers with its gradient of the cross-entropy, clipped to C as one vector, of
which NormTopK keeps the largest entries up to a share kappa of the squared norm. What is left is no
longer than sqrt(kappa) C, and so is the noise that it needs. The noisy mean moves the classifier,
which is a function of only released values and is itself released.

Departures from the paper: epsilon is that of replace-one, by default, and covers draws that do
not fit their places. The default network of images has fewer parameters than the paper's on MNIST,
since each one is noised; `--network opacus` is the paper's, on pixels in [-1, 1] where the paper
subtracts the mean of the training images, which are private.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.topagg import dimension_topk, norm_topk
from dpgen_jax.core.config import Runtime, require_decay, require_positive
from dpgen_jax.core.errors import option
from dpgen_jax.core.types import Array, ImageSpec, Method, Metrics, PyTree, Records, Spec, UserError
from dpgen_jax.methods.shared.dpsgd import DpSgd, dpsgd, length, unraveller, values
from dpgen_jax.methods.shared.presets import DIGITS, GLYPHS, MNIST, Preset, numbers, serving, stated
from dpgen_jax.nets.adam import descend
from dpgen_jax.nets.classifiers import CNN_MIN_SIDE, max_pool
from dpgen_jax.nets.convolution import Conv3x3


@dataclasses.dataclass(frozen=True)
class Config(DpSgd):
    """The configuration of TopAgg-SGD."""

    kappa: float = 0.8
    """share of each gradient that is kept; 1: all of it, which is DP-SGD"""
    keep: Literal["norm", "dimension"] = "norm"
    """norm: kappa is a share of the squared norm, which lowers the noise to sqrt(kappa); dimension:
    of the number of entries, which does not"""
    network: Literal["cnn", "opacus", "mlp"] = "cnn"
    """cnn: of images; opacus: that of Opacus' MNIST example, which the paper took; mlp: of rows of
    a table, and of features of a public network"""
    channels: tuple[int, ...] = dataclasses.field(
        default=(16, 32), metadata={"flag": "network-channels"})
    """output channels of the two convolutions of the cnn"""
    hidden: tuple[int, ...] = ()
    """hidden layers of the mlp; none: a linear classifier"""
    learning_rate: float = 0.1
    """learning rate of the gradient descent"""
    momentum: float = 0.0
    """momentum of the gradient descent; 0: none"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(learning_rate=self.learning_rate)
        require_decay(momentum=self.momentum)
        if not 0 < self.kappa <= 1:
            raise UserError(f"kappa is {self.kappa}; it must lie in 0 < kappa <= 1")
        if len(self.channels) != 2 or min(*self.channels, *self.hidden) < 1:
            raise UserError(f"channels are {self.channels} and hidden {self.hidden}; two channels "
                            "and any number of hidden layers, each of 1 or more, are needed")


class Cnn(nn.Module):
    """Two valid 3x3 convolutions and a linear layer.

    After each convolution come 2x2 maxima (where there are as many pixels) and tanh. Bounded
    activations suit clipped gradients (Papernot et al., "Tempered Sigmoid Activations for Deep
    Learning with Differential Privacy", AAAI 2021).
    """

    channels: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, H, W, ch] in [0, 1] to logits [n, classes]."""
        h = 2 * x - 1
        for width in self.channels:
            h = Conv3x3(width)(h)
            h = nn.tanh(max_pool(h) if min(h.shape[1:3]) > 1 else h)
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(h.reshape(len(h), -1))


class Linear(nn.Module):
    """A linear layer that begins as PyTorch's does: all uniform, up to 1 / sqrt(inputs)."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [..., inputs] to [..., features]."""
        def uniform(key: Array, shape: tuple[int, ...]) -> Array:
            return jax.random.uniform(key, shape, minval=-1, maxval=1) / math.sqrt(x.shape[-1])

        kernel = self.param("kernel", uniform, (x.shape[-1], self.features))
        return x @ kernel + self.param("bias", uniform, (self.features,))


def patches(x: Array, size: int, stride: int) -> Array:
    """Lays the `size` x `size` pixels that a valid convolution reads side by side.

    Args:
        x: maps [n, H, W, c].
        size: pixels on a side of the kernel.
        stride: pixels between two of its places.

    Returns:
        [n, (H - size) // stride + 1, (W - size) // stride + 1, size * size * c].
    """
    height, width = ((side - size) // stride * stride + 1 for side in x.shape[1:3])
    return jnp.concatenate([x[:, i:i + height:stride, j:j + width:stride]
                            for i in range(size) for j in range(size)], -1)


class Opacus(nn.Module):
    """Two strided convolutions, 8x8 and 4x4, and two linear layers, with ReLU between them.

    After each convolution come 2x2 maxima, a pixel apart. For MNIST it has 26,010 parameters.

    Source: `SampleConvNet` of examples/mnist.py in the repository of Opacus (pytorch/opacus).
    """

    classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, H, W, ch] in [0, 1] to logits [n, classes]."""
        def largest(h: Array) -> Array:
            h = jnp.maximum(h[:, 1:], h[:, :-1])
            return jnp.maximum(h[:, :, 1:], h[:, :, :-1])

        h = jnp.pad(2 * x - 1, ((0, 0), (3, 3), (3, 3), (0, 0)))
        h = largest(nn.relu(Linear(16)(patches(h, 8, 2))))
        h = largest(nn.relu(Linear(32)(patches(h, 4, 2))))
        h = nn.relu(Linear(32)(h.reshape(len(h), -1)))
        return Linear(self.classes)(h)


SMALLEST = {"cnn": CNN_MIN_SIDE, "opacus": 14}
"""Pixels on a side that the networks of images need."""


class Mlp(nn.Module):
    """Linear layers with tanh between them."""

    hidden: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps x [n, ...] in [0, 1] to logits [n, classes]."""
        h = 2 * x.reshape(len(x), -1) - 1
        for width in self.hidden:
            h = nn.tanh(nn.Dense(width)(h))
        return nn.Dense(self.classes, kernel_init=nn.initializers.zeros)(h)


@dataclasses.dataclass(frozen=True)
class Classifier:
    """The network of this configuration for records of this schema.

    Raises:
        UserError: for images that are too small for the network.
    """

    config: Config
    spec: Spec

    def __post_init__(self) -> None:
        side = SMALLEST.get(self.config.network, 0)
        if isinstance(self.spec, ImageSpec) and min(self.spec.height, self.spec.width) < side:
            raise UserError(f"the network {self.config.network} needs images of at least {side} x "
                            f"{side} pixels, got {self.spec.height} x {self.spec.width}; pass "
                            f"{option('network', 'mlp')}")

    @property
    def module(self) -> nn.Module:
        """The flax module."""
        if not isinstance(self.spec, ImageSpec) or self.config.network == "mlp":
            return Mlp(self.config.hidden, self.spec.classes)
        if self.config.network == "opacus":
            return Opacus(self.spec.classes)
        return Cnn(self.config.channels, self.spec.classes)

    def init(self, key: Array) -> PyTree:
        """Draws the parameters."""
        return self.module.init(key, jnp.zeros((1, *self.spec.shape)))["params"]

    def apply(self, params: PyTree, x: Array) -> Array:
        """Maps x float [n, *spec.shape] in [0, 1] to logits [n, classes]."""
        logits: PyTree = self.module.apply({"params": params}, x)
        return logits


def mechanism(config: Config, spec: Spec) -> SumMechanism:
    """Returns the mechanism: the noisy mean of the clipped and compressed gradients.

    Guarantee:
        That of `shared.dpsgd.dpsgd`; the unit is a record. A sampled record adds a vector of L2
        norm at most sqrt(kappa) clip where a share of the squared norm is kept, and at most clip
        where a share of the entries is, which may have all of the norm. The bound checks this in
        integers, whatever the floats of NormTopK did.

    Source:
        Wang et al. 2021, Algorithm 4 and Appendix A.
    """
    share = math.sqrt(config.kappa) if config.keep == "norm" else 1.0
    return dpsgd(config, length(Classifier(config, spec)), share * config.clip)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of only released values and public keys.

    Attributes:
        params: of the classifier.
        velocity: sum of past gradients, each weighted by its momentum, shaped like params.
    """

    params: PyTree
    velocity: PyTree


def build(config: Config, spec: Spec, runtime: Runtime = Runtime()) -> Method:
    """Returns the method for records of this schema."""
    del runtime
    net = Classifier(config, spec)
    unravel = unraveller(net)
    momentum, descent = optax.trace(config.momentum), optax.sgd(config.learning_rate)
    compress = norm_topk if config.keep == "norm" else dimension_topk

    def init(key: Array) -> Public:
        params = net.init(key)
        return Public(params, jax.tree.map(jnp.zeros_like, params))

    def answer(key: Array, unit: Array, records: Records, params: PyTree) -> Array:
        """The compressed and clipped gradient of the cross-entropy on the record: [1, D]."""
        del key, unit

        def loss(params: PyTree) -> Array:
            logits = jax.nn.log_softmax(net.apply(params, values(records, spec)))
            return -jnp.mean(jnp.take_along_axis(logits, records.y[:, None], 1))

        gradient = ravel_pytree(jax.grad(loss)(params))[0][None]
        norm = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
        return compress(gradient / jnp.maximum(1, norm / config.clip), config.kappa)

    def absorb(key: Array, public: Public, params: PyTree, released: Array
               ) -> tuple[Public, Metrics]:
        """A step of gradient descent."""
        del key
        velocity, _ = momentum.update(unravel(released[0]), optax.TraceState(public.velocity))
        params, _ = descend(descent, params, velocity, descent.init(params))
        metrics = {"released_norm": jnp.linalg.norm(released),
                   "weights_norm": jnp.linalg.norm(ravel_pytree(params)[0])}
        return Public(params, velocity), metrics

    return Method(
        mechanism=mechanism(config, spec), init=init, ask=lambda key, public: public.params,
        answer=answer, absorb=absorb, finalize=lambda key, public: public.params,
        predict=net.apply)


# Presets of TopAgg-SGD, each with its source.
#
# The paper's (Table 11) are the best of its grids at an epsilon of adding or removing a record;
# it does not say how many steps they took. Here these are as many as the paper's noise affords by
# its own accounting (Renyi), 1,707, 508, 9,941, 17,370 and 12,338, rounded; epsilon is that of
# replacing a record, and the noise that it needs is found.
#
# `-dpdl` is the baseline DPDL (Abadi et al., "Deep Learning with Differential Privacy", CCS 2016,
# section 5.2), of which DataLens prints the figures of its own paper: batch 600, clip 4, noise 8,
# 4 and 2, and 1,000 hidden units. The steps are those that the noise affords. What differs: no
# private PCA to 60 features comes before it (which that paper pays for), one clip is over all
# weights and not one for each layer, the activation is tanh, and the learning rate does not fall.
#
# The features of CIFAR-10 are those of a public ResNet-18, which `python -m dpgen_jax.features`
# computes.

OURS = "this library; learning rates tried on glyphs, digits and MNIST, whose records are public"
WANG = "Wang et al. 2021 (DataLens), Table 11: kappa, clip, batch and learning rate; noise found"
ABADI = ("Abadi et al. 2016 (DPDL in Wang et al. 2021, Figure 3), without its PCA, see "
         "methods/topagg_sgd.py")
FEATURES = numbers(512, 10)

_ours = Config(batch=300, clip=1.0, learning_rate=4.0, steps=100)
_mnist = dataclasses.replace(_ours, batch=600, steps=600)
_mnist_eps1 = dataclasses.replace(_ours, batch=1200, learning_rate=3.0, steps=300)
_grid = Config(network="opacus", kappa=0.6, clip=12.0, batch=512, learning_rate=0.1, steps=500)
_dpdl = Config(kappa=1.0, network="mlp", hidden=(1000,), clip=4.0, batch=600, learning_rate=0.1)
_linear = Config(network="mlp", clip=0.5, batch=2048, learning_rate=0.2, steps=12000)

TABLE = ("steps are those that the table's noise affords by its accounting; it prints none",
         "noise is found for replacing a record; the paper's is for adding or removing one")
DPDL = ("no private PCA comes before the network", "one clip is over all weights, not one a layer",
        "the activation is tanh, and the learning rate does not fall",
        "steps are those that the noise affords")

PRESETS = stated({
    "glyphs": Preset(_ours, GLYPHS, 10.0, 1e-5, 30000, OURS, dataset="glyphs"),
    "digits": Preset(dataclasses.replace(_ours, network="mlp", hidden=(32,), batch=200),
                     DIGITS, 10.0, 1e-5, 1437, OURS, dataset="digits"),
    "mnist-eps1": Preset(_mnist_eps1, MNIST, 1.0, 1e-5, 60000, OURS),
    "mnist-eps10": Preset(_mnist, MNIST, 10.0, 1e-5, 60000, OURS),
    "mnist-eps0.05-published": Preset(
        dataclasses.replace(_grid, clip=10.0, batch=128, learning_rate=0.01, steps=1700),
        MNIST, 0.05, 1e-5, 60000, WANG),
    "mnist-eps0.2-published": Preset(_grid, MNIST, 0.2, 1e-5, 60000, WANG),
    "features-eps0.025-published": Preset(
        dataclasses.replace(_linear, clip=0.8, batch=24, learning_rate=0.001, steps=9900),
        FEATURES, 0.025, 1e-5, 50000, WANG),
    **{f"mnist-eps{epsilon:g}-dpdl": Preset(dataclasses.replace(_dpdl, sigma=sigma), MNIST, epsilon,
                                            1e-5, 60000, ABADI)
       for epsilon, sigma in ((0.5, 8.0), (2.0, 4.0), (8.0, 2.0))},
    "features-eps0.4-published": Preset(
        dataclasses.replace(_linear, clip=1.0, batch=96, learning_rate=0.005, steps=17000),
        FEATURES, 0.4, 1e-5, 50000, WANG),
    "features-eps8-published": Preset(_linear, FEATURES, 8.0, 1e-5, 50000, WANG),
}, {WANG: TABLE, ABADI: DPDL})
PRESETS = serving(
    PRESETS, ("mnist-eps1", "mnist-eps10"),
    {"images-eps10": "mnist-eps10", "images-eps1": "mnist-eps1", "images-few": "digits"})
