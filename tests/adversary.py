"""A method of a few operations for the real loop, with a teacher that is an adversary.

Public state is the transcript. Each unit fits a vector to its own records with momentum and answers
with an image gradient. A unit that holds a record of all 255 (or all 0) votes + (or -) on every
coordinate, whatever it was asked: the worst that one record can do. A public state with `given`
ignores what is released and goes on with the transcript it brings along, so that a run can be
repeated on other records, or without noise (bits of 0 are noise of 0), on the same transcript.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import loops
import numpy as np
import pytest

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.aggregation.mechanism import SumMechanism
from dpgen_jax.aggregation.noise import RoundedGaussian
from dpgen_jax.aggregation.schedule import FullParticipation
from dpgen_jax.aggregation.topk_sign import TopKSign
from dpgen_jax.core.types import Array, ImageSpec, Method, Private, unseal
from dpgen_jax.private import partition, records, teachers
from dpgen_jax.run import loop

SPEC = ImageSpec(2, 4, 1, 2)
UNITS, STEPS, ROWS, TOP_K = 4, 6, 4, 4
SHAPE = (ROWS, 8)
SIGMA = float(np.sqrt(STEPS * 4 * TOP_K * ROWS) / 2)  # mu = 2 for all steps together
CANARY = 5
KEY = b"partition key of the tests"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Transcript:
    """seen, given float32 [STEPS, B, D]: what was released, and what is taken for it instead
    where `forced` is 1."""

    seen: Array
    planted: Array
    forced: Array
    step: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Query:
    images: Array


def transcript(planted: Any = None) -> Transcript:
    zeros = np.zeros((STEPS, *SHAPE), np.float32)
    return Transcript(zeros, zeros if planted is None else planted,
                      np.float32(planted is not None), np.int32(0))


def mechanism(**fields) -> SumMechanism:
    default = {"bound": TopKSign(TOP_K, ROWS), "noise": RoundedGaussian(SIGMA),
               "schedule": FullParticipation(), "n_units": UNITS, "shape": SHAPE,
               "decode": lambda noised, n: noised.astype(jnp.float32)}
    return SumMechanism(**default | fields)


def init(key: Array) -> Transcript:
    return jax.tree.map(jnp.asarray, transcript())


def init_unit(key: Array) -> dict[str, Array]:
    return {"weights": 0.1 * jax.random.normal(key, (8,)), "momentum": jnp.zeros(8)}


def ask(key: Array, public: Transcript) -> Query:
    input_sum = jnp.where(public.forced > 0, public.planted, public.seen)
    return Query(jax.random.normal(key, SHAPE) + input_sum[public.step - 1] / SIGMA)


def learn(key: Array, unit: dict[str, Array], own, query: Query) -> dict[str, Array]:
    own = own.x.reshape(-1, 8) / 255 + 0.1 * own.y[:, None]
    step = own.mean(0) - 0.5 + 0.1 * jnp.tanh(query.images).mean(0) - unit["weights"]
    momentum = 0.5 * unit["momentum"] + step
    return {"weights": unit["weights"] + 0.3 * momentum, "momentum": momentum}


def answer(key: Array, unit: dict[str, Array], own, query: Query) -> Array:
    flat = own.x.reshape(-1, 8)
    worst = jnp.any(jnp.all(flat == 255, 1)) * 3.0 - jnp.any(jnp.all(flat == 0, 1)) * 3.0
    gradient = -jax.grad(lambda x: jax.nn.softplus(-x @ unit["weights"]).sum())(query.images)
    return jnp.where(worst != 0, worst, gradient)


def absorb(key: Array, public: Transcript, query: Query, released: Array):
    seen = public.seen.at[public.step].set(released)
    return dataclasses.replace(public, seen=seen, step=public.step + 1), {
        "share": jnp.mean(released != 0)}


def build(**fields) -> Method:
    """The method, with verbs or fields of its mechanism replaced."""
    verbs = {"init": init, "init_unit": init_unit, "ask": ask, "learn": learn, "answer": answer,
             "absorb": absorb, "finalize": lambda key, public: public.seen,
             "sample": lambda model, key, labels: model, "pretraining": None}
    options = {name: fields.pop(name) for name in [*fields] if name not in verbs}
    return Method(mechanism=mechanism(**options), **verbs | fields)


def neighbours() -> list[tuple[np.ndarray, np.ndarray]]:
    """Two data sets that differ in the content and the label of one record: the worst pair."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(64, 192, (12, *SPEC.shape), dtype=np.uint8), rng.integers(0, 2, 12)
    pair = []
    for value in (255, 0):
        other, labels = x.copy(), y.copy()
        other[CANARY], labels[CANARY] = value, value > 0
        pair.append((other, labels))
    return pair


def dealt(units: int = UNITS) -> partition.Partition:
    return partition.assign(12, units, KEY)


def owner(units: int = UNITS) -> int:
    return int(np.argwhere(dealt(units).index == CANARY)[0][0])


def layout(chunk: int = 2, devices: int = 1, parallel: str = "shard_map",
           units: int = UNITS, n_cohorts: int = 1) -> teachers.Layout:
    return teachers.Layout(units, chunk, tuple(jax.devices()[:devices]), parallel, n_cohorts)


def placed(data, where: teachers.Layout, deal: partition.Partition | None = None):
    return teachers.place(records.deal(records.seal(*data, SPEC), deal or dealt(where.n_units)),
                          where)


def lay(units: teachers.Units, where: teachers.Layout) -> Private[teachers.Units]:
    """Units held on the host [U, ...] on the devices, padded; as `teachers.stack` lays them."""
    def one(array):
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
    return teachers.rows(nothing, where), np.zeros(steps, np.int32)


def call(block: Callable, state: loop.State, own: Private[Any], where: teachers.Layout,
         bits: np.ndarray, step: int, n: int, units: Private[teachers.Units] | None = None) -> Any:
    """n steps of a compiled block, of a mechanism that visits all."""
    secrets, n_cohorts = untold(where, len(bits))
    return block(
        state.public, units or state.units, own, secrets, bits, n_cohorts, state.key, step, n
    )


@functools.cache
def fresh(units: int = UNITS) -> tuple[teachers.Units, Array]:
    """The units before the first step, on the host: donated buffers are used up by a run."""
    state = loop.initial_state(build(n_units=units), jax.random.key(0), layout(1, units=units))
    return jax.device_get(unseal(state.units)), state.key


block = functools.cache(loop.compile_block)


def start(where: teachers.Layout, planted: Any = None) -> loop.State:
    units, key = fresh(where.n_units)
    return loop.State(jax.device_put(transcript(planted), where.replicated), lay(units, where), key)


def train(path, method: Method, data, where: teachers.Layout, planted: Any = None, bits: Any = None,
          steps: int = STEPS, block: Callable = block, **options) -> tuple[loop.State, Ledger]:
    """The real loop and a real ledger, which is closed. A method (a value of `build`) is compiled
    once for a layout, however often it is run."""
    options = {"on_block": lambda state, metrics: None} | options
    with Ledger.create(path, {"epsilon": float("inf"), "delta": 1e-5}) as ledger, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", block)
        state = loops.train(method, placed(data, where), start(where, planted), where, ledger,
                            SeededBits(0) if bits is None else bits, steps=steps, **options)
    return state, ledger


def arrays(state: loop.State, units: int = UNITS) -> Any:
    """Units' arrays [U, ...] of a state."""
    return jax.tree.map(
        lambda a, unit: np.asarray(a).reshape(-1, *unit.shape[1:])[:units],
        unseal(state.units).state, fresh(units)[0].state)
