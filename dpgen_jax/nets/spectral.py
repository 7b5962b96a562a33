"""Spectral normalisation of a dict of weights by power iteration.

Source: Miyato et al., ICLR 2018, as the published GS-WGAN code runs it: one iteration a call. There
the two vectors are parameters that Adam also moves; here they are what the iteration makes of them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array
from dpgen_jax.nets.image import Shapes

Arrays = dict[str, Array]


def normalise(weights: Arrays, vectors: Arrays) -> tuple[Arrays, Arrays]:
    """Divides weights by their largest singular value, as one power iteration finds it.

    A weight counts as a matrix W with a row for each output. With v = W^T u and u = W v, each
    scaled to length 1, it is divided by sigma = u^T W v, in which u and v are constants of the
    gradient and W is not.

    Args:
        weights: arrays by name; those without a vector pass through.
        vectors: for each layer to normalise its vector u, of the length of the weight's last axis
            (the outputs of the layer).

    Returns:
        The normalised weights, and the new vectors.
    """
    normalised, moved = dict(weights), {}
    for name, u in vectors.items():
        w = weights[name].reshape(-1, len(u))
        # One step of the power iteration, whose vectors are constants of the gradient.
        v = jax.lax.stop_gradient(unit(w @ u))
        image = v @ w
        moved[name] = jax.lax.stop_gradient(unit(image))
        normalised[name] = weights[name] / (moved[name] @ image + 1e-12)
    return normalised, moved


def unit(x: Array) -> Array:
    """Scales x to length 1; zeros stay zeros."""
    return x / (jnp.linalg.norm(x) + 1e-12)


def init(key: Array, uniform: Shapes, normal: Shapes) -> tuple[Arrays, Arrays]:
    """Returns (weights, vectors) of layers of these shapes [..., in, out], by name.

    PyTorch's defaults, as the published codes keep them.

    Args:
        key: of all draws.
        uniform: linear layers and convolutions: uniform within 1 / sqrt(inputs of an output), as
            are their biases `<name>_bias` [out].
        normal: embeddings: normal with variance 1, and no bias. Vectors have uniform directions.
    """
    k_uniform, k_normal = jax.random.split(key)
    lengths = {name: shape[-1:] for name, shape in {**uniform, **normal}.items()}
    arrays = _cut(k_normal, jax.random.normal, [*normal.values(), *lengths.values()])
    weights = dict(zip(normal, arrays, strict=False))
    vectors = {name: unit(u) for name, u in zip(lengths, arrays[len(normal):], strict=True)}
    biases = [shape[-1:] for shape in uniform.values()]
    arrays = _cut(k_uniform, functools.partial(jax.random.uniform, minval=-1.0),
                  [*uniform.values(), *biases])
    for name, w, bias in zip(uniform, arrays, arrays[len(uniform):], strict=False):
        inputs = math.prod(w.shape[:-1])
        weights |= {name: w / math.sqrt(inputs), f"{name}_bias": bias / math.sqrt(inputs)}
    return weights, vectors


def _cut(key: Array, draw: Callable[..., Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Cuts arrays of these shapes from one draw: a draw for each would take long to compile."""
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    pieces = jnp.split(draw(key, shape=(ends[-1],)), ends[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
