"""Tests run on eight fake CPU devices, so that layouts can be compared in one process."""

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("DPGEN_DATA", os.path.join(os.path.dirname(__file__), "../../shared/data"))

import jax
import numpy as np
import pytest

jax.config.update("jax_debug_key_reuse", False)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
