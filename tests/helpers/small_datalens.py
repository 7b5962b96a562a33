"""A DataLens small enough for tests that run the real loop many times."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import loops
import numpy as np

from dpgen_jax.accountant.ledger import Ledger
from dpgen_jax.aggregation.noise import SeededBits
from dpgen_jax.core.types import ImageSpec, Method, unseal
from dpgen_jax.methods import datalens
from dpgen_jax.nets.image import DiscriminatorNet, GeneratorNet
from dpgen_jax.private import records as sealing
from dpgen_jax.private import streaming, teachers
from dpgen_jax.run.loop import State, initial_state

SPEC = ImageSpec(8, 8, 1, 3)
CONFIG = datalens.Config(
    teachers=11, batch=4, top_k=10, sigma=30.0, steps=4, decode="mean", d_steps_first=3,
    generator=GeneratorNet(4, 16, 8), discriminator=DiscriminatorNet(4, 8, 8))
KEY = b"partition key of the tests"
# Options of a compilation whose use of memory is looked at (conftest.py has others for the rest,
# where this JAX has them).
AS_IN_A_RUN = ({"xla_cpu_use_fusion_emitters": True}
               if "fusion_emitters" in os.environ.get("XLA_FLAGS", "") else {})


def images(n: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, *SPEC.shape), dtype=np.uint8), rng.integers(0, 3, n)


def layout(chunk: int = 2, devices: int = 1, parallel: str = "shard_map",
           units: int = CONFIG.teachers) -> teachers.Layout:
    return teachers.Layout(units, chunk, tuple(jax.devices()[:devices]), parallel)


def placed(x, y, where: teachers.Layout, spec: ImageSpec = SPEC):
    dealt = sealing.assign(len(x), where.n_units, KEY)
    sealed = sealing.deal(sealing.seal(x, y, spec), dealt, where.dealt_units)
    return teachers.place(sealed, where)


def run(folder: Path, x, y, method: Method | None = None, where: teachers.Layout | None = None,
        steps: int = 4, seed: int = 0, **options) -> tuple[State, Ledger]:
    """The real loop with seeded noise, from a fresh state; the ledger is left open."""
    method = method or datalens.build(CONFIG, SPEC)
    where = where or layout()
    ledger = Ledger.create(folder / "ledger.jsonl", {"epsilon": float("inf"), "delta": 1e-5})
    state = initial_state(method, jax.random.key(seed), where)
    options = {"on_block": lambda state, metrics: None} | options
    state = loops.train(method, placed(x, y, where), state, where, ledger, SeededBits(seed),
                        steps=steps, **options)
    return state, ledger


def opened(state: State, where: teachers.Layout):
    """Public arrays, and the real units' arrays [U, ...] (opened: this is a test)."""
    units = unseal(next(streaming.blocks(state.units, where, where.n_units)))
    return jax.device_get(state.public), units


def equal(a, b) -> bool:
    """Bit for bit."""
    return jax.tree.all(jax.tree.map(
        lambda p, q: np.asarray(p).tobytes() == np.asarray(q).tobytes(), a, b))


def differing_units(a, b) -> set[int]:
    """Units of which any array differs, bit for bit."""
    found: set[int] = set()
    for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        rows = [i for i in range(len(p)) if p[i].tobytes() != q[i].tobytes()]
        found.update(rows)
    return found
