"""Teachers without a network, and a generator that holds images, for the PATE systems.

A discriminator whose layers serve all classes learns from a teacher's few records what records of
any class have in common: its gradient at a fake hardly depends on the fake's label, and still less
on what the fake shows. Here a record teaches about one fake alone, the nearest of its class: a
teacher has a linear discriminator for each fake, which begins at 0 and takes one step to tell the
records nearest to the fake from the fake. Its gradient at the fake points from the fake to the mean
of these records, which is all that is computed, and a teacher keeps no state. How messages are
bounded, added up and noised is the system's, but that a teacher answers for few fakes of a query,
and that only so many are charged (`aggregation.few_rows`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpgen_jax.aggregation.bound import Bound
from dpgen_jax.aggregation.few_rows import FewRows
from dpgen_jax.aggregation.mechanism import Mechanism
from dpgen_jax.core.ranges import require_not_negative, require_positive
from dpgen_jax.core.types import (
    Array,
    ImageSpec,
    Method,
    Metrics,
    PyTree,
    Records,
    Spec,
    TableSpec,
    UserError,
)
from dpgen_jax.methods.shared.teachers import Messages, TeacherConfig
from dpgen_jax.nets import warp
from dpgen_jax.nets.adam import moving_average

DARKEST = 0.05
"""Pixels of a start are drawn from DARKEST to twice it, so that no two images are the same."""
FURTHEST = 2**31 - 1
"""The largest int32: no distance is as large."""
SHADES = 255
"""The shades in which distances are found, above black."""
DIGIT, BLOCK = 16, 4096
"""Shades are two digits to this base; SHADES (DIGIT - 1) BLOCK is below 2**24, up to which float32
holds all whole numbers: sums of that many products of a shade and a digit are exact."""


@dataclasses.dataclass(frozen=True)
class Nearest:
    """Teachers without a network, where `images` is above 0."""

    images: int = 0
    """images of each class that the generator holds, all of which are queried in each step; 0:
    teachers and generator are networks. Networks, their steps and optimisers, layers, abstain and
    latents are then not used; generator.warp, g_final_rate (of the moves) and ema are"""
    images_per_teacher: int = 15
    """the most images for which one teacher answers: so many are charged. It has an answer for no
    more than it has records; where it has more, images are drawn among them"""
    pooled_steps: int = 0
    """first steps in which the images of a class move alike, by the mean of their moves: they part
    where there is something to tell them apart by, and none is left behind"""

    def __post_init__(self) -> None:
        require_not_negative(images=self.images, pooled_steps=self.pooled_steps)
        require_positive(images_per_teacher=self.images_per_teacher)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Public:
    """The public state: a function of released values and public keys alone.

    Attributes:
        images: float32 [C, K, H, W, ch] in [0, 1].
        average: float32 [C, K, H, W, ch], their moving average.
        step: int32 [], the queries so far.
    """

    images: Array
    average: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        fakes: float32 [B, H, W, ch], all images, class by class.
        question: public values that a system adds, pytree.
    """

    fakes: Array
    question: PyTree


def bounded(make: Callable[[int], Bound], config: TeacherConfig, nearest: Nearest) -> Bound:
    """Returns the bound of messages of which few rows are not zero.

    Args:
        make: From a number of rows to a bound on them.
        config: With the rows of a message, batch.
        nearest: With the most rows that are not zero.
    """
    few = nearest.images_per_teacher
    if not nearest.images or few >= config.batch:
        return make(config.batch)
    return FewRows(make(few), config.batch)


def build_nearest(config: TeacherConfig, nearest: Nearest, spec: Spec, mechanism: Mechanism,
                  messages: Messages) -> Method:
    """Returns the method for images of this schema.

    Args:
        config: the configuration, see `Nearest.images` for what is used of it.
        nearest: the images of a class, and for how many of all one teacher answers.
        spec: the schema.
        mechanism: of the messages.
        messages: as for `teachers.build_gan`.

    Raises:
        UserError: for a table, and for a batch that is not the number of images.
    """
    spec = images_only(spec)
    shape = (spec.classes, nearest.images, *spec.shape)
    if config.batch != math.prod(shape[:2]):
        raise UserError(f"batch is {config.batch}; all {nearest.images} images of each of "
                        f"{spec.classes} classes are queried at once: set it to "
                        f"{math.prod(shape[:2])}")
    labels = jnp.repeat(jnp.arange(spec.classes), nearest.images)

    def init(key: Array) -> Public:
        start = jax.random.uniform(key, shape, jnp.float32, DARKEST, 2 * DARKEST)
        return Public(start, start, jnp.zeros((), jnp.int32))

    def ask(key: Array, public: Public) -> Query:
        return Query(public.images.reshape(-1, *spec.shape), messages.question(key))

    def answer(key: Array, unit: PyTree, records: Records, query: Query) -> Array:
        del key, unit
        return messages.message(query.question, towards(records, query.fakes, labels))

    def absorb(key: Array, public: Public, query: Query, released: Array
               ) -> tuple[Public, Metrics]:
        del key
        left = 1 - public.step / max(1, (config.steps or 1) - 1)
        rate = config.g_final_rate + (1 - config.g_final_rate) * jnp.maximum(left, 0)
        move = rate * messages.direction(query.question, released).reshape(shape)
        alike = jnp.broadcast_to(move.mean(1, keepdims=True), shape)
        move = jnp.where(public.step < nearest.pooled_steps, alike, move)
        images = jnp.clip(public.images + move, 0, 1)
        average = moving_average(public.average, images, config.ema, public.step + 1)
        metrics = {"released_rms": jnp.sqrt(jnp.mean(released**2)),
                   "moved_rms": jnp.sqrt(jnp.mean((images - public.images) ** 2))}
        return Public(images, average, public.step + 1), metrics

    def finalize(key: Array, public: Public) -> PyTree:
        del key
        return {"images": public.average}

    def sample(model: PyTree, key: Array, labels: Array) -> Array:
        k_which, k_warp = jax.random.split(key)
        which = jax.random.randint(k_which, labels.shape, 0, nearest.images)
        if not config.generator.warp:
            return model["images"][labels, which]
        entries = jax.random.uniform(k_warp, (len(labels), warp.ENTRIES), minval=-1.0)
        return warp.affine(model["images"][labels, which], config.generator.warp * entries,
                           warp.beyond(spec.channels))

    return Method(mechanism=mechanism, init=init, ask=ask, answer=answer, absorb=absorb,
                  finalize=finalize, sample=sample)


def towards(records: Records, fakes: Array, labels: Array) -> Array:
    """Returns how fakes should move to look like the records nearest to them.

    Distances are those of whole shades, 0 to 255; of images of more than 16,512 values those of
    fewer shades, so that their squares add up to an int32.

    Args:
        records: of one teacher, m of them.
        fakes: float32 [B, H, W, ch].
        labels: int32 [B], of the fakes.

    Returns:
        float32 [B, D]: from each fake to the mean of the records of its class to which none of the
        class's fakes is nearer; NaN where there is no such record.
    """
    b, m = len(fakes), len(records.y)
    x = records.x.reshape(m, -1).astype(jnp.int32)
    most = min(SHADES, math.isqrt(FURTHEST // (2 * x.shape[1])))
    shades = jnp.round(most * fakes.reshape(b, -1)).astype(jnp.int32)
    # In integers: of floats the last bits, and with them the nearest, depend on the chunk. The
    # square of the record is left out, which is the same for all fakes.
    distances = jnp.sum(shades**2, -1) - 2 * products((most * x + SHADES // 2) // SHADES, shades)
    nearest = jnp.argmin(jnp.where(records.y[:, None] == labels, distances, FURTHEST), -1)
    chosen = (nearest[:, None] == jnp.arange(b)) & (records.y[:, None] == labels)
    n = jnp.sum(chosen, 0, dtype=jnp.float32)[:, None]
    # A sum of few whole numbers, which float32 adds up exactly in any order.
    total = chosen.T.astype(jnp.float32) @ x.astype(jnp.float32)
    return jnp.where(n > 0, total / (SHADES * n) - fakes.reshape(b, -1), jnp.nan)


def products(records: Array, fakes: Array) -> Array:
    """Returns the scalar products of images in whole shades, exactly.

    They are found by matrix products of float32, which all devices are fast at, of whole numbers
    so small that no sum is rounded.

    Args:
        records: int32 [m, D], in 0 to SHADES.
        fakes: int32 [B, D], likewise.

    Returns:
        int32 [m, B].
    """
    blocks = -(-records.shape[1] // BLOCK)
    padding = ((0, 0), (0, -records.shape[1] % blocks))
    records, fakes = jnp.pad(records, padding), jnp.pad(fakes, padding)
    width = records.shape[1] // blocks

    def product(records: Array, digits: Array) -> Array:
        return jnp.matmul(records.astype(jnp.float32), digits.T.astype(jnp.float32),
                          precision=jax.lax.Precision.HIGHEST).astype(jnp.int32)

    def add(block: Array, total: Array) -> Array:
        x, shades = (jax.lax.dynamic_slice_in_dim(images, block * width, width, 1)
                     for images in (records, fakes))
        return total + DIGIT * product(x, shades // DIGIT) + product(x, shades % DIGIT)

    return jax.lax.fori_loop(0, blocks, add, jnp.zeros((len(records), len(fakes)), jnp.int32))


def images_only(spec: Spec, what: str = "nearest.images is for images") -> ImageSpec:
    """Returns the schema of images.

    Args:
        spec: The schema of the records.
        what: What the error says of the setting that only images have.

    Raises:
        UserError: for a table.
    """
    if isinstance(spec, TableSpec):
        raise UserError(f"{what}; set it to 0 for a table")
    return spec
