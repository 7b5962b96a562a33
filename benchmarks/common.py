"""What every benchmark shares: where it ran, how it is timed, and how its record is written.

Only `matmul_rate`, `side_by_side` and `usefulness` import JAX, so that a driver which starts a
process for each configuration stays small and leaves the number of devices to that process.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("dpgen_jax", "jax", "jaxlib", "flax", "optax", "numpy")


def machine() -> dict[str, Any]:
    """CPU model, cores that this process may use, memory in bytes, platform, and the load average
    of the last minute, by which a reader sees whether something else was running."""
    return {"cpu": _cpu_model(), "cores": cores(), "memory_bytes": _meminfo("MemTotal"),
            "platform": f"{platform.system()} {platform.machine()}",
            "load_average": round(os.getloadavg()[0], 2)}


def cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Python and the packages that decide the speed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def git() -> dict[str, Any]:
    """The commit, and whether tracked files of the package or the benchmarks differ from it."""
    def ask(*command):
        done = subprocess.run(("git", *command), cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        changed = ask("status", "--porcelain", "--untracked-files=no", "--", "dpgen_jax",
                      "benchmarks/*.py")
        return {"commit": ask("rev-parse", "HEAD"), "changed": bool(changed)}
    except OSError:
        return {"commit": None, "changed": None}


def record(name: str, arguments: Sequence[str], seeds: Sequence[int], results: Any,
           where: dict[str, Any] | None = None) -> dict:
    """The record of one benchmark: what was run, where, with what, and what was measured.

    arguments: those of the command line, without where the record is written.
    where: `machine()` taken before the measurement, so that the load is not the benchmark's own.
    """
    return {"benchmark": name, "command": " ".join(("python -m", f"benchmarks.{name}", *arguments)),
            "machine": where or machine(), "versions": versions(), "git": git(),
            "seeds": list(seeds), "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "results": results}


def write(rec: dict, out: str | Path | None = None) -> Path:
    """Writes a record to `out`, or to benchmarks/results/NAME.json; whole or not at all."""
    path = Path(out) if out else RESULTS / f"{rec['benchmark']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(rec, indent=1, allow_nan=False) + "\n")
    part.replace(path)
    return path


def usefulness(release: Any, loaded: Any, tasks: Sequence[str], seeds: int,
               samples: int | None = 10_000, setting: str = "fast",
               classifiers: Sequence[str] = ("cnn", "mlp")) -> dict[str, Any]:
    """What `evaluation.utility` finds of a release of images, by the networks of the papers alone
    unless others are named. samples: None for those of the setting."""
    from dpgen_jax.evaluation import utility

    chosen = utility.SETTINGS[setting]
    return utility.utility(
        lambda n, seed: release.sample(n, seed=seed), (loaded.x_test, loaded.y_test),
        (loaded.x_train, loaded.y_train), seeds, tasks=tasks, classifiers=classifiers,
        setting=dataclasses.replace(chosen, n_samples=samples or chosen.n_samples))


def apart(module: str, case: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Runs `python -m MODULE CASE` in a process of its own and returns the JSON of its last line.

    A process for each configuration: the number of CPU devices is fixed before JAX starts, memory
    is freed whole, and the peak belongs to one configuration. Where it fails: {"error": why}.
    """
    command = [sys.executable, "-m", module, json.dumps(case)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True,
                          text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if done.returncode < 0:
        return {"error": f"ended by signal {-done.returncode}"}
    return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}


def timing(seconds: Sequence[float]) -> dict[str, Any]:
    """The median and all that it is the median of."""
    return {"median": statistics.median(seconds), "all": list(seconds)}


def side_by_side(ways: Mapping[str, Callable[[], Any]], repeats: int,
                 warmup: int = 1) -> dict[str, dict[str, Any]]:
    """Times several ways of doing the same, in turns, so that a slower minute meets all of them.

    Each way is called `warmup + repeats` times, forwards and backwards through the ways, until what
    it returns is ready; the first `warmup` rounds are not counted.
    """
    import jax

    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(warmup + repeats):
        for name in list(ways)[::-1 if turn % 2 else 1]:
            start = time.perf_counter()
            jax.block_until_ready(ways[name]())
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: timing(values) for name, values in seconds.items()}


def matmul_rate(size: int = 2048, repeats: int = 7) -> float:
    """Floating-point operations a second of a float32 product [size, size] x [size, size] in JAX
    on the first device, at the precision that networks get by default: the best of `repeats`."""
    import jax
    import jax.numpy as jnp

    a, b = jax.random.normal(jax.random.key(0), (2, size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    timed = side_by_side({"product": lambda: product(a, b)}, repeats)
    return 2 * size**3 / min(timed["product"]["all"])


def resident_bytes() -> int:
    """Resident memory of this process now; 0 where the system does not tell."""
    return _kilobytes("/proc/self/status", "VmRSS")


def peak_bytes() -> int:
    """The most resident memory that this process has held."""
    # ru_maxrss may include what the parent held when it started this process: a second choice.
    unit = 1 if sys.platform == "darwin" else 1024
    return (_kilobytes("/proc/self/status", "VmHWM")
            or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def available_bytes() -> int | None:
    """Memory that can be taken without swapping; None where the system does not tell."""
    return _meminfo("MemAvailable")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _meminfo(field: str) -> int | None:
    return _kilobytes("/proc/meminfo", field) or None


def _kilobytes(path: str, field: str) -> int:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    found = [int(line.split()[1]) for line in lines if line.startswith(f"{field}:")]
    return 1024 * found[0] if found else 0
