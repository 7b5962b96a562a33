"""Adam as an optax transformation whose moments can be stored in half the memory.

Units are stacked by the thousand, so their optimiser states are most of a run's memory. A bfloat16
moment is stored as its 16 bits in a uint16, which CPUs convert faster than the bfloat16 type. The
first moment is rounded to nearest. The second moment changes by about 0.1 % a step, less than half
the spacing of bfloat16, so rounding to nearest would freeze it: it is rounded stochastically, up
with the probability that makes the expectation exact.

Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from dpgen_jax.core.config import require_decay, require_not_negative, require_positive
from dpgen_jax.core.types import Array, PyTree, UserError

_STORED = {"float32": jnp.float32, "bfloat16": jnp.uint16}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdamState:
    """The state of Adam for one unit.

    Attributes:
        first: average of the gradients, shaped like the parameters; float32, or uint16 for the bits
            of a bfloat16.
        second: average of the squared gradients, likewise.
        count: int32 [], the steps so far.
    """

    first: PyTree
    second: PyTree
    count: Array


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam's settings; the defaults are those of the published G-PATE and DataLens codes."""

    learning_rate: float = 1e-3
    beta1: float = 0.5
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require_not_negative(learning_rate=self.learning_rate)
        require_decay(beta1=self.beta1, beta2=self.beta2)

    def transformation(self, moments: str = "float32") -> optax.GradientTransformation:
        """Returns Adam with a constant learning rate, for one unit.

        Args:
            moments: "float32" or "bfloat16", the precision in which the moments are stored.
        """
        if moments not in _STORED:
            raise UserError(f"moments: '{moments}' is not one of {', '.join(_STORED)}")
        dtype, adam = _STORED[moments], optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)

        def init(params: PyTree) -> AdamState:
            zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, dtype), params)
            return AdamState(zeros, zeros, jnp.zeros((), jnp.int32))

        def update(grads: PyTree, state: AdamState, params: PyTree = None
                   ) -> tuple[PyTree, AdamState]:
            del params
            first, second = jax.tree.map(_load, (state.first, state.second))
            scaled, new = adam.update(grads, optax.ScaleByAdamState(state.count, first, second))
            state = AdamState(jax.tree.map(lambda m: _store_nearest(m, dtype), new.mu),
                              _store_second(new.nu, grads, new.count, dtype), new.count)
            return jax.tree.map(lambda u: -self.learning_rate * u, scaled), state

        return optax.GradientTransformation(init, update)

    def scheduled(self, final_rate: float, steps: int) -> optax.GradientTransformation:
        """Returns optax's Adam, whose learning rate falls linearly to a share of its initial value.

        Args:
            final_rate: the share of the learning rate after `steps` steps.
        """
        rate = optax.linear_schedule(self.learning_rate, self.learning_rate * final_rate, steps)
        return optax.adam(rate, self.beta1, self.beta2, self.epsilon)


def descend(optimiser: optax.GradientTransformation, params: PyTree, grads: PyTree, state: PyTree
            ) -> tuple[PyTree, PyTree]:
    """Takes one step of an optimiser: returns the new parameters and the new state."""
    updates, state = optimiser.update(grads, state, params)
    return optax.apply_updates(params, updates), state


def moving_average(average: PyTree, params: PyTree, decay: float, count: Array) -> PyTree:
    """Continues a moving average of parameters.

    Args:
        decay: of the average; while the history is shorter than the average, it is a plain mean.
        count: the number of parameters so far, including these.
    """
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
    # Half a step less one, and one more where the last bit that is kept is odd: ties go to even.
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(jnp.uint16)


def _store_second(second: PyTree, grads: PyTree, count: Array, dtype: Any) -> PyTree:
    """Stores each leaf with a separate salt that changes with every step."""
    leaves, tree = jax.tree.flatten(second)
    return jax.tree.unflatten(tree, [
        _store_random(value, dtype, g, count * len(leaves) + i)
        for i, (value, g) in enumerate(zip(leaves, jax.tree.leaves(grads), strict=True))])


def _store_random(value: Array, dtype: Any, g: Array, salt: Array) -> Array:
    """Rounds a non-negative value up with probability (value - lower) / spacing.

    The uniform 16 bits are a hash of the gradient and the salt. Privacy does not depend on them;
    they must only be spread evenly, and a hash is cheaper than a generator.
    """
    if dtype != jnp.uint16:
        return value
    # Odd factors that spread bits: of the golden ratio, and of MurmurHash3's last mix.
    salt = salt.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    mixed = (lax.bitcast_convert_type(g, jnp.uint32) ^ salt) * jnp.uint32(0x85EBCA6B)
    bits = lax.bitcast_convert_type(value, jnp.uint32)
    return ((bits + (mixed >> 16)) >> 16).astype(jnp.uint16)
