"""Processes that are timed and bounded: a row's own training, in this library or in a peer."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Spent:
    """The time and memory that a process took.

    Attributes:
      wall_seconds: From its start to its end, imports and compilation included.
      cpu_seconds: Of all its threads and children: what is compared, as it hardly depends on what
        else the machine does.
      peak_bytes: The most memory that it held.
    """

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int

    def plus(self, other: Spent) -> Spent:
        """Return what two processes took, one after the other."""
        return Spent(self.wall_seconds + other.wall_seconds, self.cpu_seconds + other.cpu_seconds,
                     max(self.peak_bytes, other.peak_bytes))


class Failed(Exception):
    """A process failed; the text is one line that says why."""


def timed(command: Sequence[str], log: Path, limit: int, env: Mapping[str, str] | None = None
          ) -> Spent:
    """Run a command to its end.

    Args:
      command: The command.
      log: The file that takes its output.
      limit: The CPU seconds that it may take.
      env: Further environment variables.

    Returns:
      What it took.

    Raises:
      Failed: It ended with an error, or took longer.
    """
    import resource  # which POSIX alone has: rows are made elsewhere too, and not run

    started = time.perf_counter()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10)))
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = code = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    if code:
        stopped = cpu >= limit or code == -signal.SIGXCPU
        raise Failed(f"more than {limit:,} CPU seconds" if stopped else last_line(log, code))
    return Spent(time.perf_counter() - started, cpu, usage.ru_maxrss * 1024)


def last_line(log: Path, code: int) -> str:
    """Return the last line of a log that says something, or the exit code."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return (lines or [f"ended with exit code {code}"])[-1][:300]
