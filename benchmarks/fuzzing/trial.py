"""One case through one child: what was read, what came of it, and what is wrong with that."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from benchmarks.common import ROOT
from benchmarks.fuzzing import readers
from benchmarks.fuzzing.case import Case

# One long-lived child that reads, with limits of time and memory for each case.
#
# An address-space limit would stop JAX itself, so the parent watches the child's resident memory in
# /proc. Time is the child's own: seconds of processor it used, or seconds in which it waits without
# using any, so that a busy machine makes no case slow.

SECONDS = 60.0
BYTES = 2 * 10**9
IDLE_BYTES = 10**9
"""a child that still takes this much after a case is replaced: caches are no fault of a case"""
LOOK = 0.02
STALLED = 300.0
"""seconds after which a case has hung, whatever the machine was busy with"""
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def watched() -> bool:
    """Whether this system tells what a process uses."""
    return Path("/proc/self/statm").exists()


class Child:
    """A context manager. answer(reader, case folder, options) starts a process where there is none.

    home: the folder that the process takes for its user's own.
    """

    def __init__(self, home: Path):
        self._home, self._process = home, None
        self._ready: set[str] = set()
        self.restarts = -1
        self.peak = 0

    def answer(self, reader: str, root: Path, options: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._start()
        if reader not in self._ready:
            said = self._ask({"reader": reader}, STALLED)
            if said:
                raise RuntimeError(f"the child cannot import {reader}: {said}")
            self._ready.add(reader)
        said = self._ask({"reader": reader, "root": str(root), "options": options}, SECONDS)
        if said["status"] in ("hang", "memory", "died") or self._resident() > IDLE_BYTES:
            self.close()
        return said

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fuzzing.child"], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(self._home))
        self._ready, self.restarts = set(), self.restarts + 1

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return self._wait(seconds)
        except BrokenPipeError:
            return self._ended()

    def _wait(self, seconds: float) -> dict[str, Any]:
        """The next line of the child, or the limit that it met."""
        started = moved = time.monotonic()
        began = used = self._cpu()
        output = self._process.stdout
        while not select.select([output], [], [], LOOK)[0]:
            now, cpu = time.monotonic(), self._cpu()
            if cpu > used or self._runs():
                used, moved = cpu, now
            resident = self._resident()
            self.peak = max(self.peak, resident)
            if resident > BYTES:
                return {"status": "memory", "text": f"{resident / 1e9:.1f} GB resident"}
            if used - began > seconds or now - moved > seconds or now - started > STALLED:
                return {"status": "hang", "text": f"{now - started:.0f} s, {used - began:.1f} s of "
                        "processor"}
        line = output.readline()
        return json.loads(line) if line else self._ended()

    def _ended(self) -> dict[str, Any]:
        return {"status": "died", "text": f"exit status {self._process.wait()}"}

    def _stat(self) -> list[str]:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return []

    def _cpu(self) -> float:
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0

    def _runs(self) -> bool:
        """Whether it would run if it got a processor, or waits for a disk."""
        return self._stat()[:1] in (["R"], ["D"])

    def _resident(self) -> int:
        with contextlib.suppress(OSError, AttributeError):
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE
        return 0

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def environment(home: Path) -> dict[str, str]:
    """That of this process, with nothing of the user's own in reach."""
    places = {"HOME": home, "DPGEN_STATE": home / "state", "XDG_CACHE_HOME": home / "cache",
              "DPGEN_CACHE": home / "decoded", "DPGEN_DATA": home / "none"}
    return os.environ | {name: str(place) for name, place in places.items()} | {
        "JAX_NUM_CPU_DEVICES": "1", "JAX_PLATFORMS": "cpu"}


LONGEST_LINE = 3000
"""characters; more is no line that anybody reads"""


@dataclasses.dataclass(frozen=True)
class Source:
    """make(draw) -> a case; check(case, what the reader returned) -> what is wrong, or None."""

    make: Callable[[Random], Case]
    check: Callable[[Case, Any], str | None] = lambda case, value: None


CASES = tuple(name for name in readers.HOMES if name != "planted")
"""Readers whose cases are in `cases`: a function of its name makes them, and check_NAME may judge
what is accepted."""


def home(reader: str) -> str:
    """The module that reads it: readers of one module can share a child."""
    return readers.HOMES[reader][0]


@functools.cache
def source(reader: str) -> Source:
    made = importlib.import_module("benchmarks.fuzzing.cases" if reader in CASES
                                   else f"benchmarks.fuzzing.{reader}")
    make = getattr(made, reader) if reader in CASES else made.make
    return Source(make, getattr(made, f"check_{reader}", lambda case, value: None))


class Trial:
    """A context manager: a child, and the folder in which cases are laid out."""

    def __enter__(self) -> Trial:
        self._place = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.child = Child(self._place / "home")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.child.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def fault(self, reader: str, case: Case) -> tuple[str, str | None]:
        """(how the reader ended, what is wrong with that or None)."""
        root = self._place / "case"
        for old in (root, self._place / "home"):
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()
        case.write(root)
        said = self.child.answer(reader, root, case.options)
        return said["status"], self._judged(reader, case, said)

    def _judged(self, reader: str, case: Case, said: dict[str, Any]) -> str | None:
        status, text = said["status"], said.get("text", "")
        if status == "ok":
            return source(reader).check(case, said["value"])
        if status != "refused":
            return f"{status}: {text}"
        if not text.strip() or len(text.splitlines()) > 1:
            return f"an error of {len(text.splitlines())} lines: {text[:300]!r}"
        if len(text) > LONGEST_LINE:
            return f"an error of {len(text)} characters: {text[:300]!r}"
        return None
