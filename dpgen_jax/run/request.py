"""The request that a user makes of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dpgen_jax.core.config import Budget, MonitorOptions, Runtime
from dpgen_jax.methods.shared.config import MethodConfig


@dataclasses.dataclass(frozen=True)
class Request:
    """One training run, as the user asked for it.

    Attributes:
        method: The name of a method.
        preset: The name of the preset that the configuration began from.
        config: The method's `Config`; `sigma` or `steps` may be None.
        budget: The promise, fixed before the first release.
        runtime: Speed and memory.
        out: The run folder; None: runs/METHOD-DATASET-TIME.
        resume: Whether to go on with the run in `out`.
        seed: Repeats a run, without a privacy claim; None: the operating system's randomness.
        monitor: What is shown while training.
        accept_uncovered: Whether public fields that were read from private records are released;
            the statement then says so.
        total_epsilon: The epsilon that all runs on these records, as far as this machine's journal
            knows them, may not exceed together; None: no such limit.
        why: Why the method and the preset were chosen; empty where the user named both.
        remarks: Lines to say behind the first one, on how the data are read.
        release_to: The address on an object store that the release is copied to; None: nowhere.
        typed: The words of the command that started the run; none from Python.
    """

    method: str
    preset: str
    config: MethodConfig
    budget: Budget
    runtime: Runtime = Runtime()
    out: Path | None = None
    resume: bool = False
    seed: int | None = None
    monitor: MonitorOptions = MonitorOptions()
    accept_uncovered: bool = False
    total_epsilon: float | None = None
    why: str = ""
    typed: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    release_to: str | None = None
