"""The runs that are trained and killed: the smallest configuration of every method."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dpgen_jax import methods
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.data import Dataset, from_arrays
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.nets.pair import ConvNet, MlpNet
from dpgen_jax.nets.resnet import CriticNet, ResNetNet
from dpgen_jax.run import lifecycle

STEPS, PLANNED, N, CLASSES = 5, 20, 60, 3
"""steps of a run; steps that its budget allows, so that steps may be lost"""
GENERATOR, DISCRIMINATOR, CONV = GeneratorNet(4, 16, 8), DiscriminatorNet(4, 8, 8), ConvNet(4, 4)
TEACHERS = {"teachers": 6, "batch": 4, "d_steps_first": 1, "d_steps": 1, "generator": GENERATOR,
            "discriminator": DISCRIMINATOR}
CRITICS = {"critics": 3, "batch": 4, "critic_steps": 1, "critic_steps_first": 1,
           "records_per_step": 4, "pool": 4, "client_records": 16, "warm_steps": 0,
           "penalty": 0.0, "generator": ResNetNet(2, 2), "critic": CriticNet(2),
           "warm_generator": ResNetNet(2, 2)}
DPSGD = {"batch": 10, "fakes": 6, "g_batch": 6}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "datalens": ("datalens", TEACHERS | {"top_k": 8}),
    "gpate": ("gpate", TEACHERS | {"projection": 4, "bins": 4, "aggregate": "sum"}),
    "gpate-votes": ("gpate", TEACHERS | {"projection": 4, "bins": 4, "threshold": 0.4}),
    "gswgan": ("gswgan", CRITICS),
    "gswgan-warm": ("gswgan", CRITICS | {"warm_steps": 6}),
    "gswgan-rotation": ("gswgan", CRITICS | {"critics_per_step": 1}),
    "dpac": ("dpac", CRITICS | {"t_c": 1, "fake_steps": 1, "real_steps": 1, "fake_batch": 4,
                                "c_penalty": 0.0, "classifier": CriticNet(2)}),
    "pategan": ("pategan", TEACHERS | {"s_hidden": 4, "memory": 2, "s_steps": 1, "g_steps": 1}),
    "pategan-votes": ("pategan", TEACHERS | {"s_hidden": 4, "memory": 2, "s_steps": 1,
                                             "g_steps": 1, "decode": "majority"}),
    "dpgan": ("dpgan", DPSGD | {"generator": GENERATOR, "discriminator": CONV}),
    "dpcgan": ("dpcgan", DPSGD | {"generator": MlpNet(4, (8,)), "hidden": (8,)}),
    "dpmerf": ("dpmerf", {"features": 12, "batch": 12, "generator_steps": 6,
                          "generator": GENERATOR}),
    "mixture": ("mixture", {"cells": 2, "frequencies": 3, "dimensions": 4}),
    "dpmerf_ae": ("dpmerf_ae", {"batch": 10, "embedding_steps": 2, "hidden": 6, "code": 3,
                                "features": 8, "fakes": 12, "generator_steps": 4,
                                "generator": GENERATOR}),
    "fedavg_gan": ("fedavg_gan", {"clients": 3, "client_records": 8, "client_steps": 1,
                                  "client_batch": 3, "pool": 4, "g_steps": 1, "g_batch": 4,
                                  "penalty": 0.0, "generator": GENERATOR, "discriminator": CONV}),
    "dcgan": ("dcgan", {"batch": 4, "penalty": 0.0, "generator": GENERATOR,
                        "discriminator": DISCRIMINATOR}),
    "topagg_sgd": ("topagg_sgd", {"batch": 10, "channels": (3, 4), "hidden": (5,)}),
    "projected_dpgan": ("projected_dpgan", {"batch": 6, "projection": 6, "hidden": 5,
                                            "generator": GENERATOR}),
}


def records() -> Dataset:
    """60 images of noise, of three clients."""
    rng = np.random.default_rng(0)
    data = from_arrays(rng.integers(0, 256, (N, 8, 8, 1), dtype=np.uint8),
                       rng.integers(0, CLASSES, N), CLASSES)
    return dataclasses.replace(data, clients=(np.arange(N) % 3).astype(np.int32))


def config(case: str, sigma: float | None, steps: int) -> Any:
    """sigma: None to have it found for so many steps."""
    method, fields = CASES[case]
    if method == "dpmerf":
        steps = 1
    return methods.get(method).Config(**fields, sigma=sigma, steps=steps)


def budget(case: str) -> Budget:
    """With class counts where the method takes them."""
    built = config(case, 1.0 if case != "dcgan" else 0.0, STEPS)
    bare = built.protects_clients or case in ("dcgan", "topagg_sgd")
    return Budget(float("inf") if case == "dcgan" else 10.0, 1e-3, 0.0 if bare else 0.5)


def request(
    case: str, root: Path, resume: bool, sigma: float, save_always: bool
) -> lifecycle.Request:
    """A run; save_always: a checkpoint after each step, else only at the end."""
    runtime = Runtime(devices=1, chunk=2, steps_per_call=1,
                      checkpoint_minutes=0.0 if save_always else 60.0)
    return lifecycle.Request(
        CASES[case][0], "glyphs", config(case, sigma, STEPS), budget(case), runtime, root, resume
    )
