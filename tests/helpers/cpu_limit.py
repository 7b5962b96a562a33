"""How fast this machine is now, so that a limit on time is a limit on work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np


def _unit() -> float:
    """CPU seconds of a fixed piece of work, of Python and of NumPy: 0.05 where limits were set."""
    started = time.process_time()
    total = 0
    for i in range(600_000):
        total += i % 7
    values = np.random.default_rng(0).random(600_000)
    for _ in range(2):
        np.sort(values)
    return time.process_time() - started


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fails where what is done within takes more CPU than this on the machine where a unit takes
    0.05 s. Neither a slow machine nor others that use it make a difference."""
    before = _unit()
    started = time.process_time()
    yield
    spent = time.process_time() - started
    unit = max(before, _unit())
    assert spent < seconds * unit / 0.05, f"{spent:.2f} s, where a unit takes {unit:.2f} s"
