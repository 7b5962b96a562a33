"""How long a stage of a run is silent: until its first block is compiled and computed.

Nothing tells this beforehand: neither the size of a program nor its number of operations says how
long XLA will optimise it. What a program of the same shapes took on this machine the last time says
so, and is remembered beside the journal; without it the seconds that have gone are shown, and no
estimate.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax

from dpgen_jax.accountant import journal
from dpgen_jax.core.atomic import json_bytes, write_together
from dpgen_jax.core.console import in_notebook, tell

FILE, MOST = "compiling.json", 500
"""The name of the file, and how many programs it holds at most."""
TICK, SILENCE = 1.0, 60.0
"""Seconds between two signs of life on a terminal, and between two lines elsewhere."""


def program(arrays: Any, *numbers: int) -> str:
    """Returns a digest of what decides how long compiling takes, as far as that is known.

    Args:
        arrays: A tree of the arrays that the program works on.
        numbers: What else shapes it, as the size of a chunk.
    """
    leaves, tree = jax.tree.flatten(arrays)
    shapes = [(leaf.shape, str(leaf.dtype)) for leaf in leaves if hasattr(leaf, "shape")]
    devices = [device.device_kind for device in jax.devices()]
    about = (str(tree), shapes, numbers, devices, os.cpu_count(), jax.__version__)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]


class Waiting:
    """Says that the first block of a stage is being compiled, until it is there.

    On a terminal the seconds tick; elsewhere there is a line a minute.
    """

    def __init__(self, unit: str, digest: str, live: bool):
        """Begins to wait.

        Args:
            unit: The name of a step.
            digest: Of the program, as `program` returns it; empty: none is remembered.
            live: Whether the seconds tick in one line.
        """
        self._unit, self._digest = unit, digest
        self._since, self._over = time.monotonic(), threading.Event()
        before = _remembered().get(digest)
        about = (f"about {before:.0f} s, as the last time" if before is not None else
                 "some seconds to some minutes; it is timed for the next time")
        tell(f"compiling; the first {unit} takes {about}", sys.stderr)
        self._thread = threading.Thread(target=self._tick, args=(live and not in_notebook(),),
                                        daemon=True, name="progress")
        self._thread.start()

    def _tick(self, live: bool) -> None:
        """Shows the seconds that have gone."""
        while not self._over.wait(TICK if live else SILENCE):
            seconds = time.monotonic() - self._since
            text = f"still at the first {self._unit}, {seconds:.0f} s with compiling"
            tell(f"\r{text}" if live else text, sys.stderr, "" if live else "\n")

    def end(self, first: bool) -> float:
        """Ends the waiting.

        Args:
            first: Whether the first block is there; else the stage was left.

        Returns:
            The seconds that it took.
        """
        seconds = time.monotonic() - self._since
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            if first and self._digest:
                _remember(self._digest, seconds)
        return seconds


def _remembered() -> dict[str, float]:
    """The seconds of earlier programs by their digests; none where the file cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        rows = json.loads((journal.place() / FILE).read_text("utf-8"))
        return {str(key): float(value) for key, value in rows.items()}
    return {}


def _remember(digest: str, seconds: float) -> None:
    """Writes the seconds of a program, if the journal's folder is there and can be written."""
    rows = {key: value for key, value in _remembered().items() if key != digest}
    kept = dict([*rows.items(), (digest, round(seconds))][-MOST:])
    folder: Path = journal.place()
    with contextlib.suppress(OSError):
        if folder.is_dir():
            write_together(folder, {FILE: json_bytes(kept)})
