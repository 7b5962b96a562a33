"""Tests run on eight fake CPU devices, so that layouts can be compared in one process."""

import atexit
import contextlib
import ctypes
import gc
import inspect
import itertools
import os
import random
import re
import shutil
import sys
import tempfile
import zlib
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Tests compile much and compute little: LLVM does not optimise, takes a program as one module, and
# kernels come from XLA's older emitters, which together makes compiling more than five times
# cheaper. What is copied and kept in memory is as in a run; tests of memory compile as a run does
# nevertheless (`small_datalens.AS_IN_A_RUN`).
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0" + (
    " --xla_cpu_parallel_codegen_split_count=1"
    " --xla_cpu_use_fusion_emitters=false"  # which later versions do not know
    if tuple(map(int, version("jax").split(".")[:2])) < (0, 11) else ""))
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # nobody reads where code came from
os.environ.setdefault("DPGEN_DATA", os.path.join(os.path.dirname(__file__), "../../shared/data"))

if "PYTEST_XDIST_WORKER" not in os.environ:
    # What one worker or subprocess compiled, another need not: they inherit the folder's name.
    compiled = tempfile.mkdtemp(prefix="compiled-")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", compiled)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)

# The journal of spent runs never lies in the home of who runs the tests.
if "PYTEST_XDIST_WORKER" not in os.environ:
    state = tempfile.mkdtemp(prefix="state-")
    os.environ["DPGEN_STATE"] = os.path.join(state, "shared")
    atexit.register(shutil.rmtree, state, ignore_errors=True)

import jax
import numpy as np
import pytest
from hypothesis import settings

from dpgen_jax.core import errors

# Faults of disks and processes are made as POSIX makes them, and scripts of .ci need its shell.
collect_ignore = [] if os.name == "posix" else [
    "accountant/test_ledger_faults.py", "accountant/test_ledger_files.py", "federated/test_wire.py",
    "fuzz", "run/test_signals.py", "run/test_crash.py", "project/test_packaging.py"]
POSIX = re.compile(r"AF_UNIX|mkfifo|/proc/self|S_IMODE|symlink_to|SIGKILL|sys/stdin|/dev/")

jax.config.update("jax_debug_key_reuse", False)
settings.register_profile("tests", deadline=None)  # which a busy machine misses
settings.load_profile("tests")
# Tests read most messages as a command prints them; `dg.fit` and other calls of the public module
# word theirs for Python all the same.
WORDING = errors.worded(on_command_line=True)
WORDING.__enter__()
# Tracing makes many objects and few cycles; collecting as often as Python does by default takes
# 7 to 10 % of the time.
gc.set_threshold(100_000, 20, 20)


_machines = itertools.count()
MOST_MEMORY = 4e9


def pytest_collection_modifyitems(items):
    """Tests of modes, pipes, devices and links are skipped where the system has none of these."""
    if os.name != "posix":
        for item in items:
            if POSIX.search(inspect.getsource(item.function)):
                item.add_marker(pytest.mark.skip(reason="of files as POSIX has them"))


def pytest_collection_finish():
    """Objects of the collection of tests live to the end, and nothing looks at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Chance fails no test: what a test draws from the operating system in this process (noise,
    `secrets`, NumPy's generators without a seed) is the same in each of its runs, and other than
    in any other test."""
    drawn = np.random.Generator(np.random.PCG64(zlib.crc32(item.nodeid.encode())))
    os.urandom = random._urandom = drawn.bytes


@pytest.fixture(autouse=True, scope="module")
def memory():
    """A worker forgets what it compiled after a module that leaves it with more than 4 GB."""
    yield
    with contextlib.suppress(OSError, AttributeError):  # of Linux and its C library alone
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        if pages * os.sysconf("SC_PAGE_SIZE") > MOST_MEMORY:
            jax.clear_caches()
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="module")
def compiled_once():
    """The runs of a module share what they compile, as `compiled.once` says."""
    import compiled

    with compiled.once():
        yield


@pytest.fixture
def call(capsys, monkeypatch):
    """A command in this process: (exit code, stdout, stderr)."""
    from dpgen_jax.cli import terminal

    def one(module, *words):
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, words)])
        code = 0
        try:
            terminal.main(module.command)
        except SystemExit as stop:
            code = stop.code or 0
        return (code, *capsys.readouterr())

    return one


def _machine():
    """A folder for the journal of a machine on which nothing ran yet."""
    return Path(os.environ["DPGEN_STATE"]).parent / f"{os.getpid()}-{next(_machines)}"


@pytest.fixture(autouse=True, scope="module")
def shared_journal():
    """That of the runs that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DPGEN_STATE", str(_machine()))
        yield


@pytest.fixture(autouse=True)
def journal(monkeypatch, shared_journal):
    """Each test is on a machine of its own: no other test's runs were on its records."""
    folder = _machine()
    monkeypatch.setenv("DPGEN_STATE", str(folder))
    return folder


@pytest.fixture
def world():
    """The draws of all simulated runs of a test."""
    from simulated_runs import World  # for most tests nothing of it is needed

    return World()


@pytest.fixture
def root(tmp_path):
    """The run folder of a simulated run."""
    return tmp_path / "run"


@pytest.fixture
def rng():
    return np.random.default_rng(0)
