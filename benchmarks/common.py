"""The command line, the record of results, timing and the machine, which all benchmarks share.

A benchmark is a `Script`, which parses its flags and describes the machine, and then writes its
record, {benchmark, command, machine, versions, git, seeds, date, results}, as often as it likes.

Only `matmul_rate`, `side_by_side` and `utility_of` import JAX, so that a driver which starts a
process for each configuration stays small and leaves the number of devices to that process.
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import itertools
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dpgen_jax.core.errors import BudgetExceeded, UserError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DATA_NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "fashion": "Fashion-MNIST",
              "mnist-50000": "MNIST, 50,000 records"}
PACKAGES = ("dpgen_jax", "jax", "jaxlib", "flax", "optax", "numpy")
PLACES = ("--out", "--record", "--json", "--work", "--folder", "--run", "--state", "--inception",
          "--inception-weights")
"""Flags of files and folders of this machine, which no record of a command has."""


class Script(argparse.ArgumentParser):
    """The command line of a benchmark, and the record that it writes.

    Args:
      name: The benchmark's module in this folder.
      doc: Its docstring, which is the help.
      record: The flag that names the results file, if one does; it becomes `args.record`.
    """

    def __init__(self, name: str, doc: str | None, record: str | None = "--out"):
        super().__init__(prog=f"python -m benchmarks.{name}", description=doc, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.name, self.words = name, list[str]()
        if record:
            self.add_argument(record, dest="record", type=Path, help="the results file")

    def begin(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse the command line, and describe the machine before anything is measured."""
        args, more = self.begin_with_more(argv)
        if more:
            self.error(f"unrecognized arguments: {' '.join(more)}")
        return args

    def begin_with_more(self, argv: Sequence[str] | None = None
                        ) -> tuple[argparse.Namespace, list[str]]:
        """Do the same, and return flags that are not the benchmark's own as well."""
        argv = sys.argv[1:] if argv is None else list(map(str, argv))
        args, more = self.parse_known_args(argv)
        self.record, self.words, self.where = getattr(args, "record", None), shown(argv), machine()
        return args, more

    def path(self, stem: str | None = None) -> Path:
        """Return the results file: the one that the command names, or STEM.json."""
        return Path(self.record or RESULTS / f"{stem or self.name}.json")

    def earlier(self, stem: str | None = None) -> dict[str, Any]:
        """Return the results that the file has; nothing where there is none."""
        path = self.path(stem)
        return json.loads(path.read_text())["results"] if path.is_file() else {}

    def of_this_commit(self) -> dict[str, Any]:
        """Return the results that the file has, if this commit wrote it; else nothing."""
        path = self.path()
        same = path.is_file() and json.loads(path.read_text()).get("git") == git()
        return self.earlier() if same else {}

    def save(self, results: Any, seeds: Sequence[int] = (), stem: str | None = None) -> Path:
        return write(record(self.name, self.words, seeds, results, self.where), self.path(stem))


def shown(argv: Sequence[str]) -> list[str]:
    """Return arguments as a reader would type them, without what is of this machine."""
    return [shlex.quote(word) for before, word in zip(["", *argv], argv, strict=False)
            if before not in PLACES and word.partition("=")[0] not in PLACES]


def machine() -> dict[str, Any]:
    """Describe the machine.

    Returns:
      The CPU model, the cores that this process may use, memory in bytes, the platform, and the
      load average of the last minute, which shows whether something else was running.
    """
    return {"cpu": _cpu_model(), "cores": cores(), "memory_bytes": _meminfo("MemTotal"),
            "platform": f"{platform.system()} {platform.machine()}",
            "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None}


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide the speed."""
    result = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            result[name] = "not installed"
    return result


def git() -> dict[str, Any]:
    """Return the commit, and whether files of the package or the benchmarks differ from it."""
    def output(*command: str) -> str | None:
        done = subprocess.run(("git", *command), cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        changed = output("status", "--porcelain", "--untracked-files=no", "--", "dpgen_jax",
                         "benchmarks/*.py")
        return {"commit": output("rev-parse", "HEAD"), "changed": bool(changed)}
    except OSError:
        return {"commit": None, "changed": None}


def record(name: str, arguments: Sequence[str], seeds: Sequence[int], results: Any,
           where: dict[str, Any] | None = None) -> dict:
    """Return the record of one benchmark, with results as JSON values.

    Args:
      where: `machine()` called before the measurement, so that the load is not the benchmark's own.
    """
    return {"benchmark": name, "command": " ".join(("python -m", f"benchmarks.{name}", *arguments)),
            "machine": where or machine(), "versions": versions(), "git": git(),
            "seeds": list(seeds), "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "results": results}


def write(rec: dict, out: str | Path | None = None) -> Path:
    """Write a record, whole or not at all, to a file, or as NAME.json to a folder that exists."""
    name = f"{rec['benchmark']}.json"
    path = Path(out or RESULTS / name)
    path = path / name if path.is_dir() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(rec, indent=1, allow_nan=False) + "\n")
    return part.replace(path)


def read_yaml(beside: str, name: str) -> Any:
    """Read a YAML file beside a module; all values are text, so that figures stay as printed."""
    return yaml.load(Path(beside).with_name(name).read_text(encoding="utf-8"), yaml.BaseLoader)


@functools.cache
def load(stem: str) -> dict[str, Any]:
    """Reads a results file: what was run where, and what came out."""
    return json.loads((RESULTS / f"{stem}.json").read_text(encoding="utf-8"))


def results(stem: str) -> Any:
    """Returns what came out."""
    return load(stem)["results"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def pm_of(score: dict[str, Any], digits: int = 3) -> str:
    """Returns mean and standard deviation, or the mean of a single value."""
    if len(score["values"]) == 1:
        return f"{score['mean']:.{digits}f}"
    return f"{score['mean']:.{digits}f} +- {score['std']:.{digits}f}"


def utility_of(release: Any, dataset: Any, tasks: Sequence[str], seeds: int,
               samples: int | None = 10_000, name: str = "fast",
               classifiers: Sequence[str] = ("cnn", "mlp")) -> dict[str, Any]:
    """Measure the utility of a release of images.

    Args:
      tasks: The tasks, as for `evaluation.utility`.
      samples: The number of synthetic images; None for that of the setting.
      classifiers: The classifiers; by default the networks of the papers alone.
    """
    from dpgen_jax.evaluation import utility
    from dpgen_jax.evaluation.assessment import Assessment
    from dpgen_jax.evaluation.results import Real, Synthetic

    setting = utility.SETTINGS[name]
    setting = dataclasses.replace(
        setting, n_samples=samples or setting.n_samples, seeds=seeds, tasks=tuple(tasks),
        classifiers=tuple(classifiers), optional=())
    part = utility.utility(
        Real(dataset.spec, (dataset.x_test, dataset.y_test), (dataset.x_train, dataset.y_train)),
        Synthetic(lambda n, seed: release.arrays(n, seed=seed)), setting)
    return Assessment.of([part], {"seconds": part.seconds}).json()


def apart(module: str, case: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Run `python -m MODULE CASE` in a process of its own.

    Each configuration has a process: the number of CPU devices is fixed before JAX starts, memory
    is freed whole, and the peak belongs to one configuration.

    Returns:
      The JSON of the last line of its output, or {"error": reason} where it fails.
    """
    command = [sys.executable, "-m", module, json.dumps(case)]
    # Else the last line of an error is about frames that JAX leaves out, and not the error.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={
        **os.environ, "JAX_TRACEBACK_FILTERING": "off", **env})
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if done.returncode < 0:
        return {"error": f"ended by signal {-done.returncode}"}
    return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}


def entry(main: Callable[[], Any], measured: Callable[[dict[str, Any]], Any]) -> None:
    """Run a module: `main`, or one case that `apart` passes, whose measurements are printed."""
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps(measured(json.loads(sys.argv[1]))))
    else:
        sys.exit(main())


def command(*args: Any) -> None:
    """Run `python -m ARGS` with its output shown.

    A signal that asks this process to stop is passed on, once: the run then ends its step, writes
    what it has, and this process ends too.

    Raises:
      BudgetExceeded: The budget allows no such run.
      UserError: It fails otherwise.
      SystemExit: With 128 and the signal's number, where it was asked to stop.
    """
    received: list[int] = []
    # In a session of its own: a terminal's Ctrl-C reaches it through this process alone.
    process = subprocess.Popen([sys.executable, "-m", *map(str, args)], start_new_session=True)

    def pass_on(number: int, _frame: Any) -> None:
        received.append(number)
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise SystemExit(128 + received[0])
    if code:
        kind = BudgetExceeded if code == BudgetExceeded.exit_code else UserError
        raise kind(f"{' '.join(map(str, args))} ended with exit code {code}; mend it and start "
                   "this script again: it continues")


def training_seconds(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of a training, of which each start counts from 0 again."""
    seconds = [row["seconds"] for row in rows]
    ended = [before for before, now in itertools.pairwise(seconds) if now < before]
    return float(sum(ended) + seconds[-1])


class Stopwatch:
    """The seconds since it was made, by the wall and of all threads of this process."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        """Return those by the wall."""
        return time.perf_counter() - self._wall

    def cpu_seconds(self) -> float:
        """Return those of the processor."""
        return time.process_time() - self._cpu


def timing(seconds: Sequence[float]) -> dict[str, Any]:
    return {"median": statistics.median(seconds), "all": list(seconds)}


def side_by_side(ways: Mapping[str, Callable[[], Any]], repeats: int,
                 warmup: int = 1) -> dict[str, dict[str, Any]]:
    """Time several ways of doing the same, in turns, so that a slower minute affects all of them.

    Args:
      ways: Functions by name; each is called forwards and backwards through the ways, until what it
        returns is ready.
    """
    import jax

    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(warmup + repeats):
        for name in list(ways)[::-1 if repeat % 2 else 1]:
            start = time.perf_counter()
            jax.block_until_ready(ways[name]())
            if repeat >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: timing(values) for name, values in seconds.items()}


def matmul_rate(size: int = 2048, repeats: int = 7) -> float:
    """Measure the floating-point operations a second of a float32 matrix product in JAX.

    It runs on the first device, at the precision that networks get by default.

    Args:
      size: Both matrices are [size, size].
    """
    import jax
    import jax.numpy as jnp

    a, b = jax.random.normal(jax.random.key(0), (2, size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    timed = side_by_side({"product": lambda: product(a, b)}, repeats)
    return 2 * size**3 / min(timed["product"]["all"])


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not report it."""
    return kilobytes("/proc/self/status", "VmRSS")


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far; 0 where the system has no word."""
    # ru_maxrss may include memory of the parent when it started this process: a second choice.
    if known := kilobytes("/proc/self/status", "VmHWM"):
        return known
    if os.name != "posix":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_bytes() -> int | None:
    """Return the memory available without swapping; None where the system does not report it."""
    return _meminfo("MemAvailable")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _meminfo(field: str) -> int | None:
    return kilobytes("/proc/meminfo", field) or None


def kilobytes(path: str, field: str) -> int:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    values = [int(line.split()[1]) for line in lines if line.startswith(f"{field}:")]
    return 1024 * values[0] if values else 0
