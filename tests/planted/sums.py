"""Faults in what bounds a message, and in the sensitivity that is declared for it."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation import clip
from dpgen_jax.aggregation.clip import GradientL2, RowL2
from dpgen_jax.aggregation.topagg import TopKSign, magnitude_bits
from dpgen_jax.core.types import Array
from planted.catalogue import fault
from planted.planting import all_replaced, replaced


@fault("sensitivity of votes", "mechanism audit", "ledger by hand")
def sensitivity_off_by_sqrt_2() -> Iterator[None]:
    """Votes counted as if a changed vote went away, and did not turn over: by root two too low."""
    with replaced(TopKSign, "squared_sensitivity", lambda self: 2 * self.squared_norm):
        yield


@fault("sensitivity of rows")
def sensitivity_off_by_2() -> Iterator[None]:
    """Rows counted as if one of two neighbouring messages were zero: by two too low."""
    with replaced(RowL2, "squared_sensitivity", lambda self: self.squared_norm):
        yield


@fault("sensitivity of votes", "ledger by hand")
def sensitivity_off_by_the_batch() -> Iterator[None]:
    """The votes on one fake are charged, and each fake of the batch has as many."""
    with replaced(TopKSign, "squared_sensitivity", lambda self: 4 * self.top_k):
        yield


@fault("sensitivity of votes", "messages of units")
def ties_vote_on_more_than_k() -> Iterator[None]:
    """All entries that are as large as the k-th largest vote, of which there may be many."""
    def project(self: TopKSign, key: Array, message: Array) -> Array:
        order = magnitude_bits(message)
        kth = jnp.sort(order, -1)[..., -self.top_k][..., None]
        return jnp.where(order >= kth, jnp.sign(message), 0).astype(jnp.int32)

    with replaced(TopKSign, "project", project):
        yield


@fault("sensitivity of votes", "messages of units")
def no_bound_at_all() -> Iterator[None]:
    """Messages are rounded, and added as they are."""
    with replaced(TopKSign, "project", lambda self, key, message: message.astype(jnp.int32)):
        yield


@fault("sensitivity of gradients")
def clipping_per_tensor() -> Iterator[None]:
    """Each of four tensors of a gradient is clipped by itself, as in the code of DP-CGAN."""
    def project(self: GradientL2, key: Array, message: Array) -> Array:
        tensors = jnp.nan_to_num(message).reshape(4, -1)
        largest = jnp.maximum(jnp.abs(tensors).max(-1, keepdims=True), 1e-30)
        norm = largest * jnp.linalg.norm(tensors / largest, axis=-1, keepdims=True) / self.clip
        entries = tensors * ((self.levels - 8) / self.clip) / jnp.maximum(norm, 1)
        return jnp.round(entries).reshape(message.shape).astype(jnp.int32)

    with replaced(GradientL2, "project", project):
        yield


@fault("sensitivity of gradients")
def clip_before_scaling() -> Iterator[None]:
    """A gradient is clipped first, and then multiplied by the scale of its loss."""
    clipped = GradientL2.project

    def project(self: GradientL2, key: Array, message: Array) -> Array:
        return 2 * clipped(self, key, message)

    with replaced(GradientL2, "project", project):
        yield


@fault("sensitivity of rows")
def non_finite_gradients_let_through() -> Iterator[None]:
    """Rows with infinities are not dropped, and what becomes of them is not checked."""
    def project(self: RowL2, key: Array, message: Array) -> Array:
        norm = jnp.linalg.norm(message, axis=-1, keepdims=True) / self.clip
        entries = message * ((self.levels - 8) / self.clip) / jnp.maximum(norm, 1)
        wild = jnp.where(jnp.isfinite(entries), entries, self.levels * jnp.sign(message))
        return jnp.nan_to_num(wild, nan=float(self.levels)).astype(jnp.int32)

    with replaced(RowL2, "project", project):
        yield


@fault("sensitivity of rows")
def rounded_without_slack() -> Iterator[None]:
    """Rows are clipped to their bound and then rounded up beyond it, and nothing checks again."""
    def project(self: RowL2, key: Array, message: Array) -> Array:
        finite = jnp.all(jnp.isfinite(message), -1, keepdims=True)
        unit = jnp.where(finite, message, 0) / self.clip
        largest = jnp.maximum(jnp.abs(unit).max(-1, keepdims=True), 1e-30)
        norm = largest * jnp.linalg.norm(unit / largest, axis=-1, keepdims=True)
        scaled = jnp.nan_to_num(unit * (self.levels / jnp.maximum(norm, 1)))
        low = jnp.floor(scaled)
        return (low + (jax.random.uniform(key, message.shape) < scaled - low)).astype(jnp.int32)

    with replaced(RowL2, "project", project):
        yield


@fault("sensitivity of long rows")
def int32_wraps_around() -> Iterator[None]:
    """Squares are summed in int32, where the sum of a long row comes back to zero and passes."""
    def within(entries: Array, limit: int) -> Array:
        squares = jnp.sum(entries * entries, -1, keepdims=True, dtype=jnp.int32)
        return squares.astype(jnp.float32) <= limit

    def project(self: RowL2, key: Array, message: Array) -> Array:
        steps = jnp.nan_to_num(message / self.clip * self.levels)
        entries = jnp.clip(steps, -self.levels, self.levels).astype(jnp.int32)
        return clip.enforce(entries, lambda rows: within(rows, self.levels**2))

    with all_replaced((RowL2, "project", project), (clip, "halves_within", within)):
        yield

