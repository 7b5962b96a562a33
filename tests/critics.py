"""GS-WGAN and DP-GAN-DPAC on 8x8 images, small enough to compile in seconds, in the real loop.

What a generator hears is data: `given` plus `told` times what was released, so that one compiled
block serves a run, a muted one (told 0) and one on a transcript that the test has chosen.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import toy

from dpgen_jax import loop
from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.bits import SeededBits
from dpgen_jax.methods import dpac, gswgan
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.critic import CriticNet
from dpgen_jax.nets.resnet import ResNetNet
from dpgen_jax.private import partition, warm_up
from dpgen_jax.private.teachers import Units
from dpgen_jax.types import Array, Method, Private, unseal

UNITS, ROWS, STEPS, N, RECORD = 5, 3, 3, 23, 11
OWNER = int(np.argwhere(partition.assign(N, UNITS, toy.KEY).index == RECORD)[0][0])
WHERE = toy.layout(1, units=UNITS)
KEY = jax.random.key(3)
FIELDS = {"critics": UNITS, "batch": ROWS, "steps": STEPS, "sigma": 1.0, "critic_steps": 1,
          "critic_steps_first": 2, "records_per_step": 3, "pool": 2, "warm_steps": 2, "clip": 0.1,
          "generator": ResNetNet(2, 2), "critic": CriticNet(2), "warm_generator": ResNetNet(2, 2),
          "d_optimiser": Adam(0.01, 0.5, 0.9)}


def gs(**fields) -> gswgan.Config:
    return gswgan.Config(**FIELDS | fields)


def dp(**fields) -> dpac.Config:
    """Without gradient penalties, which take long to compile, and with a classifier that moves."""
    return dpac.Config(**FIELDS | {
        "warm_steps": 0, "penalty": 0.0, "t_c": 1, "fake_steps": 2, "real_steps": 2,
        "fake_batch": 4, "c_penalty": 0.0, "classifier": CriticNet(2),
        "c_optimiser": Adam(0.05, 0.5, 0.9)} | fields)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Heard:
    """inner: the method's public state; seen float32 [B, D]: the last release."""

    inner: Any
    seen: Array
    given: Array
    told: Array


def hearing(method: Method) -> Method:
    """The same method, with `Heard` as its public state."""
    zeros = jnp.zeros(method.mechanism.shape)

    def absorb(key, public, query, released):
        inner, metrics = method.absorb(key, public.inner, query,
                                       public.given + public.told * released)
        return dataclasses.replace(public, inner=inner, seen=released), metrics

    return dataclasses.replace(
        method, absorb=absorb,
        init=lambda key: Heard(method.init(key), zeros, zeros, jnp.float32(1)),
        ask=lambda key, public: method.ask(key, public.inner),
        refine=lambda key, public: method.refine(key, public.inner))


block = functools.cache(loop.compile_block)
warm_call = functools.cache(warm_up.compile_call)


@functools.cache
def fresh(method: Method) -> tuple[Heard, Units, Array]:
    """The state before the first step, on the host: donated buffers are used up by a run."""
    state = loop.initial_state(method, KEY, WHERE)
    return (*toy.held(state, WHERE), state.key)


def start(method: Method, told: float = 1.0, given: float = 0.0, units: Units | None = None
          ) -> loop.State:
    """given: scale of a transcript drawn at random."""
    public, own, key = fresh(method)
    drawn = np.random.default_rng(5).normal(0, given, public.given.shape).astype(np.float32)
    public = dataclasses.replace(public, given=drawn, told=np.float32(told))
    return loop.State(jax.device_put(public, WHERE.replicated),
                      tiny.lay(own if units is None else units, WHERE), key)


def warmed(method: Method, data, units: Units | None = None, calls: int = 1000) -> Units:
    """Units after a warm start on the data, or after its first calls, on the host."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(warm_up, "compile_call", warm_call)
        state, records = start(method, units=units), toy.placed(*data, WHERE)
        for units, _ in warm_up.warm_up(method, state.units, records, WHERE):
            state, calls = dataclasses.replace(state, units=units), calls - 1
            if not calls:
                break
    return toy.held(state, WHERE)[1]


def train(folder, method: Method, data, steps: int = STEPS, **options) -> tuple[Heard, Units]:
    """The real loop and ledger, from `start(method, **options)`: all on the host."""
    folder.mkdir()
    with Ledger.create(folder / "ledger", {"epsilon": math.inf, "delta": 1e-5}) as ledger, \
            pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "compile_block", block)
        state = loop.train(method, toy.placed(*data, WHERE), start(method, **options), WHERE,
                           ledger, SeededBits(0), steps=steps, steps_per_call=2,
                           on_block=lambda state, metrics: None)
    return toy.held(state, WHERE)


def messages(method: Method, data, steps: int, **options) -> np.ndarray:
    """float32 [U, B, D]: what each unit answers in the last of the steps, if no other did and there
    were no noise (bits of 0 are noise of 0), on the transcript that `options` give."""
    records = toy.placed(*data, WHERE)
    bits = np.zeros((2, *method.mechanism.bits_shape), np.uint32)

    def sum_of(only):
        state = start(method, told=0.0, **options)
        held = unseal(state.units)
        ids = jax.device_put(np.where(np.asarray(held.id) == only, held.id, UNITS), WHERE.by_unit)
        alone = Private(dataclasses.replace(held, id=ids))
        return np.asarray(tiny.call(block(method, WHERE), state, records, WHERE, bits, 0, steps,
                                    alone)[0].seen)

    return np.stack([sum_of(unit) for unit in range(UNITS)])


def neighbours():
    """The content and the label of one record replaced."""
    x, y = toy.images(N)
    x2, y2 = x.copy(), y.copy()
    x2[RECORD], y2[RECORD] = 255 - x[RECORD], (y[RECORD] + 1) % 3
    return (x, y), (x2, y2)
