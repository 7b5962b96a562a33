"""Readers of run folders and releases: what `--resume`, `account` and `sample` do before they draw.

A resume ends where the first step would be charged. What it would charge on top is then no longer
in question; what the ledger holds by then is returned.
"""

import contextlib
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.fuzzing.read_ledger import totals
from dpgen_jax.core.config import Budget, Runtime
from dpgen_jax.data import Dataset, from_arrays
from dpgen_jax.methods import datalens
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.release import bundle
from dpgen_jax.run import costs, lifecycle, loop

STEPS, N, CLASSES = 4, 40, 3
CONFIG = datalens.Config(
    teachers=8, batch=4, top_k=8, sigma=400.0, steps=STEPS, decode="mean", d_steps_first=1,
    generator=GeneratorNet(4, 16, 8), discriminator=DiscriminatorNet(4, 8, 8))
RUNTIME = Runtime(devices=1, chunk=4, steps_per_call=1, checkpoint_minutes=0)


@functools.cache
def prepare() -> None:
    """One method for all cases: compiled functions are known by it."""
    datalens.build = functools.cache(datalens.build)


class WouldStart(BaseException):
    """Nothing in the package catches it."""


def records() -> Dataset:
    rng = np.random.default_rng(0)
    return from_arrays(rng.integers(0, 256, (N, 8, 8, 1), dtype=np.uint8),
                       rng.integers(0, CLASSES, N), CLASSES)


def request(root: Path, resume: bool) -> lifecycle.Resolved:
    return lifecycle.Resolved(
        "datalens", "glyphs", CONFIG, Budget(10.0, 1e-3, class_epsilon=0.5), RUNTIME, root, resume
    )


def run(root: Path) -> dict[str, Any]:
    resumed = {}

    def train(job, records, state, *_, **__):
        resumed.update(totals(job.ledger._account), step=state.step)
        raise WouldStart

    with mock.patch.object(loop, "train", train), contextlib.suppress(WouldStart):
        lifecycle.run(request(root / "run", True), records(), log=lambda line: None)
    return resumed


def account(root: Path) -> dict[str, Any]:
    """`account RUN`."""
    return json.loads(json.dumps(costs.of_run(root / "run").record(), default=str))


def release(root: Path) -> dict[str, Any]:
    """`sample RELEASE` and `load`; fields of the configuration may make other networks."""
    loaded = bundle.load(root / "release")
    x, y = loaded.arrays(2, seed=0)
    return {"x": list(x.shape), "config": dataclasses.is_dataclass(loaded.config), "y": y.tolist()}
