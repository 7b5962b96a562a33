"""One run on several processes of this machine, each with some CPU devices."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

LIMIT = 1800
"""Seconds, for processes that hang; nothing waits for them otherwise."""


def start(words, processes: int, devices: int, cwd: Path, change=lambda i, words: words,
          program=("-m", "dpgen_jax.train"), environment=lambda i: {}) -> list[subprocess.Popen]:
    """Starts the processes of `python -m dpgen_jax.train WORDS`.

    Args:
        words: The words that are common to all.
        processes: How many there are.
        devices: CPU devices of each.
        cwd: Where they run; process I writes to I.out and I.err there.
        change: From a process's number and words to the words that it gets.
        program: The words of Python that start the command.
        environment: From a process's number to variables of its environment.
    """
    place, commands = coordinator(), []
    for i in range(processes):
        meeting = [] if processes == 1 else [
            f"--coordinator={place}", f"--processes={processes}", f"--process-id={i}",
            f"--join-seconds={LIMIT}"]
        commands.append([*program, *change(i, [*words, *meeting])])
    return spawn(commands, devices, cwd, environment)


def start_watched(processes: int, devices: int, cwd: Path, change=lambda i: {}, **request
                  ) -> list[subprocess.Popen]:
    """Starts the processes of `run_process`.

    Args:
        processes: How many there are.
        devices: CPU devices of each.
        cwd: Where they run; I.audit there gets what process I drew and computed with.
        change: From a process's number to fields of the request that it alone gets.
        **request: Fields of the request.
    """
    common = request | {"processes": processes, "coordinator": coordinator(), "devices": devices,
                        "place": str(cwd)}
    program = Path(__file__).parent / "run_process.py"
    return spawn([[str(program), json.dumps(
        common | {"index": i, "audit": str(cwd / f"{i}.audit")} | change(i))]
        for i in range(processes)], devices, cwd)


def coordinator() -> str:
    """HOST:PORT of a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def spawn(commands, devices: int, cwd: Path, change=lambda i: {}) -> list[subprocess.Popen]:
    """Starts Python once for each list of words; process I writes to I.out and I.err.

    Args:
        commands: Lists of words.
        devices: CPU devices of each process.
        cwd: Where they run.
        change: From a process's number to variables of its environment.
    """
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    started = []
    for i, words in enumerate(commands):
        with open(cwd / f"{i}.out", "w") as out, open(cwd / f"{i}.err", "w") as err:
            started.append(subprocess.Popen(
                [sys.executable, *words], cwd=cwd, stdout=out, stderr=err,
                env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": paths}
                | change(i)))
    return started


def finish(started, cwd: Path) -> tuple[list[int], str]:
    """Waits for all; returns their exit codes and all that was said."""
    codes = [process.wait(LIMIT) for process in started]
    return codes, "\n".join((cwd / f"{i}.{end}").read_text()
                            for i in range(len(started)) for end in ("out", "err"))


def train(words, processes: int, devices: int, cwd: Path, **options) -> tuple[list[int], str]:
    """A whole run: `start`, then `finish`."""
    cwd.mkdir(exist_ok=True)
    return finish(start(words, processes, devices, cwd, **options), cwd)
