"""The battery on programs that are compiled as a run compiles them: `conftest` compiles others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BATTERY = Path(__file__).with_name("test_battery.py")


def battery(*words: str) -> str:
    """Output of pytest without flags of the tests; an empty one keeps `conftest` from its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", str(BATTERY), *words],
        env={**os.environ, "XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
def test_two_methods_pass_with_the_flags_of_a_run():
    """A record that is drawn, and records that all answer: the two that compile in seconds."""
    assert "8 passed" in battery("-m", "", "-k", "dpcgan or (dpmerf and not dpmerf_ae)")


@pytest.mark.long
def test_every_method_passes_with_the_flags_of_a_run():
    battery("-m", "")
