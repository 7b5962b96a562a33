"""Arrays compared and made in NumPy, which compiles nothing: JAX compiles a program for each
operation and shape that is met outside of jit."""

import jax
import numpy as np
import optax


def close(a, b, tolerance=1e-4, floor=1e-9):
    """No entry of a is further from b than `tolerance` times the largest of b, and `floor`."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.max(np.abs(a - b)) <= tolerance * np.max(np.abs(b)) + floor


def largest(a) -> float:
    """The largest absolute value."""
    return float(np.max(np.abs(np.asarray(a))))


def normal(*shape, seed=0):
    """Standard normal, float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def uniform(*shape, seed=0):
    """In [0, 1), float32."""
    return np.random.default_rng(seed).random(shape, np.float32)


def shaken(params, by=0.1):
    """Parameters moved by normal numbers, so that none is at its initial 0 or 1."""
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda a: np.asarray(a) + np.float32(by) * rng.normal(size=a.shape).astype(np.float32),
        params)


def compiled(f):
    """f jitted, its results NumPy arrays."""
    jitted = jax.jit(f)
    return lambda *args, **words: jax.tree.map(np.asarray, jitted(*args, **words))


def but(a, where, value):
    """A copy of a that is `value` at `where`."""
    a = np.array(a)
    a[where] = value
    return a


def adam_step(params, grads, *rates):
    """Parameters after one step of optax's Adam."""
    rule = optax.adam(*rates)
    return compiled(lambda params, grads: optax.apply_updates(
        params, rule.update(grads, rule.init(params))[0]))(params, grads)
