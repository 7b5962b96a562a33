"""A command as a process: one clear line for an error, exit codes, printing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable

from dpgen_jax.core import files
from dpgen_jax.core.config import to_json
from dpgen_jax.core.console import tell
from dpgen_jax.core.errors import UserError, one_line, worded
from dpgen_jax.core.files import Json
from dpgen_jax.core.terms import at_most


def main(command: Callable[[list[str]], int | None]) -> None:
    """Runs a command on the arguments of the process, and exits as it ended.

    The exit code is 0, or 2 on a usage or data error, 3 without budget for a step, 4 (which the
    command returns) where a release was written but something else failed, 75 (likewise)
    where a time limit ended a run that can go on, 130 after a second Ctrl-C, and 143 (129) where
    SIGTERM (SIGHUP) ended it.

    Args:
        command: From the arguments to an exit code, None for 0.
    """
    for stream in (sys.stdout, sys.stderr):  # a name that cannot be shown ends no run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with worded(on_command_line=True):
            code = command(sys.argv[1:])
        if code:
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


def renamed(old: str, new: str) -> None:
    """Says on stderr that an old spelling of a command has a new name."""
    tell(f"note: `{old}` is now `python -m dpgen_jax.{new}`", sys.stderr)


def use_all_cores() -> None:
    """Makes one JAX device a CPU core: small networks do not use more than one core each.

    It must run before JAX touches a backend. Settings of the user in the environment stay.
    """
    import jax

    # On a busy machine one device may wait minutes for another; XLA's own patience is 40 s.
    os.environ["XLA_FLAGS"] = " ".join(filter(None, (
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600",
        "--xla_cpu_collective_call_terminate_timeout_seconds=3600",
        # Another process may write, evaluate or post-train for longer than the usual half hour.
        "--xla_cpu_collective_timeout_seconds=86400", os.environ.get("XLA_FLAGS"))))
    if ("JAX_NUM_CPU_DEVICES" not in os.environ
            and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")):
        with contextlib.suppress(RuntimeError):  # a backend is already up: keep its devices
            jax.config.update("jax_num_cpu_devices", min(16, files.cores()))


BOUNDS = ("epsilon", "delta", "epsilon_without_it", "spent", "own_cost_rdp",
          "may_be_too_low_with_probability", "independent", "laws of the entries")
"""Names of numbers that are upper bounds"""


def print_record(record: Json, as_json: bool) -> None:
    """Prints a record to stdout.

    Args:
        record: Names and values; a value may itself be a dictionary.
        as_json: Whether to print strict JSON, in which an infinite number is "inf".
    """
    if as_json:
        print(json.dumps(to_json(record), indent=1))
        return
    for name, value in record.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_text(key, part)}" for key, part in value.items())
        print(f"{name.replace('_', ' ') + ':':14} {value}")


def _text(name: str, value: object) -> str:
    if isinstance(value, float):
        return at_most(value) if name in BOUNDS else f"{value:.6g}"
    return str(value)
