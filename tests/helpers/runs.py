"""Whole runs, in this process and as commands, small enough to make many of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import small_datalens

from dpgen_jax.core.config import Budget, MonitorOptions, Runtime
from dpgen_jax.core.run_folder import RunFolder
from dpgen_jax.data import from_arrays
from dpgen_jax.run import lifecycle
from dpgen_jax.run.progress import Notices

N = 60
BUDGET = Budget(10.0, 1e-3)
# The noise is found from the budget, so that the budget allows these steps and no more.
CONFIG = dataclasses.replace(small_datalens.CONFIG, sigma=None, steps=6)
# One step a block, a checkpoint after every block.
RUNTIME = Runtime(devices=1, chunk=4, steps_per_call=1, checkpoint_minutes=0)
FLAGS = [f"--{name}={value}" for name, value in {
    "test-fraction": 0, "teachers": 10, "batch": 4, "top-k": 8, "delta": 1e-3,
    "generator.latent": 4, "generator.hidden": 16, "generator.channels": 8,
    "discriminator.channels1": 4, "discriminator.channels2": 8, "discriminator.hidden": 8,
    "devices": 1, "chunk": 4}.items()]


def images(seed: int = 0, n: int = N):
    """x uint8 [n, 8, 8, 1] of noise and labels of three classes."""
    return small_datalens.images(n, seed)


def request(out: Path | None, *, resume: bool = False, seed: int | None = None,
            budget: Budget = BUDGET, runtime: Runtime = RUNTIME, release_to: str | None = None,
            **fields) -> lifecycle.Resolved:
    return lifecycle.Resolved(
        "datalens",
        "glyphs",
        dataclasses.replace(CONFIG, **fields),
        budget,
        runtime,
        out,
        resume,
        seed,
        release_to=release_to,
        monitor=MonitorOptions(verbose=True),
    )


def dataset(seed: int = 0):
    """The images as a data set."""
    return from_arrays(*images(seed), 3)


def train(out: Path | None, x=None, y=None, **options) -> tuple[lifecycle.Release, str]:
    """A run in this process; returns the release and all that was said, in private too."""
    said: list[str] = []
    if x is None:
        x, y = images()
    release = lifecycle.run(request(out, **options), from_arrays(x, y, 3), said.append,
                            Notices(said.append))
    return release, "\n".join(said)


def files(root: Path) -> RunFolder:
    return RunFolder(root)


def snapshot(root: Path) -> dict[str, bytes]:
    """All files of a folder, by relative path."""
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*"))
            if p.is_file()}


def environment() -> dict[str, str]:
    return os.environ | {"JAX_NUM_CPU_DEVICES": "1"}


def command(module: str, *words, cwd: Path) -> subprocess.CompletedProcess:
    """python -m dpgen_jax.MODULE WORDS."""
    return subprocess.run([sys.executable, "-m", f"dpgen_jax.{module}", *map(str, words)],
                          capture_output=True, text=True, timeout=1800, cwd=cwd,
                          env=environment(), check=False)


def npz(path: Path, x: np.ndarray, y: np.ndarray, classes: int = 3) -> Path:
    np.savez(path, x_train=x, y_train=y, classes=classes)
    return path
