"""What the commands share: one clear line for an error, exit codes, and flags from dataclasses."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tyro

from dpgen_jax import methods
from dpgen_jax.errors import UserError, one_line
from dpgen_jax.run.progress import tell

INCOMPLETE = 4


def main(command: Callable[[list[str]], int | None]) -> None:
    """Runs a command: exit 0, or 2 on a usage or data error, 3 without budget for a step, 4 (which
    the command returns) where a release was written and something beside it failed, 130 after a
    second Ctrl-C, and 143 (129) where SIGTERM (SIGHUP) ended it."""
    for stream in (sys.stdout, sys.stderr):  # a name that cannot be shown ends no run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if code := command(sys.argv[1:]):
            sys.exit(code)
    except UserError as error:
        tell(f"error: {one_line(error)}", sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        tell(f"error: {one_line(error)}", sys.stderr)
        sys.exit(UserError.exit_code)
    except KeyboardInterrupt:
        tell("interrupted", sys.stderr)
        sys.exit(130)


def split_method(argv: Sequence[str], default: str) -> tuple[str, list[str]]:
    """METHOD is the first argument unless that starts with '-'."""
    if argv and not argv[0].startswith("-"):
        return argv[0], list(argv[1:])
    return default, list(argv)


def peek(argv: Sequence[str], flag: str) -> str | None:
    """The value of a flag before the real parsing: the preset decides the defaults."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(flag + "="):
            return word.split("=", 1)[1]
    return None


def parse(cls: Any, argv: Sequence[str], prog: str, description: str) -> Any:
    """Parses `argv` into the dataclass `cls`; `--help` prints and exits.

    Errors: UserError with the parser's message in one line.
    """
    caught = io.StringIO()
    try:
        with contextlib.redirect_stderr(caught):
            return tyro.cli(cls, args=list(argv), prog=prog, description=description)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(caught.getvalue(), cls) + f" (see: {prog} --help)") from None


def _one_line(box: str, cls: type) -> str:
    """The first message of the parser's framed text, with the nearest flag where one is unknown."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]
    rule = re.compile(r"\W*[\u2500-]{8}")  # of dashes where the terminal has ASCII only
    if lines and rule.match(lines[0]):
        del lines[0]
    first = itertools.takewhile(lambda line: not rule.match(line), lines)
    rows = [re.sub(r"[^\x20-\x7e]", " ", row).strip() for row in first]
    message = " ".join(row for row in rows if row)
    unknown = re.match(r"Unrecognized options: --?([\w.-]+)", message)
    if unknown:
        known = [name.replace("_", "-") for name in _flags(cls)]
        message += methods.nearest(unknown[1].replace("_", "-"), known)
    return message


def _flags(cls: type) -> Iterator[str]:
    for name, kind in typing.get_type_hints(cls).items():
        yield from _flags(kind) if dataclasses.is_dataclass(kind) else [name]


def use_all_cores() -> None:
    """On CPU, one JAX device a core: small networks do not use more than one core each.

    Must run before JAX touches a backend; what the user set in the environment is left alone.
    """
    import jax

    # On a busy machine one device may wait minutes for another; XLA's own patience is 40 s.
    os.environ["XLA_FLAGS"] = " ".join(filter(None, (
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600",
        "--xla_cpu_collective_call_terminate_timeout_seconds=3600", os.environ.get("XLA_FLAGS"))))
    if ("JAX_NUM_CPU_DEVICES" not in os.environ
            and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")):
        with contextlib.suppress(RuntimeError):  # a backend is already up: keep its devices
            jax.config.update("jax_num_cpu_devices", min(16, len(os.sched_getaffinity(0))
                              if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))

