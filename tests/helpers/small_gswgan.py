"""GS-WGAN and DP-GAN-DPAC on 8x8 images, small enough to compile in seconds."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest
import small_datalens
from planted import toy as adversary

from dpgen_jax.core.types import Array, Method
from dpgen_jax.methods import dpac, gswgan
from dpgen_jax.nets.adam import Adam
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.private import pretraining, records
from dpgen_jax.private.teachers import Units
from dpgen_jax.run import loop

UNITS, ROWS, STEPS, N, RECORD = 5, 3, 3, 23, 11
OWNER = int(np.argwhere(records.assign(N, UNITS, small_datalens.KEY).index == RECORD)[0][0])
WHERE = small_datalens.layout(1, units=UNITS)
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


warm_call = functools.cache(pretraining.compile_call)


@functools.cache
def fresh(method: Method) -> tuple[Any, Units, Array]:
    """The state before the first step, on the host: donated buffers are used up by a run."""
    state = loop.initial_state(method, KEY, WHERE)
    return (*small_datalens.opened(state, WHERE), state.key)


def start(method: Method, units: Units | None = None) -> loop.State:
    """The same state on the devices, or that with other units."""
    public, own, key = fresh(method)
    return loop.State(jax.device_put(public, WHERE.replicated),
                      adversary.lay(own if units is None else units, WHERE), key)


def warmed(method: Method, data, units: Units | None = None, calls: int = 1000) -> Units:
    """Units after a warm start on the data, or after its first calls, on the host."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pretraining, "compile_call", warm_call)
        state, records = start(method, units), small_datalens.placed(*data, WHERE)
        for units, _ in pretraining.pretrain(method, state.units, records, WHERE):
            state, calls = dataclasses.replace(state, units=units), calls - 1
            if not calls:
                break
    return small_datalens.opened(state, WHERE)[1]


def neighbours():
    """The content and the label of one record replaced."""
    x, y = small_datalens.images(N)
    x2, y2 = x.copy(), y.copy()
    x2[RECORD], y2[RECORD] = 255 - x[RECORD], (y[RECORD] + 1) % 3
    return (x, y), (x2, y2)
