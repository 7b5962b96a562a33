"""Tests run on eight fake CPU devices, so that layouts can be compared in one process."""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Tests compile much and compute little: LLVM does not optimise, and kernels come from XLA's older
# emitters, which together makes compiling five times cheaper. What is copied and kept in memory is
# as in a run; tests of memory compile as a run does nevertheless (`toy.AS_IN_A_RUN`).
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 "
                                   "--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("DPGEN_DATA", os.path.join(os.path.dirname(__file__), "../../shared/data"))

if "PYTEST_XDIST_WORKER" not in os.environ:
    # What one worker or subprocess compiled, another need not: they inherit the folder's name.
    compiled = tempfile.mkdtemp(prefix="compiled-")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", compiled)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)

import jax
import numpy as np
import pytest

jax.config.update("jax_debug_key_reuse", False)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
