"""A method of a few operations for the real loop, with a teacher that is an adversary.

Public state is the transcript. Each unit fits a vector to its own records with momentum and answers
with an image gradient. A unit that holds a record of all 255 (or all 0) votes + (or -) on every
coordinate, whatever it was asked: the worst that one record can do. A public state with `planted`
ignores what is released and goes on with the transcript it brings along, so that a run can be
repeated on other records, or without noise (bits of 0 are noise of 0), on the same transcript.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import BitSource, RoundedGaussian, SeededBits
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.topagg import TopKSign
from dpgen_jax.core.types import Array, ImageSpec, Method, Metrics, Private, Records, unseal
from dpgen_jax.private import records, teachers
from dpgen_jax.private.teachers import padded_rows, spread
from dpgen_jax.run import loop

SPEC = ImageSpec(2, 4, 1, 2)
UNITS, STEPS, ROWS, TOP_K = 4, 6, 4, 4
SHAPE = (ROWS, 8)
SIGMA = float(np.sqrt(STEPS * 4 * TOP_K * ROWS) / 2)
"""mu is 2 for all steps together"""
CANARY = 5
"""the record in which neighbours differ"""
KEY = b"partition key of the tests"
Data = tuple[np.ndarray, np.ndarray]
"""x uint8 [n, 2, 4, 1] and y int [n]"""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Transcript:
    """The public state.

    Attributes:
        seen: float32 [STEPS, B, D], what was released.
        planted: float32 [STEPS, B, D], what is taken for it instead where `forced` is 1.
        forced: float32 [], 0 or 1.
        step: int32 [].
    """

    seen: Array
    planted: Array
    forced: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    """The query of a round: images float32 [B, D]."""

    images: Array


def transcript(planted: Any = None) -> Transcript:
    """Returns the public state of a start; planted: the transcript that is forced, if one is."""
    zeros = np.zeros((STEPS, *SHAPE), np.float32)
    state: Any = (zeros, zeros if planted is None else planted, np.float32(planted is not None),
                  np.int32(0))
    return Transcript(*state)


def mechanism(**fields: Any) -> SumMechanism:
    """Returns the mechanism, with some of its fields replaced."""
    default: dict[str, Any] = {"bound": TopKSign(TOP_K, ROWS), "noise": RoundedGaussian(SIGMA),
               "schedule": FullParticipation(), "n_units": UNITS, "shape": SHAPE,
               "decode": lambda noised, n: noised.astype(jnp.float32)}
    return SumMechanism(**default | fields)


def init(key: Array) -> Transcript:
    """The public state of a start."""
    return jax.tree.map(jnp.asarray, transcript())


def init_unit(key: Array) -> dict[str, Array]:
    """The state of a unit."""
    return {"weights": 0.1 * jax.random.normal(key, (8,)), "momentum": jnp.zeros(8)}


def ask(key: Array, public: Transcript) -> Query:
    """The query of a round, which depends on what was released before."""
    input_sum = jnp.where(public.forced > 0, public.planted, public.seen)
    return Query(jax.random.normal(key, SHAPE) + input_sum[public.step - 1] / SIGMA)


def learn(key: Array, unit: dict[str, Array], rows: Records, query: Query) -> dict[str, Array]:
    """A step of a unit on its records."""
    flat = rows.x.reshape(-1, 8) / 255 + 0.1 * rows.y[:, None]
    step = flat.mean(0) - 0.5 + 0.1 * jnp.tanh(query.images).mean(0) - unit["weights"]
    momentum = 0.5 * unit["momentum"] + step
    return {"weights": unit["weights"] + 0.3 * momentum, "momentum": momentum}


def answer(key: Array, unit: dict[str, Array], rows: Records, query: Query) -> Array:
    """The message of a unit, float32 [B, D]; that of an adversary where a record says so."""
    flat = rows.x.reshape(-1, 8)
    worst = jnp.any(jnp.all(flat == 255, 1)) * 3.0 - jnp.any(jnp.all(flat == 0, 1)) * 3.0
    gradient = -jax.grad(lambda x: jax.nn.softplus(-x @ unit["weights"]).sum())(query.images)
    return jnp.where(worst != 0, worst, gradient)


def absorb(key: Array, public: Transcript, query: Query, released: Array
           ) -> tuple[Transcript, Metrics]:
    """Writes a release into the transcript."""
    seen = public.seen.at[public.step].set(released)
    return dataclasses.replace(public, seen=seen, step=public.step + 1), {
        "share": jnp.mean(released != 0)}


def build(**fields: Any) -> Method:
    """The method, with verbs or fields of its mechanism replaced."""
    verbs = {"init": init, "init_unit": init_unit, "ask": ask, "learn": learn, "answer": answer,
             "absorb": absorb, "finalize": lambda key, public: public.seen,
             "sample": lambda model, key, labels: model, "pretraining": None}
    of_mechanism = {name: fields.pop(name) for name in [*fields] if name not in verbs}
    return Method(mechanism=mechanism(**of_mechanism), **verbs | fields)


def neighbours() -> list[Data]:
    """Two data sets that differ in the content and the label of one record: the worst pair."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(64, 192, (12, *SPEC.shape), dtype=np.uint8), rng.integers(0, 2, 12)
    pair = []
    for value in (255, 0):
        other, labels = x.copy(), y.copy()
        other[CANARY], labels[CANARY] = value, value > 0
        pair.append((other, labels))
    return pair


def dealt(units: int = UNITS) -> records.Partition:
    """Returns the dealing, which says which unit has which record."""
    return records.assign(12, units, KEY)


def owner(units: int = UNITS) -> int:
    """The unit that should have the record in which neighbours differ."""
    return int(np.argwhere(dealt(units).index == CANARY)[0][0])


def layout(chunk: int = 2, devices: int = 1, parallel: Any = "shard_map", units: int = UNITS,
           n_cohorts: int = 1) -> teachers.Layout:
    """A layout of the units."""
    return teachers.Layout(units, chunk, tuple(jax.devices()[:devices]), parallel, n_cohorts)


def placed(data: Data, where: teachers.Layout, deal: records.Partition | None = None
           ) -> Private[Records]:
    """Records on the devices of their units."""
    sealed = records.seal(*data, SPEC)
    return teachers.place(
        records.deal(sealed, deal or dealt(where.n_units), where.dealt_units), where)


def lay(units: teachers.Units, where: teachers.Layout) -> Private[teachers.Units]:
    """Units of the host [U, ...] on the devices, padded; as `teachers.stack` lays them."""
    def one(array: Any) -> Array:
        array = np.concatenate([array, np.zeros((where.padded - len(array), *array.shape[1:]),
                                                array.dtype)])
        if where.parallel == "pmap":
            array = array.reshape(len(where.devices), -1, *array.shape[1:])
        return jax.device_put(array, where.by_unit)

    ids = np.arange(where.padded, dtype=np.int32)
    return Private(dataclasses.replace(jax.tree.map(one, units), id=one(ids)))


def untold(where: teachers.Layout, steps: int) -> tuple[Array, np.ndarray]:
    """Secrets [R, S, 0] and groups [S] of a mechanism that tells nobody anything and visits all."""
    nothing = np.zeros((-(-where.n_units // where.n_cohorts), steps, 0), np.int32)
    return spread(padded_rows(nothing, where), where), np.zeros(steps, np.int32)


def call(block: Callable, state: loop.State, records: Private[Any], where: teachers.Layout,
         bits: np.ndarray, n: int) -> Any:
    """Makes n steps of a compiled block, of a mechanism that visits all."""
    secrets, n_cohorts = untold(where, len(bits))
    return block(state.public, state.units, records, secrets, bits, n_cohorts, state.key,
                 state.step, n)


@functools.cache
def fresh(units: int = UNITS) -> tuple[teachers.Units, Array]:
    """The units before the first step, on the host: donated buffers are used up by a run.

    They are those of `loop.initial_state`, from the same key.
    """
    _, k_units, k_steps = jax.random.split(jax.random.key(0), 3)
    method = build(n_units=units)
    made = jax.jit(lambda ids: lax.map(
        lambda number: teachers.one_unit(method, k_units, number), ids))
    return jax.device_get(made(np.arange(units, dtype=np.int32))), k_steps


block = functools.cache(loop.compile_block)


def start(where: teachers.Layout, planted: Any = None) -> loop.State:
    """The state before the first step."""
    units, key = fresh(where.n_units)
    return loop.State(jax.device_put(transcript(planted), where.replicated), lay(units, where), key)


def train(path: str | Path, method: Method, data: Data, where: teachers.Layout, planted: Any = None,
          bits: BitSource | None = None, steps: int = STEPS, block: Callable = block,
          deal: records.Partition | None = None, steps_per_call: int = 0, **methods: Any
          ) -> tuple[loop.State, Ledger]:
    """The real loop and a real ledger, which is closed.

    A method (a value of `build`) is compiled once for a layout, however often it is run.
    """
    with Ledger.create(path, {"epsilon": float("inf"), "delta": 1e-5}) as ledger, \
            patch.object(loop, "compile_block", block):
        job = loop.Job(method, where, ledger, SeededBits(0) if bits is None else bits,
                       steps_per_call)
        listener = loop.Listener()
        vars(listener).update(methods)  # functions in the place of its methods
        state = loop.train(job, placed(data, where, deal), start(where, planted), steps,
                           listener)
    return state, ledger


def arrays(state: loop.State, units: int = UNITS) -> Any:
    """Returns the units' arrays [U, ...] of a state, opened."""
    return jax.tree.map(
        lambda a, unit: np.asarray(a).reshape(-1, *unit.shape[1:])[:units],
        unseal(state.units).state, fresh(units)[0].state)
