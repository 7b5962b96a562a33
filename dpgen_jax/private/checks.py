"""Checks of what the functions of a method return, made once when a program is traced.

They read shapes and types alone, so they add nothing to a compiled program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import chex
import jax
import jax.numpy as jnp

from dpgen_jax.core.types import Array, Method, Metrics, PyTree


def check_query(query: PyTree) -> None:
    """Checks that a query is made of arrays of at most 32 bits.

    Args:
        query: What `Method.ask` returned.

    Raises:
        TypeError: A leaf is no array, or has 64 bits.
    """
    with _named("ask"):
        for leaf in jax.tree.leaves(query):
            if not hasattr(leaf, "dtype"):
                raise AssertionError(f"a leaf is {type(leaf).__name__}, expected an array")
            if jnp.issubdtype(leaf.dtype, jnp.number) and leaf.dtype.itemsize > 4:
                raise AssertionError(f"a leaf is {leaf.dtype}, expected at most 32 bits")


def check_unit(before: PyTree, after: PyTree) -> None:
    """Checks that the state of a unit keeps its shapes and types.

    Args:
        before: The state that `Method.learn` got.
        after: The state that it returned.

    Raises:
        TypeError: A shape or type differs.
    """
    with _named("learn"):
        chex.assert_trees_all_equal_shapes_and_dtypes(before, after)


def check_message(message: Array, method: Method) -> None:
    """Checks that a message is float32 [B, M].

    Args:
        message: What `Method.answer` returned.
        method: The method, whose bound says B.

    Raises:
        TypeError: The rank, the number of rows or the type is another one.
    """
    with _named("answer"):
        chex.assert_shape(message, (method.mechanism.bound.rows, None))
        chex.assert_type(message, jnp.float32)


def check_contribution(votes: Array, method: Method) -> None:
    """Checks that a bounded message is of integers, as it is added to the sum.

    Args:
        votes: What `Mechanism.contribution` returned.
        method: The method, whose mechanism says which shape it has.

    Raises:
        TypeError: The shape or the type is another one.
    """
    with _named("mechanism.contribution"):
        chex.assert_shape(votes, method.mechanism.contribution_shape)
        chex.assert_type(votes, jnp.int32)


def check_public(before: PyTree, after: PyTree, metrics: Metrics) -> None:
    """Checks that the public state keeps its shapes and types, and that metrics are scalars.

    Args:
        before: The public state that `Method.absorb` got.
        after: The public state that it returned.
        metrics: The metrics that it returned.

    Raises:
        TypeError: A shape or type differs, or a metric is no scalar.
    """
    with _named("absorb"):
        chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
        for name, value in metrics.items():
            if jnp.shape(value):
                raise AssertionError(f"metric {name!r} has shape {jnp.shape(value)}, expected a "
                                     "scalar")


@contextmanager
def _named(function: str) -> Iterator[None]:
    """Says which function of the method returned what is wrong."""
    try:
        yield
    except AssertionError as error:
        raise TypeError(f"`Method.{function}` returned a wrong shape or type: {error}") from None
