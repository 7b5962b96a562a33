"""Adam for units that are stacked by the thousand: its moments can be kept at half the memory.

Written for one unit; vmap over units. Source: Kingma and Ba 2015; the published G-PATE and
DataLens codes use learning rate 1e-3, beta1 0.5, beta2 0.999 for both networks.

A bfloat16 moment is stored as its 16 bits in a uint16, which CPUs convert faster than the
bfloat16 type. The first moment is rounded to nearest. The second moment changes by about 0.1 % a
step, less than half the spacing of bfloat16, so rounding to nearest would freeze it: it is rounded
stochastically, up with the probability that makes the expectation exact.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dpgen_jax.types import Array, UserError

_STORED = {"float32": jnp.float32, "bfloat16": jnp.uint16}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdamState:
    """What Adam remembers of one unit: moments shaped like the parameters, and an int32 count."""

    first: Any
    second: Any
    count: Array


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam's settings; the defaults are the published ones for G-PATE and DataLens."""

    learning_rate: float = 1e-3
    beta1: float = 0.5
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, params: Any, moments: str = "float32") -> AdamState:
        """The state of one unit before its first step; `moments` is 'float32' or 'bfloat16'."""
        if moments not in _STORED:
            raise UserError(f"moments: '{moments}' is not one of {', '.join(_STORED)}")
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, _STORED[moments]), params)
        return AdamState(zeros, zeros, jnp.zeros((), jnp.int32))

    def update(self, params: Any, grads: Any, state: AdamState) -> tuple[Any, AdamState]:
        """One step of one unit: new parameters and new state, in the state's own precision."""
        count = state.count + 1
        # Both bias corrections folded into two scalars, so nothing is raised to a power per weight.
        correction1, correction2 = (-jnp.expm1(count * math.log(b)) if b > 0 else jnp.float32(1)
                                    for b in (self.beta1, self.beta2))
        rate = self.learning_rate * jnp.sqrt(correction2) / correction1
        epsilon = self.epsilon * jnp.sqrt(correction2)

        def leaf(salt, p, g, first, second):
            first = _store_nearest(self.beta1 * _load(first) + (1 - self.beta1) * g, first.dtype)
            second = _store_random(self.beta2 * _load(second) + (1 - self.beta2) * g * g,
                                   second.dtype, g, salt)
            # The barrier has each moment computed once, in place, and the step read the result.
            first, second = lax.optimization_barrier((first, second))
            p = p - rate * _load(first) / (jnp.sqrt(_load(second)) + epsilon)
            return p, first, second

        leaves, tree = jax.tree.flatten(params)
        others = (tree.flatten_up_to(t) for t in (grads, state.first, state.second))
        new = [leaf(count * len(leaves) + i, *arrays)
               for i, arrays in enumerate(zip(leaves, *others, strict=True))]
        params, first, second = (tree.unflatten(column) for column in zip(*new, strict=True))
        return params, AdamState(first, second, count)


def moving_average(average: Any, params: Any, decay: float, count: Array) -> Any:
    """The average of weights that goes on with `params`, the count-th of them: a plain mean at
    first, then each moves it by 1 - decay."""
    keep = jnp.minimum(decay, 1 - 1 / count)
    return jax.tree.map(lambda a, p: keep * a + (1 - keep) * p, average, params)


def _load(stored: Array) -> Array:
    if stored.dtype != jnp.uint16:
        return stored
    return lax.bitcast_convert_type(stored.astype(jnp.uint32) << 16, jnp.float32)


def _store_nearest(value: Array, dtype: Any) -> Array:
    """Rounds to the nearest bfloat16, ties to even."""
    if dtype != jnp.uint16:
        return value
    bits = lax.bitcast_convert_type(value, jnp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(jnp.uint16)


def _store_random(value: Array, dtype: Any, g: Array, salt: Array) -> Array:
    """Rounds a non-negative value up with probability (value - lower) / spacing.

    The uniform 16 bits are a hash of the gradient and the salt, which changes with every step:
    they protect nothing and need only be spread evenly, and a hash is cheaper than a generator.
    """
    if dtype != jnp.uint16:
        return value
    salt = salt.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    mixed = (lax.bitcast_convert_type(g, jnp.uint32) ^ salt) * jnp.uint32(0x85EBCA6B)
    bits = lax.bitcast_convert_type(value, jnp.uint32)
    return ((bits + (mixed >> 16)) >> 16).astype(jnp.uint16)
